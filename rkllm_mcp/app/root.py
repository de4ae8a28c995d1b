"""The composition root: open the assistant that a configuration asks for.

``app.models`` opens the model, whose process is started first; the libraries for prompts, tools and the store are
imported while it loads. What a configuration does not use (the MCP client, REST APIs) is not imported.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio

from rkllm_mcp.app.environment import ModelHost
from rkllm_mcp.app.models import ModelSwitch, open_models
from rkllm_mcp.app.settings import unsupported_settings
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.providers.remote_settings import egress_notices
from rkllm_mcp.tasks import open_task_group

if TYPE_CHECKING:
    from rkllm_mcp.app.assistant import App
    from rkllm_mcp.runtime.engine import Engine

StatusSink = Callable[[str], None]


async def _report_warnings(engine: Engine, status: StatusSink) -> None:
    """Show the runtime's warnings about driver and model, once they are loaded."""
    with suppress(RkllmMcpError):
        await engine.ready()
        for warning in engine.supervisor.warnings:
            status(f"[NPU: {warning}]")


@asynccontextmanager
async def open_app(
    config: Config,
    *,
    status: StatusSink | None = None,
    one_shot: bool = False,
    model_host: ModelHost | None = None,
    tenant: str = "",
) -> AsyncGenerator[App, None]:
    """Start everything that ``config`` names, and stop it at the end.

    The model loads and the servers connect in the background: entering returns at once, ``App.ready`` waits. A
    server that fails is left out with a status line; a model that fails is an error of the first answer.

    Args:
        config: the configuration.
        status: takes a line about each server that is connected or failed.
        one_shot: there will be one question, at once, so nothing is prefilled in advance.
        model_host: the model that answers, which stays open when this assistant ends; one of its own when None.
        tenant: the tenant's name, whose stored data no other tenant sees; empty for the owner.

    Raises:
        ModelNotFoundError: the model does not exist or lacks a file.
    """
    if status is not None and tenant == "":
        for line in (*unsupported_settings(config), *egress_notices(config)):
            status(line)
    models: ModelSwitch | None = None
    async with AsyncExitStack() as stack:
        if model_host is None:
            models = await stack.enter_async_context(open_models(config))
            model_host = models.current
            from rkllm_mcp.catalogue import translate

            if status is not None and model_host.npu is not None and model_host.npu.model.card.first_call is not None:
                status(translate("models.first_call", config.status_language, card=model_host.name))
        from rkllm_mcp.agent.sampling import ModelSampler
        from rkllm_mcp.agent.usage import UsageCounter
        from rkllm_mcp.app.assistant import App
        from rkllm_mcp.app.tools import open_tools
        from rkllm_mcp.app.warmup import WarmUp
        from rkllm_mcp.store.tables import PERSON

        usage = UsageCounter()
        sampler = ModelSampler(
            model_host.chat_model,
            model_host.name,
            config.agent.sampling_tokens,
            usage,
            tenant,
            sees=model_host.takes_pictures,
        )
        opening = open_tools(config, status=status, sampler=sampler, tenant=tenant)
        tools = await stack.enter_async_context(opening)
        tasks = await stack.enter_async_context(open_task_group())
        warm_up = partial(WarmUp, config, say=status, one_shot=one_shot, tenant=tenant)
        person = await tools.store.texts(PERSON)
        # The answer to the only question is the end of the process.
        is_titled = config.service.titles and config.service.history and not one_shot
        app = App(config, model_host, tools, tasks, warm_up, tenant, usage, sampler, person, writes_titles=is_titled)
        if models is not None:
            app.models, models.on_change = models, app.use
        tasks.start_soon(app.recorder.tidy)
        tasks.start_soon(app.store.keep_up)
        if status is not None and model_host.npu is not None and not tenant:
            tasks.start_soon(_report_warnings, model_host.npu.engine, status)
        app.warm_up()
        try:
            yield app
        finally:
            app.close()
            with anyio.CancelScope(shield=True):
                # Answers that run in their caller's task still use the tools and the model.
                await app.answers.idle()
