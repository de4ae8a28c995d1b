"""The model writes the titles of saved conversations while it is idle."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from rkllm_mcp.app import idle_requests
from rkllm_mcp.app.assistant import App
from rkllm_mcp.app.environment import ModelHost
from rkllm_mcp.conversations.titles import MOST_ATTEMPTS, MOST_PREFILLED, cleaned_title
from rkllm_mcp.events import End, Usage
from rkllm_mcp.generation import AnswerOptions, ModelOptions
from rkllm_mcp.messages import Conversation
from rkllm_mcp.store.conversations import title_of
from tests.support.chat_service import ChatService, openai_reply
from tests.support.demo_app import make_demo, reply_of, running
from tests.support.served import scripted_model, served

pytestmark = pytest.mark.anyio

QUESTION = "What is the weather in Rome, and will it rain there tomorrow or the day after, as it did last week?"
RULES = """
rule the title
  user Give this conversation a title
  say "Weather in Rome."

rule the title in Japanese
  user 短いタイトル
  say タイトル：「ローマの天気」。

rule
  say I see. There is nothing more to say about it.
"""
RUBBISH = """
rule no title
  user Give this conversation a title
  say I am sorry, but I cannot do that for you.

rule
  say I see.
"""
ECHO = RUBBISH.replace("I am sorry, but I cannot do that for you.", "Write only the title.")
# Of four seconds at four tokens a second.
SLOW = """
rule the title
  user Give this conversation a title
  say "Weather forecast of Rome: rainfall and sunshine"

rule
  say Yes.
