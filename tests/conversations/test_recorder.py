"""Answers are kept before their end is told, however they end, and a kept conversation is taken up again."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import anyio
import anyio.lowlevel
import pytest

from rkllm_mcp.agent.usage import UsageCounter
from rkllm_mcp.app.answer import Answer
from rkllm_mcp.app.assistant import App
from rkllm_mcp.app.root import open_app
from rkllm_mcp.catalogue import translate
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.conversations.recorder import AnswerRecord, Recorder, ask_again, restored_turns, turns_of
from rkllm_mcp.errors import PromptTooLongError, UsageError
from rkllm_mcp.events import End, Event, Status, Text, Thinking, ToolCallDetected, ToolFinished, Usage
from rkllm_mcp.generation import AnswerOptions, ForcedTool, ModelOptions
from rkllm_mcp.messages import Conversation, Ending, Message, StoredTurn, ToolCall, ToolResult
from rkllm_mcp.protocols import DISCARD_EVENTS, EventSink
from rkllm_mcp.records import CallRecord, StoredConversation
from rkllm_mcp.store import open_store
from rkllm_mcp.store.conversations import Conversations
from rkllm_mcp.store.database import SQLiteDatabase, open_database, state_file
from rkllm_mcp.store.limits import HistoryLimits, Limits, StoreLimits
from tests.support.demo_app import TIME_SERVER, Demo, make_demo
from tests.support.feature_demo import DESK, make_features
from tests.support.turn_events import FunctionSink

pytestmark = pytest.mark.anyio
NOW = 1_800_000_000.0
CALLING = Message("assistant", "Let me look.", calls=(ToolCall("call_1", "t", {}),), thinking="a clock")
RESULT = Message("tool", results=(ToolResult("call_1", "t", "12:00"),))
DAY_S = 86400.0


@asynccontextmanager
async def running(demo: Demo) -> AsyncGenerator[App, None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in demo.environment.items():
            patch.setenv(name, value)
        patch.delenv("RKLLM_MCP_STATE")
        with anyio.fail_after(60):
            async with open_app(load_config(demo.config)) as app:
                await app.ready()
                yield app


def state_of(demo: Demo) -> Path:
    return demo.folder / ".local" / "state" / "rkllm-mcp" / "state.db"


@asynccontextmanager
async def keeping_in(
    folder: Path, problems: Callable[[str], None] = pytest.fail
) -> AsyncGenerator[tuple[Recorder, SQLiteDatabase], None]:
    async with open_database(folder / "state.db", on_problem=problems) as database:
        yield Recorder(Conversations(database), "", clock=lambda: NOW), database


# What an answer does until it has its end.
Play = Callable[[Answer], Awaitable[None]]


async def events_of(recorder: Recorder, conversation: Conversation, play: Play) -> list[Event]:
    """The events of an answer to 'Why?' that ``play`` makes."""
    events: list[Event] = []
    await answer(recorder, conversation, play, FunctionSink(events.append))
    return events


async def answer(recorder: Recorder, conversation: Conversation, play: Play, sink: EventSink = DISCARD_EVENTS) -> None:
    """Have ``play`` answer 'Why?'."""
    record = AnswerRecord(recorder, conversation, "Why?", ("tok-secret-1",))
    async with Answer(conversation, sink, UsageCounter(), lambda: None, record=record).making() as made:
        await play(made)


def answering(conversation: Conversation, *messages: Message, end: End | None = None) -> Play:
    """Add messages to a conversation as a loop would."""

    async def play(made: Answer) -> None:
        conversation.messages.extend(messages)
        made.end = end or End("answered")

    return play


def assistant(text: str, ending: Ending = "answered", thinking: str = "", at: float = 2.0) -> StoredTurn:
    return StoredTurn("assistant", text, thinking, ending=ending, at=at)


QUESTION = StoredTurn("user", "What time?", context="news", at=1.0)
ASKED = Message("user", "What time?", context="news")
KEPT: dict[str, tuple[Sequence[Message], str, Ending, list[StoredTurn]]] = {
    "an answer": ([ASKED, Message("assistant", "\n12:00")], "", "answered", [QUESTION, assistant("\n12:00")]),
    "its last round alone": (
        [ASKED, CALLING, RESULT, Message("assistant", "Noon.", thinking="so")],
        "",
        "answered",
        [QUESTION, assistant("Noon.", thinking="so")],
    ),
    "all that came before it was stopped": (
        [ASKED, CALLING, RESULT, Message("assistant", " Noo")],
        "",
        "cancelled",
        [QUESTION, assistant("Let me look.\n\nNoo", "cancelled", "a clock")],
    ),
    "what was said before the limit": (
        [ASKED, CALLING, RESULT, Message("assistant", "")],
        "",
        "round_limit",
        [QUESTION, assistant("Let me look.", "round_limit", "a clock")],
    ),
    "a question without an answer": ([ASKED], "", "failed", [QUESTION, assistant("", "failed")]),
    "a question that never came in": (
        [],
        "Why?",
        "failed",
        [StoredTurn("user", "Why?", at=1.0), assistant("", "failed")],
    ),
    "nothing of an unknown question": ([], "", "failed", []),
    "what a prompt says first": (
        [
            Message("assistant", "Hi."),
            Message("user", "A"),
            Message("assistant", "B"),
            ASKED,
            Message("assistant", "C"),
        ],
        "",
        "token_limit",
        [assistant("Hi."), StoredTurn("user", "A", at=1.0), assistant("B"), QUESTION, assistant("C", "token_limit")],
    ),
}


@pytest.mark.parametrize(("said", "words", "ending", "turns"), KEPT.values(), ids=KEPT)
def test_the_parts_of_an_answer_are_stored(
    said: Sequence[Message], words: str, ending: Ending, turns: list[StoredTurn]
) -> None:
    asked = Message("user", words) if words else None
    assert turns_of(said, asked, ending, asked_at=1.0, ended_at=2.0) == turns


def test_a_stored_conversation_is_shown_to_the_model_without_empty_answers() -> None:
    turns = (
        QUESTION,
        assistant("Noon.", "token_limit", "so"),
        StoredTurn("user", "Too long"),
        assistant("", "failed"),
        StoredTurn("user", "And?"),
        assistant("Tw", "cancelled"),
    )
    kept = StoredConversation("c1", "What time?", 1.0, 2.0, turns, "Be brief.", 3)
    system = Message("system", "Be brief.")
    assert restored_turns(kept, Conversation(messages=[system])) == Conversation(
        "c1",
        [
            system,
            ASKED,
            Message("assistant", "Noon.", thinking="so", cut=True),
            Message("user", "And?"),
            Message("assistant", "Tw"),
        ],
        calls_made=3,
        own_system="Be brief.",
        kept_turns=6,
    )


async def test_the_end_of_an_answer_comes_after_it_is_stored_and_not_before(tmp_path: Path) -> None:
    stored: list[tuple[str, str]] = []
    async with keeping_in(tmp_path) as (keeping, _):
        conversation = Conversation("c1")

        @FunctionSink
        def sink(event: Event) -> None:
            with sqlite3.connect(tmp_path / "state.db") as other:
                rows = other.execute("SELECT text, ending FROM messages ORDER BY position").fetchall()
            other.close()
            stored.extend(rows if isinstance(event, End) else [])

        work = answering(conversation, Message("user", "Why?"), Message("assistant", "Because tok-secret-1."))
        await answer(keeping, conversation, work, sink)
    assert stored == [("Why?", ""), ("Because [REDACTED].", "answered")]


@pytest.mark.parametrize("error", [UsageError("no such thing"), KeyError("a mistake of ours")])
async def test_an_answer_that_fails_is_stored_as_failed(tmp_path: Path, error: Exception) -> None:
    async def work(made: Answer) -> None:
        conversation.messages.extend([Message("user", "Why?"), Message("assistant", "Bec")])
        raise error

    async with keeping_in(tmp_path) as (keeping, database):
        conversation = Conversation("c1")
        (end,) = await events_of(keeping, conversation, work)
        assert isinstance(end, End)
        assert (end.reason, end.cause) == ("failed", error)
        internal = f"internal error: {error!r}; please report it with the output of --debug"
        assert end.error == ("no such thing" if isinstance(error, UsageError) else internal)
        kept = await Conversations(database).get("", "c1")
        assert kept is not None
        assert kept.turns == (StoredTurn("user", "Why?", at=NOW), assistant("Bec", "failed", at=NOW))


@pytest.mark.parametrize("is_left", [False, True])
async def test_an_answer_that_is_stopped_is_stored_with_the_text_so_far(tmp_path: Path, is_left: bool) -> None:
    async def work(made: Answer) -> None:
        conversation.messages.extend([Message("user", "Why?"), Message("assistant", "Bec")])
        made.feed([Text("Bec")])
        if is_left:
            reading.cancel()
        else:
            made.scope.cancel()
        await anyio.sleep_forever()

    async with keeping_in(tmp_path) as (keeping, database):
        conversation = Conversation("c1")
        events: list[Event] = []
        with anyio.CancelScope() as reading:
            events = await events_of(keeping, conversation, work)
        assert events == ([] if is_left else [Text("Bec"), End("cancelled")])
        kept = await Conversations(database).get("", "c1")
        assert kept is not None
        assert kept.turns[1] == assistant("Bec", "cancelled", at=NOW)


async def test_an_answer_that_is_cancelled_while_it_is_saved_ends_as_it_was_saved(tmp_path: Path) -> None:
    async with keeping_in(tmp_path) as (keeping, database):
        conversation = Conversation("c1", [Message("user", "Why?"), Message("assistant", "So.")])
        events: list[Event] = []
        record = AnswerRecord(keeping, Conversation("c1"), "Why?", ())
        made = Answer(conversation, FunctionSink(events.append), UsageCounter(), lambda: None, record=record)

        async def cancel_while_it_is_saved() -> None:
            while not made.is_ending:
                await anyio.lowlevel.checkpoint()
            made.scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_while_it_is_saved)
            async with made.making():
                assert not made.is_ending
                made.end = End("answered")
        kept = await Conversations(database).get("", "c1")
        assert kept is not None
        assert (events, kept.turns[-1].ending) == ([End("answered")], "answered")


class Growing:
    """An answer to 'Why?' whose seconds pass when the test says so; what is in the store after each."""

    def __init__(self, folder: Path, secrets: Sequence[str] = ()) -> None:
        self.path = folder / "state.db"
        self.secrets = secrets
        self.conversation = Conversation("c1")
        self.deleted = anyio.Event()
        self._is_waiting, self._is_over = anyio.Event(), anyio.Event()

    def stored(self) -> list[tuple[str, str, str]]:
        """Text, thinking and ending of each turn, as another process reads them."""
        with sqlite3.connect(self.path) as other:
            rows = other.execute("SELECT text, thinking, ending FROM messages ORDER BY position").fetchall()
        other.close()
        return rows

    async def _pause(self) -> None:
        self._is_waiting.set()
        await self._is_over.wait()
        self._is_over = anyio.Event()

    async def second(self, *, is_last: bool = False) -> None:
        """Let a second pass; what was due is written when this returns, or the answer's end was asked for."""
        await self._is_waiting.wait()
        self._is_waiting = anyio.Event()
        self._is_over.set()
        await (self.deleted if is_last else self._is_waiting).wait()

    @asynccontextmanager
    async def answer(self, question: str = "Why?") -> AsyncGenerator[AnswerRecord, None]:
        """An accepted question whose answer is followed."""
        async with open_database(self.path, on_problem=pytest.fail) as database, anyio.create_task_group() as tasks:
            recorder = Recorder(Conversations(database), "", lambda: NOW, self._pause)
            record = AnswerRecord(recorder, self.conversation, question, self.secrets)
            await record.begin()
            tasks.start_soon(record.follow, self.deleted.set)
            with anyio.fail_after(60):
                yield record
            tasks.cancel_scope.cancel()


