"""The commands that the pages list, as a newcomer meets them: an empty home, the installed wheel, no clone."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas

from tests.support.documents import listed
from tests.support.shared import REPOSITORY

PAGES = sorted(
    str(path.relative_to(REPOSITORY))
    for path in [REPOSITORY / "README.md", *REPOSITORY.glob("docs/*.md")]
    if not path.name.endswith(".ja.md") and path.name != "cli.md"
)
# What is typed in this order, and the exit code.
WALK: Mapping[str, int] = {
    "rkllm-mcp setup --yes --emulated --no-service": 0,
    "rkllm-mcp status": 1,  # nothing runs
    "rkllm-mcp doctor": 0,
    "rkllm-mcp runtime list": 0,
    "rkllm-mcp models list": 0,
    "rkllm-mcp models convert -- --help": 0,
    'rkllm-mcp prompt "東京の天気は？"': 0,
    'rkllm-mcp knowledge create rules --description "Company rules"': 0,
    "rkllm-mcp knowledge add handbook.pdf": 0,
    'rkllm-mcp knowledge search "リモートワーク手当の金額は？" --explain': 0,
    'rkllm-mcp run "リモートワーク手当の金額は？"': 0,
    "rkllm-mcp knowledge model": 0,
    "rkllm-mcp knowledge reindex": 0,
    "rkllm-mcp detect --tools tools.json --explain < answer.txt": 0,
    "rkllm-mcp config add-key --name laptop": 0,
    "rkllm-mcp service keys": 0,
    "rkllm-mcp backup ~/board.tar.gz": 0,
}
# What no test types as it is printed, by its beginning: why, and where the same is tested with what it needs.
NOT_TYPED: Mapping[str, str] = {
    "sudo ": "root: tests/surfaces/systemd, tests/diagnostics/test_clocks.py, scripts/arm64",
    "scripts/conformance": "the suite of another project, from npm: tests/conformance",
    ".venv/bin/python": "a measurement of minutes, in a clone",
    "python -m mcp_servers.knowledge": "runs until it is stopped: tests/mcp_servers/knowledge/test_program.py",
    "rkllm-mcp-knowledge --embedder": "a model from the network: tests/models/test_embedders.py",
    "curl ": "a service with a key, or of another machine: tests/surfaces/http",
    "rkllm-mcp boards status": "other boards: tests/surfaces/cli/test_boards.py",
    "./install.sh": "the network: tests/test_packaging.py",
    "rkllm-mcp setup": "asks a person: tests/surfaces/cli/test_setup.py",
    "rkllm-mcp runtime pull": "the network: tests/app/test_runtimes.py",
    "rkllm-mcp runtime use": "a library of the reader: tests/app/test_runtimes.py",
    "rkllm-mcp models pull": "the network: tests/models/test_models_pull_cpu.py",
    "rkllm-mcp models add": "a model of the reader: tests/surfaces/cli/test_models.py",
    "rkllm-mcp models remove": "a model of the reader: tests/surfaces/cli/test_models.py",
    "rkllm-mcp models convert": "the vendor's toolkit: tests/scripts/test_convert_model.py",
    "rkllm-mcp knowledge model universal": "the network: tests/models/test_embedders.py",
    "rkllm-mcp servers add greenhouse": "a folder on the board: the block above it on its page",
    'rkllm-mcp run "How warm': "a folder on the board: the block above it on its page",
    "rkllm-mcp run -f photo.jpg": "a model that sees: tests/end_to_end/test_seeing.py",
    "rkllm-mcp serve": "runs until it is stopped: the blocks of docs/first-answer.md",
    "rkllm-mcp --model qwen3-1.7b serve": "a board",
    "rkllm-mcp bench": "a measurement of minutes: tests/surfaces/cli/test_bench.py",
    "rkllm-mcp config add-key --tenant": "a tenant: tests/surfaces/cli/test_main.py",
    "rkllm-mcp service link": "a service that runs: tests/surfaces/cli/test_setup.py",
    "rkllm-mcp service keys --revoke": "a linked device: tests/surfaces/cli/test_setup.py",
    "rkllm-mcp service": "systemd: tests/end_to_end/test_systemd.py",
    "rkllm-mcp update": "the network: tests/test_packaging.py",
    "rkllm-mcp install": "the network: tests/test_installation.py, tests/test_packaging.py",
    "rkllm-mcp restore": "asks a person: tests/surfaces/cli/test_backup.py",
    "rkllm-mcp uninstall": "asks a person: tests/surfaces/cli/test_maintenance.py, tests/test_packaging.py",
    "rkllm-mcp --install-completion": "changes a person's shell",
}


def test_every_command_of_the_pages_is_typed_in_the_walk_or_named_with_the_reason() -> None:
    shown = {command for page in PAGES for command in listed(page)}
    assert sorted(command for command in shown - WALK.keys() if not command.startswith(tuple(NOT_TYPED))) == []
    assert sorted(WALK.keys() - shown) == []
    assert [start for start in NOT_TYPED if not any(command.startswith(start) for command in shown)] == []


def test_a_place_that_a_reason_names_exists() -> None:
    places = {word.strip(",") for reason in NOT_TYPED.values() for word in reason.split() if word.startswith("tests/")}
    assert [place for place in sorted(places) if not (REPOSITORY / place).exists()] == []


def test_the_walk_of_a_newcomer_has_no_step_that_fails(reader: dict[str, str], tmp_path: Path) -> None:
    home = tmp_path
    cast("Any", pdfmetrics).registerFont(UnicodeCIDFont("HeiseiMin-W3"))
    handbook = Canvas(str(home / "handbook.pdf"))
    handbook.setFont("HeiseiMin-W3", 12)
    handbook.drawString(72, 720, "リモートワーク手当の金額は月額5,000円です。")
    handbook.save()
    (home / "tools.json").write_text("[]", "utf-8")
    (home / "answer.txt").write_text("Hello.", "utf-8")
    variables = {**reader, "HOME": str(home)}
    for command, code in WALK.items():
        done = subprocess.run(
            ["bash", "-euc", command],
            cwd=home,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        said = f"{command}\n{done.stdout}{done.stderr}"
        assert done.returncode == code, said
        assert "Traceback" not in said
        # A reader of an installed program has no clone.
        assert str(REPOSITORY) not in said, said
