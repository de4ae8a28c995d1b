"""The configuration described: its JSON Schema for editors, and the commented example that ``config init`` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rkllm_mcp
from rkllm_mcp.config.loading import FILE_NAME
from rkllm_mcp.config.sections import Sections


def configuration_schema() -> dict[str, Any]:
    """The JSON Schema of a configuration file."""
    schema = Sections.model_json_schema()
    # The reader takes other hosts' servers as they are; their keys are theirs to describe.
    schema["properties"]["mcpServers"] = {
        "type": "object",
        "description": "Servers as Claude Desktop and other hosts write them.",
        "additionalProperties": {"type": "object"},
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": FILE_NAME}


def example_configuration() -> str:
    """The commented configuration that works as it stands."""
    package = Path(rkllm_mcp.__file__).parent
    # A source tree keeps it at its root; an installed package carries it inside.
    places = (package.parent / FILE_NAME, package / f"_{FILE_NAME}")
    return next(place for place in places if place.is_file()).read_text("utf-8")
