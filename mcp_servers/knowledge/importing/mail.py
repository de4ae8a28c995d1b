"""Mail -> passages: header, every text part in order, then attachments below their names.

    eml    one message; mht is one as well, a saved web page with its pictures
    mbox   many messages, each below its subject

Of alternatives, the one with the most text is read, because the plain one is often empty or says only that the other
one exists. A part that is not read is named in a warning.
"""

from __future__ import annotations

import binascii
import quopri
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from email import message_from_bytes
from email.message import Message
from typing import TYPE_CHECKING, TypeAlias, cast

from mcp_servers.knowledge.importing.calendars import read_calendar, unfold
from mcp_servers.knowledge.importing.documents import Blob, ParseLimits
from mcp_servers.knowledge.importing.html import declared_charset, read_html
from mcp_servers.knowledge.importing.plain_text import read_plain
from mcp_servers.knowledge.types import Passage
from rkllm_base.encodings import decode, decode_word

if TYPE_CHECKING:
    from email.header import Header

ReadAttachment: TypeAlias = Callable[[Blob, ParseLimits], tuple[list[Passage], tuple[str, ...]]]
_Parsed: TypeAlias = tuple[str, list[Passage], tuple[str, ...]]

_MAX_ATTACHMENTS, _MAX_MESSAGES, _MAX_DEPTH = 100, 20_000, 20
# Longer headers are shown as written: the library parses addresses in quadratic time.
_MAX_HEADER = 20_000
# The plain alternative is preferred unless it has less than this share of the other one's characters.
_MIN_PLAIN_SHARE = 0.8
# Parts of a saved page that show nothing of its text.
_RESOURCE = re.compile(r"(?:image|font|audio|video)/.*|text/css|(?:application|text)/(?:x-)?javascript")
_SAVED_PAGE = re.compile(r"saved by", re.IGNORECASE)
# Mozilla's begin with "From - ", sometimes without a date.
_MESSAGE_START = re.compile(rb"(?:\A|(?<=\n))From (?:-|\S+ [^\r\n]{0,100}\d{4}[^\r\n]{0,20}) ?\r?\n(?=[A-Za-z][\w-]*:)")
# git begins each patch like a message, with this date; one in the text of a message begins no other.
_PATCH_START = re.compile(rb"From [0-9a-f]{40,64} Mon Sep 17 00:00:00 2001\b")
_QUOTED_START = re.compile(rb"^>(>*From )", re.MULTILINE)
# A message of S/MIME is one file, also if it is only signed.
_SEALED = frozenset({"application/pkcs7-mime", "application/x-pkcs7-mime"})
_ENCRYPTED = frozenset({"enveloped-data", "authenveloped-data"})
_IS_ENCRYPTED = "The text of the message is encrypted and was not read."
_PART_HEADER = re.compile(r"^Content-Type:", re.MULTILINE | re.IGNORECASE)
_PART_NAME = re.compile(r"""\bname="?([^"\r\n]{1,200})"?""", re.IGNORECASE)
_SHOWN_NAMES = 5
_UUENCODED = re.compile(
    r"^begin [0-7]{3,4} ([^\r\n]{1,200})\n((?:[ -`]{1,62}\n)*?)(?:[` ]?\n)?end[ \t]*$", re.MULTILINE
)
# Usenet's form of a file in a text, in bytes of any value.
_YENC = re.compile(
    rb"^=ybegin [^\r\n]{0,200}?name=([^\r\n]{1,200})\r?\n(.*?)^=yend\b[^\r\n]*", re.MULTILINE | re.DOTALL
)
_YENC_PART, _YENC_ESCAPED = re.compile(rb"=ypart [^\r\n]*\r?\n"), re.compile(rb"=(.)", re.DOTALL)
_YENC_TABLE = bytes((code - 42) % 256 for code in range(256))
_LENGTH = re.compile(rb"(\d{1,9})[ \t]*\r?\n")
_ENRICHED_MARK = re.compile(r"<param>.*?</param>|</?[a-z][\w-]{0,60}>|<<", re.IGNORECASE | re.DOTALL)
_ENCODED_WORD = re.compile(r"=\?([\w.:*-]{1,60})\?([bBqQ])\?([^?\s]*)\?=")
_ENCODED_WORDS = re.compile(rf"{_ENCODED_WORD.pattern}(?:\s*{_ENCODED_WORD.pattern})*")
_BASE64 = re.compile(rb"\s*(?:[A-Za-z0-9+/]+[ \t\r]*\n\s*)*[A-Za-z0-9+/]*={0,2}[ \t]*(?=\s|$)")
_MUCH_BASE64 = re.compile(rb"^[A-Za-z0-9+/=]{60}", re.MULTILINE)
_FLOWED, _FLOWED_WITH_SPACE = re.compile(r"(?m)(?<!^--) \n>* ?"), re.compile(r"(?m)(?<!^--)(?<= )\n>* ?")


