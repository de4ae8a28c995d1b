"""Starts the cloud server on standard input and output: ``python -m mcp_servers.cloud``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from mcp_servers.cloud.settings import EXPLANATION, NO_KEY, settings_from, version


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until standard input ends.

    Args:
        arguments: instead of the command line's.

    Returns:
        The exit code: 0 when the client left, 2 when a variable of the environment is unusable, 130 when interrupted.
    """
    parser = argparse.ArgumentParser(
        prog="rkllm-mcp-cloud",
        description="MCP server on stdio: asks OpenAI, Gemini or Anthropic. What is asked leaves this machine.",
        epilog=EXPLANATION,
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
    # The SDK takes most of a second to import; --help and a wrong variable should not wait for it.
    from mcp_servers.cloud.server import create_server

    try:
        create_server(settings).run("stdio")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
