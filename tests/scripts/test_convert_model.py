from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rkllm_mcp.models.cards import load_model
from rkllm_mcp.models.rkllm_header import read_rkllm_file
from scripts.convert_model import DATA_TYPES, NPU_CORES, Surroundings
from tests.support.demo_model import DEMO_TOKENIZER
from tests.support.shared import REPOSITORY

SCRIPT = REPOSITORY / "scripts" / "convert_model.py"
STANDIN = REPOSITORY / "tests" / "support" / "rkllm_toolkit_standin"
ANSWER = "It is sunny in Tokyo today."


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A Hugging Face folder, as far as anybody here looks into it."""
    folder = tmp_path / "Qwen2.5-1.5B-Instruct"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "qwen2"}')
    shutil.copyfile(DEMO_TOKENIZER, folder / "tokenizer.json")
    return folder


def convert(tmp_path: Path, *words: str, trouble: str = "", toolkit: bool = True) -> subprocess.CompletedProcess[str]:
    here = Surroundings(platform.system(), platform.machine(), sys.version_info[:2], has_toolkit=True)
    if (problem := here.problem()) is not None:
        pytest.skip(problem)
    paths = [str(REPOSITORY), *([str(STANDIN)] if toolkit else [])]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RKLLM_", "XDG_"))}
    return subprocess.run(
        [sys.executable, str(SCRIPT), *words, "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={
            **kept,
            "HOME": str(tmp_path),
            "PYTHONPATH": os.pathsep.join(paths),
            "STANDIN_LOG": str(tmp_path / "log"),
            "STANDIN_TROUBLE": trouble,
        },
    )


def calls(tmp_path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]


def test_a_folder_of_hugging_face_becomes_a_model_folder(tmp_path: Path, original: Path) -> None:
    done = convert(tmp_path, str(original))
    assert (done.returncode, done.stderr) == (0, "")
    model = load_model(tmp_path / "out" / "qwen2.5-1.5b-instruct")
    assert model.file.name == "Qwen2.5-1.5B-Instruct_W8A8_RK3588.rkllm"
    assert (model.card.template, model.card.context_tokens, model.card.published) == ("qwen2.5", 4096, None)
    assert model.card.source is not None
    assert model.card.source.platform == read_rkllm_file(model.file).platform == "RK3588"
    assert model.tokenizer.read_bytes() == DEMO_TOKENIZER.read_bytes()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["qwen2.5-1.5b-instruct"]
    load, build, *rest = calls(tmp_path)
    assert load == {
        "call": "load_huggingface",
        "model": str(original),
        "device": "cpu",
        "dtype": "float32",
        "load_weight": True,
    }
    assert build == {
        "call": "build",
        "do_quantization": True,
        "optimization_level": 0,
        "quantized_dtype": "w8a8",
        "quantized_algorithm": "normal",
        "target_platform": "rk3588",
        "num_npu_core": 3,
        "hybrid_rate": 0.0,
        "max_context": 4096,
        "samples": 30,
    }
    assert [call["call"] for call in rest] == ["chat_model"] * 4 + ["export_rkllm"]


def test_the_samples_are_our_own_prompts_in_the_models_spelling(tmp_path: Path, original: Path) -> None:
    convert(tmp_path, str(original))
    samples = json.loads((tmp_path / "out" / "qwen2.5-1.5b-instruct" / "calibration.json").read_text("utf-8"))
    assert all(sample["input"].startswith("<|im_start|>system\n") for sample in samples)
    assert all(sample["input"].endswith("<|im_start|>assistant\n") for sample in samples)
    assert all(sample["target"].endswith("<|im_end|>\n") for sample in samples)
    called = [sample["target"] for sample in samples if sample["target"].startswith("<tool_call>")]
    assert len(called) == 10
    assert (
        '<tool_call>\n{"name": "get_weather", "arguments": {"location": "東京", "days": 2}}\n</tool_call>' in called[0]
    )
    assert any("<tool_response>\n" in sample["input"] for sample in samples)


def test_the_first_tokens_are_written_down_and_agree_with_the_toolkits_chat(tmp_path: Path, original: Path) -> None:
    done = convert(tmp_path, str(original))
    entries = json.loads((tmp_path / "out" / "qwen2.5-1.5b-instruct" / "first_tokens.json").read_text("utf-8"))
    assert len(entries) == 4
    for entry in entries:
        assert ANSWER.startswith(entry["first_text"].strip())
        assert (entry["chat_text"], len(entry["first_ids"]) <= 8) == (ANSWER, True)
        assert entry["prompt"].endswith("<|im_start|>assistant\n")
    assert done.stdout.count("  as in chat_model: ") == 4


def test_a_disagreement_of_the_first_tokens_is_a_failure_unless_it_is_not_looked_at(
    tmp_path: Path, original: Path
) -> None:
    done = convert(tmp_path, str(original), trouble="other answer")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: the quantised model answers our token ids differently")
    assert list((tmp_path / "out").iterdir()) == []
    assert convert(tmp_path, str(original), "--no-check", trouble="other answer").returncode == 0


def test_without_logits_a_comparison_is_refused(tmp_path: Path, original: Path) -> None:
    done = convert(tmp_path, str(original), trouble="no logits")
    assert (done.returncode, "gives no logits" in done.stdout) == (0, True)
    assert not (tmp_path / "out" / "qwen2.5-1.5b-instruct" / "first_tokens.json").exists()


def test_a_gguf_file_is_converted_with_a_tokenizer_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "Qwen3-0.6B-Q4_0.gguf").write_bytes(b"GGUF" + bytes(100))
    words = (
        str(tmp_path / "Qwen3-0.6B-Q4_0.gguf"),
        *("--platform", "rk3576", "--data-type", "w4a16_g64", "--max-context", "16384", "--hybrid-rate", "0.5"),
        *("--name", "mine", "--optimization", "1"),
    )
    missing = convert(tmp_path, *words)
    assert missing.returncode == 2
    assert missing.stderr.endswith("name the original model's tokenizer.json with --tokenizer\n")
    done = convert(tmp_path, *words, "--tokenizer", str(DEMO_TOKENIZER))
    assert (done.returncode, done.stderr) == (0, "")
    model = load_model(tmp_path / "out" / "mine")
    assert (model.file.name, model.card.template, model.card.context_tokens) == (
        "Qwen3-0.6B-Q4_0_W4A16_G64_RK3576.rkllm",
        "qwen3",
        16384,
    )
    load, build, *_ = calls(tmp_path)
    assert load == {"call": "load_gguf", "model": words[0]}
    wanted = {"quantized_dtype": "w4a16_g64", "target_platform": "rk3576", "num_npu_core": 2, "hybrid_rate": 0.5}
    assert wanted.items() <= build.items()


@pytest.mark.parametrize("call", ["load_huggingface", "build", "export_rkllm"])
def test_a_failure_of_the_toolkit_leaves_no_folder(tmp_path: Path, original: Path, call: str) -> None:
    done = convert(tmp_path, str(original), trouble=call)
    assert done.returncode == 1
    assert re.fullmatch(r"Error: rkllm-toolkit failed at .* \(-1\); its own messages above say why\n", done.stderr), (
        done.stderr
    )
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--data-type", "w4a16"], "RK3588 has no data type w4a16; it has w8a8, w8a8_g128, w8a8_g256, w8a8_g512"),
        (["--platform", "RK3562", "--cores", "2"], "RK3562 has 1 NPU cores; --cores is 1 to 1"),
        (["--max-context", "4001"], "--max-context is a multiple of 32 up to 16384"),
        (["--max-context", "16416"], "--max-context is a multiple of 32 up to 16384"),
        (["--hybrid-rate", "1"], "--hybrid-rate is 0 or more and below 1"),
        (["--algorithm", "grq"], "--algorithm grq is for w4a16 and its groups, with --device cuda"),
        (["--template", "qwen9"], "there is no template qwen9; there are chatml, "),
        (["--tokenizer", "/none"], "there is no /none; name the original model's tokenizer.json with --tokenizer"),
    ],
)
def test_what_the_toolkit_would_refuse_is_refused_at_once(
    tmp_path: Path, original: Path, words: list[str], sentence: str
) -> None:
    done = convert(tmp_path, str(original), *words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"Error: {sentence}")
    assert not (tmp_path / "log").exists()


def test_a_file_that_is_not_a_model_is_refused(tmp_path: Path, original: Path) -> None:
    (original / "config.json").unlink()
    (tmp_path / "x.gguf").write_bytes(b"PK")
    for name, sentence in (
        (str(original), f"{original} has no config.json; name the folder of a Hugging Face model"),
        (str(tmp_path / "x.gguf"), f"{tmp_path}/x.gguf is no GGUF file; name a Hugging Face folder or a .gguf file"),
        ("/none", "there is no /none; name a Hugging Face folder or a .gguf file"),
    ):
        done = convert(tmp_path, name)
        assert (done.returncode, done.stderr) == (2, f"Error: {sentence}\n")


def test_a_model_of_no_known_family_needs_a_template(tmp_path: Path, original: Path) -> None:
    (original / "config.json").write_text('{"model_type": "new"}')
    strange = original.rename(tmp_path / "Strange-1B")
    done = convert(tmp_path, str(strange))
    assert done.returncode == 2
    assert done.stderr.startswith("Error: nobody knows how strange-1b is spoken to; say it with --template: ")
    assert convert(tmp_path, str(strange), "--template", "chatml").returncode == 0
    again = convert(tmp_path, str(strange), "--template", "chatml")
    assert again.stderr == f"Error: {tmp_path}/out/strange-1b exists; remove it, or choose another --name\n"


def test_without_the_toolkit_the_script_says_where_its_wheel_comes_from(tmp_path: Path, original: Path) -> None:
    done = convert(tmp_path, str(original), toolkit=False)
    tag = f"{sys.version_info[0]}{sys.version_info[1]}"
    assert done.returncode == 2
    assert done.stderr.startswith(
        "Error: rkllm-toolkit is not on PyPI: its wheels are in the repository github.com/airockchip/rknn-llm, folder "
        f"rkllm-toolkit/packages (rkllm_toolkit-VERSION-cp{tag}-cp{tag}-linux_x86_64.whl for this Python)"
    )


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        (Surroundings("Linux", "aarch64", (3, 11), True), "runs on Linux on x86-64, and this is Linux on aarch64"),
        (Surroundings("Darwin", "arm64", (3, 11), True), "runs on Linux on x86-64, and this is Darwin on arm64"),
        (Surroundings("Linux", "x86_64", (3, 13), True), "needs Python 3.10 to 3.12, and this is 3.13"),
        (Surroundings("Linux", "x86_64", (3, 9), True), "needs Python 3.10 to 3.12, and this is 3.9"),
        (Surroundings("Linux", "x86_64", (3, 12), False), "for Python 3.12 set BUILD_CUDA_EXT=0 before"),
        (Surroundings("Linux", "x86_64", (3, 11), True), None),
    ],
)
def test_a_machine_that_cannot_convert_gets_the_reason(where: Surroundings, sentence: str | None) -> None:
    problem = where.problem()
    assert (problem is None) if sentence is None else (sentence in str(problem))


def test_the_table_knows_what_each_platform_can_do() -> None:
    assert DATA_TYPES.keys() == NPU_CORES.keys()
    assert not any(data_type.startswith("w4") for data_type in DATA_TYPES["RK3588"])
    assert DATA_TYPES["RK3562"][-1] == "w4a8_g32"