"""
SPEED = "prefill 4000 decode 4"
SAVED = AnswerOptions(save=True)


@pytest.mark.parametrize(
    ("answer", "question", "title"),
    [
        ("Weather in Rome", "", "Weather in Rome"),
        ('"Weather in Rome."', "", "Weather in Rome"),
        ("Title: **Weather in Rome**", "", "Weather in Rome"),
        ("**Title:** “Weather in Rome”\n\nIt says what the conversation is about.", "", "Weather in Rome"),
        ("# Weather in Rome\n", "", "Weather in Rome"),
        ("Here is a title:\n\n1. Weather   in Rome", "", "Weather in Rome"),
        ("The title is 'Weather in Rome'", "", "Weather in Rome"),
        ("Will it rain in Rome?", "", "Will it rain in Rome?"),
        ("Living in the U.S.", "", "Living in the U.S."),
        ("Python 3.13", "", "Python 3.13"),
        ("Wetter in Köln…", "Wie wird das Wetter in Köln?", "Wetter in Köln"),
        ("「ローマの天気」", "ローマの天気は？", "ローマの天気"),
        ("タイトル：『ローマの天気』。\n説明です。", "ローマの天気は？", "ローマの天気"),
        ("Raspberry Pi", "Raspberry Pi とは？", "Raspberry Pi"),
        (
            "RK3588のNPUで大きな言語モデルを動かすときの注意点",
            "注意することは？",
            "RK3588のNPUで大きな言語モデルを動かすときの注意点",
        ),
        # What is no title
        ("", "", ""),
        ("...", "", ""),
        ("Title:", "", ""),
        ("I'm sorry, but I cannot help.", "", ""),
        ("Sure! A title", "", ""),
        ("申し訳ありません。", "題は？", ""),
        ('{"name": "get_weather", "arguments": {}}', "", ""),
        ("<tool_call>", "", ""),
        ("Dear [Landlord's name],", "", ""),
        ("Dear landlord,", "", ""),
        ("The weather in Rome will be fine tomorrow and it will rain the day after", "", ""),
        ("Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichenhersteller", "", ""),
        ("ローマの明日の天気は晴れですが明後日は雨が降るでしょう", "ローマの天気は？", ""),
        ("Weather in Rome", "ローマの天気は？", ""),
        ("東京から京都まで約2小时", "東京から京都までどのくらい？", ""),
        ("东京的天气", "东京天气怎么样", "东京的天气"),
        ("ローマの天気", "What is the weather in Rome?", ""),
    ],
)
def test_the_title_is_taken_out_of_the_answer(answer: str, question: str, title: str) -> None:
    assert cleaned_title(answer, question) == title


def test_an_answer_that_is_said_again_is_not_a_title_but_a_name_may_be() -> None:
    said = "The capital of France\nis Paris."
    assert cleaned_title("The capital of France is Paris.", "", said) == ""
    assert cleaned_title("Capital of France", "", said) == "Capital of France"
    assert cleaned_title("Paris", "", "Paris.") == "Paris"


def test_a_line_that_the_limit_has_cut_is_not_a_title() -> None:
    assert cleaned_title("Weather in", "", is_cut=True) == ""
    assert cleaned_title("Weather in Rome\nIt is abou", "", is_cut=True) == "Weather in Rome"


@dataclass
class Board:
    """An assistant with a scripted model that counts as a real one, and the calls of its runtime."""

    app: App
    log: Path

    async def ask(self, conversation: Conversation, text: str = QUESTION, thinking: bool | None = None) -> Usage:
        options = replace(SAVED, model=ModelOptions(thinking=thinking))
        events = await reply_of(self.app, text, conversation, options)
        assert events[-1] == End("answered")
        return next(event for event in events if isinstance(event, Usage))

    async def title(self, conversation: Conversation) -> str:
        (row,) = await self.app.store.conversations.matching("", conversation.id)
        return row.title

    async def titled(self, conversation: Conversation) -> str:
        """Wait for another title than the first words of the question."""
        first = title_of(next(message.text for message in conversation.messages if message.role == "user"))
        with anyio.fail_after(30):
            while True:
                title = await self.title(conversation)
                if title != first:
                    return title
                await anyio.sleep(0.02)

    async def quiet(self) -> None:
        """Wait until an attempt would have begun and ended."""
        await anyio.sleep(10 * idle_requests.IDLE_S)
        await self.over()

    async def busy(self) -> None:
        """Wait until the request has begun."""
        with anyio.fail_after(30):
            while True:
                if not self.app.model_host.board.engine.is_idle:
                    return
                await anyio.sleep(0.01)

    async def over(self) -> None:
        """Wait until the request has ended by itself: ``Engine.idle`` would end it."""
        with anyio.fail_after(30):
            while True:
                if self.app.model_host.board.engine.is_idle:
                    return
                await anyio.sleep(0.01)

    def runs(self) -> list[dict[str, Any]]:
        calls = map(json.loads, self.log.read_text("utf-8").splitlines())
        return [call["run"] for call in calls if call["call"] == "rkllm_run"]


@pytest.fixture(autouse=True)
def counted_as_real(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script counts as a model, and a title is written at once."""
    monkeypatch.setattr(ModelHost, "has_weights", True)
    monkeypatch.setattr(idle_requests, "IDLE_S", 0.05)


@asynccontextmanager
async def board(
    folder: Path,
    rules: str = RULES,
    extra: str = "",
    *,
    speed: str = "flat",
    context: int = 4096,
    template: str = "qwen2.5",
) -> AsyncGenerator[Board]:
    path = scripted_model(folder / "model", rules, context=context, template=template)
    demo = make_demo(folder, (), extra=extra, speed=speed)
    text = demo.config.read_text("utf-8").replace(
        'name = "demo"', f'path = "{path}"\nwarm_up = false\ncontext_tokens = {context}', 1
    )
    demo.config.write_text(text, "utf-8")
    log = folder / "calls.jsonl"
    async with running(demo, RKLLM_EMULATOR_LOG=str(log), XDG_STATE_HOME=str(folder / "state")) as app:
        await app.ready()
        yield Board(app, log)


