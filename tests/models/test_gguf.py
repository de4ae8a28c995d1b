"""GGUF files become model folders that the emulated runtime computes on the CPU."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rkllm_mcp.errors import ModelFileError
from rkllm_mcp.models.folder import ModelFolderStore
from rkllm_mcp.models.gguf import is_gguf, read_gguf, tokenizer_of
from rkllm_mcp.models.install import Addition, ModelSources, add
from rkllm_mcp.prompt.template import ControlText, PlainText
from rkllm_mcp.prompt.tokenizer import ModelTokenizer

CONTROL, NORMAL, UNUSED = 3, 1, 5


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _string(value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    is_text = isinstance(value[0], str)
    items = b"".join(_string(item) if is_text else struct.pack("<i", item) for item in value)
    return struct.pack("<IIQ", 9, 8 if is_text else 5, len(value)) + items


def write_gguf(path: Path, changes: Mapping[str, Any] | None = None) -> Path:
    """A GGUF file without tensors: bytes, one merge, and the control tokens of ChatML, one of them twice."""
    spelled = [chr(byte) if 33 <= byte < 127 else chr(256 + byte) for byte in range(256)]
    spelled[32] = "Ġ"
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *dict.fromkeys(spelled), "he", "<|im_start|>", "<pad>"]
    kinds = [CONTROL] * 3 + [NORMAL] * (len(tokens) - 5) + [CONTROL, UNUSED]
    pairs: dict[str, Any] = {
        "general.architecture": "qwen2",
        "general.name": "Qwen2.5 0.5B Instruct",
        "qwen2.context_length": 32768,
        "qwen2.block_count": 24,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": ["h e"],
        "tokenizer.ggml.eos_token_id": 2,
        **(changes or {}),
    }
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs))
    path.write_bytes(head + b"".join(_string(key) + _value(value) for key, value in pairs.items()))
    return path


def write_talking_gguf(path: Path) -> Path:
    """A GGUF file whose ids are those of ``native/tests/fake_llama.c``, which says ok to everything."""
    tokens = [chr(byte) if 33 <= byte < 127 else chr(256 + byte) for byte in range(256)]
    tokens[32] = "Ġ"
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    padding = [f"<pad{number}>" for number in range(299 - len(tokens) - len(control))]
    changes = {
        "tokenizer.ggml.tokens": [*tokens, *control, "he", *padding],
        "tokenizer.ggml.token_type": [NORMAL] * 256 + [CONTROL] * 3 + [NORMAL] + [UNUSED] * len(padding),
        "tokenizer.ggml.eos_token_id": 258,
    }
    return write_gguf(path, changes)


class NoAnswers:
    """Answers no question."""

    def choose(self, question: str, option: str, choices: object = ()) -> str:
        raise AssertionError(question)

    def confirm(self, question: str, option: str) -> bool:
        raise AssertionError(question)


def sources_in(folder: Path) -> ModelSources:
    return ModelSources(folders=ModelFolderStore(folder / "models"))


def no_report(_name: str, _done: int, _total: int | None) -> None:
    """Takes a report of a download."""


def test_the_metadata_and_the_tokenizer_of_a_file_are_read(tmp_path: Path) -> None:
    metadata = read_gguf(write_gguf(tmp_path / "a.gguf"))
    assert metadata["qwen2.context_length"] == 32768
    text = tokenizer_of(metadata)
    assert text is not None
    tokenizer = ModelTokenizer(text)
    he = metadata["tokenizer.ggml.tokens"].index("he")
    assert tokenizer.encode([ControlText("<|im_start|>"), PlainText("he<pad>")])[:2] == [1, he]
    assert tokenizer.controls.get("<|im_start|>") == 1
    assert tokenizer.decode([he]) == "he"


@pytest.mark.parametrize("changes", [{"tokenizer.ggml.pre": "another"}, {"tokenizer.ggml.model": "llama"}])
def test_a_tokenizer_of_a_kind_that_is_not_known_is_left_to_the_user(changes: dict[str, Any], tmp_path: Path) -> None:
    assert tokenizer_of(read_gguf(write_gguf(tmp_path / "a.gguf", changes))) is None


def test_a_gguf_file_becomes_a_folder_that_the_cpu_computes(tmp_path: Path) -> None:
    folder = add(sources_in(tmp_path), Addition(write_gguf(tmp_path / "a.gguf")), NoAnswers(), no_report)
    assert folder.name == "qwen2.5-0.5b-cpu"
    assert (folder.card.emulated, folder.has_weights, folder.card.template) == (True, True, "qwen2.5")
    assert folder.missing == ()
    assert folder.file.read_text("utf-8").splitlines() == [
        "RKLLM-EMULATOR 1",
        "vocabulary tokenizer.json",
        "weights model.gguf",
        "eos <|im_end|>",
        "context 32768",
        "template chatml",
        "fault abort-in-prefill",
    ]
    assert is_gguf(folder.folder / "model.gguf")


def test_a_script_with_rules_has_no_weights(tmp_path: Path) -> None:
    folder = add(sources_in(tmp_path), Addition(write_gguf(tmp_path / "a.gguf")), NoAnswers(), no_report)
    folder.file.write_text("RKLLM-EMULATOR 1\nvocabulary bytes\nrule\n  say weights\n", "utf-8")
    assert not folder.has_weights


@pytest.mark.parametrize("cut", [3, 10, 40, 200, 3000])
def test_a_file_that_is_cut_off_says_so(cut: int, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ModelFileError, match=r"cut off|no GGUF file"):
        read_gguf(path)


@pytest.mark.parametrize(("at", "data"), [(4, b"\x09\0\0\0"), (16, b"\xff" * 8), (24, b"\xff" * 8)])
def test_a_file_with_numbers_that_no_file_has_says_so(at: int, data: bytes, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf")
    whole = bytearray(path.read_bytes())
    whole[at : at + len(data)] = data
    path.write_bytes(whole)
    with pytest.raises(ModelFileError, match="cannot be read"):
        read_gguf(path)
