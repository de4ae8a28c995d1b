"""Kept conversations as people see them on the command line; nothing here starts a server or loads a model."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from rich.console import Console

from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.conversations.exports import as_json, as_markdown, from_json
from rkllm_mcp.errors import UsageError
from rkllm_mcp.messages import Picture, StoredTurn
from rkllm_mcp.records import CallRecord, StoredConversation
from rkllm_mcp.store import open_store
from rkllm_mcp.store.database import state_file
from rkllm_mcp.surfaces.cli.conversations import layout
from tests.support.outcome import Command
from tests.support.processor_time import processor_time_limit

NOW = 1_800_000_000.25
TURNS = (
    StoredTurn("user", "東京は？ *now*", context="[memo] 傘", at=NOW),
    StoredTurn("assistant", "**晴れ**\x1b[31m\n", "think\n", ending="answered", at=NOW + 60),
    StoredTurn("user", "And?", at=NOW + 120),
    StoredTurn("assistant", "", ending="cancelled", at=NOW + 180),
)
TRIP = StoredConversation("abc123", "東京は？", NOW, NOW + 180, TURNS, "Be brief.", 2)
OTHER = StoredConversation("abd456", "Other", NOW, NOW + 5, TURNS[:2])
MARKDOWN = """\
# 東京は？

*2027-01-15 17:00 – 2027-01-15 17:03, abc123*

## You, 2027-01-15 17:00

東京は？ *now*

## Assistant, 2027-01-15 17:01

<details><summary>Thinking</summary>

think

</details>

**晴れ**

## You, 2027-01-15 17:02

And?

## Assistant, 2027-01-15 17:03

*[stopped before its end]*
"""


@pytest.fixture(autouse=True)
def in_japan() -> Iterator[None]:
    """People see their own clock's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "JST-9")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def typed(command: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """``rkllm-mcp conversations`` with two conversations in the memory."""
    monkeypatch.setenv("RKLLM_MCP_STATE", str(Path.cwd() / "state"))

    async def remember() -> None:
        async with open_store(path=state_file(os.environ), required=True) as memory:
            for kept in (TRIP, OTHER):
                await memory.conversations.add("", kept)
                memory.calls.record(CallRecord(NOW, "s", "t", "{}", "once", conversation=kept.id))
            await memory.conversations.add("mia", replace(TRIP, id="hers"))

    anyio.run(remember)
    return lambda *words: command("conversations", *words)


def test_the_list_is_a_table_or_json(typed: Command) -> None:
    listed = typed("list")
    assert (listed.code, listed.err) == (0, "")
    assert listed.out.splitlines() == [
        "TITLE     LAST              MESSAGES  ID",
        "Other     2027-01-15 17:00  2         abd456",
        "東京は？  2027-01-15 17:03  4         abc123",
    ]
    assert typed("list", "--limit", "1").err == "1 of 2 conversations; --limit and --offset show others.\n"
    assert json.loads(typed("list", "--json", "--offset", "1").out) == [
        {
            "id": "abc123",
            "title": "東京は？",
            "created": "2027-01-15T08:00:00.250000+00:00",
            "updated": "2027-01-15T08:03:00.250000+00:00",
            "messages": 4,
            "pinned": False,
            "passage": "",
        }
    ]
    assert [line.split()[-1] for line in typed("list", "--search", "and?").out.splitlines()] == ["ID", "abc123"]
    assert typed("list", "--search", "nowhere").err == "No conversation has these words.\n"


def test_one_is_shown_by_the_beginning_of_its_id(typed: Command) -> None:
    # What is not for a terminal is Markdown; what a terminal would obey is left out of it.
    assert typed("show", "abc").out == MARKDOWN
    assert json.loads(typed("show", "abc123", "--json").out)["messages"][1]["text"] == "**晴れ**\x1b[31m\n"
    assert typed("show", "hers").err == (
        "Error: there is no conversation 'hers'; 'rkllm-mcp conversations list' shows them\n"
    )
    ambiguous = typed("show", "ab")
    assert (ambiguous.code, ambiguous.err) == (
        2,
        """Error: several conversations begin with 'ab'; type more of the id:
  abd456  2027-01-15 17:00  Other
  abc123  2027-01-15 17:03  東京は？
""",
    )


