"""Settings from environment variables: the agency's address, the cache folder and the clock.

``JMA_BASE_URL`` replaces the agency's address, ``WEATHER_NOW`` (ISO 8601 with offset) fixes the clock, and
``WEATHER_SAMPLE=1`` answers from a dated sample where the agency cannot be reached; all are for tests and
demonstrations. Documents are cached under ``$XDG_CACHE_HOME/rkllm-mcp/weather``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from mcp_servers.program import http_address
from rkllm_base.folders import user_folder

Clock = Callable[[], datetime]

AGENCY_URL = "https://www.jma.go.jp"


@dataclass(frozen=True)
class Settings:
    """Address, cache folder and limits of the requests."""

    base_url: str = AGENCY_URL  # scheme and host, without a trailing slash
    cache_folder: Path | None = None  # None caches in memory only
    # name lookup, connection and TLS; short, so that a missing network is reported quickly
    connect_timeout_s: float = 3.0
    read_timeout_s: float = 4.0  # between two chunks of a response
    total_timeout_s: float = 5.0  # one document with all retries
    tries: int = 3  # requests for one document
    pause_s: float = 0.5  # between tries
    has_sample: bool = False  # answer from the sample that ships with the server where the agency cannot be reached


def settings_from(environ: Mapping[str, str]) -> Settings:
    """Read the settings from the environment; raise ValueError if ``JMA_BASE_URL`` is not HTTP address."""
    base_url = http_address(environ, "JMA_BASE_URL", AGENCY_URL)
    has_sample = environ.get("WEATHER_SAMPLE") == "1"
    # A stdio server is often started without either.
    has_folder = environ.get("HOME") or Path(environ.get("XDG_CACHE_HOME", "")).is_absolute()
    return Settings(
        base_url=base_url,
        cache_folder=user_folder("cache", environ) / "weather" if has_folder else None,
        has_sample=has_sample,
    )


def clock_from(environ: Mapping[str, str]) -> Clock:
    """Return the system clock, or one fixed at ``WEATHER_NOW``; raise ValueError for a time without offset."""
    fixed = environ.get("WEATHER_NOW", "")
    if not fixed:
        return lambda: datetime.now(timezone.utc)
    try:
        now = datetime.fromisoformat(fixed.replace("Z", "+00:00"))
    except ValueError:
        now = None
    if now is None or now.tzinfo is None:
        raise ValueError(f"WEATHER_NOW is {fixed!r}: give a time with its offset, like 2026-11-21T18:00:00+09:00.")
    return lambda: now
