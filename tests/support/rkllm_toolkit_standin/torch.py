"""The two things of torch that a caller of ``get_logits`` touches: a tensor to give, logits to take the largest of."""

from __future__ import annotations


class Tensor:
    """Token ids, one row for each prompt."""

    def __init__(self, rows: list[list[int]]) -> None:
        self._rows = rows

    def tolist(self) -> list[list[int]]:
        return self._rows


class Logits:
    """Logits of one prompt: ``logits[0][-1].argmax()`` is the likeliest next token."""

    def __init__(self, likeliest: int) -> None:
        self._likeliest = likeliest

    def __getitem__(self, index: int) -> Logits:
        assert index in {0, -1}
        return self

    def argmax(self) -> int:
        return self._likeliest


def tensor(rows: list[list[int]]) -> Tensor:
    return Tensor(rows)
