"""The agency's small constant tables -> under which codes a forecast area is found in its office's file."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import BaseModel, TypeAdapter

from mcp_servers.weather.forecast import AreaCodes


class _StationsOfArea(BaseModel):
    class10: str
    amedas: list[str]


class _WeekStation(BaseModel):
    week: str
    amedas: str


_STATIONS: TypeAdapter[dict[str, list[_StationsOfArea]]] = TypeAdapter(dict[str, list[_StationsOfArea]])
_WEEK_STATIONS: TypeAdapter[dict[str, list[_WeekStation]]] = TypeAdapter(dict[str, list[_WeekStation]])
_WEEK_AREAS: TypeAdapter[dict[str, list[str]]] = TypeAdapter(dict[str, list[str]])


def read_stations(document: object) -> dict[str, list[str]]:
    """forecast_area.json: the temperature stations of each class10, the main one first."""
    return {row.class10: row.amedas for rows in _STATIONS.validate_python(document).values() for row in rows}


def read_week_stations(document: object) -> dict[str, str]:
    """week_area.json: the temperature station of each area of the week's forecast."""
    return {row.week: row.amedas for rows in _WEEK_STATIONS.validate_python(document).values() for row in rows}


def read_week_areas(document: object) -> dict[str, list[str]]:
    """week_area05.json: the areas of the week's forecast that contain each class10, the smallest first.

    Which of them a file uses changes with the season, so all are tried.
    """
    return {class10: week_areas[::-1] for class10, week_areas in _WEEK_AREAS.validate_python(document).items()}


@dataclass(frozen=True)
class Tables:
    """The three tables together; an empty one only costs what it tells."""

    stations: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    week_stations: dict[str, str] = field(default_factory=dict[str, str])
    week_areas: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def codes_of(self, class10: str, *, near: str, station_names: dict[str, str]) -> AreaCodes:
        """The codes of one forecast area.

        Args:
            class10: the area.
            near: bare name of the municipality asked for; a station of that name comes first (郡山 has its own).
            station_names: names of the stations in the office's file.
        """
        stations = sorted(self.stations.get(class10, ()), key=lambda code: station_names.get(code) != near)
        return AreaCodes(class10, tuple(stations), tuple(self.week_areas.get(class10, ())), self.week_stations)
