"""The tools that come with the host, by name: tool definitions and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.tools.builtin.calculator import calculate
from rkllm_mcp.tools.builtin.clock import clock_of
from rkllm_mcp.tools.builtin.function import Function, LocalFunction, LocalToolError
from rkllm_mcp.tools.builtin.units import convert_units
from rkllm_mcp.tools.servers import DeviceReader


@dataclass(frozen=True)
class _Entry:
    """Definition of a built-in tool; ``make`` creates its function from a device reader."""

    description: str
    properties: Mapping[str, Any]
    required: tuple[str, ...]
    make: Callable[[DeviceReader | None], Function]


def _text(description: str) -> dict[str, str]:
    return {"type": "string", "description": description}


def _device_of(read_device: DeviceReader | None) -> Function:
    def device_status() -> str:
        lines = [f"{name}: {state}" for name, state in read_device()] if read_device else []
        if not lines:
            raise LocalToolError("This machine does not report its NPU, temperature or memory.")
        return "\n".join(lines)

    return device_status


_ENTRIES: Mapping[str, _Entry] = {
    "clock": _Entry(
        "The present date and time (現在の日時), here or in another time zone; or converts a time between zones.",
        {
            "timezone": _text("city, IANA name or offset: 東京, Europe/Paris, +09:00; this machine's if omitted"),
            "time": _text("a time to convert: 09:30 or 2026-11-21T09:30; now if omitted"),
            "from_timezone": _text("the zone of `time`; this machine's if omitted"),
        },
        (),
        lambda _: clock_of(),
    ),
    "calculator": _Entry(
        "Calculates an expression exactly (計算): + - * / ** ( ) sqrt sin log factorial pi, 15%.",
        {"expression": _text("such as (1980 + 420) * 1.1")},
        ("expression",),
        lambda _: calculate,
    ),
    "convert_units": _Entry(
        "Converts a quantity between units (単位換算): length, mass, temperature, area, volume, speed, time, data, "
        "energy, power, pressure; Japanese units such as 坪 and 升 too.",
        {
            "value": {"type": "number"},
            "from_unit": _text("such as km, lb, ℃, kWh, 坪"),
            "to_unit": _text("the unit that is wanted"),
        },
        ("value", "from_unit", "to_unit"),
        lambda _: convert_units,
    ),
    "device_status": _Entry(
        "How this device is (デバイスの状態): load of the NPU, temperature, free memory.", {}, (), _device_of
    ),
}
NAMES = tuple(_ENTRIES)


def own_tool(name: str, read_device: DeviceReader | None) -> LocalFunction | None:
    """Return the built-in tool of a name; None if the name is unknown.

    ``read_device`` returns readings of the board, or is None if they are not available.
    """
    entry = _ENTRIES.get(name)
    if entry is None:
        return None
    schema: dict[str, Any] = {"type": "object", "properties": dict(entry.properties)}
    if entry.required:
        schema["required"] = list(entry.required)
    tool = ToolSpec(name, entry.description, schema, read_only=True, destructive=False)
    return LocalFunction(tool, entry.make(read_device))
