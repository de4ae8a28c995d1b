"""Prompts of one server: list them, check arguments, convert the messages to turns.

Content other than text, such as a resource, is converted as in a tool result.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rkllm_mcp.errors import ToolboxError
from rkllm_mcp.messages import Message
from rkllm_mcp.offers import FilledPrompt, PromptArgument, PromptTemplate
from rkllm_mcp.tools.content import result_text
from rkllm_mcp.tools.session.paging import all_pages

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import ListPromptsResult

    from rkllm_mcp.tools.session.tokened import AnyConnection


async def list_prompts(client: Client, connection: AnyConnection) -> list[PromptTemplate]:
    """Return the server's prompts; raises what ``paging.all_pages`` raises."""
    if client.server_capabilities.prompts is None:
        return []

    async def fetch(cursor: str | None) -> ListPromptsResult:
        return await client.list_prompts(cursor=cursor)

    return [
        PromptTemplate(
            server=connection.spec.name,
            name=prompt.name,
            description=prompt.description or prompt.title or "",
            arguments=tuple(
                PromptArgument(argument.name, argument.description or "", bool(argument.required))
                for argument in prompt.arguments or ()
            ),
        )
        for prompt in await all_pages(fetch, lambda page: page.prompts, connection.notes.add, "prompts")
    ]


async def fill_prompt(client: Client, template: PromptTemplate, arguments: Mapping[str, str]) -> FilledPrompt:
    """Get a prompt; consecutive messages of one role are joined.

    Raises:
        MCPError: the server refused.
        ValidationError: the response is invalid.
    """
    result = await client.get_prompt(template.name, dict(arguments))
    turns: list[Message] = []
    for message in result.messages:
        block = message.content.model_dump(by_alias=True, exclude_none=True, mode="json")
        text = result_text({"content": [block]})
        if turns and turns[-1].role == message.role:
            text = f"{turns.pop().text}\n\n{text}"
        turns.append(Message(message.role, text))
    return FilledPrompt(template, tuple(turns))


def check_arguments(template: PromptTemplate, arguments: Mapping[str, str]) -> None:
    """Compare ``arguments`` with the prompt's declared arguments.

    Raises:
        ToolboxError: an argument is missing or unknown; the message names it.
    """
    known = [argument.name for argument in template.arguments]
    unknown = next((name for name in arguments if name not in known), None)
    if unknown is not None:
        raise ToolboxError(f"prompt '{template.name}' has no argument '{unknown}'; {_advice(template, unknown)}")
    missing = [a.name for a in template.arguments if a.required and not arguments.get(a.name)]
    if missing:
        given = " ".join(f"{name}=…" for name in missing)
        raise ToolboxError(f"prompt '{template.name}' needs {', '.join(missing)}; add {given}")


def closest(name: str, names: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` or the list of ``names``, to end an error message with."""
    names = list(dict.fromkeys(names))
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"there are {', '.join(names)}" if names else "there are none"


def _advice(template: PromptTemplate, unknown: str) -> str:
    names = [argument.name for argument in template.arguments]
    return closest(unknown, names) if names else "it takes none"
