"""What a consumer asks for becomes the command of a run; what cannot work is refused here, before anything waits.

Which runs begin and end with an empty KV cache is decided here too: evaluations, because rows come for evaluated tokens
only, and prompts of embeddings, because reuse of those was wrong in some releases (rknn-llm #278, #373).
"""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import get_args

from rkllm_mcp.errors import InputRefusedError
from rkllm_mcp.generation import EmbeddingInput, GenerationOptions, ImageInput, Input, Sampling
from rkllm_mcp.runtime.abi.common import (
    RKLLM_INFER_GET_LAST_HIDDEN_LAYER,
    RKLLM_INFER_GET_LOGITS,
    Abi,
    InferParameters,
    require,
)
from rkllm_mcp.runtime.commands import RowsWanted, RunCommand, WhichRows
from rkllm_mcp.runtime.evaluations import Output
from rkllm_mcp.runtime.inputs import check_support

# 0 and less keeps the limit that the model was loaded with: how a run that generates nothing counts is not documented,
# and one that goes on all the same is ended when it does.
_NO_LIMIT_OF_ITS_OWN = 0
# An int32 of the library
_MOST_TOKENS = 2**31 - 1

# What a wrong type would break far from where it was written: a single text is a sequence of stop strings, too.
_OPTION_TYPES: dict[str, tuple[type, ...]] = {
    "max_new_tokens": (int,),
    "stop_ids": (frozenset, set),
    "sampling": (Sampling, NoneType),
    "stop_strings": (tuple, list),
    "save_prompt_cache": (str, PathLike, NoneType),
    "pause_after_tokens": (int,),
}


def generation_command(run: int, prompt: Input, options: GenerationOptions) -> RunCommand:
    """The command of a generation.

    Raises:
        InputRefusedError: an option that cannot work.
    """
    for name, types in _OPTION_TYPES.items():
        if not isinstance(value := getattr(options, name), types):
            raise InputRefusedError(f"{name} has to be of type {types[0].__name__}, not {value!r}")
    if options.max_new_tokens < 1:
        raise InputRefusedError(f"an answer of {options.max_new_tokens} tokens is none; ask for 1 or more")
    if options.pause_after_tokens < 0:
        raise InputRefusedError(f"no run pauses after {options.pause_after_tokens} tokens; 0 is for never")
    if not all(options.stop_strings):
        raise InputRefusedError("an empty stop string would end every answer at once; leave it out")
    path = options.save_prompt_cache
    if path is not None and not Path(path).expanduser().absolute().parent.is_dir():
        raise InputRefusedError(f"there is no folder for {path}; make it first")
    is_fresh = isinstance(prompt, (EmbeddingInput, ImageInput)) and not options.keep_history
    infer = InferParameters(
        min(options.max_new_tokens, _MOST_TOKENS),
        options.sampling,
        lora=options.lora,
        save_prompt_cache=None if path is None else str(Path(path).expanduser().absolute()),
        keep_history=options.keep_history,
    )
    return RunCommand(
        run,
        prompt,
        infer,
        pause_after=options.pause_after_tokens,
        clears_before=is_fresh and not options.resume,
        clears_after=is_fresh and not options.pause_after_tokens,
    )


def evaluation_command(run: int, prompt: Input, output: Output, wanted: RowsWanted, lora: str | None) -> RunCommand:
    """The command of an evaluation.

    Raises:
        InputRefusedError: an output or rows that there are not, or a column that no row has.
    """
    for given, known in ((output, get_args(Output)), (wanted.which, get_args(WhichRows))):
        if given not in known:
            raise InputRefusedError(f"there is no {given!r} to evaluate; there are {', '.join(known)}")
    for column in wanted.columns:
        if not _is_column(column):
            raise InputRefusedError(f"there is no column {column!r}; columns are numbers that begin with 0")
    mode = RKLLM_INFER_GET_LOGITS if output == "logits" else RKLLM_INFER_GET_LAST_HIDDEN_LAYER
    infer = InferParameters(_NO_LIMIT_OF_ITS_OWN, mode=mode, lora=lora)
    return RunCommand(run, prompt, infer, rows=wanted, clears_before=True, clears_after=True)


def _is_column(number: object) -> bool:
    return isinstance(number, int) and number >= 0


def fitted(command: RunCommand, abi: Abi, version: str) -> RunCommand:
    """The command as the runtime at hand needs it.

    Raises:
        UnsupportedError: the runtime lacks something that it takes.
    """
    check_support(command.prompt, abi, version)
    if command.pause_after:
        require(abi, version, "callback_returns_int")
    if isinstance(command.prompt, ImageInput) and command.clears_after and abi.leaks_images:
        # 1.3.0 loses 2 MB with each image unless history is kept, and is told to forget it (rknn-llm #529).
        return replace(command, infer=replace(command.infer, keep_history=True))
    return command