async def test_a_question_is_stored_when_it_is_accepted_and_its_answer_as_it_grows(tmp_path: Path) -> None:
    it = Growing(tmp_path)
    async with it.answer() as record:
        assert it.stored() == [("Why?", "", ""), ("", "", "interrupted")]
        record.feed([Thinking("Hm."), Text(" Bec")])
        assert it.stored()[1] == ("", "", "interrupted")
        await it.second()
        assert it.stored()[1] == ("Bec", "Hm.", "interrupted")
        record.feed([Text("ause"), Usage(1, 1, 0, 1, 1.0, 1.0, 1.0), ToolFinished("call_1", "t", False, "12:00", 1.0)])
        record.feed([Text("It is noon.")])
        await it.second()
        assert it.stored() == [("Why?", "", ""), ("Because\n\nIt is noon.", "Hm.", "interrupted")]
        it.conversation.messages += [Message("user", "Why?"), Message("assistant", "It is noon.")]
        assert await record.save("answered") == ""
        assert it.stored() == [("Why?", "", ""), ("It is noon.", "", "answered")]
    assert (it.conversation.kept_turns, it.conversation.draft) == (2, None)


SECRET = "s3cret token/1"
SPOKEN = f"One {SECRET} two {quote(SECRET)} three s3cre"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_no_write_of_an_answer_that_grows_has_a_part_of_a_secret(tmp_path: Path, size: int) -> None:
    it = Growing(tmp_path, [SECRET])
    written: list[str] = []
    async with it.answer(f"Why {SECRET}?") as record:
        assert it.stored()[0][0] == "Why [REDACTED]?"
        for start in range(0, len(SPOKEN), size):
            record.feed([Text(SPOKEN[start : start + size])])
            await it.second()
            written.append(it.stored()[1][0])
    whole = "One [REDACTED] two [REDACTED] three s3cre"
    assert all(whole.startswith(text) for text in written), written
    assert written[-1] == "One [REDACTED] two [REDACTED] three "


