"""OpenAI's chat completions and the older text completions: bodies, their reading, and the writing of answers.

    ChatBody ─▶ chat_request ─▶ ChatRequest ─▶ … ─▶ Reply ─▶ ChatShape ─▶ chat completion object, or its chunks

The joined deltas of a stream equal the message of the response object. ``usage`` includes every round. Thinking is sent
as ``reasoning_content``, as by DeepSeek, vLLM and llama.cpp.

Follows OpenAI's API reference: chat completions, the objects chat completion, chat completion chunk and completion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import BeforeValidator, Field

from rkllm_mcp.completions import api
from rkllm_mcp.completions.reply import Json, Part, Reply, ReplyShape, record
from rkllm_mcp.completions.request import (
    ChatRequest,
    HistoryCall,
    MessageHistory,
    RequestContext,
    RequestRefusedError,
    allowed_tools,
    answer_form,
    choose_tool,
    client_tools,
    model_options,
    text_form,
)
from rkllm_mcp.completions.structured_output import ResponseFormat, SchemaCheck
from rkllm_mcp.events import text_to_json, to_json
from rkllm_mcp.messages import Message
from rkllm_mcp.sampling import Api, overrides_of

# Placeholder for the text of a chunk; in no model's name.
_PLACE = "\0text\0"
_DONE = "data: [DONE]\n\n"
_FIELDS = {"text": "content", "thinking": "reasoning_content"}


def known_choice(value: Any) -> Any:
    """Return the choice of a tool as chat completions write it, from the forms of other APIs; others as they are."""
    if value == "any":
        return "required"
    if not isinstance(value, dict):
        return value
    choice = cast("dict[str, Any]", value)
    kind = choice.get("type")
    if kind in ("auto", "none", "required", "any"):
        return known_choice(kind)
    if kind in ("function", "tool") and "name" in choice:
        return {"type": "function", "function": {"name": choice["name"]}}
    return choice


MOST_PROMPTS = 32
# Long enough for the token ids of a prompt, which are refused with their own sentence.
MOST_PROMPT_ITEMS = 131_072


class CalledFunction(api.ApiBody):
    """The function of a call in an assistant's message; its arguments may also be an object."""

    name: str
    arguments: str | dict[str, Any] | list[Any] | None = None


class MessageCall(api.ApiBody):
    """A call in an assistant's message."""

    id: str | None = None
    function: CalledFunction


class BodyMessage(api.ApiBody):
    """One message."""

    role: api.Role
    content: Annotated[
        str | Annotated[list[api.ContentPart], Field(max_length=api.MOST_PARTS)] | None,
        BeforeValidator(api.content_parts, json_schema_input_type=api.LooseContent),
    ] = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: Annotated[list[MessageCall], Field(max_length=api.MOST_TOOLS)] | None = None
    tool_call_id: str | None = None


class ChosenFunction(api.ApiBody):
    """The function that has to be called."""

    name: Annotated[str, Field(max_length=256)]


class ChosenTool(api.ApiBody):
    """The tool that has to be called."""

    type: Literal["function"]
    function: ChosenFunction


class AllowedTools(api.ApiBody):
    """The tools that may be called, and whether one has to be."""

    mode: Literal["auto", "required"] = "auto"
    tools: api.Tools


class AllowedChoice(api.ApiBody):
    """The choice of tools that may be called."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


ToolChoice = Annotated[
    Literal["none", "auto", "required"] | ChosenTool | AllowedChoice | None, BeforeValidator(known_choice)
]


class JsonSchemaFormat(api.ApiBody):
    """The schema of an answer; it always holds, so ``strict`` makes no difference."""

    # "schema" is a method of every pydantic model.
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    name: str = "answer"
    description: str | None = None


class ResponseFormatBody(api.ApiBody):
    """The form of an answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None
    # As llama.cpp takes it, next to json_object; "schema" is a method of every pydantic model.
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None


class StreamOptions(api.ApiBody):
    """Options of a stream."""

    include_usage: bool | None = None


class ThinkingSwitch(api.ApiBody):
    """Switch for thinking, as Anthropic's and some of OpenAI's clients send it."""

    type: str


