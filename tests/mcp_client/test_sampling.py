"""Servers of both eras ask the model, with a yes and within limits."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from rkllm_mcp.config.servers import StdioServer
from rkllm_mcp.errors import RunRejectedError
from rkllm_mcp.events import Approval, Elicitation
from rkllm_mcp.messages import Message, Picture, ToolCall
from rkllm_mcp.protocols import (
    DENY_ALL,
    Approver,
    CallContext,
    Decision,
    ElicitationAnswer,
    FixedApprover,
    SamplingAnswer,
    SamplingRequest,
)
from rkllm_mcp.tools.approvals import Approvals, RecentApprovals
from rkllm_mcp.tools.execution import ExecutionPolicies
from rkllm_mcp.tools.tool_servers import open_toolbox
from rkllm_mcp.tools.toolbox import Toolbox
from tests.support.mcp_servers.specs import PATIENCE_S, asking
from tests.support.pictures import RED_ABOVE_BLUE

pytestmark = pytest.mark.anyio
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])
PARIS = SamplingAnswer("Paris", "qwen", "stop")
REFUSED = "The call failed: the owner of this assistant did not allow it (code -1)."


@dataclass
class Model:
    """A ``Sampler`` that says one thing, and keeps what it was asked."""

    answer: SamplingAnswer | Exception = PARIS
    sees: bool = False
    asked: list[SamplingRequest] = field(default_factory=list[SamplingRequest])

    async def sample(self, request: SamplingRequest) -> SamplingAnswer:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@dataclass
class Owner:
    """Decides in turn, and keeps what was asked."""

    decisions: list[Decision]
    asked: list[Approval] = field(default_factory=list[Approval])

    async def approve(self, question: Approval) -> Decision:
        self.asked.append(question)
        return self.decisions.pop(0)

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        return ElicitationAnswer("cancel")


@asynccontextmanager
async def toolbox_with(
    spec: StdioServer, model: Model | None, policies: ExecutionPolicies | None = None
) -> AsyncGenerator[Toolbox]:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([spec], sampler=model, policies=policies) as toolbox:
            await toolbox.wait_until_connected()
            yield toolbox


async def said(toolbox: Toolbox, asker: Approver, conversation: str = "c", /, **arguments: Any) -> str:
    tool = "ask_model_often" if "count" in arguments else "ask_model"
    given = arguments if "count" in arguments else {"question": "Capital?", **arguments}
    context = CallContext(asker=asker, conversation_id=conversation)
    return (await toolbox.call(ToolCall("call_1", tool, given), context)).text


@ERAS
async def test_the_model_answers_after_the_owners_approval(era: str) -> None:
    model, owner = Model(), Owner(["once"])
    async with toolbox_with(asking("curious", era), model) as toolbox:
        assert await said(toolbox, owner) == "qwen says Paris (stopSequence)"
    assert model.asked == [SamplingRequest("curious", (Message("user", "Capital?"),), "", 50)]
    assert owner.asked == [
        Approval(
            "",
            "sampling:curious",
            {"messages": [{"role": "user", "text": "Capital?"}], "max_tokens": 50},
            "Server 'curious' wants to ask the model this, and gets its answer.",
        )
    ]


@ERAS
async def test_without_a_yes_the_model_is_not_asked(era: str) -> None:
    model = Model()
    async with toolbox_with(asking("curious", era), model) as toolbox:
        assert await said(toolbox, Owner(["deny"])) == REFUSED
        assert await said(toolbox, DENY_ALL) == REFUSED
        assert await said(toolbox, FixedApprover("once")) == "qwen says Paris (stopSequence)"
        assert any("was refused: the owner" in line for line in toolbox.servers()[0].last_lines)
    assert len(model.asked) == 1


@ERAS
@pytest.mark.parametrize("how", ["deny", "no model"])
async def test_a_server_that_may_not_ask_gets_a_refusal(era: str, how: str) -> None:
    spec = asking("curious", era, sampling="deny" if how == "deny" else "ask")
    async with toolbox_with(spec, None if how == "no model" else Model()) as toolbox:
        assert await said(toolbox, FixedApprover("once")) == "The call failed: Sampling not supported (code -32600)."


async def test_a_yes_for_the_conversation_holds_for_that_one() -> None:
    owner = Owner(["conversation", "deny"])
    async with toolbox_with(asking("curious"), Model()) as toolbox:
        for _ in range(3):
            assert await said(toolbox, owner, "first") == "qwen says Paris (stopSequence)"
        assert await said(toolbox, owner, "second") == REFUSED
    assert len(owner.asked) == 2


@pytest.mark.parametrize(("decision", "outcome"), [("always", "qwen says Paris (stopSequence)"), ("never", REFUSED)])
async def test_a_permanent_decision_outlives_the_toolbox(decision: Decision, outcome: str) -> None:
    grants, owner = RecentApprovals(), Owner([decision])
    for _ in range(2):
        policies = ExecutionPolicies(approvals=Approvals(grants, "ja"))
        spec = asking("curious", always_allow=("*",))
        async with toolbox_with(spec, Model(), policies) as toolbox:
            assert await said(toolbox, owner) == outcome
    (question,) = owner.asked
    assert question.reason == "サーバー「curious」が、モデルに次のことを尋ね、その答えを受け取ろうとしています。"


@ERAS
@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        ({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}, "this host does not support tools in sampling"),
        (
            {
                "messages": [
                    {"role": "user", "content": {"type": "image", "data": "", "mimeType": "image/png"}},
                ]
            },
            "this host's model reads text only",
        ),
        ({"messages": []}, "at least one message"),
        ({"maxTokens": 0}, "at least one message and max_tokens"),
    ],
    ids=["tools", "image", "nothing", "no room"],
)
async def test_what_the_model_cannot_do_is_refused_in_a_sentence(era: str, wish: dict[str, Any], reason: str) -> None:
    model = Model()
    async with toolbox_with(asking("curious", era), model) as toolbox:
        assert reason in await said(toolbox, FixedApprover("once"), **{"with": wish})
    assert model.asked == []


@ERAS
@pytest.mark.parametrize(
    ("data", "outcome"),
    [(RED_ABOVE_BLUE, "qwen says Paris"), (b"<svg/>", "a picture is none, or of a format that is not read here")],
)
async def test_a_model_that_sees_is_shown_the_pictures_of_a_server(era: str, data: bytes, outcome: str) -> None:
    model, owner = Model(sees=True), Owner(["once"])
    image = {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": "image/png"}
    content = [{"type": "text", "text": "What is it?"}, image]
    async with toolbox_with(asking("curious", era), model) as toolbox:
        assert outcome in await said(toolbox, owner, **{"with": {"messages": [{"role": "user", "content": content}]}})
    shown = Message("user", "What is it?", pictures=(Picture.of(data),))
    assert [request.messages for request in model.asked] == ([(shown,)] if data == RED_ABOVE_BLUE else [])
    # The owner is told that there is one.
    messages = [question.arguments["messages"] for question in owner.asked]
    assert messages == [[{"role": "user", "text": "What is it?", "pictures": 1}]] * len(model.asked)


@ERAS
async def test_wishes_reach_the_model(era: str) -> None:
    model = Model()
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": {"type": "text", "text": "c"}},
        {"role": "user", "content": {"type": "text", "text": "d"}},
    ]
    wish = {"messages": turns, "systemPrompt": "Be brief.", "maxTokens": 7, "stopSequences": ["x", ""]}
    async with toolbox_with(asking("curious", era), model) as toolbox:
        await said(toolbox, FixedApprover("once"), **{"with": wish})
    messages = (Message("user", "a\nb"), Message("assistant", "c"), Message("user", "d"))
    assert model.asked == [SamplingRequest("curious", messages, "Be brief.", 7, ("x",))]


@ERAS
async def test_a_model_that_fails_costs_the_call_and_not_the_server(era: str) -> None:
    model = Model(RunRejectedError("out of memory"))
    async with toolbox_with(asking("curious", era), model) as toolbox:
        text = await said(toolbox, FixedApprover("once"))
        assert text.startswith("The call failed: the runtime failed this answer: out of memory")
        model.answer = ValueError("a bug")
        assert "the model could not answer" in await said(toolbox, FixedApprover("once"))
        model.answer = SamplingAnswer("Paris", "qwen")
        assert await said(toolbox, FixedApprover("once")) == "qwen says Paris (endTurn)"


async def test_a_server_that_is_allowed_need_not_be_approved_and_asks_ten_times_in_a_call() -> None:
    model = Model()
    async with toolbox_with(asking("curious", "legacy", sampling="allow"), model) as toolbox:
        text = await said(toolbox, DENY_ALL, count=20)
        assert text == "10 answers, then: the model can be asked 10 times during one call"
        assert await said(toolbox, DENY_ALL, count=1) == "all answered"
    assert len(model.asked) == 11
