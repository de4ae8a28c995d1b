"""Commands come out of their frames as they went in."""

from __future__ import annotations

from array import array

import pytest

from rkllm_mcp.generation import GenerationOptions, ImageInput, ImageTags, Input, TokenInput
from rkllm_mcp.runtime.abi.common import RKLLM_INFER_GET_LOGITS, LoadParameters
from rkllm_mcp.runtime.frames import (
    CallCommand,
    FrameReader,
    OutputSelection,
    RunCommand,
    pack,
    pack_run,
    unpack,
    unpack_load,
    unpack_run,
)
from rkllm_mcp.sampling import Sampling

VALUES = array("f", [0.5, -0.25, 2.0, 8.0])
PROMPTS: list[Input] = [
    TokenInput(array("i", [0, 1, 2**31 - 1])),
    ImageInput("<image>何?", VALUES, 2, images=1, width=392, height=448, tags=ImageTags("<s>", "</s>", "<p>")),
    ImageInput("<image><image>", VALUES, 1, images=2),
]


def body_of(frame: bytes) -> bytes:
    ((_, body),) = FrameReader().feed(frame)
    return body


@pytest.mark.parametrize("tags", [None, ImageTags("<s>", "</s>", "<p>")])
def test_a_load_carries_every_parameter(tags: ImageTags | None) -> None:
    command = LoadParameters(
        "/モデル.rkllm",
        "/usr/lib/librkllmrt.so",
        sampling=Sampling(0.7, 1, mirostat=2),
        cpus=(4, 5, 6, 7),
        keep_tokens=9,
        image_tags=tags,
        check_memory=False,
    )
    assert unpack_load(body_of(pack(command))) == command


@pytest.mark.parametrize(
    "command",
    [
        *(RunCommand(9, prompt, GenerationOptions(64)) for prompt in PROMPTS),
        RunCommand(
            1,
            PROMPTS[0],
            GenerationOptions(
                8,
                sampling=Sampling(0.5, 3, 0.25, 1.5, 0.125, -0.5),
                lora="legal",
                save_prompt_cache="/tmp/前置き",
            ),
            is_timed=True,
            keeps_history=True,
        ),
        RunCommand(
            2,
            PROMPTS[0],
            GenerationOptions(0),
            rows=OutputSelection("all", (3, 7), RKLLM_INFER_GET_LOGITS),
            clears_before=True,
            clears_after=True,
        ),
    ],
)
def test_a_run_carries_its_input_and_its_switches(command: RunCommand) -> None:
    assert unpack_run(body_of(pack_run(command))) == command


def test_a_token_that_is_not_a_32_bit_number_is_refused() -> None:
    with pytest.raises(OverflowError):
        pack_run(RunCommand(1, TokenInput([2**31]), GenerationOptions(1)))


def test_a_call_carries_its_arguments() -> None:
    command = CallCommand("load_lora", {"path": "/法.rkllm", "name": "legal", "scale": 0.5})
    assert unpack(CallCommand, body_of(pack(command))) == command