class TemplateSwitches(api.ApiBody):
    """Switch for thinking, as clients of vLLM and llama.cpp send it, for some models by another name."""

    enable_thinking: bool | None = None
    thinking: bool | None = None


# More are no choice for a model that reads them all.
MOST_CHOICES = 1_000


class StructuredOutputs(api.ApiBody):
    """The form of an answer as newer releases of vLLM take it; exactly one of them."""

    json_: dict[str, Any] | None = Field(default=None, alias="json")
    choice: Annotated[list[str], Field(max_length=MOST_CHOICES)] | None = None
    regex: str | None = None
    grammar: str | None = None
    json_object: bool | None = None


_APIS: tuple[Api, ...] = ("openai", "compatible")


class SamplingBody(api.add_sampling(api.WholeBody, *_APIS)):
    """Fields that chat and text completions share."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: api.Limit | None = None
    stop: str | list[str] | None = None
    n: api.Integer | None = None
    logit_bias: dict[str, float] | None = None


class ChatBody(SamplingBody):
    """POST /v1/chat/completions."""

    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "n": api.ONE_ANSWER,
        "logprobs": api.LOGPROBS,
        "top_logprobs": api.LOGPROBS,
        "logit_bias": api.LOGIT_BIAS,
        "modalities": ("the answer is text; leave it out", ["text"]),
        "functions": ("functions became tools; send tools and tool_choice",),
        "web_search_options": ("nothing is searched on the web; offer a tool for it",),
        **api.belongs_to("/v1/responses", "text", instead="send response_format"),
        **api.belongs_to("/v1/responses", "instructions", instead="send a message of the role system"),
        **api.belongs_to("/v1/responses", "input", "previous_response_id", instead="send messages"),
        **api.belongs_to("/v1/messages", "system", instead="send a message of the role system"),
        **api.belongs_to("/v1/messages", "output_config", instead="send response_format"),
        **api.belongs_to("/api/chat", "format", instead="send response_format"),
        **api.OF_OTHER_SERVERS,
    }
    IGNORED = (
        *("audio", "function_call", "metadata", "moderation", "prediction", "prompt_cache_key", "prompt_cache_options"),
        *("prompt_cache_retention", "safety_identifier", "seed", "service_tier", "store", "user"),
    )

    messages: Annotated[list[BodyMessage], Field(min_length=1, max_length=api.MOST_MESSAGES)]
    max_completion_tokens: api.Limit | None = None
    think: api.ThinkLevel | None = None
    response_format: ResponseFormatBody | None = None
    tools: api.Tools | None = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: api.ThinkLevel | None = None
    thinking: bool | ThinkingSwitch | None = None
    chat_template_kwargs: TemplateSwitches | None = None
    continue_final_message: bool | None = None
    logprobs: bool | None = None
    top_logprobs: api.Integer | None = None
    modalities: list[str] | None = None
    functions: list[Any] | None = None
    # Of the Responses API, and of Anthropic's.
    max_output_tokens: api.Limit | None = None
    stop_sequences: list[str] | None = None
    # Of OpenRouter, and of Qwen's service.
    reasoning: api.ThinkLevel | None = None
    enable_thinking: bool | None = None
    # A JSON Schema of the answer, as vLLM and llama.cpp take it.
    guided_json: dict[str, Any] | None = None
    json_schema: dict[str, Any] | None = None
    # Other forms of the answer, as vLLM (the next four) and llama.cpp (``grammar``) take them.
    guided_choice: Annotated[list[str], Field(max_length=MOST_CHOICES)] | None = None
    guided_regex: str | None = None
    guided_grammar: str | None = None
    structured_outputs: StructuredOutputs | None = None
    grammar: str | None = None
    verbosity: api.Verbosity | None = None
    web_search_options: dict[str, Any] | None = None
    # Of this service.
    mcp: bool | None = None
    tokens: api.Tokens | None = None
    x_events: bool | None = None


class CompletionBody(SamplingBody):
    """POST /v1/completions: the older API; each prompt becomes a user's question, and has its own choice."""

    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "n": api.ONE_ANSWER,
        "best_of": api.ONE_ANSWER,
        "logprobs": api.LOGPROBS,
        "logit_bias": api.LOGIT_BIAS,
        "suffix": api.NO_GAPS,
        **api.belongs_to("/v1/chat/completions", "messages", "tools", "response_format", instead="ask that"),
        **api.GRAMMARS,
        **api.OF_OTHER_SERVERS,
    }
    IGNORED = ("seed", "user")

    prompt: str | Annotated[list[Any], Field(min_length=1, max_length=MOST_PROMPT_ITEMS)]
    echo: bool | None = None
    best_of: api.Integer | None = None
    logprobs: api.Integer | None = None
    suffix: str | None = None

    @property
    def prompts(self) -> Sequence[str]:
        """The prompts; a RequestRefusedError for token ids."""
        prompts = [self.prompt] if isinstance(self.prompt, str) else self.prompt
        texts = [prompt for prompt in prompts if isinstance(prompt, str)]
        if len(texts) < len(prompts):
            raise RequestRefusedError("token ids are not taken; send a text, or a list of texts", "prompt")
        if len(texts) > MOST_PROMPTS:
            raise RequestRefusedError(f"{MOST_PROMPTS} prompts are answered at most; send fewer", "prompt")
        return texts


