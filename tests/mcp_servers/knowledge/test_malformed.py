"""Thousands of malformed calls: each is answered, and nothing is lost."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_servers.knowledge.tools import LISTED
from tests.support.cuts import has_every_point
from tests.support.knowledge_server import RULES, Tools, open_tools

pytestmark = pytest.mark.anyio

CALLS = 10_000 if has_every_point() else 2_000
AT_ONCE = 8
NESTED: Any = json.loads("[" * 50 + "]" * 50)
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 51, 2.5, -0.0, 1e308, 10**30, -(10**400), "", " ", "\0", "\u202e", "é" * 300),
    *("null", "0.7", "[]", "{", '{"a": 1}', "'; DROP TABLE document; --", "%s%n", "../../etc/passwd", "\U0001f600"),
    *("手当", "AND OR NOT NEAR( *", '"', "00000000-0000-4000-8000-000000000000", "*", "-" * 40, "ー-" * 40),
    *([], [1, "x"], {}, {"a": {"b": []}}, {"$ref": "#"}, NESTED, "x" * 20_000, "http://", "file:///etc/passwd"),
]
# So that calls get further than their first argument.
GOOD: dict[str, Any] = {
    "query": "手当",
    "text": "マネ-ジャ-",
    "threshold": 0.5,
    "max_results": 3,
    "name": "n",
    "path": "/none",
}


def malformed(chance: random.Random, base_id: str) -> tuple[str, dict[str, Any]]:
    tool = chance.choice(LISTED)
    names = [*tool["properties"], "fields", "explain", "collection", "clearance", "", "__class__", "self"]
    good = GOOD | {"knowledge_base_id": base_id}
    arguments: dict[str, Any] = {}
    for name in chance.sample(names, chance.randrange(len(names))):
        arguments[name] = good[name] if name in good and chance.random() < 0.5 else chance.choice(VALUES)
    # Whole documents, and reading them, are for other tests; a thousand knowledge bases, too.
    if tool["name"] == "add_document":
        arguments.pop("text", None)
    if tool["name"] == "create_knowledge_base" and chance.random() < 0.95:
        arguments.pop("name", None)
    return chance.choice([tool["name"]] * 20 + ["", "no_such_tool", "search_documents "]), arguments


async def test_thousands_of_malformed_calls_lose_nothing(tmp_path: Path) -> None:
    chance = random.Random(6)
    outcomes: dict[bool, int] = {True: 0, False: 0}
    inner: list[str] = []

    async def make(tools: Tools, calls: list[tuple[str, dict[str, Any]]]) -> None:
        for name, arguments in calls:
            answer = await tools.call(name, **arguments) if "self" not in arguments else await tools.call(name)
            outcomes[answer.is_error] += 1
            assert answer.text
            if "inside the knowledge server" in answer.text:
                inner.append(f"{name} {arguments!r:.300}")

    async with open_tools(tmp_path) as tools:
        base_id = await tools.base(text=RULES)
        calls = [malformed(chance, base_id) for _ in range(CALLS)]
        async with anyio.create_task_group() as tasks:
            for number in range(AT_ONCE):
                tasks.start_soon(partial(make, tools, calls[number::AT_ONCE]))
        summary = await tools.call("get_knowledge_base_summary", knowledge_base_id=base_id)
        found = await tools.call("search_documents", query="リモートワーク手当", knowledge_base_id=base_id)
    assert inner == []
    assert sum(outcomes.values()) == CALLS
    # Some of them are no mistakes at all.
    assert min(outcomes.values()) > CALLS // 20
    assert summary.facts["statistics"] == {"total_documents": 1, "total_collections": 1, "total_chunks": 2}
    assert found.facts["results"][0]["content"] == "リモートワーク手当は月額5,000円を支給する。"
