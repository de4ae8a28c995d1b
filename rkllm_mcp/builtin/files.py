"""The files of one folder as tools: list, read and search, and if it is allowed, write.

Paths are opened one component at a time, relative to the folder and without following links, so neither ``..`` nor a
link that is exchanged during the call leads outside. Devices, pipes and binary files are refused, and sizes bounded.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from itertools import islice
from math import log
from pathlib import Path
from typing import Any, TypeAlias
from unicodedata import normalize

from rkllm_base.encodings import decode, is_binary
from rkllm_base.own_words import own_words
from rkllm_base.ranges import HIRAGANA, KANJI, KATAKANA
from rkllm_mcp.builtin.function import QUESTION, LocalFunction, LocalToolError, Sentence, definitions
from rkllm_mcp.builtin.sentences import sentences_for

# A tool result for the model is truncated much earlier; this bounds the memory and the time of a call.
MOST_READ_BYTES = 1 << 20
MOST_WRITTEN_BYTES = 256 << 10
MOST_LISTED = 200
_MOST_SEARCHED = 2000
_MOST_FOUND = 20
_MOST_DEPTH = 8
_SHOWN_LINE_CHARS = 200
# A zero byte in fewer bytes is not a character of UTF-16.
_MARK_BYTES = 4

# What names of files and questions are compared by; a small file is shown whole.
_WORD = re.compile(rf"[{KANJI}]+|[{KATAKANA}]+|[a-z]{{3,}}|\d+")
_MIXED = re.compile(rf"[{KANJI}]+[{HIRAGANA}]{{2,}}")
_DAY_NAME = re.compile(r"\d{4}-(\d\d)-(\d\d)")
_IS_NAMED = 0.5
_NEAR = 0.6
_MOST_NAME = 255
_MOST_SUGGESTED = 5
_MOST_LINES = 3
_MOST_LISTED_NAMES = 12
_SHORT_CHARS = 600
_EMPTY = "The folder is empty."
_ENOUGH_WORDS = 2  # so many rare words of a question are sure to mean a file that has them

# An entry of a folder: its name and its properties, of a link those of the link itself.
_Entry: TypeAlias = "tuple[str, os.stat_result]"


def file_tools(folder: Path, *, write: bool) -> Iterator[LocalFunction]:
    """Yield the tools for ``folder``; ``write`` adds the one that creates and replaces files."""
    functions: dict[str, tuple[Callable[..., str], Callable[..., str] | None]] = {
        "list_directory": (_list, list_of_question),
        "read_text_file": (_read_file, read_of_question),
        "search_files": (_search, search_of_question),
        **({"write_file": (_write, None)} if write else {}),
    }
    # A question that has the name of a file is about it.
    names = normalize("NFC", " ".join(Path(entry[0]).stem for _, _, entry in islice(_walk(folder), MOST_LISTED)))
    for name, (function, of_question) in functions.items():
        run_question = partial(_run_tool, of_question, folder) if of_question is not None else None
        tool = replace(definitions()[name], question_argument=QUESTION if run_question is not None else "")
        if name in ("read_text_file", "search_files"):
            tool = replace(tool, keywords=f"{tool.keywords} {names}".strip())
        share = partial(_SHARES[name], folder) if name in _SHARES else None
        # A list is what was asked for; of a text the model says what answers the question.
        is_answer = name == "list_directory"
        yield LocalFunction(
            tool,
            partial(_run_tool, function, folder),
            of_question=run_question,
            is_answer=is_answer,
            share_in_data=share,
        )


def _run_tool(function: Callable[..., str], folder: Path, *words: str, **arguments: Any) -> str:
    """Run a tool; errors of the file system become sentences for the model."""
    try:
        return function(folder, *words, **arguments)
    except FileNotFoundError as error:
        # With the nearest names.
        name = str(error.filename)
        names = [f"{parent}{entry[0]}" for _, parent, entry in islice(_walk(folder), _MOST_SEARCHED)]
        stems = {_comparable(Path(path).stem): path for path in names}
        near = get_close_matches(_comparable(Path(name).stem), stems, n=_MOST_SUGGESTED, cutoff=_NEAR)
        suggestions = [normalize("NFC", stems[stem]) for stem in near] or [
            normalize("NFC", path) for path in names[:_MOST_SUGGESTED]
        ]
        there = f"; there is {', '.join(suggestions)}" if suggestions else ""
        raise LocalToolError(f"There is no {name[:80]}{there}.", "not_found", name, suggestions) from None
    except OSError as error:
        subject = error.filename if isinstance(error.filename, str) else "it"
        raise LocalToolError(f"{subject} cannot be used: {error.strerror}.", "unusable", subject) from None


def list_of_question(folder: Path, question: str) -> str:
    """Return the list of the folder that a question names, else of the user's folder."""
    folders = sorted({tuple(parent.split("/")[:-1]) for _, parent, _ in _walk(folder) if parent}, key=len)
    matching = [parts for parts in folders if _share_named(parts[-1], question) >= 1]
    listed = _list(folder, "/".join(matching[-1])) if matching else _list(folder)
    return listed if listed != _EMPTY else sentences_for(question)["no_files"]


