"""Text to token ids and back: untrusted text never becomes a control token, and no token is added.

``ModelTokenizer`` wraps the model's ``tokenizer.json`` (library: tokenizers). Control tokens are the added tokens that
mark structure: every special one, and the others written as a tag (``<tool_call>``, ``[INST]``). Text of a template may
name them; text of a user, a tool or a server is encoded so that none results. The leading space of
SentencePiece-like tokenizers, tokens added by a post-processor and a length limit are switched off, because a prompt
consists of many pieces and each would get them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers

# Keys of the lists of a sequence in the library's JSON.
_PARTS = ("normalizers", "pretokenizers", "decoders")
# Parts of a tokenizer, and what each of them is without effect.
_COMPONENTS: Mapping[str, Callable[..., Any]] = {
    "normalizer": normalizers.Sequence,
    "pre_tokenizer": pre_tokenizers.Sequence,
    "decoder": decoders.Sequence,
}


def _without_prefix(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a component's state without parts that add or strip a leading space; empty if nothing remains."""
    changed = dict(state)
    kind = state.get("type")
    if kind == "Prepend":
        return {}
    if kind == "Metaspace":
        changed["prepend_scheme"] = "never"
    elif kind == "ByteLevel":
        changed["add_prefix_space"] = False
    elif kind == "Strip" and state.get("content") == " ":
        changed["start"] = 0
    for parts in _PARTS:
        if parts in state:
            changed[parts] = [inner for part in state[parts] if (inner := _without_prefix(part))]
    return changed


# Added tokens that are neither special nor a tag, such as Gemma's runs of newlines, are ordinary text.
# SentencePiece's sign for a space may precede a tag (Code Llama's fill-in marks).
_TAG = re.compile(r"^\u2581?[<\[{].+[>\]}]$", re.DOTALL)
_NEVER = "(?!)"
# A character of no script: its ids are those of any text outside the vocabulary.
_UNHEARD_OF = "\U0010fffd"
_ZERO_WIDTH = "\u200b"
# Longer texts are encoded as a batch of one: for batches the library releases the GIL.
_LONG_CHARS = 10_000
# Encoding takes up to 400 bytes of memory for each character until it is done, so long text is encoded in pieces of at
# most this many characters.
PIECE_CHARS = 32_768
# Where a piece may end: no token of a published vocabulary goes on after a letter with these. Looked for in the last
# characters of a piece.
_CUT = re.compile(r"(?<=[^\W\d_])(?=[ \n.,、。](?:[^\W_]|$))")
_CUT_CHARS = 2_048


def pieces_of(text: str) -> Iterable[str]:
    """Yield ``text`` in pieces of at most ``PIECE_CHARS``, whose tokens are those of the whole text.

    Text without letters next to spaces or punctuation for thousands of characters is cut anywhere, which may cost a
    token or two at the cut.
    """
    start = 0
    while len(text) - start > PIECE_CHARS:
        end = start + PIECE_CHARS
        cuts = [match.start() for match in _CUT.finditer(text, end - _CUT_CHARS, end)]
        yield text[start : (end := cuts[-1] if cuts else end)]
        start = end
    yield text[start:]


@dataclass(frozen=True)
class ControlText:
    """Text of a template's author: control tokens named in it are meant."""

    text: str


@dataclass(frozen=True)
class PlainText:
    """Text of a user, a tool or a server: all of it is ordinary text."""

    text: str


Segment = ControlText | PlainText


