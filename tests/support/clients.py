"""Programs that other people wrote for services like ours, in their own environment, and the service they meet.

``scripts/clients`` installs them once, pinned, into a folder that git does not see. A test that needs one that cannot
be had here is skipped by name.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.demo_app import Demo, PythonServer, make_demo
from tests.support.installed import installed

_STARTED_WITHIN_S = 60.0
_PROGRAM_TIMEOUT_S = 180.0


def client(name: str) -> Path:
    """A program of that environment, such as ``python``; skips the calling test where it cannot be had."""
    found = installed("clients")
    if not found.lines:
        pytest.skip(f"{name} of .clients is not here: {found.reason}")
    return Path(found.lines[0], name)


def run_python(program: Path, *arguments: str) -> Any:
    """Run a program with the Python of that environment; returns the JSON that it prints."""
    command = [client("python"), program, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_PROGRAM_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@dataclass
class Serving:
    """``rkllm-mcp serve`` in its own process.

    Args:
        url: where, without a path.
        said: the lines of its standard error so far.
    """

    url: str = ""
    said: list[str] = field(default_factory=list[str])
    ready: threading.Event = field(default_factory=threading.Event)

    def listen(self, lines: Any) -> None:
        """Read what it says, to its end; a service that nobody reads would wait."""
        for line in lines:
            self.said.append(line)
            if line.startswith("Serving at "):
                self.url = line.split(" ")[2].strip()
            if line.startswith("Ready"):
                self.ready.set()
        self.ready.set()


@contextmanager
def serving(demo: Demo) -> Generator[Serving, None, None]:
    """The service of a configuration, once its model is loaded; it has to end as it should."""
    with demo.started("serve", "--port", "0") as process:
        it = Serving()
        reader = threading.Thread(target=it.listen, args=(process.stderr,), daemon=True)
        reader.start()
        try:
            assert it.ready.wait(_STARTED_WITHIN_S), it.said
            assert process.poll() is None, it.said
            yield it
        finally:
            process.terminate()
            code = process.wait(_STARTED_WITHIN_S)
            reader.join(_STARTED_WITHIN_S)
        assert code == 0, it.said
        assert not [line for line in it.said if line.startswith("Traceback")], "".join(it.said)


def scripted_demo(folder: Path, model: Path, servers: Sequence[PythonServer] = (), extra: str = "") -> Demo:
    """A configuration with a scripted model in the demo's place."""
    return make_demo(folder, servers, path=model, extra=extra)
