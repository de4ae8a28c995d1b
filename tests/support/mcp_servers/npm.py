"""Other people's MCP servers from npm, installed once into pytest's cache folder.

A test that cannot have one is skipped by name.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_INSTALL_TIMEOUT_S = 180


def npm_server(config: pytest.Config, package: str, program: str) -> Path:
    """The program that an npm package installs.

    Args:
        config: pytest's, for its cache folder.
        package: such as ``@modelcontextprotocol/server-filesystem``.
        program: the name of its executable.
    """
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip(f"{package} needs node and npm, which are not installed")
    # There is none when pytest runs with "-p no:cacheprovider".
    cache: pytest.Cache | None = getattr(config, "cache", None)
    if cache is None:
        pytest.skip(f"{package} needs pytest's cache folder to be installed into")
    folder = cache.mkdir(f"npm-{program}")
    path = folder / "node_modules" / ".bin" / program
    if not path.exists():
        command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--no-save", package]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_INSTALL_TIMEOUT_S)
        except (subprocess.SubprocessError, OSError) as error:
            pytest.skip(f"{package} cannot be installed here: {error}")
    return path
