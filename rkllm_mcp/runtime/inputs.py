"""Check inputs and options, and make them commands in the host and structs of rkllm_run in the worker."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from ctypes import c_float, c_int32
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args

from rkllm_mcp.errors import InputRefusedError, PromptTooLongError, UnsupportedError
from rkllm_mcp.generation import IMAGE_MARK, GenerationOptions, ImageInput, Input, Sampling, TokenInput
from rkllm_mcp.runtime.abi.common import RKLLM_INFER_GET_LAST_HIDDEN_LAYER, RKLLM_INFER_GET_LOGITS, Abi
from rkllm_mcp.runtime.frames import OutputSelection, RunCommand, WhichRows

Output: TypeAlias = Literal["hidden", "logits"]

# 0 keeps the limit that the model was loaded with: the effect of a limit on a run without generation is undocumented,
# and a run that generates is aborted.
_NO_LIMIT_OF_ITS_OWN = 0

# A wrong type would fail far from its origin.
_OPTION_TYPES: dict[str, tuple[type, ...]] = {
    "max_new_tokens": (int,),
    "stop_ids": (frozenset, set),
    "sampling": (Sampling, NoneType),
    "save_prompt_cache": (str, PathLike, NoneType),
}


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
    tokens = token_count(prompt)
    if isinstance(prompt, TokenInput):
        if not prompt.tokens:
            raise InputRefusedError("the prompt has no tokens")
    else:
        if not prompt.text:
            raise InputRefusedError("the prompt has no text")
        require_c_text(prompt.text)
        if prompt.values.typecode != "f":
            raise InputRefusedError("embeddings have to be float32; use array('f', values)")
        values, marks = len(prompt.values), prompt.text.count(IMAGE_MARK)
        if tokens <= 0 or not values or values % tokens:
            raise InputRefusedError(f"{values} floats are not {tokens} rows of one width; check the counts")
        if marks != prompt.images:
            problem = f"the text has {marks} {IMAGE_MARK} for {prompt.images} images; write one for each"
            raise InputRefusedError(problem)
    if tokens >= context_tokens:
        raise PromptTooLongError(tokens, context_tokens - 1)


def require_c_text(*texts: str) -> None:
    """Refuse text that cannot be passed to C."""
    for text in texts:
        if "\0" in text:
            raise InputRefusedError("the text holds a NUL character, where C would end it; leave it out")
        # Half of a pair: an undecodable byte of a file or a terminal
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise InputRefusedError("the text holds half a character (a surrogate), which is no UTF-8; leave it out")


def fit_command(command: RunCommand, abi: Abi, version: str) -> RunCommand:
    """Return the command adapted to this runtime; refuse one that takes something that the runtime lacks."""
    if not isinstance(command.prompt, ImageInput):
        return command
    if command.prompt.images > 1 and not abi.has_image_sizes:
        # It has no field for their number, and would ignore it.
        raise UnsupportedError("inputs of several images", version, "1.2.1")
    # 1.3.0 leaks 2 MB with each image of a run without history (rknn-llm #529); it is cleared afterwards.
    return replace(command, keeps_history=True) if command.clears_after and abi.leaks_images else command


def native_input(prompt: Input, abi: Abi) -> NativeInput:
    """Return the struct of an input."""
    if isinstance(prompt, TokenInput):
        tokens = prompt.tokens
        ids = tokens if isinstance(tokens, array) else array("i", tokens)
        memory = (c_int32 * len(ids)).from_buffer(ids)
        return NativeInput(abi.new_input(memory), memory)
    rows = (c_float * len(prompt.values)).from_buffer(prompt.values)
    return NativeInput(abi.new_input(rows, prompt), rows)


def generation_command(run: int, prompt: Input, options: GenerationOptions) -> RunCommand:
    """Check the options of a generation and return its command."""
    for name, types in _OPTION_TYPES.items():
        if not isinstance(value := getattr(options, name), types):
            raise InputRefusedError(f"{name} has to be of type {types[0].__name__}, not {value!r}")
    if options.max_new_tokens < 1:
        raise InputRefusedError(f"an answer of {options.max_new_tokens} tokens is none; ask for 1 or more")
    path = options.save_prompt_cache
    if path is not None and not Path(path).expanduser().absolute().parent.is_dir():
        raise InputRefusedError(f"there is no folder for {path}; make it first")
    if path is not None:
        options = replace(options, save_prompt_cache=str(Path(path).expanduser().absolute()))
    is_unnamed = isinstance(prompt, ImageInput) and not prompt.digests
    return RunCommand(run, prompt, options, clears_before=is_unnamed, clears_after=is_unnamed)


def evaluation_command(
    run: int, prompt: Input, output: Output, which: WhichRows, columns: Sequence[int], lora: str | None
) -> RunCommand:
    """Check the options of an evaluation and return its command."""
    for option, choices in ((output, get_args(Output)), (which, get_args(WhichRows))):
        if option not in choices:
            raise InputRefusedError(f"there is no {option!r} to evaluate; there are {', '.join(choices)}")
    for column in cast("Sequence[object]", columns):
        if not isinstance(column, int) or column < 0:
            raise InputRefusedError(f"there is no column {column!r}; columns are numbers that begin with 0")
    mode = RKLLM_INFER_GET_LOGITS if output == "logits" else RKLLM_INFER_GET_LAST_HIDDEN_LAYER
    selection = OutputSelection(which, tuple(columns), mode)
    options = GenerationOptions(_NO_LIMIT_OF_ITS_OWN, lora=lora)
    return RunCommand(run, prompt, options, rows=selection, clears_before=True, clears_after=True)


def existing_file(path: str | PathLike[str]) -> Path:
    """Return the absolute path of a file; refuse one that does not exist."""
    file = Path(path).expanduser().absolute()
    if not file.is_file():
        raise InputRefusedError(f"there is no file {file}; correct the path")
    return file
