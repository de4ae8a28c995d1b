"""The question of a command line: words, text that is piped in, and files, put together as one message.

    words ─▶ question          - ─▶ the place of standard input
    standard input, -f FILE ─▶ material: text at once, documents through the knowledge server's reader
                            ─▶ pictures, for a model that sees them

Material stands in front of the question, each part between fences and files under their names, as on the page.
"""

from __future__ import annotations

import re
import select
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import anyio
import anyio.to_thread

from rkllm_mcp.catalogue import translate
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import ToolboxError, UsageError
from rkllm_mcp.messages import PICTURE_FORMATS, UNREAD_PICTURES, Picture, picture_type
from rkllm_mcp.surfaces.invocation import Session
from rkllm_mcp.text import Language

# More than any model's context holds, and little enough to be read into memory.
_MOST_BYTES = 16 * 2**20
# Kinds of text that have markup around what they say.
_MARKED_UP = (".eml", ".htm", ".html", ".mht", ".mhtml", ".rtf", ".xhtml")
# After this time without data a person may not know what the program waits for.
_NOTE_AFTER_S = 3.0


@dataclass(frozen=True)
class CommandQuestion:
    """A message for the model."""

    text: str
    # The person's own words may name resources to read (``@server:uri``); a file or a web page may not.
    may_name_resources: bool
    pictures: tuple[Picture, ...] = ()


def read_question(
    session: Session,
    words: Sequence[str],
    files: Sequence[str] = (),
    language: Language = "en",
    *,
    command: str = "run",
    takes_pictures: bool = False,
) -> CommandQuestion:
    """Return the message of a command: the words with the material in front of them, or at the place of ``-``.

    Without words, standard input is the question. Pictures are those of ``files``, and of standard input beside words;
    without ``takes_pictures`` they are read as documents.

    Raises:
        UsageError: no question was asked, or something cannot be read.
    """
    is_piped = not sys.stdin.isatty()
    if words.count("-") + list(files).count("-") > 1:
        raise UsageError("standard input is named twice; write - once")
    if not words and "-" not in files and not is_piped:
        hint = f"write it behind the command: rkllm-mcp {command} what time is it in Tokyo"
        raise UsageError(f"there is no question; {hint}, or - to read standard input")
    if not words and "-" in files:
        raise UsageError("standard input is a file here, so the question is missing; write it behind the command")
    pictures: list[Picture] = []
    seen = pictures if takes_pictures else None
    parts = [part for file in files if (part := _named_text(file, language, session, seen))]
    piped = ""
    if "-" in words or (is_piped and "-" not in files):
        piped = _text_of(_read_standard_input(session, language), "", session, seen)
    question = piped
    # Alone, - is the text itself; beside words it is a part of its own.
    if words and list(words) != ["-"]:
        fenced = f"\n\n{_fence(piped)}\n\n" if piped.strip() else ""
        question = " ".join(fenced if word == "-" else word for word in words)
        question = re.sub(r" *(\n\n) *", r"\1", question).strip() if fenced else question
    try:
        question.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError("the question is not UTF-8; set a UTF-8 locale or give it on standard input") from None
    if not question.strip():
        raise UsageError("the question is empty; write it behind the command")
    if piped and words and "-" not in words:
        parts.append(_fence(piped))
    has_mention = any("@" in text for text in (*parts, piped if words else ""))
    return CommandQuestion("\n\n".join([*parts, question]), not has_mention, tuple(pictures))


def _fence(text: str) -> str:
    # Longer than any fence inside, which therefore cannot end the material.
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=3)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text.strip()}\n{fence}"


async def read_named_file(file: str, session: Session) -> str:
    """Return the text of a file as material for a question: its name, and the text between fences.

    Raises:
        UsageError: it cannot be read, or has no text.
    """
    # The reader of documents has its own event loop.
    return await anyio.to_thread.run_sync(_named_text, file, "en", session, abandon_on_cancel=True)


