from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rkllm_mcp.errors import ModelFileError
from rkllm_mcp.models.rkllm_header import MAGIC, FileNameHints, RkllmFile, name_hints, read_rkllm_file
from tests.support.rkllm_files import MASK, QWEN, Tensor, container, masked, string, write_rkllm

CONVERT = "Convert the original model on a PC: rkllm-mcp models convert."


@pytest.fixture
def read(tmp_path: Path) -> Callable[[bytes], RkllmFile]:
    def read(contents: bytes) -> RkllmFile:
        (tmp_path / "m.rkllm").write_bytes(contents)
        return read_rkllm_file(tmp_path / "m.rkllm")

    return read


def attempt(read: Callable[[bytes], RkllmFile], contents: bytes) -> RkllmFile | str:
    """What was read, or the sentence; any other error fails the test."""
    try:
        return read(contents)
    except ModelFileError as error:
        return str(error)


def test_the_documented_magic_is_the_masked_one_of_gguf() -> None:
    assert masked("GGUF") == MAGIC == bytes.fromhex("DAEEB336")


def test_a_header_tells_what_the_file_is(tmp_path: Path) -> None:
    path = write_rkllm(tmp_path / "model.rkllm")
    assert read_rkllm_file(path) == RkllmFile(
        path,
        path.stat().st_size,
        platform="RK3588",
        npu_cores=3,
        toolkit="1.2.3",
        context_tokens=4096,
        architecture="qwen2",
        name="Qwen2.5-1.5B-Instruct",
        eos_token_id=151645,
        token_samples=dict(enumerate(["!", '"', "#"] * 5)),
    )


QWEN3 = {
    "general.architecture": "qwen3",
    "qwen3.block_count": 28,
    "qwen3.embedding_length": 1024,
    "qwen3.attention.head_count": 16,
    "qwen3.attention.head_count_kv": 8,
    "qwen3.attention.key_length": 128,
    "qwen3.attention.value_length": 128,
}


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        (QWEN3, 112 * 1024),
        # Without lengths of their own, heads share the width of the model: Qwen2.5-1.5B.
        (
            {
                "general.architecture": "qwen2",
                "qwen2.block_count": 28,
                "qwen2.embedding_length": 1536,
                "qwen2.attention.head_count": 12,
                "qwen2.attention.head_count_kv": 2,
            },
            28 * 1024,
        ),
        ({**QWEN3, "qwen3.block_count": 0}, None),
        (
            {key.replace("qwen3", "rwkv7"): value for key, value in QWEN3.items()} | {"general.architecture": "rwkv7"},
            None,
        ),
    ],
)
def test_the_cache_of_a_token_follows_from_layers_and_heads(
    read: Callable[[bytes], RkllmFile], pairs: dict[str, object], expected: int | None
) -> None:
    assert read(container(pairs)).cache_bytes_per_token == expected


def test_some_tokens_of_the_vocabulary_are_read_within_the_known_part_of_the_mask(
    read: Callable[[bytes], RkllmFile],
) -> None:
    tokens: list[object] = [f"word{number}" for number in range(1000)]
    tokens[500] = "a token that is longer than every key that the mask is known from, and so cannot be read"
    samples = read(container({**QWEN, "tokenizer.ggml.tokens": tokens})).token_samples
    assert samples == {number: f"word{number}" for number in range(0, 1000, 10) if number != 500}


def test_a_value_is_read_within_the_part_of_the_mask_that_the_keys_reveal(read: Callable[[bytes], RkllmFile]) -> None:
    long_name = "DeepSeek-R1-Distill-Qwen-1.5B-and-then-some-words-that-nobody-needs"
    short = {"general.architecture": "qwen2", "general.name": long_name, "rkllm.platform": "rk3588"}
    assert read(container(short)).name == long_name[:20]
    assert read(container({**short, "tokenizer.ggml.eos_token_id": 1})).name == long_name[:27]
    assert read(container({**short, "qwen2.attention.layer_norm_rms_epsilon": 1e-6})).name == long_name[:38]
    assert read(container(short)).platform == "RK3588"


