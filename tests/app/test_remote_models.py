"""The assistant with a service in the NPU's place, or next to it."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.app.assistant import App
from rkllm_mcp.app.models import check_model
from rkllm_mcp.app.root import open_app
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.sections import Config
from rkllm_mcp.diagnostics.doctor import config_warnings, diagnose
from rkllm_mcp.errors import ConfigError, RuntimeUnusableError, UsageError
from rkllm_mcp.events import End, Event, Status, Text, ToolCallDetected
from rkllm_mcp.messages import Conversation
from rkllm_mcp.providers.remote_errors import unreachable
from rkllm_mcp.providers.remote_settings import services_of
from tests.support.chat_service import ChatService, Reply, anthropic_stream, anthropic_text, openai_reply
from tests.support.demo_app import TIME_SERVER, PythonServer, make_demo
from tests.support.remote_models import KEY
from tests.support.served import served
from tests.support.shared import REPOSITORY

pytestmark = pytest.mark.anyio
FALLBACK = """
[provider.fallback]
kind = "openai"
base_url = "{url}/v1"
model = "model-x"
when = ["too_long", "failed"]
"""


def provider(url: str, kind: str = "openai", model: str = "model-x") -> str:
    address = f"{url}/v1" if kind == "openai" else url
    return f'[provider]\nkind = "{kind}"\nbase_url = "{address}"\nmodel = "{model}"\napi_key = "{KEY}"\nretries = 0\n'


def config_of(folder: Path, extra: str, servers: tuple[PythonServer, ...] = ()) -> Config:
    return load_config(make_demo(folder, servers, extra=extra).config)


@asynccontextmanager
async def assistant(config: Config, said: list[str] | None = None) -> AsyncGenerator[App, None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RKLLM_EMULATOR_SPEED", "flat")
        with anyio.fail_after(60):
            async with open_app(config, status=None if said is None else said.append) as app:
                yield app


async def events_of(app: App, conversation: Conversation, text: str) -> list[Event]:
    async with aclosing(app.reply(conversation, text)) as stream:
        return [event async for event in stream]


def words_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def statuses_of(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Status)]


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_a_conversation_with_a_service_goes_on_and_no_model_is_loaded(tmp_path: Path, kind: str) -> None:
    reply = openai_reply("Yes.") if kind == "openai" else Reply(pieces=anthropic_stream(anthropic_text("Yes.")))
    said: list[str] = []
    with ChatService(reply, reply) as service:
        async with assistant(config_of(tmp_path, provider(service.url, kind)), said) as app:
            assert (app.model_host.name, app.model_host.npu, app.model_host.is_ready) == ("model-x", None, False)
            assert app.model_host.description.endswith(f"'s interface at {service.host}")
            conversation = app.new_conversation("Be brief.")
            assert words_of(await events_of(app, conversation, "One?")) == "Yes."
            assert app.model_host.is_ready
            assert words_of(await events_of(app, conversation, "Two?")) == "Yes."
            with pytest.raises(UsageError, match="model-x is a remote service"):
                assert app.model_host.board.engine
    assert said[0].startswith("[Model: questions, conversations, tool lists and tool results go to ")
    assert "Yes." in str(service.bodies[1])


async def test_a_service_that_cannot_be_reached_is_a_failed_answer(tmp_path: Path) -> None:
    async with assistant(config_of(tmp_path, provider("http://127.0.0.1:9"))) as app:
        *_, end = await events_of(app, app.new_conversation(), "Hello")
    assert isinstance(end, End)
    assert end.reason == "failed"
    assert "127.0.0.1:9 cannot be reached" in (end.error or "")


async def test_the_board_answers_first_and_hands_over_what_does_not_fit(tmp_path: Path) -> None:
    with ChatService(openai_reply("That was long.")) as service:
        async with assistant(config_of(tmp_path, FALLBACK.format(url=service.url))) as app:
            conversation = app.new_conversation()
            assert not statuses_of(await events_of(app, conversation, "Hello"))[1:]
            assert service.requests == []
            long = await events_of(app, conversation, "word " * 6000)
            # The next question of the conversation is the board's again, the long one left out.
            next_one = await events_of(app, conversation, "Hello")
    assert "That was long." != words_of(next_one) != ""
    assert statuses_of(next_one)[0].startswith("[Context: left out the")
    assert len(service.requests) == 1
    assert words_of(long) == "That was long."
    (said,) = statuses_of(long)
    assert re.match(rf"\[Model: handing over to 'model-x' at {service.host} because the prompt has \d+ tokens", said)
    assert long[-1] == End("answered")


async def test_a_board_that_cannot_load_its_model_hands_over_where_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RKLLM_EMULATOR_FAULTS", "init-fails")
    with ChatService(openai_reply("Here.")) as service:
        async with assistant(config_of(tmp_path, FALLBACK.format(url=service.url))) as app:
            events = await events_of(app, app.new_conversation(), "Hello")
    assert words_of(events) == "Here."
    assert "handing over to 'model-x'" in statuses_of(events)[-1]


async def test_a_runtime_that_fails_in_the_middle_of_words_is_gone_on_for_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RKLLM_EMULATOR_FAULTS", "error after 3")
    with ChatService(openai_reply(" (1)"), openai_reply(" (2)")) as service:
        async with assistant(config_of(tmp_path, FALLBACK.format(url=service.url))) as app:
            conversation = app.new_conversation("")
            first = words_of(await events_of(app, conversation, "Hello"))
            second = words_of(await events_of(app, conversation, "Hello"))
    assert re.fullmatch(r"This .+ \(1\)", first)
    assert re.fullmatch(r"This .+ \(2\)", second)
    assert [message.text for message in conversation.messages] == ["Hello", first, "Hello", second]


async def test_one_board_answers_for_another_which_runs_the_tools(tmp_path: Path) -> None:
    with served(tmp_path / "a", REPOSITORY / "models" / "demo") as board:
        async with assistant(config_of(tmp_path / "b", provider(board.url, model="demo"), (TIME_SERVER,))) as app:
            events = await events_of(app, app.new_conversation(), "What time is it in London?")
    assert [event.name for event in events if isinstance(event, ToolCallDetected)] == ["get_current_time"]
    assert words_of(events).startswith("In Europe/London it is ")
    assert events[-1] == End("answered")


def test_the_check_up_looks_at_the_service_and_not_at_the_npu(tmp_path: Path) -> None:
    config = config_of(tmp_path, provider("http://me:secret@example.com") + FALLBACK.format(url="http://other.example"))
    findings = {finding.name: finding for finding in diagnose(config)}
    assert {"runtime library", "npu driver", "soc"} & findings.keys() == set()
    assert findings["model"].found == "'model-x' at example.com, asked over HTTP"
    assert findings["fallback"].found == "'model-x' at other.example, asked over HTTP"
    told = "questions, conversations, tool lists and tool results go to"
    assert config_warnings(config) == [
        f"[Model: {told} example.com (model 'model-x')]",
        f"[Model: {told} other.example (model 'model-x') when a question does not fit, an answer fails]",
    ]
    assert KEY not in str(findings) + str(config.dump_redacted())
    assert "check the network and provider.fallback.base_url" in str(
        unreachable(services_of(config)["fallback"], OSError())
    )
    check_model(config)
    assert config.resolved_servers() == ()


@pytest.mark.parametrize("package", ["openai", "anthropic"])
async def test_a_package_that_is_not_installed_is_named_with_the_command_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    # What Python itself takes for a package that is not there.
    monkeypatch.setitem(sys.modules, package, None)
    config = config_of(tmp_path, provider("http://127.0.0.1:9", package))
    command = re.escape("Install it: ") + rf".*rkllm-mcp install {package}\b"
    with pytest.raises(RuntimeUnusableError, match=command):
        async with assistant(config):
            pass
    with pytest.raises(RuntimeUnusableError, match=command):
        check_model(config)
    (finding,) = [finding for finding in diagnose(config) if finding.name == "model"]
    assert finding.status == "fail"


WRONG = (
    ('[provider]\nkind = "openai"\nmodel = "m"\n', "provider.api_key: found nothing; give the key for openai, or the"),
    ('[provider]\nkind = "anthropic"\napi_key = "k"\n', "provider.model: found nothing; kind = 'anthropic' needs the"),
    ('[provider]\nbase_url = "example.com"\n', "provider.base_url"),
    ('[provider.fallback]\nkind = "openai"\nbase_url = "http://x"\n', "provider.fallback.model: found nothing"),
    ('[provider.fallback]\nkind = "openai"\nmodel = "m"\nbase_url = "http://x"\nwhen = ["often"]\n', "fallback.when"),
)


@pytest.mark.parametrize(("text", "sentence"), WRONG)
def test_a_provider_that_cannot_work_is_refused_with_its_key(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        config_of(tmp_path, text)


def test_keys_without_effect_for_a_model_service_are_named(tmp_path: Path) -> None:
    text = provider("http://x") + '[provider.fallback]\nkind = "openai"\nmodel = "m"\nbase_url = "http://x"\n'
    config = config_of(tmp_path, f'{text}[agent]\nembedding_model = "qwen3-0.6b"\n')
    assert [line.split(" has no effect")[0] for line in config_warnings(config)[1:]] == [
        "agent.embedding_model",
        "provider.fallback",
    ]
