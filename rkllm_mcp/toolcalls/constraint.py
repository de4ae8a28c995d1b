"""``Constraint``: what an answer or a call may consist of, and what may be written in place of a wrong token.

    JSON Schema | regular expression | grammar, also of a call ─▶ Constraint ─▶ HeldText

The runtime gives no logits, so nothing is masked: a token that has been generated is compared, and the text that can
follow is written by the host. Therefore the matcher of llguidance reads bytes instead of the model's tokens. It needs
no trie of the vocabulary, works with every tokenizer, and says up to which byte a wrong token was right.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from rkllm_mcp.generation import AnswerGrammar

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

# How JSON is read. White space is bounded, because a model that writes nothing else would never be wrong.
SPACE_OPTIONS: Mapping[str, Any] = {
    "whitespace_pattern": r"[ \n\t]{0,32}",
    "lenient": True,  # what cannot be held is checked at the end
    "coerce_one_of": True,
    "json_allow_general_unicode_escapes": True,
}
_END = 256  # the token that ends a text, after the 256 bytes
# Against hostile schemas and expressions: about 20 ms to build one, 3 ms for a byte, 20 MB of states.
_LIMITS: Mapping[str, Any] = {
    "max_items_in_row": 500,
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 50_000,
    "step_max_items": 10_000,
    "max_lexer_states": 10_000,
    "max_grammar_size": 100_000,
    "precompute_large_lexemes": False,
    "verbose_errors": False,
}
_MOST_GRAMMAR_CHARS = 200_000
# The limits do not bound groups that are repeated within repeated groups: ((a{1,500}){1,500}){1,500} took 0.1 s a byte.
_MOST_GROUP_TIMES = 200
_GROUP_TIMES = re.compile(r"\)\{(\d*),?(\d*)\}")
_PATTERN = re.compile(r'"pattern"\s*:\s*"((?:[^"\\]|\\.)*)"')
# Longest text that the host writes at once: a key and what is around it.
_MOST_WRITTEN_BYTES = 256
_SPACE = frozenset(b" \t\r\n")
_QUOTES = frozenset(b"\"'")
# The first of these that can follow is written where the model does not find a way: the shortest end of a value.
_SHORTEST = b"}])>,\"'0tfn{["
_SHORTEST_IN_STRING = b"\"'"
# What may follow a value.
_VALUE_ENDS = frozenset(b" \t\r\n\"',:]})>")
_LONGEST_VALUE = 40
# Words for the same value in another notation.
_OTHER_WORDS = {"True": "true", "False": "false", "None": "null", "true": "True", "false": "False", "null": "None"}


def is_installed() -> bool:
    """Return True if llguidance is there: the extra ``held``."""
    return find_spec("llguidance") is not None


@cache
def _bytes_tokenizer() -> LLTokenizer:
    from llguidance import LLTokenizer

    return LLTokenizer(cast("Any", _Bytes()), slices=[])


class _Bytes:
    """A vocabulary of the 256 bytes, as ``LLTokenizer`` reads one."""

    is_tokenizer_wrapper = True
    eos_token_id = _END
    bos_token_id = None
    tokens = (*(bytes((byte,)) for byte in range(_END)), b"<end>")
    special_token_ids = (_END,)

    def __call__(self, text: str | bytes) -> list[int]:
        """Return the tokens of a text."""
        return list(text.encode() if isinstance(text, str) else text)


class UnheldError(ValueError):
    """A schema, an expression or a grammar that no text can be held to; the text is the reason."""


class Constraint:
    """What a text may consist of; raises UnheldError if it cannot be compiled within the limits.

    Args:
        grammar: a grammar of llguidance: Lark, or what its functions return.
        has_space: white space outside of strings means nothing, as in JSON.
        names: the tools that a call may name.
    """

    def __init__(self, grammar: str, *, has_space: bool, names: Sequence[str] = ()) -> None:
        from llguidance import LLMatcher, LLParserLimits

        self.has_space = has_space
        self._names = names
        self._matcher = LLMatcher(_bytes_tokenizer(), grammar, log_level=0, limits=LLParserLimits(**_LIMITS))
        if self._matcher.is_error():
            raise UnheldError(self._matcher.get_error().partition("\n")[0])

    def begin(self) -> HeldText:
        """Return the state of a new text."""
        return HeldText(self._matcher.deep_copy(), has_space=self.has_space, names=self._names)

    def allows(self, text: str) -> bool:
        """Return True if a whole text is as it has to be."""
        text_held = self.begin()
        return text_held.feed(text) == len(text) and text_held.is_complete


class HeldText:
    """One text that is being written."""

    def __init__(self, matcher: LLMatcher, *, has_space: bool, names: Sequence[str] = ()) -> None:
        self._matcher = matcher
        self._has_space = has_space
        self._names = names
        # A name with what ends it in the notations of calls.
        self._named = re.compile(f"(?:{'|'.join(map(re.escape, names))})[\"'\\[(<>{{\\s]") if names else None
        self._parts: list[str] = []

    @property
    def is_complete(self) -> bool:
        """True if the text may end here."""
        return self._matcher.is_accepting()

    @property
    def is_over(self) -> bool:
        """True if nothing can follow."""
        return self._matcher.is_stopped()

    @property
    def has_failed(self) -> bool:
        """True if a limit was reached: nothing more is known about the text."""
        return self._matcher.is_error()

    def feed(self, text: str) -> int:
        """Add a text up to its first wrong character; return the number of characters that were added."""
        data = text.encode("utf-8", "replace")
        count = self._matcher.try_consume_tokens(list(data))
        if count == len(data):
            self._parts.append(text)
            return len(text)
        accepted = data[:count].decode("utf-8", "ignore")
        if (inside := count - len(accepted.encode())) and not self.has_failed:
            self._matcher.rollback(inside)
        self._parts.append(accepted)
        return len(accepted)

    @property
    def has_tool(self) -> bool:
        """True unless it is a call whose tool the model has still to name."""
        return self._named is None or self._named.search("".join(self._parts)) is not None

    def structure(self) -> str:
        """Return the text that only one way can go on with, without white space at its end; empty at a choice.

        In a call it ends before the name of the tool, also if there is one only.
        """
        written, _ = self._write(first=b"")
        if self.has_tool or self._named is None:
            return written
        name = re.search("|".join(map(re.escape, self._names)), written)
        text = "".join(self._parts)
        if name is not None:
            return written[: name.start()]
        return "" if self._named.search(text + written) else written

    def other_spelling(self, text: str) -> str:
        r"""Return ``text`` in another notation that can follow; empty if none exists.

        ``true`` for ``True``, ``red`` for ``Red``, a word without quotes, and in a string ``\n`` for a line break.
        """
        bare = text.strip(" \t\r\n\"'`")
        spellings = [bare, _OTHER_WORDS.get(bare, ""), bare.lower(), bare.upper(), bare.capitalize()]
        if self._has_space and text[:1] < " " and self._open_quote():
            spellings = [json.dumps(text, ensure_ascii=False)[1:-1]]
        for spelling in filter(None, dict.fromkeys(spellings)):
            probe = HeldText(self._matcher.deep_copy(), has_space=self._has_space)
            if spelling != text and probe.feed(spelling) == len(spelling):
                return spelling
        return ""

    def first_value(self, text: str) -> str:
        """Return the first whole value in ``text`` that can follow here, such as a word of an enum; empty if none.

        None can follow a word or a number, which it would make another one.
        """
        if "".join(self._parts)[-1:].isalnum():
            return ""
        for written in (text, text.lower()):
            for start in range(len(written)):
                if written[start].isspace() or (start and _is_in_word(written, start)):
                    continue
                part = written[start : start + _LONGEST_VALUE]
                probe = HeldText(self._matcher.deep_copy(), has_space=self._has_space)
                for end in range(probe.feed(part), 0, -1):
                    found = part[:end].rstrip()
                    if not _is_in_word(part, end) and self._ends_value(found):
                        return found
        return ""

    def _ends_value(self, text: str) -> bool:
        if not any(map(str.isalnum, text)):
            return False
        probe = HeldText(self._matcher.deep_copy(), has_space=self._has_space)
        probe.feed(text)
        return probe.is_complete or bool(self._allowed(probe._matcher) & _VALUE_ENDS)

    def shortest(self) -> str:
        """Return the shortest text that goes on from a choice, with what only one way can go on with after it."""
        allowed = self._allowed(self._matcher)
        first = _SHORTEST_IN_STRING if self._open_quote() else _SHORTEST
        order = [*(byte for byte in first if byte in allowed), *sorted(allowed - _SPACE - {_END})]
        for byte in order[:_END]:
            written, is_whole = self._write(first=bytes((byte,)))
            if written and is_whole:
                return written
        return ""

    def _write(self, first: bytes) -> tuple[str, bool]:
        """Return ``first`` and the structure after it, and False if it is a part of a character."""
        matcher, written = self._matcher.deep_copy(), bytearray()
        quote = self._open_quote() if self._has_space else 0
        is_escaped = False
        for byte in first:
            if not matcher.consume_token(byte):
                return "", False
            written.append(byte)
            quote, is_escaped = _next_quote(quote, byte, is_escaped=is_escaped)
        while len(written) < _MOST_WRITTEN_BYTES:
            possible = self._allowed(matcher)
            allowed = possible - _SPACE if self._has_space and not quote else possible
            if self._has_space and not quote and len(allowed) > 1 and allowed <= _QUOTES:
                allowed = frozenset(b'"')
            if len(allowed) != 1 or _END in allowed:
                break
            (byte,) = allowed
            if written and written[-1] in b":," and not quote and ord(" ") in possible and byte not in _SPACE:
                matcher.consume_token(ord(" "))
                written += b" "
            matcher.consume_token(byte)
            written.append(byte)
            quote, is_escaped = _next_quote(quote, byte, is_escaped=is_escaped)
        text = written.decode("utf-8", "ignore")
        return text, len(text.encode()) == len(written)

    def _allowed(self, matcher: LLMatcher) -> frozenset[int]:
        mask = matcher.compute_bitmask()
        return frozenset(
            index * 8 + bit for index, byte in enumerate(mask) if byte for bit in range(8) if byte >> bit & 1
        ) - frozenset(range(_END + 1, len(mask) * 8))

    def _open_quote(self) -> int:
        """Return the quotation mark of the string in which the text ends; 0 outside of strings."""
        quote, is_escaped = 0, False
        for byte in "".join(self._parts).encode("utf-8", "replace"):
            quote, is_escaped = _next_quote(quote, byte, is_escaped=is_escaped)
        return quote


def _is_in_word(text: str, index: int) -> bool:
    """Return True if a word or a number of ASCII goes on from before ``index`` to behind it."""
    around = text[index - 1 : index + 1]
    return len(around) > 1 and around.isascii() and around.isalnum()


def _next_quote(quote: int, byte: int, *, is_escaped: bool) -> tuple[int, bool]:
    if not quote:
        return (byte if byte in _QUOTES else 0), False
    if is_escaped or byte != quote:
        return quote, byte == ord("\\") and not is_escaped
    return 0, False


# Maps of a schema whose keys are names, not keywords.
_NAME_MAPS = frozenset({"properties", "$defs", "definitions", "patternProperties"})


def held_schema(schema: Any) -> Any:
    """Return a schema without ``format``, and without options of llguidance that a client has put there.

    A format is an annotation, which no check here asserts. A small model that is held to a date of another notation
    than its own writes a wrong one (Qwen2.5-Coder-0.5B: 3003-01-03 for "3 March 2027").
    """
    if isinstance(schema, list):
        return [held_schema(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: held_schema(inner) for name, inner in cast("dict[str, Any]", value).items()}
        if key in _NAME_MAPS and isinstance(value, dict)
        else value
        if key in ("enum", "const")
        else held_schema(value)
        for key, value in cast("dict[str, Any]", schema).items()
        if key not in ("format", "x-guidance")
    }


def answer_constraint(grammar: AnswerGrammar) -> Constraint:
    """Return the constraint of an answer; raises UnheldError."""
    from llguidance import LLMatcher

    if len(grammar.text) > _MOST_GRAMMAR_CHARS:
        raise UnheldError(f"it is longer than {_MOST_GRAMMAR_CHARS} characters")
    for expression in _PATTERN.findall(grammar.text) if grammar.kind == "json" else (grammar.text,):
        times = [max(int(least or 0), int(most or 0)) for least, most in _GROUP_TIMES.findall(expression)]
        if math.prod(times) > _MOST_GROUP_TIMES:
            raise UnheldError(f"its groups are repeated more than {_MOST_GROUP_TIMES} times")
    if grammar.kind == "json":
        try:
            schema = held_schema(json.loads(grammar.text))
            text = LLMatcher.grammar_from_json_schema(schema, overrides=cast("Any", SPACE_OPTIONS))
        except (ValueError, RecursionError) as error:
            raise UnheldError(str(error)) from None
        return Constraint(text, has_space=True)
    if grammar.kind == "regex":
        return Constraint(LLMatcher.grammar_from_regex(grammar.text), has_space=False)
    if grammar.kind == "choice":
        return Constraint(f"start: {' | '.join(map(json.dumps, json.loads(grammar.text)))}", has_space=False)
    from llguidance.gbnf_to_lark import any_to_lark

    try:
        lark = any_to_lark(grammar.text)
    except Exception as error:  # noqa: BLE001  # its parser raises errors of its own and bare ones
        raise UnheldError(str(error)) from None
    return Constraint(LLMatcher.grammar_from_lark(lark), has_space=False)
