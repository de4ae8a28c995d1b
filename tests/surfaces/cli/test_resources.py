"""``rkllm-mcp resources`` and ``prompts``, with a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.cli.main import main
from rkllm_mcp.surfaces.tables import read_pairs
from tests.support.demo_app import PythonServer
from tests.support.feature_demo import DESK, make_features
from tests.support.mcp_servers.asking import PICTURE

Command = Callable[..., tuple[int, str, str]]
RESTLESS: PythonServer = ("restless", (*DESK[1][:2], "tests.support.mcp_servers.restless"), DESK[2])
NOTHING: PythonServer = ("nothing", (*DESK[1][:2], "tests.support.mcp_servers.tiny"), DESK[2])


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """``rkllm-mcp -q WORDS`` with one server; its exit code and what it printed."""

    def run(*words: str, server: PythonServer = DESK) -> tuple[int, str, str]:
        demo = make_features(tmp_path / server[0], [server], exist_ok=True)
        for name, value in demo.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SystemExit) as left:
            main(["-q", "--config", str(demo.config), *words])
        captured = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, captured.out, captured.err

    return run


def test_resources_are_listed_with_their_templates(command: Command) -> None:
    code, out, _ = command("resources", "list")
    assert (code, out.splitlines()[:2]) == (
        0,
        [
            "RESOURCE                TYPE        SIZE     DESCRIPTION",
            "desk:memo://monday      text/plain  9 bytes  What is to be done.",
        ],
    )
    listed = json.loads(command("resources", "list", "desk", "--json")[1])
    assert listed["resources"][1] == {
        "server": "desk",
        "uri": "memo://tuesday",
        "name": "tuesday",
        "description": "",
        "mime_type": "",
        "size": None,
    }
    assert [each["uri_template"] for each in listed["templates"]] == ["memo://day/{date}"]


def test_a_resource_is_printed_as_text_as_it_came_or_into_a_new_file(command: Command, tmp_path: Path) -> None:
    assert command("resources", "read", "@desk:memo://monday") == (0, "Buy milk.\n", "")
    raw = json.loads(command("resources", "read", "memo://picture", "--json")[1])
    assert (raw["server"], raw["uri"], raw["contents"][0]["blob"]) == ("desk", "memo://picture", PICTURE)
    assert command("resources", "read", "memo://picture", "--output", "picture.png") == (0, "", "")
    assert (tmp_path / "picture.png").read_bytes() == bytes(1200)
    again = command("resources", "read", "memo://picture", "--output", "picture.png")
    assert again == (2, "", "Error: picture.png exists; choose another name\n")


def test_a_change_of_a_resource_is_printed_and_a_count_ends_it(command: Command) -> None:
    code, out, _ = command("resources", "subscribe", "memo://monday", "--count", "1", "--json", server=RESTLESS)
    assert (code, json.loads(out)) == (0, {"uri": "memo://monday"})


def test_prompts_are_listed_and_filled(command: Command) -> None:
    assert command("prompts", "list")[1].splitlines()[:2] == [
        "PROMPT            ARGUMENTS         DESCRIPTION",
        "desk:code_review  language [style]  Reviews code.",
    ]
    (first, *_) = json.loads(command("prompts", "list", "--json")[1])
    assert first["arguments"][0] == {"name": "language", "description": "The language.", "required": True}
    filled = command("prompts", "get", "code_review", "language=rust")[1]
    assert filled.startswith("── user\nHere are the rules.\n")
    assert filled.endswith("── user\nReview this rust code.\n")
    turns = json.loads(command("prompts", "get", "desk:code_review", "language=rust", "--json")[1])
    assert turns["messages"][-1] == {"role": "user", "text": "Review this rust code."}
    wrong = command("prompts", "get", "code_review")
    assert wrong == (1, "", "Error: prompt 'code_review' needs language; add language=…\n")


def test_where_nothing_is_offered_nothing_is_printed(command: Command) -> None:
    assert command("resources", "list", server=NOTHING)[:2] == (0, "")
    assert command("prompts", "list", server=NOTHING)[:2] == (0, "")


def test_words_with_values_are_pairs_and_others_are_refused() -> None:
    words = ["a=1", "b=two words", "c=x=y", "d="]
    assert read_pairs(words) == {"a": "1", "b": "two words", "c": "x=y", "d": ""}
    for word in ("a", "=x"):
        with pytest.raises(UsageError):
            read_pairs([word])
