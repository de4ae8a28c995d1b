"""The emulated runtime for tests: built once, one library per ABI family, scripts as models, the log of its calls."""

from __future__ import annotations

import functools
import importlib.util
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rkllm_mcp.runtime.settings import EngineSettings
from tests.support.shared import REPOSITORY

# The families that behave differently. 1.3.1 is 1.3.0 with larger inputs, so what holds of any family is tried on it
# (``newest``), and what differs from family to family is not tried twice.
VERSIONS = ("1.2.0", "1.2.3", "1.3.0")
NEWEST = "1.3.1"
# Each in turn; the default run takes the last.
EVERY_VERSION = [*(pytest.param(version, marks=pytest.mark.matrix) for version in VERSIONS[:-1]), VERSIONS[-1]]
# The value of RKLLM_ABI that a family's sources are compiled with
MACROS = {"1.2.0": 120, "1.2.3": 121, "1.3.0": 130, "1.3.1": 131}

ENDOFTEXT, IM_START, IM_END = 256, 257, 258
_HEAD = """RKLLM-EMULATOR 1
vocabulary bytes
control <|endoftext|> <|im_start|> <|im_end|>
eos <|im_end|>
"""


@functools.cache
def native_build() -> ModuleType:
    """``native/build.py`` as a module."""
    specification = importlib.util.spec_from_file_location("native_build", REPOSITORY / "native" / "build.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@functools.cache
def libraries() -> Mapping[str, Path]:
    """Every family's library; built when it is missing or old."""
    built: Mapping[str, Path] = native_build().ensure()
    return built


def make_fake_llama(folder: Path) -> Path:
    """Build the fake libllama in a folder, under the names of llama.cpp's two libraries; it says ok to everything."""
    build = native_build()
    source = build.NATIVE / "tests" / "fake_llama.c"
    build.compile_program([source], folder / "libllama.v0.so", 130, ["-shared", "-fvisibility=default"])
    shutil.copy(folder / "libllama.v0.so", folder / "libggml.v0.so")
    return folder


def prompt_of(text: str) -> list[int]:
    """A user's turn in ChatML, as the ids of the vocabulary ``bytes``."""
    return [IM_START, *b"user\n", *text.encode(), IM_END, *b"\n", IM_START, *b"assistant\n"]


@dataclass(frozen=True)
class Emulator:
    """One family's library, and a folder for its models and logs."""

    version: str
    library: Path
    folder: Path

    @property
    def log(self) -> Path:
        """Where $RKLLM_EMULATOR_LOG points in tests that use ``logged``."""
        return self.folder / "calls.jsonl"

    def model(self, rules: str, head: str = "speed flat\ncontext 4096", name: str = "model.rkllm") -> Path:
        """A model file: ``rules`` after a head with byte tokens and ChatML's control tokens."""
        path = self.folder / name
        path.write_text(f"{_HEAD}{head}\n{rules}\n")
        return path

    def settings(self, rules: str, head: str = "speed flat\ncontext 4096", **changes: Any) -> EngineSettings:
        """Settings for an engine with a model like that."""
        return EngineSettings(model_path=self.model(rules, head), library=self.library, **changes)

    def calls(self) -> list[dict[str, Any]]:
        """The calls that the library logged, in the order in which they returned."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture(params=EVERY_VERSION)
def emulator(request: pytest.FixtureRequest, tmp_path: Path) -> Emulator:
    """Every family that behaves differently in turn."""
    return Emulator(request.param, libraries()[request.param], tmp_path)


@pytest.fixture
def newest(tmp_path: Path) -> Emulator:
    """The newest family, for what does not depend on the family."""
    return Emulator(NEWEST, libraries()[NEWEST], tmp_path)
