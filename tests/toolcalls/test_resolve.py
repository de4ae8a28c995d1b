"""The line a model reads when its call cannot be made."""

from __future__ import annotations

from rkllm_mcp.events import ToolCallDetected
from rkllm_mcp.messages import ToolSpec, safe_name
from rkllm_mcp.toolcalls.detector import Detector
from rkllm_mcp.toolcalls.formats import HERMES
from rkllm_mcp.toolcalls.resolve import ToolCatalogue, resolve_call, signature
from tests.toolcalls.streams import TOOLS, WEATHER


def _reason(body: str, tools: tuple[ToolSpec, ...] = TOOLS) -> str:
    (event,) = resolve_call(HERMES, body, body, ToolCatalogue(tools)).events
    return getattr(event, "reason", "")


def test_a_signature_is_one_short_line() -> None:
    assert signature(WEATHER) == 'get_weather(city: string, days?: integer, unit?: "celsius"|"fahrenheit")'
    union = ToolSpec(
        "f", "", {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "b": {"$ref": "#"}}}
    )
    assert signature(union) == "f(a?: string|null, b?: object)"
    assert len(signature(ToolSpec("f", "", {"properties": {f"argument_{n}": {} for n in range(99)}}))) <= 240
    assert signature(ToolSpec("f", "", {"properties": [], "required": 5})) == "f()"


def test_an_unknown_name_is_answered_with_the_nearest_and_the_available_names() -> None:
    assert _reason('{"name": "get_wether", "arguments": {"city": "Tokyo"}}') == (
        "unknown tool 'get_wether'; did you mean 'get_weather'? Available: get_weather, write_note, get_time, anything."
        ' Call again: get_weather(city: string, days?: integer, unit?: "celsius"|"fahrenheit")'
    )


def test_a_name_like_no_other_is_answered_with_the_available_names() -> None:
    assert _reason('{"name": "xyz", "arguments": {}}', (WEATHER,)) == (
        "unknown tool 'xyz'. Available: get_weather. Call again with one of these."
    )


def test_of_very_many_names_the_nearest_is_listed_first_and_the_rest_is_cut() -> None:
    tools = tuple(ToolSpec(f"tool_{n}", "", {}) for n in range(50))
    reason = _reason('{"name": "tool_4O", "arguments": {}}', tools)
    assert "Available: tool_4" in reason
    assert ", …." in reason
    assert len(reason) < 400


def test_a_missing_argument_is_named_with_the_signature() -> None:
    assert _reason('{"name": "get_weather", "arguments": {"days": 2}}') == (
        "argument 'city' is missing. Call again: "
        'get_weather(city: string, days?: integer, unit?: "celsius"|"fahrenheit")'
    )


def test_an_unreadable_call_is_answered_with_the_exact_form_for_the_tool_it_names() -> None:
    assert _reason('{"name": "get_time", "arguments": {"zone": }') == (
        "not valid JSON. Call again: get_time(zone?: string), in exactly this form: "
        '<tool_call>{"name": "get_time", "arguments": {…}}</tool_call>'
    )


def test_a_long_strange_name_stays_one_short_line() -> None:
    reason = _reason('{"name": "' + "very\\nstrange " * 50 + '", "arguments": {}}')
    assert "\n" not in reason
    assert len(reason) < 300


def test_a_tool_whose_own_name_has_a_hundred_thousand_characters_is_called_by_its_short_name() -> None:
    tool = ToolSpec(safe_name("x" * 100_000), wire_name="x" * 100_000)
    call = ToolCallDetected(tool.name, {}, raw=f'<tool_call>{{"name": "{tool.name}", "arguments": {{}}}}</tool_call>')
    detector = Detector([tool, TOOLS[0]])
    assert [*detector.feed(call.raw), *detector.finish()] == [call]


def test_arguments_next_to_the_name_that_the_tool_does_not_have_are_refused() -> None:
    assert "under 'arguments'" in _reason('{"name": "get_weather", "point": [1, 2]}')
    assert "under 'arguments'" in _reason('{"name": "get_time", "argumens": {"zone": "x"}}')
