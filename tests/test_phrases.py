"""Sentences of errors in other languages: an entry for each, found again with what was inserted."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator

import pytest

from rkllm_mcp.catalogue import read_catalogue
from tests.support.shared import REPOSITORY

PACKAGE = REPOSITORY / "rkllm_mcp"
PHRASES: dict[str, str] = json.loads((PACKAGE / "phrases.ja.json").read_text("utf-8"))
KANA = re.compile("[ぁ-ゖァ-ヶ。]")
BLANK = re.compile(r"\{\d?\}")
# Three English words in a row, besides commands, settings and quotations.
WORDS = re.compile(r"(?:\b[A-Za-z][a-z]+\b[ ,;:]+(?:'?X'?[ ,;:]+)?){2,}\b[a-z]+\b")
NAMES = re.compile(r"(?:rkllm-mcp|sudo|git|async)(?: [a-z(_-]+)*|'[^X']+'")


def is_told(text: str) -> bool:
    """Return True if a sentence is Japanese to its end."""
    return KANA.search(text) is not None and WORDS.search(NAMES.sub("", text)) is None


def template(node: ast.expr) -> str:
    """Return a text, or a formatted one with {} for what is inserted; empty for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return ""


def sentences_of_errors(folder: str, error: str) -> Iterator[str]:
    """The sentences of the errors of a class that are raised below a folder."""
    for file in sorted((PACKAGE / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == error and node.args:
                (argument, *_) = node.args
                sides = [argument.body, argument.orelse] if isinstance(argument, ast.IfExp) else [argument]
                yield from filter(None, map(template, sides))


@pytest.mark.parametrize(
    ("folder", "error"),
    [
        ("surfaces/cli", "UsageError"),
        ("surfaces/chat", "UsageError"),
        ("app", "UsageError"),
        ("config", "UsageError"),
        ("builtin", "LocalToolError"),
    ],
)
def test_each_error_of_wrong_usage_or_of_a_tool_is_said_in_japanese(folder: str, error: str) -> None:
    sentences = [sentence for sentence in sentences_of_errors(folder, error) if " " in sentence]
    assert sentences
    said = {sentence: read_catalogue("ja").phrase(sentence.replace("{}", "X")) for sentence in sentences}
    assert {sentence: text for sentence, text in said.items() if not is_told(text)} == {}


# By the function that puts it into the person's language, the place of the sentence among its arguments.
SAID_BY = {"status": 0, "result": 0, "error": 0, "may_proceed": 1, "may_remove": 1}


def told_lines() -> Iterator[str]:
    """The lines of the command line: of its results, its status and its questions."""
    for file in sorted((PACKAGE / "surfaces" / "cli").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", "") or getattr(node.func, "attr", "")
            owner = getattr(getattr(node.func, "value", None), "id", "session")
            place = SAID_BY.get(name)
            if place is not None and owner == "session" and len(node.args) > place:
                argument = node.args[place]
                sides = [argument.body, argument.orelse] if isinstance(argument, ast.IfExp) else [argument]
                yield from (side for side in map(template, sides) if re.search("[A-Za-z]{2} ", side))
            yield from filter(None, (template(word.value) for word in node.keywords if word.arg == "none"))


def test_each_line_of_the_command_line_is_said_in_japanese() -> None:
    lines = set(told_lines())
    assert len(lines) > 60
    said = {line: read_catalogue("ja").phrase(line.replace("{}", "X")) for line in lines}
    assert {line: text for line, text in said.items() if not is_told(text)} == {}


def test_a_translation_inserts_all_that_the_sentence_does() -> None:
    wrong: dict[str, str] = {}
    for sentence, translation in PHRASES.items():
        inserted = [f"<{number}>" for number in range(sentence.count("{}"))]
        # Without blanks it is taken as it is.
        text = translation.format(*inserted) if inserted else translation
        if BLANK.search(text) or any(blank not in text for blank in inserted):
            wrong[sentence] = text
    assert PHRASES
    assert wrong == {}


def test_problem_and_remedy_and_what_is_inserted_are_translated_one_by_one() -> None:
    phrase = read_catalogue("ja").phrase
    assert {text: phrase(text) for text in SAID} == SAID
    assert (
        read_catalogue("en").phrase("there is no tool 'x'; did you mean 'y'?")
        == "there is no tool 'x'; did you mean 'y'?"
    )


SAID = {
    "there is no tool 'x'; did you mean 'y'?": "ツール「x」はありません。もしかして: 'y'",
    "/a.toml cannot be read (Permission denied); name a file that can": (
        "/a.toml を読み取れません（権限がありません）。読み取れるファイルを指定してください"
    ),
    "There is no model 'q'. There are several models: a, b. Choose one with --model NAME or name in [model].": (
        "モデル 'q' はありません。モデルが複数あります: a, b。--model NAME か [model] の name で 1 つ選んでください。"
    ),
    "a server said: go; away. Nothing of ours": "a server said: go; away. Nothing of ours",
}