def _named_text(file: str, language: Language, session: Session, pictures: list[Picture] | None = None) -> str:
    """Return the text of a file under its name; empty for one that is added to ``pictures``."""
    if file == "-":
        data = _read_standard_input(session, language)
        text = _text_of(data, "", session, pictures)
        return _fence(text) if text or not picture_type(data) else ""
    path = Path(file).expanduser()
    try:
        if path.is_dir():
            raise UsageError(f"{file} is a folder; name the files in it")
        with path.open("rb") as opened:
            data = _read_text(opened, file)
    except FileNotFoundError:
        raise UsageError(f"No such file: {file}") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}); name a file that can") from None
    text = _text_of(data, path.name, session, pictures)
    if not text and picture_type(data):
        return ""
    if not text.strip():
        raise UsageError(f"{file} has no text; leave it out, or name another file")
    return f"{path.name}:\n{_fence(text)}"


def _read_text(opened: BinaryIO, name: str) -> bytes:
    data = opened.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise UsageError(
            f"{name} has more than {_MOST_BYTES // 2**20} MB, which fits no model's context; name a part of it, or put "
            "it into a knowledge base: rkllm-mcp knowledge add"
        )
    return data


def _read_standard_input(session: Session, language: Language) -> bytes:
    """Return standard input to its end, and say after a while that it is waited for."""
    stdin = sys.stdin.buffer
    if not session.quiet and not sys.stdin.isatty():
        try:
            is_ready = bool(select.select([stdin.fileno()], [], [], _NOTE_AFTER_S)[0])
        except (OSError, ValueError):
            is_ready = True  # closed, or no descriptor
        if not is_ready:
            session.status(translate("input.waiting", language))
    try:
        return _read_text(stdin, "standard input")
    except OSError:
        return b""  # closed, as in a service


def _text_of(data: bytes, name: str, session: Session, pictures: list[Picture] | None = None) -> str:
    """Return the text of some bytes: at once if they are plain UTF-8, else what the reader of documents says.

    It is empty for a picture that is added to ``pictures``, of a model that sees.
    """
    if pictures is not None and picture_type(data):
        pictures.append(Picture.of(data))
        return ""
    if picture_type(data):
        from rkllm_mcp.app.settings import blindness

        # Tesseract reads a picture for a model that does not see.
        sentence, text = blindness("this model"), ""
        if shutil.which("tesseract"):
            with suppress(UsageError):
                text = anyio.run(_read_document, data, name, session)
        if not text.strip():
            raise UsageError(f"{name or 'standard input'} cannot be read: {sentence}")
        session.status(f"Note: {name or 'standard input'}: {sentence}; Tesseract has read its text")
        return text
    if kind := next((kind for start, kind in UNREAD_PICTURES.items() if data.startswith(start)), ""):
        raise UsageError(f"{name or 'standard input'} is {kind}, which is not read; save it as {PICTURE_FORMATS}")
    # ISO-2022-JP is valid UTF-8 with escapes in it.
    is_plain = b"\0" not in data and b"\x1b" not in data and not data.startswith(b"%PDF-")
    if is_plain and not name.lower().endswith(_MARKED_UP):
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            pass
    return anyio.run(_read_document, data, name, session)


async def _read_document(data: bytes, name: str, session: Session) -> str:
    from rkllm_mcp.surfaces.cli.knowledge_client import open_knowledge

    where = name or "standard input"
    # A server of its own, which stores nothing: reading needs none of the configuration.
    async with open_knowledge(session, Config()) as reader:
        try:
            read = await reader.send("read_document", data, name or "input")
        except ToolboxError as error:
            sentence = str(error)
            is_whole = sentence.startswith(f"{where} ")
            raise UsageError(sentence if is_whole else f"{where} cannot be read: {sentence}") from None
    for warning in read.get("warnings", []):
        session.status(f"Note: {where}: {warning}")
    return str(read.get("text", ""))
