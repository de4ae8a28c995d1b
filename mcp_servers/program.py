"""Parts that the programs of the servers share: version, addresses, the program on standard input and output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from mcp.server import MCPServer

T = TypeVar("T")

# Key of ``_meta`` for texts by language: of a tool ``title``, ``description`` and ``parameters``; of a result ``text``.
TEXTS = "rkllm-mcp/texts"
# Key of ``_meta`` for the argument of a tool that takes the user's own words.
QUESTION_ARGUMENT = "rkllm-mcp/question"
# Key of ``_meta`` of a tool that only prepares calls of the server's other tools.
HELPER = "rkllm-mcp/helper"
# Key of ``_meta`` with the optional arguments of a tool that no model needs to read.
TUNING = "rkllm-mcp/tuning"
# Key of ``_meta`` that says of a result that its text answers the question as it is.
ANSWER = "rkllm-mcp/answer"
# Key of ``_meta`` for an error: ``kind``, ``what`` and ``suggestions``. Not structured content: clients hold that of an
# error to the tool's output schema as well (TypeScript SDK 1.32), and then lose the message.
ERROR = "rkllm-mcp/error"

_CLOSE_S = 1.0


def version() -> str:
    """Return the version of the installed distribution; 0 when run from a source folder."""
    try:
        return metadata.version("rkllm-mcp")
    except metadata.PackageNotFoundError:
        return "0"


def http_address(environ: Mapping[str, str], name: str, default: str) -> str:
    """Return the address in a variable, without a trailing slash; raise ValueError if it is not one of HTTP."""
    value = environ.get(name, "").strip().rstrip("/") or default
    address = urlsplit(value)
    if address.scheme not in {"http", "https"} or not address.netloc:
        raise ValueError(f"{name} is {value!r}: give an address like {default}, or leave it unset.")
    return value


def redact_url(url: str) -> str:
    """Return a URL for messages, without user, password and query."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "the address"
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"[:300]


async def close_in_time(aclose: Callable[[], Awaitable[object]]) -> None:
    """Close connections, for a second at the most: closing one of TLS exchanges messages with its server."""
    import anyio

    with anyio.move_on_after(_CLOSE_S, shield=True):
        await aclose()


def run_on_stdio(
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    read_settings: Callable[[], T],
    create_server: Callable[[T], MCPServer[Any]],
) -> int:
    """Serve until standard input ends.

    Returns:
        The exit code: 0 after the client disconnected, 2 for an invalid environment variable, 130 when interrupted.
    """
    parser.add_argument("--version", action="version", version=version())
    parser.parse_args(arguments)
    try:
        settings = read_settings()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        create_server(settings).run("stdio")
    except KeyboardInterrupt:
        return 130
    return 0


def read_texts(module: str, name: str = "texts.json") -> Mapping[str, Mapping[str, Any]]:
    """Return a table of texts next to a module (its ``__file__``): of its tools by name and language, or of errors."""
    return json.loads(Path(module).with_name(name).read_text("utf-8"))


def without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of arguments without pydantic's titles, which repeat the names."""
    properties = cast("dict[str, dict[str, Any]]", schema["properties"])
    bare = {name: {key: value for key, value in part.items() if key != "title"} for name, part in properties.items()}
    return {key: value for key, value in schema.items() if key != "title"} | {"properties": bare}
