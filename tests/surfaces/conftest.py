from __future__ import annotations

import os
from pathlib import Path

import pytest

from rkllm_mcp.surfaces.cli.main import main
from tests.support.outcome import Command, Outcome


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """``rkllm-mcp`` in an empty folder, as a person without any configuration would type it."""
    for name in [name for name in os.environ if name.startswith(("RKLLM_", "MCP_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Outcome:
        with pytest.raises(SystemExit) as left:
            main(words)
        captured = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return Outcome(left.value.code, captured.out, captured.err.replace(f"{tmp_path}/", ""))

    return run
