from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from rkllm_mcp.diagnostics.bench import (
    BusyHost,
    Delivery,
    LengthFigures,
    Loading,
    MachineFigures,
    PromptFigures,
    Report,
    measure_busy_host,
    measure_delivery,
    measure_lengths,
)
from rkllm_mcp.diagnostics.probe.subject import ProbePrompts
from rkllm_mcp.runtime.engine import open_engine
from rkllm_mcp.surfaces.cli.bench import shown
from rkllm_mcp.surfaces.cli.main import main
from rkllm_mcp.surfaces.terminal import Terminal
from tests.support.emulator import EVERY_VERSION, IM_END, Emulator, libraries, newest, prompt_of

__all__ = ["newest"]

Bench = Callable[..., tuple[int, str, str]]
PROMPTS = ProbePrompts(tuple(prompt_of("count")), tuple(prompt_of("other")), (*b"text ",), frozenset({IM_END}))
REPORT = Report(
    MachineFigures("qwen3-0.6b", "Orange Pi 5", "1.2.3", emulated=False, context_tokens=4096),
    Loading(2345.6, 812.0, 1024.5),
    (LengthFigures(32, 61.0, 90.5, 32, 31.25), LengthFigures(1024, 1600.0, 1631.0, 32, 35.0)),
    Delivery(96, 210.4, 180.0, 900.0, 1200.0, 12.3),
    BusyHost(3, 31.25, 31.26, 1.00032),
    (PromptFigures(20, 2640, 2.5, 0.05),),
)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    """``rkllm-mcp --runtime emulator bench`` in an empty folder, flat out."""
    for name in [name for name in os.environ if name.startswith(("RKLLM_", "MCP_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RKLLM_EMULATOR_SPEED", "flat")
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["--runtime", "emulator", "bench", *words])
        captured = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, captured.out, captured.err

    return run


def test_every_part_is_measured_and_marked_as_emulated(bench: Bench) -> None:
    code, out, err = bench("--json")
    report = json.loads(out)
    assert (code, report["format"], report["machine"]["model"], report["machine"]["emulated"]) == (0, 1, "demo", True)
    assert report["notes"][0].startswith("the NPU is emulated")
    # Flat out an answer is over before a busy host could hold it up.
    assert (report["busy"], len(report["notes"])) == (None, 2)
    assert [one["prompt_tokens"] for one in report["lengths"]] == [32, 64, 128, 256, 512, 1024, 2048]
    assert all(one["decode_tokens"] == 32 for one in report["lengths"])
    assert report["delivery"]["tokens"] == 96
    assert 0 < report["delivery"]["p50_us"] <= report["delivery"]["p99_us"] <= report["delivery"]["max_us"]
    assert report["delivery"]["blocked_us"] > 0
    assert 0 < report["loading"]["memory_mb"] <= report["loading"]["peak_memory_mb"]
    assert [one["tools"] for one in report["prompts"]] == [0, 5, 20, 50]
    assert "Loading model 'demo'\n" in err


def test_one_part_alone_is_measured(bench: Bench) -> None:
    code, out, _ = bench("prompt", "-q")
    assert code == 0
    assert "Note: the NPU is emulated" in out
    assert [line.split()[0] for line in out.splitlines()[-4:]] == ["0", "5", "20", "50"]
    assert "PREFILL" not in out
    prefill = bench("prefill", "-q")[1]
    assert "PREFILL" in prefill
    assert "DECODE" not in prefill


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["speed"], "there is nothing to measure by the name 'speed'; there are prefill, decode, delivery, prompt"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(bench: Bench, words: list[str], sentence: str) -> None:
    # Nothing was loaded for it: no step was told.
    assert bench(*words) == (2, "", f"Error: {sentence}\n")


def test_a_report_is_a_table_for_people() -> None:
    assert shown(REPORT, Terminal()) == (
        "qwen3-0.6b on Orange Pi 5, RKLLM 1.2.3, 4096 tokens of context\n"
        "loaded in 2346 ms, 812 MB after loading, 1024 MB at most\n"
        "\n"
        "PROMPT tokens  PREFILL ms  tokens/s  FIRST TOKEN ms  DECODE ms/token  tokens/s\n"
        "32             61          525       90.5            31.2             32\n"
        "1024           1600        640       1631            35               28.6\n"
        "\n"
        "DELIVERY tokens  mean µs  median µs  p99 µs  max µs  IN THE CALLBACK µs\n"
        "96               210      180        900     1200    12.3\n"
        "\n"
        "HOST          decode ms/token  busy to idle\n"
        "idle          31.250\n"
        "never yields  31.260           1.0003\n"
        "\n"
        "TOOLS  PROMPT tokens  written ms  next question ms\n"
        "20     2640           2.50        0.05\n"
    )


LATIN = re.compile("[A-Za-z]{4,}")


def test_a_report_in_japanese_has_no_english_word() -> None:
    shared = replace(REPORT, machine=replace(REPORT.machine, board="no board", emulated=True))
    notes = (
        "the NPU is emulated: its speed is what a script says; delivery and prompts are our own cost",
        "decoding is too quick here for a busy host to be compared with an idle one",
    )
    told = shown(replace(shared, notes=notes), Terminal(language="ja"))
    assert LATIN.findall(told.replace("qwen3-0.6b", "").replace("RKLLM", "")) == []


def test_a_duration_too_short_to_measure_is_a_dash() -> None:
    quick = replace(REPORT, lengths=(LengthFigures(32, 0.0, 0.2, 1, None),))
    assert "32             0           -         0.2             -                -\n" in shown(quick, Terminal())


def settings_of(emulator: Emulator, speed: str, **changes: Any) -> Any:
    rules = f"rule\nsay {'word ' * 60}"
    return emulator.settings(rules, f"{speed}\ncontext 4096", timed_tokens=True, **changes)


@pytest.mark.anyio
@pytest.mark.parametrize("version", EVERY_VERSION)
async def test_speed_is_measured_length_by_length(version: str, tmp_path: Path) -> None:
    emulator = Emulator(version, libraries()[version], tmp_path)
    settings = settings_of(emulator, "speed prefill 20000 decode 2000", context_tokens=600, max_new_tokens=8)
    async with open_engine(settings) as engine:
        lengths = [figures async for figures in measure_lengths(engine, PROMPTS, 8)]
    assert [one.prompt_tokens for one in lengths] == [32, 64, 128, 256, 512]
    assert [one.decode_tokens for one in lengths] == [8] * 5
    assert all(one.prefill_tokens_per_s and one.decode_tokens_per_s for one in lengths)


@pytest.mark.anyio
async def test_a_busy_host_does_not_slow_the_runtime(newest: Emulator) -> None:
    async with open_engine(settings_of(newest, "speed prefill 20000 decode 400")) as engine:
        await engine.ready()
        way = await measure_delivery(engine, PROMPTS.question, 48)
        assert (way.tokens, way.mean_us > 0) == (48, True)
        busy = await measure_busy_host(engine, PROMPTS.question, 48, rounds=1)
    # In one process with the host the runtime would take more than four times as long.
    assert busy is not None
    assert busy.ratio < 3


def test_a_report_has_no_figure_that_json_cannot_say() -> None:
    assert json.loads(json.dumps(asdict(REPORT)))["busy"]["ratio"] == 1.00032
