"""Run the scripts that install other projects' programs, within a time limit and with nothing left running.

The scripts give up within seconds where npm's registry or a package index cannot be reached. They hold a lock while
they install, and so does each process that they start: all of them are killed together.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.shared import REPOSITORY
from tests.tiers import tier_of

# Up to 400 MB, on a slow line; less than the time after which pytest ends a test that waits (faulthandler_timeout).
_INSTALL_LIMIT_S = 500
_REACHABLE_LIMIT_S = 30
# npm asks once, for a few seconds.
BRIEFLY = ("--fetch-retries=0", "--fetch-timeout=8000")


@dataclass(frozen=True)
class Installed:
    """The outcome of an installing script.

    Args:
        is_complete: it ended with exit code 0.
        lines: its standard output: the places of the programs.
        reason: its standard error, what is missing and why.
    """

    is_complete: bool = False
    lines: tuple[str, ...] = ()
    reason: str = ""


@contextmanager
def process_group(command: Sequence[str | Path], env: Mapping[str, str]) -> Generator[subprocess.Popen[str]]:
    """Start a command in its own process group; kill the whole group when the block is left."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(env), start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def run_installer(script: Path, limit_s: float = _INSTALL_LIMIT_S, env: Mapping[str, str] = os.environ) -> Installed:
    """Run an installing script to its end, or kill it and its children after ``limit_s``."""
    with process_group([script], {**env, "PYTHON": sys.executable}) as process:
        try:
            output, errors = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return Installed(reason=f"scripts/{script.name} was stopped after {limit_s:g} s")
    is_complete = process.returncode == 0
    return Installed(is_complete, tuple(output.splitlines()) if is_complete else (), errors.strip())


def refuse_in_default_tier(need: str) -> None:
    """Fail the running test if it belongs to no tier: the default one needs no npm, no browser and no network."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if test and not tier_of(test):
        raise AssertionError(f"{test} needs {need}: name its tier in tests/tiers.py")


def installed(name: str) -> Installed:
    """Run ``scripts/NAME`` once in this process."""
    refuse_in_default_tier(f"scripts/{name}")
    return _installed(name)


@functools.cache
def _installed(name: str) -> Installed:
    return run_installer(REPOSITORY / "scripts" / name)


@functools.cache
def _npm_problem(package: str) -> str:
    if shutil.which("npm") is None:
        return "npm is not installed"
    with process_group(["npm", "view", package, "version", "--loglevel=error", *BRIEFLY], os.environ) as process:
        try:
            errors = process.communicate(timeout=_REACHABLE_LIMIT_S)[1]
        except subprocess.TimeoutExpired:
            return f"npm did not answer within {_REACHABLE_LIMIT_S} s"
    return f"npm's registry does not have it or cannot be reached: {errors.strip()}" if process.returncode else ""


def need_npm(package: str) -> None:
    """Skip the calling test where npm could not get this package."""
    refuse_in_default_tier("npm")
    problem = _npm_problem(package)
    if problem:
        pytest.skip(f"npm cannot get {package} here: {problem}")


@functools.cache
def _index_problem() -> str:
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--retries", "0", "--timeout", "8", "-d"]
    with tempfile.TemporaryDirectory() as folder, process_group([*command, folder, "segno"], os.environ) as process:
        try:
            errors = process.communicate(timeout=_REACHABLE_LIMIT_S)[1]
        except subprocess.TimeoutExpired:
            return f"it did not answer within {_REACHABLE_LIMIT_S} s"
    return errors.strip() or "pip failed" if process.returncode else ""


def need_index() -> None:
    """Skip the calling test where no package index can be reached."""
    refuse_in_default_tier("a package index")
    if problem := _index_problem():
        pytest.skip(f"no package index can be reached here: {problem}")


def need_agents() -> Path:
    """Return the folder of the agents that ``scripts/agents`` installs; skip the calling test where there is none."""
    found = installed("agents")
    if not found.lines:
        pytest.skip(f"the agents of .agents are not here: {found.reason}")
    return Path(found.lines[0])
