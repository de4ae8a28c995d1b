"""Documents as people have them: ``shared/cases/documents``, of which 95 of 100 are right, and ``documents2``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mcp_servers.knowledge.errors import DamagedDocumentError, DocumentImportError
from mcp_servers.knowledge.importing.chunking import chunk_passages
from mcp_servers.knowledge.importing.documents import CELL, Blob, ParseLimits
from mcp_servers.knowledge.importing.parse import parse_blob
from mcp_servers.knowledge.library import Library, open_library
from mcp_servers.knowledge.ocr.normalize import normalize
from mcp_servers.knowledge.types import KnowledgeBase, SearchRequest
from mcp_servers.weather.gazetteer import Gazetteer
from rkllm_mcp.builtin.files import file_tools
from tests.support.fake_jma import cases_folder
from tests.support.knowledge import document
from tests.support.shared import shared_path

pytestmark = pytest.mark.anyio

Row = dict[str, Any]
MIN_SHARES = {"documents": 0.95, "documents2": 1.0}


def _rows(name: str, cases: str = "documents") -> list[Row]:
    return [json.loads(line) for line in shared_path("cases", cases, f"{name}.jsonl").read_text().splitlines()]


def _check_share(failures: Mapping[str, str], count: int, cases: str = "documents") -> None:
    """Fail with every case that is wrong if too many are."""
    problems = "\n".join(f"{name}: {why}" for name, why in failures.items())
    assert len(failures) <= count * (1 - MIN_SHARES[cases]), problems


def _imported(content: bytes, name: str) -> Row:
    """Return passages with their headings, title, warnings and, if it was refused, the reason."""
    try:
        parsed = parse_blob(Blob(content, name), ParseLimits())
    except DocumentImportError as problem:
        refusal = "" if isinstance(problem, DamagedDocumentError) else str(problem)
        return {"passages": [], "title": "", "warnings": "", "refusal": refusal}
    chunks = chunk_passages(parsed.passages)
    passages = ["\n".join([*chunk.headings, chunk.text]) for chunk in chunks]
    return {"passages": passages, "title": parsed.title, "warnings": "\n".join(parsed.warnings), "refusal": ""}


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _problem(read: Row, row: Row) -> str:
    """Return the first rule of a row that does not hold, or an empty string."""
    text = "\n".join(read["passages"])
    lines = text.splitlines()
    squeezed = _squeezed(text)
    passages: list[str] = read["passages"]
    warnings, refusal = str(read["warnings"]), str(read["refusal"])
    rules: dict[str, Callable[[Any], bool]] = {
        "text": lambda expected: _squeezed(expected) == squeezed,
        "title": lambda expected: read["title"] == expected,
        "must_contain": lambda words: all(word in text for word in words),
        "must_contain_squeezed": lambda words: all(word in squeezed for word in words),
        "must_not_contain": lambda words: not any(word in text for word in words),
        "must_match": lambda patterns: all(re.search(pattern, text) for pattern in patterns),
        "must_not_match": lambda patterns: not any(re.search(pattern, text) for pattern in patterns),
        "once": lambda words: all(text.count(word) == 1 for word in words),
        "together": lambda rows: all(any(all(w in line for w in words) for line in lines) for words in rows),
        "same_column": lambda rows: all(_is_same_column(lines, *values) for values in rows),
        "every_passage": lambda patterns: all(re.search(each, passage) for passage in passages for each in patterns),
        "passages_at_least": lambda count: len(passages) >= count,
        "must_warn": lambda pattern: bool(re.search(pattern, warnings)),
        "must_refuse": lambda pattern: bool(refusal and re.search(pattern, refusal)),
        "any_of": lambda choices: any(not _problem(read, choice) for choice in choices),
    }
    wrong = next((f"{name} {row[name]}" for name, holds in rules.items() if name in row and not holds(row[name])), "")
    return wrong and f"{wrong} in {text[:400]!r} {read['title']!r} {read['warnings']!r} {read['refusal']!r}"


def _is_same_column(lines: list[str], header: str, word: str, value: str) -> bool:
    rows = [[cell.strip() for cell in line.split(CELL.strip())] for line in lines]
    columns = {at for row in rows for at, cell in enumerate(row) if header in cell}
    return any(value in row[at] for row in rows if any(word in cell for cell in row) for at in columns if at < len(row))


@pytest.mark.parametrize("cases", MIN_SHARES)
def test_files_are_read_as_people_mean_them(cases: str) -> None:
    rows, folder = _rows("expected", cases), shared_path("cases", cases, "files")
    problems = {row["file"]: _problem(_imported((folder / row["file"]).read_bytes(), row["file"]), row) for row in rows}
    _check_share({name: problem for name, problem in problems.items() if problem}, len(rows), cases)


def test_texts_are_read_in_their_encodings(tmp_path: Path) -> None:
    failures: dict[str, str] = {}
    count = 0
    for row in _rows("encodings"):
        content = bytes.fromhex(row["hex"])
        for way in row["via"]:
            count += 1
            if way == "import":
                problem = _problem(_imported(content, "text.txt"), row)
            else:
                (tmp_path / "text.txt").write_bytes(content)
                answer = _call_file_tool(tmp_path, "read_text_file", path="text.txt")
                problem = "" if _squeezed(row["text"]) == _squeezed(answer) else answer
            if problem:
                failures[f"{row['id']} {way}"] = problem
    _check_share(failures, count)


def _call_file_tool(folder: Path, tool: str, **arguments: Any) -> str:
    functions = {function.tool.name: function.function for function in file_tools(folder, write=False)}
    return str(functions[tool](**arguments))


def test_the_file_tools_find_names_and_texts_in_either_unicode_form(tmp_path: Path) -> None:
    for row in _rows("filetools"):
        folder = tmp_path / row["id"]
        folder.mkdir()
        for name, text in row["files"].items():
            (folder / name).write_text(text)
        answer = _call_file_tool(folder, row["tool"], **row["arguments"])
        assert all(wanted in answer for wanted in row["contains"]), row["id"]


OTHERS = [f"{word}の{number}番の記録" for number, word in enumerate("庭門窓床壁棚机扉階鍵" * 4)]


async def _first(library: Library, base: KnowledgeBase, query: str) -> tuple[str, bool]:
    hits = (await library.search(SearchRequest(query, base.id))).hits
    return (hits[0].content, hits[0].is_weak) if hits else ("", True)


async def test_words_that_documents_contain_are_found(tmp_path: Path) -> None:
    rows = _rows("search")
    failures: dict[str, str] = {}
    async with open_library(tmp_path / "library") as library:
        base = await library.create("documents")
        for text in dict.fromkeys([*(row["document"] for row in rows), *OTHERS]):
            await library.add(base.id, document(text))
        for row in rows:
            content, is_weak = await _first(library, base, row["query"])
            if content != row["document"] or (is_weak and not row.get("weak_ok")):
                failures[row["id"]] = f"{row['query']}: {content} {'(weak)' if is_weak else ''}"
    _check_share(failures, len(rows))


async def test_scanned_words_get_their_long_vowel_marks() -> None:
    rows = _rows("ocr")
    read = {row["text"]: (await normalize(row["text"])).normalized_text for row in rows}
    _check_share({row["id"]: read[row["text"]] for row in rows if read[row["text"]] != row["expected"]}, len(rows))


@pytest.mark.parametrize("cases", MIN_SHARES)
def test_places_are_understood_as_people_say_them(cases: str) -> None:
    japan = Gazetteer(json.loads((cases_folder() / "area.json").read_text("utf-8")))
    failures: dict[str, str] = {}
    rows = _rows("weather", cases)
    for row in rows:
        match = japan.find(row["place"])
        # Of places in several areas one is asked for.
        is_asked = len(match.areas()) > 1
        offices = set[str]() if is_asked else {area.office for area in match.areas().values()}
        names = " ".join(place.full_name for place in (match.places if is_asked else match.suggestions))
        is_suggested = bool(not offices and row.get("suggests") and re.search(row["suggests"], names))
        if not (is_suggested or (len(offices) == 1 and offices <= set(row["offices"]))):
            failures[row["id"]] = f"{offices} {names}"
    _check_share(failures, len(rows), cases)
