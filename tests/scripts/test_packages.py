"""The scripts that install other projects' programs give up where nothing can be reached, and leave no lock behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.demo_app import wait_for_end
from tests.support.installed import Installed, process_group, run_installer
from tests.support.shared import REPOSITORY

# npm would try for ten minutes.
LIMIT_S = 120


@pytest.fixture
def registry() -> Generator[str]:
    """An address on this machine that refuses connections."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}/"


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """The installing scripts, in a repository in which nothing is installed."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    for name in ("axe", "clients", "clients_js", "conformance", "github_openapi", "third_party", "packages.sh"):
        shutil.copy(REPOSITORY / "scripts" / name, folder / name)
    return folder


def unreachable(registry: str) -> dict[str, str]:
    """An environment in which every index of packages refuses connections."""
    own = {key: value for key, value in os.environ.items() if not key.lower().startswith(("npm_", "pip_"))}
    nowhere = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": registry, "npm_config_registry": registry}
    return {**own, **nowhere}


@pytest.mark.parametrize("name", ["axe", "clients_js", "conformance", "github_openapi"])
def test_an_unreachable_npm_is_reported_at_once(name: str, scripts: Path, registry: str) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not here")
    found = run_installer(scripts / name, LIMIT_S, unreachable(registry))
    assert (found.is_complete, found.lines) == (False, ())
    assert "ECONNREFUSED" in found.reason
    assert found.reason.splitlines()[-1].startswith(f"scripts/{name}: npm's registry cannot be reached, or has no ")


def test_a_registry_that_takes_a_connection_and_never_answers_is_given_up(scripts: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not here")
    # npm's own limit does not count before TLS is agreed.
    with socket.create_server(("127.0.0.1", 0)) as stuck:
        found = run_installer(scripts / "axe", LIMIT_S, unreachable(f"https://127.0.0.1:{stuck.getsockname()[1]}/"))
    assert (found.is_complete, found.lines) == (False, ())
    assert found.reason.splitlines()[-1].startswith("scripts/axe: npm's registry cannot be reached, or has no ")


@pytest.mark.parametrize("name", ["clients", "third_party"])
def test_an_unreachable_package_index_is_reported_at_once(name: str, scripts: Path, registry: str) -> None:
    found = run_installer(scripts / name, LIMIT_S, unreachable(registry))
    assert (found.is_complete, found.lines) == (False, ())
    assert found.reason.splitlines()[-1].startswith(f"scripts/{name}: a package index cannot be reached, or has no ")
    assert not list(scripts.parent.glob(".*/bin"))


def test_a_script_that_does_not_end_is_stopped_and_named(tmp_path: Path) -> None:
    script = tmp_path / "endless"
    script.write_text("#!/bin/sh\nsleep 600\n", "utf-8")
    script.chmod(0o755)
    assert run_installer(script, 0.1) == Installed(reason="scripts/endless was stopped after 0.1 s")


def test_what_a_stopped_script_has_started_ends_with_it_and_frees_its_lock(scripts: Path, tmp_path: Path) -> None:
    if shutil.which("flock") is None:
        pytest.skip("flock is not here")
    script = scripts / "stuck"
    script.write_text("#!/bin/sh\ncd ${0%/*}/..\n. scripts/packages.sh\nlock\nsleep 600 &\necho $!\nwait\n", "utf-8")
    script.chmod(0o755)
    try_lock = ["flock", "--nonblock", str(script), "true"]
    with process_group([script], os.environ) as process:
        assert process.stdout is not None
        started = int(process.stdout.readline())
        assert subprocess.run(try_lock, check=False).returncode == 1
    wait_for_end([started])
    assert subprocess.run(try_lock, check=False).returncode == 0


@pytest.mark.parametrize("uv_fails", [False, True])
def test_uv_installs_and_pip_where_it_fails(uv_fails: bool, scripts: Path) -> None:
    wheel = scripts.parent / "it-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("it.py", "")
        archive.writestr("it-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: it\nVersion: 1\n")
        archive.writestr("it-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("it-1.dist-info/RECORD", "")
    uv = scripts.parent / "programs" / "uv"
    uv.parent.mkdir()
    uv.write_text(f'#!/bin/sh\necho "$@" >>uv-arguments\nexit {int(uv_fails)}\n', "utf-8")
    uv.chmod(0o755)
    script = scripts / "own"
    script.write_text(f"#!/bin/sh\ncd ${{0%/*}}/..\n. scripts/packages.sh\npip_install .own {wheel}\n", "utf-8")
    script.chmod(0o755)
    environment = {**os.environ, "PATH": f"{uv.parent}:{os.environ['PATH']}", "PYTHON": sys.executable}
    assert run_installer(script, LIMIT_S, environment).is_complete
    assert wheel.name in (scripts.parent / "uv-arguments").read_text("utf-8")
    assert any(scripts.parent.glob(".own/lib/*/site-packages/it.py")) == uv_fails
