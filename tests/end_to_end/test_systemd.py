"""The installed unit under a real systemd: ready with its model, reloaded, restarted after a crash and a hang, gone."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Generator
from pathlib import Path

import httpx2
import pytest

from tests.support.booted import Booted, booted, missing
from tests.support.demo_app import TIME_SERVER, Demo, make_demo

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
UNIT = "rkllm-mcp.service"
# The unit's own waits a minute for a sign of life.
QUICK = "[Service]\nWatchdogSec=10\nRestartSec=100ms\n"
_READY_WITHIN_S = 60.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Installed:
    """The service as it was installed."""

    def __init__(self, machine: Booted, demo: Demo, port: int) -> None:
        self.machine = machine
        self.demo = demo
        self.url = f"http://127.0.0.1:{port}"

    def service(self, *words: str) -> str:
        """``rkllm-mcp service …``; what it printed."""
        done = self.machine.run(self.demo.command("service", *words), dict(self.demo.environment))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def main_pid(self) -> str:
        return self.machine.property(UNIT, "MainPID")

    def status(self) -> str:
        return self.machine.property(UNIT, "StatusText")

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait for a state that only systemd and the service decide about."""
        deadline = time.monotonic() + _READY_WITHIN_S
        while not reached():
            assert time.monotonic() < deadline, self.machine.systemctl("show", UNIT)

    def is_active_anew(self, pid: str) -> bool:
        """Whether another process than ``pid`` is ready."""
        return self.machine.property(UNIT, "ActiveState") == "active" and self.main_pid() not in {pid, "0"}


@pytest.fixture
def installed(tmp_path: Path) -> Generator[Installed, None, None]:
    port = free_port()
    demo = make_demo(tmp_path / "demo", [TIME_SERVER], extra=f"[service]\nport = {port}\n")
    with booted(tmp_path) as machine:
        dropin = (
            f"mkdir -p /etc/systemd/system/{UNIT}.d && printf '%s' '{QUICK}' >/etc/systemd/system/{UNIT}.d/quick.conf"
        )
        assert machine.run(["sh", "-c", dropin]).returncode == 0
        yield Installed(machine, demo, port)


def test_the_service_lives_under_systemd(installed: Installed) -> None:
    shown = installed.service("install")
    # Type=notify: install came back, so the model is loaded.
    assert "active" in shown
    assert httpx2.get(f"{installed.url}/readyz", timeout=60).status_code == 200
    question = {"message": "What time is it in London?", "stream": False, "approvals": "grant"}
    answer = httpx2.post(f"{installed.url}/v1/execute", json=question, timeout=60).json()
    assert answer["events"][-1]["reason"] == "answered"
    assert "London" in answer["text"]
    _check_confinement(installed)

    pid = installed.main_pid()
    worker = _worker(installed)
    _change(
        installed.demo, "[service]\n", '[agent]\nsystem_prompt = "Be brief."\n[service]\nmodel_aliases = ["anew"]\n'
    )
    installed.machine.systemctl("reload", UNIT)
    installed.until(lambda: "anew" in httpx2.get(f"{installed.url}/v1/models", timeout=60).text)
    assert installed.main_pid() == pid
    assert _worker(installed) == worker

    installed.machine.systemctl("kill", "--kill-who=main", "--signal=KILL", UNIT)
    installed.until(lambda: installed.is_active_anew(pid))
    kept = httpx2.get(f"{installed.url}/v1/conversations", timeout=60).json()["conversations"]
    assert [each["title"] for each in kept] == [question["message"]]

    pid = installed.main_pid()
    installed.machine.systemctl("kill", "--kill-who=main", "--signal=STOP", UNIT)
    installed.until(lambda: installed.is_active_anew(pid))
    assert int(installed.machine.property(UNIT, "NRestarts")) == 2

    installed.service("logs")
    installed.service("stop")
    assert installed.machine.property(UNIT, "ActiveState") == "inactive"
    installed.service("start")
    assert httpx2.get(f"{installed.url}/readyz", timeout=60).status_code == 200

    installed.service("uninstall")
    assert installed.machine.property(UNIT, "ActiveState") in {"inactive", "failed"}
    with pytest.raises(httpx2.TransportError):
        httpx2.get(f"{installed.url}/healthz", timeout=60)


@pytest.mark.parametrize("owner", ["root", "person"])
def test_a_private_configuration_is_read_by_the_service_alone(installed: Installed, owner: str) -> None:
    machine, config = installed.machine, installed.demo.config
    config.chmod(0o600)
    if owner == "person":
        home = str(installed.demo.folder)
        assert machine.run(["useradd", "--no-create-home", "--home-dir", home, owner]).returncode == 0
        assert machine.run(["chown", "-R", f"{owner}:", home]).returncode == 0
    installed.service("install")
    question = {"message": "What time is it in London?", "stream": False, "approvals": "grant"}
    assert httpx2.post(f"{installed.url}/v1/execute", json=question, timeout=60).status_code == 200
    runs_as = machine.run(["ps", "-o", "user:20=", "-p", installed.main_pid()]).stdout.strip()
    assert runs_as == ("rkllm-mcp" if owner == "root" else owner)
    assert config.stat().st_mode & 0o007 == 0

    # What root writes and restores is the service's to read again.
    added = machine.run(installed.demo.command("config", "add-key"), dict(installed.demo.environment))
    key = added.stdout.strip()
    machine.systemctl("reload", UNIT)
    installed.until(lambda: httpx2.get(f"{installed.url}/v1/models", timeout=60).status_code == 401)
    for words in (
        ["backup", "--system", "/run/b.tar.gz"],
        ["service", "stop"],
        ["restore", "--system", "--yes", "/run/b.tar.gz"],
    ):
        done = machine.run(installed.demo.command(*words), dict(installed.demo.environment))
        assert done.returncode == 0, done.stderr
    installed.service("start")
    authorized = {"Authorization": f"Bearer {key}"}
    httpx2.post(f"{installed.url}/v1/execute", json=question, headers=authorized, timeout=60)
    kept = httpx2.get(f"{installed.url}/v1/conversations", headers=authorized, timeout=60).json()["conversations"]
    assert [each["title"] for each in kept] == [question["message"]] * 2


def _check_confinement(installed: Installed) -> None:
    """The process is nobody's, may not become somebody, and sees nothing of /home."""
    pid = installed.main_pid()
    status = installed.machine.run(["cat", f"/proc/{pid}/status"]).stdout
    uid = re.search(r"^Uid:\s+(\d+)", status, re.MULTILINE)
    assert uid is not None
    assert int(uid[1]) >= 61184  # the range of DynamicUser
    for line in ("NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000"):
        assert line in status
    home = installed.machine.run(["ls", f"/proc/{pid}/root/home"])
    assert home.stdout == ""


def _worker(installed: Installed) -> str:
    """The process that owns the model."""
    processes = installed.machine.run(["ps", "-eo", "pid,args"]).stdout
    found = [line.split()[0] for line in processes.splitlines() if " -I -S " in line]
    assert len(found) == 1, processes
    return found[0]


def _change(demo: Demo, old: str, new: str) -> None:
    text = demo.config.read_text("utf-8")
    assert old in text
    demo.config.write_text(text.replace(old, new, 1), "utf-8")
