"""Resources and prompts as lines for a person and as JSON for a program."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from rkllm_mcp.errors import UsageError
from rkllm_mcp.offers import PromptTemplate, Resource, ResourceTemplate
from rkllm_mcp.surfaces.table import table

_SHOWN_CHARS = 80


def resource_table(
    resources: Sequence[Resource], templates: Sequence[ResourceTemplate], columns: int | None = None
) -> str:
    """Resources, then templates of them, each as it is named behind ``@``; empty when there are none."""
    rows = [(each.reference, each.mime_type, _size(each.size), _about(each)) for each in resources]
    rows += [(f"{each.server}:{each.uri_template}", each.mime_type, "", _about(each)) for each in templates]
    return table(("RESOURCE", "TYPE", "SIZE", "DESCRIPTION"), rows, columns)


def prompt_table(prompts: Sequence[PromptTemplate], columns: int | None = None) -> str:
    """Prompts with their arguments, those in brackets that may be left out; empty when there are none."""
    rows = [(each.reference, _arguments(each), _first_line(each.description)) for each in prompts]
    return table(("PROMPT", "ARGUMENTS", "DESCRIPTION"), rows, columns)


def resource_dict(resource: Resource) -> dict[str, Any]:
    """A resource for a program."""
    return {
        "server": resource.server,
        "uri": resource.uri,
        "name": resource.name,
        "description": resource.description,
        "mime_type": resource.mime_type,
        "size": resource.size,
    }


def template_dict(template: ResourceTemplate) -> dict[str, Any]:
    """A template of resources for a program."""
    return {
        "server": template.server,
        "uri_template": template.uri_template,
        "name": template.name,
        "description": template.description,
        "mime_type": template.mime_type,
    }


def prompt_dict(prompt: PromptTemplate) -> dict[str, Any]:
    """A prompt for a program."""
    arguments = [
        {"name": each.name, "description": each.description, "required": each.required} for each in prompt.arguments
    ]
    return {
        "server": prompt.server,
        "name": prompt.name,
        "description": prompt.description,
        "arguments": arguments,
    }


def read_pairs(words: Sequence[str]) -> dict[str, str]:
    """``key=value`` words as a table.

    Raises:
        UsageError: a word is none.
    """
    pairs: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageError(f"{word!r} is no argument; write NAME=VALUE, in quotes where there are spaces")
        pairs[key] = value
    return pairs


def split_words(line: str) -> list[str]:
    """A line as words, quotes as in a shell.

    Raises:
        UsageError: a quote is not closed.
    """
    try:
        return shlex.split(line)
    except ValueError:
        raise UsageError("a quote is not closed; write NAME='two words'") from None


def _about(each: Resource | ResourceTemplate) -> str:
    return _first_line(each.description or each.name)


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0][:_SHOWN_CHARS]


def _size(size: int | None) -> str:
    return "" if size is None else f"{size} bytes"


def _arguments(prompt: PromptTemplate) -> str:
    return " ".join(each.name if each.required else f"[{each.name}]" for each in prompt.arguments)
