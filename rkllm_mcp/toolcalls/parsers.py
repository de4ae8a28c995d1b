"""Parsers of call bodies: JSON, objects keyed by name, Python-like calls, Gemma's braces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, cast

from rkllm_mcp.messages import as_list, as_mapping
from rkllm_mcp.toolcalls.lenient_json import (
    MAX_DEPTH,
    ParsedCall,
    ParsedValue,
    SourceFloat,
    UnreadableError,
    plain,
    read_value,
)

_SPACE = re.compile(r"[\s\ufeff]*")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?(?![\w.])", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d{1,400}", re.ASCII)
_WORD = re.compile(r"[A-Za-z]+(?![\w.])")
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_KEY = re.compile(r"[^\s\"'{}\[\](),:=<>][^\s\"'{}\[\](),:=<>]{0,255}")
# What is after a value: the next key, or the end of the braces or of the text. An address is no key.
_VALUE_END = re.compile(
    r"""\s*(?:,\s*(?:(?:<\|"\|>|<escape>|["'])?[^\s"'{}\[\](),:=<>]{1,256}(?:<\|"\|>|<escape>|["'])?\s*:(?!//)|[}\]])|[}\]]|\Z)"""
)
_BARE_MARK = re.compile(r"[{}\[\],]")
_BARE = re.compile(r"[^,{}\[\]]+")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", '"': '"', "'": "'", "/": "/", "\n": ""}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U(00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|(.))", re.DOTALL)

_QUOTED = {
    '"': re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL),
    "'": re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL),
    '"""': re.compile(r'"{3}([^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*)"{3}', re.DOTALL),
    "'''": re.compile(r"'{3}([^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*)'{3}", re.DOTALL),
}

# Text after a quote that ends a string, in contrast to an unescaped quote inside it.
_AFTER_STRING = re.compile(r"\s*(?:,\s*[A-Za-z_]\w*\s*=|\)\s*(?:[\]\n;,]|\Z))")
_NEXT_KEYWORD = re.compile(r"\s*,\s*[A-Za-z_]\w*\s*=")


