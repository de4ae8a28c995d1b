"""Text to token ids and back, with one rule: foreign text never becomes a control token.

``Vocabulary`` wraps the model's own ``tokenizer.json`` (library: tokenizers). Its control tokens are the added tokens
that mark structure: every special one, and the others that are written as a tag (``<tool_call>``, ``[INST]``). Text
by a template's author may name them; text by a user, a tool or a server is encoded so that none of them comes out,
whatever is written there. It knows nothing of roles or templates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

# Added tokens that are neither special nor a tag, such as Gemma's runs of newlines, are ordinary text.
_TAG = re.compile(r"^[<\[{].+[>\]}]$", re.DOTALL)


@dataclass(frozen=True)
class Trusted:
    """Text by the author of a template: control tokens named in it are meant."""

    text: str


@dataclass(frozen=True)
class Foreign:
    """Text by a user, a tool or a server: everything in it is just text."""

    text: str


Segment = Trusted | Foreign


class Vocabulary:
    """A model's tokenizer.

    Args:
        tokenizer_json: the contents of the model's ``tokenizer.json``.

    Raises:
        ValueError: the text is not a tokenizer that the tokenizers library reads.
    """

    def __init__(self, tokenizer_json: str) -> None:
        try:
            self._tokenizer = Tokenizer.from_str(tokenizer_json)
        except Exception as error:  # noqa: BLE001  # the Rust library raises bare Exception
            raise ValueError(f"not a tokenizer.json: {error}") from None
        self._controls: dict[str, int] = {}
        self._special: set[int] = set()
        for token_id, added in self._tokenizer.get_added_tokens_decoder().items():
            if len(added.content) > 1 and (added.special or _TAG.match(added.content)):
                self._controls[added.content] = token_id
            if added.special:
                self._special.add(token_id)
        self._contents = {token_id: content for content, token_id in self._controls.items()}
        longest_first = sorted(self._controls, key=len, reverse=True)
        self._named = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    @property
    def size(self) -> int:
        """Number of ids, added tokens included."""
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def control_id(self, content: str) -> int | None:
        """The id of a control token such as ``<|im_end|>``, or None when this vocabulary has no such token."""
        return self._controls.get(content)

    def is_special(self, token_id: int) -> bool:
        """Whether the id is a special token, whose text is never part of an answer."""
        return token_id in self._special

    def encode(self, segments: Iterable[Segment]) -> list[int]:
        """Token ids of ``segments``, joined.

        Neighbouring text is joined before it is encoded, as in the family's own template, so the ids are those of the
        published rendering; only control tokens cut it.
        """
        ids: list[int] = []
        text = ""
        for segment in segments:
            if isinstance(segment, Foreign):
                text += segment.text
                continue
            for is_control, piece in self._named_controls(segment.text):
                if is_control:
                    ids += [*self._encode_foreign(text), self._controls[piece]]
                    text = ""
                else:
                    text += piece
        return ids + self._encode_foreign(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``, control tokens shown by name; a broken character shows as U+FFFD."""
        parts: list[str] = []
        pending: list[int] = []
        for token_id in ids:
            if token_id in self._contents:
                parts += [self._decode_plain(pending), self._contents[token_id]]
                pending = []
            else:
                pending.append(token_id)
        return "".join([*parts, self._decode_plain(pending)])

    def _decode_plain(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False) if ids else ""

    def _named_controls(self, text: str) -> Iterable[tuple[bool, str]]:
        """``text`` cut at the control tokens it names: pairs of (is a control token, piece)."""
        if self._named is None:
            yield False, text
            return
        end = 0
        for match in self._named.finditer(text):
            yield False, text[end : match.start()]
            yield True, match.group()
            end = match.end()
        yield False, text[end:]

    def _encode_foreign(self, text: str) -> list[int]:
        """Ids of text in which nothing is a control token."""
        ids: list[int] = []
        for piece in self._defused(text):
            piece_ids = self._encode_plain(piece)
            if self._contents.keys().isdisjoint(piece_ids):
                ids += piece_ids
            else:
                # A normalizer folded something into a control token (full-width letters, say). Alone, no character can.
                ids += [i for character in piece for i in self._encode_plain(character) if i not in self._contents]
        return ids

    def _defused(self, text: str) -> Iterable[str]:
        """``text`` in pieces, none with a control token's whole name: each name is cut after its first character."""
        start = 0
        position = 0
        while self._named is not None and (match := self._named.search(text, position)) is not None:
            yield text[start : match.start() + 1]
            start = position = match.start() + 1
        if start < len(text):
            yield text[start:]

    def _encode_plain(self, text: str) -> list[int]:
        # Half a surrogate pair, as broken JSON may bring it, has no UTF-8 and so no tokens.
        whole = text.encode("utf-8", "replace").decode("utf-8")
        return self._tokenizer.encode(whole, add_special_tokens=False).ids
