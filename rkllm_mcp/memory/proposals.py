"""Sentences of a person that the model on the NPU finds worth remembering, which it is asked about while it is idle.

    question that a person typed ─▶ what it tells ─▶ answer ─▶ idle ─▶ the topic of each ─▶ proposed row

* A row is a sentence, or the part of one before a question, that the person typed to this process, and nothing else.
  So nothing that a tool, document, picture or imported conversation says, and nothing that the model invents, becomes
  a row: of the model there is one word.
* A request continues the prompt that is in the KV cache, as that for a title does; see ``app.idle_requests``.
* A proposed row is in no prompt until the person keeps it, and a sentence is asked about once.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from rkllm_mcp.agent.usage import UsageCounter
from rkllm_mcp.conversations.titles import strip_decoration
from rkllm_mcp.errors import UsageError
from rkllm_mcp.memory.statements import is_said, is_secret, told_in
from rkllm_mcp.messages import Conversation
from rkllm_mcp.protocols import AskAside
from rkllm_mcp.store.memories import Memories
from rkllm_mcp.text import language_of_text, without_files

logger = logging.getLogger(__name__)

# Proposals that wait for the person's yes in all.
MOST_WAITING = 10
# Models of 1.5B say yes to every "Is this a lasting fact about me?", or to none, and name topics well, in English best.
# The last words are the commonest answers where nothing fits, and the first ones keep such answers from the others.
REQUEST = (
    "“{text}” - what is this sentence about? Answer with one of these words: weather, task, problem, plan, name, pet, "
    "family, home, job, health, food, hobby, likes."
)
_LASTING = re.compile(r"(?:name|pet|family|home|job|health|food|hobby|likes)\b", re.IGNORECASE)
# A request has about 60 tokens, more in vocabularies that spell Japanese out. The rest of the prompt after the KV
# cache comes on top; a longer rest means that another prompt is in the cache.
MOST_PREFILLED = 224
MOST_GENERATED = 4
# Conversations whose sentences are noted, and sentences of each that the model has not been asked about.
_MOST_CONVERSATIONS, _MOST_SENTENCES = 50, 6


@dataclass(eq=False)
class Proposals:
    """Proposes rows for one person's memory.

    Args:
        memories: the store.
        usage: counts the tokens of the requests.
        is_on: returns True if the person wants proposals.
    """

    memories: Memories
    usage: UsageCounter
    is_on: Callable[[], bool]
    # What was told and not asked about yet, by conversation.
    _told: OrderedDict[str, list[str]] = field(default_factory=OrderedDict[str, list[str]], init=False)
    # What was noted by this process, in lower case.
    _noted: set[str] = field(default_factory=set[str], init=False)

    def note(self, conversation: Conversation, question: str) -> None:
        """Note what a person's question tells; pasted material and secrets are left out."""
        if not self.is_on() or without_files(question) != question or is_secret(question):
            return
        told = self._told.setdefault(conversation.id, [])
        for text in told_in(question):
            if text.casefold() not in self._noted:
                self._noted.add(text.casefold())
                told.append(text)
        del told[:-_MOST_SENTENCES]
        if len(self._told) > _MOST_CONVERSATIONS:
            self._told.popitem(last=False)

    async def propose(self, conversation: Conversation, ask: AskAside) -> None:
        """Ask about each sentence that is new, and store those with a topic that lasts."""
        told = self._told.get(conversation.id, [])
        while told and self.is_on():
            text = told[0]
            rows = await self.memories.all()
            if sum(row.state == "proposed" for row in rows) >= MOST_WAITING:
                return
            if not any(is_said(text, row.text) for row in rows):
                request = REQUEST.format(text=text)
                turn = await ask(
                    conversation,
                    request,
                    MOST_GENERATED,
                    MOST_PREFILLED,
                    self.usage.add_round,
                )
                if turn is None:
                    return
                if not turn.calls and not turn.failures and _LASTING.match(strip_decoration(turn.message.text)):
                    try:
                        await self.memories.add(text, language_of_text(text), source=conversation.id, state="proposed")
                    except UsageError as error:
                        logger.info("nothing is proposed: %s", error)
            # Meanwhile a question may have made room for its own.
            if text in told:
                told.remove(text)
