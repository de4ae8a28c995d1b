"""Environment variables -> where the agency is, where answers are kept, and what time it is.

``JMA_BASE_URL`` points the server at another address than the agency's, ``WEATHER_NOW`` (ISO 8601 with offset) fixes
the clock: both are for tests and demonstrations. Answers are kept under ``$XDG_CACHE_HOME/rkllm-mcp/weather``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

Clock = Callable[[], datetime]

AGENCY_URL = "https://www.jma.go.jp"


@dataclass(frozen=True)
class Settings:
    """How the agency is asked.

    Args:
        base_url: scheme and host, without a slash at the end.
        cache_folder: where documents are kept between runs; None keeps them in memory alone.
        connect_timeout_s: for name lookup, connection and TLS; short, so that a closed network is noticed at once.
        read_timeout_s: between two pieces of an answer.
        total_timeout_s: for one document with all its tries.
        tries: requests for one document, where a further one can help.
        pause_s: between tries.
    """

    base_url: str = AGENCY_URL
    cache_folder: Path | None = None
    connect_timeout_s: float = 3.0
    read_timeout_s: float = 4.0
    total_timeout_s: float = 5.0
    tries: int = 3
    pause_s: float = 0.5

    @property
    def host(self) -> str:
        """The host asked, for messages."""
        return urlsplit(self.base_url).netloc

    @property
    def user_agent(self) -> str:
        """Who we are; the agency's operators can tell our requests from others'."""
        return f"rkllm-mcp-weather/{version()}"


def version() -> str:
    """The version of the distribution this program came with; 0 when it runs from a bare folder."""
    try:
        return metadata.version("rkllm-mcp")
    except metadata.PackageNotFoundError:
        return "0"


def settings_from(environ: Mapping[str, str]) -> Settings:
    """The settings that the environment asks for.

    Raises:
        ValueError: when ``JMA_BASE_URL`` is not an http address.
    """
    base_url = environ.get("JMA_BASE_URL", "").rstrip("/") or AGENCY_URL
    address = urlsplit(base_url)
    if address.scheme not in {"http", "https"} or not address.netloc:
        raise ValueError(f"JMA_BASE_URL is {base_url!r}: give an address like {AGENCY_URL}, or leave it unset.")
    return Settings(base_url=base_url, cache_folder=_cache_folder(environ))


def _cache_folder(environ: Mapping[str, str]) -> Path | None:
    # The XDG specification tells to ignore a relative path. A stdio server is often started without the variable.
    given = Path(environ.get("XDG_CACHE_HOME", ""))
    home = environ.get("HOME", "")
    base = given if given.is_absolute() else Path(home) / ".cache" if home else None
    return base / "rkllm-mcp" / "weather" if base else None


def clock_from(environ: Mapping[str, str]) -> Clock:
    """The clock: real time, or the fixed time that ``WEATHER_NOW`` names.

    Raises:
        ValueError: when ``WEATHER_NOW`` is not a time with an offset.
    """
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
