"""OpenAI's bodies: what a request may hold and what a response holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from rkllm_mcp.completions.content import content_text, is_image
from rkllm_mcp.events import to_json
from rkllm_mcp.messages import as_list, as_mapping

# As many as may be sent: more messages than any context window has room for, and more tools than any model can choose
# from. A body of nothing but small parts would take seconds to read.
MOST_MESSAGES = 10_000
MOST_TOOLS = 1_000
MOST_PARTS = 1_000
MOST_TOKENS = 100


def whole(value: Any) -> Any:
    """Return a number without fraction as an integer, and any other value as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# JSON has one kind of number, and some languages write 3 as 3.0.
Integer = Annotated[int, BeforeValidator(whole)]
TokenId = Annotated[int, Field(ge=0), BeforeValidator(whole)]


def effort_of(value: Any) -> Any:
    """Return the effort in a ``reasoning`` object of the Responses API, which bridges pass on; other values as is."""
    return cast("dict[str, Any]", value).get("effort") if isinstance(value, dict) else value


class EffortObject(BaseModel):
    """The ``reasoning`` object of the Responses API, as bridges pass it on."""

    effort: bool | Annotated[str, Field(max_length=32)] | None = None


# Parts of a kind that is not known here are left out; a number or an object is read as the text of it.
LooseContent: TypeAlias = Any
Effort: TypeAlias = bool | Annotated[str, Field(max_length=32)] | None
EffortInput: TypeAlias = bool | Annotated[str, Field(max_length=32)] | EffortObject | None
# A level of thinking; vendors add new ones, and the model knows on and off.
ThinkLevel = Annotated[Effort, BeforeValidator(effort_of, json_schema_input_type=EffortInput)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Positive = Annotated[int, Field(ge=1), BeforeValidator(whole)]
# Programs for llama.cpp and LM Studio write "no limit" so, and Open WebUI passes on the typed text.
Limit = Positive | Literal[-1, -2]


def known_role(value: Any) -> Any:
    """Return the role that means the same here; any other value as it is."""
    return _ROLES.get(value.lower(), value.lower()) if isinstance(value, str) else value


_ROLES: Mapping[str, str] = {
    "function": "tool",
    "ipython": "tool",
    "model": "assistant",
    "human": "user",
    "ai": "assistant",
}
Role = Annotated[Literal["system", "developer", "user", "assistant", "tool"], BeforeValidator(known_role)]


def content_parts(value: Any) -> Any:
    """Return a content that is not quite a text or a list of parts as one; other values as they are."""
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [
            item if isinstance(item, (dict, BaseModel)) else {"type": "text", "text": _text(item)} for item in items
        ]
    if isinstance(value, dict):
        is_part = isinstance(cast("dict[str, Any]", value).get("type"), str)
        return [value] if is_part else to_json(value)
    return value if value is None else _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value)


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


class OpenAIBody(BaseModel):
    """A part of the body: exact types; unknown fields are ignored.

    Attributes:
        REFUSED: fields that cannot be honoured, because an answer without them would be taken for one with them: what
            to do instead, and the values that ask for nothing.
        IGNORED: fields of the API that have no effect here, for the documentation.
    """

    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    IGNORED: ClassVar[tuple[str, ...]] = ()

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, defer_build=True)


_LOGPROBS = ("the runtime gives no probabilities; leave it out",)
_ONE_ANSWER = ("one answer is made for a request; send 1, or the request again", 1)
_LOGIT_BIAS = ("the runtime cannot favour tokens; leave it out",)


class ContentPart(OpenAIBody):
    """A piece of a message; the fields of parts that are no text are read where their kind is known."""

    model_config = ConfigDict(extra="allow")

    type: str = "text"
    text: str | None = None
    refusal: str | None = None


def parts_of(content: object, prefix: str = "") -> str | list[ContentPart]:
    """Return a content of another API as a text with ``prefix``, or as parts, if it holds images."""
    images = [as_mapping(block) for block in as_list(content) if is_image(as_mapping(block))]
    if not images:
        return f"{prefix}{content_text(content)}"
    text = content_text([block for block in as_list(content) if not is_image(as_mapping(block))])
    parts = [{"type": "text", "text": f"{prefix}{text}"}, *images]
    return [ContentPart.model_validate(part) for part in parts]


