"""Save answers before their ``End`` event is sent, so a client that received ``End`` can always load the answer.

    messages of an answer ─▶ turns: the question and the last answer to it ─▶ store
    turns ─▶ ``restored_turns`` ─▶ a conversation to continue

Rules:
* Tool rounds are left out; an answer that was cancelled or failed is saved with all text so far, marked as such.
* A failed save is reported and does not fail the answer; the next save tries again.
* Tokens of the request are replaced before anything is saved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import anyio

from rkllm_mcp.config.header_templates import redacted
from rkllm_mcp.errors import StoreError
from rkllm_mcp.messages import Conversation, Message
from rkllm_mcp.records import Ending, StoredConversation, StoredTurn
from rkllm_mcp.store.conversations import Conversations

# A write waits for another process at most half of it; the rest is for a disk that does not answer.
SAVE_TIMEOUT_S = 10.0
_DAY_S = 86400.0
_NO_DISK = "the disk does not answer; look after it"
_NO_FILE = "what is remembered lasts until this run ends, because its file cannot be used"
_OTHERS = "[Memory: this conversation went on elsewhere too; all of it is kept, in the order in which answers ended]"


class Recorder:
    """Saves the answers of one assistant.

    Args:
        conversations: the store.
        tenant: the tenant's name.
        clock: the time, seconds since 1970.
    """

    def __init__(self, conversations: Conversations, tenant: str, clock: Callable[[], float] = time.time) -> None:
        self._conversations = conversations
        self._tenant = tenant
        self._clock = clock

    def record(
        self,
        conversation: Conversation,
        question: str,
        secrets: Sequence[str],
        visible: Callable[[str], str] = str,
    ) -> AnswerRecord:
        """Begin the record of an answer, before the conversation gets the question.

        Args:
            conversation: the conversation that is answered.
            question: the user's text, for an answer that ends before the conversation has it; empty if unknown.
            secrets: texts that are never saved.
            visible: returns the part of the answer's text that its reader received.
        """
        return AnswerRecord(self, conversation, question, secrets, visible, self._clock)

    async def save(self, conversation: Conversation) -> str:
        """Save the turns that are not saved yet; return a notice for the user, or an empty text."""
        is_new = conversation.kept_turns == 0
        with anyio.move_on_after(SAVE_TIMEOUT_S, shield=True):
            try:
                others = await self._conversations.save(self._tenant, conversation)
            except StoreError as error:
                return f"[Memory: this answer was not kept: {error}]"
            if is_new and conversation.kept_turns and not self._conversations.is_lasting:
                return f"[Memory: this answer was not kept: {_NO_FILE}]"
            return _OTHERS if others else ""
        return f"[Memory: this answer was not kept: {_NO_DISK}]"

    async def tidy(self, say: Callable[[str], None] | None = None) -> None:
        """Delete what exceeds the limits of the history, now and once a day; runs until it is cancelled."""
        while True:
            try:
                await self._conversations.clean(self._tenant)
            except StoreError as error:
                if say is not None:
                    say(f"[Memory: old conversations could not be deleted: {error}]")
            await anyio.sleep(_DAY_S)


class AnswerRecord:
    """The record of one answer; ``Recorder.record`` makes it."""

    def __init__(
        self,
        recorder: Recorder,
        conversation: Conversation,
        question: str,
        secrets: Sequence[str],
        visible: Callable[[str], str],
        clock: Callable[[], float],
    ) -> None:
        self._recorder = recorder
        self._conversation = conversation
        self._question = question
        self._secrets = secrets
        self._visible = visible
        self._clock = clock
        self._asked_at = clock()
        self._before = len(_said(conversation.messages))

    async def save(self, ending: Ending) -> str:
        """Save the answer as it is; return a notice for the user, or an empty text."""
        said = _said(self._conversation.messages)[self._before :]
        turns = turns_of(said, self._question, ending, asked_at=self._asked_at, ended_at=self._clock())
        read = (replace(turn, text=self._visible(turn.text)) if turn.role == "assistant" else turn for turn in turns)
        self._conversation.unkept.extend(_discreet(turn, self._secrets) for turn in read)
        return await self._recorder.save(self._conversation)


def turns_of(
    said: Sequence[Message], words: str, ending: Ending, *, asked_at: float, ended_at: float
) -> list[StoredTurn]:
    """Return the turns that are saved of one answer, its question first; empty if the question is unknown.

    Args:
        said: messages that the answer added: a question, rounds of the model and of tools, an answer. The prompt of a
            server may add turns of both roles before them.
        words: the question, if the answer ended before it was added.
        ending: how the answer ended.
        asked_at: time of the question, seconds since 1970.
        ended_at: time of the answer's end.
    """
    turns: list[StoredTurn] = []
    exchanges = list(_exchanges(said)) or [(Message("user", words) if words else None, [])]
    for index, (asked, rounds) in enumerate(exchanges):
        is_last = index == len(exchanges) - 1
        if asked is not None:
            turns.append(StoredTurn("user", asked.text, context=asked.context, at=asked_at))
        if rounds or (is_last and asked is not None):
            turns.append(_answer(rounds, ending if is_last else "answered", ended_at))
    return turns


def restored_turns(kept: StoredConversation, conversation: Conversation) -> Conversation:
    """Restore a saved conversation; the model reads it again from its messages.

    A question whose answer has no text is left out of the prompt and stays saved.

    Args:
        kept: the saved conversation.
        conversation: a new one, which is filled and returned.
    """
    conversation.id, conversation.calls_made = kept.id, kept.calls_made
    conversation.own_system, conversation.kept_turns = kept.system, len(kept.turns)
    messages = conversation.messages
    for turn in kept.turns:
        if turn.role == "user":
            # The store does not say which questions were servers' prompts.
            messages.append(Message("user", turn.text, context=turn.context, foreign=True))
        elif turn.text.strip():
            is_cut = turn.ending == "token_limit"
            messages.append(Message("assistant", turn.text, thinking=turn.thinking, cut=is_cut))
        elif messages and messages[-1].role == "user":
            messages.pop()
    return conversation


def _said(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without the system text, which may be replaced before the first question."""
    return [message for message in messages if message.role != "system"]


def _exchanges(said: Sequence[Message]) -> Iterator[tuple[Message | None, list[Message]]]:
    """Yield each question with the model's rounds after it; a prompt's leading assistant turns have no question."""
    asked: Message | None = None
    rounds: list[Message] = []
    for message in said:
        if message.role == "user":
            if asked is not None or rounds:
                yield asked, rounds
            asked, rounds = message, []
        elif message.role == "assistant":
            rounds.append(message)
    if asked is not None or rounds:
        yield asked, rounds


def _answer(rounds: Sequence[Message], ending: Ending, at: float) -> StoredTurn:
    """Return the rounds as one turn: the last one, or all if the answer did not end or the last has no text."""
    if ending in ("answered", "token_limit", "round_limit") and rounds and rounds[-1].text.strip():
        return StoredTurn("assistant", rounds[-1].text, rounds[-1].thinking, ending=ending, at=at)
    text = "\n\n".join(words for message in rounds if (words := message.text.strip()))
    thinking = "\n\n".join(thought for message in rounds if (thought := message.thinking.strip()))
    return StoredTurn("assistant", text, thinking, ending=ending, at=at)


def _discreet(turn: StoredTurn, secrets: Sequence[str]) -> StoredTurn:
    if not secrets:
        return turn
    return replace(
        turn,
        text=redacted(turn.text, secrets),
        thinking=redacted(turn.thinking, secrets),
        context=redacted(turn.context, secrets),
    )