def read_mail(blob: Blob, limits: ParseLimits, read_attachment: ReadAttachment) -> _Parsed:
    """Return subject, passages and warnings of one message; ``read_attachment`` reads the files in it."""
    # Some programs write a mark or an empty line before the head, Apple Mail the length, and properties at the end.
    content = blob.content.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    if length := _LENGTH.match(content):
        content = content[length.end() : length.end() + int(length[1])]
    # The older policy, which joins the pieces of a name before it decodes them, and reads malformed heads.
    message = message_from_bytes(content)
    reader = _MessageReader(limits, read_attachment)
    subject = reader.read(message)
    return subject, reader.passages, tuple(reader.warnings)


def read_mailbox(blob: Blob, limits: ParseLimits, read_attachment: ReadAttachment) -> _Parsed:
    """Return the messages of a mailbox, each below its subject."""
    starts = [match.start() for match in _MESSAGE_START.finditer(blob.content)]
    if not _PATCH_START.match(blob.content):
        starts = [start for start in starts if not _PATCH_START.match(blob.content, start)]
    passages: list[Passage] = []
    warnings: list[str] = []
    for start, end in zip(starts[:_MAX_MESSAGES], [*starts[1:], len(blob.content)], strict=False):
        content = blob.content[start:end].partition(b"\n")[2]
        subject, read, problems = read_mail(
            Blob(_QUOTED_START.sub(rb"\1", content), blob.name), limits, read_attachment
        )
        passages += [
            replace(passage, headings=(subject, *passage.headings) if subject else passage.headings) for passage in read
        ]
        warnings += problems
        if len(passages) > limits.passages:
            break
    if len(starts) > _MAX_MESSAGES:
        warnings.append(f"Only the first {_MAX_MESSAGES:,} of {len(starts):,} messages were read.")
    return "", passages, tuple(dict.fromkeys(warnings))


