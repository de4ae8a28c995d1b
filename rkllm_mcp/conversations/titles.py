"""Short titles of saved conversations, which the model on the NPU writes while it is idle.

    first answer is saved ─▶ nothing runs for IDLE_S ─▶ request after the conversation's prompt ─▶ clean ─▶ store

* The request continues the prompt that is in the KV cache, so its own tokens alone are prefilled. Neither it nor its
  answer becomes part of the conversation, whose next question finds the prompt in the cache as before.
* Whatever else is asked of the NPU ends the request at once; see ``app.idle_requests``. After the next answer there is
  another attempt, and ``MOST_ATTEMPTS`` of them in all.
* If the answer is not a title, or if the conversation was renamed meanwhile, its title stays.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, field

from rkllm_base.ranges import HIRAGANA, KANJI, KATAKANA
from rkllm_mcp.agent.usage import UsageCounter
from rkllm_mcp.catalogue import translate
from rkllm_mcp.messages import Conversation
from rkllm_mcp.protocols import AskAside
from rkllm_mcp.store.conversations import Conversations, title_of
from rkllm_mcp.text import collapse_whitespace, language_of_text

MOST_ATTEMPTS = 2
# The request has about 25 tokens, more in vocabularies that spell Japanese out. What is left of the prompt after the
# KV cache comes on top; a longer rest means that another prompt is in the cache.
MOST_PREFILLED = 96
MOST_GENERATED = 32
# The model is asked for 6 words or 20 characters; a little more is still a title.
MOST_WORDS = 8
# Of which a Japanese character takes two.
MOST_JAPANESE_COLUMNS = 50
_MOST_CHARS = 60
# An answer that is a name of at most this many characters may be the title as well.
_LONGEST_NAME = 12
# Conversations whose title may still be written; of an older one it stays.
_MOST_PENDING = 200

_JAPANESE = re.compile(f"[{HIRAGANA}{KATAKANA}{KANJI}]")
_KANJI = re.compile(f"[{KANJI}]")
_LABEL = re.compile(
    r"^(?:(?:the |conversation |chat |short |suggested )*title|タイトル|題名|表題)\s*(?:is\b|は|[:：])\s*",
    re.IGNORECASE,
)
# Marks of headings and lists before a title, and of emphasis and quotes around it.
_LEADING = re.compile(r"^(?:#+|[-*+•]|\d+[.)])\s+")
_EMPHASIS = " \t*_`~|"
_QUOTES = ('""', "''", "“”", "‘’", "「」", "『』", "《》", "【】", "«»")
# Text of a call, a control token, a program or a letter, and the end of half a sentence.
_NO_TITLE = re.compile(r"[{}<>\\\[\]]|https?://|tool_call|[:：,、;；]$")
# The beginning of an answer to the request instead of a title, or of a refusal.
_TALK = re.compile(
    r"^(?:sure\b|certainly\b|of course\b|here(?:'s| is| are)\b|i(?:'m| am| can| cannot|'d| would| will|'ll| do)\b"
    r"|sorry\b|as an ai\b|please\b|you can\b|はい|もちろん|申し訳|すみません|承知|以下)",
    re.IGNORECASE,
)


def cleaned_title(answer: str, question: str, said: str = "", *, is_cut: bool = False) -> str:
    """Return the title in a model's answer without its decoration; empty if none exists.

    Args:
        answer: the text of the answer, without thinking.
        question: the first question of the conversation, in whose language the title has to be.
        said: what the model has said before, which the smallest models say again instead of a title.
        is_cut: the token limit ended the answer, so its last line is not complete.
    """
    lines = [undecorated for line in answer.strip().splitlines() if (undecorated := strip_decoration(line))]
    if is_cut and len(answer.strip().splitlines()) < 2:
        return ""
    # "Here is a title:" and the title below
    while len(lines) > 1 and lines[0].endswith((":", "：")):
        del lines[0]
    title = lines[0] if lines else ""
    japanese = len(_JAPANESE.findall(title))
    is_short = len(title) + japanese <= (MOST_JAPANESE_COLUMNS if japanese else _MOST_CHARS)
    if not is_short or len(title.split()) > MOST_WORDS or not any(map(str.isalnum, title)):
        return ""
    if _NO_TITLE.search(title) or _TALK.match(title):
        return ""
    if len(title) > _LONGEST_NAME and collapse_whitespace(said).casefold().startswith(title.casefold()):
        return ""
    # A name in another script than the question is one that the question has.
    if bool(_JAPANESE.search(title)) != bool(_JAPANESE.search(question)):
        return title if title.casefold() in question.casefold() else ""
    # Models from China write simplified characters into Japanese, which its encodings lack.
    new = "".join(character for character in _KANJI.findall(title) if character not in question)
    is_readable = language_of_text(question) != "ja" or new.encode("cp932", "ignore").decode("cp932") == new
    return title if is_readable else ""


def strip_decoration(line: str) -> str:
    """Return a line without label, markup, quotes and full stop."""
    text = collapse_whitespace(line)
    before = None
    while text != before:
        before = text
        text = _LABEL.sub("", _LEADING.sub("", text)).strip(_EMPHASIS)
        for opening, closing in _QUOTES:
            if len(text) > 1 and text.startswith(opening) and text.endswith(closing):
                text = text[1:-1].strip()
        text = text.rstrip("。．").removesuffix("...").removesuffix("…")
        # The full stop of an abbreviation such as "U.S." stays.
        text = re.sub(r"(?<=[^\W\d_]{2})\.$|(?<=\d)\.$", "", text)
    return text


@dataclass(eq=False)
class Titles:
    """Writes the titles of one assistant's conversations.

    Args:
        conversations: the store.
        tenant: the tenant's name; empty for the owner.
        usage: counts the tokens of the requests.
        is_on: titles are wanted.
    """

    conversations: Conversations
    tenant: str
    usage: UsageCounter
    is_on: bool = field(kw_only=True)
    # Attempts that are left, by conversation.
    _attempts: OrderedDict[str, int] = field(default_factory=OrderedDict[str, int], init=False)

    def begin(self, conversation: Conversation) -> None:
        """Note a conversation that is being saved for the first time."""
        self._attempts[conversation.id] = MOST_ATTEMPTS
        if len(self._attempts) > _MOST_PENDING:
            self._attempts.popitem(last=False)

    async def write(self, conversation: Conversation, ask: AskAside) -> None:
        """Write the title of a conversation that needs one."""
        remaining = self._attempts.pop(conversation.id, 0) - 1
        if remaining < 0 or not self.is_on:
            return
        question = next((message.text for message in conversation.messages if message.role == "user"), "")
        first_words = title_of(question)
        summaries = await self.conversations.matching(self.tenant, conversation.id, 1)
        if not summaries or summaries[0].id != conversation.id or summaries[0].title != first_words:
            return
        request = translate("model.title", language_of_text(question))
        turn = await ask(
            conversation,
            request,
            MOST_GENERATED,
            MOST_PREFILLED,
            self.usage.add_round,
        )
        title = ""
        if turn is not None and not turn.calls and not turn.failures:
            title = cleaned_title(turn.message.text, question, conversation.messages[-1].text, is_cut=turn.message.cut)
        # The smallest models repeat what they are asked.
        if title and title not in request:
            await self.conversations.change(self.tenant, conversation.id, {"title": title}, instead_of=first_words)
        elif remaining:
            self._attempts[conversation.id] = remaining
