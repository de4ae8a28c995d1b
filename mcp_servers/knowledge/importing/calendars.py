"""Calendars and address books -> passages.

    ics    a passage for each event, task or note; also an invitation in a mail
    vcf    a passage for each person, below the name; pictures and keys are left out

Both have lines of name, parameters and value (RFC 5545, RFC 6350). A vCard of a telephone (2.1) escapes Japanese as
quoted-printable, often in Shift_JIS.
"""

from __future__ import annotations

import codecs
import quopri
import re
from collections.abc import Iterator
from typing import cast

from mcp_servers.knowledge.types import Passage
from rkllm_base.encodings import decode

_CALENDAR_NAMES = {
    "SUMMARY": "Subject",
    "DTSTART": "Start",
    "DTEND": "End",
    "DUE": "Due",
    "DURATION": "Duration",
    "RRULE": "Repeats",
    "RDATE": "Also on",
    "EXDATE": "Not on",
    "LOCATION": "Place",
    "ORGANIZER": "Organizer",
    "ATTENDEE": "Attendee",
    "STATUS": "Status",
    "DESCRIPTION": "Description",
    "COMMENT": "Comment",
    "CATEGORIES": "Categories",
    "CONTACT": "Contact",
    "URL": "Link",
}
_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)\d\d(Z?))?")
_ESCAPE = re.compile(r"\\([\\;,nN])")
_CONTACT_NAMES = {
    "NICKNAME": "Nickname",
    "X-PHONETIC-LAST-NAME": "Reading",
    "X-PHONETIC-FIRST-NAME": "Reading",
    "SOUND": "Reading",
    "ORG": "Organization",
    "TITLE": "Title",
    "ROLE": "Role",
    "TEL": "Telephone",
    "EMAIL": "Mail",
    "ADR": "Address",
    "BDAY": "Birthday",
    "URL": "Link",
    "NOTE": "Note",
    "CATEGORIES": "Categories",
}
_ENTRIES = frozenset({"VEVENT", "VTODO", "VJOURNAL"})
# Parts of a name or address, separated by a semicolon that is not escaped.
_IN_PARTS, _PART = frozenset({"N", "ADR", "ORG", "SOUND"}), re.compile(r"(?<!\\);")
# Name and parameters before a value, of which quotation marks may have any sign.
_HEAD = re.compile(r'(?:[^":]+|"[^"]*(?:"|$))*')
_PARAMETER = re.compile(r';((?:[^";]+|"[^"]*(?:"|$))*)')
# Encodings of a value: of text, and of pictures, keys and recordings, one of which may say how a name is spoken.
_QUOTED, _BINARY = "QUOTED-PRINTABLE", frozenset({"B", "BASE64"})
_MAX_PARAMETERS = 200
_FOLD, _FOLD_IN_QUOTED = re.compile(rb"\r?\n[ \t]"), re.compile(rb"(?<![=\r])\r?\n[ \t]")


def unfold(content: bytes) -> bytes:
    """Return a calendar or vCard with its long lines joined, which may be divided inside a letter.

    After a ``=`` that continues a quoted-printable line itself the white space stays.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        content = decode(content).text.encode()
    if b"\n" not in content:
        content = content.replace(b"\r", b"\n")
    return (_FOLD_IN_QUOTED if _QUOTED.encode() in content.upper() else _FOLD).sub(b"", content)


def read_calendar(text: str) -> list[Passage]:
    """Return a passage for each event, task or note of a calendar."""
    passages: list[Passage] = []
    lines: list[str] = []
    names: list[str] = []
    for name, parameters, value in _properties(text):
        kind = value.strip().upper()
        if name == "BEGIN":
            if kind in _ENTRIES and lines:
                # The entry before has no end.
                passages.append(Passage("\n".join(lines)))
                lines = []
            names.append(kind)
        elif name == "END":
            if names and names.pop() in _ENTRIES:
                passages.append(Passage("\n".join(lines)))
                lines = []
        elif name in _CALENDAR_NAMES and kind and names and names[-1] in _ENTRIES:
            address, person = _calendar_value(value), parameters.get("CN", "")
            lines.append(
                f"{_CALENDAR_NAMES[name]}: {f'{person} <{address}>' if person and person != address else address}"
            )
    # A calendar may be cut.
    return [*passages, Passage("\n".join(lines))] if lines else passages


def _properties(text: str) -> Iterator[tuple[str, dict[str, str], str]]:
    """Yield name, parameters and value of each line; a quoted-printable one continues after a ``=`` at its end."""
    pieces: list[str] = []
    for line in text.split("\n"):
        pieces.append(line.lstrip() if pieces else line)
        if line.endswith("=") and _QUOTED in pieces[0][:_MAX_PARAMETERS].upper():
            pieces[-1] = pieces[-1].removesuffix("=")
            continue
        whole, pieces = "".join(pieces), []
        head = cast("re.Match[str]", _HEAD.match(whole))[0]
        name, value = head.partition(";")[0], whole[len(head) + 1 :]
        pairs = (parameter.partition("=") for parameter in _PARAMETER.findall(head, len(name)))
        parameters = {key.upper(): inner.strip('"') for key, _, inner in pairs}
        if _QUOTED in {parameters.get("ENCODING", "").upper(), *parameters}:
            value = decode(quopri.decodestring(value.encode()), parameters.get("CHARSET", "")).text
        yield name.upper().strip(), parameters, value


def _calendar_value(value: str) -> str:
    # One time, or several, of which each may have an end.
    parts = value.strip().split(",")
    times = [time for part in parts if (time := _TIME.fullmatch(part.partition("/")[0]))]
    if len(times) == len(parts):
        clocks = [f" {time[4]}:{time[5]}{' UTC' if time[6] else ''}" if time[4] else "" for time in times]
        days = [f"{time[1]}-{time[2]}-{time[3]}" for time in times]
        return ", ".join(map("".join, zip(days, clocks, strict=True)))
    text = _ESCAPE.sub(lambda match: "\n" if match[1] in "nN" else match[1], value)
    return re.sub(r"\A(?:mailto|tel):", "", text.strip(), flags=re.IGNORECASE)


def read_contacts(text: str) -> list[Passage]:
    """Return a passage for each card of an address book, below the name of the person."""
    passages: list[Passage] = []
    lines: list[str] = []
    name = parts = ""
    # The last card of a file that is cut has no end.
    for key, parameters, raw in _properties(f"{text}\nEND:VCARD"):
        # Telephones group the lines of an entry: item1.TEL.
        key = key.rpartition(".")[2]
        if key in {"BEGIN", "END"}:
            heading = name or parts
            if heading or lines:
                # The name as it is shown may lack some of its parts.
                is_whole = all(part.casefold() in heading.casefold() for part in parts.split())
                written = heading if is_whole else f"{heading} ({parts})"
                passages.append(Passage("\n".join([f"Name: {written}", *lines]), (heading,) if heading else ()))
            lines, name, parts = [], "", ""
        elif raw.strip(" ;") and (key in {"FN", "N"} or key in _CONTACT_NAMES):
            encodings = {parameters.get("ENCODING", "").upper(), *(flag for flag in parameters if not parameters[flag])}
            if encodings & _BINARY:
                continue
            inner = _PART.split(raw) if key in _IN_PARTS else [raw]
            value = " ".join(filter(None, map(_calendar_value, inner)))
            if key == "FN" and name:
                # The name in another language.
                lines.append(f"Name: {value}")
            name = name or value if key == "FN" else name
            parts = value if key == "N" else parts
            if key in _CONTACT_NAMES:
                lines.append(f"{_CONTACT_NAMES[key]}: {value}")
    return passages
