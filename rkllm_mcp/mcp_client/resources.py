"""Resources and their subscriptions, prompts and completion over all servers."""

from __future__ import annotations

import base64
import binascii
import contextlib
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import anyio
from anyio.abc import TaskStatus

from rkllm_mcp.errors import (
    NotOfferedError,
    ServerRefusedError,
    ServerUnavailableError,
    ToolboxError,
    ToolTimeoutError,
    did_you_mean,
)
from rkllm_mcp.mcp_client import sdk
from rkllm_mcp.mcp_client.callbacks import ResourceUpdates
from rkllm_mcp.mcp_client.per_request import AnyConnection, PerRequestConnection
from rkllm_mcp.mcp_client.session import all_pages
from rkllm_mcp.messages import (
    FilledPrompt,
    Message,
    PromptArgument,
    PromptTemplate,
    Resource,
    ResourceContent,
    ResourceTemplate,
)
from rkllm_mcp.protocols import NO_CONTEXT, CallContext, Deadline
from rkllm_mcp.toolcalls.results import result_text
from rkllm_mcp.toolcalls.untrusted_text import without_invisible

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client.subscriptions import Subscription
    from mcp_types import PromptReference, ResourceTemplateReference

    from rkllm_mcp.mcp_client.connection import Connection


OnUpdate: TypeAlias = Callable[[str], Awaitable[None]]

_TEXTUAL = ("text/", "application/json", "application/xml", "application/yaml", "application/x-yaml")
# Limit for resources/unsubscribe, seconds.
_UNSUBSCRIBE_TIMEOUT_S = 2.0
# A list of all servers waits this long for one that is starting, seconds.
_START_PATIENCE_S = 3.0


async def _list_resources(client: Client, connection: AnyConnection) -> list[Resource]:
    if client.server_capabilities.resources is None:
        return []
    server, note = connection.spec.name, connection.notes.add
    resources = await all_pages(client.list_resources, lambda page: page.resources, note, "resources")
    return [
        Resource(
            server,
            str(resource.uri),
            resource.title or resource.name,
            resource.description or "",
            resource.mime_type or "",
            resource.size,
        )
        for resource in resources
    ]


async def _list_templates(client: Client, connection: AnyConnection) -> list[ResourceTemplate]:
    if client.server_capabilities.resources is None:
        return []
    server, fetch, note = connection.spec.name, client.list_resource_templates, connection.notes.add
    templates = await all_pages(fetch, lambda page: page.resource_templates, note, "resource templates")
    return [
        ResourceTemplate(
            server,
            template.uri_template,
            template.title or template.name,
            template.description or "",
            template.mime_type or "",
        )
        for template in templates
    ]


async def _list_prompts(client: Client, connection: AnyConnection) -> list[PromptTemplate]:
    if client.server_capabilities.prompts is None:
        return []
    prompts: list[PromptTemplate] = []
    for prompt in await all_pages(client.list_prompts, lambda page: page.prompts, connection.notes.add, "prompts"):
        declared = prompt.arguments or ()
        arguments = tuple(
            PromptArgument(argument.name, argument.description or "", bool(argument.required)) for argument in declared
        )
        description = prompt.description or prompt.title or ""
        prompts.append(PromptTemplate(connection.spec.name, prompt.name, description, arguments))
    return prompts


async def fill_prompt(client: Client, template: PromptTemplate, arguments: Mapping[str, str]) -> FilledPrompt:
    """Get a prompt; consecutive messages of one role are joined."""
    result = await client.get_prompt(template.name, dict(arguments))
    turns: list[Message] = []
    for message in result.messages:
        block = message.content.model_dump(by_alias=True, exclude_none=True, mode="json")
        text = result_text({"content": [block]})
        if turns and turns[-1].role == message.role:
            text = f"{turns.pop().text}\n\n{text}"
        turns.append(Message(message.role, text))
    return FilledPrompt(template, tuple(turns))


