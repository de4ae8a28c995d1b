"""How a family writes one call: its name and arguments as text between the markers.

A ``CallSpelling`` is cut behind the name, because a forced call is a prompt that ends there: ``begin`` is what the host
writes and ``rest`` what the model adds. Markers belong to ``tools.ToolForm``. Nothing here reads calls; that is the
detector's work, and what is written here is what it reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rkllm_mcp.prompt.vocabulary import Foreign, Segment


@dataclass(frozen=True)
class CallSpelling:
    """One way to write a call.

    Args:
        begin: the call up to its arguments, given its name.
        rest: the arguments and what closes the call.
    """

    begin: Callable[[str], str]
    rest: Callable[[Mapping[str, Any]], list[Segment]]

    def call(self, name: str, arguments: Mapping[str, Any]) -> list[Segment]:
        """The whole call."""
        return [Foreign(self.begin(name)), *self.rest(arguments)]


def spaced_json(value: Any) -> str:
    """JSON with one space after each separator, as models that were trained on JSON write it; other scripts stay."""
    return json.dumps(value, ensure_ascii=False)


def json_spelling(arguments_key: str) -> CallSpelling:
    """``{"name": …, "arguments": {…}}``; some families say ``parameters``."""

    def begin(name: str) -> str:
        return f'{{"name": {spaced_json(name)}, "{arguments_key}": '

    return CallSpelling(begin, lambda arguments: [Foreign(f"{spaced_json(dict(arguments))}}}")])


def _python_arguments(arguments: Mapping[str, Any]) -> list[Segment]:
    return [Foreign(f"{', '.join(f'{key}={value!r}' for key, value in arguments.items())})")]


def _fenced_arguments(arguments: Mapping[str, Any]) -> list[Segment]:
    return [Foreign(f"{spaced_json(dict(arguments))}\n```")]


def _tagged_arguments(arguments: Mapping[str, Any]) -> list[Segment]:
    parameters = (
        f"<parameter={key}>\n{value if isinstance(value, str) else spaced_json(value)}\n</parameter>\n"
        for key, value in arguments.items()
    )
    return [Foreign(f"{''.join(parameters)}</function>")]


JSON_CALL = json_spelling("arguments")
JSON_CALL_WITH_PARAMETERS = json_spelling("parameters")
# f(k='v', n=3, flag=True): JSON's values are Python's, so repr writes each of them.
PYTHON_CALL = CallSpelling(lambda name: f"{name}(", _python_arguments)
# The name, then the arguments alone in a code fence (DeepSeek R1).
FENCED_CALL = CallSpelling(lambda name: f"{name}\n```json\n", _fenced_arguments)
# A tag for the function and one for each parameter, strings bare (Qwen3.5, Qwen3-Coder).
TAGGED_CALL = CallSpelling(lambda name: f"<function={name}>\n", _tagged_arguments)
