"""The owner's documents, from the shell: a PDF goes in over MCP, a question about it is answered with its source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.demo_app import Demo, make_demo
from tests.support.imported import column, pdf
from tests.support.shared import REPOSITORY

RULES = [
    ["就業規則", "この規則は、社員の労働条件を定める。"],
    ["手当", "リモートワーク手当は月額5,000円を支給する。"],
    ["休暇", "夏季休暇は7月から9月の間に5日とする。"],
]


def entry() -> str:
    """The knowledge server of the configuration that comes with the program, its signs taken away."""
    whole = (REPOSITORY / "models" / "demo" / "mcp_config.toml").read_text("utf-8")
    (block,) = [part for part in whole.split("\n\n") if '# name = "knowledge"' in part]
    return "\n".join(line.removeprefix("# ") for line in block[block.index("# [[servers]]") :].splitlines())


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    found = make_demo(tmp_path, [])
    with found.config.open("a", encoding="utf-8") as file:
        file.write(f"{entry()}\n")
    (tmp_path / "rules.pdf").write_bytes(pdf([column(page, leading=28) for page in RULES], title="就業規則"))
    return found


def said(demo: Demo, words: Sequence[str]) -> str:
    finished = demo.run_here(*words)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_a_question_about_a_pdf_is_answered_with_the_figure_and_its_page(demo: Demo) -> None:
    said(demo, ["knowledge", "create", "社内規程", "--description", "就業規則など"])
    added = said(demo, ["knowledge", "add", "rules.pdf"])
    assert added.endswith("  added  就業規則\n")

    finished = demo.run_here("run", "リモートワーク手当の金額は？")
    assert finished.returncode == 0, finished.stderr
    assert "5,000円" in finished.stdout
    assert "(就業規則, p. 2)" in finished.stdout
    assert "[MCP: Tool 'search_documents' completed]" in finished.stderr
    assert "[Sources: 就業規則, p. 2" in finished.stderr

    events = [json.loads(line) for line in said(demo, ["run", "--json", "リモートワーク手当の金額は？"]).splitlines()]
    (sources,) = [event["items"] for event in events if event["kind"] == "sources"]
    assert sources[0] == {
        "document": "就業規則",
        "page": 2,
        "passage": "手当\nリモートワーク手当は月額5,000円を支給する。",
        "score": sources[0]["score"],
        "document_id": sources[0]["document_id"],
        "chunk_index": 1,
    }
