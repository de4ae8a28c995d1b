"""The rules of the detector, one table for each; every text is run whole, by character, in two and chopped."""

from __future__ import annotations

import json

import pytest

from rkllm_mcp.errors import UsageError
from rkllm_mcp.events import Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.toolcalls.detector import Detector
from rkllm_mcp.toolcalls.formats import SYNTAXES, marker_texts
from tests.toolcalls.streams import NOTE, TOOLS, events_of, merged, told

TOKYO = ("get_weather", {"city": "Tokyo"})
KYOTO = ("get_weather", {"city": "京都"})
HERMES = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Tokyo"}}\n</tool_call>'
HERMES_KYOTO = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "京都"}}\n</tool_call>'
MARKED = '[TOOL_CALL]\n{\n  "name": "get_weather",\n  "arguments": {"city": "Tokyo"}\n}\n[END_TOOL_CALL]'
XML = '<tool_call name="get_weather">\n  <argument name="city">Tokyo</argument>\n</tool_call>'

ONE_CALL = {
    "hermes as Qwen writes it": HERMES,
    "hermes without line breaks": '<tool_call>{"name":"get_weather","arguments":{"city":"Tokyo"}}</tool_call>',
    "hermes in a fence inside the tags": '<tool_call>\n```json\n{"name": "get_weather", "arguments": {"city": '
    '"Tokyo"}}\n```\n</tool_call>',
    "project JSON": MARKED,
    "project JSON with the other closer": '[TOOL_CALL]{"name":"get_weather","arguments":{"city":"Tokyo"}}[/TOOL_CALL]',
    "project XML": XML,
    "project XML in single quotes": "<tool_call name='get_weather'><argument name='city'>Tokyo</argument></tool_call>",
    "project XML with spaces around =": '<tool_call name = "get_weather" ><argument  name= "city" >Tokyo</argument >'
    "</tool_call >",
    "project XML without quotes": "<tool_call name=get_weather><argument name=city>Tokyo</argument></tool_call>",
    "project XML with framing line breaks": '<tool_call name="get_weather">\n<argument name="city">\nTokyo\n</argument>'
    "\n</tool_call>",
    "project XML with CDATA": '<tool_call name="get_weather"><argument name="city"> <![CDATA[Tokyo]]> </argument>'
    "</tool_call>",
    "project XML with Qwen's element name": '<tool_call name="get_weather"><parameter name="city">Tokyo</parameter>'
    "</tool_call>",
    "a list of one call": '<tool_call>[{"name": "get_weather", "arguments": {"city": "Tokyo"}}]</tool_call>',
    "arguments first": '<tool_call>{"arguments": {"city": "Tokyo"}, "name": "get_weather"}</tool_call>',
    "parameters for arguments": '<tool_call>{"name": "get_weather", "parameters": {"city": "Tokyo"}}</tool_call>',
    "arguments as a string": '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Tokyo\\"}"}</tool_call>',
    "OpenAI's wrapper": '<tool_call>{"type": "function", "function": {"name": "get_weather", "arguments": '
    '{"city": "Tokyo"}}}</tool_call>',
    "no closer at the end": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Tokyo"}}',
    "half a closer at the end": '<tool_call>{"name": "get_weather", "arguments": {"city": "Tokyo"}}\n</tool_',
    "the last bracket missing at the end": '<tool_call>{"name": "get_weather", "arguments": {"city": "Tokyo"}',
    "a bracket missing before the closer": '<tool_call>{"name": "get_weather", "arguments": {"city": "Tokyo"}\n'
    "</tool_call>",
    "a bracket too many": '<tool_call>{"name": "get_weather", "arguments": {"city": "Tokyo"}}}</tool_call>',
    "doubled braces": '<tool_call>{{"name": "get_weather", "arguments": {"city": "Tokyo"}}}</tool_call>',
    "Python's quotes": "<tool_call>{'name': 'get_weather', 'arguments': {'city': 'Tokyo',}}</tool_call>",
    "a quote missing before the brackets": '<tool_call>{"name": "get_weather", "arguments": {"city": "Tokyo}}\n'
    "</tool_call>",
    "an optional argument given as null": '<tool_call>{"name": "get_weather", "arguments": {"city": "Tokyo", "days": '
    "null}}</tool_call>",
    "the tool's long name": '<tool_call>{"name": "mcp__weather__get_weather", "arguments": {"city": "Tokyo"}}\n'
    "</tool_call>",
    "arguments beside the name": '<tool_call>{"name": "get_weather", "city": "Tokyo"}</tool_call>',
    "a byte order mark inside": '<tool_call>\ufeff{"name": "get_weather", "arguments": {"city": "Tokyo"}}</tool_call>',
}