def read_of_question(folder: Path, question: str) -> str:
    """Return the text of the file that a question names in words, after its name; without one what a search finds.

    Raises:
        LocalToolError: it names several.
    """
    shares = [
        (f"{parent}{entry[0]}", _share_named(Path(entry[0]).stem, question)) for _, parent, entry in _walk(folder)
    ]
    best = max((share for _, share in shares), default=0.0)
    best_names = [name for name, share in shares if share == best and share >= _IS_NAMED]
    if not best_names:
        return search_of_question(folder, question)
    if len(best_names) > 1:
        names = best_names[:_MOST_SUGGESTED]
        text = sentences_for(question)["which_file"].format(names=normalize("NFC", ", ".join(names)))
        raise LocalToolError(text, "unclear", question, names)
    return normalize("NFC", f"{best_names[0]}:\n") + _read_file(folder, best_names[0])


def search_of_question(folder: Path, question: str) -> str:
    """Return the lines that have most of a question's rare words, after the name of their file."""
    texts = dict(_known_texts(folder))
    compared = [_comparable(f"{name}\n{text}") for name, text in texts.items()]
    weights: dict[str, float] = {}
    for word in _searched_words(question, compared):
        count = sum(_has_word(text, word) for text in compared)
        weights[word] = len(word) * log(1 + len(texts) / count)

    def weight(text: str) -> float:
        comparable = _comparable(text)
        return sum(weight for word, weight in weights.items() if _has_word(comparable, word))

    name = max(texts, key=lambda name: weight(f"{name}\n{texts[name]}"), default="")
    if not weights:
        names = normalize("NFC", ", ".join(islice(texts, _MOST_LISTED_NAMES)))
        if not texts:
            return Sentence(sentences_for(question)["no_files"])
        said = "no_words" if any(map(_WORD.fullmatch, own_words(question)[0])) else "files"
        return Sentence(sentences_for(question)[said].format(names=names))
    lines = [line.strip()[:_SHOWN_LINE_CHARS] for line in texts[name].splitlines() if line.strip()]
    if len(texts[name]) > _SHORT_CHARS:
        best = sorted(range(len(lines)), key=lambda index: -weight(lines[index]))[:_MOST_LINES]
        lines = [lines[index] for index in sorted(best)]
    return normalize("NFC", "\n".join([f"{name}:", *lines]))


def _share_in_texts(folder: Path, question: str) -> float:
    """Return which part of a question's own words one file has in its name or text, the rare ones counting more."""
    texts = [_comparable(f"{name}\n{text}") for name, text in _known_texts(folder)]
    # Words of kanji and kana, such as 玉ねぎ, are found by the files that have them.
    mixed = [word for word in _searched_words(question, texts) if _MIXED.fullmatch(word)]
    words = [
        *(word for word in _words_of_data(question) if not any(word in mixed_word for mixed_word in mixed)),
        *mixed,
    ]
    weights: dict[str, float] = {}
    for word in words:
        count = sum(_has_word(text, word) for text in texts)
        weights[word] = (1.0 if word.isascii() else len(word) / 2) * log(1 + len(texts) / max(1, count))
    weights_found = (sum(weight for word, weight in weights.items() if _has_word(text, word)) for text in texts)
    # One common word is not evidence.
    return max(weights_found, default=0.0) / max(sum(weights.values()), _ENOUGH_WORDS * log(1 + len(texts)), 1.0)


def _words_of_data(question: str) -> list[str]:
    """Return a question's own words that are none of the tools' themselves."""
    described = _comparable(" ".join(f"{tool.description} {tool.keywords}" for tool in definitions().values()))
    return [
        word.rstrip("s")
        for word in own_words(question)[0]
        if len(word) > 1 and _WORD.fullmatch(word) and word not in described
    ]


def _has_word(text: str, word: str) -> bool:
    """Return True if a text has a word; one in Latin letters begins there, as no "password" has "word"."""
    return re.search(rf"(?<![a-z]){re.escape(word)}" if word.isascii() else re.escape(word), text) is not None


def _share_in_folders(folder: Path, question: str) -> float:
    """Return which part of a question's own words is the name of a folder: a list answers no other words."""
    folders = {parent.split("/")[-2] for _, parent, _ in _walk(folder) if parent}
    share, name = max(((_share_named(name, question), name) for name in folders), default=(0.0, ""))
    others = [word for word in _words_of_data(question) if word not in _comparable(name)]
    return min(1.0, share) / (1 + len(others))


