"""The tables of CONTRIBUTING.md name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
ROWS = [
    row
    for row in (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8").splitlines()
    if row.startswith("| ") and "`" in row and " | " in row
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row).split("|")[1].strip())
def test_each_file_of_a_change_exists(row: str) -> None:
    named = [
        name
        for name in re.findall(r"`([^`]+)`", row.partition("|")[2].partition("|")[2])
        if re.search(r"/|\.\w+$", name)
    ]
    names = [name for name in named if not name.startswith("scripts/fix")]
    assert names != []
    folders = (REPOSITORY, REPOSITORY / "rkllm_mcp")
    patterns = [name.replace("NAME", "*") for name in names]
    assert [name for name in patterns if not any(any(folder.glob(name.rstrip("/"))) for folder in folders)] == []