@pytest.mark.parametrize("text", ONE_CALL.values(), ids=ONE_CALL.keys())
def test_a_call_is_found_however_it_is_written_and_cut(text: str) -> None:
    (event,) = events_of(text)
    assert isinstance(event, ToolCallDetected)
    assert (event.name, event.arguments) == TOKYO
    assert event.raw == text


def test_only_a_call_that_was_not_valid_as_written_is_marked_as_repaired() -> None:
    def repaired(text: str) -> bool:
        (event,) = events_of(text)
        assert isinstance(event, ToolCallDetected)
        return event.repaired

    assert not repaired(HERMES)
    assert not repaired(XML)
    assert not repaired(ONE_CALL["no closer at the end"])
    assert repaired(ONE_CALL["a bracket too many"])
    assert repaired(ONE_CALL["Python's quotes"])
    assert repaired(ONE_CALL["the last bracket missing at the end"])
    assert repaired(ONE_CALL["arguments beside the name"])


SEVERAL: dict[str, tuple[str, list[object]]] = {
    "text around calls of all three styles": (
        f"Let me see.\n{HERMES}\n{MARKED}\nAnd:\n{XML}\n",
        ["Let me see.\n", TOKYO, TOKYO, "\nAnd:\n", TOKYO],
    ),
    "calls without anything between": (HERMES + HERMES_KYOTO, [TOKYO, KYOTO]),
    "the same call twice": (HERMES + HERMES, [TOKYO, TOKYO]),
    "text behind a call keeps its white space": (f"{HERMES}\n\n Done.", [TOKYO, "\n\n Done."]),
    "a list of calls in one tag": (
        '<tool_call>[{"name": "get_weather", "arguments": {"city": "Tokyo"}}, {"name": "get_time"}]</tool_call>',
        [TOKYO, ("get_time", {})],
    ),
    "a list with junk in it": (
        '<tool_call>[{"name": "get_weather", "arguments": {"city": "Tokyo"}}, "junk"]</tool_call>',
        [TOKYO],
    ),
    "several objects in one tag": (
        HERMES.removesuffix("</tool_call>")
        + '{"name": "get_time"};\n{"name": "get_time", "arguments": {"zone": "JST"}}\n</tool_call>',
        [TOKYO, ("get_time", {}), ("get_time", {"zone": "JST"})],
    ),
    "an undeclared name between two calls": (
        f'{HERMES}<tool_call>{{"name": "rm", "arguments": {{}}}}</tool_call>{HERMES}',
        [TOKYO, ("failed", '<tool_call>{"name": "rm", "arguments": {}}</tool_call>'), TOKYO],
    ),
    "no closer before the next call": (HERMES.removesuffix("</tool_call>") + HERMES_KYOTO, [TOKYO, KYOTO]),
    "a quote missing in the first of two calls": (
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Tokyo}}</tool_call>\n' + HERMES_KYOTO + "\nSo.",
        [TOKYO, KYOTO, "\nSo."],
    ),
    "a quote missing in both of two calls": (
        "".join(
            f'<tool_call>{{"name": "get_weather", "arguments": {{"city": "{city}}}}}</tool_call>'
            for city in ("Tokyo", "京都")
        ),
        [TOKYO, KYOTO],
    ),
    "an argument not closed before the next call": (
        f'<tool_call name="get_weather"><argument name="city">Tokyo</tool_call>\n{XML}',
        [TOKYO, TOKYO],
    ),
    "an argument's closing tag misspelled": (
        '<tool_call name="get_weather"><argument name="city">Tokyo</argument1></tool_call>\n',
        [TOKYO],
    ),
    "an argument not closed before the next, on lines": (
        '<tool_call name="get_weather">\n<argument name="city">\nTokyo\n<argument name="days">3</argument></tool_call>',
        [("get_weather", {"city": "Tokyo", "days": 3})],
    ),
    "JSON inside the XML markers": ('<tool_call name="get_weather">{"city": "Tokyo"}</tool_call>', [TOKYO]),
    "self-closing": (
        "<tool_call name=\"get_time\"/><tool_call name='get_time' />",
        [("get_time", {}), ("get_time", {})],
    ),
    "no arguments at all": ('<tool_call name="get_time">\n</tool_call>', [("get_time", {})]),
    "a self-closing argument is empty text": (
        '<tool_call name="get_time"><argument name="zone"/></tool_call>',
        [("get_time", {"zone": ""})],
    ),
}


