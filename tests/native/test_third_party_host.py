"""A ctypes program written in the field's own manner runs on every family unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from native import build
from tests.native.hosts import Played, calls, play, play_until

HEAD = "RKLLM-EMULATOR 1\nvocabulary bytes\ncontrol <|im_start|> <|im_end|>\ntemplate chatml\n"
EVERY_FAMILY = pytest.mark.parametrize("version", list(build.FAMILIES))


def write_model(folder: Path, text: str) -> Path:
    """A script of bytes and ChatML."""
    path = folder / "model.rkllm"
    path.write_text(HEAD + text, encoding="utf-8")
    return path


@EVERY_FAMILY
def test_a_conversation_with_history_runs_on_every_family(
    version: str, libraries: dict[str, Path], tmp_path: Path
) -> None:
    model = write_model(
        tmp_path, "rule\n user 東京\n say 晴れです。\nrule\n user それから\n prompt 東京.*晴れです\n say 月です。🌝\n"
    )
    played = play(libraries[version], model, "東京の天気は？\nそれから？\n")
    assert (played.code, played.errors) == (0, b"")
    assert [(one["returned"], one["text"], one["last"]) for one in played.answers] == [
        (0, "晴れです。", 2),
        (0, "月です。🌝", 2),
    ]
    assert [one["waiting"] for one in played.answers] == [2 * 5, 2 * 4 + 3]


@pytest.mark.parametrize("version", ["1.2.3", "1.3.0"])
def test_the_second_turn_prefills_only_itself(version: str, libraries: dict[str, Path], tmp_path: Path) -> None:
    model = write_model(tmp_path, "rule\n say ok\n")
    played = play(libraries[version], model, "first\nsecond\n")
    template = 1 + len("user\n") + 1 + len("\n") + 1 + len("assistant\n")
    system = 1 + len("system\nYou are a helpful assistant.") + 1 + len("\n")
    eos = 1
    assert [one["figures"] for one in played.answers] == [
        [system + template + len("first"), len("ok") + eos],
        [eos + template + len("second"), len("ok") + eos],
    ]


@EVERY_FAMILY
def test_the_call_log_holds_what_the_program_passed(version: str, libraries: dict[str, Path], tmp_path: Path) -> None:
    model, log = write_model(tmp_path, "rule hi\n say ok\n"), tmp_path / "calls.jsonl"
    play(libraries[version], model, "first\n", RKLLM_EMULATOR_LOG=str(log))
    init, run, destroy = calls(log)
    assert [line["call"] for line in (init, run, destroy)] == ["rkllm_init", "rkllm_run", "rkllm_destroy"]
    assert [line["return"] for line in (init, run, destroy)] == [0, 0, 0]
    param = init["args"]["param"]
    assert (param["model_path"], param["max_context_len"], param["top_k"], param["n_keep"]) == (str(model), 2048, 1, -1)
    assert param["extend_param"]["enabled_cpus_mask"] == 0xF0
    given = run["args"]["input"]
    assert (given["prompt_input"], given["input_type"], run["args"]["infer"]["keep_history"]) == ("first", 0, 1)
    assert given.get("role") == (None if version == "1.2.0" else "user")
    outcome = run["run"]
    assert (outcome["rule"], outcome["end"], outcome["reused"]) == ("hi", "finished", 0)
    assert bytes(outcome["sampled"][:2]) == b"ok"
    assert outcome["kv_cache_size"] == len(outcome["prompt"]) + len(outcome["sampled"]) - 1


@pytest.mark.parametrize("signal", ["SIGSEGV", "SIGILL", "SIGABRT", "SIGKILL", "SIGBUS"])
def test_a_crash_is_a_real_signal_and_leaves_its_line_in_the_log(
    signal: str, libraries: dict[str, Path], tmp_path: Path
) -> None:
    import signal as signals

    model, log = write_model(tmp_path, f"rule\n say hello\n fault crash {signal} after 2\n"), tmp_path / "calls.jsonl"
    played = play(libraries["1.3.0"], model, "x\n", RKLLM_EMULATOR_LOG=str(log))
    assert played.code == -getattr(signals, signal)
    assert (calls(log)[-1]["return"], calls(log)[-1]["run"]["delivered"], calls(log)[-1]["run"]["end"]) == (
        None,
        2,
        None,
    )


def test_a_crash_at_init_is_a_real_signal_too(libraries: dict[str, Path], tmp_path: Path) -> None:
    model = write_model(tmp_path, "")
    assert play(libraries["1.3.0"], model, RKLLM_EMULATOR_FAULTS="crash SIGILL at init").code == -4


@pytest.mark.parametrize(
    ("faults", "printed"),
    [
        ("init-fails", b'{"init": "failed"}'),
        ("init-null-handle", b'{"init": "no handle"}'),
        ("nonsense", b"E rkllm: RKLLM_EMULATOR_FAULTS: 'nonsense' is not a fault"),
    ],
)
def test_faults_of_init_come_from_the_environment(
    faults: str, printed: bytes, libraries: dict[str, Path], tmp_path: Path
) -> None:
    played = play(libraries["1.3.0"], write_model(tmp_path, ""), RKLLM_EMULATOR_FAULTS=faults)
    assert played.code == 1
    assert printed in played.output


@pytest.mark.parametrize(
    ("moment", "inits"), [("second-init", 2), ("init-after-failure", 2), ("second-failure", 2), ("init", 1)]
)
def test_a_crash_at_init_can_wait_for_what_happened_before(
    moment: str, inits: int, libraries: dict[str, Path], tmp_path: Path
) -> None:
    good, missing, log = write_model(tmp_path, ""), tmp_path / "missing.rkllm", tmp_path / "calls.jsonl"
    models = {
        "second-init": [good, good, good],
        "init-after-failure": [missing, good, good],
        "second-failure": [missing, missing, good],
        "init": [good, good],
    }[moment]
    faults = {"RKLLM_EMULATOR_FAULTS": f"crash SIGSEGV at {moment}", "RKLLM_EMULATOR_LOG": str(log)}
    assert play(libraries["1.3.0"], models, **faults).code == -11
    assert len(calls(log)) == inits
    assert calls(log)[-1]["return"] is None


@pytest.mark.parametrize("memory", ["init", "second-model"])
def test_a_board_without_memory_says_so_in_the_words_of_its_layers(
    memory: str, libraries: dict[str, Path], tmp_path: Path
) -> None:
    model = write_model(tmp_path, "")
    played = play(libraries["1.2.3"], [model, model], RKLLM_EMULATOR_FAULTS=f"out-of-memory at {memory}")
    assert played.code == 1
    assert played.output.count(b"E rkllm: rkllm_init failed\n") == (2 if memory == "init" else 1)
    for words in (
        rb"failed to allocate handle, ret: -1, errno: 14, errstr: Bad address\n",
        rb"failed to malloc npu memory, size: \d+, flags: 0x2\n",
        rb"load model file error!\n",
    ):
        assert re.search(rb"E RKNN: \[\d\d:\d\d:\d\d\.\d{3}\] " + words, played.output)


def test_an_old_driver_is_warned_of_and_then_computes_nothing(libraries: dict[str, Path], tmp_path: Path) -> None:
    played = run_with("driver-version 0.8.2; matmul-fails", libraries["1.2.3"], tmp_path)
    assert b"rknpu driver version: 0.8.2, platform: RK3588\n" in played.output
    assert b"W rkllm: Warning: Your rknpu driver version is too low, please upgrade to 0.9.7\n" in played.output
    assert played.output.count(b"E rkllm: matmul(w8a8) run failed\n") == len("hello")
    assert (played.answers[0]["returned"], played.answers[0]["text"]) == (0, "")
    assert b"W rkllm" not in run_with("driver-version 0.9.7", libraries["1.2.3"], tmp_path).output


@pytest.mark.parametrize(
    ("faults", "line", "call"),
    [
        ("hang after 2 ignoring-abort", "x", "rkllm_run"),
        ("hang in-prefill ignoring-abort", "x", "rkllm_run"),
        ("run-async hangs", "/async x", "rkllm_run_async"),
    ],
)
def test_a_call_that_hangs_for_ever_leaves_its_line_first(
    faults: str, line: str, call: str, libraries: dict[str, Path], tmp_path: Path
) -> None:
    model = write_model(tmp_path, "rule\n say hello\n")
    hanging = play_until(libraries["1.3.0"], model, f"{line}\n", call, faults)
    assert (hanging["run"]["end"], hanging["run"]["delivered"]) == (None, 2 if "after 2" in faults else 0)


TOOLS = '[{"type": "function", "function": {"name": "shop", "parameters": {"type": "object"}}}]'
SHOP = """rule
 lora test
 user buy ([a-z]+)
 results 0
 prompt "name":"shop"
 call shop {"what": "$1"}
