"""The scripts that install other projects' programs give up where nothing can be reached, and leave no lock behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
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


# Of Python what pip_install uses; its environment has a copy of it.
PYTHON = """#!/bin/sh
echo "python $*" >>calls
[ "$2" = venv ] && mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
:
"""


@pytest.mark.parametrize("uv_fails", [False, True])
def test_uv_installs_and_pip_where_it_fails(uv_fails: bool, scripts: Path) -> None:
    programs = scripts.parent / "programs"
    programs.mkdir()
    for name, text in (
        ("uv", f'#!/bin/sh\necho "uv $*" >>calls\nexit {int(uv_fails)}\n'),
        ("python", PYTHON),
        ("install", "#!/bin/sh\ncd ${0%/*}/..\nPYTHON=python\n. scripts/packages.sh\npip_install .own one==1 two\n"),
    ):
        (programs / name).write_text(text, "utf-8")
        (programs / name).chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}"}
    assert run_installer(programs / "install", LIMIT_S, environment).is_complete
    checked, made, *installed = (scripts.parent / "calls").read_text("utf-8").splitlines()
    assert (" --dry-run " in checked, made) == (True, "python -m venv .own")
    by_uv = "uv pip install --quiet --python .own/bin/python one==1 two"
    by_pip = "python -m pip install -qq --disable-pip-version-check one==1 two"
    assert installed == ([by_uv, by_pip] if uv_fails else [by_uv])
