"""What a model exported without its embedding table or its tokenizer asks of the host (1.3.0 on).

The table is a file of rows, one per token id, mapped and not read; the type of its numbers is the model's business,
because the library says how many bytes it wants for how many tokens. There is no tokenizer here: prompts are token ids,
and a model that has to cut text fails that run.
"""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path
from typing import Any

from rkllm_mcp.errors import ModelLoadError
from rkllm_mcp.runtime.abi.common import Abi, LoadParameters

_DONE = 0
_FAILED = -1


class EmbeddingTable:
    """The rows of a file.

    Args:
        path: the file.

    Raises:
        ModelLoadError: it cannot be read.
    """

    def __init__(self, path: str) -> None:
        try:
            with Path(path).open("rb") as file:
                self._rows = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ModelLoadError(
                f"The embedding table {path} cannot be read: {error}.", "Export it again, beside the model."
            ) from None

    def embed(self, _userdata: Any, tokens: Any, count: int, target: int | None, length: int) -> int:
        """An LLMGetEmbedCallback: copy the row of each token to ``target``, which has room for ``length`` bytes."""
        if not target or count <= 0 or length % count:
            return _FAILED
        row = length // count
        for index in range(count):
            start = tokens[index] * row
            if start < 0 or start + row > len(self._rows):
                return _FAILED
            ctypes.memmove(target + index * row, self._rows[start : start + row], row)
        return _DONE


def refuse_text(*_arguments: Any) -> int:
    """An LLMTokenizerCallback that cuts nothing."""
    return _FAILED


def callback_argument(abi: Abi, result_callback: Any, load: LoadParameters) -> Any:
    """The third argument of rkllm_init, which keeps all that it points to.

    Raises:
        ModelLoadError: the family asks the host nothing, or the table cannot be read.
    """
    if load.embedding_table is None and not load.lacks_tokenizer:
        return abi.new_callback(result_callback)
    if abi.host_callback_types is None:
        raise ModelLoadError(
            f"The runtime ({abi.name}) cannot use a model without tokenizer or embeddings.",
            "Use RKLLM 1.3.0 or newer, or export the model with both.",
        )
    tokenizer_type, embed_type = abi.host_callback_types
    tokenize = tokenizer_type(refuse_text) if load.lacks_tokenizer else tokenizer_type()
    embed = embed_type(EmbeddingTable(load.embedding_table).embed) if load.embedding_table else embed_type()
    return abi.new_callback(result_callback, tokenize, embed)
