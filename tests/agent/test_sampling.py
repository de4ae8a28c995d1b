"""A server's question to our model, alone and in the middle of an answer of the same model."""

from __future__ import annotations

import anyio
import pytest

from rkllm_mcp.agent.handlers import RunCalls
from rkllm_mcp.agent.loop import LoopSettings, answer_with_tools
from rkllm_mcp.agent.sampling import ModelSampler
from rkllm_mcp.agent.tool_set import ToolSet
from rkllm_mcp.errors import RunRejectedError
from rkllm_mcp.events import End, Event, Text, ToolCallDetected, ToolCallFailed, ToolFinished
from rkllm_mcp.generation import ModelOptions
from rkllm_mcp.messages import Conversation, Message
from rkllm_mcp.protocols import CallContext, FixedApprover, SamplingAnswer, SamplingRequest
from rkllm_mcp.tools.tool_servers import open_toolbox
from tests.support.mcp_servers.specs import PATIENCE_S, asking
from tests.support.scripted_model import Round, ScriptedModel
from tests.support.scripted_world import END, World
from tests.support.turn_events import FunctionSink

pytestmark = pytest.mark.anyio
CAPITAL = SamplingRequest("curious", (Message("user", "Capital?"),), "Be brief.", 50, ("###",))


def sampler_of(*rounds: Round) -> tuple[ModelSampler, ScriptedModel, list[str]]:
    model = ScriptedModel([*rounds])
    return ModelSampler(model, "qwen", 20), model, model.forgotten


async def test_the_answer_is_the_models_in_its_own_conversation() -> None:
    sampler, model, forgotten = sampler_of(Round([Text(" Par"), Text("is.\n")]))
    assert await sampler.sample(CAPITAL) == SamplingAnswer("Paris.", "qwen", "end")
    ((messages, tools, options),) = model.asked
    assert messages == [Message("system", "Be brief."), Message("user", "Capital?")]
    assert (tools, options) == ((), ModelOptions(max_new_tokens=20))
    assert len(forgotten) == 1


async def test_turns_of_one_speaker_in_a_row_become_one() -> None:
    sampler, model, _ = sampler_of(Round([Text("x")]))
    turns = (Message("user", "a"), Message("user", "b"), Message("assistant", "c"), Message("user", "d"))
    await sampler.sample(SamplingRequest("curious", turns, max_tokens=5))
    assert model.asked[0][0] == [Message("user", "a\n\nb"), Message("assistant", "c"), Message("user", "d")]
    assert model.asked[0][2].max_new_tokens == 5


async def test_the_answer_ends_at_the_first_stop_text() -> None:
    sampler, _, forgotten = sampler_of(Round([Text("one #"), Text("## two")], never_ends=True))
    with anyio.fail_after(PATIENCE_S):
        assert await sampler.sample(CAPITAL) == SamplingAnswer("one ", "qwen", "stop")
    assert len(forgotten) == 1


async def test_an_answer_that_is_cut_says_so_and_what_looks_like_a_call_is_text() -> None:
    sampler, _, _ = sampler_of(
        Round([ToolCallFailed("<tool_call>{", "unfinished"), ToolCallDetected("f", {}, raw="f()")], cut=True)
    )
    assert await sampler.sample(CAPITAL) == SamplingAnswer("<tool_call>{f()", "qwen", "length")


async def test_a_model_that_fails_is_an_error_of_the_question() -> None:
    sampler, _, forgotten = sampler_of(Round([Text("x")], error=RunRejectedError("no")))
    with pytest.raises(RunRejectedError):
        await sampler.sample(CAPITAL)
    assert len(forgotten) == 1


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("calls", [1, 2])
async def test_a_server_asks_the_model_while_the_models_answer_waits_for_it(era: str, calls: int) -> None:
    """One NPU: the run of the answer is over before the tool runs, so the question has its turn."""
    world = World()
    sampler = ModelSampler(world.model, "qwen", 20)
    events: list[Event] = []

    @FunctionSink
    def sink(event: Event) -> None:
        events.append(event)

    call = '<tool_call>\n{"name": "ask_model", "arguments": {"question": "Number %d?"}}\n</tool_call>'
    asked = "\n".join(call % number for number in range(calls))
    world.engine.answers[:] = [f"{asked}{END}", *[f"Forty-two.{END}"] * calls, f"It is forty-two.{END}"]
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([asking("curious", era)], sampler=sampler) as toolbox:
            await toolbox.wait_until_connected()
            tool_set = ToolSet([tool for tool in toolbox.tools() if tool.name == "ask_model"])
            settings = LoopSettings(parallel_tools=True)
            context = CallContext(sink=sink, asker=FixedApprover("once"), conversation_id="c")
            conversation = Conversation(id="c")
            runner = RunCalls(toolbox, tool_set, context, settings.parallel_tools)
            question = [Message("user", "How many?")]
            end = await answer_with_tools(world.model, conversation, question, runner, ModelOptions(), settings, sink)
    results = [event.text for event in events if isinstance(event, ToolFinished)]
    assert results == ["qwen says Forty-two. (endTurn)"] * calls
    assert end == End("answered")
    assert conversation.messages[-1].text == "It is forty-two."
    assert len(world.engine.prompts) == 2 + calls
