from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from mcp_servers.knowledge.errors import (
    DamagedDocumentError,
    EncryptedDocumentError,
    KnowledgeError,
    MissingExtraError,
    NoTextError,
    PicturesOnlyError,
    TooLargeError,
    TooSlowError,
    UnsupportedFormatError,
)
from mcp_servers.knowledge.importing import parser_worker
from mcp_servers.knowledge.importing.documents import Blob, ParseLimits
from mcp_servers.knowledge.importing.parse import parse_blob
from mcp_servers.knowledge.importing.parser_process import ParserProcess, open_parser
from tests.support.imported import column, docx, paragraph, pdf

pytestmark = pytest.mark.anyio

TEXT = Blob("日本語の文章です。".encode(), "a.txt", uri="file:///a.txt")
PAGES = Blob(pdf([column(["一頁。"]), column(["二頁。"])]), "a.pdf")
# Ten seconds and more for any parser, quick to write down.
ENDLESS = Blob(b"<p>a" * 3_000_000, "endless.html")


def process_of(parser: ParserProcess) -> int:
    assert parser.process is not None
    return parser.process.pid


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_documents_come_back_as_they_were_read_and_one_process_reads_them_all() -> None:
    with anyio.fail_after(60):
        async with open_parser() as parser:
            read = [await parser.parse(blob) for blob in (TEXT, PAGES, Blob(docx(paragraph("あ")), "a.docx"))]
            process = process_of(parser)
            assert await parser.parse(TEXT) == read[0] == parse_blob(TEXT, ParseLimits())
            assert read[1] == parse_blob(PAGES, ParseLimits())
            assert process_of(parser) == process
    assert not is_there(process)


async def test_several_documents_at_once_are_read_in_turn() -> None:
    read: list[str] = []

    async def parse(number: int) -> None:
        document = await parser.parse(Blob(f"文 {number}".encode(), f"{number}.txt"))
        read.append(f"{document.title}: {document.passages[0].text}")

    with anyio.fail_after(60):
        async with open_parser() as parser, anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(parse, number)
    assert sorted(read) == [f"{number}: 文 {number}" for number in range(8)]


