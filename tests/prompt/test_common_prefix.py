"""A common prefix of token ids."""

from __future__ import annotations

import pytest

from rkllm_mcp.generation import common_prefix


@pytest.mark.parametrize(
    ("left", "right", "shared"),
    [([], [], 0), ([1], [], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 2], 2), ([1, 9, 3], [1, 2, 3], 1), ([9], [1], 0)],
)
def test_a_common_prefix_is_counted(left: list[int], right: list[int], shared: int) -> None:
    assert common_prefix(left, right) == shared
    assert common_prefix(right, left) == shared