def closest(name: str, names: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` or the list of ``names``, to end an error message with."""
    names = list(dict.fromkeys(names))
    listing = f"choose one of {', '.join(names)}" if names else "the servers have none"
    return did_you_mean(name, names).removeprefix("; ") or listing


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass
class ResourceHub:
    """Resources and prompts of all servers."""

    connections: Mapping[str, AnyConnection]  # by server, in the order of the configuration
    updates: ResourceUpdates
    on_status: Callable[[str], None] | None = None  # receives a line about each server that could not list something
    completion_patience_s: float = 3.0  # limit of a completion
    # Servers whose failure was reported, until they answer again: a dead server is named once.
    _reported: set[str] = field(default_factory=set[str])

    @contextlib.asynccontextmanager
    async def attending(self, tokens: Mapping[str, str]) -> AsyncGenerator[None]:
        """Connect the servers that need a request's tokens and list their tools, inside this block.

        A server that lacks a token or cannot be connected is skipped; a call of its tools reports the reason.
        """
        async with contextlib.AsyncExitStack() as sessions:
            opened: list[Connection] = []
            for connection in self.connections.values():
                if isinstance(connection, PerRequestConnection) and tokens:
                    try:
                        opened.append(await sessions.enter_async_context(connection.held(tokens)))
                    except ServerUnavailableError as error:
                        connection.notes.add(str(error))
            for session in opened:
                await session.wait_until_settled()
            yield

    async def resources(self, server: str | None = None, context: CallContext = NO_CONTEXT) -> tuple[Resource, ...]:
        """Return the resources of all servers, or of one; in the order of the configuration, then in each server's."""
        return await self._list_items(_list_resources, "resources", server, context)

    async def templates(
        self, server: str | None = None, context: CallContext = NO_CONTEXT
    ) -> tuple[ResourceTemplate, ...]:
        """Return the resource templates of all servers, or of one, in the same order."""
        return await self._list_items(_list_templates, "resource templates", server, context)

    async def readable(
        self, server: str | None = None, context: CallContext = NO_CONTEXT
    ) -> tuple[tuple[Resource, ...], tuple[ResourceTemplate, ...]]:
        """Return ``resources`` and ``templates``; a server that does not answer is reported once."""
        resources = await self._by_server(_list_resources, "resources", server, context)
        templates = await self._by_server(_list_templates, "resource templates", server, context, among=resources)
        return tuple(chain.from_iterable(resources.values())), tuple(chain.from_iterable(templates.values()))

    async def read_resource(
        self, reference: str, limit_chars: int = sys.maxsize, context: CallContext = NO_CONTEXT
    ) -> ResourceContent:
        """Read ``server:uri``, or a URI that only one server has; a ToolboxError if none exists or it is unreadable.

        Text beyond ``limit_chars`` characters is cut off; ``context`` is for requests that the server makes meanwhile.
        """
        connection, uri = await self.locate(reference, context)
        name = connection.spec.name
        problem = f"resource '{uri}' of server '{name}' could not be read"
        result = await _request(connection, lambda client: client.read_resource(uri), context, problem)
        contents = tuple(
            content.model_dump(by_alias=True, exclude_none=True, mode="json") for content in result.contents
        )
        # Contents of a textual type that the server sent as blobs are decoded.
        readable: list[Mapping[str, Any]] = []
        for content in contents:
            blob, is_textual = content.get("blob"), str(content.get("mimeType", "")).startswith(_TEXTUAL)
            decoded: dict[str, str] = {}
            if "text" not in content and isinstance(blob, str) and is_textual:
                with contextlib.suppress(binascii.Error, UnicodeDecodeError):
                    decoded["text"] = base64.b64decode(blob, validate=True).decode("utf-8")
            readable.append({**content, **decoded})
        # Several contents are separated by their URIs.
        blocks: list[dict[str, Any]] = [{"type": "resource", "resource": content} for content in readable]
        if len(readable) == 1 and "text" in readable[0]:
            blocks = [{"type": "text", "text": readable[0]["text"]}]
        text = result_text({"content": blocks}) if blocks else "(empty)"
        if omitted := max(0, len(text) - limit_chars):
            text = f"{text[:limit_chars]}\n… truncated, {omitted} more characters"
        return ResourceContent(name, uri, without_invisible(text)[0], omitted > 0, contents)

    async def subscribe(
        self,
        reference: str,
        on_update: OnUpdate,
        context: CallContext = NO_CONTEXT,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Call ``on_update`` with the URI for each change of a resource, one by one, until cancelled.

        ``reference`` is ``server:uri``, or a URI that only one server has; a session that uses the tokens of
        ``context`` stays open meanwhile. ``task_status`` is started once the server has confirmed. A ToolboxError if
        the resource does not exist, its server does not support subscriptions, or the connection was lost.
        """
        connection, uri = await self.locate(reference, context)
        is_per_request = isinstance(connection, PerRequestConnection)
        async with connection.held(context.tokens) if is_per_request else contextlib.nullcontext(connection) as session:
            # An event stream since 2026-07-28, notifications before. A subscription ends with its connection.
            if (await session.available()).session.discover_result is not None:
                await _follow_events(session, uri, on_update, task_status)
            else:
                await _follow_notifications(session, self.updates, uri, on_update, task_status)
        server = connection.spec.name
        raise ServerUnavailableError(f"the connection to server '{server}' was lost; subscribe to {uri} again")

    async def prompts(self, server: str | None = None, context: CallContext = NO_CONTEXT) -> tuple[PromptTemplate, ...]:
        """Return the prompts of all servers, or of one; in the order of the configuration, then in each server's."""
        return await self._list_items(_list_prompts, "prompts", server, context)

    async def fill_prompt(
        self, reference: str, arguments: Mapping[str, str], context: CallContext = NO_CONTEXT
    ) -> FilledPrompt:
        """Get a prompt, named ``server:name`` or by a name that only one server has, with ``arguments`` filled in.

        A ToolboxError if the prompt does not exist, an argument is missing or unknown, or the server refused.
        """
        template = await self._template(reference, context)
        names = [argument.name for argument in template.arguments]
        unknown = next((name for name in arguments if name not in names), None)
        if unknown is not None:
            advice = closest(unknown, names) if names else "it takes none"
            raise ToolboxError(f"prompt '{template.name}' has no argument '{unknown}'; {advice}")
        missing = [a.name for a in template.arguments if a.required and not arguments.get(a.name)]
        if missing:
            example = " ".join(f"{name}=…" for name in missing)
            raise ToolboxError(f"prompt '{template.name}' needs {', '.join(missing)}; add {example}")
        problem = f"prompt '{template.name}' of server '{template.server}' could not be filled"
        connection = self.connections[template.server]
        filled = await _request(connection, lambda client: fill_prompt(client, template, arguments), context, problem)
        if not filled.messages:
            raise ToolboxError(f"prompt '{template.reference}' is empty; ask in words of your own")
        turns = (replace(turn, text=without_invisible(turn.text)[0], foreign=True) for turn in filled.messages)
        return replace(filled, messages=tuple(turns))

    async def complete_prompt(
        self,
        reference: str,
        argument: str,
        value: str,
        arguments: Mapping[str, str] | None = None,
        context: CallContext = NO_CONTEXT,
    ) -> tuple[str, ...]:
        """Return completions for an argument of a prompt; empty if the server has none or does not answer in time.

        ``reference`` is ``server:name`` or a unique name, ``value`` the text typed so far; ``arguments`` are those
        that are already filled in.
        """
        with anyio.move_on_after(self.completion_patience_s), contextlib.suppress(ToolboxError):
            template = await self._template(reference, context)
            sent = sdk.types.PromptReference(name=template.name)
            typed = {"name": argument, "value": value}
            complete = partial(_complete, reference=sent, typed=typed, arguments=dict(arguments or {}))
            return await self.connections[template.server].request(complete, context)
        return ()

    async def complete_resource(
        self,
        server: str,
        uri_template: str,
        blank: str,
        value: str,
        arguments: Mapping[str, str] | None = None,
        context: CallContext = NO_CONTEXT,
    ) -> tuple[str, ...]:
        """Return completions for a variable of a resource template; see ``complete_prompt``."""
        with anyio.move_on_after(self.completion_patience_s), contextlib.suppress(ToolboxError):
            sent = sdk.types.ResourceTemplateReference(uri=uri_template)
            typed = {"name": blank, "value": value}
            complete = partial(_complete, reference=sent, typed=typed, arguments=dict(arguments or {}))
            return await self._connection_to(server).request(complete, context)
        return ()

    async def _list_items(
        self,
        list_of: Callable[[Client, AnyConnection], Awaitable[Sequence[_Item]]],
        what: str,
        server: str | None,
        context: CallContext,
    ) -> tuple[_Item, ...]:
        return tuple(chain.from_iterable((await self._by_server(list_of, what, server, context)).values()))

    async def _by_server(
        self,
        list_of: Callable[[Client, AnyConnection], Awaitable[Sequence[_Item]]],
        what: str,
        server: str | None,
        context: CallContext,
        *,
        among: Iterable[str] | None = None,
    ) -> dict[str, Sequence[_Item]]:
        """Return the lists of the named server, else of all or of those in ``among``, by server.

        A failure is reported as a status line, or raised if the server was named.
        """
        names = list(self.connections if among is None else among) if server is None else [server]
        connections = [self._connection_to(name) for name in names]
        items: dict[str, Sequence[_Item]] = {}
        errors: list[ToolboxError] = []

        async def list_server(connection: AnyConnection) -> None:
            name = connection.spec.name
            problem = f"the {what} of server '{name}' could not be listed"
            if server is None:
                # The lists of the others do not wait for a server that is slow to start.
                await connection.wait_until_settled(_START_PATIENCE_S)
                if connection.is_starting:
                    return
            try:
                items[name] = await _request(connection, lambda client: list_of(client, connection), context, problem)
            except ToolboxError as error:
                if server is None and self.on_status is not None and name not in self._reported:
                    self._reported.add(name)
                    self.on_status(f"[MCP: {error}]")
                errors.append(error)
            else:
                self._reported.discard(name)

        async with anyio.create_task_group() as asking:
            for connection in connections:
                asking.start_soon(list_server, connection)
        if server is not None and errors:
            raise errors[0]
        return {name: items[name] for name in names if name in items}

    async def locate(self, reference: str, context: CallContext = NO_CONTEXT) -> tuple[AnyConnection, str]:
        """Return the server of a resource and its URI there; raises ToolboxError if none or several have it."""
        server, colon, uri = reference.partition(":")
        # "file:///a" is a URI even if a server is named "file".
        if colon and server in self.connections and not uri.startswith("//"):
            return self.connections[server], uri
        resources = await self.resources(context=context)
        servers = [resource.server for resource in resources if resource.uri == reference]
        if not servers:
            # Those with a template whose literal beginning is that of the URI.
            templates = await self.templates(context=context)
            beginnings = ((template.server, template.uri_template.partition("{")[0]) for template in templates)
            servers = [server for server, beginning in beginnings if beginning and reference.startswith(beginning)]
        if len(set(servers)) == 1:
            return self.connections[servers[0]], reference
        names = [name for resource in resources for name in (resource.reference, resource.uri)]
        raise _unclear("resource", reference, [f"{holder}:{reference}" for holder in servers], names)

    async def _template(self, reference: str, context: CallContext) -> PromptTemplate:
        server, colon, name = reference.partition(":")
        is_named = bool(colon) and server in self.connections
        prompts = await self.prompts(server if is_named else None, context)
        matches = [prompt for prompt in prompts if prompt.name == (name if is_named else reference)]
        if len(matches) == 1:
            return matches[0]
        names = [name for prompt in prompts for name in (prompt.name, prompt.reference)]
        raise _unclear("prompt", reference, [prompt.reference for prompt in matches], names)

    def _connection_to(self, server: str) -> AnyConnection:
        connection = self.connections.get(server)
        if connection is None:
            raise NotOfferedError(f"there is no server '{server}'; {closest(server, self.connections)}")
        return connection


def _unclear(kind: str, reference: str, matches: Iterable[str], names: Iterable[str]) -> NotOfferedError:
    """Return the error of a reference that several servers have, or none."""
    if several := ", ".join(dict.fromkeys(matches)):
        return NotOfferedError(f"several servers have a {kind} '{reference}'; name one of {several}")
    return NotOfferedError(f"there is no {kind} '{reference}'; {closest(reference, names)}")


async def _request(
    connection: AnyConnection, operation: Callable[[Client], Awaitable[_Result]], context: CallContext, problem: str
) -> _Result:
    """Send a request within ``timeout_s``; errors begin with ``problem``."""
    timeout_s = connection.spec.timeout_s
    deadline = Deadline(timeout_s, anyio.current_time)
    with deadline.bind(anyio.CancelScope()):
        try:
            return await connection.request(operation, deadline.within(context))
        except (ServerRefusedError, ServerUnavailableError) as error:
            raise type(error)(f"{problem}: {error}") from error
    raise ToolTimeoutError(f"{problem}: it did not answer within {timeout_s:g} s; raise timeout_s if it needs longer")


async def _complete(
    client: Client,
    reference: PromptReference | ResourceTemplateReference,
    typed: dict[str, str],
    arguments: dict[str, str],
) -> tuple[str, ...]:
    if client.server_capabilities.completions is None:
        return ()
    return tuple((await client.complete(reference, typed, arguments or None)).completion.values)


async def _follow_events(connection: Connection, uri: str, on_update: OnUpdate, task_status: TaskStatus[None]) -> None:
    """Call ``on_update`` until the connection is lost; a ServerRefusedError if the server ends the subscription."""

    # The stream outlives the request that opens it, so that an idle subscription does not count as an active call.
    async def open_stream(client: Client) -> tuple[contextlib.AsyncExitStack, Subscription]:
        async with contextlib.AsyncExitStack() as opening:
            subscription = await opening.enter_async_context(client.listen(resource_subscriptions=[uri]))
            return opening.pop_all(), subscription

    opened, subscription = await connection.request(open_stream)
    async with opened:
        if uri not in (subscription.honored.resource_subscriptions or ()):
            raise ServerRefusedError(f"server '{connection.spec.name}' does not send updates of {uri}; read it again")
        task_status.started()
        try:
            async for event in subscription:
                if isinstance(event, sdk.subscriptions.ResourceUpdated):
                    await on_update(str(event.uri))
        except sdk.subscriptions.SubscriptionLost:
            return
    raise ServerRefusedError(f"server '{connection.spec.name}' has ended the subscription to {uri}; subscribe again")


async def _follow_notifications(
    connection: Connection, updates: ResourceUpdates, uri: str, on_update: OnUpdate, task_status: TaskStatus[None]
) -> None:
    """Call ``on_update`` until the connection is lost."""
    with updates.listening(connection.spec.name, uri) as changed:
        gone = await connection.request(lambda client: _subscribe(client, connection, uri))
        task_status.started()
        try:
            async with anyio.create_task_group() as watch:
                watch.start_soon(_end_when_gone, gone, watch.cancel_scope)
                async for address in changed:
                    await on_update(address)
        finally:
            if not gone.is_set():
                request = sdk.types.UnsubscribeRequest(params=sdk.types.UnsubscribeRequestParams(uri=uri))
                with (
                    anyio.move_on_after(_UNSUBSCRIBE_TIMEOUT_S, shield=True),
                    contextlib.suppress(ServerRefusedError, ServerUnavailableError),
                ):
                    await connection.request(lambda client: client.session.send_request(request, sdk.types.EmptyResult))


async def _end_when_gone(gone: anyio.Event, scope: anyio.CancelScope) -> None:
    await gone.wait()
    scope.cancel()


async def _subscribe(client: Client, connection: Connection, uri: str) -> anyio.Event:
    gone = connection.life.over  # each connection has its own
    await client.session.send_request(
        sdk.types.SubscribeRequest(params=sdk.types.SubscribeRequestParams(uri=uri)), sdk.types.EmptyResult
    )
    return gone
