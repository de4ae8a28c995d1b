"""IOMMU domains: models that share a board begin in different ones.

A domain of the NPU's IOMMU addresses about 4 GB and driver 0.9.8 has sixteen of them; two models in one domain run out
of addresses long before the board runs out of memory (rknn-llm #195, #437). A model larger than a domain goes on in the
next ones (by the runtime's log, rknn-llm #62), so it gets as many as it fills.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rkllm_mcp.errors import ModelLoadError
from rkllm_mcp.runtime.settings import EngineSettings

DOMAINS = 16
DOMAIN_BYTES = 4_000_000_000


def assign_domains(sizes: Sequence[int]) -> list[int]:
    """The domain that each model begins in.

    Args:
        sizes: the models' sizes, bytes.

    Raises:
        ModelLoadError: there are not enough domains.
    """
    bases: list[int] = []
    free = 0
    for size in sizes:
        bases.append(free)
        free += max(1, -(-size // DOMAIN_BYTES))
    if free > DOMAINS:
        total_mb = sum(sizes) // 1_000_000
        raise ModelLoadError(
            f"{len(sizes)} models of {total_mb} MB need {free} IOMMU domains, and the driver has {DOMAINS}.",
            "Load fewer or smaller models at once.",
        )
    return bases


def with_domains(settings: Sequence[EngineSettings]) -> list[EngineSettings]:
    """The settings of several models for one board, each with a domain of its own; for ``open_engine`` one by one.

    Raises:
        ModelLoadError: there are not enough domains.
    """
    sizes = [_size(Path(each.model_path)) for each in settings]
    return [replace(each, base_domain_id=base) for each, base in zip(settings, assign_domains(sizes), strict=True)]


def _size(model: Path) -> int:
    try:
        return model.expanduser().stat().st_size
    except OSError:
        return 0  # the engine says that it is missing
