"""Ten questions in one conversation with six tools, to this product and to another host: what each reads, and how long.

A host that reads each token once needs, for the second question, as long as that question is; one that reads the whole
conversation again needs longer with every turn.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from rkllm_base.folders import STATE_VARIABLE
from rkllm_mcp.app.assistant import App
from rkllm_mcp.app.root import open_app
from rkllm_mcp.config.editing import checked_servers
from rkllm_mcp.config.sections import Config, StoreSection
from rkllm_mcp.diagnostics.trial import GREEDY, ask_with_six_tools
from rkllm_mcp.errors import RuntimeUnusableError, UsageError
from rkllm_mcp.events import Text, Thinking, ToolCallDetected, Usage

DIALOGUE = (
    "こんにちは",
    "What time is it in London?",
    "Thank you.",
    "What can you do?",
    "ニューヨークは今何時？",
    "ありがとう",
    "And what else?",
    "パリは今何時？",
    "Good.",
    "Bye.",
)
# The key of the other host, if it wants one.
KEY_VARIABLE = "RKLLM_MCP_BESIDE_KEY"
_SERVERS_WAIT_S = 60.0
_ANSWERED_WITHIN_S = 600.0
OnStep = Callable[[str], None]


@dataclass(frozen=True)
class QuestionFigures:
    """One question of the ten."""

    question: str
    calls: int  # tool calls
    prompt_tokens: int  # of all rounds of the model
    read_tokens: int | None  # evaluated of them; None if the host does not report it
    first_token_ms: float | None  # from the question to the first token; None if nothing came
    seconds: float  # to the end of the answer


@dataclass(frozen=True)
class Dialogue:
    """The ten questions to this product, and to another host if one was named."""

    here: tuple[QuestionFigures, ...]  # empty if the model could not be loaded next to the other host
    beside: tuple[QuestionFigures, ...] = ()
    problem: str = ""  # why ``here`` is empty

    @property
    def read_in_advance(self) -> int:
        """Tokens of system text and tools that this product had read before the first question."""
        return (self.here[0].prompt_tokens - (self.here[0].read_tokens or 0)) if self.here else 0


async def play_dialogue(config: Config, beside: str = "", on_step: OnStep = lambda _: None) -> Dialogue:
    """Ask the ten questions, first the other host if there is one.

    Raises:
        UsageError: the other host does not answer.
        RuntimeUnusableError: no other host was asked, and the model cannot be loaded.
    """
    there = await play_beside(beside, on_step) if beside else ()
    try:
        async with open_trial(config) as app:
            return Dialogue(await play_here(app, on_step), there)
    except RuntimeUnusableError as error:
        if not beside:
            raise
        hint = "if both models do not fit, stop the other host and run it without --beside"
        return Dialogue((), there, f"{str(error).rstrip('.')}; {hint}")


@contextmanager
def _unnoticed() -> Generator[None, None, None]:
    """Let conversations and calls be stored in a folder that is removed after the block."""
    before = os.environ.get(STATE_VARIABLE)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[STATE_VARIABLE] = folder
        try:
            yield
        finally:
            del os.environ[STATE_VARIABLE]
            if before is not None:
                os.environ[STATE_VARIABLE] = before


@asynccontextmanager
async def open_trial(config: Config) -> AsyncGenerator[App, None]:
    """Open the assistant with the configured model and the six tools in place of the configured servers.

    Nothing of it is stored. A RuntimeUnusableError is raised if the model cannot be loaded.
    """
    server: dict[str, Any] = {
        "name": "six",
        "command": sys.executable,
        "args": ["-m", "rkllm_mcp.diagnostics.six_tools"],
        "approve": "never",
        "roots": [],
    }
    servers = checked_servers({"servers": [server]}, "the six tools", Path("six.toml")).servers
    agent = config.agent.model_copy(update={"wait_for_servers_s": _SERVERS_WAIT_S, "system_prompt": None})
    security = config.security.model_copy(update={"allowed_commands": None, "sandbox": False})
    changes = {"servers": servers, "agent": agent, "security": security, "store": StoreSection()}
    with _unnoticed():
        async with open_app(config.model_copy(update=changes).with_origin(mcp_enabled=True)) as app:
            await app.ready()
            await app.toolbox.wait_until_started()
            yield app


async def play_here(app: App, on_step: OnStep = lambda _: None) -> tuple[QuestionFigures, ...]:
    """Ask this product the ten questions in one conversation."""
    conversation = app.new_conversation()
    figures: list[QuestionFigures] = []
    for number, question in enumerate(DIALOGUE, 1):
        on_step(f"question {number} of {len(DIALOGUE)}")
        usages: list[Usage] = []
        calls = 0
        first_ms: float | None = None
        began = time.monotonic()
        async with aclosing(app.reply(conversation, question, GREEDY)) as events:
            async for event in events:
                if isinstance(event, Text | Thinking | ToolCallDetected) and first_ms is None:
                    first_ms = (time.monotonic() - began) * 1000
                calls += isinstance(event, ToolCallDetected)
                usages += [event] if isinstance(event, Usage) else []
        # A call is shown when it is complete; the runtime knows when its first token came.
        if usages:
            first_ms = usages[0].time_to_first_token_ms
        prompt, read = (sum(getattr(each, name) for each in usages) for name in ("prompt_tokens", "prefilled_tokens"))
        figures.append(QuestionFigures(question, calls, prompt, read, first_ms, time.monotonic() - began))
    return tuple(figures)


async def play_beside(address: str, on_step: OnStep = lambda _: None) -> tuple[QuestionFigures, ...]:
    """Ask a host with OpenAI's API the ten questions in one conversation.

    Raises:
        UsageError: it does not answer, or not as OpenAI's API does.
    """
    url = httpx2.URL(address)
    if url.scheme not in {"http", "https"} or not url.host:
        raise UsageError(f"{address!r} is not an address; name one as in http://127.0.0.1:8080/v1")
    base = f"{address.rstrip('/')}/" if url.path.strip("/") else f"{address.rstrip('/')}/v1/"
    key = os.environ.get(KEY_VARIABLE, "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    messages: list[dict[str, Any]] = []
    figures: list[QuestionFigures] = []
    client = httpx2.AsyncClient(base_url=base, headers=headers, timeout=_ANSWERED_WITHIN_S)
    async with client:
        model = await _first_model(client)
        for number, question in enumerate(DIALOGUE, 1):
            on_step(f"question {number} of {len(DIALOGUE)} to {url.host}")
            answer = await ask_with_six_tools(client, model, messages, question)
            read = None if answer.cached_tokens is None else answer.prompt_tokens - answer.cached_tokens
            calls = len(answer.calls)
            row = QuestionFigures(question, calls, answer.prompt_tokens, read, answer.first_token_ms, answer.seconds)
            figures.append(row)
    return tuple(figures)


async def _first_model(client: httpx2.AsyncClient) -> str:
    """Return the first model of a host; a host that lists none takes any name."""
    try:
        models: Any = (await client.get("models")).raise_for_status().json()
        return str(models["data"][0]["id"])
    except (httpx2.HTTPStatusError, ValueError, KeyError, IndexError, TypeError):
        return "default"
    except httpx2.HTTPError as error:
        remedy = "start the other host, and name its address as in http://127.0.0.1:8080/v1"
        raise UsageError(f"{client.base_url} does not answer ({type(error).__name__}); {remedy}") from None
