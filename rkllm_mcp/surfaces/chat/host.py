"""The assistant of this process, as a conversation in a terminal uses it.

``remote.RemoteHost`` is the same with the running service; the chat and the command line know a ``remote.ChatHost``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rkllm_mcp.errors import UsageError
from rkllm_mcp.memory.person import erase_row
from rkllm_mcp.messages import (
    Conversation,
    Message,
    PromptTemplate,
    Resource,
    ResourceContent,
    ResourceTemplate,
    ToolSpec,
)
from rkllm_mcp.protocols import CallContext, Decision, ElicitationAnswer

if TYPE_CHECKING:
    from rkllm_mcp.app.assistant import App
    from rkllm_mcp.app.models import ListedModel
    from rkllm_mcp.config.sections import Config
    from rkllm_mcp.records import MemoryRow


@dataclass(frozen=True)
class AnsweringModel:
    """The model that answers, for a person."""

    name: str
    context_tokens: int
    description: str = ""  # of what answers: the NPU, an emulator, or a service
    card_description: str = ""  # empty where the model is another's
    file: str = ""
    template: str = ""
    takes_pictures: bool = False
    is_emulated: bool = False
    has_weights: bool = False  # the CPU computes the answers, on the emulated NPU


@dataclass(frozen=True)
class ListedServer:
    """A server and its state."""

    name: str
    state: str
    tool_count: int
    reason: str  # why it is not ready; empty if it is
    is_on: bool


class LocalHost:
    """The assistant of this process; every method that waits may raise an RkllmMcpError."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.config = app.config
        self.store = app.store  # conversations, calls, permanent decisions
        self.tenant = app.tenant  # its name; empty for the owner
        self.server_names: Sequence[str] = [connection.spec.name for connection in app.toolbox.connections]
        # Begin a conversation with a system text, or the configuration's.
        self.new_conversation = app.new_conversation
        # Yield the events of an answer.
        self.reply = app.reply
        # Cancel a running answer, whose last event is ``End("cancelled")``; False if it has ended.
        self.cancel = app.answers.cancel
        # Return the tokens that the model is reading for an answer, and in how many seconds if that is known.
        self.prefill_progress = app.prefill_progress
        # Wait until a request is closed: answered, timed out, or its answer was stopped.
        self.wait_until_settled = app.pending.wait_until_settled

    @property
    def model(self) -> AnsweringModel:
        """The model that answers."""
        host = self._app.model_host
        model = host.npu.model if host.npu is not None else None
        return AnsweringModel(
            host.name,
            host.listing.context_tokens,
            host.description,
            model.card.description if model else "",
            str(model.file) if model else "",
            model.card.template if model else "",
            host.takes_pictures,
            host.is_emulated,
            host.has_weights,
        )

    async def change_system(self, conversation: Conversation, text: str) -> None:
        """Change the system text of a conversation."""
        others = [message for message in conversation.messages if message.role != "system"]
        conversation.messages[:] = [Message("system", text), *others]
        conversation.own_system = text

    async def settle(self, question_id: str, answer: Decision | ElicitationAnswer) -> bool:
        """Answer a request for approval, or a server's form; return False if it does not wait any more."""
        return self._app.pending.respond(question_id, answer)

    async def models(self) -> Mapping[str, ListedModel]:
        """Return the models to choose from, by name; empty where they cannot be exchanged."""
        return self._app.models.list_models(with_installed=True) if self._app.models is not None else {}

    async def load_model(self, name: str) -> None:
        """Answer with another model from now on."""
        if self._app.models is None:
            raise UsageError("the model cannot be exchanged here; start another chat with --model NAME")
        await self._app.models.load(name)

    async def servers(self) -> Sequence[ListedServer]:
        """Return the servers and their states."""
        is_on = self._app.toolbox.switches.is_on
        return [
            ListedServer(server.name, server.state, server.tool_count, server.reason, is_on(server.name))
            for server in self._app.toolbox.servers()
        ]

    async def tools(self, *, disabled: bool = False) -> Sequence[ToolSpec]:
        """Return the tools that are switched on, or off with ``disabled``."""
        return self._app.toolbox.tools(disabled=disabled)

    async def find_tool(self, name: str) -> ToolSpec | str:
        """Return the tool of a short or long name, else the most similar name, which may be empty."""
        return self._app.toolbox.resolve(name) or self._app.toolbox.suggest(name) or ""

    async def switch(self, name: str, *, is_on: bool) -> tuple[str, str | None]:
        """Switch a tool or server; return its server, and the tool's name or None for a server."""
        from rkllm_mcp.app.tools import set_switch

        return set_switch(self._app.toolbox, self.config, name, is_on=is_on)

    async def conversation_grants(self, conversation_id: str) -> Sequence[tuple[str, str]]:
        """Return server and tool of each approval that is valid for one conversation."""
        return self._app.toolbox.conversation_grants.of(conversation_id)

    async def forget_conversation_grant(self, conversation_id: str, server: str, tool: str) -> None:
        """Revoke an approval that is valid for one conversation."""
        self._app.toolbox.conversation_grants.forget(conversation_id, server, tool)

    async def forget_memories(self, rows: Sequence[MemoryRow], conversation: Conversation) -> None:
        """Delete rows for good, also where they were recalled, as in this open conversation."""
        await self.store.memories.remove([row.id for row in rows])
        for row in rows:
            erase_row(conversation, row.text)

    # The first use of ``toolbox.offerings`` loads the MCP client, which a question without servers does without.
    async def readable(
        self, server: str | None, context: CallContext
    ) -> tuple[Sequence[Resource], Sequence[ResourceTemplate]]:
        """Return resources and templates of every server, or of one."""
        return await self._app.toolbox.offerings.readable(server, context)

    async def read_resource(self, reference: str, context: CallContext) -> ResourceContent:
        """Return a resource, cut off after ``agent.resource_chars``."""
        offerings = self._app.toolbox.offerings
        return await offerings.read_resource(reference, self.config.agent.resource_chars, context)

    async def prompts(self, server: str | None, context: CallContext) -> Sequence[PromptTemplate]:
        """Return the prompts of every server, or of one."""
        return await self._app.toolbox.offerings.prompts(server, context)

    async def complete(
        self,
        template: PromptTemplate | ResourceTemplate,
        blank: str,
        value: str,
        arguments: Mapping[str, str],
        context: CallContext,
    ) -> Sequence[str]:
        """Return values that a server suggests for an argument of a prompt, or for a blank of a resource's address."""
        offerings = self._app.toolbox.offerings
        if isinstance(template, PromptTemplate):
            return await offerings.complete_prompt(template.reference, blank, value, arguments, context)
        uri_template = template.uri_template
        return await offerings.complete_resource(template.server, uri_template, blank, value, arguments, context)


@asynccontextmanager
async def open_here(config: Config, status: Callable[[str], None]) -> AsyncGenerator[LocalHost, None]:
    """Open the assistant in this process; see ``app.root.open_app``."""
    from rkllm_mcp.app.root import open_app

    async with open_app(config, status=status) as app:
        yield LocalHost(app)