rule
 user buy ([a-z]+)
 results 1+
 result (.*)
 say $1: %1
rule
 say only with the adapter
"""


@pytest.mark.parametrize("version", ["1.2.3", "1.3.0"])
def test_the_calls_of_rockchips_example_server_work_in_its_order(
    version: str, libraries: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "adapter.rkllm").write_text("adapter")
    lines = [
        "/single",
        f"/lora {tmp_path / 'adapter.rkllm'}",
        f"/tools {TOOLS}",
        "buy milk",
        '/tool [{"price": 2}]',
        "/clear",
        "/close",
    ]
    played = play(libraries[version], write_model(tmp_path, SHOP), "\n".join(lines))
    assert played.code == 0
    assert [(one["returned"], one["text"]) for one in played.answers] == [
        (0, ""),
        (0, ""),
        (0, ""),
        (0, '<tool_call>\n{"name": "shop", "arguments": {"what": "milk"}}\n</tool_call>'),
        (0, 'milk: {"price":2}'),
        (0, ""),
        (-1, ""),
    ]
    assert b"E rkllm: rkllm_destroy was called with a destroyed handle!\n" in played.output


def run_with(faults: str, library: Path, folder: Path) -> Played:
    """One question to a model that says hello, with faults from the environment."""
    return play(library, write_model(folder, "rule\n say hello\n"), "x\n", RKLLM_EMULATOR_FAULTS=faults)


@EVERY_FAMILY
def test_faults_of_a_run_come_from_the_environment(version: str, libraries: dict[str, Path], tmp_path: Path) -> None:
    failed = run_with("error after 2", libraries[version], tmp_path).answers[0]
    assert (failed["returned"], failed["text"], failed["last"]) == (-1, "he", 3)
    nameless = run_with("null-text at 1; callback-thread calling", libraries[version], tmp_path).answers[0]
    assert (nameless["returned"], nameless["text"], nameless["last"]) == (0, "ello", 2)


def test_noise_of_other_layers_comes_on_both_streams(libraries: dict[str, Path], tmp_path: Path) -> None:
    noisy = run_with("log-noise", libraries["1.3.0"], tmp_path)
    assert noisy.output.count(b"\xff\xfe\x80") == noisy.errors.count(b"\xff\xfe\x80") == 2
    assert noisy.answers[0]["text"] == "hello"


def test_log_levels_add_a_table_and_then_the_tokens(libraries: dict[str, Path], tmp_path: Path) -> None:
    model = write_model(tmp_path, "rule\n say hello\n")
    quiet, times, details = (
        play(libraries["1.2.3"], model, "x\n", RKLLM_LOG_LEVEL=level).output.decode() for level in ("0", "1", "2")
    )
    assert "Tokens per Second" not in quiet
    assert "I rkllm:  Peak Memory Usage (GB)\n" in times
    assert "keep history status" not in times
    for line in ("keep history status: 1", "current kv cache size: 0", "'<|im_start|>':256", "rkllm_run finish!"):
        assert line in details


def test_a_slow_script_takes_its_time_unless_the_speed_is_flat(libraries: dict[str, Path], tmp_path: Path) -> None:
    model, log = write_model(tmp_path, "speed prefill 1 decode 1\nrule\n say hello\n"), tmp_path / "calls.jsonl"
    played = play(libraries["1.3.0"], model, "x\n", RKLLM_EMULATOR_SPEED="flat", RKLLM_EMULATOR_LOG=str(log))
    assert played.answers[0]["text"] == "hello"
    wrong = play(libraries["1.3.0"], model, RKLLM_EMULATOR_SPEED="fast")
    assert b"E rkllm: RKLLM_EMULATOR_SPEED is 'fast'" in wrong.output
    board = play(libraries["1.3.0"], model, RKLLM_EMULATOR_SPEED="qwen3-0.6b")
    assert board.code == 0
