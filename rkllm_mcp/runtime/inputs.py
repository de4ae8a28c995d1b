"""Check inputs, and convert them to the struct of rkllm_run.

``check_input`` runs in the host and raises; ``native_input`` runs in the worker.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from ctypes import c_float, c_int32
from typing import Any, NamedTuple

from rkllm_mcp.errors import InputRefusedError, PromptTooLongError, UnsupportedError
from rkllm_mcp.generation import IMAGE_MARK, ImageInput, Input, TokenInput
from rkllm_mcp.runtime.abi.common import Abi


class NativeInput(NamedTuple):
    """An RKLLMInput and the memory it points to, which must live as long as the run."""

    struct: Any
    memory: Any


def as_input(prompt: Input | Sequence[int]) -> Input:
    """Return the input, a plain sequence as token ids; an InputRefusedError for an id that is not a 32-bit integer."""
    if isinstance(prompt, ImageInput):
        return prompt
    tokens = prompt.tokens if isinstance(prompt, TokenInput) else prompt
    try:
        return TokenInput(array("i", tokens))
    except (OverflowError, TypeError) as error:
        raise InputRefusedError(f"the prompt is no sequence of token ids: {error}; encode the text first") from None


def token_count(prompt: Input) -> int:
    """Return the tokens of the context that an input certainly takes; of an image input those of its images."""
    return len(prompt.tokens) if isinstance(prompt, TokenInput) else prompt.images * prompt.tokens_per_image


def check_input(prompt: Input, context_tokens: int) -> None:
    """Refuse inputs that no runtime can run.

    Raises:
        InputRefusedError: it is empty, or its parts do not fit each other.
        PromptTooLongError: it leaves no room for a single token. Some runtimes die of that instead of refusing it.
    """
    if isinstance(prompt, TokenInput):
        _require(bool(prompt.tokens), "the prompt has no tokens")
    else:
        _require(bool(prompt.text), "the prompt has no text")
        require_c_text(prompt.text)
        _require(prompt.values.typecode == "f", "embeddings have to be float32; use array('f', values)")
        rows = token_count(prompt)
        fits = rows > 0 and bool(prompt.values) and len(prompt.values) % rows == 0
        _require(fits, f"{len(prompt.values)} floats are not {rows} rows of one width; check the counts")
        marks = prompt.text.count(IMAGE_MARK)
        fits = marks == prompt.images
        _require(fits, f"the text has {marks} {IMAGE_MARK} for {prompt.images} images; write one for each")
    tokens = token_count(prompt)
    if tokens >= context_tokens:
        raise PromptTooLongError(tokens, context_tokens - 1)


def require_c_text(*texts: str) -> None:
    """Refuse text that cannot be passed to C."""
    for text in texts:
        _require("\0" not in text, "the text holds a NUL character, where C would end it; leave it out")
        # Half of a pair: an undecodable byte of a file or a terminal
        is_encodable = text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
        _require(is_encodable, "the text holds half a character (a surrogate), which is no UTF-8; leave it out")


def check_support(prompt: Input, abi: Abi, version: str) -> None:
    """Refuse inputs with values that this runtime has no field for and would ignore."""
    if isinstance(prompt, ImageInput) and prompt.images > 1 and not abi.has_image_sizes:
        raise UnsupportedError("inputs of several images", version, "1.2.1")


def native_input(prompt: Input, abi: Abi) -> NativeInput:
    """Return the struct of an input."""
    if isinstance(prompt, TokenInput):
        tokens = prompt.tokens
        ids = tokens if isinstance(tokens, array) else array("i", tokens)
        memory = (c_int32 * len(ids)).from_buffer(ids)
        return NativeInput(abi.new_input(memory), memory)
    rows = (c_float * len(prompt.values)).from_buffer(prompt.values)
    return NativeInput(abi.new_image_input(prompt, rows), rows)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InputRefusedError(otherwise)
