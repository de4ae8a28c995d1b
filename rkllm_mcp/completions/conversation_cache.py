"""``ConversationCache``: continue a stored conversation for a request that contains the whole history.

    messages of a request ─▶ stored conversation with the longest common beginning ─▶ CachedConversation

A client sends the earlier answers back in its own spelling; the KV cache of the NPU holds the generated ids, which are
stored with the conversation. A request is compared with the earlier requests and answers, and takes the ids from them.

Every request gets its own conversation, copied up to the first difference, so that no two answers share one. A
complete answer replaces the conversation that it continues. A conversation is found only by the same tenant with the
same tools and model; if there are too many, the tenant with the most loses one. The last message of a request is never
taken from the cache.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.protocols import StatefulModel


def evict_fairly(owned_sizes: Sequence[tuple[str, int]]) -> int:
    """Return the index of the item to evict: the least recently used one of the owner with the most.

    ``owned_sizes`` has owner and size of each item, the most recently used last.
    """
    room = Counter[str]()
    for owner, size in owned_sizes:
        room[owner] += size
    most = max(room.values())
    return next(index for index, (owner, _) in enumerate(owned_sizes) if room[owner] == most)


# Each needs a token ledger (providers.rkllm), without which a cached conversation would be of little use.
THREADS_KEPT = 64
# A request may be megabytes long although the model gets its end only.
CHARACTERS_KEPT = 8_000_000

_Said = tuple[str, str, tuple[tuple[str, ...], ...]]


@dataclass(frozen=True)
class Owner:
    """Everything that two requests must have in common to share a conversation."""

    model: StatefulModel
    tenant: str
    tools: tuple[ToolSpec, ...] | None  # the client's tools; None for the host's


@dataclass(eq=False)
class CachedConversation:
    """The conversation of one request."""

    owner: Owner
    conversation: Conversation  # without the last message of the request until that is answered
    said: list[_Said]  # the client's messages in a comparable form
    ends: list[int]  # length of the conversation after each of them, except the last
    characters: int = 0  # approximate memory once stored


@dataclass(eq=False)
class ConversationCache:
    """The latest conversations of clients: at most ``most_threads``, with ``characters`` in total."""

    most_threads: int = THREADS_KEPT
    characters: int = CHARACTERS_KEPT
    _threads: list[CachedConversation] = field(default_factory=list[CachedConversation], init=False)  # latest used last

    def __len__(self) -> int:
        return len(self._threads)

    def branch(
        self,
        owner: Owner,
        messages: Sequence[Message],
        calls_made: int,
        new_conversation: Callable[[], Conversation] = Conversation,
    ) -> CachedConversation:
        """Return the conversation for a request, which the caller must pass to ``keep`` or ``drop``.

        The last of the messages is not added. ``calls_made`` is the greatest call number in the request.
        """
        comparable = [_comparable(message) for message in messages]
        # The parent has the longest common beginning, and is the latest of several.
        earlier, parent, shared = comparable[:-1], None, 0
        for thread in self._threads:
            alike = takewhile(lambda pair: pair[0] == pair[1], zip(thread.said, earlier, strict=False))
            count = sum(1 for _ in alike) if thread.owner == owner else 0
            if count and count >= shared:
                parent, shared = thread, count
        if parent is None:
            conversation = new_conversation()
        else:
            past = parent.conversation
            conversation = Conversation(
                messages=past.messages[: parent.ends[shared - 1]],
                calls_made=past.calls_made,
                listed_tools=past.listed_tools,
                revealed_tools=dict(past.revealed_tools),
                own_system=past.own_system,
            )
            owner.model.branch(past.id, conversation.id)
            # The parent is now the most recently used one.
            self._threads.remove(parent)
            self._threads.append(parent)
        branch = CachedConversation(owner, conversation, comparable, [])
        conversation.tenant = owner.tenant
        conversation.calls_made = max(conversation.calls_made, calls_made)
        branch.ends += parent.ends[:shared] if parent else []
        for message in messages[shared:-1]:
            if message.role == "system":
                # The request's system text replaces that of a new conversation.
                conversation.messages[:] = [m for m in conversation.messages if m.role != "system"]
            conversation.add(message)
            branch.ends.append(len(conversation.messages))
        return branch

    def keep(self, branch: CachedConversation, answer: Message, *, asked_at: int) -> None:
        """Store the conversation of a complete answer; ``asked_at`` is its number of messages up to the question."""
        branch.said.append(_comparable(answer))
        branch.ends += [asked_at, len(branch.conversation.messages)]
        for thread in tuple(self._threads):
            if thread.owner == branch.owner and thread.said == branch.said[: len(thread.said)]:
                self._remove(thread)
        branch.characters = 0
        for _, text, inner in branch.said:
            branch.characters += len(text) + sum(len(part) for parts in inner for part in parts)
        self._threads.append(branch)
        while True:
            sizes = [thread.characters for thread in self._threads]
            if len(sizes) > self.most_threads:
                sizes = [1] * len(sizes)
            elif sum(sizes) <= self.characters:
                break
            owners = (thread.owner.tenant for thread in self._threads)
            self._remove(self._threads[evict_fairly(list(zip(owners, sizes, strict=True)))])

    def forget_text(self, tenant: str, text: str) -> None:
        """Discard the conversations of a tenant that contain a text; their next requests are read as they are sent."""
        for thread in tuple(self._threads):
            messages = thread.conversation.messages
            if thread.owner.tenant == tenant and any(text in part.context or text in part.text for part in messages):
                self._remove(thread)

    def drop(self, branch: CachedConversation) -> None:
        """Discard the conversation of an incomplete answer."""
        branch.owner.model.forget(branch.conversation.id)

    def _remove(self, thread: CachedConversation) -> None:
        self._threads.remove(thread)
        thread.owner.model.forget(thread.conversation.id)


def _comparable(message: Message) -> _Said:
    """Return a message in a form that is equal for clients with different spelling."""
    if message.role == "assistant":
        # Clients strip text and format JSON differently.
        calls = ((call.id, call.name, json.dumps(dict(call.arguments), sort_keys=True)) for call in message.calls)
        return (message.role, message.text.strip(), tuple(calls))
    results = tuple((result.call_id, result.text) for result in message.results)
    return (message.role, f"{message.context}\n{message.text}", results)
