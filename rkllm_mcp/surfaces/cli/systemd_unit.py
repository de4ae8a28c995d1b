"""The text of the systemd unit, from ``system_unit.service.txt`` or ``user_unit.service.txt``.

The board's devices are listed one by one; the rest of /dev, the capabilities and most system calls are closed. /home
and /tmp are hidden except for the folders that the service needs. Two things stay open: writable and executable memory,
which ctypes callbacks and tool servers with a JIT need, and the network, which tools use.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rkllm_mcp.surfaces.cli.config import filled_template

UNIT_NAME = "rkllm-mcp.service"
# What importing, connecting and closing may take beside what the configuration grants, seconds.
_MARGIN_S = 60


@dataclass(frozen=True)
class UnitOptions:
    """Settings of a unit."""

    program: Sequence[str]  # the words that start ``rkllm-mcp``
    config: Path  # the configuration file
    start_s: float  # time limit for loading the model, seconds
    drain_s: float  # time limit for running answers when the service stops, seconds
    devices: Sequence[str] = ()  # the device nodes that the NPU needs
    groups: Sequence[str] = ()  # groups that own them
    readable: Sequence[Path] = ()  # files and folders that the service reads, mainly those below /home
    writable: Sequence[Path] = ()  # folders that tools may change
    credentials: Sequence[tuple[str, Path]] = ()  # names, and the files that hold the secrets
    namespaces: bool = False  # tool servers run in a sandbox, which needs namespaces


def system_unit(wishes: UnitOptions) -> str:
    """The unit for the whole machine: a user that exists while it runs, and the hardening that root can grant."""
    return _unit("system_unit", wishes)


def user_unit(wishes: UnitOptions) -> str:
    """The unit for one person's own systemd, which can close less."""
    return _unit("user_unit", wishes)


def _unit(template: str, wishes: UnitOptions) -> str:
    """Return a template without its comments, and without the lines that are not needed."""
    calls = ["@system-service @mount"] if wishes.namespaces else ["@system-service", "~@privileged"]
    values = {
        "COMMAND": " ".join(map(_word, [*wishes.program, "--config", str(wishes.config), "serve"])),
        "START_S": str(round(wishes.start_s) + _MARGIN_S),
        "STOP_S": str(round(wishes.drain_s) + _MARGIN_S),
        "CREDENTIALS": _lines("LoadCredential", [f"{name}:{path}" for name, path in wishes.credentials]),
        "GROUPS": _lines("SupplementaryGroups", [" ".join(wishes.groups)] if wishes.groups else []),
        "DEVICES": _lines("DeviceAllow", [f"{device} rw" for device in wishes.devices]),
        "PATHS": _paths(wishes),
        "NAMESPACES": "user mnt pid ipc uts net cgroup" if wishes.namespaces else "yes",
        "SYSTEM_CALLS": _lines("SystemCallFilter", calls),
    }
    # Comments are for readers of the template; a value that is not needed is one, too.
    return re.sub(r"^#.*\n", "", filled_template(f"{template}.service", values), flags=re.MULTILINE)


def _lines(key: str, values: Sequence[str]) -> str:
    return "\n".join(f"{key}={value}" for value in values) or "# none"


def _paths(wishes: UnitOptions) -> str:
    hidden = [path for path in (*wishes.readable, *wishes.writable) if _is_hidden(path)]
    places = {
        "BindReadOnlyPaths": [path for path in hidden if path not in wishes.writable],
        "BindPaths": [path for path in wishes.writable if _is_hidden(path)],
        "ReadWritePaths": [path for path in wishes.writable if not _is_hidden(path)],
    }
    return "\n".join(_lines(key, [_word(str(path)) for path in paths]) for key, paths in places.items())


def _is_hidden(path: Path) -> bool:
    return any(path.is_relative_to(place) for place in ("/home", "/root", "/run/user", "/tmp", "/var/tmp"))  # noqa: S108


def _word(text: str) -> str:
    """A word as a unit writes it: quoted where it must be, and nothing in it expanded."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if any(character in " \t;'\"\\" for character in text) else escaped
