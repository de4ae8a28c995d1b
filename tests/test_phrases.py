"""Sentences of errors in other languages: an entry for each, found again with what was inserted."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping

import pytest

from mcp_servers.knowledge import errors
from mcp_servers.knowledge.errors import DocumentImportError
from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.speech.engines import NoTranslationError, SpeechError
from rkllm_mcp.surfaces.http.audio import MISSING
from tests.support.japanese import is_told
from tests.support.shared import REPOSITORY

PACKAGE = REPOSITORY / "rkllm_mcp"
PHRASES: dict[str, str] = json.loads((PACKAGE / "phrases.ja.json").read_text("utf-8"))
BLANK = re.compile(r"\{\d?\}")


def template(node: ast.expr, constants: Mapping[str, str] | None = None) -> str:
    """Return a text, or a formatted one with {} for what is inserted; empty for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "format" and not node.keywords:
        # A sentence of the module that several of its functions say.
        return re.sub(
            r"\{[^}]*\}", "{}", (constants or {}).get(getattr(getattr(node.func, "value", None), "id", ""), "")
        )
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return ""


def sentences_of_errors(folder: str, error: str) -> Iterator[str]:
    """The sentences of the errors of a class that are raised below a folder."""
    place = PACKAGE / folder
    for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
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
        ("runtime/vision/encoder.py", "InputRefusedError"),
        ("runtime/vision", "ModelFileError"),
        ("store/memories.py", "UsageError"),
        ("speech", "UsageError"),
        ("speech", "SoundError"),
        ("speech", "UnknownModelError"),
        ("surfaces/http/execute.py", "ValueError"),
    ],
)
def test_each_error_of_wrong_usage_or_of_a_tool_is_said_in_japanese(folder: str, error: str) -> None:
    sentences = [sentence for sentence in sentences_of_errors(folder, error) if " " in sentence]
    assert sentences
    said = {sentence: read_catalogue("ja").phrase(sentence.replace("{}", "X")) for sentence in sentences}
    assert {sentence: text for sentence, text in said.items() if not is_told(text)} == {}


# Routes of other APIs, which programs ask in English.
OF_PROGRAMS = {"completions.py", "openai.py", "ollama.py", "anthropic.py"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def refusals_of_the_service() -> Iterator[str]:
    """The sentences with which the service refuses what its page asks, also of those that have a name first."""
    for file in sorted((PACKAGE / "surfaces" / "http").glob("*.py")):
        module = ast.parse("" if file.name in OF_PROGRAMS else file.read_text("utf-8"))
        constants: dict[str, str] = {}
        for node in module.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                constants[node.targets[0].id] = template(node.value)
        for function in (node for node in ast.walk(module) if isinstance(node, (*_FUNCTIONS, ast.Lambda))):
            named: dict[str, list[ast.expr]] = {}
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    named.setdefault(node.targets[0].id, []).append(node.value)
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "HTTPError" and len(node.args) > 1:
                    for said in named.get(getattr(node.args[1], "id", ""), [node.args[1]]):
                        sides = [said.body, said.orelse] if isinstance(said, ast.IfExp) else [said]
                        sentences = (template(side, constants) for side in sides)
                        yield from (sentence for sentence in sentences if re.search("[a-z]{2} [a-z]{2}", sentence))


def test_each_refusal_of_the_service_that_its_page_shows_is_said_in_japanese() -> None:
    sentences = set(refusals_of_the_service())
    assert len(sentences) > 90
    said = {sentence: read_catalogue("ja").phrase(sentence.replace("{}", "X")) for sentence in sentences}
    assert {sentence: text for sentence, text in said.items() if not is_told(text)} == {}


# By the function that puts it into the person's language, the place of the sentence among its arguments.
SAID_BY = {"status": 0, "result": 0, "error": 0, "may_proceed": 1}


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


def reasons_of_documents() -> Iterator[str]:
    """The reasons why a document cannot be imported that the knowledge server itself writes."""
    names = {
        name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, DocumentImportError)
    }
    for file in sorted((REPOSITORY / "mcp_servers" / "knowledge").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            values: list[ast.expr] = []
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in names:
                values = node.args[1:]
            elif file.parent.name != "importing":
                continue
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in ("reason", "NO_MEMORY"):
                values = [node.value]
            elif isinstance(node, ast.FunctionDef) and "reason" in node.name:
                values = [part.value for part in ast.walk(node) if isinstance(part, ast.Return) and part.value]
            for value in values:
                sides = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
                yield from (side for side in map(template, sides) if re.search("[a-z] ", side))
    formats = json.loads((REPOSITORY / "mcp_servers/knowledge/importing/formats.json").read_text("utf-8"))
    yield from formats["binary"]


def test_each_reason_why_a_document_cannot_be_imported_is_said_in_japanese() -> None:
    reasons = set(reasons_of_documents())
    assert len(reasons) > 40
    # By an entry of its own: "it is {}" would leave what it is in English.
    assert sorted(reasons - PHRASES.keys()) == []


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


def test_what_is_wrong_with_a_program_for_speech_is_said_in_japanese() -> None:
    say = read_catalogue("ja").phrase
    assert say(str(SpeechError("wyoming://127.0.0.1:9", "cannot be reached (no answer)"))) == (
        "音声のプログラム（wyoming://127.0.0.1:9）: 接続できません（no answer）。"
        "動いていることと、設定の [speech] のアドレスを確かめてください"
    )
    reasons = [
        template(node.args[1])
        for node in ast.walk(ast.parse((PACKAGE / "speech/engines.py").read_text("utf-8")))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") in ("SpeechError", "NoTranslationError", "failure")
    ]
    assert len(reasons) > 10
    assert say(MISSING.format(key="tts", port=10_200)) == (
        "このためのプログラムが設定されていません。所有者が設定ファイルの [speech] に tts を書くと使えます"
        '（例: tts = "wyoming://127.0.0.1:10200"）'
    )
    told = {reason: say(str(NoTranslationError("x", reason.replace("{}", "X")))) for reason in reasons}
    assert [reason for reason, text in told.items() if reason.partition("{}")[0] in text] == []
