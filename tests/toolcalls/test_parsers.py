"""Values as programs write them, and the calls that hold them."""

from __future__ import annotations

from typing import Any

import pytest

from rkllm_mcp.toolcalls.lenient_json import UnreadableError
from rkllm_mcp.toolcalls.parsers import GEMMA_DELIMITERS, LiteralReader, read_brace_call, read_python_calls

VALUES: dict[str, Any] = {
    "42": 42,
    "-10": -10,
    "007": 7,
    "3.14": 3.14,
    "1e3": 1000.0,
    "True": True,
    "false": False,
    "None": None,
    "null": None,
    "'a'": "a",
    '"it\'s"': "it's",
    "'a\nb'": "a\nb",
    r"'a\nb\d\'\u6771\U0001f600'": "a\nb\\d'東😀",
    "'''a 'b' c'''": "a 'b' c",
    "''": "",
    "[1, 'a', [True], {'k': None},]": [1, "a", [True], {"k": None}],
    "(1, 2)": [1, 2],
    "{}": {},
    "[]": [],
}


@pytest.mark.parametrize(("text", "value"), VALUES.items())
def test_a_literal_is_the_value_it_spells(text: str, value: Any) -> None:
    reader = LiteralReader(f" {text} ,")
    assert reader.value() == value
    assert type(reader.value) is not None
    assert reader.takes(",")


@pytest.mark.parametrize("text", ["", "word", "'open", "[1", "{'a'}", "3.10.5", "0x1F", "1_000", "'a' 'b'x["])
def test_text_that_is_not_a_literal_is_refused(text: str) -> None:
    with pytest.raises(UnreadableError):
        reader = LiteralReader(f"[{text}]" if text else text)
        reader.value()


def test_nesting_is_bounded() -> None:
    for text in ("[" * 5000, "{'a':" * 5000, "(" * 5000):
        with pytest.raises(UnreadableError, match="nested"):
            LiteralReader(text).value()


CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "[f(a=1), g()]": [("f", {"a": 1}), ("g", {})],
    "f(a=1)\ng(b='x')\n": [("f", {"a": 1}), ("g", {"b": "x"})],
    "```python\nf(a=1)\n```": [("f", {"a": 1})],
    "print(f(a='```'))": [("f", {"a": "```"})],
    "a.b-c(from='x', class=1)": [("a.b-c", {"from": "x", "class": 1})],
    "[f(a='sed -n '1,2p' x')]": [("f", {"a": "sed -n '1,2p' x"})],
    "[f(a='it's', b=2)]": [("f", {"a": "it's", "b": 2})],
    "f\n```python\ntool_call(a=1)\n```": [("f", {"a": 1})],
    '[{"name": "f", "arguments": {"a": 1}}]': [("f", {"a": 1})],
    "[f(a=1)": [("f", {"a": 1})],
}


@pytest.mark.parametrize(("text", "calls"), CALLS.items())
def test_calls_in_pythons_spelling_are_read(text: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    assert [(call.name, call.arguments) for call in read_python_calls(text)] == calls


@pytest.mark.parametrize("text", ["f", "f(", "f(a=)", "f(a=b)", "f(a=1, a=2)", "[f(a=1) x]", "[]", "f(**x)", "f()()"])
def test_text_that_is_not_a_call_in_pythons_spelling_is_refused(text: str) -> None:
    with pytest.raises(UnreadableError):
        read_python_calls(text)


BRACES: dict[str, tuple[str, dict[str, Any]]] = {
    'call:f{a:<|"|>x "y" \\n<|"|>,n:3,o:{b:true},l:[1,<|"|>z<|"|>]}': (
        "f",
        {"a": 'x "y" \\n', "n": 3, "o": {"b": True}, "l": [1, "z"]},
    ),
    "call:f{a:<escape>it's<escape>}": ("f", {"a": "it's"}),
    ":f{}": ("f", {}),
    "call:f": ("f", {}),
    "call:f{a:word here,b:'x'}": ("f", {"a": "word here", "b": "x"}),
    "call:f{a:':\\s*'<|\"|>}": ("f", {"a": ":\\s*"}),
    'call:f{a:<|"|>ls}': ("f", {"a": "ls"}),
    'call:f{a:ls<|"|>,b:1}': ("f", {"a": "ls", "b": 1}),
    'call:f{a:<|"|>ls<|"|>': ("f", {"a": "ls"}),
    "call:f{a:{b:[1": ("f", {"a": {"b": [1]}}),
}


@pytest.mark.parametrize(("text", "call"), BRACES.items())
def test_calls_in_gemmas_spelling_are_read(text: str, call: tuple[str, dict[str, Any]]) -> None:
    (read,) = read_brace_call(text)
    assert (read.name, read.arguments) == call


@pytest.mark.parametrize("text", ["{}", "call:{}", "call:f{a}", "call:f{a:1,a:2}", "call:f{a:}", "call:f{a:1} x"])
def test_text_that_is_not_a_call_in_gemmas_spelling_is_refused(text: str) -> None:
    with pytest.raises(UnreadableError):
        read_brace_call(text)
    assert GEMMA_DELIMITERS == ('<|"|>', "<escape>")
