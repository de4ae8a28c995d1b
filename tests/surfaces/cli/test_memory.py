"""``rkllm-mcp memory``, and the memory in the chat."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rkllm_mcp.errors import UsageError
from rkllm_mcp.memory.exports import memories_from_file
from tests.support.demo_app import make_demo


def test_rows_are_added_listed_exported_imported_removed_and_cleared(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, servers=())
    assert "Nothing is remembered." in demo.run_here("memory", "list").stderr
    added = demo.run_here("memory", "add", "私の犬の名前はハチ")
    assert added.returncode == 0, added.stderr
    demo.run_here("memory", "add", "--always", "I do not eat meat")
    assert "already" in demo.run_here("memory", "add", "i do not eat MEAT").stderr
    refused = demo.run_here("memory", "add", "my password is hunter2")
    assert (refused.returncode, "password manager" in refused.stderr) == (2, True)
    rows = json.loads(demo.run_here("memory", "list", "--json").stdout)
    assert [(row["text"], row["always"]) for row in rows] == [
        ("私の犬の名前はハチ", False),
        ("I do not eat meat", True),
    ]
    listing = demo.run_here("memory", "list", "--search", "MEAT").stdout
    assert ("I do not eat meat" in listing, "ハチ" in listing) == (True, False)
    file = tmp_path / "memory.json"
    demo.run_here("memory", "export", "-o", str(file))
    unknown = demo.run_here("memory", "remove", "zzzz")
    assert (unknown.returncode, "'rkllm-mcp memory list' shows the ids" in unknown.stderr) == (2, True)
    assert "Deleted" in demo.run_here("memory", "remove", rows[0]["id"][:6]).stderr
    assert "1 of 2 imported" in demo.run_here("memory", "import", str(file)).stderr
    assert "2 deleted" in demo.run_here("memory", "clear", "--yes").stderr
    assert json.loads(demo.run_here("memory", "list", "--json").stdout) == []
    wrong = demo.run_here("memory", "import", "-", stdin='{"format": "x"}')
    assert (wrong.returncode, "no export of a memory" in wrong.stderr) == (2, True)


# As the documentation of mem0 (get_all), the MCP server memory's file and pages that list memories have them.
MEM0 = {
    "results": [
        {
            "id": "ea925981-272f-40dd-b576-be64e4871429",
            "memory": "Likes to play cricket and plays cricket on weekends.",
            "metadata": {"category": "hobbies"},
            "created_at": "2024-07-26T08:44:41.039788-07:00",
        }
    ],
    "count": 1,
}
SERVER_MEMORY = (
    '{"type":"entity","name":"John_Smith","entityType":"person","observations":["Speaks fluent Spanish","Is 31"]}\n'
    '{"type":"relation","from":"John_Smith","to":"Anthropic","relationType":"works_at"}\n'
)
GRAPH = {"entities": [{"name": "Ann", "entityType": "person", "observations": ["Plays the harp"]}], "relations": []}
CLAUDE = [
    {
        "conversations_memory": "**Home**\n\nAnn lives in Graz.",
        "memory_files": [{"path": "/profile.md", "content": "# Profile\n- [stated] Plays the harp"}],
    }
]
LISTED = "\ufeff# Memories\n\n- Lives in Graz\n* Likes trains\n1. 紅茶が好き\n**Home**\n---\nHas a dog named Luna.\n"


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (json.dumps(MEM0), ["Likes to play cricket and plays cricket on weekends."]),
        (json.dumps(MEM0["results"]), ["Likes to play cricket and plays cricket on weekends."]),
        (SERVER_MEMORY, ["John Smith: Speaks fluent Spanish", "John Smith: Is 31"]),
        (json.dumps(GRAPH), ["Ann: Plays the harp"]),
        (json.dumps(CLAUDE), ["Ann lives in Graz.", "Plays the harp"]),
        (json.dumps([{"title": "Home", "content": "Lives in Graz"}]), ["Lives in Graz"]),
        (LISTED, ["Lives in Graz", "Likes trains", "紅茶が好き", "Has a dog named Luna."]),
    ],
)
def test_exports_of_other_products_are_read(content: str, rows: list[str]) -> None:
    assert [row.text for row in memories_from_file(content.encode())[0]] == rows


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("a line\n" * 201, "at most 200 rows, and this file has 201"),
        ("word " * 60, "at most 160 characters; shorten 'word word"),
        ("All rights are kept and given in every form, with or without\nmodification, as follows.\n", "a running text"),
        ("[1, 2]", "no export of a memory"),
        ('{"memory": 5}', "no export of a memory"),
        ('{"a"', "no export of a memory"),
        ("[]", "no export of a memory"),
        ("", "no export of a memory"),
    ],
)
def test_what_is_no_list_of_rows_is_refused(content: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        memories_from_file(content.encode())


def test_long_texts_and_secrets_of_a_file_cost_themselves(tmp_path: Path) -> None:
    content = f"Likes trains\n{'word ' * 60}\nMy password is hunter2\n"
    imported = make_demo(tmp_path, servers=()).run_here("memory", "import", "-", stdin=content)
    assert (imported.returncode, "1 of 1 imported" in imported.stderr) == (0, True)
    assert "2 left out, too long or secret, the first: 'word word" in imported.stderr


def test_a_person_says_it_in_the_chat_and_asks_in_another_conversation(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, servers=())
    told = demo.run_here("chat", stdin="私の犬の名前はハチ。覚えて\n/remember I live in Kobe\n/memories\n")
    assert "[Kept in memory: 私の犬の名前はハチ]" in told.stdout + told.stderr
    assert "覚えました：私の犬の名前はハチ" in told.stdout
    assert "I live in Kobe" in told.stdout
    lines = "うちの犬の名前は？\n/temporary\nうちの犬の名前は？\n/new\n/forget 私の犬の名前はハチ\nうちの犬の名前は？\n"
    asked = demo.run_here("chat", stdin=lines)
    shown = asked.stdout + asked.stderr
    assert shown.count("[Remembered: 私の犬の名前はハチ]") == 1
    assert "Deleted: 私の犬の名前はハチ" in shown


def test_a_proposal_is_listed_with_how_to_keep_it_and_exported_after_that(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, servers=())
    demo.run_here("memory", "add", "my dog is called Hachi")
    demo.run_here("memory", "add", "I work at night")
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes()[:6] == b"SQLite"]
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE memories SET state = 'proposed' WHERE text LIKE '%Hachi'")
    (row, _) = json.loads(demo.run_here("memory", "list", "--json").stdout)
    assert "Hachi" not in demo.run_here("memory", "export").stdout
    told = demo.run_here("chat", stdin=f"/memories\n/remember {row['id']}\n/memories\n")
    shown = told.stdout + told.stderr
    assert shown.count("1 proposed by the model and not used yet. Keep one with /remember ID") == 1
    assert "I will remember: my dog is called Hachi" in shown
    assert "Hachi" in demo.run_here("memory", "export").stdout