@dataclass
class _MessageReader:
    """Collects the passages and warnings of one message."""

    limits: ParseLimits
    read_attachment: ReadAttachment
    passages: list[Passage] = field(default_factory=list[Passage])
    warnings: list[str] = field(default_factory=list[str])
    attachments: list[tuple[bytes, str]] = field(default_factory=list[tuple[bytes, str]])

    def read(self, message: Message) -> str:
        """Read a whole message; return its subject."""
        headers: dict[str, str] = {}
        for name in ("From", "To", "Cc", "Date", "Subject"):
            # The library knows only the charsets of Python, and parses addresses in quadratic time.
            raw: Iterator[str | Header] = (value for key, value in message.raw_items() if key.lower() == name.lower())
            headers[name] = " ".join(_ENCODED_WORDS.sub(_decoded_words, _written(next(raw, ""))).split())
        is_page = _SAVED_PAGE.search(headers["From"]) is not None
        lines = [] if is_page else [f"{name}: {value}" for name, value in headers.items() if value]
        self.passages += [Passage("\n".join(lines))] if lines else []
        title, body = self._body(message, is_page=is_page)
        self.passages += body
        for number, (content, name) in enumerate(self.attachments, 1):
            if number > _MAX_ATTACHMENTS:
                self.warnings.append(f"Only the first {_MAX_ATTACHMENTS} attachments were read.")
                break
            passages, warnings = self.read_attachment(Blob(content, name), self.limits)
            self.passages += passages
            self.warnings += warnings
        return headers["Subject"] or (title if is_page else "")

    def _body(self, part: Message, depth: int = 0, *, is_page: bool = False) -> tuple[str, list[Passage]]:
        """Return the title and the passages of a part; remember its attachments."""
        kind, subtype = part.get_content_maintype(), part.get_content_subtype()
        if kind == "multipart" and depth < _MAX_DEPTH and isinstance(part.get_payload(), list):
            if subtype == "encrypted":
                self.warnings.append(_IS_ENCRYPTED)
                return "", []
            parts = cast("list[Message]", part.get_payload())
            inner = [self._body(inner_part, depth + 1, is_page=is_page) for inner_part in parts]
            title = next((title for title, _ in inner if title), "")
            read = [passages for _, passages in inner]
            # Inner and outer parts of a malformed message have the same boundary.
            epilogue = str(part.epilogue or "")
            if _PART_HEADER.search(epilogue):
                names = ", ".join(dict.fromkeys(_PART_NAME.findall(epilogue)[:_SHOWN_NAMES])) or "parts without a name"
                self.warnings.append(f"The message is malformed, and what is behind its end was not read: {names}.")
            if subtype == "alternative":
                # The one with the most text, and what invitations add.
                calendars = [at for at, other in enumerate(parts) if other.get_content_subtype() == "calendar"]
                # White space does not count: HTML and text have different amounts of it.
                texts = ["".join(passage.text for passage in passages) for passages in read]
                sizes = [0 if at in calendars else len("".join(text.split())) for at, text in enumerate(texts)]
                best = max(range(len(read)), key=lambda at: sizes[at], default=0)
                plain = next((at for at, other in enumerate(parts) if other.get_content_type() == "text/plain"), best)
                best = plain if sizes and sizes[plain] >= sizes[best] * _MIN_PLAIN_SHARE else best
                read = [passages for at, passages in enumerate(read) if at == best or at in calendars]
            return title, [passage for passages in read for passage in passages]
        if part.get_content_type() in _SEALED and str(part.get_param("smime-type", "")).lower() in _ENCRYPTED:
            self.warnings.append(_IS_ENCRYPTED)
            return "", []
        name = self._attachment_name(part)
        if name:
            if not (is_page and _RESOURCE.fullmatch(part.get_content_type())):
                self.attachments.append((_payload(part), name))
            return "", []
        return self._text(part, subtype) if kind == "text" else ("", [])

    def _attachment_name(self, part: Message) -> str:
        """Return the name of a part that is not a text of the message; empty for text."""
        name, kind = "", part.get_content_type()
        # RFC 2231 makes pieces of a name, which may be divided inside a letter.
        described = Message()
        for key, header in part.raw_items():
            if key.lower() in {"content-disposition", "content-type"}:
                described[key] = _written(header)
        for parameter, key in (("filename", "content-disposition"), ("name", "content-type")):
            stated = described.get_param(parameter, "", key)
            if isinstance(stated, tuple):
                stated = decode_word(stated[2].encode("raw-unicode-escape"), stated[0] or "")
            if stated:
                name = _ENCODED_WORDS.sub(_decoded_words, str(stated)).strip()
                break
        is_text = part.get_content_maintype() == "text" and kind != "text/css"
        if is_text and (not name or kind == "text/calendar") and part.get_content_disposition() != "attachment":
            return ""
        if kind == "message/rfc822":
            return f"{(name or f'message {len(self.attachments) + 1}').removesuffix('.eml')}.eml"
        if part.get_content_maintype() == "multipart" and not _payload(part).strip():
            return ""
        if kind in {"application/pkcs7-signature", "application/x-pkcs7-signature", "application/pgp-signature"}:
            return ""
        if not name:
            name = str(part.get("Content-Location", "")).rpartition("/")[2].partition("?")[0]
        return name or f"part of the type {kind}"

    def _text(self, part: Message, subtype: str) -> tuple[str, list[Passage]]:
        content = _payload(part)
        if subtype == "plain":
            content = _YENC.sub(self._take_yenc, content)
        # Senders often name a charset that lacks some of the characters.
        charset = part.get_content_charset("") or (declared_charset(content) if subtype == "html" else "")
        decoded = decode(unfold(content) if subtype == "calendar" else content, charset)
        self.warnings += decoded.warnings
        text = decoded.text[: self.limits.characters]
        if subtype == "plain":
            text = _UUENCODED.sub(self._take_uuencoded, text)
        elif subtype in {"enriched", "richtext"}:
            text = _ENRICHED_MARK.sub(lambda mark: "<" if mark[0] == "<<" else "", text)
        if subtype == "plain" and str(part.get_param("format", "")).lower() == "flowed":
            broken = _FLOWED if str(part.get_param("delsp", "")).lower() == "yes" else _FLOWED_WITH_SPACE
            text = broken.sub("", text)
        if subtype == "html":
            return read_html(text)
        return "", (read_calendar(text) if subtype == "calendar" else read_plain(text))

    def _take_uuencoded(self, match: re.Match[str]) -> str:
        """Remember a file that is in the text; return its text, or that of no such file as it is."""
        try:
            content = b"".join(binascii.a2b_uu(line.encode("ascii")) for line in match[2].splitlines())
        except (ValueError, UnicodeError):
            return match[0]
        self.attachments.append((content, match[1].strip()))
        return "\n"

    def _take_yenc(self, match: re.Match[bytes]) -> bytes:
        """Remember a file that is in the text."""
        encoded = _YENC_PART.sub(b"", match[2]).translate(None, b"\r\n")
        content = _YENC_ESCAPED.sub(lambda escaped: bytes([(escaped[1][0] - 64) % 256]), encoded)
        self.attachments.append((content.translate(_YENC_TABLE), decode_word(match[1], "").strip()))
        return b"\n"


