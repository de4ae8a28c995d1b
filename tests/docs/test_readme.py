"""The commands that README.md and docs/ print are typed in an empty home, with the installed wheel and no board."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.documents import Command, blocks, commands, left_to_the_reader, links, programs
from tests.support.installed import need_npm
from tests.support.shared import REPOSITORY

PAGES = sorted(
    str(path.relative_to(REPOSITORY)) for path in [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")]
)
TYPED = [command for page in PAGES if not page.endswith(".ja.md") for command in commands(page)]
PROGRAMS = [program for page in PAGES if not page.endswith(".ja.md") for program in programs(page)]
# A first npx downloads a server, and a machine under load takes its time; nothing here is about speed.
PATIENCE_S = 180


def folder_of(command: str, reader: dict[str, str]) -> Path:
    """Where a command is typed: those of a clone in the clone, the others in an empty home."""
    return REPOSITORY if command.startswith(("scripts/", "bench/")) or "-m bench" in command else Path(reader["HOME"])


@pytest.fixture(scope="module")
def outcomes() -> dict[str, subprocess.CompletedProcess[str]]:
    """What each command has come to: several pages print the same one."""
    return {}


@pytest.mark.parametrize("command", TYPED, ids=[f"{c.where} {c.typed.splitlines()[0][:60]}" for c in TYPED])
def test_a_printed_command_does_what_the_page_says(
    command: Command, reader: dict[str, str], outcomes: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    if "notes.txt" in command.typed:
        need_npm("@modelcontextprotocol/server-filesystem")
    # That page is read after ``setup``: a model is configured.
    configured = {"RKLLM_MCP_MODEL__NAME": "demo"} if command.where.startswith("docs/troubleshooting.md") else {}
    if command.typed not in outcomes:
        outcomes[command.typed] = subprocess.run(
            ["bash", "-euc", command.typed],
            cwd=folder_of(command.typed, reader),
            env={**reader, **configured},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    done = outcomes[command.typed]
    assert done.returncode == 0, f"{command.where}: {command.typed}\n{done.stdout}"
    assert command.is_printed_as(done.stdout), f"{command.where}: {command.typed}\n{done.stdout}"


@pytest.mark.parametrize(("program", "where"), PROGRAMS, ids=[where for _, where in PROGRAMS])
def test_a_printed_program_runs(program: str, where: str, reader: dict[str, str], programs_of_the_wheel: Path) -> None:
    # That page is read after ``setup`` as well.
    configured = {"RKLLM_MCP_MODEL__NAME": "demo"} if where.startswith("docs/clients.md") else {}
    done = subprocess.run(
        [programs_of_the_wheel / "python", "-W", "error", "-c", program],
        cwd=reader["HOME"],
        env={**reader, **configured},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{where}\n{done.stderr}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.endswith(".ja.md")])
def test_both_languages_print_the_same_blocks_in_the_same_order(page: str) -> None:
    english = [block[:3] for block in blocks(page.replace(".ja.md", ".md"))]
    japanese = [block[:3] for block in blocks(page)]
    assert english == japanese


def test_what_needs_a_board_is_a_short_list() -> None:
    assert left_to_the_reader("README.md") == [
        "./install.sh",
        "rkllm-mcp setup",
    ]
    assert [line for page in PAGES if not page.startswith("README") for line in left_to_the_reader(page)] == []


def test_the_pages_link_to_files_that_exist() -> None:
    missing = [f"{page}: {target}" for page in PAGES for target in links(page) if not target.exists()]
    assert missing == []
