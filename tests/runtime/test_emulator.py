"""The emulated runtime is found next to the sources it is built from."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rkllm_mcp.errors import LibraryNotFoundError
from rkllm_mcp.runtime.emulator import emulator_library
from rkllm_mcp.runtime.library import read_library_file
from tests.support.emulator import MACROS, libraries
from tests.support.shared import REPOSITORY


@pytest.mark.parametrize("version", MACROS)
def test_a_checkout_builds_into_its_own_folder(version: str) -> None:
    assert emulator_library(version) == libraries()[version]
    assert read_library_file(emulator_library(version)).version == version


def test_1_3_0_is_the_default_and_the_variable_names_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RKLLM_EMULATOR_ABI", raising=False)
    assert emulator_library() == libraries()["1.3.0"]
    monkeypatch.setenv("RKLLM_EMULATOR_ABI", "1.2.0")
    assert emulator_library() == libraries()["1.2.0"]


def test_a_release_that_is_not_emulated_is_an_error_with_those_that_are() -> None:
    with pytest.raises(
        LibraryNotFoundError, match=r"no emulated runtime '9\.9\.9'\. Set .* one of 1\.2\.0, 1\.2\.3, 1"
    ):
        emulator_library("9.9.9")


def installed(folder: Path) -> Path:
    """The package as a wheel installs it: sources inside, no checkout around it."""
    package = folder / "site" / "rkllm_mcp"
    shutil.copytree(REPOSITORY / "rkllm_mcp", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(REPOSITORY / "native", package / "_native", ignore=shutil.ignore_patterns("build", "__pycache__"))
    return folder / "site"


def in_installed(site: Path, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    code = "from rkllm_mcp.runtime.emulator import emulator_library; print(emulator_library('1.2.3'))"
    path = environment.pop("PATH", "/usr/local/bin:/usr/bin:/bin")
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=site,
        env={"PYTHONPATH": str(site), "XDG_CACHE_HOME": str(home), "PATH": path, **environment},
    )


def test_an_installed_package_builds_into_the_users_cache(tmp_path: Path) -> None:
    done = in_installed(installed(tmp_path), tmp_path / "cache")
    assert done.stdout.strip() == str(tmp_path / "cache" / "rkllm-mcp" / "emulator" / "1.2.3" / "librkllmrt.so")
    assert Path(done.stdout.strip()).is_file()


def test_a_compiler_that_does_not_work_is_an_error_that_says_what_to_install(tmp_path: Path) -> None:
    done = in_installed(installed(tmp_path), tmp_path / "cache", CC="/bin/false")
    assert "The emulated runtime 1.2.3 could not be built" in done.stderr
    assert " install compiler" in done.stderr
