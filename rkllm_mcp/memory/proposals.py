"""Facts that the model on the NPU proposes to remember, which it looks for in a conversation while it is idle.

    question that a person typed ─▶ noted ─▶ answer ─▶ idle ─▶ request for facts ─▶ only what was said ─▶ proposed row

* The request continues the prompt that is in the KV cache, as that for a title does; see ``app.idle_requests``.
* A fact counts only if each of its own words is in one message that the person typed to this process. So nothing that a
  tool, document, picture or imported conversation says, and nothing that the model invents, becomes a row.
* A proposed row is in no prompt until the person keeps it, and one that was removed is not proposed again.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence

from rkllm_base.own_words import own_words
from rkllm_mcp.agent.usage import UsageCounter
from rkllm_mcp.catalogue import translate
from rkllm_mcp.conversations.titles import strip_decoration
from rkllm_mcp.errors import UsageError
from rkllm_mcp.events import Usage
from rkllm_mcp.memory.statements import is_fact, is_said, is_secret, is_typed, row_text
from rkllm_mcp.messages import Conversation
from rkllm_mcp.protocols import AsideModel
from rkllm_mcp.store.memories import Memories
from rkllm_mcp.text import language_of_text, without_files

logger = logging.getLogger(__name__)

# Of one request, and waiting for the person's yes in all.
MOST_FACTS = 3
MOST_WAITING = 10
# The request has about 50 tokens, more in vocabularies that spell Japanese out. What is left of the prompt after the KV
# cache comes on top; a longer rest means that another prompt is in the cache.
MOST_PREFILLED = 192
MOST_GENERATED = 96
# Conversations whose messages are noted, and messages of each.
_MOST_CONVERSATIONS, _MOST_MESSAGES = 50, 20

# The model speaks of the person in the third person, or of itself.
_OTHER_PERSON = re.compile(r"\b(?:you|your|yours|user|user's|assistant)\b|あなた|ユーザー|利用者", re.IGNORECASE)
_NEGATION = re.compile(
    r"\b(?:not|never|no|none|nothing|without|cannot)\b|n't\b|ない|なかった|なく|ません|ず[、に]", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"[.!?。！？\n]+")


def facts_in(answer: str, said: Sequence[str], *, is_cut: bool = False) -> list[str]:
    """Return the facts in a model's answer that one of the person's messages says, at most ``MOST_FACTS``.

    Args:
        answer: the text of the answer, without thinking.
        said: the messages that the person typed.
        is_cut: the token limit ended the answer, so its last line is not complete.
    """
    lines = answer.strip().splitlines()
    facts: dict[str, str] = {}
    for line in lines[:-1] if is_cut else lines:
        fact = strip_decoration(line)
        is_row = row_text(fact) == fact and is_fact(fact) and not is_secret(fact) and not _OTHER_PERSON.search(fact)
        if is_row and any(is_said(fact, message) and not _denies(message, fact) for message in said):
            facts.setdefault(fact.casefold(), fact)
    return list(facts.values())[:MOST_FACTS]


def _denies(message: str, fact: str) -> bool:
    """Return True if a sentence about the fact's words has a negation that the fact lacks."""
    if _NEGATION.search(fact):
        return False
    words, _ = own_words(fact)
    sentences = filter(_NEGATION.search, _SENTENCE_END.split(message))
    return any(word in sentence.casefold() for sentence in sentences for word in words)


class Proposals:
    """Proposes rows for one person's memory.

    Args:
        memories: the store.
        usage: counts the tokens of the requests.
        is_on: returns True if the person wants proposals.
    """

    def __init__(self, memories: Memories, usage: UsageCounter, is_on: Callable[[], bool]) -> None:
        self._memories = memories
        self._usage = usage
        self._is_on = is_on
        # What was typed, by conversation, and the conversations in which something is new.
        self._said: OrderedDict[str, list[str]] = OrderedDict()
        self._new: set[str] = set()
        # What was proposed by this process, in lower case.
        self._proposed: set[str] = set()

    def note(self, conversation: Conversation, question: str) -> None:
        """Note what a person typed as a question; pasted material and secrets are left out."""
        if not self._is_on() or not is_typed(question) or without_files(question) != question or is_secret(question):
            return
        messages = self._said.setdefault(conversation.id, [])
        messages.append(question.replace("’", "'"))
        del messages[:-_MOST_MESSAGES]
        self._new.add(conversation.id)
        if len(self._said) > _MOST_CONVERSATIONS:
            self._new.discard(self._said.popitem(last=False)[0])

    async def propose(self, conversation: Conversation, model: AsideModel) -> None:
        """Ask for facts that are new, and store those that were said."""
        messages = self._said.get(conversation.id, [])
        if not self._is_on() or conversation.id not in self._new:
            return
        rows = await self._memories.all()
        if sum(row.state == "proposed" for row in rows) >= MOST_WAITING:
            return
        request = translate("model.proposals", language_of_text(messages[-1]))
        turn = await model.aside(conversation, request, MOST_GENERATED, MOST_PREFILLED, self._add_usage)
        if turn is None:
            return
        self._new.discard(conversation.id)
        if turn.calls or turn.failures:
            return
        for fact in facts_in(turn.message.text, messages, is_cut=turn.is_cut):
            if fact.casefold() in self._proposed or any(is_said(fact, row.text) for row in rows):
                continue
            self._proposed.add(fact.casefold())
            try:
                await self._memories.add(fact, language_of_text(fact), source=conversation.id, state="proposed")
            except UsageError as error:
                logger.info("nothing is proposed: %s", error)
                return

    def _add_usage(self, usage: Usage) -> None:
        self._usage.add(usage.prefilled_tokens + usage.generated_tokens)
