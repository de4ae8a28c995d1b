"""Which conversation a request goes on with, so that what the model said is never read again.

    messages of a request ─▶ the conversation that begins like them, branched off where they part ─▶ Branch

A program that sends everything with each request sends back, in its own words, what the model wrote. What the NPU holds
are the ids that the model wrote, and those are kept with the conversation. So a request is compared with what its
program has said and seen before, and takes the ids from there.

Rules: every request gets a conversation of its own, so no two answers ever share one, and an edit or a second answer to
the same question begins where it differs. When an answer is there it takes the place of what it grew from. Only the
same tenant with the same tools and the same model finds a conversation, and where there are too many, the tenant with
the most loses one. The last message is never taken from there: it is what is asked now. The threads know no model and
no protocol.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.protocols import StatefulModel


def evict_fairly(held: Sequence[tuple[str, int]]) -> int:
    """Which of the things that are held goes.

    Args:
        held: each thing's owner and how much room it takes, the one that was used last at the end; at least one.
    """
    room = Counter[str]()
    for owner, size in held:
        room[owner] += size
    most = max(room.values())
    return next(index for index, (owner, _) in enumerate(held) if room[owner] == most)


# There is a ledger for each (providers.rkllm); a conversation without its ids would be of little use.
THREADS_KEPT = 64
# A request may be megabytes long of which the model sees the end.
CHARACTERS_KEPT = 8_000_000

_Said = tuple[str, str, tuple[tuple[str, ...], ...]]


@dataclass(frozen=True)
class Owner:
    """Whose conversations these are, and what stands at their front.

    Args:
        model: who answers.
        tenant: who asks.
        tools: the program's own tools, or None where the host's are run inside.
    """

    model: StatefulModel
    tenant: str
    tools: tuple[ToolSpec, ...] | None


@dataclass(eq=False)
class CachedConversation:
    """A conversation for one request, grown as far as what is asked.

    Args:
        owner: whose.
        conversation: holds what the request says, the last message left out.
        said: what it holds, as its program says it; the last message is the last of them.
        ends: how many messages of the conversation there are behind each of them; none for the last.
        characters: about how much it keeps in memory, once it is kept.
    """

    owner: Owner
    conversation: Conversation
    said: list[_Said]
    ends: list[int]
    characters: int = 0


class ConversationCache:
    """What programs have said and seen.

    Args:
        kept: how many of the latest are kept.
        characters: how long all of them together may be.
    """

    def __init__(self, kept: int = THREADS_KEPT, characters: int = CHARACTERS_KEPT) -> None:
        self._kept = kept
        self._characters = characters
        self._threads: list[CachedConversation] = []  # the latest last

    def __len__(self) -> int:
        return len(self._threads)

    def branch(
        self,
        owner: Owner,
        messages: Sequence[Message],
        calls_made: int,
        new_conversation: Callable[[], Conversation] = Conversation,
    ) -> CachedConversation:
        """The conversation for a request. It is to be given back, to ``keep`` or to ``drop``.

        Args:
            owner: whose.
            messages: what the request says; the last is what is asked, and is left to whoever asks it.
            calls_made: the greatest number of a call in it.
            new_conversation: makes one that nothing was said in yet.
        """
        said = [_said(message) for message in messages]
        parent, shared = self._closest(owner, said[:-1])
        branch = CachedConversation(owner, self._begun(parent, shared, new_conversation), said, [])
        conversation = branch.conversation
        conversation.tenant = owner.tenant
        conversation.calls_made = max(conversation.calls_made, calls_made)
        branch.ends += parent.ends[:shared] if parent else []
        for message in messages[shared:-1]:
            if message.role == "system":
                # A request's own system text takes the place of the one that a new conversation has.
                conversation.messages[:] = [m for m in conversation.messages if m.role != "system"]
            conversation.add(message)
            branch.ends.append(len(conversation.messages))
        return branch

    def keep(self, branch: CachedConversation, answer: Message, *, asked_at: int) -> None:
        """The answer is there, and its program has seen it.

        Args:
            branch: what ``branch`` gave.
            answer: the answer as its program sees it.
            asked_at: how many messages of the conversation there are up to what was asked, that one included.
        """
        branch.said.append(_said(answer))
        branch.ends += [asked_at, len(branch.conversation.messages)]
        for thread in [thread for thread in self._threads if _is_held_by(thread, branch)]:
            self._remove(thread)
        branch.characters = sum(map(_length, branch.said))
        self._threads.append(branch)
        while len(self._threads) > self._kept:
            self._drop_one([1] * len(self._threads))
        while sum(sizes := [each.characters for each in self._threads]) > self._characters:
            self._drop_one(sizes)

    def drop(self, branch: CachedConversation) -> None:
        """There is no answer that anybody would go on with."""
        branch.owner.model.forget(branch.conversation.id)

    def _begun(self, parent: CachedConversation | None, shared: int, new: Callable[[], Conversation]) -> Conversation:
        if parent is None:
            return new()
        past = parent.conversation
        conversation = Conversation(
            messages=past.messages[: parent.ends[shared - 1]],
            calls_made=past.calls_made,
            listed_tools=past.listed_tools,
            told_tools=dict(past.told_tools),
            own_system=past.own_system,
        )
        parent.owner.model.branch(past.id, conversation.id)
        # Whoever is asked of again is not the first to go.
        self._threads.remove(parent)
        self._threads.append(parent)
        return conversation

    def _closest(self, owner: Owner, said: Sequence[_Said]) -> tuple[CachedConversation | None, int]:
        """The thread that begins most like ``said``, and how much of that it holds; the latest of several."""
        best, most = None, 0
        for thread in self._threads:
            if thread.owner == owner and (shared := _shared(thread.said, said)) and shared >= most:
                best, most = thread, shared
        return best, most

    def _drop_one(self, sizes: Sequence[int]) -> None:
        owners = (each.owner.tenant for each in self._threads)
        self._remove(self._threads[evict_fairly(list(zip(owners, sizes, strict=True)))])

    def _remove(self, thread: CachedConversation) -> None:
        self._threads.remove(thread)
        thread.owner.model.forget(thread.conversation.id)


def _is_held_by(thread: CachedConversation, branch: CachedConversation) -> bool:
    return thread.owner == branch.owner and thread.said == branch.said[: len(thread.said)]


def _shared(left: Sequence[_Said], right: Sequence[_Said]) -> int:
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))


def _length(said: _Said) -> int:
    _, text, inner = said
    return len(text) + sum(len(part) for parts in inner for part in parts)


def _said(message: Message) -> _Said:
    """A message as two programs that mean the same would say it."""
    if message.role == "assistant":
        # Programs strip what they show, and write JSON in their own way.
        calls = ((call.id, call.name, json.dumps(dict(call.arguments), sort_keys=True)) for call in message.calls)
        return (message.role, message.text.strip(), tuple(calls))
    results = tuple((result.call_id, result.text) for result in message.results)
    return (message.role, f"{message.context}\n{message.text}", results)
