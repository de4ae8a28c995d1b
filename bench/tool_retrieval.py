"""How often the tool that a request needs is among the first that the search finds: recall at 1, 3, 5 and 8.

    python bench/tool_retrieval.py [--json] [--github FILE] [--misses HALF]

Requests in Japanese and English over some hundred tools of servers that exist (tests/data/tool_retrieval; the sources
and licences are named in tools.json), or with --github over the 1,223 operations of GitHub's specification, which
scripts/github_openapi gets and whose path it prints. Requests
are of our own writing and in two halves: weights and glossary were set looking at the misses of the tuning half, never
at those of the held-out one. A tool that is wanted in one half of GitHub's is not in the other; "later" ones were
written after the change, and nothing was set by them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import anyio

from rkllm_mcp.messages import ToolSpec, safe_name
from rkllm_mcp.openapi.document import parse_document
from rkllm_mcp.openapi.source import convert, tool_of
from rkllm_mcp.prompt.tokenizer import ModelTokenizer
from rkllm_mcp.prompt.tool_list import HERMES, ToolCosts
from rkllm_mcp.tools.search import ToolSearch

REPOSITORY = Path(__file__).resolve().parents[1]
DATA = REPOSITORY / "tests" / "data" / "tool_retrieval"
NOT_FOUND = 10_000


@dataclass(frozen=True)
class Request:
    """What somebody wants, and the tools that can do it."""

    half: Literal["tuning", "held-out", "later"]
    language: Literal["ja", "en"]
    tools: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Row:
    """The figures of one half in one language."""

    half: str
    language: str
    requests: int
    recall_at_1: float
    recall_at_3: float
    recall_at_5: float
    recall_at_8: float


def read_tools(github: Path | None = None) -> list[ToolSpec]:
    """The tools, as their servers describe them, or those of GitHub's specification."""
    if github:
        document = parse_document(github.read_bytes())
        return [
            replace(tool_of(operation), server="github", wire_name=operation.name)
            for operation in convert(document).operations
        ]
    listed: list[dict[str, Any]] = json.loads((DATA / "tools.json").read_text("utf-8"))["tools"]
    return [ToolSpec(t["name"], t["description"], t["input_schema"], t["server"], t["name"]) for t in listed]


def read_requests(*, github: bool = False) -> list[Request]:
    """The requests."""
    lines = (DATA / ("github_requests.jsonl" if github else "requests.jsonl")).read_text("utf-8").splitlines()
    rows: Iterable[dict[str, Any]] = map(json.loads, lines)
    return [Request(row["half"], row["language"], tuple(map(safe_name, row["tools"])), row["request"]) for row in rows]


async def ranks(requests: Sequence[Request], tools: Sequence[ToolSpec], search: ToolSearch) -> list[int]:
    """For each request, the place from 0 of the first tool that can do it; ``NOT_FOUND`` when there is none."""
    places: list[int] = []
    for request in requests:
        found = [tool.name for tool, _ in await search.search(request.text, tools)]
        places.append(min((found.index(name) for name in request.tools if name in found), default=NOT_FOUND))
    return places


def rows(requests: Sequence[Request], places: Sequence[int]) -> list[Row]:
    """The figures, by half and language."""
    groups: dict[tuple[str, str], list[int]] = {}
    for request, place in zip(requests, places, strict=True):
        groups.setdefault((request.half, request.language), []).append(place)

    def recall(group: Sequence[int], places: int) -> float:
        return round(sum(place < places for place in group) / len(group), 3)

    return [Row(*key, len(group), *(recall(group, n) for n in (1, 3, 5, 8))) for key, group in sorted(groups.items())]


def list_tokens(tools: Sequence[ToolSpec]) -> tuple[int, int]:
    """What listing all tools costs, and what eight average ones cost, in the demo model's tokens."""
    vocabulary = ModelTokenizer((REPOSITORY / "models" / "demo" / "tokenizer.json").read_text("utf-8"))
    total = sum(map(ToolCosts(vocabulary, HERMES).of, tools))
    return total, round(8 * total / len(tools))


def show(print_line: Callable[[str], None], results: Sequence[Row], milliseconds: float, tools: int) -> None:
    """Print the table."""
    print_line(f"{tools} tools, {sum(row.requests for row in results)} requests, {milliseconds:.2f} ms each")
    print_line(f"{'half':<10} {'language':<8} {'requests':>8} {'@1':>6} {'@3':>6} {'@5':>6} {'@8':>6}")
    for row in results:
        figures = (row.recall_at_1, row.recall_at_3, row.recall_at_5, row.recall_at_8)
        shown = " ".join(f"{figure:>6.3f}" for figure in figures)
        print_line(f"{row.half:<10} {row.language:<8} {row.requests:>8} {shown}")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--github", type=Path, metavar="FILE", help="the operations of GitHub's specification")
    parser.add_argument(
        "--misses", choices=["tuning", "held-out", "later"], help="print the requests of a half that are missed"
    )
    arguments = parser.parse_args()
    tools, requests = read_tools(arguments.github), read_requests(github=arguments.github is not None)
    search = ToolSearch()
    anyio.run(search.search, requests[0].text, tools)  # reads the glossary and the tools
    started = time.perf_counter()
    places = anyio.run(ranks, requests, tools, search)
    milliseconds = (time.perf_counter() - started) * 1000 / len(requests)
    results = rows(requests, places)
    if arguments.json:
        print(json.dumps([asdict(row) for row in results], indent=2))
        return
    show(print, results, milliseconds, len(tools))
    all_tokens, eight_tokens = list_tokens(tools)
    print(f"listed: all tools {all_tokens} tokens, eight of them {eight_tokens} (demo tokenizer)")
    for request, place in zip(requests, places, strict=True):
        if request.half == arguments.misses and place >= 5:
            print(f"  {request.text} -> {', '.join(request.tools)} at {place + 1 if place < NOT_FOUND else 'no place'}")


if __name__ == "__main__":
    main()
