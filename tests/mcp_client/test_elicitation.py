"""Servers of both eras ask the owner of a call."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from rkllm_mcp.events import Approval, Elicitation
from rkllm_mcp.messages import ToolCall
from rkllm_mcp.protocols import DENY_ALL, Approver, CallContext, Decision, ElicitationAnswer
from rkllm_mcp.tools.toolbox import Toolbox
from tests.support.clock import standing_clock, turn
from tests.support.mcp_servers.asking import FORM
from tests.support.mcp_servers.calling import toolbox_with
from tests.support.mcp_servers.specs import asking

pytestmark = pytest.mark.anyio
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])
ANN = {"name": "Ann", "size": "Large"}


@dataclass
class Owner:
    """Answers in turn, and keeps what was asked."""

    answers: list[ElicitationAnswer | Exception] = field(default_factory=list[ElicitationAnswer | Exception])
    asked: list[Elicitation] = field(default_factory=list[Elicitation])

    async def approve(self, question: Approval) -> Decision:
        return "deny"

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        self.asked.append(question)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def answer_of(toolbox: Toolbox, asker: Approver, tool: str = "ask_owner", /, **arguments: Any) -> Any:
    """What the server got; its text where that is not JSON."""
    result = await toolbox.call(ToolCall("call_1", tool, arguments), CallContext(asker=asker))
    return result.text if result.is_error else json.loads(result.text)


def accepting(*contents: dict[str, Any]) -> Owner:
    return Owner([ElicitationAnswer("accept", content) for content in contents])


@ERAS
async def test_a_form_is_asked_of_the_calls_owner_and_its_defaults_are_filled(era: str) -> None:
    owner = accepting(ANN)
    async with toolbox_with(asking("forms", era)) as toolbox:
        answer = await answer_of(toolbox, owner)
    assert answer == {"action": "accept", "content": {"name": "Ann", "size": "l", "count": 2}}
    assert owner.asked == [Elicitation("", "forms", "Who are you?", FORM)]


@ERAS
async def test_an_answer_that_does_not_fit_is_asked_again_and_not_for_ever(era: str) -> None:
    patient, stubborn = accepting({"name": "Ann"}, {**ANN, "count": 0}, ANN), accepting({}, {}, {}, {})
    async with toolbox_with(asking("forms", era)) as toolbox:
        assert (await answer_of(toolbox, patient))["action"] == "accept"
        assert (await answer_of(toolbox, stubborn)) == {"action": "cancel"}
    assert [question.message for question in patient.asked] == [
        "Who are you?",
        "Who are you?\nsize: a value is required",
        "Who are you?\ncount: at least 1",
    ]
    assert len(stubborn.asked) == 3


@ERAS
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_no_is_passed_on(era: str, action: Any) -> None:
    async with toolbox_with(asking("forms", era)) as toolbox:
        assert await answer_of(toolbox, Owner([ElicitationAnswer(action)])) == {"action": action}
        assert "(its elicitation request was not answered: Who are you?)" in toolbox.servers()[0].last_lines


@ERAS
async def test_without_a_user_a_question_is_cancelled(era: str) -> None:
    async with toolbox_with(asking("forms", era)) as toolbox:
        assert await answer_of(toolbox, DENY_ALL) == {"action": "cancel"}


@ERAS
async def test_an_owner_who_breaks_down_is_one_who_does_not_answer(era: str) -> None:
    async with toolbox_with(asking("forms", era)) as toolbox:
        assert await answer_of(toolbox, Owner([RuntimeError("no terminal")])) == {"action": "cancel"}
        assert await answer_of(toolbox, accepting(ANN)) != {"action": "cancel"}


@ERAS
async def test_defaults_answer_without_a_user_where_the_configuration_allows_it(era: str) -> None:
    whole = {"type": "object", "properties": {"n": {"type": "integer", "default": 3}}, "required": ["n"]}
    async with toolbox_with(asking("forms", era, elicitation="defaults")) as toolbox:
        assert await answer_of(toolbox, DENY_ALL, schema=whole) == {"action": "accept", "content": {"n": 3}}
        assert await answer_of(toolbox, DENY_ALL) == {"action": "decline"}
        assert await answer_of(toolbox, DENY_ALL, "ask_address", url="https://x.example") == {"action": "decline"}


@ERAS
async def test_a_server_whose_questions_are_switched_off_gets_a_refusal(era: str) -> None:
    async with toolbox_with(asking("forms", era, elicitation="deny")) as toolbox:
        assert "Elicitation not supported" in await answer_of(toolbox, accepting(ANN))


@ERAS
async def test_an_address_is_shown_and_only_where_a_browser_opens_it(era: str) -> None:
    owner = Owner([ElicitationAnswer("accept", {"ignored": 1})])
    async with toolbox_with(asking("forms", era)) as toolbox:
        assert await answer_of(toolbox, owner, "ask_address", url="https://login.example/") == {"action": "accept"}
        assert await answer_of(toolbox, owner, "ask_address", url="javascript:alert(1)") == {"action": "cancel"}
    assert owner.asked == [Elicitation("", "forms", "Log in.", {}, "https://login.example/")]


async def test_an_address_that_has_to_be_visited_first_is_shown_and_the_call_made_again_once() -> None:
    visitor, other = accepting({}), accepting({})
    async with toolbox_with(asking("forms", "legacy")) as toolbox:

        async def call(asker: Approver, after: int) -> str:
            return (
                await toolbox.call(ToolCall("call_1", "needs_visit", {"after": after}), CallContext(asker=asker))
            ).text

        assert await call(visitor, 2) == "visited"
        assert await call(DENY_ALL, 0) == "The call failed: Log in first. (code -32042)."
        assert await call(other, 0) == "The call failed: Log in first. (code -32042)."
    assert visitor.asked == other.asked == [Elicitation("", "forms", "Log in.", {}, "https://login.example/")]


@pytest.mark.parametrize("elicitation", ["deny", "defaults"])
async def test_an_address_to_visit_first_is_not_shown_where_no_user_may_be_asked(elicitation: str) -> None:
    owner = accepting({})
    async with toolbox_with(asking("forms", "legacy", elicitation=elicitation)) as toolbox:
        assert await answer_of(toolbox, owner, "needs_visit", after=0) == (
            "The call failed: Log in first. (code -32042)."
        )
    assert owner.asked == []


async def test_two_calls_at_a_time_are_each_asked_of_its_owner() -> None:
    owners = {name: accepting({"name": name, "size": "s"}) for name in ("Ann", "Bob")}
    names: dict[str, str] = {}

    async def ask(toolbox: Toolbox, name: str) -> None:
        names[name] = (await answer_of(toolbox, owners[name]))["content"]["name"]

    async with toolbox_with(asking("forms", "modern")) as toolbox, anyio.create_task_group() as callers:
        for name in owners:
            callers.start_soon(ask, toolbox, name)
    assert names == {"Ann": "Ann", "Bob": "Bob"}


@standing_clock
async def test_the_limit_of_a_call_does_not_count_the_time_a_person_takes() -> None:
    class Slow(Owner):
        async def elicit(self, question: Elicitation) -> ElicitationAnswer:
            await turn(40.0)
            return await super().elicit(question)

    owner = Slow([ElicitationAnswer("accept", ANN)])
    async with toolbox_with(asking("forms", timeout_s=30.0)) as toolbox:
        assert (await answer_of(toolbox, owner))["action"] == "accept"