@pytest.mark.parametrize(
    "question", [QUESTION, "ローマの天気はどうですか。明日は雨が降るでしょうか。"], ids=["en", "ja"]
)
async def test_the_title_costs_its_own_tokens_and_the_next_question_none(tmp_path: Path, question: str) -> None:
    runs: list[list[dict[str, Any]]] = []
    for name, extra in (("with", ""), ("without", "[service]\ntitles = false\n")):
        async with board(tmp_path / name, extra=extra) as it:
            conversation = it.app.new_conversation()
            await it.ask(conversation, question)
            before = len(it.runs())
            if not extra:
                title = "Weather in Rome" if question == QUESTION else "ローマの天気"
                assert await it.titled(conversation) == title
            await it.quiet()
            assert (it.app.writes_titles, len(it.runs()) - before) == ((True, 1) if not extra else (False, 0))
            assert len(conversation.messages) == 3
            await it.ask(conversation, "And in Oslo?")
            await it.quiet()
            runs.append(it.runs())
    titled, untitled = runs
    title, after = titled[-2:]
    answered = untitled[-1]
    assert title["prompt"][: len(titled[-3]["prompt"])] == titled[-3]["prompt"]
    assert title["prefill_tokens"] <= (48 if question == QUESTION else MOST_PREFILLED)
    # Of the next prompt even the end of the answer before it is in the cache.
    assert after["prompt"] == answered["prompt"]
    assert after["prefill_tokens"] <= answered["prefill_tokens"]


async def test_a_question_ends_the_request_at_once_and_there_is_a_second_attempt(tmp_path: Path) -> None:
    async with board(tmp_path, SLOW, speed=SPEED) as it:
        conversation = it.app.new_conversation()
        await it.ask(conversation)
        await it.busy()
        await anyio.sleep(0.5)
        usage = await it.ask(conversation, "And in Oslo?")
        assert usage.time_to_first_token_ms < 1500
        assert usage.prefilled_tokens < 30
        began = time.monotonic()
        assert await it.titled(conversation) == "Weather forecast of Rome: rainfall and sunshine"
        assert time.monotonic() - began > 2
        assert [message.role for message in conversation.messages[1:]] == ["user", "assistant"] * 2


@pytest.mark.parametrize("what", ["call", "idle", "embedding"])
async def test_whatever_is_asked_of_the_engine_ends_the_request(tmp_path: Path, what: str) -> None:
    async with board(tmp_path, SLOW, speed=SPEED) as it:
        await it.ask(it.app.new_conversation())
        await it.busy()
        engine, began = it.app.model_host.board.engine, time.monotonic()
        if what == "call":
            await engine.kv_cache_size()
        elif what == "idle":
            await engine.idle()
        else:
            await engine.embed([[1, 2, 3]])
        assert time.monotonic() - began < 1.5


async def test_a_conversation_that_was_renamed_meanwhile_keeps_its_name(tmp_path: Path) -> None:
    async with board(tmp_path, SLOW, speed="prefill 4000 decode 16") as it:
        conversation = it.app.new_conversation()
        await it.ask(conversation)
        await it.busy()
        assert await it.app.store.conversations.change("", conversation.id, {"title": "Mine"})
        await it.over()
        await it.quiet()
        assert await it.title(conversation) == "Mine"
        runs = len(it.runs())
        await it.ask(conversation, "And in Oslo?")
        await it.quiet()
        assert len(it.runs()) == runs + 1


@pytest.mark.parametrize("rules", [RUBBISH, ECHO], ids=["refusal", "echo"])
async def test_what_is_not_a_title_is_tried_twice_and_never_stored(tmp_path: Path, rules: str) -> None:
    async with board(tmp_path, rules) as it:
        conversation = it.app.new_conversation()
        questions = 4
        for _ in range(questions):
            await it.ask(conversation)
            await it.quiet()
        assert len(it.runs()) == questions + MOST_ATTEMPTS
        assert await it.title(conversation) == title_of(QUESTION)


async def test_only_the_conversation_in_the_cache_gets_its_title_and_the_other_after_its_next_answer(
    tmp_path: Path,
) -> None:
    async with board(tmp_path) as it:
        first, second = it.app.new_conversation(), it.app.new_conversation()
        for conversation in (first, second):
            await it.ask(conversation)
        assert await it.titled(second) == "Weather in Rome"
        await it.quiet()
        assert await it.title(first) == title_of(QUESTION)
        await it.ask(first, "And in Oslo?")
        assert await it.titled(first) == "Weather in Rome"


