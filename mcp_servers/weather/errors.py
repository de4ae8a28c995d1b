"""Errors of the weather tools; ``errors.json`` has their texts.

A small model reads these messages and passes them on, so each one is in Japanese and English and ends with the next
step for the user.
"""

from __future__ import annotations

from dataclasses import dataclass

from mcp_servers.errors import BilingualError
from mcp_servers.program import read_texts


class WeatherError(BilingualError):
    """An error that a tool returns instead of the weather."""

    catalog = read_texts(__file__, "errors.json")


@dataclass(eq=False)
class AgencyUnreachableError(WeatherError):
    """The agency's site does not answer."""

    host: str  # contacted host
    reason: str  # technical cause


@dataclass(eq=False)
class AgencyUnreadableError(WeatherError):
    """The agency's document is not in the expected format."""

    document: str  # file name
    reason: str  # defect of the document


@dataclass(eq=False)
class OldForecastError(WeatherError):
    """The forecast does not cover today."""

    area: str  # forecast area
    report_time: str  # publication time of the available forecast
    is_stale: bool  # the agency could not be reached for a newer one
