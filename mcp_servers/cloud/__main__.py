"""Entry point of the cloud server on standard input and output: ``python -m mcp_servers.cloud``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from mcp_servers.cloud.settings import ENVIRONMENT_HELP, NO_KEY, settings_from, version


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until standard input ends.

    Returns:
        The exit code: 0 after the client disconnected, 2 for an invalid environment variable, 130 when interrupted.
    """
    parser = argparse.ArgumentParser(
        prog="rkllm-mcp-cloud",
        description="MCP server on stdio: asks OpenAI, Gemini or Anthropic. Questions leave this machine.",
        epilog=ENVIRONMENT_HELP,
    )
    parser.add_argument("--version", action="version", version=version())
    parser.parse_args(arguments)
    try:
        settings = settings_from(os.environ)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if not settings.vendors:
        print(NO_KEY, file=sys.stderr)
    # Importing the SDK takes most of a second; --help and an invalid variable must not wait for it.
    from mcp_servers.cloud.server import create_server

    try:
        create_server(settings).run("stdio")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