@dataclass(eq=False)
class LiteralReader:
    """Reader of consecutive values in one text.

    ``delimiters``: texts around strings in addition to quotes. ``bare_text``: words without quotes are text.
    ``raw_quotes``: a string may contain its own quote unescaped if only one position can end it.
    """

    text: str
    delimiters: tuple[str, ...] = ()
    _: KW_ONLY
    bare_text: bool = False
    raw_quotes: bool = False
    at: int = 0
    repaired: bool = False
    guessed: bool = False

    def skip_space(self) -> None:
        """Skip white space."""
        match = _SPACE.match(self.text, self.at)
        self.at = self.at if match is None else match.end()

    def takes(self, token: str) -> bool:
        """Read ``token`` and the white space before it, if it comes next; return True if it did."""
        self.skip_space()
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        return True

    def expect(self, token: str) -> None:
        """Read ``token``, which may be missing at the end of the text if ``bare_text`` is set."""
        if self.takes(token):
            return
        if not self.bare_text or self.at < len(self.text):
            raise UnreadableError(f"'{token}' is missing")
        self.repaired = True

    def key(self, separator: str) -> str | None:
        """Return the key before ``separator``; None, with nothing read, if none exists."""
        self.skip_space()
        start = self.at
        mark = self._mark()
        if mark:
            name = self._read_delimited(mark) if mark in self.delimiters else self._read_quoted(mark)
        else:
            match = _KEY.match(self.text, self.at)
            name = "" if match is None else match.group()
            self.at += len(name)
        if name and self.takes(separator):
            return name
        self.at = start
        return None

    def value(self, depth: int = 0) -> Any:
        """Return the next value.

        Raises:
            UnreadableError: no value follows.
        """
        if depth > MAX_DEPTH:
            raise UnreadableError(f"nested deeper than {MAX_DEPTH}")
        self.skip_space()
        mark = self._mark()
        if mark in self.delimiters:
            return self._read_delimited(mark)
        if mark:
            if self.raw_quotes and depth <= 1 and len(mark) == 1:
                return self._with_raw_quotes(mark)
            text = self._read_quoted(mark)
            # A delimiter that closes what a quote opened.
            self._skip_delimiters()
            return text
        if self.takes("["):
            return [self.value(depth + 1) for _ in self.items("]")]
        if self.takes("("):
            return [self.value(depth + 1) for _ in self.items(")")]
        if self.takes("{"):
            return self.pairs(depth)
        number = _NUMBER.match(self.text, self.at)
        if number is not None:
            self.at = number.end()
            return int(number.group()) if _WHOLE.fullmatch(number.group()) else SourceFloat(number.group())
        word = _WORD.match(self.text, self.at)
        if word is not None and word.group() in _WORDS:
            self.at = word.end()
            return _WORDS[word.group()]
        bare = _BARE.match(self.text, self.at) if self.bare_text else None
        if bare is None or not bare.group().strip():
            raise UnreadableError("a value is missing or is not quoted")
        # A delimiter that is missing at the beginning of the text still ends it.
        ends = [position for mark in self.delimiters if (position := bare.group().find(mark)) >= 0]
        text = bare.group()[: min(ends, default=None)]
        self.at, self.repaired = self.at + len(text), True
        self._skip_delimiters()
        return text.strip()

    def pairs(self, depth: int = 0) -> dict[str, Any]:
        """Return keys and values up to the closing brace, which is read."""
        result: dict[str, Any] = {}
        for _ in self.items("}"):
            key = self.key(":")
            if key is None:
                raise UnreadableError("a value in braces has no key; write a list, such as [1, 2], for a set")
            if key in result:
                raise UnreadableError(f"'{key}' is given twice")
            result[key] = self._value_of_key(depth + 1)
        return result

    def _value_of_key(self, depth: int) -> Any:
        """Return the value before the next key; where words need no quotes, it may hold commas, quotes and braces."""
        self.skip_space()
        start, repaired, error = self.at, self.repaired, None
        try:
            value = self.value(depth)
        except UnreadableError as unreadable:
            value, error = None, unreadable
        is_whole = error is None and _VALUE_END.match(self.text, self.at) is not None
        if is_whole or not self.bare_text or self.text[start : start + 1] in ("", "{", "[", "}"):
            if error is not None:
                raise error
            return value
        if any(self.text.startswith(mark, start) for mark in self.delimiters):
            # A string between delimiters has its end there, whatever follows.
            if error is not None:
                raise error
            return value
        # Words without quotes reach to the next key.
        self.repaired, depth = repaired, 0
        for mark in _BARE_MARK.finditer(self.text, start):
            depth += mark.group() in ("{", "[")
            if mark.group() == ",":
                is_end = depth == 0 and _VALUE_END.match(self.text, mark.start()) is not None
            else:
                is_end = depth == 0 and mark.group() in ("}", "]")
            depth -= mark.group() in ("}", "]")
            if is_end:
                self.at = mark.start()
                break
        else:
            self.at = len(self.text)
        text = self.text[start : self.at]
        cut = min((at for mark in self.delimiters if (at := text.find(mark)) >= 0), default=len(text))
        self.at, self.repaired = start + cut, True
        self._skip_delimiters()
        return text[:cut].strip()

    def items(self, closer: str) -> Iterator[None]:
        """Yield where each item up to ``closer`` is to be read, and read the commas after them and ``closer``."""
        while not self.takes(closer):
            yield
            if not self.takes(","):
                self.expect(closer)
                return

    def _mark(self) -> str:
        """Return the quote or delimiter at this position, or an empty string."""
        for mark in (*self.delimiters, '"""', "'''", '"', "'"):
            if self.text.startswith(mark, self.at):
                # Two quotes are an empty string; three or more begin a long string.
                return mark
        return ""

    def _read_delimited(self, mark: str) -> str:
        begin = self.at + len(mark)
        end = self.text.find(mark, begin)
        if end < 0:
            if not self.bare_text:
                raise UnreadableError("a string is not closed")
            # The delimiter is missing; the braces at the end belong to the call.
            end = len(self.text.rstrip("}] \t\r\n"))
            self.at, self.repaired = end, True
            return self.text[begin:end]
        self.at = end + len(mark)
        return self.text[begin:end]

    def _read_quoted(self, mark: str) -> str:
        match = _QUOTED[mark].match(self.text, self.at)
        if match is None:
            raise UnreadableError("a string is not closed")
        self.at = match.end()
        return _ESCAPE.sub(_character, match.group(1))

    def _with_raw_quotes(self, mark: str) -> str:
        begin = at = self.at + 1
        ends: list[int] = []
        while (end := self.text.find(mark, at)) >= 0 and len(ends) < 2:
            at = end + 1
            if self.text[end - 1] != "\\" and _AFTER_STRING.match(self.text, at):
                ends.append(end)
                if _NEXT_KEYWORD.match(self.text, at):
                    break
        if len(ends) != 1:
            raise UnreadableError("a string holds quotes, and it is not clear which one ends it")
        text = self.text[begin : ends[0]]
        self.guessed = self.guessed or mark in text.replace(f"\\{mark}", "")
        self.at = ends[0] + 1
        return _ESCAPE.sub(_character, text)

    def _skip_delimiters(self) -> None:
        while any(self.takes(stray) for stray in self.delimiters):
            self.repaired = True