def chat_request(body: ChatBody, context: RequestContext) -> ChatRequest:
    """Return the request of a chat completion; a RequestRefusedError names a field that cannot be honoured."""
    api.refuse_impossible(body)
    declared, choice = api.declarations(body.tools or ()), body.tool_choice
    mode, forced = choice if isinstance(choice, str) else None, None
    if isinstance(choice, ChosenTool):
        forced = choice.function.name
    elif isinstance(choice, AllowedChoice):
        names = {tool.name for tool in api.declarations(choice.allowed_tools.tools)}
        declared, mode = allowed_tools(declared, names, choice.allowed_tools.mode)
    tools = client_tools(declared)
    host_tools = context.runs_host_tools(tools, body.mcp)
    history = MessageHistory(tools, context)
    history.add_system(api.LENGTHS[body.verbosity])
    for index, message in enumerate(body.messages):
        calls = (HistoryCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ())
        history.add(
            message.role,
            message.refusal if message.role == "assistant" and not message.content else api.blocks_of(message.content),
            f"messages[{index}]",
            name=message.name,
            calls=calls,
            call_id=message.tool_call_id,
            is_question=index == len(body.messages) - 1,
        )
    switches, thinking = body.chat_template_kwargs or TemplateSwitches(), body.thinking
    levels = (
        thinking.type != "disabled" if isinstance(thinking, ThinkingSwitch) else thinking,
        body.think,
        switches.thinking if switches.enable_thinking is None else switches.enable_thinking,
        body.enable_thinking,
        body.reasoning_effort,
        body.reasoning,
    )
    options = model_options(
        choose_tool(mode, forced, tools, host_tools=host_tools),
        limit=body.max_completion_tokens or body.max_tokens or body.max_output_tokens,
        sampling=overrides_of(body, _APIS),
        stop=body.stop if body.stop is not None else body.stop_sequences,
        thinking=next((level for level in levels if level is not None), None),
        single_call=body.parallel_tool_calls is False,
    )
    # vLLM's and llama.cpp's clients say so; others mean it by the order of the messages.
    continues = history.ends_with_answer and body.continue_final_message is not False
    if body.continue_final_message and not continues:
        message = "there is no answer to continue; the last message has to be the assistant's, with a text"
        raise RequestRefusedError(message, "continue_final_message")
    form = _form(body, context.check_schema)
    options = replace(options, continues=continues)
    return ChatRequest(history.messages(), tools, options, form, host_tools, tokens=body.tokens or {})


