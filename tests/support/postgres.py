"""A PostgreSQL server of the tests' own: in a folder that is gone afterwards, on its own socket."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

_PATIENCE_S = 60.0
_ROLE = "board"
_NUMBERS = count(1)


@dataclass
class PostgresServer:
    """A running server; ``folder`` has its data and its socket."""

    programs: Path
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        options = ["-c", "listen_addresses=", "-c", "fsync=off", "-k", str(self.folder)]
        command = [str(self.programs / "postgres"), "-D", str(self.folder / "data"), *options]
        self.process = subprocess.Popen(
            _without_rights(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        ready = [str(self.programs / "pg_isready"), "-q", "-h", str(self.folder)]
        until = time.monotonic() + _PATIENCE_S
        while subprocess.run(ready, check=False).returncode:
            assert time.monotonic() < until, "PostgreSQL does not start"
            # The postmaster.pid of a server that was killed may refuse the first attempt.
            if self.process.poll() is not None:
                self.start()
                return

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """End it and all of its processes as a power cut does."""
        if self.process is not None and self.is_running:
            pid = self.process.pid
            # Each of the others is in its own session, and could answer once more; stopped, it starts none.
            os.kill(pid, signal.SIGSTOP)
            for process in (pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split())):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self.process.wait(_PATIENCE_S)

    def new_database(self) -> str:
        """Return the address of an unused database, for a role that sees no other tenant's rows."""
        name = f"store{next(_NUMBERS)}"
        self.run(f"CREATE DATABASE {name} OWNER {_ROLE}")
        return f"postgresql://{_ROLE}@/{name}?host={self.folder}"

    def run(self, statement: str, database: str = "postgres") -> str:
        """Run a statement as the superuser; what it prints."""
        command = [
            shutil.which("psql") or "psql",
            "-qtAX",
            "-h",
            str(self.folder),
            "-U",
            "root",
            "-c",
            statement,
            database,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE_S)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@contextmanager
def postgres_server() -> Generator[PostgresServer, None, None]:
    """A server with an empty cluster; a skip where PostgreSQL or psycopg is not here."""
    programs = _programs()
    if programs is None or importlib.util.find_spec("psycopg_pool") is None:
        pytest.skip("PostgreSQL or psycopg is not here: sudo apt install postgresql; pip install 'rkllm-mcp[postgres]'")
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if os.getuid() == 0:
            user = _user()
            os.chown(folder, user.pw_uid, user.pw_gid)
        initdb = [str(programs / "initdb"), "-D", str(folder / "data"), "-U", "root", "-A", "trust", "--no-sync"]
        subprocess.run(
            _without_rights([*initdb, "--locale=C.UTF-8"]), check=True, capture_output=True, timeout=_PATIENCE_S
        )
        server = PostgresServer(programs, folder)
        server.start()
        try:
            server.run(f"CREATE ROLE {_ROLE} LOGIN")
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="session")
def postgres() -> Generator[PostgresServer, None, None]:
    """A server for all tests of a run."""
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def _mortal_server() -> Generator[PostgresServer, None, None]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def mortal(_mortal_server: PostgresServer) -> PostgresServer:
    """A running server that a test may end: none but the tests that do so have it."""
    if not _mortal_server.is_running:
        _mortal_server.start()
    return _mortal_server


def _programs() -> Path | None:
    """The folder of initdb and postgres: Debian has them outside of the path."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    return next((folder for folder in reversed(folders) if (folder / "initdb").is_file()), None)


def _user() -> pwd.struct_passwd:
    """A user without rights: PostgreSQL does not run as root."""
    users = {user.pw_name: user for user in pwd.getpwall()}
    return users.get("postgres") or users["nobody"]


def _without_rights(command: list[str]) -> list[str]:
    return command if os.getuid() else ["setpriv", f"--reuid={_user().pw_uid}", "--clear-groups", "--", *command]
