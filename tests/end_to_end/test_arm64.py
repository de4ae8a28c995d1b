"""The product on aarch64, emulated: ``scripts/arm64``, where qemu-user is at hand."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.support.shared import REPOSITORY

# A first run fetches a root with Python and a compiler; everything in it runs ten times slower.
PATIENCE_S = 3600


def test_an_answer_with_a_tool_the_chat_and_the_layout_hold_on_aarch64() -> None:
    has_qemu = shutil.which("qemu-aarch64-static") and shutil.which("proot")
    if not has_qemu and not (REPOSITORY / ".arm64" / "host" / "ready").exists():
        pytest.skip("qemu-user-static and proot are not installed, and scripts/arm64 has not fetched them")
    done = subprocess.run(
        [REPOSITORY / "scripts" / "arm64"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "done on aarch64" in done.stdout.splitlines()[-1]
