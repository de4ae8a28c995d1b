"""How well tools are found, on requests over real servers' tools; bench/tool_retrieval.py prints the whole table."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from bench.tool_retrieval import DATA, Row, ranks, read_requests, read_tools, rows
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.tools.search import ToolSearch
from tests.support.installed import installed

pytestmark = pytest.mark.anyio
# What has to hold; the measured figures are in docs/performance.md.
FLOOR = 0.9


@cache
def github_tools() -> list[ToolSpec]:
    specification = installed("github_openapi")
    if not specification.is_complete:
        pytest.skip(f"GitHub's specification is not here: {specification.reason}")
    return read_tools(Path(specification.lines[-1]))


async def measured(*, github: bool = False) -> list[Row]:
    requests = read_requests(github=github)
    return rows(requests, await ranks(requests, github_tools() if github else read_tools(), ToolSearch()))


async def test_nine_of_ten_requests_find_their_tool_among_the_first_five_in_both_languages_and_halves() -> None:
    figures = {(row.half, row.language): row.recall_at_5 for row in await measured()}
    assert len(figures) == 4
    assert {key: figure for key, figure in figures.items() if figure < FLOOR} == {}


async def test_over_github_nine_of_ten_requests_find_their_operation_among_the_first_five_in_both_languages() -> None:
    figures = await measured(github=True)
    for language in ("en", "ja"):
        of_it = [row for row in figures if row.language == language]
        assert sum(row.recall_at_5 * row.requests for row in of_it) / sum(row.requests for row in of_it) >= FLOOR


@pytest.mark.parametrize(
    ("request_text", "tool"),
    [
        ("What pull requests are open in numpy?", "pulls_list"),
        ("Who am I logged in as?", "users_get-authenticated"),
        ("torvaldsのフォロワーは？", "users_list-followers-for-user"),
        ("イシュー12にコメント", "issues_create-comment"),
    ],
)
async def test_requests_over_github_that_were_not_found_are(request_text: str, tool: str) -> None:
    found = await ToolSearch().search(request_text, github_tools())
    assert tool in [candidate.name for candidate, _ in found[:5]]


async def test_the_set_is_as_large_as_it_says() -> None:
    tools, requests = read_tools(), read_requests()
    assert len(tools) >= 80
    assert len({(tool.server, tool.name) for tool in tools}) == len(tools)
    assert len({request.text for request in requests}) == len(requests) >= 150
    by_half = [sum(request.half == half for request in requests) for half in ("tuning", "held-out")]
    assert abs(by_half[0] - by_half[1]) <= 2
    names = {tool.name for tool in tools}
    assert all(set(request.tools) <= names for request in requests)


def test_the_set_over_github_is_as_large_as_it_says_and_its_halves_share_no_tool() -> None:
    names = {tool.name for tool in github_tools()}
    requests = read_requests(github=True)
    assert (len(names), len({request.text for request in requests})) == (1223, 270)
    assert all(set(request.tools) <= names for request in requests)
    wanted = {
        half: {request.tools[0] for request in requests if request.half == half} for half in ("tuning", "held-out")
    }
    assert not wanted["tuning"] & wanted["held-out"]
    assert sum(request.half == "held-out" for request in requests) >= 70


async def test_every_tool_of_the_set_names_its_source_and_a_licence_that_allows_it() -> None:
    content = json.loads((DATA / "tools.json").read_text("utf-8"))
    used = {tool["server"] for tool in content["tools"]}
    assert used == set(content["sources"])
    assert {source["licence"] for source in content["sources"].values()} <= {"MIT", "Apache-2.0", "MIT / Apache-2.0"}
