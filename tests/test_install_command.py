"""The command of a remedy installs into the environment of the program, however that was made."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_servers import program
from rkllm_mcp import errors
from tests.support.shared import REPOSITORY

PRINT = "from rkllm_mcp.errors import install_command; print(install_command('onnxruntime>=1'))"


def printed_by(python: Path) -> str:
    done = subprocess.run(
        [python, "-c", PRINT], check=True, capture_output=True, text=True, env={"PYTHONPATH": str(REPOSITORY)}
    )
    return done.stdout.strip()


def environment(folder: Path, *options: str) -> Path:
    subprocess.run([sys.executable, "-m", "venv", *options, str(folder)], check=True)
    return folder / "bin" / "python"


def test_an_environment_without_pip_takes_uv(tmp_path: Path) -> None:
    python = environment(tmp_path / "uv", "--without-pip")
    assert printed_by(python) == f"uv pip install --python {python} 'onnxruntime>=1'"


def test_an_environment_of_pipx_takes_pipx(tmp_path: Path) -> None:
    python = environment(tmp_path / "pipx", "--without-pip")
    (tmp_path / "pipx" / "pipx_metadata.json").touch()
    assert printed_by(python) == "pipx inject rkllm-mcp 'onnxruntime>=1'"


def test_both_programs_name_the_same_command() -> None:
    assert errors.install_command("numpy") == program.install_command("numpy")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")
def test_no_page_and_no_message_names_an_extra_of_a_package_that_is_not_published() -> None:
    places = [
        "rkllm_mcp",
        "mcp_servers",
        "rkllm_http",
        "rkllm_text",
        "docs",
        "README.md",
        "README.ja.md",
        "install.sh",
        "scripts",
        "native",
    ]
    command = ["git", "grep", "-nE", r"rkllm-mcp\[|pip install \{e\.package", "--", *places]
    found = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert found.stdout == ""
