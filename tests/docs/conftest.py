"""An environment with the installed wheel, and an empty home."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.support.fake_jma import FakeAgency
from tests.support.shared import REPOSITORY


@pytest.fixture(scope="session")
def programs_of_the_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the programs of an environment in which the wheel of this tree is installed.

    The libraries are those of this environment; its Python takes packages from the wheel first.
    """
    built, home = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True, timeout=120)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=120)
    (wheel,), (site,) = built.glob("*.whl"), home.glob("lib/python*/site-packages")
    install = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "-qq", "--no-index"]
    subprocess.run([*install, "--no-deps", str(wheel)], check=True, timeout=300)
    libraries = [path for path in map(Path, sys.path) if path.name == "site-packages"]
    (site / "libraries.pth").write_text("".join(f"{path}\n" for path in libraries), "utf-8")
    return home / "bin"


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory, programs_of_the_wheel: Path) -> Iterator[dict[str, str]]:
    """The environment of somebody who has installed the program: an empty home, and the project's commands."""
    home = tmp_path_factory.mktemp("home")
    # The weather server of the demo has the clock of this machine.
    with FakeAgency(now=datetime.now(timezone.utc)) as agency:
        yield {
            "HOME": str(home),
            "PATH": f"{programs_of_the_wheel}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "RKLLM_EMULATOR_SPEED": "flat",
            # A busy machine starts servers slowly, and an answer goes without those of which it knows nothing.
            "RKLLM_MCP_AGENT__WAIT_FOR_SERVERS_S": "60",
            **{key: value for key, value in os.environ.items() if key.lower().startswith(("pip_", "npm_"))},
            **agency.environment(home / "cache"),
        }
