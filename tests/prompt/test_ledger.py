"""The ledger only grows."""

from __future__ import annotations

import pytest

from rkllm_mcp.generation import common_prefix
from rkllm_mcp.prompt.conversation import TokenLedger


def test_what_went_in_and_came_out_stays_in_order() -> None:
    ledger = TokenLedger()
    ledger.append([1, 2])
    ledger.append(iter([3]))
    assert list(ledger.ids) == [1, 2, 3]


def test_rewinding_forgets_only_what_lies_behind() -> None:
    ledger = TokenLedger()
    ledger.append([1, 2, 3])
    ledger.rewind(1)
    assert list(ledger.ids) == [1]
    with pytest.raises(ValueError, match="cannot rewind 1 tokens to 2"):
        ledger.rewind(2)


@pytest.mark.parametrize(
    ("left", "right", "shared"),
    [([], [], 0), ([1], [], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 2], 2), ([1, 9, 3], [1, 2, 3], 1), ([9], [1], 0)],
)
def test_a_common_prefix_is_counted(left: list[int], right: list[int], shared: int) -> None:
    assert common_prefix(left, right) == shared
    assert common_prefix(right, left) == shared
