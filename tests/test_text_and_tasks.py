"""The rules that every package shares: the limits and the language of a text, and task groups that raise an exception
itself."""

from __future__ import annotations

import anyio
import pytest

from rkllm_mcp.tasks import first_exception, open_task_group, run_concurrently
from rkllm_mcp.text import (
    LANGUAGES,
    collapse_whitespace,
    first_line,
    language_of_header,
    language_of_setting,
    language_of_text,
    shorten,
    without_files,
)
from rkllm_mcp.toolcalls.untrusted_text import on_one_line

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("question", "shown"),
    [
        ("What is it?", "What is it?"),
        ("a.txt:\n````\nbuy milk\n````\n\nSummarise a.txt", "Summarise a.txt"),
        (
            "a.txt:\n````\nbuy\n````\n\nメモ 1.md:\n`````\n````\nx\n````\n`````\n\n要約して",
            "要約して (a.txt, メモ 1.md)",
        ),
        ("````\npiped\n````\n\nWhat is it?", "What is it?"),
        ("a.txt:\n````\nnothing else\n````", "a.txt"),
        ("````\npiped alone\n````", "````\npiped alone\n````"),
        ("a.txt:\n````\nwithout an end", "a.txt:\n````\nwithout an end"),
        ("Look:\n```\ncode\n```\nWhy?", "Look:\n```\ncode\n```\nWhy?"),
    ],
)
def test_a_question_is_shown_with_the_names_of_its_files_and_not_with_their_texts(question: str, shown: str) -> None:
    assert without_files(question) == shown


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [("", 1, ""), ("abc", 3, "abc"), ("abcd", 3, "ab…"), ("東京都庁", 3, "東京…"), ("abcd", 1, "…")],
)
def test_a_shortened_text_has_at_most_the_characters_of_its_limit(text: str, limit: int, shown: str) -> None:
    assert shorten(text, limit) == shown


def test_a_shortened_name_of_a_server_does_not_exceed_its_limit() -> None:
    assert len(on_one_line("n" * 65)) == 64


@pytest.mark.parametrize(
    ("text", "line", "first"),
    [
        ("", "", ""),
        ("\n  a \n b", "a b", "a "),
        ("a\tb\r\nc", "a b c", "a\tb\r"),
        ("東京\u3000大阪", "東京 大阪", "東京\u3000大阪"),
    ],
)
def test_a_text_is_shown_on_one_line_or_by_its_first(text: str, line: str, first: str) -> None:
    assert (collapse_whitespace(text), first_line(text)) == (line, first)


@pytest.mark.parametrize(
    ("setting", "language"),
    [("ja", "ja"), ("ja_JP.UTF-8", "ja"), ("Japanese", "ja"), ("日本語", "ja"), ("en", "en"), ("", "en"), (None, "en")],
)
def test_the_language_of_a_setting(setting: str | None, language: str) -> None:
    assert language_of_setting(setting) == language
    assert language in LANGUAGES


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("ja,en-US;q=0.9,en;q=0.8", "ja"),
        ("fr-FR, en;q=0.5", "en"),
        ("JA-jp", "ja"),
        ("fr", None),
        ("*", None),
        ("", None),
    ],
)
def test_the_language_of_a_browser(header: str, language: str | None) -> None:
    assert language_of_header(header) == language


@pytest.mark.parametrize(
    ("text", "language"),
    [("明日の天気は？", "ja"), ("カレー", "ja"), ("北京天气", "en"), ("weather", "en"), ("", "en")],
)
def test_the_language_of_a_text_is_japanese_if_it_has_kana(text: str, language: str) -> None:
    assert language_of_text(text) == language


async def test_a_failure_of_the_block_is_raised_itself_after_its_tasks_were_cancelled() -> None:
    endings: list[str] = []

    async def wait() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            endings.append("cancelled")

    with pytest.raises(ValueError, match="block"):
        async with open_task_group(cancel_at_end=True) as tasks:
            tasks.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            raise ValueError("block")
    assert endings == ["cancelled"]


async def test_a_failure_of_a_task_is_raised_itself() -> None:
    async def fail() -> None:
        async with anyio.create_task_group():
            raise ValueError("task")

    with pytest.raises(ValueError, match="task"):
        async with open_task_group() as tasks:
            tasks.start_soon(fail)
            await anyio.sleep_forever()


async def test_the_first_failure_of_concurrent_jobs_cancels_the_others() -> None:
    async def fail() -> None:
        raise ValueError("job")

    with pytest.raises(ValueError, match="job"):
        await run_concurrently([anyio.sleep_forever, fail])


def test_an_exception_outside_of_a_group_is_its_own_first() -> None:
    error = ValueError()
    assert first_exception(error) is error