_SHARES: Mapping[str, Callable[[Path, str], float]] = {
    "list_directory": _share_in_folders,
    "read_text_file": lambda folder, question: min(
        1.0, max((_share_named(Path(entry[0]).stem, question) for _, _, entry in _walk(folder)), default=0.0)
    ),
    "search_files": _share_in_texts,
}


def _known_texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of each text file, read again only if it has changed."""
    left_bytes = 8 * MOST_READ_BYTES
    for opened, parent, (name, status) in islice(_walk(folder), _MOST_SEARCHED):
        left_bytes -= status.st_size
        if left_bytes <= 0:
            continue
        key, version = (str(folder), f"{parent}{name}"), (status.st_mtime_ns, status.st_size)
        cached = _TEXTS.get(key)
        if cached is None or cached[0] != version:
            text = ""
            with suppress(LocalToolError, OSError):
                text = _text_of(opened, name)[0]
            if len(_TEXTS) >= _MOST_SEARCHED:
                _TEXTS.clear()
            cached = _TEXTS[key] = (version, text)
        yield f"{parent}{name}", cached[1]


_TEXTS: dict[tuple[str, str], tuple[tuple[int, int], str]] = {}


def _searched_words(question: str, texts: Sequence[str]) -> Iterator[str]:
    """Yield the words of a question that any text has; kanji with as much of their kana as one has (玉ねぎ)."""
    said = _comparable(question)
    for match in _WORD.finditer(said):
        longest = match[0]
        if not any(_has_word(text, longest) for text in texts):
            continue
        for end in range(match.end() + 1, len(said) + 1):
            if longest.isascii() or not any(said[match.start() : end] in text for text in texts):
                break
            longest = said[match.start() : end]
        yield longest


def _share_named(name: str, question: str) -> float:
    """Return which part of a file's name is in a question, from 0 to 1; the extension does not count."""
    text, words = _comparable(question), _WORD.findall(_comparable(name))
    # 買い物リスト, 2026-11-20: said as it is, or 11月20日.
    if _comparable(name) in text:
        return 1 + len(name) / _MOST_NAME
    day = _DAY_NAME.fullmatch(name)
    if day is not None and re.search(rf"(?<!\d)0?{int(day[1])}月0?{int(day[2])}日", text):
        return 1
    letters = sum(len(word) for word in words if word in text)
    return letters / sum(map(len, words)) if words else 0


def _list(folder: Path, path: str = "") -> str:
    with _opened_folder(folder, _parts(path)) as opened:
        entries = sorted(_entries(opened), key=lambda entry: (not stat.S_ISDIR(entry[1].st_mode), entry[0]))
    lines = [
        f"{normalize('NFC', name)}/"
        if stat.S_ISDIR(status.st_mode)
        else f"{normalize('NFC', name)} ({status.st_size} bytes)"
        for name, status in entries[:MOST_LISTED]
    ]
    more = [f"… and {len(entries) - MOST_LISTED} more"] if len(entries) > MOST_LISTED else []
    return "\n".join([*lines, *more]) or _EMPTY


def _read_file(folder: Path, path: str, first_line: int = 1) -> str:
    *parents, name = _parts(path) or [""]
    with _opened_folder(folder, parents) as opened:
        text, is_whole = _text_of(opened, name)
    lines = text.splitlines(keepends=True)
    if first_line > max(len(lines), 1):
        raise LocalToolError(f"{path} has {len(lines)} lines; begin at one of them.")
    end = "" if is_whole else "\n… the file is longer than what can be read"
    return "".join(lines[first_line - 1 :]) + end or "The file is empty."


def _search(folder: Path, text: str) -> str:
    words = _comparable(text).split()
    if not words:
        raise LocalToolError("There is nothing to look for; give words in 'text'.")
    matches: list[str] = []
    left_bytes = 8 * MOST_READ_BYTES
    for count, (opened, parent, (name, about)) in enumerate(_walk(folder)):
        if count >= _MOST_SEARCHED or len(matches) >= _MOST_FOUND or left_bytes <= 0:
            matches.append("… not everything was searched; use more or other words")
            break
        line = ""
        if not all(word in _comparable(name) for word in words):
            left_bytes -= about.st_size
            content = ""
            with suppress(LocalToolError, OSError):
                content = _text_of(opened, name)[0]
            if not all(word in _comparable(content) for word in words):
                continue
            # The first line with the most of the words.
            lines = (text_line.strip() for text_line in content.splitlines())
            line = max(lines, key=lambda text_line: sum(word in _comparable(text_line) for word in words), default="")
            line = line[:_SHOWN_LINE_CHARS]
            if not line:
                continue
        matches.append(normalize("NFC", f"{parent}{name}{f': {line}' if line else ''}"))
    return "\n".join(matches) or f"No file has '{text[:80]}' in its name or content."


