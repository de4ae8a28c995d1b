"""``rkllm-mcp serve`` in its own process, read line by line."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx2

from tests.support.demo_app import Demo


@dataclass
class Started:
    """A service in its own process.

    Attributes:
        lines: its standard error so far.
    """

    process: subprocess.Popen[str]
    url: str = ""
    lines: list[str] = field(default_factory=list[str])

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def line(self) -> str:
        """The next line on standard error."""
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        assert line, "".join(self.lines)
        self.lines.append(line)
        return line.rstrip("\n")

    def until(self, part: str) -> str:
        """The next line with ``part`` in it."""
        while part not in (line := self.line()):
            pass
        return line

    def await_servers(self, *names: str) -> None:
        """Wait until these servers are ready; some may have been before the model was."""
        for name in names:
            part = f"'{name}' is ready"
            if not any(part in line for line in self.lines):
                self.until(part)

    def get(self, path: str, **headers: str) -> httpx2.Response:
        """One answer."""
        return httpx2.get(f"{self.url}{path}", headers=headers, timeout=120)


@contextmanager
def started(demo: Demo, *, is_ready: bool = True) -> Generator[Started, None, None]:
    """Start the service of a configuration, and wait for its address and, unless told otherwise, for its model."""
    with demo.started("serve", "--port", "0") as process:
        service = Started(process)
        service.url = service.until("Serving at ").split()[2]
        if is_ready:
            service.until("Ready")
        yield service
