"""The wheel that people install holds all it needs and works away from the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.shared import REPOSITORY


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built without a network."""
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, timeout=120)
    (built,) = target.glob("*.whl")
    return built


def test_the_wheel_holds_the_packages_the_models_and_the_emulators_sources_and_nothing_built(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for needed in (
        "rkllm_mcp/app/assistant.py",
        "mcp_servers/weather/__main__.py",
        "mcp_servers/knowledge/ocr/katakana.txt",
        "mcp_servers/knowledge/ocr/recent.txt",
        "mcp_servers/knowledge/search/sudachi_synonyms.txt",
        "mcp_servers/knowledge/search/synonyms.txt",
        "rkllm_mcp/surfaces/cli/config_template.toml.txt",
        "rkllm_mcp/_models/demo/demo.rkllm",
        "rkllm_mcp/_models/demo/tokenizer.json",
        "rkllm_mcp/_native/build.py",
        "rkllm_mcp/_native/include/rkllm_abi.h",
        "rkllm_mcp/tools/glossary.txt",
        "rkllm_mcp/tools/spelling.txt",
        "rkllm_mcp/surfaces/web/index.html",
        "rkllm_mcp/surfaces/web/icons.svg",
        "rkllm_mcp/surfaces/web/css/base.css",
        "rkllm_mcp/surfaces/web/js/main.js",
        "rkllm_mcp/surfaces/web/js/markdown/blocks.js",
    ):
        assert needed in names
    assert not [name for name in names if name.endswith((".so", ".pyc", ".o")) or "/tests/" in name]


def test_an_installed_package_answers_on_the_emulated_npu(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("RKLLM", "XDG", "PYTHON"))}
    environment |= {"HOME": str(tmp_path), "PYTHONPATH": str(site), "RKLLM_EMULATOR_SPEED": "flat"}
    # Packages are found in the order of PYTHONPATH, so these are the wheel's, not the repository's.
    command = [sys.executable, "-m", "rkllm_mcp", "--runtime", "emulator", "--model", "demo", "run", "Hello"]
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("◆ This is the emulated model")
    assert list((tmp_path / ".cache" / "rkllm-mcp" / "emulator").glob("*/librkllmrt.so"))
