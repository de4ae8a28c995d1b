"""What the bodies of all APIs share: a message's role and content, a tool, numbers; and the refusal of a field.

The names of fields in a refusal are the client's own, as they are in its body.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from rkllm_mcp.completions.request import RequestRefusedError, ToolDeclaration
from rkllm_mcp.config.sampling import with_sampling
from rkllm_mcp.events import to_json
from rkllm_mcp.messages import as_mapping
from rkllm_mcp.sampling import Api, SamplingOption

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


class EffortObject(BaseModel):
    """The ``reasoning`` object of the Responses API, as bridges pass it on."""

    effort: bool | Annotated[str, Field(max_length=32)] | None = None


# Parts of a kind that is not known here are left out; a number or an object is read as the text of it.
LooseContent: TypeAlias = Any
Effort: TypeAlias = bool | Annotated[str, Field(max_length=32)] | None
EffortInput: TypeAlias = bool | Annotated[str, Field(max_length=32)] | EffortObject | None
# A level of thinking; vendors add new ones, and the model knows on and off.
ThinkLevel = Annotated[
    Effort,
    BeforeValidator(
        lambda value: cast("dict[str, Any]", value).get("effort") if isinstance(value, dict) else value,
        json_schema_input_type=EffortInput,
    ),
]
Positive = Annotated[int, Field(ge=1), BeforeValidator(whole)]
# How long the answer shall be, and the rule that the model reads; OpenAI's own models have learnt the words.
Verbosity = Literal["low", "medium", "high"]
LENGTHS: Mapping[Verbosity | None, str] = {
    None: "",
    "low": "Answer briefly.",
    "medium": "",
    "high": "Answer in detail.",
}
# Programs for llama.cpp and LM Studio write "no limit" so, and Open WebUI passes on the typed text.
Limit = Positive | Literal[-1, -2]


# Roles of other servers, and those that mean the same here.
_ROLES: Mapping[str, str] = {
    "function": "tool",
    "ipython": "tool",
    "model": "assistant",
    "human": "user",
    "ai": "assistant",
}
Role = Annotated[
    Literal["system", "developer", "user", "assistant", "tool"],
    BeforeValidator(lambda role: _ROLES.get(role.lower(), role.lower()) if isinstance(role, str) else role),
]


def content_parts(value: Any) -> Any:
    """Return a content that is not quite a text or a list of parts as one; other values as they are."""
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [
            item
            if isinstance(item, (dict, BaseModel))
            else {"type": "text", "text": item if isinstance(item, str) else to_json(item)}
            for item in items
        ]
    if isinstance(value, dict):
        is_part = isinstance(cast("dict[str, Any]", value).get("type"), str)
        return [value] if is_part else to_json(value)
    return value if value is None or isinstance(value, str) else to_json(value)


class ApiBody(BaseModel):
    """A part of the body: exact types; unknown fields are ignored.

    Attributes:
        REFUSED: fields that cannot be honoured, because an answer without them would be taken for one with them: what
            to do instead, and the values that ask for nothing.
        IGNORED: fields of the API that have no effect here, for the documentation.
    """

    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    IGNORED: ClassVar[tuple[str, ...]] = ()

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, defer_build=True)


class WholeBody(ApiBody):
    """The whole of a request: an unknown field is kept, so that it can be refused by its name."""

    model_config = ConfigDict(extra="allow")


BodyT = TypeVar("BodyT", bound=ApiBody)


def refuse_impossible(body: ApiBody) -> None:
    """Raise a RequestRefusedError if a body asks for something of its ``REFUSED``."""
    for name, (advice, *harmless) in body.REFUSED.items():
        value = getattr(body, name, None)
        if value and value not in harmless:
            raise RequestRefusedError(f"{name} cannot be done: {advice}", name, "unsupported_parameter")


def add_sampling(base: type[BodyT], *apis: Api) -> type[BodyT]:
    """Return a subclass of a body that has the sampling options by their names in ``apis`` as well."""
    return with_sampling(base, apis, partial(_in_range, is_limited="ollama" in apis))


def _in_range(option: SamplingOption, value: Any, *, is_limited: bool) -> Any:
    """Return a sent number as one in the range of an option, which has no restriction there and beyond it.

    Ollama refuses none; to all others 0 and less candidates mean all.
    """
    value = whole(value) if option.is_whole else value
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not (option.is_whole or is_limited):
        return value
    if option.is_whole and isinstance(value, float):
        # A fraction, which is refused as one.
        return value
    if option.is_whole and value < option.least:
        return None
    return max(option.least, min(value, option.most))


# Reasons for refusing fields that several APIs have; see ``ApiBody.REFUSED``.
LOGPROBS = ("the runtime gives no probabilities; leave it out",)
NO_GAPS = ("this model does not fill gaps; leave it out",)
TEMPLATE = ("the model's own template is always used; leave it out",)
ONE_ANSWER = ("one answer is made for a request; send 1, or the request again", 1)
LOGIT_BIAS = ("the runtime cannot favour tokens; leave it out",)
_GRAMMAR = ("it belongs to POST /v1/chat/completions; ask that, or name a JSON Schema as the form of the answer",)
# Fields of llama-server and vLLM for the form of an answer, which chat completions take.
GRAMMARS: Mapping[str, tuple[Any, ...]] = dict.fromkeys(
    ("grammar", "guided_choice", "guided_grammar", "guided_regex", "structured_outputs"), _GRAMMAR
)
# Fields of other servers by which the model would read or write something else. Every API refuses them.
OF_OTHER_SERVERS: Mapping[str, tuple[Any, ...]] = {
    "chat_template": TEMPLATE,
    "documents": ("no field is read as documents; put them into a message",),
    **dict.fromkeys(("min_tokens", "ignore_eos", "bad_words"), ("the model ends an answer by itself; leave it out",)),
    **dict.fromkeys(("plugins", "search_parameters"), ("nothing is run or searched elsewhere; offer a tool for it",)),
    "prompt_logprobs": LOGPROBS,
}


def belongs_to(route: str, *names: str, instead: str) -> dict[str, tuple[Any, ...]]:
    """Return the refusals of fields of another API, which have another name here."""
    return dict.fromkeys(names, (f"it belongs to POST {route}; {instead}",))


class ContentPart(ApiBody):
    """A piece of a message; the fields of parts that are not text are read where their kind is known."""

    model_config = ConfigDict(extra="allow")

    type: str = "text"
    text: str | None = None
    refusal: str | None = None


def blocks_of(content: str | Sequence[ContentPart] | None) -> str | list[dict[str, Any]] | None:
    """Return a content as a text or as blocks of JSON."""
    return content if content is None or isinstance(content, str) else [part.model_dump() for part in content]


class DeclaredFunction(ApiBody):
    """A function that the program offers."""

    name: str
    description: str | None = None
    # Only an object can be a schema; the tool is offered without one otherwise.
    parameters: Any = None


class DeclaredTool(ApiBody):
    """A tool that the program offers; one of another type has no function, and is left out."""

    type: str = "function"
    function: DeclaredFunction | None = None

    @model_validator(mode="before")
    @classmethod
    def nest_function(cls, value: Any) -> Any:
        """Return a function in the flat form of the Responses API, or Anthropic's, as chat completions nest it."""
        tool = as_mapping(value)
        if "name" not in tool or "function" in tool or tool.get("type", "function") not in ("function", "custom"):
            return value
        fields = {"name": tool["name"], "description": tool.get("description")}
        return {"function": {**fields, "parameters": tool.get("parameters", tool.get("input_schema"))}}


def declarations(tools: Iterable[DeclaredTool]) -> list[ToolDeclaration]:
    """Return the functions among tools."""
    functions = (tool.function for tool in tools if tool.function is not None)
    return [ToolDeclaration(function.name, function.description, function.parameters) for function in functions]


Tools = Annotated[list[DeclaredTool], Field(max_length=MOST_TOOLS)]
Tokens = Annotated[dict[str, str], Field(max_length=MOST_TOKENS)]


class ResponsePart(BaseModel):
    """A part of an answer, which holds nothing else."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)
