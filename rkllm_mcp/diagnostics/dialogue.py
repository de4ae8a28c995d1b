"""Ten questions in one conversation with six tools, to this product and to another host: what each reads, and how long.

A host that reads each token once needs, for the second question, as long as that question is; one that reads the whole
conversation again needs longer with every turn.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from anyio import to_thread

from rkllm_base.folders import STATE_VARIABLE
from rkllm_mcp.app.assistant import App
from rkllm_mcp.app.root import open_app
from rkllm_mcp.config.editing import checked_servers
from rkllm_mcp.config.sections import Config, StoreSection
from rkllm_mcp.diagnostics.trial import GREEDY, ask_with_six_tools
from rkllm_mcp.errors import RkllmMcpError, RuntimeUnusableError, UsageError
from rkllm_mcp.events import Text, Thinking, ToolCallDetected, Usage
from rkllm_mcp.runtime.prompt_cache import prompts_folder

logger = logging.getLogger(__name__)

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
class StartFigures:
    """The first question after a start: its prompt evaluated, or its system text and tools read from a file."""

    head_tokens: int  # of system text and tools
    file_mb: float
    evaluated_ms: float  # from the question to the first token, with an empty KV cache
    from_file_ms: float  # the same with the file, which is not in the memory before


@dataclass(frozen=True)
class Dialogue:
    """The ten questions to this product, and to another host if one was named."""

    here: tuple[QuestionFigures, ...]  # empty if the model could not be loaded next to the other host
    beside: tuple[QuestionFigures, ...] = ()
    problem: str = ""  # why ``here`` is empty
    start: StartFigures | None = None  # None where the runtime or the model keeps no prompts


async def play_dialogue(config: Config, beside: str = "", on_step: OnStep = lambda _: None) -> Dialogue:
    """Ask the ten questions, first the other host if there is one.

    Raises:
        UsageError: the other host does not answer.
        RuntimeUnusableError: no other host was asked, and the model cannot be loaded.
    """
    there = await play_beside(beside, on_step) if beside else ()
    try:
        async with open_trial(config) as app:
            return Dialogue(await play_here(app, on_step), there, start=await measure_start(app))
    except RuntimeUnusableError as error:
        if not beside:
            raise
        hint = "if both models do not fit, stop the other host and run it without --beside"
        return Dialogue((), there, f"{str(error).rstrip('.')}; {hint}")


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
    # The list of six tools is no person's own, and no start reads a file of it.
    model = config.model.model_copy(update={"prompt_cache": False})
    changes = {"servers": servers, "agent": agent, "security": security, "store": StoreSection(), "model": model}
    before = os.environ.get(STATE_VARIABLE)
    # Conversations and calls are stored in a folder that is removed.
    with tempfile.TemporaryDirectory() as folder:
        os.environ[STATE_VARIABLE] = folder
        try:
            async with open_app(config.model_copy(update=changes).with_origin(mcp_enabled=True)) as app:
                await app.ready()
                await app.toolbox.wait_until_started()
                # A question at once would take the place of what is read in advance.
                await app.warmed_up()
                yield app
        finally:
            del os.environ[STATE_VARIABLE]
            if before is not None:
                os.environ[STATE_VARIABLE] = before


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
        prompt, read = (sum(getattr(usage, name) for usage in usages) for name in ("prompt_tokens", "prefilled_tokens"))
        figures.append(QuestionFigures(question, calls, prompt, read, first_ms, time.monotonic() - began))
    return tuple(figures)


async def measure_start(app: App) -> StartFigures | None:
    """Ask the first question after an empty KV cache, and after system text and tools were read from a file.

    The assistant has answered before, so nothing is prefilled in advance any more.

    None where the model, or the runtime (before 1.3.0), keeps no prompts in a run of one token, or fails at it.
    """
    board, head = app.model_host.board, app.prompt_prefix()
    engine = board.engine
    if not (head and board.model.keeps_prompts and engine.limits_each_run):
        return None
    folder = prompts_folder().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as name:
            file = Path(name) / "prompt.bin"
            await engine.clear_cache()
            evaluated_ms = await _first_token_ms(app)
            await engine.save_prompt_cache(head, file)
            await engine.clear_cache()
            await to_thread.run_sync(_leave_memory, file)
            began = time.monotonic()
            await engine.load_prompt_cache(file, tokens=head)
            from_file_ms = (time.monotonic() - began) * 1000 + await _first_token_ms(app)
            await engine.release_prompt_cache()
            return StartFigures(len(head), file.stat().st_size / 1e6, evaluated_ms, from_file_ms)
    except (RkllmMcpError, OSError) as error:
        logger.info("the first question after a start is not measured: %s", error)
        return None


async def _first_token_ms(app: App) -> float:
    async with aclosing(app.reply(app.new_conversation(), DIALOGUE[0], GREEDY)) as events:
        usages = [event async for event in events if isinstance(event, Usage)]
    return usages[0].time_to_first_token_ms


def _leave_memory(file: Path) -> None:
    """Let the next read of a file come from the disk, as after a start of the machine."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


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
        try:
            models: Any = (await client.get("models")).raise_for_status().json()
            model = str(models["data"][0]["id"])
        except (httpx2.HTTPStatusError, ValueError, KeyError, IndexError, TypeError):
            model = "default"  # a host that lists none takes any name
        except httpx2.HTTPError as error:
            remedy = "start the other host, and name its address as in http://127.0.0.1:8080/v1"
            raise UsageError(f"{client.base_url} does not answer ({type(error).__name__}); {remedy}") from None
        for number, question in enumerate(DIALOGUE, 1):
            on_step(f"question {number} of {len(DIALOGUE)} to {url.host}")
            answer = await ask_with_six_tools(client, model, messages, question)
            read = None if answer.cached_tokens is None else answer.prompt_tokens - answer.cached_tokens
            calls = len(answer.calls)
            row = QuestionFigures(question, calls, answer.prompt_tokens, read, answer.first_token_ms, answer.seconds)
            figures.append(row)
    return tuple(figures)
