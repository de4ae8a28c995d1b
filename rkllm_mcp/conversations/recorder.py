"""Save answers before their ``End`` event is sent, so a client that received ``End`` can always load the answer.

    question ─▶ draft ─▶ text so far, once a second ─▶ turns: the question and the last answer to it ─▶ store
    turns ─▶ ``restored_turns`` ─▶ a conversation to continue

Rules:
* Results of tools are left out unless the store keeps them.
* Tool rounds are left out of what the model reads again; an answer that was cancelled or failed is saved with all text
so far, marked as such.
* A question that was refused because it is too long is not saved.
* A failed save does not fail the answer; it is reported once until a save succeeds. The next save tries again.
* Tokens of the request are replaced before anything is saved.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import anyio

from rkllm_mcp.config.header_templates import redact, redacted_so_far
from rkllm_mcp.errors import StoreError
from rkllm_mcp.events import (
    Approval,
    End,
    Event,
    Prefill,
    Queued,
    Status,
    Text,
    Thinking,
    ToolProgress,
    Usage,
    event_from_dict,
    event_to_dict,
    to_json,
)
from rkllm_mcp.messages import Conversation, Ending, Message, Picture, StoredTurn
from rkllm_mcp.protocols import Step
from rkllm_mcp.records import StoredConversation, without_result, without_results
from rkllm_mcp.store.conversations import Conversations

# A write waits for another process at most half of it; the rest is for a disk that does not answer.
SAVE_TIMEOUT_S = 10.0
# The pause between two writes of an answer that grows.
WRITE_INTERVAL_S = 1.0
_DAY_S = 86400.0
# Events that are not part of an answer when it is over, and the longest text of one, and of all, that is saved.
_PASSING = (Status, Queued, Prefill, ToolProgress, Approval, End)
_EVENT_CHARS, _EVENTS_CHARS = 20_000, 400_000
_NO_DISK = "the disk does not answer; look after it"
_NO_FILE = "what is remembered lasts until this run ends, because its file cannot be used"
_OTHERS = "[Memory: this conversation went on elsewhere too; all of it is kept, in the order in which answers ended]"


@dataclass
class Recorder:
    """The store of one assistant's answers, and whether it takes them."""

    conversations: Conversations
    tenant: str
    clock: Callable[[], float] = time.time  # seconds since 1970
    pause: Callable[[], Awaitable[None]] = lambda: anyio.sleep(WRITE_INTERVAL_S)  # between two writes of an answer
    is_failing: bool = False  # the last save failed, which its reader knows

    async def tidy(self) -> None:
        """Delete what exceeds the limits of the history, now and once a day; runs until it is cancelled."""
        while True:
            with suppress(StoreError):  # the database reports it
                await self.conversations.clean(self.tenant)
                if self.conversations.leases is not None:
                    await self.conversations.leases.tidy(self.tenant)
            await anyio.sleep(_DAY_S)


