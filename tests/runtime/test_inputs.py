"""Every kind of input reaches the library as the family wants it; what cannot work is refused with what to change."""

from __future__ import annotations

from array import array
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from rkllm_mcp.errors import InputRefusedError, PromptTooLongError, RunRejectedError, UnsupportedError
from rkllm_mcp.generation import GenerationOptions, ImageInput, ImageTags, Input, Token, TokenInput
from rkllm_mcp.runtime.engine import Engine, open_engine
from rkllm_mcp.runtime.inputs import as_input, check_input
from rkllm_mcp.sampling import Sampling
from tests.support.emulator import IM_END, Emulator, prompt_of

pytestmark = pytest.mark.anyio

HEAD = "speed flat\ncontext 4096\nhidden 8\ntemplate chatml"
RULES = "rule\nuser (.+)\nsay $1"
IMAGE = array("f", [0.5] * 16)
TAGS = ImageTags("[", "]", "#")


async def said(engine: Engine, prompt: Input, **options: Any) -> str:
    options.setdefault("stop_ids", frozenset({IM_END}))
    with anyio.fail_after(60):
        async with aclosing(engine.generate(prompt, GenerationOptions(**options))) as run:
            return "".join([item.text async for item in run if isinstance(item, Token)])


def runs_of(emulator: Emulator) -> list[dict[str, Any]]:
    return [call["args"] for call in emulator.calls() if call["call"] == "rkllm_run"]


async def test_several_images_are_refused_by_1_2_0_with_the_release_that_takes_them(emulator: Emulator) -> None:
    if emulator.version != "1.2.0":
        return
    two = ImageInput("<image><image>", IMAGE, 1, images=2)
    async with open_engine(emulator.settings(RULES, HEAD)) as engine:
        with pytest.raises(UnsupportedError, match=r"1\.2\.0 has no inputs of several images; it takes 1\.2\.1"):
            await said(engine, two)
        assert await said(engine, TokenInput(prompt_of("next"))) == "next<|im_end|>"


async def test_an_image_reaches_the_library_with_its_counts_its_size_and_its_tags(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RKLLM_EMULATOR_LOG", str(emulator.log))
    is_newest = emulator.version == "1.3.0"
    settings = emulator.settings(RULES, HEAD, image_tags=None if is_newest else TAGS)
    image = ImageInput("<image>what?", IMAGE, 2, width=392, height=448, tags=TAGS if is_newest else None)
    async with open_engine(settings) as engine:
        assert (await said(engine, image)).endswith("what?<|im_end|>")
        assert await said(engine, TokenInput(prompt_of("next"))) == "next<|im_end|>"
        assert await engine.kv_cache_size() != 0
    first, second = runs_of(emulator)
    given = first["input"]["multimodal_input"]
    assert (given["prompt"], given["n_image_tokens"]) == ("<image>what?", 2)
    if emulator.version != "1.2.0":
        assert (given["n_image"], given["image_width"], given["image_height"]) == (1, 392, 448)
    if is_newest:
        assert [given[f"image_{part}"] for part in ("start", "end", "content")] == ["[", "]", "#"]
    # 1.3.0 loses memory with each image unless history is kept; what was kept is cleared.
    assert (first["infer"]["keep_history"], second["infer"]["keep_history"]) == (int(is_newest), 0)
    called = [call["call"] for call in emulator.calls() if call["call"] in ("rkllm_run", "rkllm_clear_kv_cache")]
    assert called == ["rkllm_clear_kv_cache", "rkllm_run", "rkllm_clear_kv_cache", "rkllm_run"]


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        (TokenInput([]), "the prompt has no tokens"),
        (ImageInput("", IMAGE, 2), "the prompt has no text"),
        (ImageInput("<image>\0b", IMAGE, 2), "holds a NUL character"),
        (ImageInput("<image>\udc80", IMAGE, 2), "holds half a character"),
        (ImageInput("<image>", array("d", [1.0]), 1), "have to be float32"),
        (ImageInput("<image>", array("f", [1.0] * 7), 2), "7 floats are not 2 rows of one width"),
        (ImageInput("", array("f"), 0, images=0), "the prompt has no text"),
        (ImageInput("<image>", array("f"), 0), "0 floats are not 0 rows"),
        (ImageInput("no mark", IMAGE, 2), "the text has 0 <image> for 1 images"),
        (ImageInput("<image>", IMAGE, 3), "16 floats are not 3 rows"),
    ],
)
def test_an_input_whose_parts_do_not_fit_is_refused_with_what_to_change(prompt: Input, why: str) -> None:
    with pytest.raises(InputRefusedError, match=why):
        check_input(prompt, 4096)


@pytest.mark.parametrize("tokens", [["a"], [2**31], [1.5]])
def test_a_prompt_that_is_not_a_sequence_of_ids_is_refused(tokens: Any) -> None:
    with pytest.raises(InputRefusedError, match="no sequence of token ids"):
        as_input(tokens)


@pytest.mark.parametrize(
    "prompt",
    [TokenInput([1] * 8), ImageInput("<image>", array("f", [1.0] * 8), 8)],
    ids=lambda prompt: type(prompt).__name__,
)
def test_a_prompt_without_room_for_an_answer_is_refused(prompt: Input) -> None:
    check_input(prompt, 9)
    with pytest.raises(PromptTooLongError):
        check_input(prompt, 8)


async def test_a_value_of_a_wrong_type_is_an_error_of_its_run_only(newest: Emulator) -> None:
    wrong: Any = "hot"
    async with open_engine(newest.settings(RULES)) as engine:
        with pytest.raises(RunRejectedError, match="must be real number"):
            await said(engine, TokenInput(prompt_of("x")), sampling=Sampling(temperature=wrong))
        wrong = object()
        with pytest.raises(InputRefusedError, match="an option is of a wrong type"):
            await said(engine, TokenInput(prompt_of("x")), sampling=Sampling(temperature=wrong))
        assert await said(engine, TokenInput(prompt_of("x")), max_new_tokens=2**40) == "x<|im_end|>"
        assert engine.supervisor.restarts == 0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"max_new_tokens": 0}, "an answer of 0 tokens is none"),
        ({"max_new_tokens": "3"}, "max_new_tokens has to be of type int, not '3'"),
        ({"sampling": 0.5}, r"sampling has to be of type Sampling, not 0\.5"),
        ({"stop_ids": 5}, "stop_ids has to be of type frozenset, not 5"),
        ({"save_prompt_cache": "/nowhere/x.bin"}, "no folder for /nowhere/x.bin"),
        ({"lora": "legal"}, r"no LoRA adapter 'legal' is loaded \(there: none\)"),
    ],
)
async def test_an_option_that_cannot_work_is_refused_with_what_to_change(
    newest: Emulator, options: dict[str, Any], why: str
) -> None:
    async with open_engine(newest.settings(RULES)) as engine:
        with pytest.raises(InputRefusedError, match=why):
            await said(engine, TokenInput(prompt_of("x")), **options)