async def test_a_conversation_that_was_resumed_or_imported_keeps_its_title(tmp_path: Path) -> None:
    async with board(tmp_path) as it:
        conversation = it.app.new_conversation()
        await it.ask(conversation)
        await it.titled(conversation)
        stored = await it.app.store.conversations.get("", conversation.id)
        assert stored is not None
        imported = await it.app.store.conversations.add("", replace(stored, id="", title=title_of(QUESTION)))
        again = await it.app.store.conversations.get("", imported)
        assert again is not None
        resumed = it.app.resume(again)
        await it.ask(resumed, "And in Oslo?")
        await it.quiet()
        assert await it.title(resumed) == title_of(QUESTION)


async def test_a_window_that_is_nearly_full_and_an_answer_that_is_not_saved_get_none(tmp_path: Path) -> None:
    async with board(tmp_path, context=256) as it:
        # The longest question that fits
        words, conversation, question = 112, it.app.new_conversation(), ""
        while words:
            words -= 4
            conversation, question = it.app.new_conversation(), f"{QUESTION} {'rain ' * words}"
            if (await reply_of(it.app, question, conversation, SAVED))[-1] == End("answered"):
                break
        assert await it.title(conversation) == title_of(question)
        runs = len(it.runs())
        await it.quiet()
        assert len(it.runs()) == runs
        await reply_of(it.app, QUESTION, options=AnswerOptions(save=False))
        await it.quiet()
        assert len(it.runs()) == runs + 1


async def test_a_model_that_thinks_writes_the_title_without_thinking(tmp_path: Path) -> None:
    rules = RULES.replace("  say", "  think Hm, what do they want?\n  say")
    async with board(tmp_path, rules, template="qwen3") as it:
        conversation = it.app.new_conversation()
        await it.ask(conversation, thinking=True)
        assert "they want" in conversation.messages[-1].thinking
        assert await it.titled(conversation) == "Weather in Rome"
        assert it.runs()[-1]["prefill_tokens"] < 50


@pytest.mark.parametrize("template", ["lfm2", "lfm2.5", "qwen3.5", "rwkv7", "script"])
async def test_recurrent_models_and_scripts_write_none(
    tmp_path: Path, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with board(tmp_path) as it:
        host = it.app.model_host
        npu = host.board
        assert it.app.writes_titles
        if template == "script":
            monkeypatch.undo()
        else:
            card = npu.model.card.model_copy(update={"template": template})
            it.app.use(replace(host, npu=replace(npu, model=replace(npu.model, card=card))), warms=False)
        assert not it.app.writes_titles
        conversation = it.app.new_conversation()
        await it.ask(conversation)
        await anyio.sleep(0.5)
        assert await it.title(conversation) == title_of(QUESTION)
        assert len(it.runs()) <= 2


async def test_a_remote_service_is_not_asked_for_titles(tmp_path: Path) -> None:
    with ChatService(*(openai_reply("It rains.") for _ in range(3))) as service:
        extra = f'[provider]\nkind = "openai"\nbase_url = "{service.url}/v1"\nmodel = "x"\napi_key = "k"\nretries = 0\n'
        async with running(make_demo(tmp_path, (), extra=extra), XDG_STATE_HOME=str(tmp_path / "state")) as app:
            assert not app.writes_titles
            events = await reply_of(app, QUESTION, options=SAVED)
            assert events[-1] == End("answered")
            await anyio.sleep(0.5)
        assert len(service.requests) == 1


def test_programs_and_pages_see_the_new_title(tmp_path: Path) -> None:
    model = scripted_model(tmp_path / "model", RULES)
    with served(tmp_path, model) as it:
        me = httpx2.get(f"{it.url}/v1/me", timeout=30).json()
        assert me["titles"] is True
        body = {"message": QUESTION, "stream": False}
        made = httpx2.post(f"{it.url}/v1/execute", json=body, timeout=30).json()["conversation"]
        deadline = time.monotonic() + 30
        title = title_of(QUESTION)
        while title == title_of(QUESTION):
            assert time.monotonic() < deadline
            time.sleep(0.05)
            title = httpx2.get(f"{it.url}/v1/conversations/{made}", timeout=30).json()["title"]
        assert title == "Weather in Rome"
        listed = httpx2.get(f"{it.url}/v1/conversations", timeout=30).json()["conversations"]
        assert [row["title"] for row in listed] == [title]
