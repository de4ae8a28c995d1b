"""The services of this user that are running: where each listens, for which configuration, and the key of its owner.

    serve ─▶ services/PID.json in the state folder, locked while the process lives ─▶ chat, run and tools call

The lock says that the process lives: the system removes it with the process, however that ends, so neither an address
that another program has taken since nor a key is ever trusted without it. The key is valid for this process alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import json
import os
import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rkllm_base.folders import state_folder

if TYPE_CHECKING:
    from rkllm_mcp.config.sections import Config

_FOLDER = "services"
_OVERRIDE = "RKLLM_MCP_"
_PROBE_S = 2.0
# State of a listening socket in /proc/net/tcp.
_LISTENING = "0A"


@dataclass(frozen=True)
class RunningService:
    """A service of this user that runs."""

    address: str  # such as http://127.0.0.1:8080
    pid: int
    key: str  # of the owner
    source: str  # configuration file; empty without one
    changed_ns: int  # when that file was changed, as the service read it
    # Digests of the variables that change the configuration.
    overrides: Mapping[str, str]

    def is_for(self, config: Config, environment: Mapping[str, str] = os.environ) -> bool:
        """Return True if the service has this configuration; variables that only the service has make no difference."""
        return self.source == _file_of(config)[0] and overrides_of(environment).items() <= dict(self.overrides).items()

    def has_changed(self, config: Config) -> bool:
        """Return True if the configuration file was changed after the service read it."""
        return self.changed_ns != _file_of(config)[1]


def _file_of(config: Config) -> tuple[str, int]:
    """Return the configuration file and when it was changed; an empty text and 0 without one."""
    source = config.origin.source
    if source is None:
        return "", 0
    try:
        return str(source.absolute()), source.stat().st_mtime_ns
    except OSError:
        return str(source.absolute()), 0


def overrides_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that change a configuration, with digests of their values, which may be secrets."""
    return {
        name: hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()
        for name, value in environment.items()
        if value and (name == "MCP_ENABLED" or (name.startswith(_OVERRIDE) and "__" in name))
    }


@dataclass(eq=False, repr=False)
class ServiceRecord:
    """The record of the service in this process; ``announce`` keeps it while the service runs."""

    address: str
    config: Config  # in force
    key: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    _path: Path = field(default_factory=lambda: state_folder() / _FOLDER / f"{os.getpid()}.json")
    _descriptor: int | None = None

    @contextmanager
    def announce(self) -> Generator[None]:
        """Write the record and hold its lock in the block; without a writable state folder nothing is written."""
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Locked before it has its name, under which it would be read and removed without a lock.
            new = self._path.with_suffix(".new")
            new.unlink(missing_ok=True)
            self._descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            self.update(self.config)
            new.replace(self._path)
        try:
            yield
        finally:
            if self._descriptor is not None:
                with suppress(OSError):
                    self._path.unlink(missing_ok=True)
                os.close(self._descriptor)
                self._descriptor = None

    def update(self, config: Config) -> None:
        """Note the configuration that is in force."""
        self.config = config
        if self._descriptor is None:
            return
        overrides = overrides_of(os.environ)
        facts = RunningService(self.address, os.getpid(), self.key, *_file_of(config), overrides)
        content = json.dumps(asdict(facts)).encode()
        with suppress(OSError):
            os.pwrite(self._descriptor, content, 0)
            os.ftruncate(self._descriptor, len(content))


def running_services(state: Path | None = None) -> list[RunningService]:
    """Return the services of this user, or of a state folder, that run; records of others that ended are removed.

    The latest is the first.
    """
    services: list[tuple[int, RunningService]] = []
    folder = (state or state_folder()) / _FOLDER
    for path in folder.glob("*.json") if folder.is_dir() else ():
        with suppress(OSError, ValueError, TypeError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                services.append((os.fstat(file.fileno()).st_mtime_ns, RunningService(**json.loads(file.read()))))
            else:
                path.unlink(missing_ok=True)
    return [service for _, service in sorted(services, key=lambda entry: entry[0], reverse=True)]


def service_for(config: Config) -> RunningService | None:
    """Return the running service of this user with this configuration; None without one."""
    return next((service for service in running_services() if service.is_for(config)), None)


def is_served_by_another_user(address: str) -> bool:
    """Return True if a service that belongs to another user answers at an address of this machine."""
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or 0
    owners: set[int] = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text("ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    owners.add(int(fields[7]))
    if not owners or os.getuid() in owners:
        return False
    connection = http.client.HTTPConnection(host, port, timeout=_PROBE_S)
    try:
        connection.request("GET", "/readyz")
        answer = json.loads(connection.getresponse().read(10_000))
    except (OSError, ValueError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    # Its state, or why it takes no questions; see surfaces.http.board.
    return isinstance(answer, dict) and ("status" in answer or "error" in answer)
