"""JSON Schema of the configuration for editors, and the commented example that ``config init`` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rkllm_mcp
from rkllm_mcp.config.loading import FILE_NAME
from rkllm_mcp.config.sections import Sections


def configuration_schema() -> dict[str, Any]:
    """Return the JSON Schema of a configuration file."""
    schema = Sections.model_json_schema()
    # Entries of other hosts are accepted; their keys are not described here.
    schema["properties"]["mcpServers"] = {
        "type": "object",
        "description": "Servers as Claude Desktop and other hosts write them.",
        "additionalProperties": {"type": "object"},
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": FILE_NAME}


def example_configuration() -> str:
    """Return the commented example configuration."""
    package = Path(rkllm_mcp.__file__).parent
    # A source tree has it at its root; an installed package contains it.
    places = (package.parent / FILE_NAME, package / f"_{FILE_NAME}")
    return next(place for place in places if place.is_file()).read_text("utf-8")
