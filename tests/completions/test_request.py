"""OpenAI's body, translated; and what is said of a body that cannot be."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from rkllm_mcp.completions.chat_completions import ChatBody, chat_request
from rkllm_mcp.completions.request import ChatRequest, RequestContext, RequestRefusedError
from rkllm_mcp.completions.structured_output import ResponseFormat, SchemaCheck
from rkllm_mcp.generation import ForcedTool, ModelOptions
from rkllm_mcp.messages import Message, ToolCall, ToolResult, ToolSpec
from rkllm_mcp.sampling import Sampling, SamplingOverrides

Json = dict[str, Any]
USER: Json = {"role": "user", "content": "Hi"}
WEATHER: Json = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
TIME: Json = {"type": "function", "function": {"name": "get_time"}}
NAMED: Json = {"type": "function", "function": {"name": "get_weather"}}


def request(*messages: Json, host_tools: bool = False, **fields: Any) -> ChatRequest:
    body = ChatBody.model_validate({"model": "demo", "messages": list(messages or (USER,)), **fields})
    return chat_request(body, RequestContext(SchemaCheck(), host_tools))


def refusal(*messages: Json, **fields: Any) -> RequestRefusedError:
    with pytest.raises(RequestRefusedError) as raised:
        request(*messages, **fields)
    return raised.value


def call(call_id: str, arguments: str = '{"city": "Oslo"}', name: str = "get_weather") -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(call_id: str, text: str = "sunny") -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def test_a_conversation_of_every_role_becomes_turns() -> None:
    asked = request(
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}, {"type": "text", "text": "Rhyme."}]},
        {"role": "user", "content": "Weather?", "name": "Ann"},
        {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b", '{"city": "東京"}')]},
        result("b", "rain"),
        result("a"),
        {"role": "assistant", "content": "Sun and rain.", "reasoning_content": "hm"},
        {"role": "system", "content": "Now rhyme."},
        {"role": "user", "content": "More."},
    )
    oslo, tokyo = ToolCall("a", "get_weather", {"city": "Oslo"}), ToolCall("b", "get_weather", {"city": "東京"})
    assert asked.messages == (
        Message("system", "Be brief.\n\nBe kind.\nRhyme."),
        Message("user", "Ann: Weather?"),
        Message("assistant", calls=(oslo, tokyo)),
        Message("tool", results=(ToolResult("a", "get_weather", "sunny"), ToolResult("b", "get_weather", "rain"))),
        Message("assistant", "Sun and rain."),
        Message("user", "More.", context="Now rhyme."),
    )


def test_rules_that_no_words_follow_are_words_themselves() -> None:
    rule = {"role": "system", "content": "Rhyme."}
    answer = {"role": "assistant", "content": "Hello."}
    assert request(USER, rule).messages == (Message("user", "Hi"), Message("user", "Rhyme."))
    assert request(USER, rule, answer, USER).messages[1] == Message("user", "Rhyme.")
    assert request(rule).messages == (Message("system", "Rhyme."),)


def test_thousands_of_system_texts_are_read_once_each() -> None:
    rules = [{"role": "system", "content": "a"}] * 9_000
    told = "\n\n".join(["a"] * 9_000)
    assert request(*rules, USER).messages == (Message("system", told), Message("user", "Hi"))
    assert request(USER, *rules, USER).messages == (Message("user", "Hi"), Message("user", "Hi", context=told))


def test_calls_keep_a_number_that_no_later_call_gets_again() -> None:
    said = {"role": "assistant", "tool_calls": [call("call_7"), call("call_x")]}
    assert request(USER, said, result("call_7"), result("call_x")).calls_made == 7
    assert request().calls_made == 0


def test_tools_become_tools_and_a_tool_without_parameters_takes_none() -> None:
    asked = request(tools=[WEATHER, {"type": "function", "function": {"name": "now"}}])
    parameters = WEATHER["function"]["parameters"]
    assert asked.tools == (ToolSpec("get_weather", "Weather", parameters), ToolSpec("now"))


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, ModelOptions()),
        ({"max_tokens": 5}, ModelOptions(max_new_tokens=5)),
        ({"max_tokens": 5, "max_completion_tokens": 6}, ModelOptions(max_new_tokens=6)),
        ({"max_tokens": -1}, ModelOptions()),
        ({"stop": "\n"}, ModelOptions(stop=("\n",))),
        ({"stop": ["a", "b"]}, ModelOptions(stop=("a", "b"))),
        ({"tool_choice": "none"}, ModelOptions(tool_choice="none")),
        ({"tool_choice": "auto"}, ModelOptions()),
        ({"tool_choice": "required", "tools": [WEATHER, TIME]}, ModelOptions(tool_choice="required")),
        ({"tool_choice": "required", "tools": [WEATHER]}, ModelOptions(tool_choice=ForcedTool("get_weather"))),
        ({"tool_choice": NAMED, "tools": [WEATHER]}, ModelOptions(tool_choice=ForcedTool("get_weather"))),
        ({"tool_choice": NAMED, "mcp": True}, ModelOptions(tool_choice=ForcedTool("get_weather"))),
        ({"parallel_tool_calls": False}, ModelOptions(single_call=True)),
        ({"parallel_tool_calls": True}, ModelOptions()),
        ({"reasoning_effort": "none"}, ModelOptions(thinking=False)),
        ({"reasoning_effort": "high"}, ModelOptions(thinking=True)),
        ({"reasoning_effort": "high", "thinking": False}, ModelOptions(thinking=False)),
        ({"thinking": {"type": "enabled"}}, ModelOptions(thinking=True)),
        ({"think": False, "reasoning_effort": "max"}, ModelOptions(thinking=False)),
        ({"think": "low"}, ModelOptions(thinking=True)),
        ({"repeat_penalty": 1.1}, ModelOptions(sampling=SamplingOverrides(repeat_penalty=1.1))),
        ({"chat_template_kwargs": {"enable_thinking": False}}, ModelOptions(thinking=False)),
        ({"temperature": 0}, ModelOptions(sampling=SamplingOverrides(temperature=0))),
        ({"top_p": 0}, ModelOptions(sampling=SamplingOverrides(top_p=0))),
        ({"top_k": -1}, ModelOptions()),
        (
            {"top_p": 0.5, "top_k": 3, "repetition_penalty": 1.2, "frequency_penalty": -1, "presence_penalty": 2},
            ModelOptions(sampling=SamplingOverrides(None, 3, 0.5, 1.2, -1, 2)),
        ),
    ],
)
def test_every_parameter_becomes_a_wish(fields: Json, options: ModelOptions) -> None:
    assert request(**fields).options == options


def test_unknown_fields_of_programs_are_ignored() -> None:
    sent: Json = {
        "user": "u",
        "seed": 1,
        "store": False,
        "metadata": {},
        "service_tier": "auto",
        "made_up": [1],
        "n": 1,
    }
    assert request(**sent, logprobs=False, logit_bias={}, modalities=["text"]) == request()


def test_tools_that_no_window_has_room_for_are_refused_before_they_are_looked_at() -> None:
    # What is not JSON Schema would be found out by looking.
    odd = {**WEATHER["function"], "parameters": {"type": "object", "properties": {"x" * 1000: 3}}}
    many = [{"type": "function", "function": {**odd, "name": f"t{number}"}} for number in range(200)]
    refused = refusal(tools=many)
    assert (refused.param, refused.code) == ("tools", "context_length_exceeded")
    assert "no prompt has room" in str(refused)


def test_the_hosts_tools_are_run_when_asked_for_and_no_tools_are_sent() -> None:
    assert not request().host_tools
    assert request(mcp=True).host_tools
    assert request(host_tools=True).host_tools
    assert not request(host_tools=True, mcp=False).host_tools
    assert not request(mcp=True, tools=[WEATHER]).host_tools
    assert request(tokens={"crm": "t"}).tokens == {"crm": "t"}
    assert "secret" not in repr(request(tokens={"crm": "secret"}))


def test_the_form_of_the_answer_is_read() -> None:
    schema: Json = {"type": "object", "properties": {}}
    wanted: Json = {
        "type": "json_schema",
        "json_schema": {"name": "x", "schema": schema, "strict": True, "description": "d"},
    }
    assert request(response_format=wanted).form == ResponseFormat(schema, "d")
    assert request(response_format={"type": "json_object"}).form == ResponseFormat()
    assert request(response_format={"type": "text"}).form is None


SOUND = {
    "role": "user",
    "content": [{"type": "text", "text": "x"}, {"type": "input_audio", "input_audio": {"data": "aGk="}}],
}
ASKS = {"role": "assistant", "tool_calls": [call("a")]}


REFUSED: list[tuple[list[Json], Json, str, str]] = [
    ([SOUND], {}, "messages[0].content[1].type", "send parts of the type text, not 'input_audio'"),
    ([{"role": "user"}], {}, "messages[0].content", "has a content"),
    ([], {"n": 2}, "n", "send 1, or the request again"),
    ([], {"logprobs": True}, "logprobs", "no probabilities"),
    ([], {"logit_bias": {"1": 5.0}}, "logit_bias", "cannot favour"),
    ([], {"modalities": ["text", "audio"]}, "modalities", "is text"),
    ([], {"functions": [{}]}, "functions", "send tools"),
    ([], {"stop": ["a"] * 17}, "stop", "send 16 at most"),
    ([], {"tool_choice": "required"}, "tool_choice", "no tool to choose"),
    ([], {"tool_choice": NAMED}, "tool_choice", "no tool to choose"),
    (
        [],
        {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "fly"}}},
        "tool_choice",
        "no tool 'fly'",
    ),
    ([], {"response_format": {"type": "json_schema"}}, "response_format.json_schema", "send its name and schema"),
    (
        [],
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": 5}}}},
        "response_format.json_schema.schema",
        "schema of the answer cannot be used",
    ),
]


@pytest.mark.parametrize(("messages", "fields", "param", "said"), REFUSED)
def test_what_cannot_be_done_is_refused_naming_the_field(
    messages: list[Json], fields: Json, param: str, said: str
) -> None:
    error = refusal(*messages, **fields)
    assert error.param == param
    assert said in str(error)


OSLO = {"city": "Oslo"}
SEEN = ToolResult("a", "get_weather", "sunny")


@pytest.mark.parametrize(
    ("history", "read"),
    [
        ([result("a")], [Message("user", "[The result of a tool]\nsunny")]),
        (
            [ASKS, result("a"), result("a"), USER],
            [
                Message("assistant", calls=(ToolCall("a", "get_weather", OSLO),)),
                Message("tool", results=(SEEN,)),
                Message("user", "Hi", context="[The result of a tool]\nsunny"),
            ],
        ),
        (
            [ASKS, USER],
            [
                Message("assistant", calls=(ToolCall("a", "get_weather", OSLO),)),
                Message("tool", results=(ToolResult("a", "get_weather", "(no result)"),)),
                Message("user", "Hi"),
            ],
        ),
        (
            [{"role": "assistant", "tool_calls": [call("a"), call("a")]}, result("a", "one"), result("a", "two")],
            [
                Message("assistant", calls=(ToolCall("a", "get_weather", OSLO), ToolCall("a_1", "get_weather", OSLO))),
                Message(
                    "tool", results=(ToolResult("a", "get_weather", "one"), ToolResult("a_1", "get_weather", "two"))
                ),
            ],
        ),
    ],
)
def test_a_history_whose_calls_and_results_do_not_fit_is_repaired(history: list[Json], read: list[Message]) -> None:
    assert list(request(USER, *history).messages[1:]) == read


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (OSLO, OSLO),
        ("{'city': 'Oslo'}", OSLO),
        ('{"city": "Oslo"', OSLO),
        ("", {}),
        (None, {}),
        (" ", {}),
        ("[]", {}),
        ('"Oslo"', {"arguments": "Oslo"}),
        ("{oops", {"arguments": "{oops"}),
        ("[1, 2]", {"arguments": [1, 2]}),
        ("{" * 70_000, {"arguments": "{" * 70_000}),
    ],
)
def test_arguments_in_a_history_are_read_leniently_or_left_unchanged(written: Any, read: Json) -> None:
    said = {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": written}}]}
    assert request(USER, said, result("a")).messages[1].calls == (ToolCall("a", "f", read),)


def test_one_tool_that_cannot_be_used_costs_only_itself() -> None:
    pairs = {f"a{level}": {"anyOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2} for level in range(14)} | {"a14": {}}
    costly = {"type": "object", "properties": {"x": {"$ref": "#/$defs/a0"}}, "$defs": pairs}
    odd: list[tuple[str, Any]] = [
        ("list", {"type": "array"}),
        ("none", None),
        ("text", "x"),
        ("pattern", {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+(?<n>\\p{L})$"}}}),
        ("costly", costly),
        ("", {}),
    ]
    tools: list[Any] = [{"type": "function", "function": {"name": name, "parameters": each}} for name, each in odd]
    read = request(tools=[WEATHER, WEATHER, {"type": "web_search"}, *tools]).tools
    assert [tool.name for tool in read] == ["get_weather", "list", "none", "text", "pattern"]
    assert read[1].input_schema == {"type": "object", "properties": {}}
    assert read[4].input_schema == odd[3][1]


def test_names_that_models_cannot_write_are_mapped_for_the_model() -> None:
    names = ["calendar.read", "a/b", "読む", "x" * 100, "two words", "plain"]
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    choice = {"type": "function", "function": {"name": "a/b"}}
    asked = request(
        USER,
        {"role": "assistant", "tool_calls": [call("a", "{}", "calendar.read"), call("b", "{}", "gone.tool")]},
        result("a"),
        tools=tools,
        tool_choice=choice,
    )
    shown = [tool.name for tool in asked.tools]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in shown)
    assert len(set(shown)) == len(names)
    assert [tool.wire_name or tool.name for tool in asked.tools] == names
    assert [each.name for each in asked.messages[1].calls] == [shown[0], "gone_tool"]
    assert asked.options.forced_tool == shown[1]


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def test_a_picture_in_a_history_is_one_line() -> None:
    shown = {"role": "user", "content": [{"type": "text", "text": "Look"}, PICTURE]}
    tells = {**result("a"), "content": [{"type": "text", "text": "a map"}, PICTURE]}
    asked = request(shown, ASKS, tells, {"role": "user", "content": [PICTURE]})
    assert asked.messages[0].text == "Look\n[image, not shown]"
    assert asked.messages[2].results[0].text == "a map\n[image, not shown]"
    assert asked.messages[3].text == "[image, not shown]"


def test_a_line_that_changes_before_a_system_text_is_left_out() -> None:
    line = "x-anthropic-billing-header: cc_version=2.1.99.abc; cch=1;"
    for system in ([line, "Be brief."], [f"{line}\nBe brief."], ["Be brief."]):
        messages = [{"role": "system", "content": text} for text in system]
        assert request(*messages, USER).messages[0] == Message("system", "Be brief.")


@pytest.mark.parametrize(
    ("base", "wish", "sampling"),
    [
        (Sampling(), SamplingOverrides(temperature=0.3), Sampling(temperature=0.3)),
        (Sampling(), SamplingOverrides(temperature=0), Sampling(temperature=0, top_k=1)),
        (Sampling(temperature=0, top_k=1), SamplingOverrides(temperature=0.7), Sampling(temperature=0.7)),
        (Sampling(top_p=0.5), SamplingOverrides(top_p=0), Sampling(top_p=0.5, top_k=1)),
        (Sampling(temperature=0, top_k=1), SamplingOverrides(0.7, 5), Sampling(temperature=0.7, top_k=5)),
        (Sampling(top_k=7), SamplingOverrides(top_p=0.5), Sampling(top_k=7, top_p=0.5)),
    ],
)
def test_a_requested_option_changes_only_its_field(base: Sampling, wish: SamplingOverrides, sampling: Sampling) -> None:
    assert wish.over(base) == sampling


def test_a_request_has_its_last_sixteen_pictures_and_lines_about_the_earlier_ones() -> None:
    def shown(number: int) -> Json:
        url = f"data:image/png;base64,{base64.b64encode(f'picture {number}'.encode()).decode()}"
        return {"type": "image_url", "image_url": {"url": url}}

    said = [{"role": "user", "content": [shown(0), shown(1), {"type": "text", "text": "first"}]}]
    said += [{"role": "user", "content": [*map(shown, range(2, 18)), {"type": "text", "text": "second"}]}]
    body = ChatBody.model_validate({"model": "demo", "messages": said})
    first, second = chat_request(body, RequestContext(SchemaCheck(), False, sees=True)).messages
    assert (first.text, first.pictures) == ("[image, not shown]\n[image, not shown]\nfirst", ())
    assert (second.text, [picture.data for picture in second.pictures]) == (
        "second",
        [f"picture {number}".encode() for number in range(2, 18)],
    )
