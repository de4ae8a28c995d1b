from __future__ import annotations

from rkllm_mcp.surfaces.table import table


def test_columns_are_aligned_and_wide_characters_count_as_two() -> None:
    assert table(("NAME", "WHAT"), [("東京", "a\nb"), ("x\x1b[2J", "")]) == "NAME  WHAT\n東京  a b\nx\n"


def test_without_rows_there_is_no_table() -> None:
    assert table(("NAME",), []) == ""
