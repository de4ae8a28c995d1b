"""What a list of tools costs in a prompt, by family and by way of listing: characters, tokens, and seconds of prefill.

    python bench/tool_listing.py [--json] [--tokenizer tokenizer.json] [--template NAME …]

Eight tools as MCP servers describe them, with the words around the list; as the family was trained (``json``) and in
one line each (``compact``). Tokens are those of the given tokenizer; without one, of the demo model, so that only the
ratios carry over. The seconds are the tokens at a published speed, not a measurement of an NPU.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.prompt.tokenizer import ModelTokenizer
from rkllm_mcp.prompt.tool_list import ToolListing

REPOSITORY = Path(__file__).resolve().parents[1]
# Prefill of Qwen2.5-1.5B on an RK3588, tokens per second, 128 / 378 ms (rknn-llm benchmark 1.3.0, by Rockchip).
PUBLISHED_PREFILL = 338.0


def _tool(name: str, description: str, required: list[str], **properties: Any) -> ToolSpec:
    return ToolSpec(name, description, {"type": "object", "properties": properties, "required": required})


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


TOOLS = (
    _tool(
        "get_weather",
        "Weather forecast for a place in Japan: today, tomorrow and the week.",
        ["location"],
        location=_text("A city, town or prefecture, in Japanese or English"),
        days={"type": "integer", "description": "How many days, 1 to 7", "minimum": 1, "maximum": 7},
        unit={"type": "string", "enum": ["celsius", "fahrenheit"], "description": "Unit of temperatures"},
    ),
    _tool("get_current_time", "Current time in a time zone.", ["timezone"], timezone=_text("IANA name")),
    _tool(
        "convert_time",
        "Convert a time between time zones.",
        ["source_timezone", "time", "target_timezone"],
        source_timezone=_text("Source IANA name"),
        time=_text("Time to convert, 24-hour HH:MM"),
        target_timezone=_text("Target IANA name"),
    ),
    _tool(
        "read_text_file",
        "Read the complete contents of a file as text. Only works within allowed directories.",
        ["path"],
        path=_text("The file"),
        head={"type": "integer", "description": "If provided, only the first N lines"},
        tail={"type": "integer", "description": "If provided, only the last N lines"},
    ),
    _tool(
        "write_file",
        "Create a new file or completely overwrite an existing one. Use with caution.",
        ["path", "content"],
        path=_text("The file"),
        content=_text("Its new contents"),
    ),
    _tool(
        "edit_file",
        "Make line-based edits to a text file.",
        ["path", "edits"],
        path=_text("The file"),
        edits={
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"oldText": _text("Text to search for"), "newText": _text("Text to replace it with")},
                "required": ["oldText", "newText"],
            },
        },
        dryRun={"type": "boolean", "default": False, "description": "Preview changes"},
    ),
    _tool(
        "search_issues",
        "Search issues of a repository.",
        ["repo"],
        repo=_text("owner/name"),
        state={"type": "string", "enum": ["open", "closed", "all"]},
        labels={"type": "array", "items": {"type": "string"}, "description": "All of these labels"},
        limit={"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "At most this many"},
    ),
    _tool(
        "set_light",
        "Switch a light on or off, or dim it.",
        ["room", "state"],
        room={"type": "string", "enum": ["kitchen", "bedroom", "office"]},
        state={"type": "string", "enum": ["on", "off"]},
        brightness={"type": "number", "description": "0 to 100"},
    ),
)


@dataclass(frozen=True)
class Cost:
    """One way of listing the tools for one family."""

    template: str
    listing: str
    characters: int
    tokens: int
    prefill_s: float
    ratio: float


def costs(vocabulary: ModelTokenizer, names: list[str]) -> list[Cost]:
    """What each listing costs; the ratio is to the family's own."""
    found: list[Cost] = []
    for name in names:
        own = 0
        for listing in get_args(ToolListing):
            segments = TEMPLATES[name].tool_form.listed_as(listing).listing(TOOLS)
            tokens = len(vocabulary.encode(segments))
            own = own or tokens
            characters = sum(len(segment.text) for segment in segments)
            seconds = round(tokens / PUBLISHED_PREFILL, 2)
            found.append(Cost(name, listing, characters, tokens, seconds, round(tokens / own, 2)))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--tokenizer", type=Path, default=REPOSITORY / "models" / "demo" / "tokenizer.json")
    parser.add_argument("--template", nargs="*", choices=list(TEMPLATES), default=list(TEMPLATES))
    arguments = parser.parse_args()
    rows = costs(ModelTokenizer(arguments.tokenizer.read_text("utf-8")), arguments.template)
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    print(f"{len(TOOLS)} tools, tokens of {arguments.tokenizer}, prefill at {PUBLISHED_PREFILL:g} tokens/s")
    print(f"{'template':<12} {'listing':<8} {'characters':>10} {'tokens':>7} {'prefill s':>9} {'ratio':>6}")
    for row in rows:
        print(
            f"{row.template:<12} {row.listing:<8} {row.characters:>10} {row.tokens:>7} {row.prefill_s:>9.2f} "
            f"{row.ratio:>6.2f}"
        )


if __name__ == "__main__":
    main()