def test_an_export_is_markdown_or_json_on_the_screen_or_in_a_new_file(typed: Command) -> None:
    assert typed("export", "abc123").out == MARKDOWN.replace("**晴れ**", "**晴れ**\x1b[31m")
    assert len(json.loads(typed("export", "--all", "--format", "json").out)) == 2
    written = typed("export", "abd", "abc", "-o", "trip.md")
    assert (written.code, written.out, written.err) == (0, "", "2 conversations written to trip.md\n")
    text = Path("trip.md").read_text("utf-8")
    assert text.startswith("# Other\n")
    assert "\n---\n\n# 東京は？\n" in text
    again = typed("export", "abd", "-o", "trip.md")
    assert (again.code, again.err) == (2, "Error: trip.md exists; choose another name\n")
    assert typed("export", "abd", "-o", "no/trip.md").err == (
        "Error: no/trip.md cannot be written (No such file or directory); choose another name\n"
    )
    assert typed("export", "abd", "--format", "pdf").err == (
        "Error: there is no format 'pdf'; choose markdown or json\n"
    )


@pytest.mark.parametrize("words", [("export",), ("export", "abc", "--all"), ("remove",), ("remove", "abc", "--all")])
def test_deleting_conversations_needs_names_or_all(typed: Command, words: tuple[str, ...]) -> None:
    done = typed(*words)
    assert (done.code, done.out) == (2, "")
    assert "name one conversation or more, or --all, and not both" in done.err


def test_a_deleted_conversation_is_gone_with_its_calls_and_a_mistyped_id_deletes_nothing(typed: Command) -> None:
    assert typed("remove", "abc", "nonsense").code == 2
    assert typed("list").out.count("\n") == 3
    assert typed("remove", "abc").err == "Deleted: abc123 '東京は？'.\n"
    assert [line.split()[-1] for line in typed("list").out.splitlines()] == ["ID", "abd456"]
    assert typed("remove", "--all").err == (
        "Error: --all deletes every conversation for good; say so with --all --yes\n"
    )
    assert typed("remove", "--all", "--yes").err == "1 conversation deleted.\n"
    assert typed("list").err == "There are no saved conversations.\n"

    async def left() -> tuple[int, int]:
        async with open_store(path=state_file(os.environ), required=True) as memory:
            return await memory.conversations.count("mia"), len(await memory.calls.latest(9))

    assert anyio.run(left) == (1, 0)


def test_a_title_is_changed(typed: Command) -> None:
    assert typed("rename", "abc", "The  trip").err == "Renamed: abc123.\n"
    assert typed("list", "--search", "the trip").out.splitlines()[1].startswith("The trip  ")
    assert typed("rename", "abc", " ").err == "Error: the title is empty; write it behind the id, in quotes\n"


def test_an_export_is_imported_again_as_it_was(typed: Command) -> None:
    exported = typed("export", "--all", "--format", "json").out
    Path("all.json").write_text(exported, "utf-8")
    imported = typed("import", "all.json")
    ids = imported.out.split()
    assert (imported.code, len(ids), imported.err) == (0, 2, "2 conversations imported.\n")
    assert not {"abc123", "abd456"} & set(ids)
    copy = json.loads(typed("export", ids[1], "--format", "json").out)
    assert {**copy, "id": "abc123"} == json.loads(typed("export", "abc123", "--format", "json").out)
    assert typed("remove", "--all", "--yes").code == 0
    assert typed("import", "all.json").out.split() == ["abd456", "abc123"]
    assert typed("import", "none.json").err == (
        "Error: none.json cannot be read (No such file or directory); name the JSON file of an export\n"
    )