def _form(body: ChatBody, check: SchemaCheck) -> ResponseFormat | None:
    """Return the form of an answer: ``response_format``, or else the first of those of vLLM and llama.cpp."""
    sent, newer = body.response_format, body.structured_outputs or StructuredOutputs()
    if sent is not None and sent.json_schema is not None:
        schema, description = sent.json_schema.schema_ or {}, sent.json_schema.description
        return answer_form(sent.type, schema, check, "response_format.json_schema", description)
    if sent is not None:
        is_missing = sent.type == "json_schema" and sent.schema_ is None
        return answer_form(sent.type, sent.schema_, check, f"response_format{'.json_schema' if is_missing else ''}")
    schemas = {
        "guided_json": body.guided_json,
        "json_schema": body.json_schema,
        "structured_outputs.json": newer.json_,
    }
    for name, schema in schemas.items():
        if schema is not None:
            return answer_form("json_schema", schema, check, name)
    if newer.json_object:
        return ResponseFormat()
    texts: tuple[tuple[Literal["choice", "regex", "grammar"], str, str | list[str] | None], ...] = (
        ("choice", "guided_choice", body.guided_choice),
        ("choice", "structured_outputs.choice", newer.choice),
        ("regex", "guided_regex", body.guided_regex),
        ("regex", "structured_outputs.regex", newer.regex),
        ("grammar", "grammar", body.grammar),
        ("grammar", "guided_grammar", body.guided_grammar),
        ("grammar", "structured_outputs.grammar", newer.grammar),
    )
    for kind, name, text in texts:
        if text:
            return text_form(kind, text if isinstance(text, str) else to_json(text), name)
    return None


def completion_request(body: CompletionBody, prompt: str, context: RequestContext) -> ChatRequest:
    """Return the request of a prompt of a text completion; see ``chat_request``."""
    api.refuse_impossible(body)
    options = model_options(
        limit=body.max_tokens,
        sampling=overrides_of(body, _APIS),
        stop=body.stop,
    )
    message, names = Message("user", prompt), {"messages": "prompt"}
    return ChatRequest((message,), options=options, host_tools=context.host_tools, field_names=names)


FinishReason = Literal["stop", "length", "tool_calls"]


class ResponseFunction(api.ResponsePart):
    """The function of a call; ``arguments`` are a JSON object as text."""

    name: str
    arguments: str


class ResponseCall(api.ResponsePart):
    """A call for the program to make."""

    id: str
    type: Literal["function"]
    function: ResponseFunction


class ReplyMessage(api.ResponsePart):
    """The answer."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    reasoning_content: str | None = None
    tool_calls: list[ResponseCall] | None = None


class ChatChoice(api.ResponsePart):
    """The only answer of a response."""

    index: Literal[0]
    message: ReplyMessage
    logprobs: None
    finish_reason: FinishReason


class PromptDetails(api.ResponsePart):
    """Prompt tokens that were in the KV cache."""

    cached_tokens: int


class CompletionDetails(api.ResponsePart):
    """Generated tokens that are thinking, and those that were corrected, if any were."""

    reasoning_tokens: int
    corrections: int | None = None


class ReplyUsage(api.ResponsePart):
    """Tokens of the answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class ChatCompletion(api.ResponsePart):
    """The response."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ReplyUsage
    x_events: list[dict[str, Any]] | None = None


class DeltaFunction(api.ResponsePart):
    """A piece of what a call calls."""

    name: str | None = None
    arguments: str


class DeltaCall(api.ResponsePart):
    """A piece of a call."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: DeltaFunction


class Delta(api.ResponsePart):
    """A piece of the answer."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[DeltaCall] | None = None


class ChunkChoice(api.ResponsePart):
    """A piece of the only answer."""

    index: Literal[0]
    delta: Delta
    logprobs: None
    finish_reason: FinishReason | None


class ChatCompletionChunk(api.ResponsePart):
    """One record of a stream; the record after the last is ``[DONE]``."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: ReplyUsage | None = None
    x_events: list[dict[str, Any]] | None = None


class TextChoice(api.ResponsePart):
    """The answer to a prompt of a text completion, or a piece of it."""

    index: int
    text: str
    logprobs: None
    finish_reason: FinishReason | None


