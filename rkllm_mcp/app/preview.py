"""The composition root for everything short of an answer: the check-up, a prompt to look at, the tools without a model.

Like ``app`` it knows every layer below and no surface; unlike ``app`` it never loads a model.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rkllm_mcp.board.machine import Machine
from rkllm_mcp.board.npu import Gauges, npu_node, read_gauges
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import ConfigError, RuntimeUnusableError, UsageError
from rkllm_mcp.models.cards import choose_model
from rkllm_mcp.protocols import NO_CONTEXT, CallContext

if TYPE_CHECKING:
    from rkllm_mcp.app.root import ToolEnvironment
    from rkllm_mcp.prompt.conversation import PromptPart
    from rkllm_mcp.store import Store
    from rkllm_mcp.tools.toolbox import Toolbox


EMULATOR = "emulator"
AUTOMATIC = "auto"


@asynccontextmanager
async def open_toolbox_only(
    config: Config,
    status: Callable[[str], None] | None = None,
    log_in: Callable[[str, str], Awaitable[None]] | None = None,
) -> AsyncGenerator[Toolbox, None]:
    """Connect the servers that ``config`` names, without a model; on leaving all of them are gone.

    Args:
        config: the configuration.
        status: is told, one line each, which server is connected and which is not.
        log_in: shows somebody the address where to log in to a server, by its name; nobody can be shown when None.
    """
    async with open_toolbox_and_store(config, status, log_in=log_in) as equipment:
        yield equipment.toolbox


@asynccontextmanager
async def open_toolbox_and_store(
    config: Config,
    status: Callable[[str], None] | None = None,
    *,
    required: bool = False,
    log_in: Callable[[str, str], Awaitable[None]] | None = None,
) -> AsyncGenerator[ToolEnvironment, None]:
    """``open_tools`` with what is remembered about the tools.

    Args:
        config: the configuration.
        status: see ``open_tools``.
        required: not being able to remember is an error.
        log_in: see ``open_tools``.

    Raises:
        StoreError: remembering is required and cannot be done.
    """
    from rkllm_mcp.app.root import open_tools

    async with open_tools(config, status=status, required=required, log_in=log_in) as equipment:
        yield equipment


@asynccontextmanager
async def open_stored(config: Config) -> AsyncGenerator[Store, None]:
    """What is remembered between runs; no server is started.

    Raises:
        StoreError: it cannot be read.
    """
    from rkllm_mcp.store import open_store
    from rkllm_mcp.store.tool_calls import Retention

    retention = Retention(config.security.history_days, config.security.history_calls)
    async with open_store(retention=retention, required=True) as memory:
        yield memory


async def prompt_parts(
    config: Config, text: str, equipment: ToolEnvironment, system: str | None = None, context: CallContext = NO_CONTEXT
) -> list[PromptPart]:
    """The prompt that ``text`` would get as a first question, part by part.

    Every ``auto_context_tool`` is called, and every resource read that the text names.

    Args:
        config: the configuration.
        text: the question.
        equipment: the tools, connected.
        system: the system text; the configuration's when None.
        context: what accompanies calls.

    Raises:
        ModelNotFoundError: there is no such model, or it lacks a file.
        ToolboxError: a resource cannot be read.
        UsageError: a service answers, whose prompts nobody here sees.
    """
    from rkllm_mcp.agent.instructions import TurnRequest, system_text, unheard
    from rkllm_mcp.agent.question import question_from_text
    from rkllm_mcp.app.settings import briefing, chosen_model, listing, model_form
    from rkllm_mcp.messages import Conversation, Message
    from rkllm_mcp.prompt.conversation import ConversationPrompt

    if config.provider.kind != "rkllm":
        raise UsageError("a service makes the prompt itself; provider.kind = 'rkllm' shows the one that the NPU gets")
    model = chosen_model(config)
    form = model_form(config, model)
    head = system_text(config.agent.system_prompt, config.agent.language) if system is None else system
    conversation = Conversation(messages=[Message("system", head)] if head else [])
    prepares = briefing(config, listing(config, model, form), equipment.toolbox, equipment.memory.calls)
    offerings, limit_chars = equipment.toolbox.offerings, config.agent.resource_chars
    asked = await question_from_text(text, offerings, limit_chars, unheard, context)
    brief = await prepares.prepare(conversation, TurnRequest(asked, equipment.toolbox.tools()), context)
    conversation.add(Message("user", asked.text, context=brief.context))
    prompt = ConversationPrompt(form.vocabulary, form.template, thinking=form.think)
    return prompt.parts(conversation.messages, brief.offer.listed)


def gauges() -> Gauges:
    """How the board is at this moment, as figures."""
    return read_gauges()


def npu_devices(machine: Machine | None = None) -> tuple[str, ...]:
    """The device nodes that the runtime opens, as patterns of paths; none on a machine without an NPU.

    Followed: rknpu's Kconfig; a build with DRM has a render node, one without /dev/rknpu, both take DMA heaps.
    """
    machine = machine or Machine()
    node = npu_node(machine)
    if node is None:
        return ()
    cards = sorted(machine.name_of(card) for card in machine.glob("dev/dri/card*")) if "dri" in node.parts else []
    heaps = sorted(machine.name_of(heap) for heap in machine.glob("dev/dma_heap/*"))
    return (machine.name_of(node), *cards, *heaps)


def model_files(config: Config) -> tuple[Path, ...]:
    """The folder and the file of the model on the NPU; none where it cannot be found.

    The file may lie elsewhere, where the folder links to it.
    """
    try:
        model = choose_model(config.model, emulated=config.runtime.library == EMULATOR)
    except (RuntimeUnusableError, ConfigError):
        return ()
    return tuple(dict.fromkeys((model.folder.absolute(), model.file.resolve().parent)))


def asking_language(config: Config) -> Literal["en", "ja"]:
    """The language in which a person is asked."""
    from rkllm_mcp.tools.approvals import language_of

    return language_of(config.agent.language)