@pytest.mark.parametrize(("text", "expected"), SEVERAL.values(), ids=SEVERAL.keys())
def test_calls_and_text_come_out_in_their_order(text: str, expected: list[object]) -> None:
    assert told(text) == expected


BODIES = {
    "the closer in a string": "text with a literal </tool_call> inside",
    "an opener in a string": "text with <tool_call> inside",
    "a whole call in a string": HERMES,
    "a project call in a string": MARKED,
    "an XML call in a string": XML,
    "braces, quotes and backslashes": 'if (a["}{"] == \'\\\\\') { return "\\"" } ]]] }}}',
    "line breaks and unicode": "一行目\n二行目\t🌸\u2028",
    "a fence": "```json\n{}\n```",
    "thinking tags": "<think>hm</think>",
    "nothing": "",
    "entities": "Tom &amp; Jerry &lt;3 & <b>",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
@pytest.mark.parametrize("style", ["hermes", "json", "xml", "cdata"])
def test_text_inside_an_argument_is_never_structure(style: str, body: str) -> None:
    arguments = {"title": "t", "body": body}
    payload = json.dumps({"name": "write_note", "arguments": arguments}, ensure_ascii=False)
    value = f"<![CDATA[{body}]]>" if style == "cdata" else body
    text = {
        "hermes": f"<tool_call>\n{payload}\n</tool_call>",
        "json": f"[TOOL_CALL]{payload}[END_TOOL_CALL]",
    }.get(
        style,
        f'<tool_call name="write_note"><argument name="title">t</argument><argument name="body">{value}</argument>'
        "</tool_call>",
    )
    assert told(text + " end", tools=(NOTE,)) == [("write_note", arguments), " end"]


MENTIONS = {
    "a marker in a sentence": "Use the <tool_call> tag to call, and [TOOL_CALL] too.",
    "a marker at the end": "The tag is <tool_call>",
    "half a marker at the end": "The tag is <tool_c",
    "markers in quotes": 'Write "<tool_call>" or "[TOOL_CALL]".',
    "an XML marker without attributes": "A <tool_call element",
    "a placeholder": "Write <tool_call>{json}</tool_call> or <tool_call>{...}</tool_call>.",
    "prose in the tags": "<tool_call>not valid json</tool_call>",
    "a list that cannot be calls": "[TOOL_CALL]\n[1, 2]\n[END_TOOL_CALL]",
    "a code fence": f"Like so:\n```xml\n{HERMES}\n```\nThat is all.",
    "a longer fence around a fence": f"````\n```\n{HERMES}\n```\n````\n",
    "a fence that never closes": f"```\n{HERMES}",
    "backticks": f"Write `{HERMES}` and so on.",
    "a closer alone": "</tool_call>[END_TOOL_CALL]</argument>",
    "think tags when thinking is off": "<think>hm</think> yes",
    "NUL and byte order mark": "\ufeff\x00<\x00tool_call>",
    "a marker after much white space": "<tool_call>" + " " * 80 + "{",
    "only white space": " \n\t ",
    "nothing": "",
}


@pytest.mark.parametrize("text", MENTIONS.values(), ids=MENTIONS.keys())
def test_a_marker_that_is_only_mentioned_is_text(text: str) -> None:
    assert told(text) == ([text] if text else [])


OTHERS = {
    "Mistral's marker": '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Tokyo"}}]',
    "a longer tag": '<tool_calls>{"name": "get_weather", "arguments": {"city": "Tokyo"}}</tool_calls>',
    "Qwen3-Coder's form": "<tool_call>\n<function=get_weather>\n<parameter=city>\nTokyo\n</parameter>\n</function>\n"
    "</tool_call>",
    "a bare object": '{"name": "get_weather", "arguments": {"city": "Tokyo"}}',
    "a bare list": '[get_weather(city="Tokyo")]',
    "a bare call": 'get_weather(city="Tokyo")',
    "a fence": '```json\n{"name": "get_weather", "arguments": {"city": "Tokyo"}}\n```',
    "tags in a fence": f"```xml\n{HERMES}\n```\n",
    "a closer that is misspelt": '<tool_call>{"name": "get_weather", "arguments": {"city": "Tokyo"}}</tool_cal>',
    "a closer alone": '{"name": "get_weather", "arguments": {"city": "Tokyo"}}\n</tool_call>',
}


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_every_model_may_write_the_forms_of_others(syntax: str) -> None:
    for label, text in OTHERS.items():
        assert told(text, syntaxes=[syntax]) == [TOKYO], label


NOT_ALONE = {
    "an object with words behind it": '{"name": "get_weather", "arguments": {"city": "Tokyo"}} is how.',
    "an object with words before it": 'So: {"name": "get_weather", "arguments": {"city": "Tokyo"}}',
    "an object of another tool behind words": 'So:\n{"name": "get_wether", "arguments": {"city": "Tokyo"}}',
    "an object of another tool before words": '{"name": "get_wether", "arguments": {"city": "Tokyo"}}\nis it.',
    "an object with more than a call": '{"name": "get_wether", "arguments": {"city": "Tokyo"}, "age": 3}',
    "the declaration of a tool": '{"name": "get_time", "description": "", "parameters": {"type": "object"}}',
    "a call in a program": 'import tools\nget_weather(city="Tokyo")\nprint(1)',
    "a call in a fence of Python": '```python\nget_weather(city="Tokyo")\n```',
    "a fence with words behind it": f"```xml\n{HERMES}\n```\nSo it looks.",
    "a fence with words before it": '```json\n{"name": "get_weather", "arguments": {"city": "Tokyo"}}\n``` and so on',
    "a list in a quotation": '> [get_weather(city="Tokyo")]',
    "an object that does not end": '{"name": "get_weather", "arguments": {"city": "Tok',
    "an example in a span": 'Write `so: <tool_call>{"name": "get_time", "arguments": {}}</tool_call>`.',
}


@pytest.mark.parametrize("text", NOT_ALONE.values(), ids=NOT_ALONE.keys())
def test_a_form_without_a_marker_that_is_not_a_valid_call_alone_is_text(text: str) -> None:
    calls = [event for event in events_of(text, syntaxes=["hermes"]) if not isinstance(event, ToolCallFailed)]
    assert merged(calls) == [Text(text)]


def test_a_response_that_the_model_invents_is_not_shown() -> None:
    made_up = '<tool_response>\n{"sky": "blue"}\n</tool_response>'
    assert told(f"{HERMES}\n{made_up}\nIt is sunny.") == [TOKYO, "\nIt is sunny."]
    assert told(f"{HERMES}{made_up}{XML}") == [TOKYO, *told(XML)]
    assert told(f"{HERMES}\n<tool_response>\nand no end") == [TOKYO]
    assert told(f"A {made_up} is what the host writes.") == [f"A {made_up} is what the host writes."]


def test_a_call_after_a_closed_fence_is_a_call() -> None:
    assert told(f"```\ncode\n```\n{HERMES}") == ["```\ncode\n```\n", TOKYO]


def test_a_call_after_an_answer_that_began_in_a_fence_is_a_call() -> None:
    fenced = '```json\n{"name": "get_weather", "arguments": {"city": "Tokyo"}}\n```\n\nAnd now:\n'
    assert told(f"{fenced}{HERMES}") == [fenced, TOKYO]


def test_closers_at_the_end_that_belong_to_no_call_are_left_out_however_they_arrive() -> None:
    assert told("It is done. </tool_call> </function>") == ["It is done. "]


def test_a_mention_and_a_call_in_one_answer_are_distinguished() -> None:
    assert told(f"A <tool_call> follows: {HERMES}") == ["A <tool_call> follows: ", TOKYO]


def test_without_tools_everything_is_text_and_nothing_waits() -> None:
    text = f" \n{HERMES}\n{XML}"
    assert told(text, tools=()) == [text]
    detector = Detector(())
    assert [detector.feed(character) for character in text] == [[Text(character)] for character in text]


def test_an_unknown_syntax_or_thinking_mode_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="project_json, project_xml, hermes"):
        Detector(TOOLS, ["herms"])
    with pytest.raises(UsageError, match="off, auto, open"):
        Detector(TOOLS, thinking="on")  # pyright: ignore[reportArgumentType] - what the command line may pass