def _written(header: str | Header) -> str:
    """Return a header as it is written, with bytes outside ASCII, which no charset declares, as text."""
    written = str(header)[:_MAX_HEADER]
    return written if written.isascii() else decode(written.encode("utf-8", "surrogateescape")).text


def _decoded_words(match: re.Match[str]) -> str:
    """Return encoded words as text; a character may be divided between two of them."""
    text, content, before = "", b"", ""
    for charset, kind, encoded in _ENCODED_WORD.findall(match[0]):
        charset = charset.partition("*")[0].lower()
        if charset != before:
            text, content, before = text + decode_word(content, before), b"", charset
        try:
            if kind in "bB":
                encoded = encoded.rstrip("=")
                content += binascii.a2b_base64(encoded + "=" * (-len(encoded) % 4))
            else:
                content += quopri.decodestring(encoded.encode(), header=True)
        except ValueError:
            return match[0]
    return text + decode_word(content, before)


def _payload(part: Message) -> bytes:
    inner = part.get_payload()
    transfer = str(part.get("Content-Transfer-Encoding", "")).strip(" ;").lower()
    if isinstance(inner, list):
        content = b"\n".join(inner_part.as_bytes() for inner_part in cast("list[Message]", inner))
        # The library takes an encoded message for the text of an empty one.
        return (_leading_base64(content) if transfer == "base64" else None) or content
    if transfer == "base64" and isinstance(inner, str):
        decoded = _leading_base64(inner.encode("utf-8", "surrogateescape"))
        if decoded is not None:
            return decoded
    content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


def _leading_base64(content: bytes) -> bytes | None:
    """Return decoded base64, and after it the text that a mailing list has added; None for no base64."""
    match = _BASE64.match(content)
    if not match or not match[0].strip():
        return None
    added = content[match.end() :].strip()
    encoded = b"".join(match[0].split()).rstrip(b"=")
    # Damage between two parts of it is left to the library.
    if _MUCH_BASE64.search(added) or len(encoded) % 4 == 1:
        return None
    return binascii.a2b_base64(encoded + b"=" * (-len(encoded) % 4)) + (b"\n" + added if added else b"")
