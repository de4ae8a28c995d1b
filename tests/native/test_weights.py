"""A program in the field's own manner gets the answers of weights, on every family and unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from native import build
from tests.native.hosts import calls, play

SCRIPT = "RKLLM-EMULATOR 1\nvocabulary bytes\ncontrol <|endoftext|> <|im_start|> <|im_end|>\ntemplate chatml\n"


def write_model(folder: Path, lines: str = "weights model.gguf\n") -> Path:
    """A script with weights next to it."""
    (folder / "model.gguf").write_bytes(b"GGUF")
    path = folder / "model.rkllm"
    path.write_text(SCRIPT + lines, encoding="utf-8")
    return path


@pytest.mark.parametrize("version", list(build.FAMILIES))
def test_a_conversation_is_answered_by_the_weights_and_its_prefix_reused(
    version: str, libraries: dict[str, Path], fake_llama: Path, tmp_path: Path
) -> None:
    model, log = write_model(tmp_path), tmp_path / "calls.jsonl"
    environment = {"RKLLM_EMULATOR_LLAMA": str(fake_llama), "RKLLM_EMULATOR_LOG": str(log)}
    played = play(libraries[version], model, "東京の天気は？\nand then?\n", **environment)
    assert (played.code, played.errors) == (0, b"")
    assert [(one["returned"], one["text"], one["last"]) for one in played.answers] == [(0, "ok", 2)] * 2
    first, second = (line["run"] for line in calls(log) if line["call"] == "rkllm_run")
    assert bytes(first["sampled"][:2]) == b"ok"
    assert second["reused"] == len(first["prompt"]) + 2
    assert b"computed from model.gguf on the CPU" in played.output


def test_the_tokens_of_weights_are_those_that_a_grammar_allows(
    libraries: dict[str, Path], fake_llama: Path, tmp_path: Path
) -> None:
    grammar = tmp_path / "grammar.gbnf"
    environment = {"RKLLM_EMULATOR_LLAMA": str(fake_llama), "RKLLM_EMULATOR_GRAMMAR": str(grammar)}
    texts = list[str]()
    for text in ("", "k", "ok"):
        grammar.write_text(text)
        played = play(libraries["1.3.0"], write_model(tmp_path), "hello\n", **environment)
        assert (played.code, played.errors) == (0, b"")
        texts += [answer["text"] for answer in played.answers]
    assert texts == ["ok", "k", "ok"]


def test_without_the_library_one_sentence_says_what_to_do(libraries: dict[str, Path], tmp_path: Path) -> None:
    played = play(libraries["1.3.0"], write_model(tmp_path), "hello\n", RKLLM_EMULATOR_LLAMA=str(tmp_path))
    assert played.code == 1
    (line,) = [line for line in played.output.splitlines() if b"llama.cpp" in line]
    assert b"'rkllm-mcp runtime pull llama' fetches it" in line
    assert str(tmp_path).encode() in line


def test_a_library_of_another_release_names_its_missing_functions(libraries: dict[str, Path], tmp_path: Path) -> None:
    source = tmp_path / "old.c"
    source.write_text("void llama_backend_init(void) {}\n")
    for name in ("libllama.so", "libggml.so"):
        build.compile_program([source], tmp_path / name, 130, ["-shared", "-fvisibility=default"])
    played = play(libraries["1.3.0"], write_model(tmp_path), "hello\n", RKLLM_EMULATOR_LLAMA=str(tmp_path))
    assert played.code == 1
    assert b"it lacks" in played.output
    assert b" llama_decode" in played.output


def test_weights_refuse_an_adapter(libraries: dict[str, Path], fake_llama: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path)
    played = play(libraries["1.3.0"], model, f"/lora {model}\n", RKLLM_EMULATOR_LLAMA=str(fake_llama))
    assert [one["returned"] for one in played.answers] == [-1]
    assert b"cannot put an adapter on real weights" in played.output