def _comparable(text: str) -> str:
    return normalize("NFC", text).casefold()


def _write(folder: Path, path: str, content: str) -> str:
    data = content.encode("utf-8", "replace")
    if len(data) > MOST_WRITTEN_BYTES:
        raise LocalToolError(f"{len(data)} bytes are too many; at most {MOST_WRITTEN_BYTES} can be written.")
    *parents, name = _parts(path) or [""]
    with _opened_folder(folder, parents) as opened:
        name = _name_in(opened, name)
        with suppress(FileNotFoundError):
            _check_regular(os.stat(name, dir_fd=opened, follow_symlinks=False), name)
        # In one piece: a call that is ended in the middle leaves the former file.
        draft = f".{name[:100]}.{os.getpid()}.draft"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        # A process with this number may have been killed while it wrote.
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=opened)
        try:
            with os.fdopen(os.open(draft, flags, 0o644, dir_fd=opened), "wb") as file:
                file.write(data)
            os.replace(draft, name, src_dir_fd=opened, dst_dir_fd=opened)
        finally:
            with suppress(OSError):
                os.unlink(draft, dir_fd=opened)
    return f"Wrote {path} ({len(data)} bytes)."


def _parts(path: str) -> list[str]:
    """Return the components of a path in the folder."""
    parts = [part for part in path.strip().removeprefix("./").split("/") if part not in ("", ".")]
    if path.strip().startswith(("/", "~")) or ".." in parts or "\0" in path:
        raise LocalToolError(f"'{path[:80]}' is not in the user's folder; write a path without / at its beginning.")
    return parts


@contextmanager
def _opened_folder(folder: Path, parts: list[str]) -> Generator[int]:
    """Open a folder below ``folder`` without following links below it; close it at the end of the block."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        opened = os.open(folder, flags)
    except OSError as error:
        raise LocalToolError(f"The user's folder cannot be opened: {error.strerror}.") from None
    try:
        for part in parts:
            inner = os.open(_name_in(opened, part), flags | os.O_NOFOLLOW, dir_fd=opened)
            os.close(opened)
            opened = inner
        yield opened
    finally:
        os.close(opened)


def _name_in(opened: int, name: str) -> str:
    """Return the name under which an open folder has a file: a Mac writes accents and voicing marks separately."""
    with suppress(FileNotFoundError):
        os.stat(name, dir_fd=opened, follow_symlinks=False)
        return name
    composed = normalize("NFC", name)
    return next((entry for entry in os.listdir(opened) if normalize("NFC", entry) == composed), name)


def _entries(opened: int) -> Iterator[_Entry]:
    """Yield the visible files and folders of an open folder."""
    for name in os.listdir(opened):
        with suppress(OSError):
            status = os.stat(name, dir_fd=opened, follow_symlinks=False)
            if not name.startswith(".") and (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                yield name, status


def _walk(folder: Path, parts: tuple[str, ...] = ()) -> Iterator[tuple[int, str, _Entry]]:
    """Yield the open folder, the place and the entry of each file below ``folder``; folders are open while used."""
    folders: list[str] = []
    with suppress(OSError), _opened_folder(folder, [*parts]) as opened:
        for entry in sorted(_entries(opened), key=lambda entry: entry[0]):
            if stat.S_ISDIR(entry[1].st_mode):
                folders.append(entry[0])
            else:
                yield opened, "".join(f"{part}/" for part in parts), entry
    for name in folders if len(parts) < _MOST_DEPTH else ():
        yield from _walk(folder, (*parts, name))


def _check_regular(status: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no ordinary file"
        raise LocalToolError(f"{name} is {kind}; name a file.")


def _text_of(opened: int, name: str) -> tuple[str, bool]:
    """Return the text of a file in an open folder, and True if that is all of it."""
    if not name:
        raise LocalToolError("That is the folder itself; name a file.")
    # Without O_NONBLOCK opening a pipe would wait for a writer.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    name = _name_in(opened, name)
    _check_regular(os.stat(name, dir_fd=opened, follow_symlinks=False), name)
    with os.fdopen(os.open(name, flags, dir_fd=opened), "rb") as file:
        _check_regular(os.fstat(file.fileno()), name)
        data = file.read(MOST_READ_BYTES + 1)
    is_whole = len(data) <= MOST_READ_BYTES
    if is_binary(data) or (len(data) < _MARK_BYTES and b"\0" in data):
        raise LocalToolError(f"{name} is no text file.")
    text = decode(data[:MOST_READ_BYTES]).text
    # A cut may divide a character.
    return (text if is_whole else text.rstrip("\ufffd")), is_whole
