"""How a model family spells a conversation: turns as segments of trusted and foreign text.

A ``ChatTemplate`` is data: the strings around each kind of turn. It renders one turn at a time, because a ledger only
ever appends; nothing that was sent is rendered again. Template strings are trusted (control tokens in them are
meant), what people, tools and servers wrote is foreign. It knows no token ids and no files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rkllm_mcp.messages import Message, ToolSpec
from rkllm_mcp.prompt.tools import TOOL_FORMS, ToolForm
from rkllm_mcp.prompt.vocabulary import Foreign, Segment, Trusted


@dataclass(frozen=True)
class ChatTemplate:
    """The strings around the turns of one family.

    Args:
        system_opening, system_closing: around the system text and the tool list.
        user_opening, user_closing: around what the user says.
        results_opening, results_closing: around the results of a round.
        assistant_opening: what the model continues.
        assistant_closing: what follows an answer; begins with ``end_of_turn``.
        end_of_turn: the control token that ends an answer; the model usually writes it itself.
        stop: further control tokens that end an answer.
        no_thinking: what follows ``assistant_opening`` when the model is not to think; empty for models that never do.
        open_thinking: what follows ``assistant_opening`` when the model is to think; empty where it opens the block
            itself.
        tool_form: how tools are spelled.
    """

    system_opening: str
    system_closing: str
    user_opening: str
    user_closing: str
    results_opening: str
    results_closing: str
    assistant_opening: str
    assistant_closing: str
    end_of_turn: str
    stop: tuple[str, ...]
    tool_form: ToolForm
    no_thinking: str = ""
    open_thinking: str = ""

    def head(self, system: str, tools: Sequence[ToolSpec]) -> list[Segment]:
        """The front of every prompt: system text and tool list; nothing when both are empty."""
        listing = self.tool_form.listing(tools)
        if not system and not listing:
            return []
        return [Trusted(self.system_opening), Foreign(system), *listing, Trusted(self.system_closing)]

    def turn(self, message: Message) -> list[Segment]:
        """One whole turn, closed.

        Raises:
            ValueError: a system turn behind the head; templates have one system text, at the front.
        """
        if message.role == "user":
            return [Trusted(self.user_opening), Foreign(message.text), Trusted(self.user_closing)]
        if message.role == "tool":
            results = self.tool_form.results(message.results, message.text)
            return [Trusted(self.results_opening), *results, Trusted(self.results_closing)]
        if message.role == "assistant":
            calls: list[Segment] = []
            for index, call in enumerate(message.calls):
                separator = "\n" if index or message.text else ""
                calls += [Trusted(separator), *self.tool_form.call(call)]
            return [Trusted(self.assistant_opening), Foreign(message.text), *calls, Trusted(self.assistant_closing)]
        raise ValueError("a system message can only be the first of a conversation")

    def opening(self, *, thinking: bool) -> list[Segment]:
        """What the model is to continue: the assistant's turn, opened."""
        return [Trusted(self.assistant_opening), Trusted(self.open_thinking if thinking else self.no_thinking)]


def _chatml(tool_form: str, *, no_thinking: str = "") -> ChatTemplate:
    return ChatTemplate(
        system_opening="<|im_start|>system\n",
        system_closing="<|im_end|>\n",
        user_opening="<|im_start|>user\n",
        user_closing="<|im_end|>\n",
        results_opening="<|im_start|>user\n",
        results_closing="<|im_end|>\n",
        assistant_opening="<|im_start|>assistant\n",
        assistant_closing="<|im_end|>\n",
        end_of_turn="<|im_end|>",
        # A model that misses its end goes on with a turn, or a result, of its own making.
        stop=("<|endoftext|>", "<|im_start|>", "<tool_response>"),
        tool_form=TOOL_FORMS[tool_form],
        no_thinking=no_thinking,
    )


# Source: the published chat templates of the families (reference: toolcall-formats, sections 1 and 6). Ours differ from
# them in one thing, which is our choice. Qwen3's leaves the thinking of earlier answers out of every later prompt; our
# ledger keeps what the model wrote, the thinking and the empty block too, because taking it out would have the NPU read
# all that follows again with each question. It goes when a turn is rendered again: after a compaction, another tool
# list, or a change of the history.
TEMPLATES: Mapping[str, ChatTemplate] = {
    "qwen2.5": _chatml("hermes"),
    # enable_thinking=false of Qwen3's template is an empty block that the prompt closes.
    "qwen3": _chatml("hermes", no_thinking="<think>\n\n</think>\n\n"),
    # ChatML models that were never trained on tools: the project's markers.
    "chatml": _chatml("markers"),
}