def test_a_finished_detector_gives_nothing_more_and_takes_nothing_more() -> None:
    detector = Detector(TOOLS)
    detector.feed("<tool")
    assert detector.finish() == [Text("<tool")]
    assert detector.finish() == []
    with pytest.raises(UsageError, match="new one"):
        detector.feed("more")


def test_a_call_is_reported_in_the_feed_that_brings_its_closer() -> None:
    detector = Detector(TOOLS)
    assert detector.feed(HERMES[:-1]) == []
    (event,) = detector.feed(HERMES[-1])
    assert isinstance(event, ToolCallDetected)
    detector = Detector(TOOLS)
    (event,) = detector.feed(XML)
    assert isinstance(event, ToolCallDetected)


def test_text_that_cannot_become_a_marker_comes_out_in_the_feed_that_brought_it() -> None:
    text = "a < b, c <t, x[0] [T [TOOL <tool <tool_cat> <tool_call>x <tool_call-> `<` [END_TOOL_CALL] ですね。"
    detector = Detector(TOOLS, ["project_json", "project_xml", "hermes"])
    shown = ""
    for count, character in enumerate(text, 1):
        shown += "".join(event.text for event in detector.feed(character) if isinstance(event, Text))
        held = text[len(shown) : count]
        # At the beginning of a line a tool's name may begin a call.
        openers = (*marker_texts(["hermes"]), *(f"{tool.name}(" for tool in TOOLS if not shown))
        # A name may follow, and after it a tag.
        may_begin = any(opener.startswith(held) or f"{opener}x <arg_key>".startswith(held) for opener in openers)
        assert may_begin or not held, f"{held!r} was held back"
    assert shown == text


