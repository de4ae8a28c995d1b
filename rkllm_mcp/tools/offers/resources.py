"""Resources and resource templates of one server, and their content as text for the model.

A server that declares the capability but does not implement the method has an empty list.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rkllm_mcp.offers import Resource, ResourceContent, ResourceTemplate
from rkllm_mcp.tools.content import result_text
from rkllm_mcp.tools.session.paging import all_pages

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import ListResourcesResult, ListResourceTemplatesResult

    from rkllm_mcp.tools.session.tokened import AnyConnection

_TEXTUAL = ("text/", "application/json", "application/xml", "application/yaml", "application/x-yaml")


async def list_resources(client: Client, connection: AnyConnection) -> list[Resource]:
    """Return the server's resources; raises what ``paging.all_pages`` raises."""
    if client.server_capabilities.resources is None:
        return []

    async def fetch(cursor: str | None) -> ListResourcesResult:
        return await client.list_resources(cursor=cursor)

    listed = await all_pages(fetch, lambda page: page.resources, connection.notes.add, "resources")
    return [
        Resource(
            server=connection.spec.name,
            uri=str(resource.uri),
            name=resource.title or resource.name,
            description=resource.description or "",
            mime_type=resource.mime_type or "",
            size=resource.size,
        )
        for resource in listed
    ]


async def list_templates(client: Client, connection: AnyConnection) -> list[ResourceTemplate]:
    """Return the server's resource templates; raises what ``paging.all_pages`` raises."""
    if client.server_capabilities.resources is None:
        return []

    async def fetch(cursor: str | None) -> ListResourceTemplatesResult:
        return await client.list_resource_templates(cursor=cursor)

    listed = await all_pages(fetch, lambda page: page.resource_templates, connection.notes.add, "resource templates")
    return [
        ResourceTemplate(
            server=connection.spec.name,
            uri_template=template.uri_template,
            name=template.title or template.name,
            description=template.description or "",
            mime_type=template.mime_type or "",
        )
        for template in listed
    ]


async def read_resource(client: Client, server: str, uri: str, limit_chars: int) -> ResourceContent:
    """Read a resource; its text is truncated to ``limit_chars`` characters.

    Raises:
        MCPError: the server refused.
        ValidationError: the response is invalid.
    """
    result = await client.read_resource(uri)
    contents = tuple(content.model_dump(by_alias=True, exclude_none=True, mode="json") for content in result.contents)
    text = contents_text(contents)
    if rest := max(0, len(text) - limit_chars):
        text = f"{text[:limit_chars]}\n… truncated, {rest} more characters"
    return ResourceContent(server, uri, text, rest > 0, contents)


def contents_text(contents: Sequence[Mapping[str, Any]]) -> str:
    """Return the text for the model; several contents are separated by their URIs."""
    readable = [_decoded(content) for content in contents]
    if not readable:
        return "(empty)"
    if len(readable) == 1 and "text" in readable[0]:
        return result_text({"content": [{"type": "text", "text": readable[0]["text"]}]})
    return result_text({"content": [{"type": "resource", "resource": content} for content in readable]})


def _decoded(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add the decoded text to a content of a textual type that the server sent as a blob."""
    blob = content.get("blob")
    if "text" in content or not isinstance(blob, str) or not str(content.get("mimeType", "")).startswith(_TEXTUAL):
        return content
    try:
        return {**content, "text": base64.b64decode(blob, validate=True).decode("utf-8")}
    except (binascii.Error, UnicodeDecodeError):
        return content