class TextCompletion(api.ResponsePart):
    """The response, or one record of its stream; the record after the last is ``[DONE]``."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: ReplyUsage | None = None


def _finish_reason(reply: Reply) -> FinishReason:
    return "length" if reply.is_cut else "tool_calls" if reply.calls else "stop"


def _usage(reply: Reply) -> Json:
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.generated_tokens,
        "total_tokens": reply.prompt_tokens + reply.generated_tokens,
        "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
        "completion_tokens_details": reply.generated_details,
    }


def _fields(reply: Reply, kind: str) -> Json:
    return {"id": reply.id, "object": kind, "created": reply.created, "model": reply.model}


def _end(reply: Reply, kind: str, *, with_usage: bool) -> str:
    usage: Json = {**_fields(reply, kind), "choices": [], "usage": _usage(reply)}
    return (record(usage) if with_usage else "") + _DONE


class ChatShape(ReplyShape):
    """The chat completion of ``reply``; with ``with_usage`` the last chunk contains the usage."""

    def __init__(self, reply: Reply, *, with_usage: bool = False) -> None:
        self._reply = reply
        self._with_usage = with_usage
        # A chunk of text is this with the text between: nearly every chunk is one.
        self._before, self._after = self._chunk({"content": _PLACE}).split(to_json(_PLACE))

    def begin(self) -> str:
        """Return the first chunk, which contains the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, part: Part) -> str:
        """Return the chunk of a piece; those of a call are its name, then its arguments."""
        if part.kind == "text":
            return f"{self._before}{text_to_json(part.pieces[-1])}{self._after}"
        if part.call is None:
            return self._chunk({_FIELDS[part.kind]: part.pieces[-1]})
        index, function = len(self._reply.calls) - 1, {"name": part.call.name, "arguments": ""}
        call = {"index": index, "id": part.call.id, "type": "function", "function": function}
        arguments = {"index": index, "function": {"arguments": part.text}}
        return self._chunk({"tool_calls": [call]}) + self._chunk({"tool_calls": [arguments]})

    def other(self, event: Json) -> str:
        """Return the chunk of an event of ``x_events``."""
        return self._chunk({}, x_events=[event])

    def finish(self) -> str:
        """Return the last chunks: finish reason and usage."""
        chunks = self._chunk({}, _finish_reason(self._reply))
        return chunks + _end(self._reply, "chat.completion.chunk", with_usage=self._with_usage)

    def whole(self) -> Json:
        """Return the response object."""
        reply = self._reply
        text, thinking = reply.text("text"), reply.text("thinking")
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
            for call, arguments in reply.calls
        ]
        message: Json = {
            "role": "assistant",
            "content": text or (None if calls else ""),
            "refusal": None,
            **({"reasoning_content": thinking} if thinking else {}),
            **({"tool_calls": calls} if calls else {}),
        }
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(reply)}
        return {
            **_fields(reply, "chat.completion"),
            "choices": [choice],
            "usage": _usage(reply),
            **({"x_events": reply.events} if reply.with_events else {}),
        }

    def _chunk(self, delta: Json, finish: FinishReason | None = None, **members: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self._with_usage else {}
        fields = _fields(self._reply, "chat.completion.chunk")
        return record({**fields, "choices": [choice], **usage, **members})


def joined_completions(completions: Sequence[Json]) -> Json:
    """Return one text completion with the choices of several, in their order, and the sums of their tokens."""
    first = completions[0]
    usage: Json = dict(first["usage"])
    for other in completions[1:]:
        for name, value in other["usage"].items():
            if isinstance(value, dict):
                usage[name] = {key: usage[name][key] + count for key, count in cast("dict[str, int]", value).items()}
            else:
                usage[name] += value
    choices = [{**completion["choices"][0], "index": index} for index, completion in enumerate(completions)]
    return {**first, "choices": choices, "usage": usage}


@dataclass(eq=False)
class TextShape(ReplyShape):
    """The text completion of ``reply``; ``echo`` is the prompt, if the answer begins with it."""

    reply: Reply
    echo: str = ""
    with_usage: bool = False

    def begin(self) -> str:
        """Return the prompt, if the answer begins with it."""
        return record(self._object(self.echo)) if self.echo else ""

    def piece(self, part: Part) -> str:
        """Return the chunk of a piece of text."""
        return record(self._object(part.pieces[-1])) if part.kind == "text" else ""

    def finish(self) -> str:
        """Return the last chunks: finish reason and usage."""
        chunks = record(self._object("", _finish_reason(self.reply)))
        return chunks + _end(self.reply, "text_completion", with_usage=self.with_usage)

    def whole(self) -> Json:
        """Return the response object."""
        text = self.echo + self.reply.text("text")
        return {**self._object(text, _finish_reason(self.reply)), "usage": _usage(self.reply)}

    def _object(self, text: str, finish: FinishReason | None = None) -> Json:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self.with_usage else {}
        return {**_fields(self.reply, "text_completion"), "choices": [choice], **usage}