class ModelTokenizer:
    """A model's tokenizer, from the text of its ``tokenizer.json``.

    Raises:
        ValueError: the tokenizers library cannot read the text.
    """

    def __init__(self, tokenizer_json: str) -> None:
        try:
            self._tokenizer = Tokenizer.from_str(tokenizer_json)
        except Exception as error:  # noqa: BLE001  # the Rust library raises bare Exception
            raise ValueError(f"not a tokenizer.json: {error}") from None
        # Published files may contain a length limit, which would truncate prompts silently.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        # Text is encoded and decoded without a space that is added or removed at its beginning.
        # Source: the components of tokenizers 0.15 to 0.23 and their effect on a leading space.
        for name, nothing in _COMPONENTS.items():
            component = getattr(self._tokenizer, name)
            state: dict[str, Any] = {} if component is None else json.loads(component.__getstate__())
            if (changed := _without_prefix(state)) != state:
                replacement = nothing([])
                if changed:
                    replacement.__setstate__(json.dumps(changed).encode())
                setattr(self._tokenizer, name, replacement)
        # Number of ids, added tokens included.
        self.size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        # The ids of control tokens such as ``<|im_end|>``.
        self.controls: dict[str, int] = {}
        all_added = self._tokenizer.get_added_tokens_decoder()
        # Special tokens, whose text is never part of an answer.
        self.special_ids = frozenset(token_id for token_id, added in all_added.items() if added.special)
        for token_id, added in all_added.items():
            if len(added.content) > 1 and (added.special or _TAG.match(added.content)):
                self.controls[added.content] = token_id
        self._contents = {token_id: content for content, token_id in self.controls.items()}
        # The special tokens, and the others that are written as a tag.
        self.control_ids = frozenset(self._contents)
        # The token for unknown text is a special token, but not a marker.
        unknown = self._tokenizer.encode(_UNHEARD_OF, add_special_tokens=False).ids
        self._forbidden = self._contents.keys() - set(unknown)
        # A text has one token at least for this many characters.
        self.longest_token_chars = max(map(len, self._tokenizer.get_vocab()), default=1)
        longest_first = sorted(self.controls, key=len, reverse=True)
        self._control_names = re.compile(f"({'|'.join(map(re.escape, longest_first)) or _NEVER})")

    def piece(self, token_id: int) -> str | None:
        """Return a token as the vocabulary spells it, such as ``Ġthe``; None if no token has this id."""
        return self._tokenizer.id_to_token(token_id)

    def encode(self, segments: Iterable[Segment], at_most: int | None = None) -> list[int]:
        """Return the token ids of ``segments``, joined.

        Adjacent text is joined before it is encoded, as in the family's own template, so the ids equal those of the
        published rendering; only control tokens separate it. Above ``at_most`` ids it returns the ids of a beginning
        that is longer than ``at_most``: encoding a megabyte takes seconds, and the text does not fit anyway.
        """
        limit = sys.maxsize if at_most is None else at_most
        ids: list[int] = []
        for part in self._parts(segments):
            if isinstance(part, int):
                ids.append(part)
            else:
                # Half a surrogate pair, as broken JSON may bring it, has no UTF-8 and so no tokens.
                encodable = part.encode("utf-8", "replace").decode("utf-8")
                for piece in chain.from_iterable(map(pieces_of, self._split_control_names(encodable))):
                    ids += self._encode_unnamed(piece)
                    if len(ids) > limit:
                        break
            if len(ids) > limit:
                break
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids``, control tokens by name; an incomplete character becomes U+FFFD."""
        parts: list[str] = []
        pending: list[int] = []
        for token_id in ids:
            if token_id in self._contents:
                parts += [self._decode_plain(pending), self._contents[token_id]]
                pending = []
            else:
                pending.append(token_id)
        return "".join([*parts, self._decode_plain(pending)])

    def as_text(self, ids: Sequence[int], picture: Sequence[int], mark: str) -> str:
        """Return the text that the runtime's own tokenizer turns into ``ids`` again, with pictures as ``mark``.

        Control tokens are written by name. Where ordinary text spells one, or the mark, a zero-width space is put
        after its first character, so that it stays text.
        """
        parts: list[str] = []
        plain: list[int] = []
        position = 0
        while position < len(ids):
            is_picture = (
                bool(picture)
                and ids[position] == picture[0]
                and list(ids[position : position + len(picture)]) == list(picture)
            )
            if not is_picture and ids[position] not in self._contents:
                plain.append(ids[position])
                position += 1
                continue
            parts += [self._harmless(plain, mark), mark if is_picture else self._contents[ids[position]]]
            plain = []
            position += len(picture) if is_picture else 1
        return "".join([*parts, self._harmless(plain, mark)])

    def _harmless(self, ids: Sequence[int], mark: str) -> str:
        text = self._decode_plain(ids).replace(mark, f"{mark[0]}{_ZERO_WIDTH}{mark[1:]}")
        return _ZERO_WIDTH.join(self._split_control_names(text))

    def _decode_plain(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False) if ids else ""

    def _parts(self, segments: Iterable[Segment]) -> Iterable[int | str]:
        """Yield the ids of control tokens that a template names, and the text between them."""
        text = ""
        for segment in segments:
            if isinstance(segment, PlainText):
                text += segment.text
                continue
            # The control tokens that it names are every second piece.
            for index, piece in enumerate(self._control_names.split(segment.text)):
                if index % 2:
                    yield text
                    yield self.controls[piece]
                    text = ""
                else:
                    text += piece
        yield text

    def _split_control_names(self, text: str) -> Iterable[str]:
        """Yield pieces of ``text``, none with a control token's whole name: names are split after one character."""
        start = 0
        while (match := self._control_names.search(text, start)) is not None:
            yield text[start : match.start() + 1]
            start = match.start() + 1
        if start < len(text):
            yield text[start:]

    def _encode_unnamed(self, text: str) -> list[int]:
        """Return the ids of text without control tokens that a normalizer may turn into one (full-width letters).

        The text is halved until the halves contain none; a single character that is a control token is dropped.
        """
        if len(text) > _LONG_CHARS:
            [encoding] = self._tokenizer.encode_batch([text], add_special_tokens=False)
        else:
            encoding = self._tokenizer.encode(text, add_special_tokens=False)
        if self._forbidden.isdisjoint(encoding.ids):
            return encoding.ids
        if len(text) == 1:
            return [i for i in encoding.ids if i not in self._forbidden]
        control_spans = [span for i, span in zip(encoding.ids, encoding.offsets, strict=True) if i in self._forbidden]
        # Halves, not single characters, so that a long run of spaces before the name costs few passes.
        cuts = {min(max(start + (end - start) // 2, start + 1), len(text) - 1) for start, end in control_spans}
        edges = [0, *sorted(cuts), len(text)]
        return [i for start, end in pairwise(edges) for i in self._encode_unnamed(text[start:end])]
