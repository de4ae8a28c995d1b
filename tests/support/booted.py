"""A real systemd as the first process of namespaces of its own: what a unit meets on a board, next to the machine.

Processes, /run, /var/lib, /var/cache and all that is written below /etc are its own and gone with it; the rest of the
file system and the network are the machine's. It takes root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SYSTEMD = Path("/usr/lib/systemd/systemd")
# The machine's units are not there: those that a boot begins with would tidy up the real /tmp and set the real kernel.
_OWN = ("/run", "/usr/lib/systemd/system", "/var/lib", "/var/cache")
_TARGETS = ("sysinit", "basic", "multi-user", "shutdown", "test")
_SCRIPT = """set -e
for folder in {folders}; do mount -t tmpfs tmpfs "$folder"; done
mount -t proc proc /proc
mkdir /run/etc /run/etc.work
mount -t overlay -o lowerdir=/etc,upperdir=/run/etc,workdir=/run/etc.work overlay /etc
mount -t tmpfs tmpfs /etc/systemd/system
mkdir -p /run/systemd/system
for target in {targets}; do
    printf '[Unit]\\nDefaultDependencies=no\\n' >"/usr/lib/systemd/system/$target.target"
done
# systemd makes a service's credentials in namespaces of its own, and shows them by propagation.
mount --make-rshared /
export container=other
exec {systemd} --system --unit=test.target --log-target=null --show-status=0
"""
_STARTED_WITHIN_S = 60.0
_LIMIT_S = 120


def missing() -> str:
    """What is not here that booting needs; empty when all is."""
    if os.geteuid() != 0:
        return "only root can boot a systemd of its own"
    if not SYSTEMD.exists():
        return "systemd is not here"
    absent = [name for name in ("unshare", "nsenter", "systemctl") if shutil.which(name) is None]
    return f"{absent[0]} is not here" if absent else _refused()


def _refused() -> str:
    probe = ["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/run"]
    done = subprocess.run(probe, check=False, capture_output=True, text=True, timeout=60)
    return "" if done.returncode == 0 else f"namespaces are refused here: {done.stderr.strip()}"


@dataclass(frozen=True)
class Booted:
    """The running systemd.

    Args:
        pid: its first process, as the machine sees it.
    """

    pid: int

    def run(
        self, command: Sequence[str], environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside."""
        inside = ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--", *command]
        return subprocess.run(
            inside, check=False, capture_output=True, text=True, timeout=_LIMIT_S, env=environment, cwd="/"
        )

    def systemctl(self, *words: str) -> str:
        """What systemctl says."""
        done = self.run(["systemctl", *words])
        assert done.returncode == 0, done.stderr
        return done.stdout

    def property(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.systemctl("show", "--property", name, "--value", unit).strip()


@contextmanager
def booted(folder: Path) -> Generator[Booted, None, None]:
    """Boot it, and kill everything in it at the end."""
    script = folder / "boot.sh"
    text = _SCRIPT.format(folders=" ".join(_OWN), targets=" ".join(_TARGETS), systemd=SYSTEMD)
    script.write_text(text, "utf-8")
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", str(script)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as unsharing:
        try:
            yield Booted(_first_process(unsharing))
        finally:
            unsharing.kill()


def _first_process(unsharing: subprocess.Popen[str]) -> int:
    """The pid of systemd once it answers."""
    children = Path(f"/proc/{unsharing.pid}/task/{unsharing.pid}/children")
    deadline = time.monotonic() + _STARTED_WITHIN_S
    while time.monotonic() < deadline and unsharing.poll() is None:
        first = children.read_text("ascii").split()
        if first:
            machine = Booted(int(first[0]))
            if machine.run(["systemctl", "is-system-running", "--wait"]).stdout.strip() in {"running", "degraded"}:
                return machine.pid
    unsharing.kill()
    raise AssertionError(f"systemd did not start: {unsharing.stderr.read() if unsharing.stderr else ''}")
