"""An answer is kept before its end is told: whoever has seen an ``End`` finds the answer again, whatever happens next.

    messages of an answer ─▶ turns: the words and what they got at last ─▶ store ─▶ End
    turns ─▶ ``revived`` ─▶ a conversation to go on with

Rules:
* Rounds of tools are left out; an answer that was stopped or failed is kept with all that had come, marked as such.
* What cannot be kept is said and is no failure of the answer; the next save tries again.
* Tokens of the request are replaced before anything is kept.

It knows the store and the events of an answer, neither models nor servers.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import anyio

from rkllm_mcp.config.header_templates import redacted
from rkllm_mcp.errors import RkllmMcpError, StoreError
from rkllm_mcp.events import End, Event, Status
from rkllm_mcp.messages import Conversation, Message
from rkllm_mcp.protocols import EmitEvents
from rkllm_mcp.records import Ending, StoredConversation, StoredTurn
from rkllm_mcp.store.conversations import Conversations

# A write waits for another process at most half of it; what is left is a disk that does not answer.
SAVE_TIMEOUT_S = 10.0
# A stopped answer waits so long for its reader to take a line about it.
TELL_TIMEOUT_S = 1.0
_DAY_S = 86400.0
_NO_DISK = "the disk does not answer; look after it"
_NO_FILE = "what is remembered lasts until this run ends, because its file cannot be used"
_OTHERS = "[Memory: this conversation went on elsewhere too; all of it is kept, in the order in which answers ended]"


class Recorder:
    """Keeps the answers of one assistant.

    Args:
        conversations: where.
        tenant: whose.
        clock: the time, seconds since 1970.
    """

    def __init__(self, conversations: Conversations, tenant: str, clock: Callable[[], float] = time.time) -> None:
        self._conversations = conversations
        self._tenant = tenant
        self._clock = clock

    def kept(
        self,
        conversation: Conversation,
        words: str,
        secrets: Iterable[str],
        work: Callable[[EmitEvents], Awaitable[None]],
        words_of: Callable[[str], str] = str,
    ) -> Callable[[EmitEvents], Awaitable[None]]:
        """The same work, whose answer is kept however it ends.

        Args:
            conversation: what is answered.
            words: what was asked, for an answer that ends before the conversation has the question; empty where
                nobody knows.
            secrets: never kept.
            work: sends the events, an ``End`` last.
            words_of: what of an answer its reader got.
        """

        async def keep(emit: EmitEvents) -> None:
            keeper = _AnswerRecorder(self, conversation, words, tuple(secrets), emit, words_of, self._clock)
            await keeper.run(work)

        return keep

    async def save(self, conversation: Conversation) -> str:
        """Keep what is not kept yet; a line about what a person must know, empty where there is nothing."""
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
        """Forget what is kept no longer, now and once a day; runs until it is cancelled."""
        while True:
            try:
                await self._conversations.clean(self._tenant)
            except StoreError as error:
                if say is not None:
                    say(f"[Memory: old conversations could not be deleted: {error}]")
            await anyio.sleep(_DAY_S)


class _AnswerRecorder:
    """One answer on its way to the store and to its reader."""

    def __init__(
        self,
        keeping: Recorder,
        conversation: Conversation,
        words: str,
        secrets: Sequence[str],
        emit: EmitEvents,
        words_of: Callable[[str], str],
        clock: Callable[[], float],
    ) -> None:
        self._keeping = keeping
        self._conversation = conversation
        self._words = words
        self._secrets = secrets
        self._emit = emit
        self._words_of = words_of
        self._clock = clock
        self._asked_at = clock()
        self._before = len(_said(conversation.messages))
        self._is_over = False

    async def run(self, work: Callable[[EmitEvents], Awaitable[None]]) -> None:
        """Have it made, and keep it."""
        ending: Ending = "cancelled"
        try:
            await work(self._pass_on)
        except anyio.BrokenResourceError:
            raise  # the reader has left, which stops the answer
        except RkllmMcpError as error:
            await self._pass_on([End("failed", str(error), error)])
        except Exception:
            ending = "failed"
            raise
        finally:
            await self._finish(ending)

    async def _pass_on(self, events: Sequence[Event]) -> None:
        if isinstance(events[-1], End):
            await self._finish(events[-1].reason)
        await self._emit(events)

    async def _finish(self, ending: Ending) -> None:
        if self._is_over:
            return
        self._is_over = True
        said = _said(self._conversation.messages)[self._before :]
        turns = turns_of(said, self._words, ending, asked_at=self._asked_at, ended_at=self._clock())
        heard = (replace(turn, text=self._words_of(turn.text)) if turn.role == "assistant" else turn for turn in turns)
        self._conversation.unkept.extend(_discreet(turn, self._secrets) for turn in heard)
        line = await self._keeping.save(self._conversation)
        if not line:
            return
        with anyio.CancelScope() as telling, suppress(anyio.BrokenResourceError):
            if ending == "cancelled":
                # Whoever stopped it still listens; whoever left does not.
                telling.shield, telling.deadline = True, anyio.current_time() + TELL_TIMEOUT_S
            await self._emit([Status(line)])


def turns_of(
    said: Sequence[Message], words: str, ending: Ending, *, asked_at: float, ended_at: float
) -> list[StoredTurn]:
    """What is kept of one answer, its question first; nothing where nobody knows what was asked.

    Args:
        said: what the conversation has got by it: a question, rounds of the model and of tools, an answer. A server's
            prompt may bring turns of both sides before that.
        words: the question, where ``said`` does not have it because the answer ended before.
        ending: how it ended.
        asked_at: when the question came, seconds since 1970.
        ended_at: when the answer ended.
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
    """A kept conversation to go on with; the model reads it anew from its messages.

    A question whose answer has no words is not told to the model again; it stays kept.

    Args:
        kept: what was said.
        conversation: a new one, which becomes it.
    """
    conversation.id, conversation.calls_made = kept.id, kept.calls_made
    conversation.own_system, conversation.kept_turns = kept.system, len(kept.turns)
    messages = conversation.messages
    for turn in kept.turns:
        if turn.role == "user":
            messages.append(Message("user", turn.text, context=turn.context))
        elif turn.text.strip():
            is_cut = turn.ending == "token_limit"
            messages.append(Message("assistant", turn.text, thinking=turn.thinking, cut=is_cut))
        elif messages and messages[-1].role == "user":
            messages.pop()
    return conversation


def _said(messages: Sequence[Message]) -> list[Message]:
    """The messages without the system text, which may be written anew before the first question."""
    return [message for message in messages if message.role != "system"]


def _exchanges(said: Sequence[Message]) -> Iterator[tuple[Message | None, list[Message]]]:
    """Each question with the rounds of the model behind it; what a prompt has the model say first has no question."""
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
    """What the rounds came to: the words of the last one, or of all where it came to no end or said nothing."""
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
