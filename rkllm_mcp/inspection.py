"""The composition root for everything short of an answer: the check-up, a prompt to look at, the tools without a model.

Like ``app`` it knows every layer below and no surface; unlike ``app`` it never loads a model.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rkllm_mcp.availability import ineffective, refuse_unprotected, unavailable_transport
from rkllm_mcp.board.doctor import examine, worst
from rkllm_mcp.board.finding import Finding, LibraryReport, ModelReport, ServerReport, Subjects
from rkllm_mcp.board.machine import Machine
from rkllm_mcp.config import Config, ServerConfig, StdioServer
from rkllm_mcp.config.models import ModelFolder, choose_model
from rkllm_mcp.config.redaction import redacted_arguments, redacted_text
from rkllm_mcp.errors import ConfigError, RuntimeUnusableError

if TYPE_CHECKING:
    from rkllm_mcp.messages import ToolSpec
    from rkllm_mcp.prompt.conversation import PromptPart
    from rkllm_mcp.tools.toolbox import Toolbox

__all__ = ["Finding", "diagnose", "open_tools", "prompt_parts", "review", "worst"]

EMULATOR = "emulator"
AUTOMATIC = "auto"


@asynccontextmanager
async def open_tools(config: Config, status: Callable[[str], None] | None = None) -> AsyncGenerator[Toolbox, None]:
    """Connect the servers that ``config`` names, without a model; on leaving all of them are gone.

    Args:
        config: the configuration.
        status: is told, one line each, which server is connected and which is not.

    Raises:
        ConfigError: the configuration wants a protection that this version does not have.
    """
    from rkllm_mcp.assembly import server_specs
    from rkllm_mcp.tools.toolbox import open_toolbox

    refuse_unprotected(config)
    limit = config.agent.tool_result_chars
    async with open_toolbox(server_specs(config), result_chars=limit, on_status=status) as toolbox:
        yield toolbox


def prompt_parts(config: Config, text: str, tools: Sequence[ToolSpec], system: str | None = None) -> list[PromptPart]:
    """The prompt that ``text`` would get as a first question, part by part.

    Raises:
        ModelNotFoundError: there is no such model, or it lacks a file.
    """
    from rkllm_mcp.agent.instructions import system_text
    from rkllm_mcp.assembly import chosen_model, model_form
    from rkllm_mcp.messages import Message
    from rkllm_mcp.prompt.conversation import ConversationPrompt

    form = model_form(config, chosen_model(config))
    head = system_text(config.agent.system_prompt, config.agent.language) if system is None else system
    messages = [*([Message("system", head)] if head else []), Message("user", text)]
    return ConversationPrompt(form.vocabulary, form.template, thinking=form.think).parts(messages, tools)


def review(config: Config) -> list[str]:
    """One line for every wish of the configuration that this version does not fulfil.

    Raises:
        ConfigError: it wants a protection that this version does not have.
    """
    refuse_unprotected(config)
    return ineffective(config)


def diagnose(config: Config, machine: Machine | None = None) -> list[Finding]:
    """Look at the board and at everything that the configuration names; nothing is started.

    Args:
        config: the configuration.
        machine: where; this machine by default.
    """
    model, report = _model(config)
    library = _library(config, emulated=model is not None and model.card.emulated)
    source = str(config.source) if config.source else "none, the defaults hold; write one with 'rkllm-mcp config init'"
    servers = tuple(_server(server) for server in config.servers) if config.mcp_enabled else None
    findings = examine(machine or Machine(), Subjects(source, library, report, servers))
    try:
        return [*findings, *(Finding("configuration", "warn", note) for note in review(config))]
    except ConfigError as error:
        return [*findings, Finding("configuration", "fail", str(error))]


def _model(config: Config) -> tuple[ModelFolder | None, ModelReport]:
    try:
        model = choose_model(config.model, emulated=config.runtime.library == EMULATOR)
    except RuntimeUnusableError as error:
        return None, ModelReport("", error.message, error.remedy)
    except ConfigError as error:
        return None, ModelReport("", str(error))
    context_tokens = config.model.context_tokens or model.card.context_tokens
    size = model.file.stat().st_size if model.file.is_file() else 0
    return model, ModelReport(model.name, file_bytes=size, context_tokens=context_tokens, emulated=model.card.emulated)


def _library(config: Config, *, emulated: bool) -> LibraryReport:
    """What is known of the library; nothing of it is executed."""
    from rkllm_mcp.runtime.library import accepted_abi, find_library
    from rkllm_mcp.runtime.library_file import read_library_file

    where = config.runtime.library
    if where == EMULATOR or (where == AUTOMATIC and emulated):
        return LibraryReport("the emulated NPU, which comes with rkllm-mcp", "ok", emulated=True)
    try:
        path = find_library(where)
        file = read_library_file(path)
        abi = accepted_abi(file, config.runtime.abi)
    except RuntimeUnusableError as error:
        return LibraryReport(error.message, "fail", error.remedy)
    found = f"{path}, version {file.version or 'unknown'}, interface {abi.name}"
    return LibraryReport(found, "ok", emulated=file.is_emulator)


def _server(server: ServerConfig) -> ServerReport:
    if not isinstance(server, StdioServer):
        address = getattr(server, "url", None) or getattr(server, "openapi_base_url", None) or ""
        how = f"{server.transport} {redacted_text(address)}".strip()
        problem = unavailable_transport(server)
        return ServerReport(server.name, how, server.enabled, problem=problem)
    how = " ".join([server.command, *redacted_arguments(server.args)])
    return ServerReport(server.name, how, server.enabled, server.command, _program(server))


def _program(server: StdioServer) -> str | None:
    """Where the program is that a server's own environment finds."""
    path = server.env.get("PATH")
    if "/" in server.command and server.cwd is not None:
        return shutil.which(str(server.cwd / Path(server.command)), path=path)
    return shutil.which(server.command, path=path)