async def test_nothing_is_written_while_nothing_comes_and_one_write_takes_all_that_came(tmp_path: Path) -> None:
    it = Growing(tmp_path)
    async with it.answer() as record:
        writes = 0
        with closing(sqlite3.connect(it.path)) as other:

            def version() -> int:
                return other.execute("PRAGMA data_version").fetchone()[0]

            last = version()
            for count in (0, 500, 0, 1):
                record.feed([Text("x")] * count)
                await it.second()
                writes += version() != last
                last = version()
        assert (writes, it.stored()[1][0]) == (2, "x" * 501)


async def test_an_answer_whose_conversation_is_deleted_elsewhere_ends_and_is_not_stored(tmp_path: Path) -> None:
    it = Growing(tmp_path)
    async with it.answer() as record:
        async with open_database(it.path, on_problem=pytest.fail) as other:
            assert await Conversations(other).delete("", "c1")
        record.feed([Text("Because")])
        await it.second(is_last=True)
        it.conversation.messages += [Message("user", "Why?"), Message("assistant", "Because")]
        assert await record.save("cancelled") == ""
    assert it.stored() == []


async def test_a_question_that_is_too_long_is_not_stored(tmp_path: Path) -> None:
    async with keeping_in(tmp_path) as (keeping, database):
        conversation = Conversation("c1")
        too_long = End("failed", "too long", PromptTooLongError(9, 8))
        for earlier in (0, 2):
            record = AnswerRecord(keeping, conversation, "Long?", ())
            await record.begin()
            made = Answer(conversation, DISCARD_EVENTS, UsageCounter(), lambda: None, record=record)
            async with made.making():
                made.end = too_long
            kept = await Conversations(database).get("", "c1")
            assert (len(kept.turns) if kept else 0, conversation.kept_turns) == (earlier, earlier)
            await events_of(keeping, conversation, answering(conversation, ASKED, Message("assistant", "Noon.")))