class AnswerRecord(Step):
    """The record of one answer, a step of its pipeline; it is made before the conversation gets the question.

    ``question`` and ``pictures`` are the user's, for an answer that ends before the conversation has them; the question
    is empty if unknown. The ``secrets`` are never saved. ``visible`` returns the part of the answer's text that its
    reader received, and ``earlier_events`` are the events of the answer that is continued; see ``continue_answer``.
    """

    def __init__(
        self,
        recorder: Recorder,
        conversation: Conversation,
        question: str,
        secrets: Sequence[str],
        visible: Callable[[str], str] = str,
        earlier_events: Sequence[Event] = (),
        pictures: tuple[Picture, ...] = (),
    ) -> None:
        self._recorder = recorder
        self._conversation = conversation
        self._question = Message("user", question, pictures=pictures) if question else None
        self._secrets = secrets
        self._visible = visible
        # A record that was given up on may be stored all the same, and is known by its time.
        words, asked_at = conversation.asked
        self._asked_at = asked_at if asked_at and words == question else recorder.clock()
        conversation.asked = (question, self._asked_at)
        # The system text may be replaced before the first question.
        messages = [message for message in conversation.messages if message.role != "system"]
        questions = [index for index, message in enumerate(messages) if message.role == "user"]
        self._before = questions[-1] if earlier_events else len(messages)
        # Text and thinking of each round that its reader has received.
        self._rounds: list[tuple[list[str], list[str]]] = [([], [])]
        self._events: list[dict[str, Any]] = []
        self._growing = anyio.CancelScope()
        self._writing = anyio.Lock()
        # The stored answer is marked as one that is not over.
        self._has_to_begin = bool(earlier_events)
        self.feed(earlier_events)

    async def begin(self) -> bool:
        """Save the question with its empty answer, if it is known and not saved yet.

        A failure is reported when the answer is saved. Returns False if another board answers in the conversation.
        """
        self._conversation.broken_off = ()
        is_new = self._conversation.draft is None or self._has_to_begin
        if is_new and (turns := self._turns("interrupted")):
            self._has_to_begin = False
            conversations, tenant = self._recorder.conversations, self._recorder.tenant
            with anyio.move_on_after(SAVE_TIMEOUT_S, shield=True), suppress(StoreError):
                if self._conversation.unkept:
                    await conversations.save(tenant, self._conversation)
                return await conversations.begin(tenant, self._conversation, turns)
        return True

    def feed(self, batch: Sequence[Event]) -> Sequence[Event]:
        """Note the events, which the reader receives now, and return them."""
        for event in batch:
            if isinstance(event, (Text, Thinking)):
                self._rounds[-1][isinstance(event, Thinking)].append(event.text)
                if self._events and self._events[-1]["kind"] == event.kind:
                    self._events[-1]["parts"].append(event.text)
                    continue
            elif isinstance(event, Usage):
                self._rounds.append(([], []))
            if not isinstance(event, _PASSING):
                fields = event_to_dict(event)
                history = self._recorder.conversations.limits.current.history
                stored = fields if history.keep_results else without_result(fields)
                self._events.append({**stored, "parts": [stored["text"]]} if "text" in stored else stored)
        return batch

    def _events_json(self) -> str:
        """Return the events as JSON; empty if they are too long, or nothing but the text."""
        events = [{**event, "text": "".join(event["parts"])} if "parts" in event else event for event in self._events]
        for event in events:
            event.pop("parts", None)
            if event["kind"] == "tool_result":
                event["text"] = event["text"][:_EVENT_CHARS]
        secrets = [to_json(secret)[1:-1] for secret in self._secrets]
        text = redact(to_json(events), secrets) if secrets else to_json(events)
        return "" if len(text) > _EVENTS_CHARS or not events else text

    async def follow(self, deleted: Callable[[], object]) -> None:
        """Save the text as it grows until the answer is saved; call ``deleted`` if its conversation was deleted.

        That is also called if another board has cancelled the answer, or has begun it anew.
        """
        written = (StoredTurn("assistant", ""), "")
        with self._growing:
            while not self._growing.cancel_called:
                await self._recorder.pause()
                async with self._writing:
                    await self.begin()
                # The answer so far.
                texts = (
                    "\n\n".join(filter(None, ("".join(part).strip() for part in parts)))
                    for parts in zip(*self._rounds, strict=True)
                )
                text, thinking = (redacted_so_far(so_far, self._secrets) for so_far in texts)
                turn = StoredTurn("assistant", text, thinking, events=self._events_json())
                # Whether another board has cancelled the answer shows in the row that is written.
                is_due = (turn, turn.events) != written or self._conversation.answer_number
                if self._conversation.draft is not None and is_due:
                    is_there, tenant = True, self._recorder.tenant
                    with suppress(StoreError):
                        is_there = await self._recorder.conversations.grow(tenant, self._conversation, turn)
                    if not is_there:
                        deleted()
                        return
                    written = (turn, turn.events)

    async def save(self, ending: Ending, *, is_refused: bool = False) -> str:
        """Save the answer as it is, and turns that are not saved yet; return a notice for the user, or an empty text.

        With ``is_refused`` a question that the conversation does not have is forgotten.
        """
        self._growing.cancel()
        with anyio.CancelScope(shield=True):
            async with self._writing:
                pass
        self._question = None if is_refused else self._question
        conversation, recorder = self._conversation, self._recorder
        conversation.asked = ("", 0.0)
        conversation.unkept.extend(self._turns(ending))
        is_new = conversation.kept_turns == 0
        has_failed, recorder.is_failing = recorder.is_failing, True
        with anyio.move_on_after(SAVE_TIMEOUT_S, shield=True):
            try:
                newer_turns = await recorder.conversations.save(recorder.tenant, conversation)
            except StoreError as error:
                return "" if has_failed else f"[Memory: this answer was not kept: {error.cause}]"
            recorder.is_failing = False
            if is_new and conversation.kept_turns and not recorder.conversations.database.is_lasting:
                return f"[Memory: this answer was not kept: {_NO_FILE}]"
            return _OTHERS if newer_turns else ""
        return "" if has_failed else f"[Memory: this answer was not kept: {_NO_DISK}]"

    def _turns(self, ending: Ending) -> list[StoredTurn]:
        messages = [message for message in self._conversation.messages if message.role != "system"]
        added = messages[self._before :]
        turns = turns_of(added, self._question, ending, asked_at=self._asked_at, ended_at=self._recorder.clock())
        read = (replace(turn, text=self._visible(turn.text)) if turn.role == "assistant" else turn for turn in turns)
        keeps_results = self._recorder.conversations.limits.current.history.keep_results
        stored = read if keeps_results else map(without_results, read)
        discreet: list[StoredTurn] = []
        for turn in stored:
            texts = {name: redact(getattr(turn, name), self._secrets) for name in ("text", "thinking", "context")}
            discreet.append(replace(turn, **texts) if self._secrets else turn)
        if discreet and discreet[-1].role == "assistant":
            discreet[-1] = replace(discreet[-1], events=self._events_json())
        return discreet


