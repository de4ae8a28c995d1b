"""Entry point of the weather server on standard input and output: ``python -m mcp_servers.weather``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from mcp_servers.weather.settings import clock_from, settings_from, version


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until standard input ends.

    Returns:
        The exit code: 0 after the client disconnected, 2 for an invalid environment variable, 130 when interrupted.
    """
    parser = argparse.ArgumentParser(
        prog="rkllm-mcp-weather",
        description="MCP server on stdio: weather in Japan from the Japan Meteorological Agency's public forecasts.",
        epilog="Environment: JMA_BASE_URL (another address), WEATHER_NOW (a fixed time, ISO 8601), XDG_CACHE_HOME,"
        " WEATHER_SAMPLE=1 (a dated sample of Tokyo where the agency cannot be reached).",
    )
    parser.add_argument("--version", action="version", version=version())
    parser.parse_args(arguments)
    try:
        settings, clock = settings_from(os.environ), clock_from(os.environ)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    # Importing the SDK takes most of a second; --help and an invalid variable must not wait for it.
    from mcp_servers.weather.server import create_server

    try:
        create_server(settings, clock).run("stdio")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
