"""How a list of tools is written for a model, and how calls and results are written back to it.

A ``ToolForm`` is one way of spelling all of it: the block that goes into the system turn, a call as the model would
write it, the results of a round, and the opening of a forced call. The tool list costs prefill on every cold start,
so it is minified and keeps what a call needs: name, description, types, enums, required. Order is the caller's and
must be stable: the block sits at the front of the KV cache.

What servers and tools say can never become a control token (``vocabulary``). Where a family's markers are plain text,
that is not enough: a result that contains the closing marker would go on as if the user spoke. So markers inside
results and listings are written in a way that no longer reads as one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from rkllm_mcp.messages import ToolCall, ToolResult, ToolSpec
from rkllm_mcp.prompt.vocabulary import Foreign, Segment, Trusted

# Keywords that cost tokens and do not help to write a call.
_DROPPED_KEYWORDS = frozenset({"$schema", "$id", "title", "examples"})
# Maps of a schema whose keys are names of the user's, not keywords.
_NAME_MAPS = frozenset({"properties", "$defs", "definitions", "patternProperties"})
# Whatever cannot be in a tool's name.
_UNNAMELY = re.compile(r"[^\w.-]")
_SCHEMA_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})


def minified(value: Any) -> str:
    """JSON without spaces, other scripts left readable."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def compact_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """``schema`` without the keywords that do not help to write a call; a property named ``title`` stays."""
    return {key: _compact(key, value) for key, value in schema.items() if key not in _DROPPED_KEYWORDS}


def _compact(key: str, value: object) -> object:
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        if key in _NAME_MAPS:
            return {name: _compact("", inner) for name, inner in mapping.items()}
        return compact_schema(mapping)
    if key in _SCHEMA_LISTS and isinstance(value, list):
        return [_compact("", inner) for inner in cast("list[Any]", value)]
    return value


def tool_json(tool: ToolSpec) -> str:
    """One tool as the minified JSON object that OpenAI's shape and the Qwen template use."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": compact_schema(tool.input_schema),
    }
    # "\\/" is the same JSON; a description must not end the list, which is plain text to some models.
    return minified({"type": "function", "function": function}).replace("</tool", "<\\/tool")


def call_json(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as models that were trained on JSON calls write it: one space after each separator."""
    return json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False)


@dataclass(frozen=True)
class ToolForm:
    """One way to spell tools; ``HERMES`` and ``MARKERS`` below are the two of this version.

    Args:
        introduction: what stands before the list.
        conclusion: what stands after the list; ends with the format of a call.
        call_opening, call_closing: around the JSON of one call.
        result_opening, result_closing: around one result. ``{name}`` in the opening is the tool's name.
        syntaxes: what the detector is to look for in answers of models that are prompted so.
    """

    introduction: str
    conclusion: str
    call_opening: str
    call_closing: str
    result_opening: str
    result_closing: str
    syntaxes: tuple[str, ...]

    def listing(self, tools: Sequence[ToolSpec]) -> list[Segment]:
        """The block for the system turn; nothing when there are no tools."""
        if not tools:
            return []
        lines = "".join(f"\n{tool_json(tool)}" for tool in tools)
        return [Trusted(self.introduction), Foreign(lines), Trusted(self.conclusion)]

    def call(self, call: ToolCall) -> list[Segment]:
        """A call as the model would have written it, for turns whose own tokens are not at hand."""
        return [
            Trusted(self.call_opening),
            Foreign(call_json(call.name, call.arguments)),
            Trusted(self.call_closing),
        ]

    def results(self, results: Sequence[ToolResult], note: str = "") -> list[Segment]:
        """The results of one round, in order, and a note of the host's to the model."""
        segments: list[Segment] = []
        for index, result in enumerate(results):
            separator = "\n" if index else ""
            before, named, after = self.result_opening.partition("{name}")
            text = f"Error: {result.text}" if result.is_error else result.text
            segments += [
                Trusted(separator + before),
                # The name may be one that a model made up.
                Foreign(_UNNAMELY.sub("_", result.name) if named else ""),
                Trusted(after),
                Foreign(self._without_markers(text)),
                Trusted(self.result_closing),
            ]
        if note:
            segments.append(Foreign(f"\n{note}" if results else note))
        return segments

    def _without_markers(self, text: str) -> str:
        """``text`` with a blank behind the first character of every marker that would end a result or begin one."""
        markers = [self.result_closing.strip(), self.result_opening.partition("{name}")[0].strip()]
        named = "|".join(rf"(?<={re.escape(marker[0])})(?={re.escape(marker[1:])})" for marker in markers)
        return re.sub(named, " ", text, flags=re.IGNORECASE)

    def forced_call(self, name: str) -> list[Segment]:
        """The beginning of a call of ``name``, for the model to complete."""
        return [Trusted(self.call_opening), Foreign(self.forced_call_text(name)[len(self.call_opening) :])]

    def forced_call_text(self, name: str) -> str:
        """``forced_call`` as text, for the detector."""
        return f'{self.call_opening}{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '


# The form Qwen2.5 and Qwen3 were trained on; the wording is the format (reference: toolcall-formats, section 6).
HERMES = ToolForm(
    introduction=(
        "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
    ),
    conclusion=(
        "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
        '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
        "</tool_call>"
    ),
    call_opening="<tool_call>\n",
    call_closing="\n</tool_call>",
    result_opening="<tool_response>\n",
    result_closing="\n</tool_response>",
    syntaxes=("hermes", "project_json", "project_xml"),
)

# The project's own markers, for models without a form of their own. The format comes last: small models follow what
# they read last.
MARKERS = ToolForm(
    introduction="\n\nYou can use these tools. One JSON object describes each:\n",
    conclusion=(
        "\n\nUse a tool only when it is needed; otherwise answer directly. To use a tool, write exactly this and "
        "then stop:\n"
        '[TOOL_CALL]\n{"name": "tool_name", "arguments": {"argument": "value"}}\n[END_TOOL_CALL]'
    ),
    call_opening="[TOOL_CALL]\n",
    call_closing="\n[END_TOOL_CALL]",
    result_opening="[TOOL_RESULT {name}]\n",
    result_closing="\n[END_TOOL_RESULT]",
    syntaxes=("project_json", "project_xml"),
)

TOOL_FORMS: Mapping[str, ToolForm] = {"hermes": HERMES, "markers": MARKERS}
