"""A server that looks around on its machine and tells what it can see and do, with nothing but the standard library."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from tests.support.mcp_servers.tiny import Arguments, Handler, TinyServer, tool


def _path(arguments: Arguments) -> Path:
    return Path(str(arguments["path"])).expanduser()


def _read(arguments: Arguments) -> str:
    return _path(arguments).read_text(encoding="utf-8")


def _write(arguments: Arguments) -> str:
    _path(arguments).write_text("here", encoding="utf-8")
    return "written"


def _list(arguments: Arguments) -> str:
    return ",".join(sorted(path.name for path in _path(arguments).iterdir())) or " "


def _processes(_: Arguments) -> str:
    lines = (path.read_bytes().replace(b"\0", b" ").decode() for path in Path("/proc").glob("[0-9]*/cmdline"))
    return ",".join(lines)


def _connect(arguments: Arguments) -> str:
    with socket.create_connection(("127.0.0.1", arguments["port"]), timeout=10):
        return "connected"


def _capabilities(_: Arguments) -> str:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff"))


ACTIONS: dict[str, Callable[[Arguments], str]] = {
    "read": _read,
    "write": _write,
    "list": _list,
    "processes": _processes,
    "connect": _connect,
    "capabilities": _capabilities,
}


def _handler(action: Callable[[Arguments], str]) -> Handler:
    def handle(_: TinyServer, arguments: Arguments) -> str:
        try:
            return action(arguments)
        except OSError as error:
            return str(error)

    return handle


if __name__ == "__main__":
    TinyServer([tool(name) for name in ACTIONS], {name: _handler(action) for name, action in ACTIONS.items()}).run()