def test_an_export_read_again_is_the_same_conversation() -> None:
    assert from_json(as_json([TRIP])) == [TRIP]
    assert from_json(as_json([TRIP, OTHER])) == [TRIP, OTHER]
    asked = replace(TRIP.turns[0], pictures=(Picture.of(b"\x89PNG\0\xff"), Picture.of(b"BM")))
    (read,) = from_json(as_json([replace(TRIP, turns=(asked, *TRIP.turns[1:]))]))
    assert [picture.data for picture in read.turns[0].pictures] == [b"\x89PNG\0\xff", b"BM"]


def node(parent: str | None, role: str, text: str, at: object = None, **more: object) -> dict[str, object]:
    """A node of ChatGPT's export."""
    content = {"content_type": "text", "parts": [text]}
    message = {"author": {"role": role}, "content": content, "create_time": at, **more}
    return {"parent": parent, "message": message, "children": []}


CHATGPT = {
    "title": "京都",
    "create_time": 1_700_000_000.5,
    "update_time": None,
    "current_node": "e",
    "mapping": {
        "root": {"parent": None, "message": None},
        "s": node("root", "system", "", metadata={"is_visually_hidden_from_conversation": True}),
        "a": {
            "parent": "s",
            "message": {
                "author": {"role": "user"},
                "content": {"content_type": "multimodal_text", "parts": [{"asset": 1}, "Where to?"]},
            },
        },
        "other": node("a", "assistant", "another branch"),
        "b": node("a", "assistant", "print(1)", recipient="python"),
        "c": node("b", "tool", "1"),
        "d": node("c", "assistant", "To Gion.", 1_700_000_010),
        "e": node("d", "assistant", "And on. \ud83d", 1_700_000_011),
    },
}
OPEN_WEBUI = {
    "title": "",
    "created_at": 1_700_000_000,
    "chat": {
        "title": None,
        "history": {
            "currentId": "gone",
            "messages": {
                "g": {"parentId": None, "role": "assistant", "content": "Welcome!", "timestamp": 1_700_000_001},
                "u": {"parentId": "g", "role": "user", "content": [{"type": "text", "text": "Hello"}]},
                "v": {
                    "parentId": "u",
                    "role": "assistant",
                    "content": '<details type="reasoning" done="true">\n> hm\n</details>\nGood day',
                    "timestamp": "soon",
                },
            },
        },
    },
}
LLAMA_CPP = {
    "conv": {"name": "Sums", "lastModified": 1_700_000_005_000, "currNode": "m2"},
    "messages": [
        {"id": "root", "type": "root", "role": "system", "content": "", "parent": None},
        {"id": "s", "type": "system", "role": "system", "content": "Be brief.", "parent": "root"},
        {"id": "m1", "role": "user", "content": "2+2?", "parent": "s", "timestamp": 1_700_000_001_000},
        {"id": "m2", "role": "assistant", "content": "4", "reasoningContent": "easy", "parent": "m1"},
    ],
}
CLAUDE = {
    "uuid": "c1",
    "name": "Pasta",
    "created_at": "2023-11-14T22:13:20.500Z",
    "updated_at": "2023-11-14T22:13:50Z",
    "chat_messages": [
        {"uuid": "1", "sender": "human", "text": "How long?", "created_at": "2023-11-14T22:13:21.000000+00:00"},
        {
            "uuid": "2",
            "sender": "assistant",
            "text": "",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "tool_use", "name": "search", "input": {"q": "pasta"}},
                {"type": "voice_note", "transcript": "Nine minutes."},
            ],
        },
    ],
}
CLAUDE_TREE = {
    "name": "Pasta",
    "created_at": "2023-11-14T22:13:20",
    "current_leaf_message_uuid": "2",
    "chat_messages": [
        {"uuid": "1", "parent_message_uuid": "00000000", "sender": "human", "text": "How long?"},
        {"uuid": "2", "parent_message_uuid": "1", "sender": "assistant", "text": "Nine minutes."},
        {"uuid": "3", "parent_message_uuid": "1", "sender": "assistant", "text": "another branch"},
    ],
}
LIBRECHAT = {
    "title": "Vans",
    "messagesTree": [
        {
            "messageId": "1",
            "parentMessageId": "00000000",
            "isCreatedByUser": True,
            "sender": "user",
            "text": "How thirsty?",
            "createdAt": "2023-11-14T22:13:21.000Z",
            "children": [
                {
                    "messageId": "2",
                    "parentMessageId": "1",
                    "isCreatedByUser": False,
                    "sender": "GPT-4",
                    "content": [{"type": "think", "think": "hm"}, {"type": "text", "text": {"value": "Quite."}}],
                    "children": [],
                }
            ],
        }
    ],
}
LISTED = {
    "name": "Sums",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2+2?", "timestamp": 1_700_000_001},
        {"role": "assistant", "content": "4"},
    ],
}