@pytest.mark.parametrize("said", ["", "Bec"])
async def test_a_question_whose_answer_was_broken_off_is_asked_again_in_its_place(tmp_path: Path, said: str) -> None:
    it = Growing(tmp_path)
    async with it.answer() as record:
        record.feed([Text(said)])
        await it.second()
    async with keeping_in(tmp_path) as (keeping, database):
        kept = await Conversations(database).get("", "c1")
        assert kept is not None
        assert kept.turns[1] == assistant(said, "interrupted", at=NOW)
        conversation = restored_turns(kept, Conversation())
        assert ask_again(conversation) == "Why?"
        assert (conversation.messages, ask_again(conversation)) == ([], "")
        await events_of(
            keeping, conversation, answering(conversation, Message("user", "Why?"), Message("assistant", "So."))
        )
    assert it.stored() == [("Why?", "", ""), ("So.", "", "answered")]


async def test_a_draft_that_the_disk_ends_after_it_was_given_up_is_the_same_question_for_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record is made when a question gets its place in the queue, and one when its turn has come."""
    monkeypatch.setattr("rkllm_mcp.conversations.recorder.SAVE_TIMEOUT_S", 2.0)
    times = iter(range(1000))
    async with open_database(tmp_path / "state.db", on_problem=pytest.fail) as database:
        conversations, conversation = Conversations(database), Conversation("c1")
        recorder, really_begin = Recorder(conversations, "", clock=lambda: NOW + next(times)), conversations.begin

        async def begin_without_telling(tenant: str, begun: Conversation, turns: Sequence[StoredTurn]) -> bool:
            await really_begin(tenant, replace(begun), turns)
            await anyio.sleep_forever()
            return True

        monkeypatch.setattr(conversations, "begin", begin_without_telling)
        assert await AnswerRecord(recorder, conversation, "Why?", ()).begin()
        assert conversation.draft is None
        monkeypatch.setattr(conversations, "begin", really_begin)
        record = AnswerRecord(recorder, conversation, "Why?", ())
        assert await record.begin()
        conversation.messages += [Message("user", "Why?"), Message("assistant", "So.")]
        assert await record.save("answered") == ""
        # The same question again is another one.
        again = AnswerRecord(recorder, conversation, "Why?", ())
        conversation.messages += [Message("user", "Why?"), Message("assistant", "As I said.")]
        assert await again.save("answered") == ""
        stored = await conversations.get("", "c1")
        assert stored is not None
        assert [turn.text for turn in stored.turns] == ["Why?", "So.", "Why?", "As I said."]


FULL = ("max_page_count = 1", "max_page_count = 4294967294", "database or disk is full", "make room on that disk")
READ_ONLY = ("query_only = 1", "", "attempt to write a readonly database", "name another folder in ")


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize(("spoil", "mend", "found", "remedy"), [FULL, READ_ONLY], ids=["full", "read-only"])
async def test_a_full_disk_is_reported_and_costs_neither_the_answer_nor_later_ones(
    tmp_path: Path, spoil: str, mend: str, found: str, remedy: str, *, stopped: bool
) -> None:
    async def stop(made: Answer) -> None:
        conversation.messages.extend([Message("user", "Why?"), Message("assistant", "x" * 50_000)])
        reading.cancel()
        await anyio.lowlevel.checkpoint()

    problems: list[str] = []
    async with keeping_in(tmp_path, problems.append) as (keeping, database):
        # As many pages as there are already, and not one more.
        await database.ask(lambda connection: connection.execute(f"PRAGMA {spoil}").fetchone())
        conversation = Conversation("c1")
        long = (Message("user", "Why?"), Message("assistant", "x" * 50_000))
        events: list[Event] = []

        sink = FunctionSink(events.append)
        with anyio.CancelScope() as reading:
            await answer(keeping, conversation, stop if stopped else answering(conversation, *long), sink)
        told, *end = events
        assert isinstance(told, Status)
        # A client is told no path of this machine, the log is.
        assert told.text.startswith(f"[Memory: this answer was not kept: {found}; {remedy}")
        assert end == ([] if stopped else [End("answered")])
        # It is reported once, in answers and in the log, however many follow.
        other = Conversation("c2")
        assert await events_of(keeping, other, answering(other, *long)) == [End("answered")]
        (problem,) = problems
        assert problem.startswith(f"[State: {tmp_path / 'state.db'} cannot be used ({found}); {remedy}")
        assert database.failing is not None
        if not mend:
            return
        await database.ask(lambda connection: connection.execute(f"PRAGMA {mend}").fetchone())
        more = answering(conversation, Message("user", "And?"), Message("assistant", "So."))
        assert await events_of(keeping, conversation, more) == [End("answered")]
        kept = await Conversations(database).get("", "c1")
        assert kept is not None
        endings = ["", "cancelled" if stopped else "answered", "", "answered"]
        assert [turn.ending for turn in kept.turns] == endings
        assert (problems[1:], database.failing) == (["[State: data is saved again.]"], None)


async def test_an_unusable_file_is_reported_once_for_a_conversation(tmp_path: Path) -> None:
    (tmp_path / "state.db").mkdir()
    problems: list[str] = []
    async with keeping_in(tmp_path, problems.append) as (keeping, _):
        conversation = Conversation("c1")
        work = answering(conversation, Message("user", "Why?"), Message("assistant", "So."))
        told, end = await events_of(keeping, conversation, work)
        assert told == Status(
            "[Memory: this answer was not kept: what is remembered lasts until this run ends, because its file cannot "
            "be used]"
        )
        assert end == End("answered")
        assert await events_of(keeping, conversation, work) == [End("answered")]
    assert len(problems) == 1


async def test_a_conversation_that_goes_on_elsewhere_is_stored_whole_and_reported(tmp_path: Path) -> None:
    async with keeping_in(tmp_path) as (keeping, database):
        conversation, other = Conversation("c1"), Conversation("c1")
        for each, question in ((conversation, "One?"), (other, "Two?")):
            events = await events_of(
                keeping, each, answering(each, Message("user", question), Message("assistant", "!"))
            )
        assert events[-2:] == [
            Status(
                "[Memory: this conversation went on elsewhere too; all of it is kept, in the order in which answers "
                "ended]"
            ),
            End("answered"),
        ]
        kept = await Conversations(database).get("", "c1")
        assert kept is not None
        assert [turn.text for turn in kept.turns] == ["One?", "!", "Two?", "!"]


async def test_an_assistant_keeps_and_resumes_a_conversation(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, [TIME_SERVER])
    question = "What time is it in London?"
    async with running(demo) as app:
        conversation = app.new_conversation()
        async with aclosing(app.reply(conversation, question, AnswerOptions(save=True))) as stream:
            whole = [event async for event in stream]
        assert len([message for message in conversation.messages if message.role == "assistant"]) == 2
        async with aclosing(
            app.reply(conversation, "Hello", AnswerOptions(ModelOptions(tool_choice=ForcedTool("no")), save=True))
        ) as stream:
            assert isinstance((failed := [event async for event in stream][-1]), End)
            assert failed.reason == "failed"
        async with aclosing(app.reply(app.new_conversation(), "Hello")) as stream:
            _ = [event async for event in stream]
    async with running(demo) as app:
        (summary,) = await app.store.conversations.latest(app.tenant)
        assert (summary.id, summary.title, summary.messages) == (conversation.id, question, 4)
        kept = await app.store.conversations.get("", summary.id)
        assert kept is not None
        words = "".join(event.text for event in whole if isinstance(event, Text))
        assert kept.turns[1].text.strip() == words.strip()
        assert [(turn.text, turn.ending) for turn in kept.turns[2:]] == [("Hello", ""), ("", "failed")]
        (call,) = await app.store.calls.latest(5, conversation=summary.id)
        assert call.tool == "get_current_time"
        resumed = app.resume(kept)
        async with aclosing(app.reply(resumed, question, AnswerOptions(save=True))) as stream:
            events = [event async for event in stream]
        assert [event.id for event in events if isinstance(event, ToolCallDetected)] == ["call_2"]
        first_prompts = [next(event for event in one if isinstance(event, Usage)) for one in (whole, events)]
        assert first_prompts[1].prompt_tokens > first_prompts[0].prompt_tokens + 20
        assert resumed.messages[1:3] == [Message("user", question), Message("assistant", kept.turns[1].text)]
        assert [one.messages for one in await app.store.conversations.latest("")] == [6]


async def test_its_own_system_text_stays_with_a_conversation(tmp_path: Path) -> None:
    async with running(make_demo(tmp_path, ())) as app:
        for system, first in (("Be brief.", "Be brief."), (None, app.new_conversation().messages[0].text)):
            conversation = app.new_conversation(system)
            async with aclosing(app.reply(conversation, "Hello", AnswerOptions(save=True))) as stream:
                _ = [event async for event in stream]
            kept = await app.store.conversations.get("", conversation.id)
            assert kept is not None
            assert kept.system == system
            assert app.resume(kept).messages[0] == Message("system", first)


async def test_a_call_that_could_not_run_is_stored_as_the_sentence_the_reader_saw(tmp_path: Path) -> None:
    async with running(make_features(tmp_path, (DESK,))) as app:
        conversation = app.new_conversation()
        options = AnswerOptions(tools=False, save=True)
        async with aclosing(app.reply(conversation, "Who am I?", options)) as stream:
            read = "".join([event.text async for event in stream if isinstance(event, Text)])
        kept = await app.store.conversations.get("", conversation.id)
        assert kept is not None
        assert [turn.text for turn in kept.turns] == ["Who am I?", translate("answer.no_tool_on")]
        assert read.strip() == translate("answer.no_tool_on")


async def test_expired_conversations_are_removed_when_the_assistant_starts(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, (), extra="[service]\nhistory_conversations = 1\n")
    async with open_store(path=state_of(demo), required=True) as memory:
        for name in ("c1", "c2"):
            memory.calls.record(CallRecord(NOW, "s", "t", "{}", "once", conversation=name))
            await memory.conversations.save("", Conversation(name, unkept=[QUESTION, assistant("!")]))
    async with running(demo) as app:
        # The cleaning began with the assistant, and goes on in the background.
        while [one.id for one in await app.store.conversations.latest("")] != ["c2"]:
            await anyio.lowlevel.checkpoint()
        while [call.conversation for call in await app.store.calls.latest(5)] != ["c2"]:
            await anyio.lowlevel.checkpoint()


async def test_a_cleaning_that_fails_is_reported(tmp_path: Path) -> None:
    said: list[str] = []
    with anyio.CancelScope() as scope:

        def say(line: str) -> None:
            said.append(line)
            scope.cancel()

        async with open_database(tmp_path / "state.db", on_problem=say, required=True) as database:
            await database.ask(lambda connection: connection.execute("DROP TABLE messages") and None)
            await database.ask(lambda connection: connection.execute("DROP TABLE conversations") and None)
            await Recorder(Conversations(database, Limits(StoreLimits(HistoryLimits(days=1)))), "").tidy()
    assert len(said) == 1
    assert "no such table" in said[0]
    assert state_file({"RKLLM_MCP_STATE": str(tmp_path)}) == tmp_path / "state.db"
