"""A model's output becomes the detector's events, to find out why a call was missed: ``rkllm-mcp detect``.

Beside what ``run --json`` prints, a call shows here the text it was read from. Without declared tools every name
that a call in the text has is taken for a tool's.
"""

from __future__ import annotations

import codecs
import difflib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from rkllm_mcp.encode import event_to_dict
from rkllm_mcp.errors import UsageError
from rkllm_mcp.events import DetectorEvent, ToolCallDetected
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.surfaces.session import EXIT_DONE, Session

if TYPE_CHECKING:
    from rkllm_mcp.toolcalls.detector import Detector

_READ_BYTES = 4096


def detect_calls(
    session: Session, syntaxes: Sequence[str], tools_file: str | None, thinking: str, *, explain: bool = False
) -> int:
    """Feed standard input to a detector and print its events, each as soon as it is certain.

    Args:
        session: how to speak to the user.
        syntaxes: names of syntaxes to look for; the default ones for none.
        tools_file: a JSON file with the declared tools; any name is taken for a tool's without it.
        thinking: how thinking is marked.
        explain: print also why everything that looks like a call is one or is none, when the input is over.
    """
    if not session.quiet and sys.stdin.isatty():
        session.status("Paste what the model wrote, then Ctrl-D.")
    if tools_file is None or explain:
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
        tools = called_tools(text) if tools_file is None else read_tools(Path(tools_file).expanduser())
        detector = _detector(syntaxes, tools, thinking)
        _print([*detector.feed(text), *detector.finish()])
        if explain:
            _explain(text, tools, syntaxes, thinking)
        return EXIT_DONE
    detector = _detector(syntaxes, read_tools(Path(tools_file).expanduser()), thinking)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while piece := os.read(sys.stdin.fileno(), _READ_BYTES):
        _print(detector.feed(decoder.decode(piece)))
    _print([*detector.feed(decoder.decode(b"", final=True)), *detector.finish()])
    return EXIT_DONE


def _explain(text: str, tools: Sequence[ToolSpec], syntaxes: Sequence[str], thinking: str) -> None:
    from rkllm_mcp.toolcalls.detector import ThinkingMode
    from rkllm_mcp.toolcalls.explanation import explain

    for each in explain(text, tools, tuple(syntaxes) or None, cast("ThinkingMode", thinking)):
        line = {"kind": "why", "text": each.text, "why": each.why}
        sys.stdout.write(f"{json.dumps(line, ensure_ascii=False, separators=(',', ':'))}\n")
    sys.stdout.flush()


def called_tools(text: str) -> tuple[ToolSpec, ...]:
    """A tool of every name that a call in ``text`` may have; without any tool nothing would be looked for."""
    from rkllm_mcp.toolcalls.explanation import names_in

    names = names_in(text) or ("any",)
    return tuple(ToolSpec(name, input_schema={"type": "object"}) for name in names)


def _detector(syntaxes: Sequence[str], tools: Sequence[ToolSpec], thinking: str) -> Detector:
    from rkllm_mcp.toolcalls.detector import Detector, ThinkingMode
    from rkllm_mcp.toolcalls.syntax import SYNTAXES

    modes = get_args(ThinkingMode)
    if thinking not in modes:
        raise UsageError(f"there is no thinking mode {thinking!r}; allowed are {', '.join(modes)}")
    for name in syntaxes:
        if name not in SYNTAXES:
            near = difflib.get_close_matches(name, SYNTAXES, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise UsageError(f"there is no syntax {name!r}; {hint}There are {', '.join(SYNTAXES)}")
    return Detector(tools, tuple(syntaxes) or None, thinking=cast("ThinkingMode", thinking))


def read_tools(path: Path) -> tuple[ToolSpec, ...]:
    """Tools from a JSON file: a list of MCP's or OpenAI's form, or an object with such a list under ``tools``.

    Raises:
        UsageError: the file cannot be read as one.
    """
    try:
        value: Any = json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); name a file with tools as JSON") from None
    except ValueError as error:
        raise UsageError(f"{path} is not JSON ({error}); mend it") from None
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value).get("tools")
    if not isinstance(value, list):
        raise UsageError(f'{path} holds no tools; write a list: [{{"name": "…", "input_schema": {{…}}}}]')
    return tuple(_tool(item, path) for item in cast("list[Any]", value))


def _tool(item: Any, path: Path) -> ToolSpec:
    tool = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
    function: Any = tool.get("function", tool)
    tool = cast("dict[str, Any]", function) if isinstance(function, dict) else {}
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise UsageError(f'{path} holds a tool without a name; each tool is {{"name": "…", "input_schema": {{…}}}}')
    schema: Any = next((tool[key] for key in ("input_schema", "inputSchema", "parameters") if key in tool), None)
    if schema is not None and not isinstance(schema, dict):
        raise UsageError(f"{path} holds a tool {name!r} whose schema is no object; write {{}} for no arguments")
    return ToolSpec(
        name, str(tool.get("description") or ""), cast("dict[str, Any]", schema) or {"type": "object", "properties": {}}
    )


def _print(events: Sequence[DetectorEvent]) -> None:
    for event in events:
        shown = event_to_dict(event)
        if isinstance(event, ToolCallDetected):
            shown = {
                "kind": event.kind,
                "name": event.name,
                "arguments": event.arguments,
                "raw": event.raw,
                "repaired": event.repaired,
            }
        sys.stdout.write(f"{json.dumps(shown, ensure_ascii=False, separators=(',', ':'))}\n")
    sys.stdout.flush()