def turns_of(
    messages: Sequence[Message], asked: Message | None, ending: Ending, *, asked_at: float, ended_at: float
) -> list[StoredTurn]:
    """Return the turns that are saved of one answer, its question first; empty if the question is unknown.

    ``messages`` are those that the answer added: a question, rounds of model and tools, an answer; the prompt of a
    server may add turns of both roles before them. ``asked`` is the question, if the answer ended before it was added.
    Times are seconds since 1970.
    """
    turns: list[StoredTurn] = []
    # Each question with the model's rounds after it; a prompt's leading assistant turns have no question.
    exchanges: list[tuple[Message | None, list[Message]]] = []
    for message in messages:
        if message.role == "user":
            exchanges.append((message, []))
        elif message.role == "assistant" and exchanges:
            exchanges[-1][1].append(message)
        elif message.role == "assistant":
            exchanges.append((None, [message]))
    exchanges = exchanges or [(asked, [])]
    for index, (question, rounds) in enumerate(exchanges):
        is_last = index == len(exchanges) - 1
        if question is not None:
            pictures = question.pictures
            turns.append(StoredTurn("user", question.text, context=question.context, at=asked_at, pictures=pictures))
        if rounds or (is_last and question is not None):
            ending_of_turn: Ending = ending if is_last else "answered"
            is_answered = ending_of_turn in ("answered", "token_limit", "round_limit")
            if is_answered and rounds and rounds[-1].text.strip():
                text, thinking = rounds[-1].text, rounds[-1].thinking
            else:
                # All rounds of an answer that did not end, or whose last round has no text.
                text = "\n\n".join(words for message in rounds if (words := message.text.strip()))
                thinking = "\n\n".join(thought for message in rounds if (thought := message.thinking.strip()))
            turns.append(StoredTurn("assistant", text, thinking, ending=ending_of_turn, at=ended_at))
    return turns


def restored_turns(stored: StoredConversation, conversation: Conversation) -> Conversation:
    """Restore a saved conversation into a new one and return that; the model reads it again from its messages.

    A question whose answer has no text is left out of the prompt and stays saved.
    """
    conversation.id, conversation.calls_made = stored.id, stored.calls_made
    conversation.own_system, conversation.kept_turns = stored.system, len(stored.turns)
    conversation.settings = stored.settings
    conversation.kept_until = stored.turns[-1].at if stored.turns else 0.0
    _restore(stored.turns, conversation)
    return conversation


def _restore(turns: Sequence[StoredTurn], conversation: Conversation) -> None:
    messages = conversation.messages
    unanswered = Message("user")
    for turn in turns:
        if turn.role == "user":
            # The store does not say which questions were servers' prompts.
            messages.append(Message("user", turn.text, context=turn.context, pictures=turn.pictures, foreign=True))
        elif turn.text.strip():
            is_cut = turn.ending == "token_limit"
            messages.append(Message("assistant", turn.text, thinking=turn.thinking, cut=is_cut))
        elif messages and messages[-1].role == "user":
            unanswered = messages.pop()
    if [turn.ending for turn in turns[-2:]] == ["", "interrupted"]:
        conversation.broken_off = tuple(messages[-2:]) if turns[-1].text.strip() else (unanswered,)


