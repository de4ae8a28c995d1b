"""What a server may ask or tell the host, as the callbacks of its ``mcp.Client``.

Registering a callback declares the capability, so one is registered only where the configuration lets the server ask;
one that asks all the same is refused by the SDK. A callback never raises. One set serves both eras of the protocol.
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
    """A logging callback that writes one line per message."""

    async def log(params: LoggingMessageNotificationParams) -> None:
        logger = f" {params.logger}:" if params.logger else ""
        note(f"{params.level}:{logger} {params.data}".replace("\n", " "))

    return log


async def ask_for_log(client: Client, level: LogLevel | None, note: Callable[[str], None]) -> None:
    """Tell a server up to 2025-11-25 from which level on its log is wanted; later ones read it in every request.

    Args:
        client: a connected client.
        level: from which on; None leaves it to the server.
        note: called with a line when the server will not hear of it.
    """
    from mcp import MCPError
    from mcp_types import EmptyResult, SetLevelRequest, SetLevelRequestParams

    if level is None or client.session.discover_result is not None or client.server_capabilities.logging is None:
        return
    try:
        await client.session.send_request(SetLevelRequest(params=SetLevelRequestParams(level=level)), EmptyResult)
    except MCPError as error:
        note(f"(its log cannot be asked for: {error})")


def tool_changes_to(changed: Callable[[], None], also: MessageHandlerFnT | None = None) -> MessageHandlerFnT:
    """A message handler that reports each change of the list of tools, of both eras, and passes everything on."""

    async def handle(message: IncomingMessage) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            changed()
        if also is not None:
            await also(message)

    return handle


@dataclass(frozen=True)
class Callbacks:
    """What a connection's ``mcp.Client`` is given of the host; each callback that is there declares its capability.

    Args:
        sampling: answers a server that wants the model.
        sampling_capabilities: what of sampling is offered beyond plain text.
        elicitation: answers a server that wants to know something.
        roots: says which folders the host is about.
        message: also hears every notification of the server, after the connection has.
        extensions: extensions of the protocol that are offered.
    """

    sampling: SamplingFnT | None = None
    sampling_capabilities: SamplingCapability | None = None
    elicitation: ElicitationFnT | None = None
    roots: ListRootsFnT | None = None
    message: MessageHandlerFnT | None = None
    extensions: Sequence[ClientExtension] = ()


class Answers:
    """What one host answers its servers; all connections of a toolbox share it.

    Args:
        sampler: our model, for servers that may ask it; None when there is none to ask.
        approvals: whose memory keeps what is said about servers that ask the model; one of their own when None.

    Attributes:
        updates: who wants to hear that a resource has changed.
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
        """The callbacks of one server's client; needs the SDK.

        Args:
            spec: which server, and what it may ask.
            in_flight: the calls under way on its connection; the list changes as they come and go, newest last.
            note: called with a line about each question that came to nothing.
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