@pytest.mark.parametrize(
    ("export", "title", "system", "turns"),
    [
        (CHATGPT, "京都", None, [("user", "Where to?"), ("assistant", "To Gion.\n\nAnd on. \ud83d")]),
        (OPEN_WEBUI, "Hello", None, [("assistant", "Welcome!"), ("user", "Hello"), ("assistant", "Good day")]),
        (LLAMA_CPP, "Sums", "Be brief.", [("user", "2+2?"), ("assistant", "4")]),
        (CLAUDE, "Pasta", None, [("user", "How long?"), ("assistant", "Nine minutes.")]),
        (CLAUDE_TREE, "Pasta", None, [("user", "How long?"), ("assistant", "Nine minutes.")]),
        (LIBRECHAT, "Vans", None, [("user", "How thirsty?"), ("assistant", "Quite.")]),
        (LISTED, "Sums", "Be brief.", [("user", "2+2?"), ("assistant", "4")]),
    ],
)
def test_the_open_branch_of_another_programs_export_is_read(
    export: object, title: str, system: str | None, turns: list[tuple[str, str]]
) -> None:
    (one,) = from_json(json.dumps(export))
    assert (one.title, one.system, [(turn.role, turn.text) for turn in one.turns]) == (title, system, turns)
    assert one.created <= one.turns[0].at <= one.turns[-1].at <= one.updated
    assert 1_700_000_000 <= one.created < 1_700_000_100
    # A list of several, of which some have nothing to say.
    empty: dict[str, object] = {"mapping": {}, "current_node": None}
    assert from_json(json.dumps([empty, export, 7, None])) == [one]
    assert from_json(json.dumps({"version": 4, "history": [export]})) == [one]


def test_an_export_that_is_broken_in_places_costs_those_places() -> None:
    mapping: dict[str, object] = {
        "a": node("b", "user", "round and"),
        "b": node("a", "assistant", "round"),
        "c": {"parent": 7, "message": {"author": None, "content": {"parts": "x"}, "recipient": ["all"]}},
        "d": node("missing", "user", "alone", float("inf")),
    }
    read = from_json(json.dumps([{"mapping": mapping, "current_node": key} for key in (*mapping, "nowhere")]))
    said = [[turn.text for turn in one.turns] for one in read]
    assert said == [["round", "round and"], ["round and", "round"], ["alone"], ["alone"]]


