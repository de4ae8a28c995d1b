"""Offers of a tenant's servers other than tools: resources to attach, and questions that are prepared."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request

from rkllm_mcp.config.section import DocumentedModel
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.openai import count_text
from rkllm_mcp.surfaces.http.route import Route, RouteResponse, shown
from rkllm_mcp.surfaces.http.state import tenant_of


class ResourceShown(DocumentedModel):
    """A resource."""

    uri: str
    name: str
    server: str
    description: str
    mime_type: str
    size: int | None = Field(description="Bytes; null when the server does not say.")


class TemplateShown(DocumentedModel):
    """Resources by a pattern."""

    uri_template: str
    name: str
    server: str
    description: str
    mime_type: str


class Resources(DocumentedModel):
    """Resources of the servers."""

    resources: list[ResourceShown]
    templates: list[TemplateShown]


class ReadBody(bodies.RequestBody):
    """The resource to read."""

    uri: Annotated[str, Field(min_length=1)]
    """Its address on the server."""
    server: str | None = None
    """Whose; the only server that has it when not given."""


class Contents(DocumentedModel):
    """A resource as the server sent it."""

    server: str
    uri: str
    contents: list[dict[str, Any]] = Field(description="uri, and text or blob (base64).")
    text: str = Field(description="As a question that names the resource gives it to the model.")
    truncated: bool = Field(description="The text was cut off; see resource_chars in [agent].")
    tokens: int | None = Field(
        description="Tokens of its text in a question, estimated for several windows of text; null where a remote "
        "service answers."
    )


class ArgumentShown(DocumentedModel):
    """An argument of a prompt."""

    name: str
    description: str
    required: bool


class PromptShown(DocumentedModel):
    """A prepared question."""

    name: str
    server: str
    description: str
    arguments: list[ArgumentShown]


class Prompts(DocumentedModel):
    """The questions that servers have prepared."""

    prompts: list[PromptShown]


@Route("GET", "/v1/resources", answers=(RouteResponse(Resources),))
async def resources(request: Request) -> dict[str, Any]:
    """List what servers let one read."""
    listed_resources, templates = await tenant_of(request).app.toolbox.offerings.readable()
    return {
        "resources": [shown(ResourceShown, resource) for resource in listed_resources],
        "templates": [shown(TemplateShown, template) for template in templates],
    }


@Route("GET", "/v1/resources/read", query=ReadBody, answers=(RouteResponse(Contents),), problems=(404, 502))
async def read(request: Request) -> Contents:
    """Read a resource."""
    wish = bodies.query(request, ReadBody)
    reference = wish.uri if wish.server is None else f"{wish.server}:{wish.uri}"
    app = tenant_of(request).app
    content = await app.toolbox.offerings.read_resource(reference, app.config.agent.resource_chars)
    return Contents(
        server=content.server,
        uri=content.uri,
        contents=[dict(content_part) for content_part in content.contents],
        text=content.text,
        truncated=content.truncated,
        tokens=await count_text(request, content.text),
    )


@Route("GET", "/v1/prompts", answers=(RouteResponse(Prompts),))
async def prompts(request: Request) -> dict[str, Any]:
    """List prompts of the servers."""
    prompt_list = await tenant_of(request).app.toolbox.offerings.prompts()
    return {
        "prompts": [shown(PromptShown, prompt, arguments=list(map(asdict, prompt.arguments))) for prompt in prompt_list]
    }
