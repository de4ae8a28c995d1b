"""What was said comes back: as it was, to whom it belongs, and after whatever happened in between."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest

from rkllm_mcp.errors import StoreError
from rkllm_mcp.messages import Conversation, Picture, StoredTurn
from rkllm_mcp.records import CallRecord, ConversationSummary, StoredConversation
from rkllm_mcp.store import open_store
from rkllm_mcp.store.conversations import CHAIN_CHARACTERS, Conversations, title_of
from rkllm_mcp.store.database import MIGRATIONS, Transaction, open_database
from rkllm_mcp.store.limits import HistoryLimits, Limits, StoreLimits
from rkllm_mcp.store.postgres import open_postgres

pytestmark = pytest.mark.anyio
NOW = float(2**40)
DAY_S = 86400.0


def exchange(question: str, answer: str = "答え。", *, at: float = NOW) -> list[StoredTurn]:
    return [StoredTurn("user", question, at=at), StoredTurn("assistant", answer, ending="answered", at=at + 1)]


Place: TypeAlias = "Path | str"  # a folder for a file, or the address of a database


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return tmp_path if request.param == "sqlite" else request.getfixturevalue("postgres").new_database()


class OfEachTenant:
    """``Conversations`` of a shared database, in which each tenant has its own view."""

    def __init__(self, url: str, limits: HistoryLimits | None, now: float, stack: AsyncExitStack) -> None:
        self._views: dict[str, Conversations] = {}
        self._url, self._stack = url, stack
        self._limits = limits_of(limits, time.time() + now - NOW)

    def __getattr__(self, name: str) -> Any:
        async def call(tenant: str, *arguments: Any, **options: Any) -> Any:
            if tenant not in self._views:
                opening = open_postgres(self._url, tenant, on_problem=pytest.fail)
                self._views[tenant] = Conversations(await self._stack.enter_async_context(opening), self._limits)
            return await getattr(self._views[tenant], name)(tenant, *arguments, **options)

        return call


def limits_of(history: HistoryLimits | None, now: float = NOW) -> Limits:
    """The limits of a board at a fixed time."""
    return Limits(StoreLimits(history or HistoryLimits()), now=lambda _: now)


@asynccontextmanager
async def opened(place: Place, limits: HistoryLimits | None = None, now: float = NOW) -> AsyncGenerator[Any, None]:
    async with AsyncExitStack() as stack:
        if isinstance(place, str):
            yield OfEachTenant(place, limits, now, stack)
            return
        opening = open_database(place / "state.db", on_problem=pytest.fail, required=True)
        yield Conversations(await stack.enter_async_context(opening), limits_of(limits, now))


async def saved(conversations: Conversations, tenant: str, *turns: StoredTurn, name: str = "") -> Conversation:
    conversation = Conversation(unkept=list(turns))
    conversation.id = name or conversation.id
    assert await conversations.save(tenant, conversation) == 0
    return conversation


async def test_pictures_come_back_with_their_questions_and_versions_and_go_with_their_conversation(
    place: Place,
) -> None:
    one, two = Picture.of(b"\x89PNG one\0\xff"), Picture.of(b"\xff\xd8\xff two")
    asked = exchange("What are they?")
    asked[0] = replace(asked[0], pictures=(one, two, one))
    async with opened(place) as conversations:
        conversation = await saved(conversations, "", *asked, *exchange("And now?", at=NOW + 2), name="c")
        await saved(conversations, "", *exchange("x"), name="other")

        async def pictures() -> list[tuple[str, list[bytes]]]:
            stored = await conversations.get("", "c")
            return [(turn.text, [picture.data for picture in turn.pictures]) for turn in stored.turns[::2]]

        seen = ("What are they?", [one.data, two.data, one.data])
        assert await pictures() == [seen, ("And now?", [])]
        assert await conversations.picture("", "c", two.digest) == two.data
        assert [await conversations.picture("", name, one.digest) for name in ("other", "none")] == [None, None]
        # Another version of the question has none of them; the earlier one keeps its own.
        conversation.replaces = conversation.kept_turns = 0
        conversation.unkept += exchange("In words?", at=NOW + 4)
        await conversations.save("", conversation)
        assert await pictures() == [("In words?", [])]
        assert await conversations.show_version("", "c", 0, 1)
        assert await pictures() == [seen, ("And now?", [])]
        assert await conversations.delete("", "c")
        assert await conversations.picture("", "c", two.digest) is None


async def test_a_conversation_comes_back_as_it_was(place: Place) -> None:
    question = StoredTurn("user", "東京の天気は？", context="[memo]\n傘", at=NOW)
    answer = StoredTurn("assistant", "晴れ\n\n です ☀", "think", ending="token_limit", at=NOW + 2.123456)
    async with opened(place) as conversations:
        conversation = Conversation("c1", calls_made=3, own_system="Be brief.", unkept=[question, answer])
        await conversations.save("", conversation)
        assert (conversation.kept_turns, conversation.unkept) == (2, [])
        assert await conversations.save("", conversation) == 0
        conversation.unkept += (more := exchange("And then?", at=NOW + 9))
        conversation.calls_made = 4
        await conversations.save("", conversation)
    async with opened(place) as conversations:
        turns = (question, answer, *more)
        found = await conversations.get("", "c1")
        # What boards share is changed at the time of the database.
        updated = NOW + 10 if isinstance(place, Path) else found.updated
        assert found == StoredConversation("c1", "東京の天気は？", NOW, updated, turns, "Be brief.", 4)
        assert await conversations.get("", "c2") is None
        assert [(one.id, one.messages) for one in await conversations.latest("")] == [("c1", 4)]


async def test_a_tenant_sees_changes_and_deletes_nothing_of_another(place: Place) -> None:
    async with opened(place, HistoryLimits(days=1, conversations=1)) as conversations:
        for tenant in ("", "mia", "leo"):
            await saved(conversations, tenant, *exchange(f"of {tenant or 'the owner'}"), name="same")
        await saved(conversations, "mia", *exchange("hers alone", at=NOW - 9 * DAY_S), name="hers")
        assert await conversations.get("leo", "hers") is None
        assert await conversations.matching("leo", "her") == []
        assert not await conversations.change("leo", "hers", {"title": "mine"})
        assert not await conversations.delete("leo", "hers")
        assert [one.title for one in await conversations.latest("leo", search="of")] == ["of leo"]
        assert (await conversations.count("mia"), await conversations.count("mia", "leo")) == (2, 0)
        assert await conversations.clean("leo") == 0
        assert await conversations.delete_all("") == 1
        # One is too old, and one too many; in a database both were written just now.
        assert await conversations.clean("mia") == (2 if isinstance(place, Path) else 1)
        assert await conversations.delete_all("mia") == (0 if isinstance(place, Path) else 1)
        assert [await conversations.count(tenant) for tenant in ("", "mia", "leo")] == [0, 0, 1]
        assert [one.messages for one in await conversations.latest("leo")] == [2]


async def test_the_latest_come_first_page_by_page_with_any_clock(place: Place) -> None:
    async with opened(place) as conversations:
        for number, at in enumerate((NOW, 0.0, NOW + 5)):
            await saved(conversations, "", *exchange(f"question {number}", at=at), name=f"c{number}")
        first = Conversation("c0", kept_turns=2, unkept=exchange("again", at=1.0))
        await conversations.save("", first)
        assert [one.id for one in await conversations.latest("")] == ["c0", "c2", "c1"]
        assert [one.id for one in await conversations.latest("", 1, 1)] == ["c2"]
        latest = await conversations.latest("", 1)
        updated = 2.0 if isinstance(place, Path) else latest[0].updated
        assert latest == [ConversationSummary("c0", "question 0", NOW, updated, 4)]


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("KYOTO", ["c1"]),
        ("京都", ["c2"]),
        ("100%", ["c3"]),
        ("100_", []),
        ("%", ["c3"]),
        ("\\", ["c4"]),
        ("答え", ["c4", "c3", "c2", "c1"]),
        ("the trip", ["c2"]),
        ("trip the", ["c2"]),
        ("trip 京都", ["c2"]),
        ("　trip　京都へ　答え ", ["c2"]),
        ("of sure", ["c3"]),
        ("kyoto trip", []),
        (" ", ["c4", "c3", "c2", "c1"]),
        ("to Kyoto " * 9, ["c1"]),
        ("\ud800", []),
    ],
)
async def test_a_search_finds_words_as_written(place: Place, search: str, found: list[str]) -> None:
    async with opened(place) as conversations:
        for number, text in enumerate(("to Kyoto", "京都へ", "sure, 100% of it", "a\\b"), 1):
            await saved(conversations, "", *exchange(text), name=f"c{number}")
        await conversations.change("", "c2", {"title": "The trip"})
        assert [one.id for one in await conversations.latest("", search=search)] == found
        assert await conversations.count("", search) == len(found)


async def test_a_title_replaces_the_one_that_was_there_when_it_was_written_and_no_other(place: Place) -> None:
    async with opened(place) as conversations:
        await saved(conversations, "", *exchange("How is the weather?"), name="c1")
        first = "How is the weather?"
        assert not await conversations.change("", "c2", {"title": "Weather"}, instead_of=first)
        assert not await conversations.change("leo", "c1", {"title": "Weather"}, instead_of=first)
        await conversations.change("", "c1", {"title": "Mine"})
        assert not await conversations.change("", "c1", {"title": "Weather"}, instead_of=first)
        assert await conversations.change("", "c1", {"title": "Weather"}, instead_of="Mine")
        assert [one.title for one in await conversations.latest("")] == ["Weather"]


async def test_an_id_may_be_shortened_while_it_is_one(place: Place) -> None:
    async with opened(place) as conversations:
        for name in ("abc1", "abc", "abd", "a_d"):
            await saved(conversations, "", *exchange("?"), name=name)
        matching = {prefix: await conversations.matching("", prefix) for prefix in ("abc1", "abc", "ab", "a_", "x")}
        ids = {prefix: [one.id for one in found] for prefix, found in matching.items()}
        assert ids == {"abc1": ["abc1"], "abc": ["abc"], "ab": ["abd", "abc", "abc1"], "a_": ["a_d"], "x": []}


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("How is  the\nweather?", "How is the weather?"),
        ("w" * 60, "w" * 60),
        ("天" * 61, "天" * 59 + "…"),
        (f"{'word ' * 11}and a long end", f"{'word ' * 11}and…"),
        (f"a {'w' * 60}", f"a {'w' * 57}…"),
        ("half \ud83d of it", "half ? of it"),
        ("in\u202evoice\u202c \x1b[2Jof \u2066May\u2069\x07", "invoice of May"),
    ],
)
def test_a_title_is_the_first_words_of_a_question(words: str, title: str) -> None:
    assert title_of(words) == title


async def test_a_deleted_conversation_takes_its_calls_with_it_and_leaves_no_trace_in_the_file(tmp_path: Path) -> None:
    secret = "the words that nobody shall find again"
    async with open_store(path=tmp_path / "state.db", required=True) as memory:
        await saved(memory.conversations, "", *exchange(secret), name="c1")
        await saved(memory.conversations, "", *exchange("the other one"), name="c2")
        for name in ("c1", "c2"):
            memory.calls.record(CallRecord(NOW, "s", "t", f'{{"about":"{name}"}}', "once", conversation=name))
        assert await memory.conversations.delete("", "c1")
        assert not await memory.conversations.delete("", "c1")
        assert [call.conversation for call in await memory.calls.latest(9)] == ["c2"]
        assert await memory.conversations.get("", "c1") is None
        content = b"".join([await anyio.Path(tmp_path, name).read_bytes() for name in ("state.db", "state.db-wal")])
    assert b"the other one" in content
    assert secret.encode() not in content
    assert b'"about":"c1"' not in content


async def test_two_processes_that_go_on_with_one_conversation_lose_nothing(place: Place) -> None:
    async with opened(place) as here, opened(place) as there:
        mine = await saved(here, "", *exchange("first"), name="c1")
        theirs = Conversation("c1", kept_turns=2, unkept=exchange("from there", at=NOW + 10))
        assert await there.save("", theirs) == 0
        mine.unkept += exchange("from here", at=NOW + 11)
        assert await here.save("", mine) == 2
        mine.unkept += exchange("once more", at=NOW + 12)
        assert await here.save("", mine) == 0
        kept = await there.get("", "c1")
        assert kept is not None
        assert [turn.text for turn in kept.turns[::2]] == ["first", "from there", "from here", "once more"]


async def test_a_save_with_an_unknown_end_is_repeated_without_harm(place: Place) -> None:
    async with opened(place) as conversations:
        conversation = await saved(conversations, "", *exchange("first"), name="c1")
        again = replace(conversation, kept_turns=2, unkept=exchange("second", at=NOW + 5))
        conversation.unkept += exchange("second", at=NOW + 5)
        await conversations.save("", conversation)
        again.unkept += exchange("third", at=NOW + 9)
        assert await conversations.save("", again) == 0
        kept = await conversations.get("", "c1")
        assert kept is not None
        assert [turn.text for turn in kept.turns[::2]] == ["first", "second", "third"]


@pytest.mark.parametrize("attempts", ["begin", "begin begin", "save", "begin begin save save"])
@pytest.mark.parametrize("replaces", [None, 2], ids=["new", "again"])
async def test_attempts_that_a_slow_disk_ended_late_leave_a_question_once(
    place: Place, attempts: str, replaces: int | None
) -> None:
    """The process gives up, does not learn that the write was done after all, and writes the exchange again."""
    async with opened(place) as conversations:
        first = await saved(conversations, "", *exchange("first"), *exchange("second", at=NOW + 5), name="c1")
        kept = 4 if replaces is None else replaces
        now = replace(first, kept_turns=kept, replaces=replaces)
        for number, attempt in enumerate(attempts.split()):
            late = replace(now, unkept=exchange("third", at=NOW + 9))
            if attempt == "begin":
                draft = [late.unkept[0], StoredTurn("assistant", "", ending="interrupted", at=NOW + 10 + number)]
                assert await conversations.begin("", late, draft)
            else:
                await conversations.save("", late)
        now.unkept = exchange("third", at=NOW + 9)
        assert await conversations.save("", now) == 0
        stored = await conversations.get("", "c1")
        texts = ["first", "second", "third"] if replaces is None else ["first", "third"]
        assert [turn.text for turn in stored.turns[::2]] == texts
        assert [turn.text for turn in stored.turns[1::2]] == ["答え。"] * len(texts)
        assert stored.versions == ({} if replaces is None else {2: (2, 2)})


@pytest.mark.parametrize("number", [0, 2])
async def test_an_unknown_version_of_a_question_is_not_shown(number: int, place: Place) -> None:
    async with opened(place) as conversations:
        await saved(conversations, "", *exchange("first"), name="c1")
        assert not await conversations.show_version("", "c1", 0, number)
        assert await conversations.show_version("", "c1", 0, 1)


async def test_of_versions_of_the_same_instant_the_shown_one_counts_as_the_last(place: Place) -> None:
    async with opened(place) as conversations:
        conversation = await saved(conversations, "", *exchange("first"), name="c1")
        again = replace(conversation, kept_turns=0, replaces=0, unkept=exchange("second"))
        assert await conversations.save("", again) == 0
        texts: list[str] = []
        for number in (2, 1, 1):
            assert await conversations.show_version("", "c1", 0, number)
            shown = await conversations.get("", "c1")
            texts.append(shown.turns[0].text)
            assert shown.versions == {0: (2, 2)}
        assert texts == ["second", "first", "second"]


async def test_an_answer_after_its_conversation_was_deleted_is_stored(place: Place) -> None:
    async with opened(place) as conversations:
        conversation = await saved(conversations, "", *exchange("first"), name="c1")
        await conversations.delete("", "c1")
        conversation.unkept += exchange("second", at=NOW + 5)
        assert await conversations.save("", conversation) == 0
        kept = await conversations.get("", "c1")
        assert kept is not None
        assert (kept.title, len(kept.turns), conversation.kept_turns) == ("second", 2, 2)


async def test_a_full_disk_is_an_error_and_the_next_save_has_all_of_it(tmp_path: Path) -> None:
    problems: list[str] = []
    async with open_database(tmp_path / "state.db", on_problem=problems.append, required=True) as database:
        conversations = Conversations(database)
        conversation = await saved(conversations, "", *exchange("first"), name="c1")
        pages = await database.ask(lambda connection: connection.execute("PRAGMA page_count").fetchone()[0])
        await database.ask(lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").fetchone())
        conversation.unkept += exchange("second", "x" * 50_000, at=NOW + 5)
        with pytest.raises(StoreError, match=r"database or disk is full\); make room on that disk"):
            await conversations.save("", conversation)
        assert (conversation.kept_turns, len(conversation.unkept)) == (2, 2)
        assert await conversations.count("") == 1
        await database.ask(lambda connection: connection.execute("PRAGMA max_page_count = 4294967294").fetchone())
        conversation.unkept += exchange("third", at=NOW + 9)
        assert await conversations.save("", conversation) == 0
        kept = await conversations.get("", "c1")
        assert kept is not None
        assert [turn.text for turn in kept.turns[::2]] == ["first", "second", "third"]
    assert len(problems) == 2


async def test_old_conversations_and_too_many_are_forgotten_with_their_calls(tmp_path: Path) -> None:
    async with open_store(path=tmp_path / "state.db", required=True) as memory:
        for days in (9, 3, 2, 1):
            await saved(memory.conversations, "", *exchange("?", at=NOW - days * DAY_S), name=f"c{days}")
            memory.calls.record(CallRecord(NOW, "s", "t", "{}", "once", conversation=f"c{days}"))
        for limits, left in ((HistoryLimits(), 4), (HistoryLimits(days=4), 3), (HistoryLimits(conversations=2), 2)):
            conversations = Conversations(memory.database, limits_of(limits))
            assert await conversations.clean("") == (0 if left == 4 else 1)
            assert await conversations.count("") == left
        assert [one.id for one in await conversations.latest("")] == ["c1", "c2"]
        assert [call.conversation for call in await memory.calls.latest(9)] == ["c1", "c2"]


@pytest.mark.parametrize("wrong", [0.0, NOW + 36500 * DAY_S], ids=["back", "far ahead"])
async def test_a_clock_that_was_set_makes_no_conversation_old(tmp_path: Path, wrong: float) -> None:
    async with opened(tmp_path, HistoryLimits(days=2)) as conversations:
        for number, at in enumerate((NOW - 3 * DAY_S, NOW - DAY_S, wrong, NOW)):
            await saved(conversations, "", *exchange("?", at=at), name=f"c{number}")
        assert await conversations.clean("") == 0
        assert await conversations.count("") == 4
    async with opened(tmp_path, HistoryLimits(days=2), NOW + 1.5 * DAY_S) as conversations:
        assert await conversations.clean("") == 1
        # Time goes on from there: the first was two days old before the clock was set.
        assert [one.id for one in await conversations.latest("")] == ["c3", "c2", "c1"]


async def test_an_imported_conversation_is_stored_under_its_id_or_another(place: Place) -> None:
    kept = StoredConversation("c1", "A title", 5.0, 7.0, tuple(exchange("old", at=5.0)), "Be brief.", 2)
    async with opened(place) as conversations:
        assert await conversations.add("", kept) == "c1"
        assert await conversations.get("", "c1") == kept
        other = await conversations.add("", kept)
        assert other != "c1"
        assert await conversations.get("", other) == replace(kept, id=other)
        assert await conversations.add("mia", kept) == "c1"


async def test_text_that_is_not_a_unicode_is_stored_with_replacements(place: Place) -> None:
    async with opened(place) as conversations:
        await saved(conversations, "", *exchange("half \ud83d", "all 😀"), name="c1")
        kept = await conversations.get("", "c1")
        assert kept is not None
        assert [turn.text for turn in kept.turns] == ["half ?", "all 😀"]
        with pytest.raises(StoreError, match="a name is not valid Unicode"):
            await conversations.get("", "\ud83d")


async def test_an_answer_is_on_the_disk_when_it_is_saved_and_other_work_waits_for_no_disk(tmp_path: Path) -> None:
    def synchronous(connection: Transaction) -> int:
        return int(connection.execute("PRAGMA synchronous").fetchone()[0])

    full, normal = 2, 1
    async with open_database(tmp_path / "state.db", on_problem=pytest.fail, required=True) as database:
        assert await database.ask(synchronous, durable=True) == full
        assert await database.ask(synchronous) == normal


async def test_a_file_of_the_version_before_gets_the_new_tables(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "state.db") as connection:
        for statement in MIGRATIONS[0]:
            connection.execute(statement)
        connection.execute("PRAGMA user_version = 1")
        connection.execute("INSERT INTO texts VALUES ('servers', 'weather', 'kept', 0)")
    connection.close()
    async with open_store(path=tmp_path / "state.db", required=True) as memory:
        await saved(memory.conversations, "", *exchange("?"))
        assert (await memory.texts("servers")).texts.get("weather") == "kept"


async def test_a_chain_of_responses_is_read_up_to_a_length_and_refused_as_a_whole_beyond(tmp_path: Path) -> None:
    async with open_store(path=tmp_path / "state.db", required=True) as memory:
        responses, item = memory.responses, {"type": "message", "text": "x" * (CHAIN_CHARACTERS // 3 - 100)}
        for number in range(4):
            previous = f"r{number - 1}" if number else ""
            stored: dict[str, Any] = {"id": f"r{number}", "previous_response_id": previous, "output": []}
            responses.save("ann", stored, [item])
        assert await responses.chain("ann", "r2") == [item] * 3
        assert await responses.chain("ann", "r3") is None


@pytest.mark.parametrize(
    ("text", "search", "passage"),
    [
        ('{"place": "Osaka", "days": [{"high": 21, "sky": "sunny"}]}', "sunny", "…high: 21 · sky: sunny"),
        ('{"place": "Osaka", "sky": "sunny", "cut": "her', "sunny", "place : Osaka , sky : sunny , cut : her"),
        ("a long way before it all the words around the match", "match", "…the words around the match"),
        ("short", "short", "short"),
        ("words that stand before these, and then a match in it", "match in that", "…these, and then a match in it"),
        ("one match, and far behind it at last the words", "the words", "…far behind it at last the words"),
        ("x" * 200, "x", "x" * 90 + "…"),
    ],
)
async def test_a_hit_shows_the_words_around_it_and_no_json(place: Place, text: str, search: str, passage: str) -> None:
    async with opened(place) as conversations:
        await saved(conversations, "", *exchange(text))
        (one,) = await conversations.latest("", search=search)
        assert one.passage == passage
