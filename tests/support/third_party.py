"""Other people's MCP servers, really installed: where their programs are, and those that are reached by an address.

``scripts/third_party`` installs them once, pinned, into a folder that git does not see. A test that needs one that
cannot be had here is skipped by name.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.installed import installed


def has_program(name: str) -> bool:
    """Whether a server is here."""
    return _found(name) is not None


def program(name: str) -> Path:
    """The program of a server, such as ``mcp-server-filesystem``; skips the calling test where it cannot be had."""
    found = _found(name)
    if found is None:
        reason = installed("third_party").reason or "scripts/third_party installs no such program"
        pytest.skip(f"{name} is not here: {reason}")
    return Path(found)


def _found(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join(installed("third_party").lines))


def server(name: str, **keys: str | list[str] | dict[str, str]) -> str:
    """A ``[[servers]]`` of a configuration with these ``keys``."""
    lines = ["", "[[servers]]", f"name = {json.dumps(name)}"]
    return "\n".join([*lines, *(f"{key} = {_toml(value)}" for key, value in keys.items())]) + "\n"


def _toml(value: str | list[str] | dict[str, str]) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {json.dumps(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value)


@contextmanager
def everything_behind(transport: str) -> Generator[str, None, None]:
    """The everything server over ``streamableHttp`` or ``sse``; yields its address."""
    # It cannot choose a port by itself and say which.
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [program("mcp-server-everything"), transport]
    env = {**os.environ, "PORT": str(port)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        said: list[str] = []
        for line in process.stderr:
            said.append(line)
            if f"on port {port}" in line:
                break
        # It writes a line for every message, and waits where nobody reads.
        reader = threading.Thread(target=deque, args=(process.stderr, 0))
        reader.start()
        try:
            assert f"on port {port}" in "".join(said), said
            yield f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}"
        finally:
            process.kill()
            reader.join()