async def test_text_made_to_be_slow_is_read_in_time() -> None:
    units = ("[a", "int f(", "*", "|", '"a', "(x=>", "あ。", "`", ">", "# ", "<b>", "\n\n", "- ")
    with anyio.fail_after(120):
        async with open_parser(ParseLimits(seconds=15)) as parser:
            for name in ("a.md", "a.c", "a.py", "a.js", "a.csv", "a.json", "a.txt"):
                for unit in units:
                    with suppress(NoTextError):
                        await parser.parse(Blob(unit.encode() * (100_000 // len(unit)), name))


async def test_a_document_that_takes_too_long_is_given_up_and_the_next_is_read() -> None:
    with anyio.fail_after(60):
        async with open_parser(ParseLimits(seconds=0.5)) as parser:
            with pytest.raises(
                TooSlowError, match=r"endless\.html could not be read: it took longer than 0\.5 s\. Split"
            ):
                await parser.parse(ENDLESS)
            assert (await parser.parse(TEXT)).title == "a"


@pytest.mark.parametrize("memory_bytes", [60_000_000, 120_000_000], ids=["while it comes", "while it is read"])
async def test_a_document_that_eats_the_memory_is_given_up_and_the_next_is_read(memory_bytes: int) -> None:
    with anyio.fail_after(60):
        async with open_parser(ParseLimits(memory_bytes=memory_bytes)) as parser:
            with pytest.raises(TooSlowError, match=f"big.txt could not be read: {parser_worker.NO_MEMORY}"):
                await parser.parse(Blob(b"a " * 20_000_000, "big.txt"))
            assert (await parser.parse(TEXT)).title == "a"


async def test_a_crash_in_a_library_costs_only_its_document(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = anyio.Event()

    async def crash(process: int) -> None:
        await sent.wait()
        os.kill(process, signal.SIGSEGV)
        os.kill(process, signal.SIGCONT)

    with anyio.fail_after(60):
        async with open_parser() as parser:
            await parser.parse(TEXT)
            assert parser.process is not None and parser.process.stdin is not None
            send = parser.process.stdin.send

            async def send_and_tell(request: bytes) -> None:
                sent.set()
                await send(request)

            monkeypatch.setattr(parser.process.stdin, "send", send_and_tell)
            # Stopped, so that the crash comes while the document is being read.
            os.kill(parser.process.pid, signal.SIGSTOP)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(crash, parser.process.pid)
                with pytest.raises(TooSlowError, match=r"crashed on it \(Segmentation fault\)"):
                    await parser.parse(ENDLESS)
            assert (await parser.parse(TEXT)).title == "a"


async def test_a_process_that_died_between_documents_is_not_the_next_ones_fault() -> None:
    with anyio.fail_after(60):
        async with open_parser() as parser:
            await parser.parse(TEXT)
            assert parser.process is not None
            os.kill(parser.process.pid, signal.SIGKILL)
            await parser.process.wait()
            assert (await parser.parse(TEXT)).title == "a"


async def test_cancelling_ends_the_process() -> None:
    with anyio.fail_after(60):
        async with open_parser() as parser:
            await parser.parse(TEXT)
            process = process_of(parser)
            with anyio.move_on_after(0.2):
                await parser.parse(ENDLESS)
            assert not is_there(process)
            assert (await parser.parse(TEXT)).title == "a"


async def test_a_parser_that_is_never_used_starts_nothing() -> None:
    async with open_parser() as parser:
        assert parser.process is None


@pytest.mark.parametrize(
    "problem",
    [
        UnsupportedFormatError("a", "it is an image"),
        DamagedDocumentError("a", "理由"),
        EncryptedDocumentError("a"),
        NoTextError("a", "empty"),
        PicturesOnlyError("a", "its page is a picture"),
        TooLargeError("a"),
        TooSlowError("a"),
        MissingExtraError("A model on the CPU", "onnxruntime", "knowledge-cpu"),
    ],
    ids=lambda problem: type(problem).__name__,
)
async def test_a_problem_says_the_same_on_both_sides_of_the_pipe(problem: KnowledgeError) -> None:
    packed = parser_worker.pack_problem(problem)
    with pytest.raises(type(problem)) as caught:
        parser_worker.unpack_answer(packed[parser_worker.HEAD.size :])
    assert str(caught.value) == str(problem)


async def test_the_child_answers_until_its_input_ends() -> None:
    (requests, ours), (theirs, answers) = os.pipe(), os.pipe()
    os.write(ours, parser_worker.pack_request(TEXT, ParseLimits(seconds=0)))
    os.write(ours, parser_worker.pack_request(Blob(b"GIF89a\x00\x00", "a.gif"), ParseLimits(seconds=0)))
    os.close(ours)
    parser_worker.serve(requests, answers)
    received = os.read(theirs, 65_536)
    length, _ = parser_worker.HEAD.unpack(received[: parser_worker.HEAD.size])
    first, second = received[parser_worker.HEAD.size :][:length], received[parser_worker.HEAD.size * 2 + length :]
    assert parser_worker.unpack_answer(first) == parse_blob(TEXT, ParseLimits())
    with pytest.raises(UnsupportedFormatError, match=r"a\.gif"):
        parser_worker.unpack_answer(second)
    for descriptor in (requests, theirs, answers):
        os.close(descriptor)


async def test_a_child_with_nothing_to_do_ends_by_itself() -> None:
    (requests, ours), (theirs, answers) = os.pipe(), os.pipe()
    serving = threading.Thread(target=parser_worker.serve, args=(requests, answers), kwargs={"idle_s": 0.01})
    serving.start()
    await anyio.to_thread.run_sync(serving.join, 60)
    assert not serving.is_alive()
    for descriptor in (requests, ours, theirs, answers):
        os.close(descriptor)