def test_white_space_waits_only_at_the_edges_of_calls() -> None:
    detector = Detector(TOOLS)
    assert detector.feed(" \n") == []
    assert detector.feed("So ") == [Text(" \nSo ")]
    assert detector.feed(" \n ") == [Text(" \n ")]
    assert isinstance(detector.feed(XML)[0], ToolCallDetected)
    assert detector.feed("\n") == []
    assert detector.feed("then") == [Text("\nthen")]


def test_of_several_calls_in_one_list_the_first_carries_the_raw_text() -> None:
    text = '<tool_call>[{"name": "get_time"}, {"name": "get_time"}]</tool_call>'
    first, second = events_of(text)
    assert isinstance(first, ToolCallDetected)
    assert isinstance(second, ToolCallDetected)
    assert (first.raw, second.raw) == (text, "")


def test_of_several_objects_in_one_tag_each_carries_its_own_raw_text() -> None:
    text = '<tool_call>{"name": "get_time"}\n{"name": "get_time"}</tool_call>'
    raws = [event.raw for event in events_of(text) if isinstance(event, ToolCallDetected)]
    assert raws == ['<tool_call>{"name": "get_time"}\n', '{"name": "get_time"}</tool_call>']


def test_a_tool_shown_under_its_long_name_is_not_confused_with_the_others() -> None:
    long_names = tuple(
        ToolSpec(f"mcp__{server}__read", "", {}, server=server, wire_name="read") for server in ("files", "mail")
    )
    call = '<tool_call>{"name": "mcp__mail__read", "arguments": {}}</tool_call>'
    assert told(call, tools=long_names) == [("mcp__mail__read", {})]
    (event,) = events_of('<tool_call>{"name": "read", "arguments": {}}</tool_call>', tools=long_names)
    assert isinstance(event, ToolCallFailed)
    assert "mcp__files__read, mcp__mail__read" in event.reason


MISSED = {
    "words in the tags": "<tool_call>get_weather for Tokyo</tool_call>",
    "a call in words": "I will look.\n<tool_call>\ncall get_weather with city Tokyo\n</tool_call>\n",
    "the wrong brackets": "[TOOL_CALL] get_weather: Tokyo [END_TOOL_CALL]",
}


@pytest.mark.parametrize("text", MISSED.values(), ids=MISSED.keys())
def test_markup_that_is_taken_for_text_is_shown_and_the_model_gets_a_line(text: str) -> None:
    *shown, failed = events_of(text, syntaxes=["hermes"])
    assert shown == [Text(text)]
    assert isinstance(failed, ToolCallFailed)
    assert failed.raw == ""
    assert "Call again: get_weather(city: string" in failed.reason


