"""``scripts/demo --model FILE.gguf``: a file of weights answers, with nothing to install or to ask."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.models.test_gguf import write_talking_gguf
from tests.support.emulator import make_fake_llama
from tests.support.shared import REPOSITORY

_PATIENCE_S = 300


def test_a_file_of_weights_answers_the_question_and_is_added_once(tmp_path: Path) -> None:
    weights = write_talking_gguf(tmp_path / "mine.gguf")
    environment = {
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
        "RKLLM_EMULATOR_LLAMA": str(make_fake_llama(tmp_path)),
    }
    outcomes = [
        subprocess.run(
            [REPOSITORY / "scripts" / "demo", "--model", weights, "What is a question that no script knows?"],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_S,
        )
        for _ in range(2)
    ]
    assert [(outcome.returncode, outcome.stdout) for outcome in outcomes] == [(0, "◆ ok\n")] * 2, outcomes[0].stderr
    (folder,) = (tmp_path / ".local/share/rkllm-mcp/models").iterdir()
    assert (folder / "model.gguf").samefile(weights)
    assert "Try it: " in outcomes[0].stderr
    assert "Try it: " not in outcomes[1].stderr
    assert "is computed on this machine's CPU]" in outcomes[1].stderr
