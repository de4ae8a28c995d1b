"""What all servers offer besides tools: resources and prompts, as ``server:…`` or by what is unique among them.

A list leaves out the servers that cannot be asked, and says so; anything that was named and cannot be had is a
``ToolboxError`` that names it. Every request is bounded by its server's ``timeout_s``; a server that wants its caller's
token gets that of the request's context, and cannot be asked without it.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio.abc import TaskStatus

from rkllm_mcp.calling import NO_CONTEXT, CallContext
from rkllm_mcp.errors import NotOfferedError, ServerRefusedError, ServerUnavailableError, ToolboxError, ToolTimeoutError
from rkllm_mcp.offers import FilledPrompt, PromptTemplate, Resource, ResourceContent, ResourceTemplate
from rkllm_mcp.tools.asked.limits import time_limit
from rkllm_mcp.tools.offers.completion import complete
from rkllm_mcp.tools.offers.prompts import check_arguments, closest, fill_prompt, list_prompts
from rkllm_mcp.tools.offers.resources import list_resources, list_templates, read_resource
from rkllm_mcp.tools.offers.subscriptions import OnUpdate, follow
from rkllm_mcp.tools.offers.updates import Updates
from rkllm_mcp.tools.session.tokened import AnyConnection, session_of
from rkllm_mcp.tools.trust.hidden import without_hidden

if TYPE_CHECKING:
    from mcp import Client

# A person who presses Tab does not wait longer.
COMPLETION_PATIENCE_S = 3.0

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Offerings:
    """Resources and prompts of every server.

    Args:
        connections: the servers, by the configuration's names.
        updates: where changes of resources come in.
        on_status: told, a line each, about servers that could not be asked for a list.
        clean: the text in which no tool is called, of one that a model is to read.

    Attributes:
        completion_patience_s: the longest that somebody who presses Tab waits, seconds.
    """

    completion_patience_s = COMPLETION_PATIENCE_S

    def __init__(
        self,
        connections: Mapping[str, AnyConnection],
        updates: Updates,
        on_status: Callable[[str], None] | None = None,
        clean: Callable[[str], str] = str,
    ) -> None:
        self._connections = connections
        self._updates = updates
        self._on_status = on_status
        self._clean = clean

    def server_names(self) -> tuple[str, ...]:
        """The servers, in the order of the configuration."""
        return tuple(self._connections)

    # --- resources -------------------------------------------------------------------------------------------------

    async def resources(self, server: str | None = None, context: CallContext = NO_CONTEXT) -> tuple[Resource, ...]:
        """The resources of every server, or of one; in the order of the configuration, then in each server's."""
        return await self._listed(list_resources, "resources", server, context)

    async def templates(
        self, server: str | None = None, context: CallContext = NO_CONTEXT
    ) -> tuple[ResourceTemplate, ...]:
        """The templates of resources of every server, or of one; in the same order."""
        return await self._listed(list_templates, "resource templates", server, context)

    async def readable(
        self, server: str | None = None, context: CallContext = NO_CONTEXT
    ) -> tuple[tuple[Resource, ...], tuple[ResourceTemplate, ...]]:
        """``resources`` and ``templates`` in one; a server that cannot be asked for the first is told of once."""
        connections = self._meant(server)
        is_named = server is not None
        resources = await self._by_server(list_resources, "resources", connections, context, is_named=is_named)
        answered = [self._connections[name] for name in resources]
        templates = await self._by_server(list_templates, "resource templates", answered, context, is_named=is_named)
        return tuple(chain.from_iterable(resources.values())), tuple(chain.from_iterable(templates.values()))

    async def read_resource(
        self, reference: str, limit_chars: int = sys.maxsize, context: CallContext = NO_CONTEXT
    ) -> ResourceContent:
        """Read ``server:uri``, or an address that says by itself whose it is.

        Args:
            reference: what to read.
            limit_chars: what is longer of its text is cut, characters.
            context: the circumstances, for what the server asks meanwhile.

        Raises:
            ToolboxError: there is no such resource, or it cannot be read.
        """
        connection, uri = await self._holder(reference, context)
        name = connection.spec.name
        content = await _asked(
            connection,
            lambda client: read_resource(client, name, uri, limit_chars),
            context,
            f"resource '{uri}' of server '{name}' could not be read",
        )
        return replace(content, text=self._readable(content.text))

    async def subscribe(
        self,
        reference: str,
        on_update: OnUpdate,
        context: CallContext = NO_CONTEXT,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Call ``on_update`` with the address whenever a resource changes, until cancelled.

        Args:
            reference: ``server:uri``, or an address that says by itself whose it is.
            on_update: awaited for one change after the other.
            context: the circumstances; a session of its tokens is kept open meanwhile.
            task_status: told once the server has agreed, for ``TaskGroup.start``.

        Raises:
            ToolboxError: there is no such resource, its server does not tell of changes, or the connection was lost.
        """
        connection, uri = await self._holder(reference, context)
        async with session_of(connection, context.tokens) as session:
            await follow(session, self._updates, uri, on_update, task_status)

    # --- prompts -----------------------------------------------------------------------------------------------------

    async def prompts(self, server: str | None = None, context: CallContext = NO_CONTEXT) -> tuple[PromptTemplate, ...]:
        """The prompts of every server, or of one; in the order of the configuration, then in each server's."""
        return await self._listed(list_prompts, "prompts", server, context)

    async def fill_prompt(
        self, reference: str, arguments: Mapping[str, str], context: CallContext = NO_CONTEXT
    ) -> FilledPrompt:
        """Fill a prompt, named ``server:name`` or by a name that only one server has.

        Raises:
            ToolboxError: there is no such prompt, an argument is missing or unknown, or the server refuses.
        """
        template = await self._template(reference, context)
        check_arguments(template, arguments)
        filled = await _asked(
            self._connections[template.server],
            lambda client: fill_prompt(client, template, arguments),
            context,
            f"prompt '{template.name}' of server '{template.server}' could not be filled",
        )
        if not filled.messages:
            raise ToolboxError(f"prompt '{template.reference}' is empty; ask in words of your own")
        turns = (replace(turn, text=self._readable(turn.text)) for turn in filled.messages)
        return replace(filled, messages=tuple(turns))

    # --- completion --------------------------------------------------------------------------------------------------

    async def complete_prompt(
        self,
        reference: str,
        argument: str,
        value: str,
        others: Mapping[str, str] | None = None,
        context: CallContext = NO_CONTEXT,
    ) -> tuple[str, ...]:
        """What an argument of a prompt could become; empty when the server has no idea, or takes too long to have one.

        Args:
            reference: the prompt, ``server:name`` or a unique name.
            argument: which of its arguments.
            value: what of it was typed.
            others: the arguments that are known already.
            context: the circumstances.
        """
        from mcp_types import PromptReference

        with anyio.move_on_after(self.completion_patience_s):
            try:
                template = await self._template(reference, context)
                connection = self._connections[template.server]
                ref = PromptReference(name=template.name)
                return await connection.request(
                    lambda client: complete(client, ref, argument, value, others or {}), context
                )
            except ToolboxError:
                return ()
        return ()

    async def complete_resource(
        self,
        server: str,
        uri_template: str,
        blank: str,
        value: str,
        others: Mapping[str, str] | None = None,
        context: CallContext = NO_CONTEXT,
    ) -> tuple[str, ...]:
        """What a blank of a resource template could become; see ``complete_prompt``."""
        from mcp_types import ResourceTemplateReference

        with anyio.move_on_after(self.completion_patience_s):
            try:
                connection = self._named(server)
                ref = ResourceTemplateReference(uri=uri_template)
                return await connection.request(
                    lambda client: complete(client, ref, blank, value, others or {}), context
                )
            except ToolboxError:
                return ()
        return ()

    def _readable(self, text: str) -> str:
        """A server's text as a model may read it, like the result of a tool."""
        visible, _ = without_hidden(text)
        return self._clean(visible)

    # --- who has what ------------------------------------------------------------------------------------------------

    async def _listed(
        self,
        list_of: Callable[[Client, AnyConnection], Awaitable[Sequence[_Item]]],
        what: str,
        server: str | None,
        context: CallContext,
    ) -> tuple[_Item, ...]:
        is_named = server is not None
        found = await self._by_server(list_of, what, self._meant(server), context, is_named=is_named)
        return tuple(chain.from_iterable(found.values()))

    def _meant(self, server: str | None) -> list[AnyConnection]:
        return [*self._connections.values()] if server is None else [self._named(server)]

    async def _by_server(
        self,
        list_of: Callable[[Client, AnyConnection], Awaitable[Sequence[_Item]]],
        what: str,
        connections: Sequence[AnyConnection],
        context: CallContext,
        *,
        is_named: bool,
    ) -> dict[str, Sequence[_Item]]:
        """What each server lists; that one cannot is told, or raised where it was named."""
        found: dict[str, Sequence[_Item]] = {}

        async def ask(connection: AnyConnection) -> None:
            name = connection.spec.name
            problem = f"the {what} of server '{name}' could not be listed"
            try:
                found[name] = await _asked(connection, lambda client: list_of(client, connection), context, problem)
            except ToolboxError as error:
                if not is_named and self._on_status is not None:
                    self._on_status(f"[MCP: {error}]")
                errors.append(error)

        errors: list[ToolboxError] = []
        async with anyio.create_task_group() as asking:
            for connection in connections:
                asking.start_soon(ask, connection)
        if is_named and errors:
            raise errors[0]
        names = (connection.spec.name for connection in connections)
        return {name: found[name] for name in names if name in found}

    async def _holder(self, reference: str, context: CallContext) -> tuple[AnyConnection, str]:
        """Whose resource is meant, and its address there."""
        server, colon, uri = reference.partition(":")
        # "file:///a" names a server only where one is called file, and then still means the address where it has that.
        if colon and server in self._connections and not uri.startswith("//"):
            return self._connections[server], uri
        resources = await self.resources(context=context)
        holders = [resource.server for resource in resources if resource.uri == reference]
        if not holders:
            holders = await self._makers(reference, context)
        if len(set(holders)) == 1:
            return self._connections[holders[0]], reference
        if holders:
            named = ", ".join(f"{holder}:{reference}" for holder in dict.fromkeys(holders))
            raise NotOfferedError(f"several servers have a resource '{reference}'; name one of {named}")
        near = closest(reference, [name for resource in resources for name in (resource.reference, resource.uri)])
        raise NotOfferedError(f"there is no resource '{reference}'; {near}")

    async def _makers(self, uri: str, context: CallContext) -> list[str]:
        """The servers with a template that the address begins like."""
        templates = await self.templates(context=context)
        beginnings = ((template.server, template.uri_template.partition("{")[0]) for template in templates)
        return [server for server, beginning in beginnings if beginning and uri.startswith(beginning)]

    async def _template(self, reference: str, context: CallContext) -> PromptTemplate:
        server, colon, name = reference.partition(":")
        if colon and server in self._connections:
            prompts = await self.prompts(server, context)
            found = [prompt for prompt in prompts if prompt.name == name]
        else:
            prompts = await self.prompts(context=context)
            found = [prompt for prompt in prompts if prompt.name == reference]
        if len(found) == 1:
            return found[0]
        if found:
            named = ", ".join(prompt.reference for prompt in found)
            raise NotOfferedError(f"several servers have a prompt '{reference}'; name one of {named}")
        near = closest(reference, [name for prompt in prompts for name in (prompt.name, prompt.reference)])
        raise NotOfferedError(f"there is no prompt '{reference}'; {near}")

    def _named(self, server: str) -> AnyConnection:
        connection = self._connections.get(server)
        if connection is None:
            raise NotOfferedError(f"there is no server '{server}'; {closest(server, self._connections)}")
        return connection


async def _asked(
    connection: AnyConnection, operation: Callable[[Client], Awaitable[_Result]], context: CallContext, problem: str
) -> _Result:
    """The result of a request, bounded; ``problem`` begins the sentence when there is none."""
    timeout_s = connection.spec.timeout_s
    with time_limit(timeout_s, context) as (_, limited):
        try:
            return await connection.request(operation, limited)
        except (ServerRefusedError, ServerUnavailableError) as error:
            raise type(error)(f"{problem}: {error}") from error
    raise ToolTimeoutError(f"{problem}: it did not answer within {timeout_s:g} s; raise timeout_s if it needs longer")