def _character(escape: re.Match[str]) -> str:
    two, four, eight, other = escape.groups()
    code = two or four or eight
    if code:
        return chr(int(code, 16))
    # The backslash of a regular expression, such as \d, stays as written.
    return _ESCAPES.get(other, escape.group())


# Every template asks for the first; models trained on other interfaces write the others.
NAME_KEYS = ("name", "function", "tool", "tool_name")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "params", "input")
# Keys of OpenAI's interface without a meaning for the call.
_IGNORED_KEYS = frozenset({"id", "type", "index", "call_id"})


# OpenAI's message around its calls.
WRAPPER_KEYS = ("tool_calls", "tool_call", "function_call")

# A single value without quotes in place of the object, as small models write it: ``"arguments": 12 * 34}``.
_UNQUOTED = re.compile(
    r'("(?:arguments|parameters)"\s{0,8}:\s{0,8})([^\s"{}\[\]:][^"{}\[\]:]{0,200}?)(\s{0,8}\}\s{0,8})\Z'
)


def _quote(match: re.Match[str]) -> str:
    try:
        json.loads(match[2])
    except ValueError:
        return f"{match[1]}{json.dumps(match[2], ensure_ascii=False)}{match[3]}"
    return match[0]


def read_json_calls(body: str) -> tuple[ParsedCall, ...]:
    """Parse one JSON object or a list of them: ``{"name": …, "arguments": {…}}``.

    Hermes and the templates of Qwen2.5, Qwen3 and Granite 4; ``parameters`` as Llama 3 writes it. Text before
    the first bracket is skipped.
    """
    body = _UNQUOTED.sub(_quote, body)
    starts = [position for position in (body.find("{"), body.find("[")) if position >= 0]
    reading = read_value(body[min(starts) :] if starts else body)
    values: list[Any] = []
    for value in as_list(reading.value) or [reading.value]:
        table = as_mapping(value)
        inner = next((table[key] for key in WRAPPER_KEYS if key in table), None)
        # An object that has nothing but calls.
        is_wrapper = inner is not None and table.keys() <= {*WRAPPER_KEYS, "role", "content"}
        values += (as_list(inner) or [inner]) if is_wrapper else [value]
    calls = [_json_call(cast("dict[str, Any]", value), reading) for value in values if isinstance(value, dict)]
    if not calls:
        raise UnreadableError("the call is not JSON object")
    return tuple(calls)