def test_an_unknown_key_reveals_no_part_of_the_mask(read: Callable[[bytes], RkllmFile]) -> None:
    # As long as a known key, and the same in the first twenty bytes: taken for it, the others would read as noise.
    impostor = "tokenizer.ggml.eos_tree_map"
    found = read(container({impostor: 3, **QWEN, "rkllm.something.nobody.has.heard.of.yet": "x"}))
    assert found.name is None, "the first key is the architecture, or the layout is not ours"
    first = {"general.architecture": "qwen2", impostor: 3}
    found = read(container({**first, **QWEN, "rkllm.something.nobody.has.heard.of.yet": "x"}))
    assert (found.name, found.eos_token_id) == ("Qwen2.5-1.5B-Instruct", 151645)


def test_several_ends_of_an_answer_are_the_first(read: Callable[[bytes], RkllmFile]) -> None:
    assert read(container({**QWEN, "tokenizer.ggml.eos_token_id": [7, 8]})).eos_token_id == 7


def test_another_mask_leaves_a_file_that_says_nothing(read: Callable[[bytes], RkllmFile]) -> None:
    other = MASK[:4] + bytes(reversed(MASK[4:]))
    assert read(container(mask=other)).name == "Qwen2.5-1.5B-Instruct"
    # The magic is right, the strings are not.
    strange = bytearray(container())
    strange[32:52] = bytes(20)
    found = read(bytes(strange))
    assert (found.name, found.platform, found.size_bytes) == (None, None, len(strange))


@pytest.mark.parametrize(
    ("pairs", "field"),
    [
        ({"rkllm.platform": "RK9999"}, "platform"),
        ({"rkllm.platform": 3}, "platform"),
        ({"rkllm.core_num": 4000000000}, "npu_cores"),
        ({"rkllm.core_num": "3"}, "npu_cores"),
        ({"rkllm.version": "unknown"}, "toolkit"),
        ({"rkllm.max_context": 0}, "context_tokens"),
        ({"tokenizer.ggml.eos_token_id": -0.5}, "eos_token_id"),
        ({"general.name": ""}, "name"),
    ],
)
def test_a_strange_value_is_left_out(read: Callable[[bytes], RkllmFile], pairs: dict[str, object], field: str) -> None:
    assert getattr(read(container({**QWEN, **pairs})), field) is None


@pytest.mark.parametrize(
    ("contents", "sentence"),
    [
        (b"", "is empty. Copy or download it again."),
        (bytes(5000), "begins with zeros, as a download that was broken off leaves it. Copy or download it again."),
        (MAGIC, "is cut off: it has 4 bytes. Copy or download it again."),
        (container()[:300], "is cut off: it is shorter than its header requires. Copy or download it again."),
        (
            container(tensors=[Tensor("output.weight", 1 << 31)]),
            "is cut off: it is shorter than its header requires. Copy or download it again.",
        ),
        (b"RKLLM-EMULATOR 1\n", "is a script for the emulated runtime. Use it as it is: --model PATH."),
        (b"GGUF\3\0\0\0", "is a GGUF file, which llama.cpp runs. Convert it on a PC: rkllm-mcp models convert."),
        (b"RKNN\0\0", "is an .rknn file, for vision models. Name the .rkllm file in the same folder."),
        (
            b"version https://git-lfs.github.com/spec/v1\n",
            "is a pointer of Git LFS in place of the file. Fetch the file: git lfs pull.",
        ),
        (
            b"<!DOCTYPE html>",
            "is a web page, as a download through the wrong link leaves it. Download the file itself.",
        ),
        (b"PK\x03\x04rest", "is a ZIP archive. Unpack it and name the .rkllm file in it."),
        (
            struct.pack("<Q", 90) + b'{"__metadata__":{}}',
            f"is a safetensors file, an original model. {CONVERT}",
        ),
        (
            b"\x01\x02\x03\x04 old",
            (
                "begins with 01 02 03 04, and a .rkllm file of toolkit 1.2 or newer with DA EE B3 36; "
                f"it is another kind of file, or was made by an older toolkit. {CONVERT}"
            ),
        ),
    ],
)
def test_a_file_that_is_not_a_whole_rkllm_file_is_named(
    read: Callable[[bytes], RkllmFile], tmp_path: Path, contents: bytes, sentence: str
) -> None:
    with pytest.raises(ModelFileError) as caught:
        read(contents)
    assert str(caught.value) == f"{tmp_path}/m.rkllm {sentence}"


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(ModelFileError) as caught:
            read_rkllm_file(path)
        assert str(caught.value) == f"{path} cannot be read ({reason}). Name a readable .rkllm or GGUF file."


