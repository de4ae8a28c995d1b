"""Parts of the application that need no model: stored data, switches, the prompt preview, and board readings."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rkllm_mcp.app.settings import chosen_model, store_limits
from rkllm_mcp.board.machine import Machine
from rkllm_mcp.board.npu import npu_loads, npu_nodes
from rkllm_mcp.board.system import hottest, memory_bytes
from rkllm_mcp.config.sections import EVERY_ADDRESS, Config
from rkllm_mcp.errors import ConfigError, RuntimeUnusableError, UsageError
from rkllm_mcp.models.cards import choose_model
from rkllm_mcp.protocols import NO_CONTEXT, CallContext
from rkllm_mcp.records import StoredConversation
from rkllm_mcp.runtime.library import EMULATOR
from rkllm_mcp.store import open_store
from rkllm_mcp.store.database import FILE_NAME, state_file
from rkllm_mcp.text import moment

if TYPE_CHECKING:
    from rkllm_mcp.app.environment import ToolEnvironment
    from rkllm_mcp.prompt.conversation import PromptPart
    from rkllm_mcp.store import Store
    from rkllm_mcp.tools.toolbox import Toolbox


@asynccontextmanager
async def open_stored(config: Config, folder: Path | None = None) -> AsyncGenerator[Store, None]:
    """Open the owner's store in ``folder``, by default ``state_folder()``; a StoreError if it cannot be read."""
    limits, configured = store_limits(config)
    path = state_file(os.environ) if folder is None else folder / FILE_NAME
    async with open_store(path=path, limits=limits, given=configured, required=True, url=config.store.url) as memory:
        yield memory


async def find_conversation(store: Store, tenant: str, prefix: str) -> StoredConversation:
    """Return the conversation whose id begins with ``prefix``; a UsageError for none or several, or a StoreError."""
    matches = await store.conversations.matching(tenant, prefix) if prefix else []
    if len(matches) > 1:
        several = "\n".join(f"  {summary.id}  {moment(summary.updated)}  {summary.title}" for summary in matches)
        raise UsageError(f"several conversations begin with {prefix!r}; type more of the id:\n{several}")
    stored = await store.conversations.get(tenant, matches[0].id) if matches else None
    if stored is None:
        raise UsageError(f"there is no conversation {prefix!r}; 'rkllm-mcp conversations list' shows them")
    return stored


async def forget_approvals(store: Store, name: str) -> list[tuple[str, str]]:
    """Delete decisions about a tool, or a server's tools; return (server, tool) of each, or raise a UsageError."""
    stored = await store.grants.all()
    chosen = matching_tools(name, [(server, tool) for server, tool, _ in stored])
    if not chosen:
        raise UsageError(f"nothing is remembered about {name!r}; 'rkllm-mcp tools approvals' lists what is")
    for server, tool in chosen:
        await store.grants.forget(server, tool)
    return chosen


def matching_tools(name: str, tools: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return those of these (server, tool) that a name means: a tool in either spelling, or all tools of a server."""
    return [(server, tool) for server, tool in tools if name in (tool, server, f"mcp__{server}__{tool}")]


def set_switch(toolbox: Toolbox, config: Config, name: str, *, is_on: bool) -> tuple[str, str | None]:
    """Switch a tool or server, or raise a ToolboxError; return its server, and the tool's name or None for a server."""
    # The name of a server never means another server's tool of the same name.
    if name in {server.name for server in config.servers}:
        toolbox.switches.turn_server(name, is_on=is_on)
        return name, None
    (tool,) = toolbox.switch(name, is_on=is_on)
    return tool.server, tool.name


async def prompt_parts(
    config: Config,
    text: str,
    environment: ToolEnvironment,
    system: str | None = None,
    context: CallContext = NO_CONTEXT,
) -> list[PromptPart]:
    """Return the prompt of ``text`` as a first question, part by part.

    Every ``auto_context_tool`` is called, and every resource read that the text names.

    Raises:
        ModelNotFoundError: the model does not exist, or a file is missing.
        ToolboxError: a resource cannot be read.
        UsageError: a remote service writes the prompt itself.
    """
    from rkllm_mcp.agent.instructions import TurnRequest
    from rkllm_mcp.agent.question import question_from_text
    from rkllm_mcp.agent.system_text import system_text
    from rkllm_mcp.app.assistant import turn_preparation
    from rkllm_mcp.app.model_form import listing, model_form
    from rkllm_mcp.messages import Conversation, Message
    from rkllm_mcp.prompt.conversation import ConversationPrompt

    if config.provider.kind != "rkllm":
        raise UsageError("a service makes the prompt itself; provider.kind = 'rkllm' shows the one that the NPU gets")
    model = chosen_model(config)
    form = model_form(config, model)
    lists_tools = model.card.tools == "listed"
    own_head = system_text(config.agent.system_prompt, config.agent.language, lists_tools=lists_tools)
    head = own_head if system is None else system
    conversation = Conversation(messages=[Message("system", head)] if head else [])
    preparation = turn_preparation(config, listing(config, model, form), environment.toolbox, environment.store.calls)
    offerings = environment.toolbox.offerings if "@" in text else None
    question = await question_from_text(text, offerings, config.agent.resource_chars, context)
    prepared = await preparation.prepare(conversation, TurnRequest(question, environment.toolbox.tools()), context)
    cards = prepared.offer.cards if prepared.offer is not None else ()
    conversation.add(Message("user", question.text, context=prepared.context, cards=cards))
    prompt = ConversationPrompt(form.tokenizer, form.template, thinking=form.think)
    return prompt.parts(conversation.messages, prepared.tool_set.listed)


@dataclass(frozen=True)
class Gauges:
    """Readings at one moment."""

    npu_load: tuple[int, ...] | None  # percent per core; None if not readable
    temperature_c: float | None  # hottest sensor, degrees Celsius
    memory_total: int | None  # bytes
    memory_available: int | None  # bytes that programs can still allocate


def read_gauges(machine: Machine | None = None) -> Gauges:
    """Read all values once; takes some milliseconds of file reads."""
    machine = machine or Machine()
    zone = hottest(machine)
    return Gauges(
        npu_load=npu_loads(machine),
        temperature_c=zone[1] if zone else None,
        memory_total=memory_bytes(machine, "MemTotal"),
        memory_available=memory_bytes(machine, "MemAvailable"),
    )


def npu_devices() -> tuple[str, ...]:
    """Return the device nodes that the runtime opens, as path patterns; empty without an NPU.

    Source: rknpu's Kconfig; a build with DRM has a card and a render node, one without has /dev/rknpu, both use heaps.
    """
    machine = Machine()
    nodes = npu_nodes(machine)
    return tuple(machine.name_of(path) for path in (*nodes, *(machine.glob("dev/dma_heap/*") if nodes else ())))


def model_files(config: Config, directories: Sequence[Path]) -> tuple[Path, ...]:
    """Return the folders of the model on the NPU and of its file, which may be a link; empty if it is not found."""
    try:
        model = choose_model(config.model, directories, emulated=config.runtime.library == EMULATOR)
    except (RuntimeUnusableError, ConfigError):
        return ()
    return tuple(dict.fromkeys((model.folder.absolute(), model.file.resolve().parent)))


def reached_host(host: str) -> str:
    """Return the host by which other machines reach a service that listens on ``host``.

    Where it listens on every address that is the one in the network, or the machine's name without a network.
    """
    if host not in EVERY_ADDRESS:
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Chooses a route and sends nothing; the address is reserved for documentation.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()