def _json_call(value: dict[str, Any], reading: ParsedValue) -> ParsedCall:
    fields = dict(value)
    name: Any = None
    for key in NAME_KEYS:
        if key == "function" and isinstance(fields.get(key), dict):
            return _json_call(fields[key], reading)
        if isinstance(fields.get(key), str):
            name = fields.pop(key)
            break
    if not isinstance(name, str) or not name.strip():
        raise UnreadableError("the call has no 'name'")
    arguments_key = next((key for key in ARGUMENT_KEYS if key in fields), "")
    arguments: Any = fields.pop(arguments_key, None)
    fields = {key: item for key, item in fields.items() if key not in _IGNORED_KEYS}
    if arguments_key and arguments is None and not fields:
        arguments = {}
    return ParsedCall(name.strip(), arguments, fields, reading.repaired, reading.guessed)


# Text between a name and its object: markers, an id, the fence and its language.
_HEAD_NOISE = re.compile(r"```\s*[a-zA-Z_]*|\[ARGS\]|\[CALL_ID\][^\[]*|>")
_SEPARATORS = ("<｜tool▁sep｜>", "<|tool▁sep|>")


def read_named_json(body: str) -> tuple[ParsedCall, ...]:
    """Parse one call whose name is before the object of its arguments: ``get_weather[ARGS]{…}``.

    Mistral Small 3.2 (``[ARGS]``), DeepSeek R1 (``function<sep>name``, a fence) and V3.1 (``name<sep>``), Llama 3.1's
    own functions (``name>``).
    """
    head, brace, tail = body.partition("{")
    for separator in _SEPARATORS:
        kind, separated, separated_name = head.partition(separator)
        if separated:
            head = _HEAD_NOISE.sub("", separated_name).strip() or kind
    name = _HEAD_NOISE.sub("", head).strip()
    if not name:
        raise UnreadableError("the call has no name")
    if not brace:
        raise UnreadableError("the call has no arguments")
    reading = read_value(brace + tail)
    return (ParsedCall(name, reading.value, repaired=reading.repaired, guessed=reading.guessed),)


def read_bracketed_call(body: str) -> tuple[ParsedCall, ...]:
    """Parse one call in brackets, whose name is after a word and a colon: ``[tool_call: get_weather {…}]``."""
    return read_named_json(body.partition(":")[2].rstrip().removesuffix("]"))


def read_keyed_calls(body: str) -> tuple[ParsedCall, ...]:
    """Parse a list of objects whose only key is the name: ``[{"get_weather": {…}}]`` (Apertus)."""
    reading = read_value(body[max(body.find("["), 0) :])
    values = as_list(reading.value) or [reading.value]
    pairs = [pair for value in values for pair in as_mapping(value).items()]
    if not pairs or not all(isinstance(value, dict) for value in values):
        raise UnreadableError("the call is not JSON object")
    return tuple(
        ParsedCall(name, arguments, repaired=reading.repaired, guessed=reading.guessed) for name, arguments in pairs
    )


_FENCE = re.compile(r"\s*```[a-zA-Z_]*\s")
_NAME = re.compile(r"[^\W\d][\w.\-/]{0,127}")
_JSON_BEGINS = re.compile(r"\s*(?:\[\s*)?\{")
# Gemma's examples print what a call returns.
_WRAPPERS = ("print",)
# ChatGLM3 writes the name on its own line, and this as the name of the call.
_PLACEHOLDER = "tool_call"
_HEADLINE = re.compile(r"\s*([^\W\d][\w.\-]{0,127})\s*\n\s*```")

_PARENTHESIS = re.compile(r"\s*(?:call)?\s*:?\s*([^\W\d][\w.\-/]{0,127})\s*\(")
_KEYWORD = re.compile(r"\s*[A-Za-z_]\w*\s*=")
GEMMA_DELIMITERS = ('<|"|>', "<escape>")