def test_every_cut_is_refused_or_says_less(read: Callable[[bytes], RkllmFile]) -> None:
    whole = container()
    facts = read(whole)
    for end in range(len(whole)):
        found = attempt(read, whole[:end])
        if isinstance(found, str):
            assert re.search("is cut off|is empty|begins with", found)
        else:
            assert (found.name, found.platform) == (facts.name, facts.platform)


@pytest.mark.parametrize("length", [1 << 20, 1 << 39, 1 << 41, (1 << 64) - 1])
def test_an_absurd_length_ends_the_reading(read: Callable[[bytes], RkllmFile], length: int) -> None:
    whole = container()
    for offset in (8, 16, 24, 56):
        broken = bytearray(whole)
        broken[offset : offset + 8] = struct.pack("<Q", length)
        found = attempt(read, bytes(broken))
        assert not isinstance(found, str) or "is cut off" in found


def test_an_array_of_a_million_strings_is_not_followed(read: Callable[[bytes], RkllmFile]) -> None:
    many = container({"general.architecture": "qwen2"}, tensors=())
    pair = string("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 1 << 40) + bytes(64)
    header = bytearray(many[: 24 + 8 + 20 + 4 + 8 + 5] + pair)
    header[16:24] = struct.pack("<Q", 2)
    assert read(bytes(header)).architecture == "qwen2"


def test_garbage_never_raises_anything_else(read: Callable[[bytes], RkllmFile]) -> None:
    chance = random.Random(11)
    whole = container()
    for _ in range(1000):
        broken = bytearray(whole)
        for _ in range(chance.randrange(1, 12)):
            broken[chance.randrange(4, len(broken))] = chance.randrange(256)
        attempt(read, bytes(broken[: chance.randrange(4, len(broken) + 1)]))
        attempt(read, MAGIC + chance.randbytes(chance.randrange(200)))


@pytest.mark.parametrize(
    ("name", "hints"),
    [
        ("DeepSeek-R1-Distill-Qwen-1.5B_W8A8_RK3588.rkllm", FileNameHints("RK3588", "w8a8")),
        ("Qwen2.5-3B-Instruct-rk3588-w8a8-opt-0-hybrid-ratio-0.5.rkllm", FileNameHints("RK3588", "w8a8")),
        ("Qwen3-1.7B-rk3588s-w8a8_g128-16k-v1.2.3-RKLLM.rkllm", FileNameHints("RK3588", "w8a8_g128", 16384, "1.2.3")),
        ("gemma_3_1b_it_w4a16_g64_rk3576_ctx4096.rkllm", FileNameHints("RK3576", "w4a16_g64", 4096)),
        ("model-1.2.1b1.rkllm", FileNameHints(None, None, None, "1.2.1b1")),
        ("Llama-3.1.1-8k-rk35880.rkllm", FileNameHints(context_tokens=8192)),
        ("qwen3.rkllm", FileNameHints()),
        ("", FileNameHints()),
    ],
)
def test_a_name_gives_hints_by_the_habits_of_publishers(name: str, hints: FileNameHints) -> None:
    assert name_hints(name) == hints
