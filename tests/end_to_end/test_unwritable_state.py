"""A state folder that is on a read-only or a full file system, in a mount namespace: real errors of the kernel."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.demo_app import make_demo

REASONS = {"read-only": "Read-only file system", "full": "database or disk is full"}
# Exit codes: an answer needs no state, and what is there to be stored is refused with the reason.
COMMANDS: dict[tuple[str, ...], int] = {
    ("run", "Hello"): 0,
    ("conversations", "list"): 1,
    ("tools", "disable", "clock"): 1,
    ("service", "link"): 1,
    ("tools", "approvals"): 1,
    ("tools", "history"): 1,
}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("kind", REASONS)
def test_a_state_folder_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, kind: str, words: tuple[str, ...]
) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    demo = make_demo(tmp_path / "home", [])
    state = tmp_path / "home/.local/state/rkllm-mcp"
    state.mkdir(parents=True)
    mount = ["--ro-bind", str(state)] if kind == "read-only" else ["--size", "65536", "--tmpfs"]
    fill = "head -c 100000 /dev/zero > $0/filler 2>/dev/null; " if kind == "full" else ""
    shell = ["sh", "-c", f'{fill}exec "$@"', str(state), *demo.command(*words)]
    done = subprocess.run(
        ["bwrap", "--dev-bind", "/", "/", *mount, str(state), *shell],
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=dict(demo.environment),
        cwd=demo.folder,
        timeout=120,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (COMMANDS[words], False), done.stderr
    assert done.stderr.count(REASONS[kind]) == 1, done.stderr
    assert done.stderr.count(str(state)) == 1
    assert ("Try:" in done.stdout) is (words[0] == "run")
