"""How calls are spelled that look like calls in a program: Python's ``[f(k='v')]`` and Gemma's ``call:f{k:…}``."""

from __future__ import annotations

import re
from typing import Any

from rkllm_mcp.toolcalls.literals import LiteralReader
from rkllm_mcp.toolcalls.repair import UnreadableError, plain
from rkllm_mcp.toolcalls.spelling import SpelledCall, read_json_calls

_FENCE = re.compile(r"\s*```[a-zA-Z_]*\s")
_NAME = re.compile(r"[^\W\d][\w.\-/]{0,127}")
_JSON_BEGINS = re.compile(r"\s*(?:\[\s*)?\{")
# Gemma's examples print what a call returns.
_WRAPPERS = ("print",)
# ChatGLM3 writes the name on a line of its own, and this in its place.
_PLACEHOLDER = "tool_call"
_HEADLINE = re.compile(r"\s*([^\W\d][\w.\-]{0,127})\s*\n\s*```")

GEMMA_DELIMITERS = ('<|"|>', "<escape>")


def read_python_calls(body: str) -> tuple[SpelledCall, ...]:
    """Calls in Python's spelling: a list of them, or one on each line; JSON where a model writes that instead.

    Args:
        body: the calls, in a code fence or not.

    Raises:
        UnreadableError: a call is not complete, or a value is not a literal.

    Llama 3.2 and 4, LFM2, Olmo 3, MiniCPM3, Gemma 2 and 3, ChatGLM3. A string may hold its own quote unescaped where
    only one place can end it (vLLM's rule).
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
        calls = (_renamed(calls[0], headline.group(1)),)
    return calls


def _renamed(call: SpelledCall, name: str) -> SpelledCall:
    return SpelledCall(name, call.arguments, repaired=call.repaired, positional=call.positional)


def _python_calls(reader: LiteralReader) -> tuple[SpelledCall, ...]:
    in_list = reader.takes("[")
    calls: list[SpelledCall] = []
    while not (reader.takes("]") if in_list else _is_done(reader)):
        calls.append(_python_call(reader))
        if not (reader.takes(",") or reader.takes(";")) and in_list:
            # The bracket behind the last call is the one that models leave out.
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


def _python_call(reader: LiteralReader) -> SpelledCall:
    reader.skip_space()
    found = _NAME.match(reader.text, reader.at)
    if found is None:
        raise UnreadableError("the call has no name")
    reader.at = found.end()
    reader.expect("(")
    if found.group() in _WRAPPERS and _NAME.match(reader.text, reader.at):
        inner = _python_call(reader)
        reader.expect(")")
        return inner
    positional: list[Any] = []
    values: dict[str, Any] = {}
    while not reader.takes(")"):
        key = reader.key("=")
        if key in values:
            raise UnreadableError(f"'{key}' is given twice")
        if key is None:
            positional.append(_plain(reader.value()))
        else:
            values[key] = _plain(reader.value())
        if not reader.takes(","):
            reader.expect(")")
            break
    return SpelledCall(
        found.group(),
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


def read_brace_call(body: str) -> tuple[SpelledCall, ...]:
    """One call in Gemma's spelling: ``call:f{k:<|"|>v<|"|>,n:3}``.

    Args:
        body: the call, from ``call:`` on.

    Raises:
        UnreadableError: it has no name, or its braces hold something else than keys and values.

    FunctionGemma (``<escape>``) and Gemma 4 (``<|"|>``); single quotes, bare words and a delimiter forgotten at the end
    are understood as Ollama does.
    """
    head, brace, _ = body.partition("{")
    name = head.strip().removeprefix("call:").removeprefix(":").strip()
    if not name:
        raise UnreadableError("the call has no name")
    if not brace:
        return (SpelledCall(name, {}, repaired=True),)
    reader = LiteralReader(body, GEMMA_DELIMITERS, bare_text=True)
    reader.at = len(head) + 1
    values = _plain(reader.pairs("}", ":"))
    if not _is_done(reader):
        raise UnreadableError("there is text behind the call")
    return (SpelledCall(name, values, repaired=reader.repaired),)
