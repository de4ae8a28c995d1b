"""The prompt of a conversation as token ids, each turn rendered once.

``ConversationPrompt`` combines tokenizer, template, ledger and budget. A turn is rendered when it is first used and
never again; an answer is stored as the ids that the model delivered; changes of the history are found by comparing
messages, and only the part after the change is rendered again.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import takewhile

from rkllm_mcp.errors import PromptTooLongError
from rkllm_mcp.generation import common_prefix
from rkllm_mcp.messages import Message, Picture, ToolSpec, as_read
from rkllm_mcp.prompt.budget import Budget, Compaction
from rkllm_mcp.prompt.template import NO_PICTURES, Before, ChatTemplate, PictureText, before_next
from rkllm_mcp.prompt.tokenizer import ModelTokenizer, PlainText, Segment

_LONGEST_CHARACTER = 6  # number of tokens that one character may take


@dataclass(frozen=True)
class Prompt:
    """Input of the engine."""

    ids: list[int]  # the whole prompt
    max_new_tokens: int  # the longest answer that fits after it
    prefix_tokens: int = 0  # of these ids, the system text and the tool list, without a text about the person
    pictures: tuple[Picture, ...] = ()  # that the model sees, in their order
    notice: str = ""  # sentence about dropped messages; empty if the conversation is complete


@dataclass(frozen=True)
class PromptPart:
    """One part of a prompt, for display: ``system``, ``tools``, ``user``, …, ``answer``."""

    label: str
    text: str
    ids: list[int]


@dataclass(frozen=True)
class _Turn:
    message: Message
    end: int
    text_end: int = 0  # of the generated ids of an answer; 0 for a rendered turn


class ConversationPrompt:
    """The growing prompt of one conversation; ``thinking`` is True if the model should think before it answers."""

    def __init__(self, tokenizer: ModelTokenizer, template: ChatTemplate, *, thinking: bool = False) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._thinking = thinking
        # Four bytes each: a service keeps those of many conversations.
        self._ledger = array("i")
        self._prefix: tuple[str, str, tuple[ToolSpec, ...], bool] | None = None
        self._prefix_end = 0
        self._shared_end = 0  # of the part of the prefix that is the same for all people
        self._before_first: Before = "start"
        self._turns: list[_Turn] = []
        self._compaction = Compaction()
        self._pictures = NO_PICTURES
        self._stops = stop_ids(tokenizer, template)

    @property
    def tokens(self) -> int:
        """The number of tokens so far."""
        return len(self._ledger)

    @property
    def text(self) -> str:
        """The prompt so far as the model has read and written it, control tokens by name."""
        return self._tokenizer.decode(self._ledger)

    def copy(self) -> ConversationPrompt:
        """Return the prompt of a conversation that begins as this one and continues separately."""
        other: ConversationPrompt = copy(self)
        other._ledger, other._turns = self._ledger[:], list(self._turns)
        other._compaction = copy(self._compaction)
        return other

    def prepare(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        budget: Budget,
        *,
        forced_tool: str | None = None,
        opens_arguments: bool = False,
        any_tool: bool = False,
        thinking: bool | None = None,
        continues: bool = False,
        pictures: PictureText = NO_PICTURES,
    ) -> Prompt:
        """Return the prompt for the next answer.

        Args:
            messages: the whole conversation; the first may be a system message.
            tools: the tools to list, in a stable order.
            budget: the window and the longest requested answer.
            forced_tool: the answer must begin with a call of this tool; the prompt ends inside the call.
            opens_arguments: it ends inside the arguments of that call.
            any_tool: the same for any tool; the model writes the name.
            thinking: switches thinking on or off from now on; None leaves it unchanged.
            pictures: the text of pictures, and which of them the model sees.
            continues: the last message is an answer that the model goes on with; ``store_answer`` gets its whole text.

        Raises:
            PromptTooLongError: it does not fit, even after compaction.
        """
        self._thinking = self._thinking if thinking is None else thinking
        (system, person), body = _split_system(as_read(messages))
        unfinished, body = (body[-1], body[:-1]) if continues else (None, body)
        if pictures != self._pictures:
            # Forget the turns from the first one on whose pictures have another text from now on.
            earlier, self._pictures = self._pictures, pictures
            for index, turn in enumerate(self._turns):
                shown = turn.message.all_pictures
                if shown and earlier.segments(shown) != pictures.segments(shown):
                    del self._turns[index:]
                    break
        # Before the prefix, which may be written again.
        generated: list[int] = []
        last = self._turns[-1] if self._turns else None
        if last is not None and last.text_end and last.message == unfinished:
            # Without the closing of the turn, and without tokens of a character that was cut: those are not part of the
            # text, and the runtime reads each run's text by itself.
            start = self._turns[-2].end if len(self._turns) > 1 else self._prefix_end
            generated = list(self._ledger[start : last.text_end])
            while generated and self._tokenizer.decode(generated[-_LONGEST_CHARACTER:]).endswith("\ufffd"):
                del generated[-1]
        self._write_prefix(system, person, tuple(tools), budget)
        before = before_next(body[-1]) if body else self._before_first
        if unfinished is None:
            started = self._opening(before, forced_tool, any_tool=any_tool, opens_arguments=opens_arguments)
            opening = self._tokenizer.encode(started)
        else:
            opening = generated or self._tokenizer.encode(self._template.begun(unfinished, before))
        self._write_turns(self._compaction.view(body), budget.counted_tokens)
        notice = ""
        if len(self._ledger) + len(opening) > budget.prompt_limit_tokens:
            notice = self._compact(body, budget, len(opening))
        self._ledger.extend(opening)
        ids = list(self._ledger)
        all_pictures = (picture for turn in self._turns for picture in turn.message.all_pictures)
        used_pictures = tuple(picture for picture in all_pictures if picture.digest in pictures.digests)
        return Prompt(ids, budget.new_tokens_after(len(ids)), self._shared_end, used_pictures, notice)

    def aside(self, question: Message, last: Message, budget: Budget) -> Prompt | None:
        """Return the prompt for a question after the answer ``last`` that does not become part of the conversation.

        It begins with all ids of the conversation, and asks for an answer without thinking. Nothing is stored: the
        next prompt continues after ``last``. None if that is not the end of the ledger, if the whole conversation does
        not fit with the question, or has pictures, or if only another prefix would switch thinking off.
        """
        end = self._turns[-1] if self._turns else None
        is_fixed = self._thinking and bool(self._template.head_form.thinking_preface)
        if end is None or end.message != last or last.calls or last.role != "assistant" or is_fixed:
            return None
        if any(turn.message.all_pictures for turn in self._turns):
            return None
        added = self._template.turn(question, before_next(last))
        opening = self._template.opening(thinking=False, before=before_next(question))
        ids = [*self._ledger[: end.end], *self._tokenizer.encode(added), *self._tokenizer.encode(opening)]
        if len(ids) > budget.prompt_limit_tokens:
            return None
        return Prompt(ids, budget.new_tokens_after(len(ids)), self._shared_end)

    def store_answer(self, message: Message, generated: Sequence[int]) -> None:
        """Store the ids that the model delivered for the last prepared prompt as the turn ``message``.

        The stop token was sampled but never evaluated, so the closing of the turn replaces it.
        """
        self._ledger.extend(takewhile(lambda token_id: token_id not in self._stops, generated))
        text_end = len(self._ledger)
        self._ledger.extend(self._tokenizer.encode(self._template.closing(message)))
        self._turns.append(_Turn(message, len(self._ledger), text_end))

    def head(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """Return the prefix of a new conversation's prompts that all people share: system text and tools.

        Nothing is stored.
        """
        (system, person), _ = _split_system(messages)
        shared = self._tokenizer.encode(self._template.head(system, tools, thinking=self._thinking))
        if not person:
            return shared
        head_ids = self._tokenizer.encode(self._template.head(system, tools, thinking=self._thinking, person=person))
        return shared[: common_prefix(shared, head_ids)]

    def parts(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], pictures: PictureText = NO_PICTURES
    ) -> list[PromptPart]:
        """Return the prompt part by part, as for a new conversation. Nothing is stored."""
        (system, person), body = _split_system(as_read(messages))
        labelled = self._prefix_parts(system, person, tools)
        before = self._template.before_first(system, tools, person)
        for message in body:
            labelled.append((message.role, self._tokenizer.encode(self._template.turn(message, before, pictures))))
            before = before_next(message)
        labelled.append(("answer", self._tokenizer.encode(self._opening(before))))
        return [PromptPart(label, self._tokenizer.decode(ids), ids) for label, ids in labelled]

    def _opening(
        self,
        before: Before,
        forced_tool: str | None = None,
        *,
        any_tool: bool = False,
        opens_arguments: bool = False,
    ) -> list[Segment]:
        if forced_tool is None and not any_tool:
            return self._template.opening(thinking=self._thinking, before=before)
        # A call inside an open thinking block would count as thinking.
        opening = self._template.opening(thinking=False, before=before)
        return [*opening, *self._template.tool_form.call_beginning(forced_tool, opens_arguments=opens_arguments)]

    def _prefix_parts(self, system: str, person: str, tools: Sequence[ToolSpec]) -> list[tuple[str, list[int]]]:
        """Split the prefix into system text, tool list and text about the person, where prefixes begin to differ."""
        if person:
            shared = self.head([Message("system", system, context=person)], tools)
            head_ids = self._tokenizer.encode(
                self._template.head(system, tools, thinking=self._thinking, person=person)
            )
            parts = self._prefix_parts(system, "", tools)
            end = sum(len(ids) for _, ids in parts)
            # Without the closing, which comes after the person.
            cut = [(label, ids[: len(ids) - max(0, end - len(shared))]) for label, ids in parts[-1:]]
            return [*parts[:-1], *cut, ("person", head_ids[len(shared) :])]
        bare = self._tokenizer.encode(self._template.head(system, (), thinking=self._thinking))
        with_tools = self._tokenizer.encode(self._template.head(system, tools, thinking=self._thinking))
        if not tools:
            return [("system", bare)] if bare else []
        shared = common_prefix(bare, with_tools)
        return [("system", with_tools[:shared]), ("tools", with_tools[shared:])]

    def _write_prefix(self, system: str, person: str, tools: tuple[ToolSpec, ...], budget: Budget) -> None:
        """Start over if the prefix changed: all later ids depend on it. Refuse one that is far too long."""
        if self._prefix == (system, person, tools, self._thinking):
            return
        head = self._template.head(system, tools, thinking=self._thinking, person=person)
        ids = self._tokenizer.encode(head, budget.counted_tokens)
        if len(ids) > budget.counted_tokens:
            raise PromptTooLongError(len(ids), budget.prompt_limit_tokens, is_partial=True)
        if self._prefix is None or ids != list(self._ledger[: self._prefix_end]):
            del self._ledger[:]
            self._turns = []
            self._ledger.extend(ids)
            self._prefix_end = len(self._ledger)
        if person:
            self._shared_end = len(self.head([Message("system", system, context=person)], tools))
        else:
            self._shared_end = self._prefix_end
        self._prefix = (system, person, tools, self._thinking)
        self._before_first = self._template.before_first(system, tools, person)

    def _write_turns(self, view: Sequence[Message], most: int = sys.maxsize) -> None:
        """Make the ledger hold exactly the turns of ``view``; render only those that are new.

        Rendering stops after ``most`` tokens, because the prompt does not fit then.
        """
        unchanged = 0
        while unchanged < min(len(view), len(self._turns)) and view[unchanged] == self._turns[unchanged].message:
            unchanged += 1
        del self._turns[unchanged:]
        del self._ledger[self._turns[-1].end if self._turns else self._prefix_end :]
        before = before_next(view[unchanged - 1]) if unchanged else self._before_first
        for message in view[unchanged:]:
            self._ledger.extend(self._tokenizer.encode(self._template.turn(message, before, self._pictures), most))
            if len(self._ledger) > most:
                # This turn may be incomplete, so it is not recorded and the next call renders it again.
                return
            self._turns.append(_Turn(message, len(self._ledger)))
            before = before_next(message)

    def _compact(self, body: Sequence[Message], budget: Budget, opening_tokens: int) -> str:
        around, most = self._prefix_end + opening_tokens, budget.counted_tokens
        # Costs by message id, stored with the message so that its id stays unique; a long text takes seconds to count.
        costs: dict[int, tuple[Message, int]] = {}

        def cost(message: Message) -> int:
            if id(message) not in costs:
                costs[id(message)] = (
                    message,
                    len(self._tokenizer.encode(self._template.turn(message, pictures=self._pictures), most)),
                )
            return costs[id(message)][1]

        try:
            notice = self._compaction.tighten(body, cost, budget.prompt_limit_tokens - around, most)
        except PromptTooLongError as error:
            total = error.prompt_tokens + around
            raise PromptTooLongError(total, budget.prompt_limit_tokens, is_partial=error.is_partial) from None
        self._turns = []
        self._write_turns(self._compaction.view(body))
        return notice


def stop_ids(tokenizer: ModelTokenizer, template: ChatTemplate) -> frozenset[int]:
    """Return the ids that end an answer, of those in this vocabulary."""
    controls = map(tokenizer.controls.get, (template.end_of_turn, *template.stop))
    texts = (tokenizer.encode([PlainText(text)]) for text in template.stop_texts)
    return frozenset([*(i for i in controls if i is not None), *(ids[0] for ids in texts if len(ids) == 1)])


def _split_system(messages: Sequence[Message]) -> tuple[tuple[str, str], Sequence[Message]]:
    """Return the system text and the text about the person, and the other messages."""
    if messages and messages[0].role == "system":
        return (messages[0].text, messages[0].context), messages[1:]
    return ("", ""), messages