def read_python_calls(body: str) -> tuple[ParsedCall, ...]:
    """Parse Python-like calls: a list, or one on each line; JSON where a model writes that instead.

    Llama 3.2 and 4, LFM2, Olmo 3, MiniCPM3, Gemma 2 and 3, ChatGLM3. A string may contain its own quote unescaped if
    only one position can end it (vLLM's rule).
    """
    headline = _HEADLINE.match(body)
    text = (body[headline.end(1) :] if headline else body).rstrip().removesuffix("```")
    fence = _FENCE.match(text)
    text = text[fence.end() :] if fence else text
    if _JSON_BEGINS.match(text):
        return read_json_calls(text)
    try:
        calls = _python_calls(LiteralReader(text))
    except UnreadableError:
        calls = _python_calls(LiteralReader(text, raw_quotes=True))
    if headline and len(calls) == 1 and calls[0].name == _PLACEHOLDER:
        (call,) = calls
        calls = (ParsedCall(headline.group(1), call.arguments, repaired=call.repaired, positional=call.positional),)
    return calls


def _python_calls(reader: LiteralReader) -> tuple[ParsedCall, ...]:
    in_list = reader.takes("[")
    calls: list[ParsedCall] = []
    while not (reader.takes("]") if in_list else _is_done(reader)):
        calls.append(_python_call(reader))
        if not (reader.takes(",") or reader.takes(";")) and in_list:
            # Models leave out the bracket after the last call.
            if _is_done(reader):
                break
            reader.expect("]")
            break
    if not calls or not _is_done(reader):
        raise UnreadableError("the call is not written like f(key='value')")
    return tuple(calls)


def _is_done(reader: LiteralReader) -> bool:
    reader.skip_space()
    return reader.at == len(reader.text)


def _python_call(reader: LiteralReader) -> ParsedCall:
    reader.skip_space()
    match = _NAME.match(reader.text, reader.at)
    if match is None:
        raise UnreadableError("the call has no name")
    reader.at = match.end()
    reader.expect("(")
    if match.group() in _WRAPPERS and _NAME.match(reader.text, reader.at):
        inner = _python_call(reader)
        reader.expect(")")
        return inner
    positional: list[Any] = []
    values: dict[str, Any] = {}
    for _ in reader.items(")"):
        key = reader.key("=")
        if key in values:
            raise UnreadableError(f"'{key}' is given twice")
        if key is None:
            positional.append(_plain(reader.value()))
        else:
            values[key] = _plain(reader.value())
    return ParsedCall(
        match.group(),
        values,
        repaired=reader.repaired or reader.guessed,
        guessed=reader.guessed,
        positional=tuple(positional),
    )


def _plain(value: Any) -> Any:
    try:
        return plain(value, 0)
    except ValueError as error:
        raise UnreadableError(str(error)) from None


def read_brace_call(body: str) -> tuple[ParsedCall, ...]:
    """Parse one call in Gemma's notation: ``call:f{k:<|"|>v<|"|>,n:3}``.

    FunctionGemma (``<escape>``) and Gemma 4 (``<|"|>``); single quotes, words without quotes and a missing delimiter at
    the end are accepted as in Ollama.
    """
    if parenthesis := _PARENTHESIS.match(body):
        inside = body[parenthesis.end() :].rstrip().removesuffix(")")
        if _KEYWORD.match(inside):
            calls = read_python_calls(f"{parenthesis[1]}({inside})")
        else:
            calls = read_brace_call(f"call:{parenthesis[1]}{{{inside}}}")
        return tuple(replace(call, repaired=True) for call in calls)
    head, brace, _ = body.partition("{")
    name = head.strip().removeprefix("call:").removeprefix(":").strip()
    if not name:
        raise UnreadableError("the call has no name")
    if not brace:
        return (ParsedCall(name, {}, repaired=True),)
    reader = LiteralReader(body, GEMMA_DELIMITERS, bare_text=True)
    reader.at = len(head) + 1
    values = _plain(reader.pairs())
    if not _is_done(reader):
        raise UnreadableError("there is text behind the call")
    return (ParsedCall(name, values, repaired=reader.repaired),)
