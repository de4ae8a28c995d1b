"""Entry point of the cloud server on standard input and output: ``python -m mcp_servers.cloud``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcp_servers.cloud.settings import ENVIRONMENT_HELP, NO_KEY, Settings, settings_from
from mcp_servers.program import run_on_stdio

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from mcp_servers.cloud.client import CloudClient


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until standard input ends; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="rkllm-mcp-cloud",
        description="MCP server on stdio: asks OpenAI, Gemini or Anthropic. Questions leave this machine.",
        epilog=ENVIRONMENT_HELP,
    )
    return run_on_stdio(parser, arguments, lambda: settings_from(os.environ), _create)


def _create(settings: Settings) -> MCPServer[CloudClient]:
    if not settings.vendors:
        print(NO_KEY, file=sys.stderr)
    # Importing the SDK takes most of a second; --help and an invalid variable must not wait for it.
    from mcp_servers.cloud.server import create_server

    return create_server(settings)


if __name__ == "__main__":
    sys.exit(main())
