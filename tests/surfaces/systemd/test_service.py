"""``rkllm-mcp service`` with a systemctl that keeps notes of what it was told, in place of systemd itself."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.demo_app import Demo, make_demo
from tests.support.shared import REPOSITORY

SYSTEMCTL = """#!/bin/sh
if [ "$*" = is-system-running ]; then [ ! -e "$OFFLINE" ] || echo offline; exit; fi
echo "$*" >>"$NOTES"
case " $* " in
    *" show "*) cat "$SHOWN" ;;
    *" restart "* | *" start "*) [ ! -e "$BROKEN" ] || { echo "Job for rkllm-mcp.service failed." >&2; exit 1; } ;;
esac
"""
JOURNALCTL = """#!/bin/sh
case " $* " in
    *" --since "*) echo "Starting …"; echo "Error: the file cannot be read"; echo "Failed." ;;
    *) echo "journal $*" ;;
esac
"""
LOGINCTL = """#!/bin/sh
echo "loginctl $*" >>"$NOTES"
[ ! -e "$BROKEN" ]
"""
ACTIVE = """LoadState=loaded
ActiveState=active
StatusText=serving
MainPID=4711
MemoryCurrent=104857600
NRestarts=0
"""


class Machine:
    """A folder with its own systemctl."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes, self.shown, self.broken = folder / "notes", folder / "shown", folder / "broken"
        self.offline = folder / "offline"
        self.shown.write_text(ACTIVE, "utf-8")
        programs = folder / "bin"
        programs.mkdir()
        for name, text in (("systemctl", SYSTEMCTL), ("loginctl", LOGINCTL), ("journalctl", JOURNALCTL)):
            (programs / name).write_text(text, "utf-8")
            (programs / name).chmod(0o755)
        demo = make_demo(folder / "home", [])
        environment = {**demo.environment, "PATH": f"{programs}:{demo.environment['PATH']}"}
        environment |= {"NOTES": str(self.notes), "SHOWN": str(self.shown), "BROKEN": str(self.broken)}
        environment["OFFLINE"] = str(self.offline)
        self.demo = Demo(demo.folder, environment)

    @property
    def unit(self) -> Path:
        """The unit file of the person."""
        return self.demo.folder / ".config" / "systemd" / "user" / "rkllm-mcp.service"

    def told(self) -> list[str]:
        """What systemctl was told."""
        return self.notes.read_text("utf-8").splitlines() if self.notes.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_install_writes_the_unit_starts_it_and_shows_how_it_is(machine: Machine) -> None:
    done = machine.demo.run_here("service", "install", "--user")
    assert done.returncode == 0, done.stderr
    assert "WantedBy=default.target" in machine.unit.read_text("utf-8")
    orders = ["daemon-reload", "enable rkllm-mcp.service", "restart rkllm-mcp.service"]
    assert machine.told()[:3] == [f"--user {order}" for order in orders]
    assert "serving" in done.stdout
    assert "100 MB" in done.stdout
    assert "loginctl enable-linger" in machine.told()
    assert "log out" not in done.stderr


def test_a_service_that_only_root_may_start_with_the_machine_says_so(machine: Machine) -> None:
    loginctl = machine.folder / "bin" / "loginctl"
    loginctl.write_text("#!/bin/sh\nexit 1\n", "utf-8")
    assert "sudo loginctl enable-linger" in machine.demo.run_here("service", "install", "--user").stderr


def test_a_secret_of_this_environment_is_written_for_the_service_alone(machine: Machine) -> None:
    demo = machine.demo
    demo.config.write_text(f'{demo.config.read_text("utf-8")}[service]\napi_keys = ["${{BOARD_KEY}}"]\n', "utf-8")
    words = ("service", "install", "--user")
    assert "BOARD_KEY" in demo.run_here(*words).stderr
    secret = demo.config.parent / "credentials" / "BOARD_KEY"
    assert not secret.exists()
    shown = demo.run_here(*words, "--print", environment={"BOARD_KEY": "s3cret"})
    assert not secret.exists()
    done = demo.run_here(*words, environment={"BOARD_KEY": "s3cret"})
    assert done.returncode == 0, done.stderr
    assert f"Wrote {secret}" in done.stderr
    assert (secret.read_text("utf-8"), secret.stat().st_mode & 0o777) == ("s3cret\n", 0o600)
    for unit in (shown.stdout, machine.unit.read_text("utf-8")):
        assert f"LoadCredential=BOARD_KEY:{secret}" in unit
        assert "s3cret" not in unit
    # The service has it without this environment.
    checked = demo.run_here("config", "check", environment={"CREDENTIALS_DIRECTORY": str(secret.parent)})
    assert checked.returncode == 0, checked.stderr


def test_install_may_leave_the_start_to_its_owner(machine: Machine) -> None:
    done = machine.demo.run_here("service", "install", "--user", "--no-start")
    assert done.returncode == 0
    assert not any("restart" in line for line in machine.told())
    assert "systemctl --user start rkllm-mcp.service" in done.stderr


def test_a_service_that_does_not_start_says_where_its_log_is(machine: Machine) -> None:
    machine.broken.touch()
    done = machine.demo.run_here("service", "install", "--user")
    assert done.returncode == 1
    # Its own sentence, instead of systemctl's that names two commands.
    message = " ".join(done.stderr.split())
    assert "failed: the file cannot be read; see: journalctl --user-unit rkllm-mcp.service" in message
    (machine.folder / "bin" / "journalctl").write_text("#!/bin/sh\nexit 1\n", "utf-8")
    assert "Job for rkllm-mcp.service failed" in machine.demo.run_here("service", "start").stderr


