"""Entry point of the weather server on standard input and output: ``python -m mcp_servers.weather``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcp_servers.program import run_on_stdio
from mcp_servers.weather.settings import Clock, Settings, clock_from, settings_from

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from mcp_servers.weather.service import WeatherService


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until standard input ends; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="rkllm-mcp-weather",
        description="MCP server on stdio: weather in Japan from the Japan Meteorological Agency's public forecasts.",
        epilog="Environment: JMA_BASE_URL (another address), WEATHER_NOW (a fixed time, ISO 8601), XDG_CACHE_HOME,"
        " WEATHER_SAMPLE=1 (a dated sample of Tokyo where the agency cannot be reached).",
    )
    return run_on_stdio(parser, arguments, lambda: (settings_from(os.environ), clock_from(os.environ)), _create)


def _create(settings_and_clock: tuple[Settings, Clock]) -> MCPServer[WeatherService]:
    # Importing the SDK takes most of a second; --help and an invalid variable must not wait for it.
    from mcp_servers.weather.server import create_server

    return create_server(*settings_and_clock)


if __name__ == "__main__":
    sys.exit(main())