OBJECTS = {
    "without a required key": ('{"name": "get_weather", "arguments": {"days": 3}}', "Call again: get_weather(city"),
    "of another tool": ('{"name": "get_wether", "arguments": {"city": "Tokyo"}}\n', "did you mean 'get_weather'?"),
    "of no tool": ('{"name": "poem", "arguments": {"about": "autumn"}}', "unknown tool 'poem'"),
    "without arguments": ('{"name": "joyful", "arguments": null}', "unknown tool 'joyful'"),
    "with a result": ('{"name": "poem", "arguments": {}, "response": "Leaves"}', "unknown tool 'poem'"),
    "of words for a name": (
        '{"name": "good morning!", "arguments": {"to": "Bonjour"}}',
        "unknown tool 'good morning!'",
    ),
    "in Japanese": (
        '{"name": "こんにちは！", "arguments": {"message": "こんにちは！"}}',
        "unknown tool 'こんにちは！'",
    ),
    "without the last brace": (
        '{"name": "こんにちは！", "arguments": {"message": "こん"}',
        "unknown tool 'こんにちは！'",
    ),
    "with a number": ('```json\n{"name": "get_weather", "arguments": 158}\n```', "Call again: get_weather(city"),
    "in a fence": ('```json\n{"name": "get_weather", "arguments": {"days": 3}}\n```', "Call again: get_weather(city"),
    "in a fence, of no tool": ('```\n{"name": "poem", "arguments": {}}\n```', "unknown tool 'poem'"),
}


@pytest.mark.parametrize("syntaxes", [["hermes"], ["qwen25_coder"], ["gemma3"]])
@pytest.mark.parametrize(("text", "reason"), OBJECTS.values(), ids=OBJECTS.keys())
def test_an_object_of_name_and_arguments_as_the_whole_answer_is_never_shown(
    text: str, reason: str, syntaxes: list[str]
) -> None:
    for events in (events_of(text, syntaxes=syntaxes), events_of(f"\n {text} \n", syntaxes=syntaxes)):
        (failed,) = events
        assert isinstance(failed, ToolCallFailed)
        assert reason in failed.reason


SUM = ToolSpec("calculate", "", {"type": "object", "properties": {"expression": {"type": "string"}}})


@pytest.mark.parametrize(
    ("arguments", "expression"),
    [("4871 * 392", "4871 * 392"), ('"4871 * 392"', "4871 * 392"), ("(158 + 67) / 9 ", "(158 + 67) / 9")],
)
def test_a_value_in_place_of_the_object_is_that_of_the_only_parameter(arguments: str, expression: str) -> None:
    text = f'{{"name": "calculate", "arguments": {arguments}}}'
    for written in (text, f"```json\n{text}\n```", f"<tool_call>\n{text}\n</tool_call>"):
        (event,) = events_of(written, tools=[SUM], syntaxes=["hermes"])
        assert isinstance(event, ToolCallDetected)
        assert (event.arguments, event.repaired) == ({"expression": expression}, True)


def test_a_result_that_the_model_invents_in_a_call_is_ignored() -> None:
    text = '{"name": "get_weather", "arguments": {"city": "Tokyo"}, "result": {"sky": "clear"}}'
    for syntaxes in (["hermes"], ["qwen25_coder"]):
        assert told(text, syntaxes=syntaxes) == [("get_weather", {"city": "Tokyo"})]


NOT_MEANT = {
    "a sentence with a marker": "<tool_call> is the tag for get_weather.",
    "words behind the markup": "<tool_call>get_weather now</tool_call> is wrong",
    "no tool named": "<tool_call>the weather</tool_call>",
    "words behind an object": '{"name": "get_weather", "arguments": {}}\nis an object.',
}


@pytest.mark.parametrize("text", NOT_MEANT.values(), ids=NOT_MEANT.keys())
def test_markup_in_a_sentence_is_only_text(text: str) -> None:
    assert events_of(text, syntaxes=["hermes"]) == [Text(text)]


def test_an_unknown_tool_is_reported_as_unknown_in_every_format() -> None:
    for text in (
        '<tool_call>{"name": "send_fax", "arguments": {"to": }}</tool_call>',
        "<tool_call>send_fax(to=x y)</tool_call>",
        '<tool_call>{"name": "send_fax", "arguments": {}}</tool_call>',
    ):
        (failed,) = events_of(text, syntaxes=["hermes"])
        assert isinstance(failed, ToolCallFailed)
        assert failed.reason.startswith("unknown tool 'send_fax'"), failed.reason