def test_status_of_a_service_that_failed_is_an_exit_code(machine: Machine) -> None:
    machine.shown.write_text(ACTIVE.replace("=active", "=failed"), "utf-8")
    done = machine.demo.run_here("service", "status", "--user")
    assert done.returncode == 1
    assert "failed" in done.stdout
    # Neither the process nor the last word of one that ended.
    assert "serving" not in done.stdout
    machine.shown.write_text("LoadState=not-found\nActiveState=inactive\n", "utf-8")
    assert "service install --user" in machine.demo.run_here("service", "status", "--user").stderr


def test_status_is_that_of_the_installed_service_and_shows_no_figure_that_is_not_counted(machine: Machine) -> None:
    machine.demo.run_here("service", "install", "--user", "--no-start")
    machine.shown.write_text(ACTIVE.replace("104857600", "[not set]"), "utf-8")
    done = machine.demo.run_here("service", "status", "--json")
    assert (done.returncode, machine.told()[-1].split()[0]) == (0, "--user")
    assert json.loads(done.stdout) == {
        "ActiveState": "active",
        "StatusText": "serving",
        "MainPID": "4711",
        "NRestarts": "0",
    }


@pytest.mark.parametrize(("verb", "said"), [("start", "Started."), ("stop", "Stopped."), ("restart", "Restarted.")])
def test_the_service_is_controlled_where_it_is_installed(machine: Machine, verb: str, said: str) -> None:
    missing = machine.demo.run_here("service", verb)
    assert (missing.returncode, "rkllm-mcp service install" in missing.stderr) == (2, True)
    machine.demo.run_here("service", "install", "--user", "--no-start")
    # Only the user's unit exists, so --user is not needed.
    done = machine.demo.run_here("service", verb)
    assert (done.returncode, done.stderr) == (0, f"{said}\n")
    assert machine.told()[-1] == f"--user {verb} rkllm-mcp.service"


def test_the_log_of_the_service_is_the_journals(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    machine.demo.run_here("service", "install", "--user", "--no-start")
    done = machine.demo.run_here("service", "logs", "-n", "7")
    # It writes to the terminal itself.
    assert (done.returncode, capfd.readouterr().out) == (0, "journal --user-unit rkllm-mcp.service -n 7 --no-pager\n")


def test_uninstall_takes_the_unit_away_and_a_second_time_says_so(machine: Machine) -> None:
    machine.demo.run_here("service", "install", "--user", "--no-start")
    done = machine.demo.run_here("service", "uninstall", "--user")
    assert done.returncode == 0, done.stderr
    assert not machine.unit.exists()
    assert "--user disable --now rkllm-mcp.service" in machine.told()
    again = machine.demo.run_here("service", "uninstall", "--user")
    assert again.returncode == 2
    assert "nothing was installed" in again.stderr


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("status", "see how the assistant is with: rkllm-mcp status"),
        ("install", "start the assistant another way: rkllm-mcp serve"),
        ("start", "start the assistant another way: rkllm-mcp serve"),
        ("logs", "'rkllm-mcp serve' writes its log to the terminal that it runs in"),
    ],
)
def test_where_systemd_does_not_run_nothing_is_written_and_the_way_without_it_is_named(
    machine: Machine, words: str, remedy: str
) -> None:
    machine.offline.touch()
    refused = machine.demo.run_here("service", words, "--user")
    expected = f"systemd does not run on this machine; {remedy}"
    assert (refused.returncode, expected in refused.stderr.replace("\n", " ")) == (2, True), refused.stderr
    assert not machine.unit.exists()


def test_a_unit_is_taken_away_where_systemd_does_not_run_any_more(machine: Machine) -> None:
    machine.demo.run_here("service", "install", "--user", "--no-start")
    machine.offline.touch()
    done = machine.demo.run_here("service", "uninstall", "--user")
    assert (done.returncode, machine.unit.exists()) == (0, False), done.stderr


def test_a_machine_without_systemd_gets_instructions(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, [])
    done = Demo(tmp_path, {**demo.environment, "PATH": str(tmp_path)}).run_here("service", "start")
    assert done.returncode == 2
    assert "rkllm-mcp serve" in done.stderr


PIPX = """#!/bin/sh
echo "pipx $1" >>"$NOTES"
[ ! -e "$BROKEN_PIPX" ]
"""


@pytest.mark.parametrize(("is_broken", "code"), [(False, 0), (True, 1)])
def test_an_update_with_restart_replaces_the_program_while_no_service_runs_and_starts_it_again(
    machine: Machine, is_broken: bool, code: int
) -> None:
    machine.unit.parent.mkdir(parents=True)
    machine.unit.touch()
    pipx, broken = machine.folder / "bin" / "pipx", machine.folder / "broken-pipx"
    pipx.write_text(PIPX, "utf-8")
    pipx.chmod(0o755)
    if is_broken:
        broken.touch()
    # An environment that pipx made, with the libraries of this one.
    prefix = machine.folder / "environment"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n", "utf-8")
    (prefix / "pipx_metadata.json").touch()
    (prefix / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    environment = {
        **machine.demo.environment,
        "PYTHONPATH": f"{REPOSITORY}:{sysconfig.get_path('purelib')}",
        "BROKEN_PIPX": str(broken),
    }
    command = [str(prefix / "bin" / "python"), *machine.demo.command("update", "--restart")[1:]]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == code, done.stderr
    order = [line for line in machine.told() if line.startswith(("pipx upgrade", "--user st"))]
    assert order == ["--user stop rkllm-mcp.service", "pipx upgrade", "--user start rkllm-mcp.service"]


def test_an_update_with_restart_of_what_is_not_a_service_changes_nothing(machine: Machine) -> None:
    done = machine.demo.run_here("update", "--restart")
    assert (done.returncode, machine.told()) == (2, [])
