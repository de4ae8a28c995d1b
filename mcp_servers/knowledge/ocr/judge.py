"""The places that the rules cannot be sure of -> a question to a language model, and what counts of its answer.

The model sees short excerpts with the marks as they were read, one a line, and writes them again. A line of the answer
counts when it differs from its excerpt at the open places alone, and there only in one character: ー, a dash, or a
katakana (キャリ- may have been キャリア). Every other line is discarded, so that a model can put a guess right and
cannot harm a text, whatever it says and whatever the text tells it to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import anyio
import httpx2

from mcp_servers.knowledge.embedding.remote import ModelAddress
from mcp_servers.knowledge.errors import ModelServiceUnavailableError
from mcp_servers.knowledge.ocr.lexicon import HALF_LONG, LONG, ONE, is_dash, long_mark

INSTRUCTIONS = (
    "次の各行はOCRで読み取ったテキストです。カタカナの長音符（ー）がハイフンや漢数字の一に誤認識されている箇所を、"
    "文脈から判断して長音符（ー）に直してください。語と語をつなぐハイフン、型番、番号はそのまま残してください。"
    "ほかの文字は一切変えず、行の数と順序を保ち、直した行だけを出力してください。説明は不要です。"
)
_CONTEXT = 30
# A model is asked about this many places at most; one answer is what somebody waits for.
_MAX_PLACES = 40
_NUMBERING = re.compile(r"\s*(?:[-*•]\s+|\d+[.):：．]\s*)")
_KATAKANA = re.compile("[ァ-ヴｦ-ﾟ]")


class Judge(Protocol):
    """A language model that can be asked."""

    async def answer(self, instructions: str, text: str) -> str:
        """What the model makes of a text.

        Args:
            instructions: what to do, for the system's part of a prompt.
            text: what to do it with, for the user's part.

        Raises:
            ModelServiceUnavailableError: the model cannot be asked.
        """
        ...


@dataclass(frozen=True)
class Excerpt:
    """A piece of one line of a text, with places to judge.

    Args:
        start: where it begins in the text.
        text: as it was read, but corrected where the rules are sure.
        places: positions in the text.
    """

    start: int
    text: str
    places: tuple[int, ...]


def excerpts(text: str, places: Sequence[int]) -> list[Excerpt]:
    """What the model has to see of a text to judge some of its places; those near each other are seen together."""
    found: list[Excerpt] = []
    for place in places[:_MAX_PLACES]:
        start = max(text.rfind("\n", 0, place) + 1, place - _CONTEXT)
        line_end = text.find("\n", place)
        end = min(len(text) if line_end < 0 else line_end, place + 1 + _CONTEXT)
        last = found[-1] if found else None
        if last is not None and start < last.start + len(last.text):
            found[-1] = Excerpt(last.start, text[last.start : end], (*last.places, place))
        else:
            found.append(Excerpt(start, text[start:end], (place,)))
    return found


def parse_answer(asked: Sequence[Excerpt], answer: str) -> Mapping[int, str]:
    """What a model's answer says of each place it was asked about: the character to stand there.

    Args:
        asked: the excerpts, one a line of the question.
        answer: the model's words. Lines that are none of the excerpts, corrected, count for nothing.
    """
    lines = answer.splitlines()
    found: dict[int, str] = {}
    for excerpt in asked:
        for number, line in enumerate(lines):
            judged = _judge_line(excerpt, line)
            if judged is not None:
                found |= judged
                # In their order, because two excerpts may read the same.
                lines = lines[number + 1 :]
                break
    return found


def _judge_line(excerpt: Excerpt, line: str) -> Mapping[int, str] | None:
    """The characters of a line at the excerpt's places; nothing when it is not that excerpt."""
    for candidate in _variants(line):
        if len(candidate) != len(excerpt.text):
            continue
        pairs = zip(excerpt.text, candidate, strict=True)
        changed = {excerpt.start + at for at, (before, after) in enumerate(pairs) if before != after}
        if changed <= set(excerpt.places):
            judged = {place: candidate[place - excerpt.start] for place in excerpt.places}
            return {place: _replacement(excerpt, place, to) for place, to in judged.items() if _is_possible(to)}
    return None


def _variants(line: str) -> Iterable[str]:
    """A line as it is, and without what models put around one: spaces, numbers, quotation marks."""
    yield line
    yield line.strip()
    bare = _NUMBERING.sub("", line, count=1).strip()
    yield bare
    yield bare.strip("「」\"'`")


def _is_possible(character: str) -> bool:
    is_long = character in {LONG, HALF_LONG}
    return is_long or character == ONE or is_dash(character) or _KATAKANA.match(character) is not None


def _replacement(excerpt: Excerpt, place: int, character: str) -> str:
    """What is to stand at a place: ー in the width of its neighbour; the mark as it was for any dash."""
    at = place - excerpt.start
    if character in {LONG, HALF_LONG}:
        return long_mark(excerpt.text[at - 1])
    return excerpt.text[at] if is_dash(character) or character == ONE else character


_OK = 200
_CONNECT_TIMEOUT_S = 3.0
_CLOSE_S = 1.0
# What a model says around the lines that it was asked for, in tokens; a token of Japanese is hardly longer than a
# character, so the answer itself needs no more tokens than the question has characters.
_EXTRA_TOKENS = 64


@dataclass(frozen=True)
class ChatJudge:
    """A language model at an address.

    Args:
        address: http or https, up to where ``/chat/completions`` follows; and for how long to wait.
    """

    address: ModelAddress

    async def answer(self, instructions: str, text: str) -> str:
        """What the model makes of a text; the same every time, as far as the service allows.

        Raises:
            ModelServiceUnavailableError: the service does not answer in time, refuses, or answers something else.
        """
        messages = [{"role": "system", "content": instructions}, {"role": "user", "content": text}]
        most = len(text) + _EXTRA_TOKENS
        body = {"model": self.address.model, "messages": messages, "temperature": 0, "max_tokens": most}
        try:
            with anyio.fail_after(self.address.timeout_s):
                return _content(await self._post(body))
        except TimeoutError as error:
            raise ModelServiceUnavailableError(f"no answer in {self.address.timeout_s:g} s") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise ModelServiceUnavailableError(str(error) or type(error).__name__) from error

    async def _post(self, body: dict[str, Any]) -> httpx2.Response:
        key = self.address.key
        client = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx2.Timeout(self.address.timeout_s, connect=_CONNECT_TIMEOUT_S),
        )
        try:
            return await client.post(self.address.url.rstrip("/") + "/chat/completions", json=body)
        finally:
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await client.aclose()


def _content(response: httpx2.Response) -> str:
    if response.status_code != _OK:
        raise ModelServiceUnavailableError(f"HTTP {response.status_code}")
    try:
        content: object = response.json()["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError) as error:
        raise ModelServiceUnavailableError("its answer is no chat completion") from error
    if not isinstance(content, str):
        raise ModelServiceUnavailableError("its answer has no text")
    return content
