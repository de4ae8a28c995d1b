"""Every field of a body is honoured, refused or documented as ignored: none is accepted without an effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from rkllm_mcp.completions.anthropic import CountBody, MessagesBody, messages_request
from rkllm_mcp.completions.api import ApiBody
from rkllm_mcp.completions.chat_completions import ChatBody, CompletionBody, chat_request, completion_request
from rkllm_mcp.completions.ollama import OllamaChat, OllamaGenerate, OllamaOptions, ollama_request
from rkllm_mcp.completions.request import ChatRequest, RequestContext, RequestRefusedError
from rkllm_mcp.completions.responses import ResponsesBody, StoredItems, responses_request
from rkllm_mcp.completions.structured_output import SchemaCheck

Json = dict[str, Any]
FUNCTION: Json = {"type": "object", "properties": {"city": {"type": "string"}}}
NESTED: Json = {"type": "function", "function": {"name": "look", "parameters": FUNCTION}}
SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "string"}}}
HELLO: Json = {"role": "user", "content": "hello"}
# A value for each field, which is not the one that the request is compared with has.
VALUES: Json = {
    "allowed_tools": ["look"],
    "chat_template_kwargs": {"enable_thinking": True},
    "continue_final_message": True,
    "enable_thinking": True,
    "format": "json",
    "frequency_penalty": 0.5,
    "guided_json": SCHEMA,
    "guided_choice": ["yes", "no"],
    "guided_regex": "[0-9]{3}",
    "guided_grammar": 'start: "yes" | "no"',
    "grammar": 'root ::= "yes" | "no"',
    "structured_outputs": {"choice": ["yes", "no"]},
    "images": ["iVBORw0KGgo="],
    "instructions": "Be brief.",
    "input": "goodbye",
    "json_schema": SCHEMA,
    "max_completion_tokens": 7,
    "max_output_tokens": 7,
    "max_tokens": 7,
    "max_tool_calls": 3,
    "mcp": True,
    "messages": [{"role": "user", "content": "goodbye"}],
    "num_predict": 7,
    "options": {"top_k": 3},
    "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    "output_format": {"type": "json_schema", "schema": SCHEMA},
    "parallel_tool_calls": False,
    "presence_penalty": 0.5,
    "prompt": "goodbye",
    "reasoning": {"effort": "high"},
    "reasoning_effort": "high",
    "repeat_penalty": 1.5,
    "repetition_penalty": 1.5,
    "response_format": {"type": "json_object"},
    "stop": ["end"],
    "stop_sequences": ["end"],
    "system": "Be brief.",
    "temperature": 0.25,
    "text": {"format": {"type": "json_object"}},
    "think": True,
    "thinking": {"type": "enabled"},
    "tokens": {"server": "secret"},
    "tool_choice": "none",
    "tools": [NESTED],
    "top_k": 3,
    "top_p": 0.25,
    "verbosity": "low",
}
# Read by the route and not by the reader: the model, the stream and what is stored or shown of the answer.
OF_THE_ROUTE = {"model", "stream", "stream_options", "x_events", "keep_alive", "echo", "store", "metadata"} | {
    *("previous_response_id", "thread")
}


class Case:
    """A body, how it is read, and values of fields that are others in this API."""

    __test__: ClassVar[bool] = False

    def __init__(
        self, body: type[ApiBody], least: Json, read: Callable[[Any, RequestContext], ChatRequest], **values: Any
    ) -> None:
        self.body, self.least, self.read, self.values = body, least, read, values

    def request(self, **fields: Any) -> ChatRequest | str:
        """Return the request of a body with these fields, or the refusal."""
        body = self.body.model_validate({**self.least, **fields})
        try:
            return self.read(body, RequestContext(SchemaCheck()))
        except RequestRefusedError as error:
            return f"refused: {error}"


ANTHROPIC: Json = {"messages": [HELLO], "model": "m", "max_tokens": 5}
ANTHROPIC_TOOLS = [{"name": "look", "input_schema": FUNCTION}]
RESPONSES_TOOLS = [{"type": "function", "name": "look", "parameters": FUNCTION}]
CASES = {
    "chat completions": Case(ChatBody, {"messages": [HELLO]}, chat_request),
    "completions": Case(
        CompletionBody, {"prompt": "hello"}, lambda body, context: completion_request(body, body.prompts[0], context)
    ),
    "responses": Case(
        ResponsesBody,
        {"input": "hello"},
        lambda body, context: responses_request(body, StoredItems(), context),
        tools=RESPONSES_TOOLS,
    ),
    "messages": Case(
        MessagesBody, ANTHROPIC, messages_request, tools=ANTHROPIC_TOOLS, tool_choice={"type": "none"}, max_tokens=7
    ),
    "count_tokens": Case(CountBody, {"messages": [HELLO], "model": "m"}, messages_request, tools=ANTHROPIC_TOOLS),
    "ollama chat": Case(OllamaChat, {"model": "m", "messages": [HELLO]}, ollama_request),
    "ollama generate": Case(OllamaGenerate, {"model": "m", "prompt": "hello"}, ollama_request, system="Be brief."),
}


def fields_of(case: Case) -> list[str]:
    return sorted({*case.body.model_fields} - OF_THE_ROUTE - {*case.body.REFUSED} - {*case.body.IGNORED})


@pytest.mark.parametrize(
    ("name", "field"), [(name, field) for name, case in CASES.items() for field in fields_of(case)]
)
def test_a_field_of_a_body_changes_the_request_or_is_refused(name: str, field: str) -> None:
    case = CASES[name]
    value = case.values.get(field, VALUES.get(field))
    assert value is not None, f"give {field} a value in VALUES"
    needed: Json = {}
    if field in ("tool_choice", "parallel_tool_calls"):
        needed = {"tools": case.values.get("tools", VALUES["tools"])}
        if name in ("messages", "count_tokens"):
            value = {"type": "none"}
    if field == "max_tool_calls":
        needed = {"mcp": True}
    assert case.request(**needed, **{field: value}) != case.request(**needed)


@pytest.mark.parametrize("name", CASES)
def test_a_field_that_is_refused_is_refused_by_its_name(name: str) -> None:
    case = CASES[name]
    for field in case.body.REFUSED:
        fields: Json = {**case.body.model_validate(case.least).__dict__, field: ["x"]}
        body = case.body.model_construct(None, **fields)
        with pytest.raises(RequestRefusedError) as refused:
            case.read(body, RequestContext(SchemaCheck()))
        assert refused.value.param == field


@pytest.mark.parametrize("field", OllamaOptions.model_fields)
def test_an_option_of_ollama_changes_the_request(field: str) -> None:
    case, value = CASES["ollama chat"], VALUES[field]
    assert case.request(options={field: value}) != case.request(options={})
