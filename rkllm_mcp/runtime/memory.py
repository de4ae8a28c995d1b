"""Whether a model can fit into the memory that is available, asked before the runtime asks the hard way.

A load that runs out of memory fails with a line of the NPU driver, and has been seen to crash (rknn-llm #522) or to
take the rest of the board with it. The estimate is the least that loading takes, so that a model that fits is never
refused: the weights, which are as large as the file, and a small KV cache.
"""

from __future__ import annotations

from pathlib import Path

from rkllm_mcp.errors import MemoryShortError
from rkllm_mcp.runtime.abi.common import LoadParameters

MEMORY_TABLE = Path("/proc/meminfo")

# Of the models in the catalogue the one with the smallest cache per token: Qwen2.5-1.5B, 28 layers with 2 heads of 128
# for keys and values, 2 bytes each.
LEAST_CACHE_BYTES_PER_TOKEN = 28 * 2 * 128 * 2 * 2

_MB = 1_000_000


def needed_bytes(file_bytes: int, context_tokens: int) -> int:
    """The least memory that a model takes, bytes.

    Args:
        file_bytes: the size of its ``.rkllm`` file, bytes.
        context_tokens: the context window, tokens.

    The cache is not counted higher than the weights: files that small are no models of today.
    Source: our choice.
    """
    return file_bytes + min(file_bytes, context_tokens * LEAST_CACHE_BYTES_PER_TOKEN)


def available_bytes(table: Path = MEMORY_TABLE) -> int | None:
    """Memory that could be used without swapping (MemAvailable), bytes; None where the kernel does not say."""
    try:
        lines = table.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, rest = line.partition(":")
        amount = rest.split()
        if name == "MemAvailable" and amount and amount[0].isdecimal():
            return int(amount[0]) * 1024
    return None


def require_memory(load: LoadParameters, table: Path = MEMORY_TABLE) -> None:
    """Refuse a model that cannot fit; one that is not there is the runtime's business.

    Raises:
        MemoryShortError: with what it needs and what there is.
    """
    try:
        needed = needed_bytes(Path(load.model_path).stat().st_size, load.context_tokens)
    except OSError:
        return
    available = available_bytes(table)
    if available is None or needed <= available:
        return
    raise MemoryShortError(
        f"{load.model_path} needs at least {needed // _MB} MB with a context of {load.context_tokens} tokens, and "
        f"{available // _MB} MB of memory are available.",
        "End other programs or models, choose a smaller model or context_tokens, or set check_memory = false under "
        "[runtime] to try all the same.",
    )