class CalledFunction(OpenAIBody):
    """The function of a call in an assistant's message; its arguments may also be an object."""

    name: str
    arguments: str | dict[str, Any] | list[Any] | None = None


class MessageCall(OpenAIBody):
    """A call in an assistant's message."""

    id: str | None = None
    function: CalledFunction


class BodyMessage(OpenAIBody):
    """One message."""

    role: Role
    content: Annotated[
        str | Annotated[list[ContentPart], Field(max_length=MOST_PARTS)] | None,
        BeforeValidator(content_parts, json_schema_input_type=LooseContent),
    ] = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: Annotated[list[MessageCall], Field(max_length=MOST_TOOLS)] | None = None
    tool_call_id: str | None = None


class DeclaredFunction(OpenAIBody):
    """A function that the program offers."""

    name: str
    description: str | None = None
    # Only an object can be a schema; the tool is offered without one otherwise.
    parameters: Any = None


class DeclaredTool(OpenAIBody):
    """A tool that the program offers; one of another type has no function, and is left out."""

    type: str = "function"
    function: DeclaredFunction | None = None

    @model_validator(mode="before")
    @classmethod
    def nested(cls, value: Any) -> Any:
        """Return a function in the flat form of the Responses API, or Anthropic's, as chat completions nest it."""
        tool = as_mapping(value)
        if "name" not in tool or "function" in tool or tool.get("type", "function") not in ("function", "custom"):
            return value
        fields = {"name": tool["name"], "description": tool.get("description")}
        return {"function": {**fields, "parameters": tool.get("parameters", tool.get("input_schema"))}}


Tools = Annotated[list[DeclaredTool], Field(max_length=MOST_TOOLS)]
Tokens = Annotated[dict[str, str], Field(max_length=MOST_TOKENS)]


class ChosenFunction(OpenAIBody):
    """The function that has to be called."""

    name: Annotated[str, Field(max_length=256)]


class ChosenTool(OpenAIBody):
    """The tool that has to be called."""

    type: Literal["function"]
    function: ChosenFunction


class AllowedTools(OpenAIBody):
    """The tools that may be called, and whether one has to be."""

    mode: Literal["auto", "required"] = "auto"
    tools: Tools


class AllowedChoice(OpenAIBody):
    """The choice of tools that may be called."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


ToolChoice = Annotated[
    Literal["none", "auto", "required"] | ChosenTool | AllowedChoice | None, BeforeValidator(known_choice)
]


class JsonSchemaFormat(OpenAIBody):
    """The schema of an answer; it always holds, so ``strict`` makes no difference."""

    # "schema" is a method of every pydantic model.
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    name: str = "answer"
    description: str | None = None


class ResponseFormatBody(OpenAIBody):
    """The form of an answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None
    # As llama.cpp takes it, beside json_object; "schema" is a method of every pydantic model.
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None


class StreamOptions(OpenAIBody):
    """Options of a stream."""

    include_usage: bool | None = None


class ThinkingSwitch(OpenAIBody):
    """Switch for thinking, as Anthropic's and some of OpenAI's clients send it."""

    type: str


class TemplateSwitches(OpenAIBody):
    """Switch for thinking, as clients of vLLM and llama.cpp send it."""

    enable_thinking: bool | None = None


