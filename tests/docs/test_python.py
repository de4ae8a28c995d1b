"""The programs of "Use it from Python" pass the strict checks of mypy and pyright."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import programs
from tests.support.shared import REPOSITORY


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_type_checker_finds_nothing_in_the_programs(checker: str, tmp_path: Path) -> None:
    pytest.importorskip(checker)
    files: list[str] = []
    for number, (program, _) in enumerate(programs("docs/clients.md")):
        file = tmp_path / f"program_{number}.py"
        file.write_text(program, encoding="utf-8")
        files.append(str(file))
    assert len(files) >= 8
    settings = {
        "include": ["."],
        "typeCheckingMode": "strict",
        "extraPaths": [str(REPOSITORY)],
        "pythonVersion": "3.10",
        "venvPath": str(Path(sys.prefix).parent),
        "venv": Path(sys.prefix).name,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    options = ["--project", str(tmp_path)] if checker == "pyright" else ["--strict", "--follow-imports=silent", *files]
    done = subprocess.run(
        [sys.executable, "-m", checker, *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
