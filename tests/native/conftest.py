"""What the tests of the emulated runtime share: the built libraries, sanitizers, the script of the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from native import build
from tests.support.emulator import make_fake_llama

README = build.NATIVE / "README.md"


@pytest.fixture(scope="session")
def libraries() -> dict[str, Path]:
    """The emulated library of every family, by version."""
    return build.ensure()


@pytest.fixture(scope="session")
def fake_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the fake libllama."""
    return make_fake_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture
def readme_script(tmp_path: Path) -> Path:
    """The complete example of native/README.md as a model file."""
    blocks = re.findall(r"^```text\n(RKLLM-EMULATOR 1\n.*?)^```$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    # The other one needs weights.
    (script,) = (block for block in blocks if "\nweights " not in block)
    path = tmp_path / "hello.rkllm"
    path.write_text(script, encoding="utf-8")
    return path