class SamplingBody(OpenAIBody):
    """Fields that chat and text completions share."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Limit | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    stop: str | list[str] | None = None
    n: Integer | None = None
    logit_bias: dict[str, float] | None = None


class ChatBody(SamplingBody):
    """POST /v1/chat/completions; the other APIs' requests are translated into it."""

    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "n": _ONE_ANSWER,
        "logprobs": _LOGPROBS,
        "top_logprobs": _LOGPROBS,
        "logit_bias": _LOGIT_BIAS,
        "modalities": ("the answer is text; leave it out", ["text"]),
        "functions": ("functions became tools; send tools and tool_choice",),
        "web_search_options": ("nothing is searched on the web; offer a tool for it",),
    }
    IGNORED = (
        *("audio", "function_call", "metadata", "moderation", "prediction", "prompt_cache_key", "prompt_cache_options"),
        *("prompt_cache_retention", "safety_identifier", "seed", "service_tier", "store", "user", "verbosity"),
    )

    messages: Annotated[list[BodyMessage], Field(min_length=1, max_length=MOST_MESSAGES)]
    max_completion_tokens: Limit | None = None
    top_k: Integer | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] | None = None
    # The same in the words of Ollama and llama.cpp, which Open WebUI sends to everybody.
    repeat_penalty: Annotated[float, Field(gt=0)] | None = None
    think: ThinkLevel | None = None
    response_format: ResponseFormatBody | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: ThinkLevel | None = None
    thinking: bool | ThinkingSwitch | None = None
    chat_template_kwargs: TemplateSwitches | None = None
    logprobs: bool | None = None
    top_logprobs: Integer | None = None
    modalities: list[str] | None = None
    functions: list[Any] | None = None
    web_search_options: dict[str, Any] | None = None
    # Of this service.
    mcp: bool | None = None
    tokens: Tokens | None = None
    x_events: bool | None = None


class CompletionBody(SamplingBody):
    """POST /v1/completions: the older API, for one prompt; it becomes the user's question."""

    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "n": _ONE_ANSWER,
        "best_of": _ONE_ANSWER,
        "logprobs": _LOGPROBS,
        "logit_bias": _LOGIT_BIAS,
        "suffix": ("this model does not fill gaps; leave it out",),
    }
    IGNORED = ("seed", "user")

    prompt: str | Annotated[list[str], Field(min_length=1, max_length=1)]
    echo: bool | None = None
    best_of: Integer | None = None
    logprobs: Integer | None = None
    suffix: str | None = None

    @property
    def text(self) -> str:
        """The prompt."""
        return self.prompt if isinstance(self.prompt, str) else self.prompt[0]


FinishReason = Literal["stop", "length", "tool_calls"]


class ResponsePart(BaseModel):
    """A part of an answer, which holds nothing else."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class ResponseFunction(ResponsePart):
    """The function of a call; ``arguments`` are a JSON object as text."""

    name: str
    arguments: str


class ResponseCall(ResponsePart):
    """A call for the program to make."""

    id: str
    type: Literal["function"]
    function: ResponseFunction


class ReplyMessage(ResponsePart):
    """The answer."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    reasoning_content: str | None = None
    tool_calls: list[ResponseCall] | None = None


class ChatChoice(ResponsePart):
    """The only answer of a response."""

    index: Literal[0]
    message: ReplyMessage
    logprobs: None
    finish_reason: FinishReason


class PromptDetails(ResponsePart):
    """Prompt tokens that were in the KV cache."""

    cached_tokens: int


class ReplyUsage(ResponsePart):
    """Tokens of the answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class ChatCompletion(ResponsePart):
    """The response."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ReplyUsage
    x_events: list[dict[str, Any]] | None = None


class DeltaFunction(ResponsePart):
    """A piece of what a call calls."""

    name: str | None = None
    arguments: str


class DeltaCall(ResponsePart):
    """A piece of a call."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: DeltaFunction


class Delta(ResponsePart):
    """A piece of the answer."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[DeltaCall] | None = None


class ChunkChoice(ResponsePart):
    """A piece of the only answer."""

    index: Literal[0]
    delta: Delta
    logprobs: None
    finish_reason: FinishReason | None


class ChatCompletionChunk(ResponsePart):
    """One record of a stream; the record behind the last is ``[DONE]``."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: ReplyUsage | None = None
    x_events: list[dict[str, Any]] | None = None


class TextChoice(ResponsePart):
    """The only answer of a text completion, or a piece of it."""

    index: Literal[0]
    text: str
    logprobs: None
    finish_reason: FinishReason | None


class TextCompletion(ResponsePart):
    """The response, or one record of its stream; the record behind the last is ``[DONE]``."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: ReplyUsage | None = None
