"""What a command of ``rkllm-mcp`` leaves behind; ``tests.surfaces`` has the fixture ``command`` that runs one."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from rkllm_mcp.surfaces.cli.main import main


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


def run_here(
    environment: Mapping[str, str], *words: str, stdin: bytes = b"", folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, with an environment and input of its own; a new Python takes a second.

    What reads its environment when it is imported, as ``huggingface_hub`` does, needs a process.

    Args:
        stdin: what waits in a pipe, at most 64 KiB.
        folder: the working folder; the present one by default.
    """
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(stdin)
    # As in a process, what is written can be given another encoding.
    out, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, os.fdopen(reading, encoding="utf-8") as given:
        for name in os.environ.keys() - environment.keys():
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        if folder is not None:
            patch.chdir(folder)
        for name, stream in (("stdin", given), ("stdout", out), ("stderr", errors)):
            patch.setattr(sys, name, stream)
        with pytest.raises(SystemExit) as left:
            main(words)
    code = left.value.code or 0
    assert isinstance(code, int)
    written = [stream.buffer.getvalue().decode() for stream in (out, errors)]
    return subprocess.CompletedProcess(words, code, *written)
