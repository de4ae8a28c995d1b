"""A run of two workers: what fails is run again alone, and a lost worker's tests are run elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

import pytest

from tests.support.run_again import HEADING
from tests.support.shared import REPOSITORY

# Fails the first time.
BUSY = """
from pathlib import Path
def test_{name}():
    ran = Path("{name}.ran")
    ran.touch() if (first := not ran.exists()) else None
    assert not first, "it took too long"
"""
WRONG = "def test_wrong():\n    assert 1 == 2\n"
FINE = "def test_fine():\n    pass\n"
FIXTURE = """
import pytest
from pathlib import Path
@pytest.fixture
def served():
    ran = Path("served.ran")
    first = not ran.exists()
    ran.touch()
    yield
    assert not first
def test_served(served):
    pass
"""
LEAK = """
from pathlib import Path
def descriptors():
    ran = Path("leak.ran")
    first = not ran.exists()
    ran.touch()
    return int(first)
def test_leak():
    assert descriptors() == 0
"""
UNCLOSED = """
import gc, socket
from pathlib import Path
def test_unclosed():
    ran = Path("unclosed.ran")
    if not ran.exists():
        ran.touch()
        socket.socket()
        gc.collect()
"""
# Each ends its worker; the two after it are run all the same, and it is not.
KILLED = """
import os, signal
{before}def test_killed():
    with open("killed.ran", "a") as log:
        log.write("x")
    {end}
"""
AFTER = "def test_after():\n    pass\ndef test_last():\n    pass\n"


def run(folder: Path, files: Mapping[str, str], *more: str) -> tuple[int, str, str]:
    """Run a suite with two workers; return the exit code, the last line without its time, and the output."""
    (folder / "pytest.ini").write_text(
        "[pytest]\nfilterwarnings = error\nfaulthandler_timeout = 2\nfaulthandler_exit_on_timeout = true\n", "utf-8"
    )
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text, "utf-8")
    own = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "COVERAGE"))}
    together = [
        "--numprocesses=2",
        "--max-worker-restart=4",
        "--dist=loadfile",
        "--no-loadscope-reorder",
        "--run-again",
    ]
    plugins = ["-p", "tests.support.run_again", "-p", "no:cacheprovider", "--run-again"]
    command = [sys.executable, "-m", "pytest", *plugins, *together, *more]
    env = {**own, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder, env=env, timeout=300)
    last = done.stdout.splitlines()[-1].strip("= ")
    return done.returncode, last.partition(" in ")[0], done.stdout + done.stderr


def listed(output: str) -> list[str]:
    """The tests below the heading, in the order of their names."""
    below = output.partition(HEADING)[2].splitlines()[1:]
    return sorted(line for line in takewhile(lambda line: line[:1] != "=", below) if not line.startswith(" "))


def test_a_test_that_passes_alone_is_listed_and_the_run_is_green(tmp_path: Path) -> None:
    code, last, output = run(tmp_path, {"a": BUSY.format(name="busy"), "b": FINE, "c": FIXTURE})
    assert (code, last) == (0, "3 passed")
    assert listed(output) == ["test_a.py::test_busy", "test_c.py::test_served"]
    assert "    E       AssertionError: it took too long" in output.splitlines()


def test_a_test_that_fails_again_is_a_failure_and_shows_both(tmp_path: Path) -> None:
    code, last, output = run(tmp_path, {"a": WRONG, "b": BUSY.format(name="busy")})
    assert (code, last) == (1, "1 failed, 1 passed")
    assert listed(output) == ["test_b.py::test_busy"]
    assert output.count("E       assert 1 == 2") == 2


@pytest.mark.parametrize(("count", "code", "last"), [(3, 0, "4 passed"), (4, 1, "4 failed, 1 passed")])
def test_more_than_three_tests_that_pass_alone_are_a_failure(tmp_path: Path, count: int, code: int, last: str) -> None:
    files = {f"a{n}": BUSY.format(name=f"busy{n}") for n in range(count)}
    found = run(tmp_path, {**files, "b": FINE})
    assert found[:2] == (code, last)
    assert listed(found[2]) == [f"test_a{n}.py::test_busy{n}" for n in range(count)]
    assert ("more than 3 are a failure" in found[2]) == (code == 1)


@pytest.mark.parametrize("text", [LEAK, UNCLOSED])
def test_a_leak_is_not_run_again(tmp_path: Path, text: str) -> None:
    code, last, output = run(tmp_path, {"a": text, "b": FINE})
    assert (code, last) == (1, "1 failed, 1 passed")
    assert listed(output) == []


@pytest.mark.parametrize(
    "end", ["os._exit(3)", "os.kill(os.getpid(), signal.SIGSEGV)", "__import__('threading').Event().wait()"]
)
@pytest.mark.parametrize("before", ["", "def test_before():\n    pass\n"])
def test_a_crash_and_a_hang_are_named_not_run_again_and_the_rest_runs_elsewhere(
    tmp_path: Path, end: str, before: str
) -> None:
    killed = KILLED.format(before=before, end=end) + AFTER
    code, last, output = run(tmp_path, {"a": killed, "b": BUSY.format(name="busy"), "c": FINE, "d": FINE})
    assert (code, last) == (1, f"1 failed, {6 if before else 5} passed")
    assert re.search(r"FAILED test_a.py::test_killed - worker 'gw\d' crashed while running", output)
    assert (tmp_path / "killed.ran").read_text("utf-8") == "x"
    assert listed(output) == ["test_b.py::test_busy"]
    assert ("in test_killed" in output) == ("os._exit" not in end)


def test_the_last_test_of_a_run_may_end_its_worker(tmp_path: Path) -> None:
    code, last, _ = run(tmp_path, {"a": FINE, "b": KILLED.format(before="", end="os._exit(3)")})
    assert (code, last) == (1, "1 failed, 1 passed")


def test_without_workers_and_without_the_option_nothing_else_changes(tmp_path: Path) -> None:
    assert run(tmp_path, {"a": BUSY.format(name="busy")}, "--numprocesses", "0")[:2] == (0, "1 passed")
    (tmp_path / "busy.ran").unlink()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_a.py"]
    assert subprocess.run(command, check=False, capture_output=True, cwd=tmp_path, timeout=300).returncode == 1
