"""Callbacks of an ``mcp.Client`` for server-initiated requests and notifications.

Registering a callback declares the capability, so a callback is registered only if the configuration allows the
request; the SDK refuses the others. A callback never raises. The same callbacks serve both protocol revisions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rkllm_mcp.tools.asked.elicitation import elicitation_of
from rkllm_mcp.tools.asked.roots import roots_of
from rkllm_mcp.tools.asked.sampling import SamplingGate, Yeses
from rkllm_mcp.tools.offers.updates import Updates
from rkllm_mcp.tools.trust.approval import Approvals

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client.extension import ClientExtension
    from mcp.client.session import (
        ElicitationFnT,
        IncomingMessage,
        ListRootsFnT,
        LoggingFnT,
        MessageHandlerFnT,
        SamplingFnT,
    )
    from mcp_types import LoggingMessageNotificationParams, SamplingCapability

    from rkllm_mcp.calling import CallContext, Sampler
    from rkllm_mcp.tools.servers import LogLevel, ServerSpec
    from rkllm_mcp.tools.trust.reasons import Language


def logging_to(note: Callable[[str], None]) -> LoggingFnT:
    """Return a logging callback that writes one line per message."""

    async def log(params: LoggingMessageNotificationParams) -> None:
        logger = f" {params.logger}:" if params.logger else ""
        note(f"{params.level}:{logger} {params.data}".replace("\n", " "))

    return log


async def ask_for_log(client: Client, level: LogLevel | None, note: Callable[[str], None]) -> None:
    """Send ``logging/setLevel`` to a server of 2025-11-25 or older; newer ones read the level in every request.

    A refusal is written to ``note``; ``level`` None sends nothing.
    """
    from mcp import MCPError
    from mcp_types import EmptyResult, SetLevelRequest, SetLevelRequestParams

    if level is None or client.session.discover_result is not None or client.server_capabilities.logging is None:
        return
    try:
        await client.session.send_request(SetLevelRequest(params=SetLevelRequestParams(level=level)), EmptyResult)
    except MCPError as error:
        note(f"(logging/setLevel was refused: {error})")


def tool_changes_to(changed: Callable[[], None], also: MessageHandlerFnT | None = None) -> MessageHandlerFnT:
    """Return a message handler that calls ``changed`` on tools/list_changed and passes every message on to ``also``."""

    async def handle(message: IncomingMessage) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            changed()
        if also is not None:
            await also(message)

    return handle


@dataclass(frozen=True)
class Callbacks:
    """Callbacks of one connection's ``mcp.Client``; each one that is set declares its capability."""

    sampling: SamplingFnT | None = None
    sampling_capabilities: SamplingCapability | None = None  # beyond plain text
    elicitation: ElicitationFnT | None = None
    roots: ListRootsFnT | None = None
    message: MessageHandlerFnT | None = None  # receives every notification after the connection has handled it
    extensions: Sequence[ClientExtension] = ()


class Answers:
    """Creates the callbacks of all servers of one toolbox.

    ``sampler`` is the host's model (None: no sampling); ``approvals`` stores the decisions about sampling. ``updates``
    holds the subscribers to resource changes.
    """

    def __init__(self, sampler: Sampler | None = None, approvals: Approvals | None = None) -> None:
        approvals = approvals or Approvals()
        self.updates = Updates()
        self._sampler = sampler
        self._yeses = Yeses(approvals.grants, approvals.conversations)
        self._language: Language = approvals.language

    def callbacks_for(
        self, spec: ServerSpec, in_flight: Sequence[CallContext], note: Callable[[str], None]
    ) -> Callbacks:
        """Return the callbacks of one server's client; imports the SDK.

        ``in_flight`` are the active calls of the connection, newest last, and changes as they start and end. ``note``
        receives a line about each request that failed.
        """
        from rkllm_mcp.tools.asked.tasks import Tasks

        sampler = None if spec.sampling == "deny" else self._sampler
        gate = SamplingGate(spec, sampler, self._yeses, in_flight, note, self._language) if sampler else None
        return Callbacks(
            sampling=gate.answer if gate else None,
            elicitation=elicitation_of(spec, in_flight, note),
            roots=roots_of(spec),
            message=self.updates.heard_from(spec.name),
            extensions=(Tasks(in_flight, spec.task_timeout_s),),
        )
