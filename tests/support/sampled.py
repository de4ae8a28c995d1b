"""Tables of parameters that are alike: a sample of one runs by default, the whole of it with ``scripts/test --all``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")


def sampled(
    names: str,
    cases: Iterable[Case],
    *,
    every: int,
    kind: Callable[[Case], Hashable] | None = None,
    ids: Sequence[str] | Callable[[Any], str] | None = None,
) -> pytest.MarkDecorator:
    """``pytest.mark.parametrize`` whose cases belong to the tier ``matrix`` but for a sample.

    The sample has the first, the last and each ``every``-th case, so that it is spread over the table, and the first of
    each kind. It is for cases that fail alike; what guards against one particular defect is no table of such cases.

    Args:
        names: of the arguments, as pytest has them; with a comma a case has a value for each of them.
        kind: what of a case has to be in the sample once, such as its family or its format.
    """
    table = list(cases)
    seen: set[Hashable] = set()
    parameters: list[object] = []
    for number, case in enumerate(table):
        is_new = kind is not None and kind(case) not in seen
        if kind is not None:
            seen.add(kind(case))
        is_in_sample = is_new or number % every == 0 or number == len(table) - 1
        values: Any = case if "," in names else (case,)
        parameters.append(pytest.param(*values, marks=() if is_in_sample else pytest.mark.matrix))
    return pytest.mark.parametrize(names, parameters, ids=ids)
