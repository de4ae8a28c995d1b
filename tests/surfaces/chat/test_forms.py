"""Questions at a terminal: what a person sees, what they type, and what it is taken for."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.events import Approval, Elicitation
from rkllm_mcp.protocols import Decision, ElicitationAnswer
from rkllm_mcp.surfaces.chat.forms import FormPrompt
from rkllm_mcp.surfaces.terminal import Terminal
from rkllm_mcp.text import Language

pytestmark = pytest.mark.anyio

DELETING = Approval("q1", "delete_file", {"path": "a.txt"}, "Warning: 'delete_file' deletes something.")
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "minLength": 2},
        "size": {"enum": ["s", "l"], "enumNames": ["Small", "Large"], "description": "How big?"},
        "count": {"type": "integer", "minimum": 1, "default": 2},
        "note": {"type": "string"},
    },
    "required": ["name", "size"],
}


class Typist:
    """A person who types these lines; None leaves the question."""

    def __init__(self, *lines: str | None) -> None:
        self.lines = list(lines)
        self.seen: list[str] = []
        self.forgotten = 0

    async def ask(self, prompt: str) -> str | None:
        await anyio.lowlevel.checkpoint()
        self.seen.append(prompt)
        return self.lines.pop(0)

    def forget_typed(self) -> None:
        self.forgotten += 1


class Desk:
    """An inquirer, its person and its screen."""

    def __init__(self, *lines: str | None, language: Language = "en") -> None:
        self.typist = Typist(*lines)
        self._screen = io.StringIO()
        terminal = Terminal(err=lambda: self._screen, env={})
        self.inquirer = FormPrompt(terminal, self.typist.ask, read_catalogue(language), self.typist.forget_typed)

    @property
    def screen(self) -> str:
        return self._screen.getvalue()

    async def fill(self, schema: dict[str, Any] | None = None) -> ElicitationAnswer:
        return await self.inquirer.elicit(Elicitation("q1", "desk", "Who are you?", schema or FORM))


@pytest.mark.parametrize(
    ("typed", "decision"),
    [
        ("y", "once"),
        (" Yes ", "once"),
        ("はい", "once"),
        ("ｙ", "once"),
        ("1", "once"),
        ("c", "conversation"),
        ("a", "always"),
        ("n", "deny"),
        ("", "deny"),
        ("いいえ", "deny"),
        ("ｎ", "deny"),
        ("x", "never"),
        ("never", "never"),
    ],
)
async def test_a_key_or_a_word_decides_about_a_call(typed: str, decision: Decision) -> None:
    assert await Desk(typed).inquirer.approve(DELETING) == decision


async def test_a_person_sees_the_danger_the_arguments_and_the_possible_answers() -> None:
    desk = Desk("what?", "n")
    await desk.inquirer.approve(DELETING)
    assert desk.screen == (
        "Warning: 'delete_file' deletes something.\n"
        "    path = a.txt\n"
        "  y  yes, this once\n"
        "  c  yes, for the rest of this conversation\n"
        "  a  yes, always\n"
        "  n  no (Enter)\n"
        "  x  no, and never ask again\n"
        "Answer with one of y/c/a/n/x.\n"
    )
    assert desk.typist.seen == ["Run it? [y/c/a/N/x] "] * 2
    assert desk.typist.forgotten == 1


async def test_a_wrong_value_of_a_form_is_explained_in_japanese_to_who_speaks_it() -> None:
    desk = Desk("A", "Ada", "huge", "Large", "many", "0", "1", "", "", language="ja")
    assert (await desk.fill()).content == {"name": "Ada", "size": "l", "count": 1}
    for sentence in (
        "Name: 2 文字以上で入力してください",
        "size: 次のどれかを選んでください: Small, Large",
        "count: 'many' は整数ではありません",
        "count: 1 以上にしてください",
    ):
        assert f"  {sentence}\n" in desk.screen


async def test_a_person_is_asked_in_japanese_to_who_speaks_it() -> None:
    desk = Desk("", language="ja")
    assert await desk.inquirer.approve(DELETING) == "deny"
    assert "  n  いいえ (Enter)\n" in desk.screen
    assert desk.typist.seen == ["実行しますか？ [y/c/a/N/x] "]


async def test_a_server_that_wants_the_model_is_asked_about_with_its_words() -> None:
    desk = Desk("y")
    turns = [{"role": "user", "text": "Hi\nthere"}, {"role": "assistant", "text": "Yes?"}]
    question = Approval("q1", "sampling:desk", {"messages": turns, "max_tokens": 50}, "Server 'desk' wants the model.")
    assert await desk.inquirer.approve(question) == "once"
    assert "    messages =\n      user: Hi\n      there\n      assistant: Yes?\n    max_tokens = 50\n" in desk.screen
    assert desk.typist.seen == ["Allow it? [y/c/a/N/x] "]


async def test_invisible_characters_are_shown_by_number_and_long_values_by_length() -> None:
    desk = Desk("n")
    arguments = {"path": "\u202etxt.exe\u200b", "body": "x" * 4100, "list": [1, "二"]}
    await desk.inquirer.approve(Approval("q1", "write", arguments, "\x1b[2J'write' changes something."))
    assert "    path = \\u{202e}txt.exe\\u{200b}\n" in desk.screen
    assert f"    body = {'x' * 4000}… (100 more characters)\n" in desk.screen
    assert '    list = [1, "二"]\n' in desk.screen
    assert "\\u{1b}[2J'write' changes" in desk.screen


async def test_a_form_is_filled_field_by_field_and_what_does_not_fit_is_asked_again() -> None:
    desk = Desk("", "A", "Ada", "huge", "2", "0", "3", "", "y")
    assert await desk.fill() == ElicitationAnswer("accept", {"name": "Ada", "size": "l", "count": 3})
    assert desk.screen.splitlines() == [
        "[MCP: Server 'desk' asks: Who are you?]",
        "Enter keeps a field as it is; /no declines, /skip cancels the form, Ctrl-C stops the whole answer.",
        "  Name (required)",
        "  Name: required",
        "  Name: at least 2 characters",
        "  size (How big?; one of these, or its number; required)",
        "    1  Small",
        "    2  Large",
        "  size: choose one of Small, Large",
        "  count (a whole number; Enter: 2)",
        "  count: at least 1",
        "  note",
        "    Name = Ada",
        "    size = Large",
        "    count = 3",
    ]


async def test_a_form_filled_in_again_has_the_typed_values() -> None:
    desk = Desk("Ada", "Small", "5", "hello", "e", "", "l", "", "", "")
    content = {"name": "Ada", "size": "l", "count": 5, "note": "hello"}
    assert await desk.fill() == ElicitationAnswer("accept", content)
    assert "  size (How big?; one of these, or its number; Enter: Small)\n" in desk.screen


@pytest.mark.parametrize(
    ("lines", "action"),
    [(["/no"], "decline"), (["Ada", "/skip"], "cancel"), (["Ada", "s", "", "", "n"], "decline")],
)
async def test_a_form_can_be_declined_or_left_unanswered(lines: Sequence[str], action: str) -> None:
    assert (await Desk(*lines).fill()).action == action


@pytest.mark.parametrize(("typed", "action"), [("y", "accept"), ("n", "decline"), ("", "cancel"), ("はい", "accept")])
async def test_an_address_is_shown_with_its_host_and_never_opened(typed: str, action: str) -> None:
    desk = Desk("perhaps", typed, language="ja" if typed == "はい" else "en")
    question = Elicitation("q1", "desk", "Log in.", {}, "https://user@example.com/login?id=1")
    assert (await desk.inquirer.elicit(question)).action == action
    assert "example.com" in desk.screen.splitlines()[1]
    assert desk.screen.splitlines()[2] == "  https://user@example.com/login?id=1"


async def test_leaving_a_question_is_a_refusal_which_the_next_question_forgets() -> None:
    desk = Desk(None, "y")
    assert (await desk.inquirer.approve(DELETING), desk.inquirer.has_left) == ("deny", True)
    assert (await desk.inquirer.approve(DELETING), desk.inquirer.has_left) == ("once", False)
    for lines in ((None,), ("Ada", None), ("Ada", "s", "", "", None)):
        desk = Desk(*lines)
        assert (await desk.fill(), desk.inquirer.has_left) == (ElicitationAnswer("cancel"), True)