def test_what_was_spoken_is_read_and_a_picture_is_left_out() -> None:
    parts = [
        {"content_type": "audio_transcription", "text": "Hello there", "direction": "in"},
        {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_1"},
        "and look",
    ]
    spoken = node(None, "user", "", content={"content_type": "multimodal_text", "parts": parts})
    (one,) = from_json(json.dumps({"mapping": {"a": spoken}, "current_node": "a"}))
    assert [turn.text for turn in one.turns] == ["Hello there\nand look"]


def test_where_chatgpts_page_shows_a_source_nothing_is_left() -> None:
    cited = node(None, "assistant", "\ue203It rains\ue204 \ue200cite\ue202turn0search1\ue201. Take care.")
    (one,) = from_json(json.dumps({"mapping": {"a": cited}, "current_node": "a"}))
    assert [turn.text for turn in one.turns] == ["It rains. Take care."]


def test_folded_thoughts_without_an_end_take_no_longer_than_their_length() -> None:
    begun = '<details type="reasoning">' * 20_000
    messages = {"a": {"role": "assistant", "content": f"{begun}</details>Yes{begun}"}}
    with processor_time_limit(5):
        (one,) = from_json(json.dumps({"chat": {"history": {"currentId": "a", "messages": messages}}}))
    assert one.turns[0].text == f"Yes{begun}"


def test_what_was_imported_from_another_program_goes_on(typed: Command, tmp_path: Path) -> None:
    (tmp_path / "all.json").write_text(json.dumps([CHATGPT, LLAMA_CPP]), encoding="utf-8")
    first, second = typed("import", str(tmp_path / "all.json")).out.split()
    assert "## You" in typed("show", first).out
    assert "\n\nAnd on. ?" in typed("show", first).out.replace("\ufffd", "?")
    assert [one["id"] for one in json.loads(typed("list", "--json").out)][:2] == [second, first]


def broken(change: Callable[[dict[str, object]], object]) -> str:
    whole = json.loads(as_json([TRIP]))
    change(whole)
    return json.dumps(whole)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Invalid JSON"),
        ("[1]", ""),
        (broken(lambda whole: whole.pop("messages")), "messages: Field required"),
        (broken(lambda whole: whole.update(format="other")), "format: Input should be 'rkllm-mcp conversation 1'"),
        (broken(lambda whole: whole.update(created="yesterday")), "created: Input should be a valid datetime"),
        (broken(lambda whole: whole.update(messages=[])), "messages: List should have at least 1 item"),
        (broken(lambda whole: whole.update(messages=[{"role": "tool"}])), "messages.0.role: Input should be 'user'"),
    ],
)
def test_a_file_that_is_not_an_export_is_refused_with_the_field(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match="this is no export of a conversation") as refused:
        from_json(text)
    assert reason in str(refused.value)


def test_on_a_terminal_a_conversation_is_laid_out() -> None:
    console = Console(file=io.StringIO(), width=60, color_system=None)
    console.print(layout(TRIP, read_catalogue("en")))
    assert isinstance(console.file, io.StringIO)
    shown = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert [line for line in shown if line] == [
        "東京は？",
        "abc123, 2027-01-15 17:00 – 2027-01-15 17:03",
        "2027-01-15 17:00",
        "❯ 東京は？ *now*",
        "2027-01-15 17:01",
        "think",
        "晴れ",
        "2027-01-15 17:02",
        "❯ And?",
        "2027-01-15 17:03",
        "[stopped before its end]",
    ]


def test_on_a_terminal_nothing_of_an_answer_is_lost() -> None:
    answer = "if a<b and c>d: **「値」**です\n<details>more</details>\n\n[1]: http://x.test\n\n- one\n  1. two"
    console = Console(file=io.StringIO(), width=60, color_system=None)
    console.print(
        layout(replace(TRIP, turns=(replace(TRIP.turns[1], thinking="", text=answer),)), read_catalogue("en"))
    )
    assert isinstance(console.file, io.StringIO)
    shown = [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]
    assert shown[-5:] == [
        "if a<b and c>d: 「値」です",
        "<details>more</details>",
        "[1]: http://x.test",
        "• one",
        "  1. two",
    ]


def test_a_code_block_that_was_broken_off_ends_with_its_message() -> None:
    first, *others = TRIP.turns
    turns = (first, replace(others[0], text="So:\n```py\nx = 1", ending="cancelled"), *others[1:])
    assert "```py\nx = 1\n```\n\n*[stopped before its end]*\n\n## You" in as_markdown(replace(TRIP, turns=turns))


def test_markdown_of_a_conversation_without_a_title_begins_with_its_id() -> None:
    assert as_markdown(replace(TRIP, title="")).startswith("# abc123\n")
