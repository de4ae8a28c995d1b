"""The commands that the pages list, as a newcomer meets them: an empty home, the installed wheel, no clone."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas

from tests.support.command_line import fault_of
from tests.support.documents import listed
from tests.support.shared import REPOSITORY

PAGES = sorted(
    str(path.relative_to(REPOSITORY))
    for path in [REPOSITORY / "README.md", *REPOSITORY.glob("docs/**/*.md")]
    if not path.name.endswith(".ja.md") and path.name != "cli.md"
)
# What is typed in this order, and the exit code. What cannot work in an empty home says what is missing.
WALK: Mapping[str, int] = {
    "rkllm-mcp setup": 2,  # no terminal
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
    "rkllm-mcp config add-key --tenant kitchen": 0,
    "rkllm-mcp service keys --revoke ID": 2,
    "rkllm-mcp service link": 0,
    "rkllm-mcp boards status": 2,
    "rkllm-mcp runtime use PATH": 3,
    "rkllm-mcp models add ~/model.gguf": 3,
    "rkllm-mcp models add ~/model.rkllm": 3,
    "rkllm-mcp models remove qwen3-0.6b": 2,
    "rkllm-mcp models convert FOLDER": 2,
    "rkllm-mcp models convert ~/Qwen2.5-1.5B-Instruct --platform RK3588 --out models": 2,
    "rkllm-mcp --model qwen3-1.7b serve": 3,
    "rkllm-mcp-knowledge --embedder cpu:~/models/minilm": 2,
    "rkllm-mcp bench prefill": 0,
    "rkllm-mcp run -f photo.jpg what is on this picture": 2,
    "rkllm-mcp backup ~/board.tar.gz": 0,
    "rkllm-mcp restore ~/board.tar.gz": 2,  # no terminal
    "rkllm-mcp uninstall": 2,  # no terminal
    "rkllm-mcp servers add greenhouse -- python3 ~/greenhouse/server.py": 0,
    "rkllm-mcp setup --undo": 0,
}
# The words with which an error ends that tells the reader what to do.
SAID: Mapping[str, str] = {
    "rkllm-mcp setup": "run it in a terminal, or with --yes",
    "rkllm-mcp status": "rkllm-mcp serve",
    "rkllm-mcp service keys --revoke ID": "'rkllm-mcp service keys' lists them",
    "rkllm-mcp boards status": 'write [[boards]] with address = "192.168.1.11:8080" for each',
    "rkllm-mcp runtime use PATH": "Check the path and its rights.",
    "rkllm-mcp models add ~/model.gguf": "Name a readable .rkllm or GGUF file.",
    "rkllm-mcp models add ~/model.rkllm": "Name a readable .rkllm or GGUF file.",
    "rkllm-mcp models remove qwen3-0.6b": "remove it by hand",
    "rkllm-mcp models convert FOLDER": "rkllm-toolkit/packages",
    "rkllm-mcp models convert ~/Qwen2.5-1.5B-Instruct --platform RK3588 --out models": "rkllm-toolkit/packages",
    "rkllm-mcp --model qwen3-1.7b serve": "rkllm-mcp models pull qwen3-1.7b",
    "rkllm-mcp-knowledge --embedder cpu:~/models/minilm": "Give cpu:FOLDER with tokenizer.json",
    "rkllm-mcp run -f photo.jpg what is on this picture": "No such file: photo.jpg",
    "rkllm-mcp restore ~/board.tar.gz": "Say it with --yes",
    "rkllm-mcp uninstall": "Say it with --yes",
}
# What no test types as it is printed, by its beginning: why, and where the same is tested with what it needs.
NOT_TYPED: Mapping[str, str] = {
    "sudo ": "root: tests/surfaces/systemd, tests/diagnostics/test_clocks.py, scripts/arm64",
    "scripts/conformance": "the suite of another project, from npm: tests/conformance",
    ".venv/bin/python": "a measurement of minutes, in a clone",
    "python -m mcp_servers.knowledge": "runs until it is stopped: tests/mcp_servers/knowledge/test_program.py",
    "curl ": "a service with a key, or of another machine: tests/surfaces/http",
    "./install.sh": "the network: tests/test_packaging.py",
    "rkllm-mcp runtime pull": "the network: tests/models/test_runtimes.py",
    "rkllm-mcp models pull": "the network: tests/models/test_models_pull_cpu.py",
    "rkllm-mcp knowledge model universal": "the network: tests/models/test_embedders.py",
    'rkllm-mcp run "How warm': "a folder on the board: the block above it on its page",
    "rkllm-mcp serve": "runs until it is stopped: the blocks of docs/start.md",
    "rkllm-mcp bench prefill --beside": "another host: tests/surfaces/cli/test_bench.py",
    "rkllm-mcp tune": "a board: tests/diagnostics/test_clocks.py",
    "rkllm-mcp report": "a measurement of minutes: tests/diagnostics/test_report.py",
    "rkllm-mcp bench": "a measurement of minutes: tests/surfaces/cli/test_bench.py",
    "rkllm-mcp service": "systemd: tests/end_to_end/test_systemd.py",
    "rkllm-mcp update": "the network: tests/test_packaging.py",
    "rkllm-mcp install": "the network: tests/test_installation.py, tests/test_packaging.py",
    "rkllm-mcp voice": "a program for speech: tests/surfaces/cli/test_voice.py",
    "rkllm-mcp --install-completion": "changes a person's shell",
}


def test_every_command_of_the_pages_is_typed_in_the_walk_or_named_with_the_reason() -> None:
    shown = {command for page in PAGES for command in listed(page)}
    assert sorted(command for command in shown - WALK.keys() if not command.startswith(tuple(NOT_TYPED))) == []
    assert sorted(WALK.keys() - shown) == []
    assert [command for command, code in WALK.items() if code and command not in SAID] == []
    assert [start for start in NOT_TYPED if not any(command.startswith(start) for command in shown)] == []


def test_every_command_of_the_pages_exists_with_its_options() -> None:
    """Those that no test types as well, and those of the Japanese pages and inside sentences."""
    pages = [REPOSITORY / "README.md", REPOSITORY / "README.ja.md", *REPOSITORY.glob("docs/**/*.md")]
    mentions = {
        (page.name, match[1])
        for page in pages
        for match in re.finditer(
            r"(?:^    (?:\$ |sudo )?|`(?:sudo )?|^\$ )rkllm-mcp((?: [^\s;,()。（）、`|]+)+)",
            page.read_text("utf-8"),
            re.MULTILINE,
        )
    }
    assert len(mentions) > 300
    faults = {mention: fault_of("`", mention[1].split()) for mention in mentions}
    # What follows 'models convert' is read by the vendor's toolkit.
    assert {m: fault for m, fault in faults.items() if fault and not m[1].startswith(" models convert")} == {}


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
        assert SAID.get(command, "") in said
        # A reader of an installed program has no clone.
        assert str(REPOSITORY) not in said, said