def replace_turns(stored: StoredConversation, position: int, conversation: Conversation) -> None:
    """Replace what was said from the stored turn at ``position`` on by the turns of ``stored`` from there.

    Messages before it stay as they are, so that the model need not read them again.
    """
    messages = conversation.messages
    stored_questions = [turn.text for turn in stored.turns[:position] if turn.role == "user"]
    indices = [index for index, message in enumerate(messages) if message.role == "user"]
    is_same = [messages[index].text for index in indices[: len(stored_questions)]] == stored_questions
    if not is_same:  # the model read something else, such as no question that was not answered
        position = 0
    elif len(indices) > len(stored_questions):
        del messages[indices[len(stored_questions)] :]
    if position == 0:
        messages[:] = messages[: bool(messages and messages[0].role == "system")]
    conversation.broken_off, conversation.kept_turns = (), len(stored.turns)
    conversation.kept_until = stored.turns[-1].at if stored.turns else 0.0
    _restore(stored.turns[position:], conversation)


def ask_again(conversation: Conversation) -> str:
    """Take back the last question of a conversation whose answer was broken off and return it, or an empty text.

    Question and answer leave the conversation; the next exchange replaces them in the store.
    """
    broken = conversation.broken_off
    if not broken:
        return ""
    question = broken[0].text
    begin_again(conversation)
    if len(broken) > 1:
        del conversation.messages[-2:]
    return question


async def take_back(conversations: Conversations, tenant: str, conversation: Conversation) -> str:
    """Take back the last question of a conversation with what followed, and return it; an empty text without one.

    Where it is stored the next exchange replaces it there, and it stays as an earlier version; see ``Conversations``.

    Raises:
        StoreError: it cannot be read what is stored.
    """
    kept = await conversations.get(tenant, conversation.id) if conversation.kept_turns else None
    if kept is not None:
        turns = kept.turns[: conversation.kept_turns]
        question_positions = [position for position, turn in enumerate(turns) if turn.role == "user"]
        if not question_positions:
            return ""
        position = question_positions[-1]
        replace_turns(replace(kept, turns=turns[:position]), position, conversation)
        conversation.replaces = position
        return turns[position].text
    positions = [place for place, message in enumerate(conversation.messages) if message.role == "user"]
    if not positions:
        return ""
    question = conversation.messages[positions[-1]].text
    del conversation.messages[positions[-1] :]
    return question


def continue_answer(stored: StoredConversation, conversation: Conversation) -> tuple[Event, ...]:
    """Return the events of the last answer so far if the model can go on with it, else nothing.

    That is an answer whose end was cut off in its text. What follows replaces it in the store.
    """
    if [turn.role for turn in stored.turns[-2:]] != ["user", "assistant"]:
        return ()
    turn = stored.turns[-1]
    last = conversation.messages[-1] if conversation.messages else Message("system")
    events = [event_from_dict(event) for event in json.loads(turn.events or "[]")]
    words = next((event for event in reversed(events) if not isinstance(event, Usage)), None)
    if turn.ending not in ("cancelled", "token_limit", "interrupted") or last.role != "assistant" or last.calls:
        return ()
    if not isinstance(words, Text) or not words.text.strip() or words.text.strip() not in last.text:
        return ()
    visible = words.text.strip()
    end = last.text.rindex(visible) + len(visible)
    if last.text[end:].strip():
        # The beginning of a call, which the reader has not seen, is written again.
        conversation.messages[-1] = last = replace(last, text=last.text[:end])
    index = len(events) - 1 - events[::-1].index(words)
    events[index] = Text(words.text.rstrip() + last.text[end:])
    return tuple(events)


def begin_again(conversation: Conversation) -> None:
    """Take the last exchange of a conversation out of the stored ones: what follows replaces it."""
    conversation.broken_off = ()
    conversation.kept_turns -= 2
    conversation.draft = range(conversation.kept_turns, conversation.kept_turns + 2)
