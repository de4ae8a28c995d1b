"""The loop, the model and its ledger on a scripted engine: whole answers without a runtime."""

from __future__ import annotations

import json
from itertools import pairwise

import anyio

from rkllm_mcp.agent.handlers import RunCalls
from rkllm_mcp.agent.loop import LoopSettings, answer_with_tools
from rkllm_mcp.agent.tool_set import ToolSet
from rkllm_mcp.errors import RunRejectedError
from rkllm_mcp.events import Event, Status
from rkllm_mcp.generation import ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.providers.rkllm import ModelForm, RkllmModel
from tests.support.demo_model import demo_vocabulary
from tests.support.scripted_engine import Play, ScriptedEngine
from tests.support.scripted_model import ScriptedTools
from tests.support.turn_events import FunctionSink

LOCATION = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}
WEATHER = ToolSpec("get_weather", "Weather", LOCATION)
TIME = ToolSpec("get_time", "Time")
END = "<|im_end|>"


def called(location: str, name: str = "get_weather") -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': {'location': location}})}\n</tool_call>"


class World:
    """A model on a scripted engine, and conversations with it through the loop."""

    def __init__(self, template: str = "qwen2.5", **engine: bool | int) -> None:
        self.engine = ScriptedEngine(demo_vocabulary(), [], **engine)  # pyright: ignore[reportArgumentType]
        form = TEMPLATES[template]
        self.model = RkllmModel(self.engine, ModelForm(demo_vocabulary(), form, form.tool_form.syntaxes))
        self.runs: dict[str, list[int]] = {}
        self.events: list[Event] = []

    async def ask(
        self,
        conversation: Conversation,
        text: str,
        *plays: str | Exception | Play,
        options: ModelOptions | None = None,
        stop_after: int | None = None,
    ) -> None:
        """One answer; ``stop_after`` cancels it at that event."""
        before = len(self.engine.prompts)
        # What a shorter answer leaves unplayed must not become the next one's.
        self.engine.answers[:] = [*plays, *[f"Enough.{END}"] * 12]
        seen = 0
        with anyio.fail_after(60), anyio.CancelScope() as scope:

            @FunctionSink
            def sink(event: Event) -> None:
                nonlocal seen
                self.events.append(event)
                seen += 1
                if seen == stop_after:
                    scope.cancel()

            tools = ScriptedTools({"get_weather": "sunny and 20 degrees"})
            calls = RunCalls(tools, ToolSet([WEATHER, TIME]), CallContext(sink=sink))
            settings = LoopSettings(max_rounds=3)
            question, options = [Message("user", text)], options or ModelOptions()
            sink.feed([await answer_with_tools(self.model, conversation, question, calls, options, settings, sink)])
        self.runs.setdefault(conversation.id, []).extend(range(before, len(self.engine.prompts)))

    def assert_only_grown(self, conversation: Conversation) -> None:
        runs = self.runs[conversation.id]
        for earlier, later in pairwise(runs):
            evaluated = self.engine.evaluated[earlier]
            assert self.engine.prompts[later][: len(evaluated)] == evaluated

    def assert_ready(self, conversation: Conversation) -> None:
        """Every call has its result after it, and nothing else has one."""
        for message, following in zip(conversation.messages, [*conversation.messages[1:], None], strict=True):
            if message.calls:
                assert following is not None
                ids = [result.call_id for result in following.results if result.call_id]
                assert ids == [call.id for call in message.calls]
            if message.role == "tool":
                assert message.results

    def excesses(self) -> list[Status]:
        return [event for event in self.events if isinstance(event, Status) and event.text.startswith("[NPU: ")]


# The runs of one answer, by what becomes of it.
ENDINGS: dict[str, tuple[str | Exception | Play, ...]] = {
    "an answer": (f"It is fine.{END}",),
    "no token at all": ("",),
    "nothing but its end": (END,),
    "another end": ("It is fine.<|endoftext|>",),
    "a turn of its own making": ("Fine.<|im_start|>user\nAnd you?<|im_end|>",),
    "a result of its own making": (f"{called('x')}\n<tool_response>\nhot\n</tool_response>{END}", f"Ok.{END}"),
    "cut by the limit": ("one two three four five six seven eight nine ten " * 20,),
    "a call": (f"Let me see. {called('Tokyo')}{END}", f"Sunny.{END}"),
    "two calls": (f"{called('Tokyo')}\n{called('Osaka')}{END}", f"Sunny.{END}"),
    "a failing tool": (f'<tool_call>\n{{"name": "get_time", "arguments": {{}}}}\n</tool_call>{END}', f"Sorry.{END}"),
    "a call that cannot be read": (f"<tool_call>\n{{nonsense{END}", f"{called('Tokyo')}{END}", f"Sunny.{END}"),
    "a tool that is not there": (f"{called('x', 'fly')}{END}", f"No.{END}"),
    # A call in the last round as well is followed by an answer from facts, whose prompt begins anew.
    "calls up to the limit": tuple(f"{called(str(number))}{END}" for number in range(3)),
    "a run that is refused": (RunRejectedError("no"),),
    "a run that fails in the middle": (Play("It is <tool_call>\n{", RunRejectedError("no")),),
    "a run that fails behind a call": (Play(called("Tokyo"), RunRejectedError("no")),),
    "a second run that fails": (f"{called('Tokyo')}{END}", Play("It", RunRejectedError("no"))),
}
