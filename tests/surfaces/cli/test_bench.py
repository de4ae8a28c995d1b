from __future__ import annotations

import json
import os
import re
import xml.etree.ElementTree as ET
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
from rkllm_mcp.surfaces.cli.bench import picture, shown
from rkllm_mcp.surfaces.cli.main import main
from rkllm_mcp.surfaces.cli.plot import Panel, Series, plot
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


def test_everything_is_measured_and_told_to_be_emulated(bench: Bench, tmp_path: Path) -> None:
    code, out, err = bench("--json", "--plot", "speed.svg")
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
    assert ET.parse(tmp_path / "speed.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"


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
        (["prompt", "--plot", "x.svg"], "'prompt' has no plot; leave out --plot, or measure prefill or decode"),
        (
            ["prefill", "--plot", "gone/x.svg"],
            "the plot cannot be written to gone/x.svg (No such file or directory); name another file",
        ),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(bench: Bench, words: list[str], sentence: str) -> None:
    # Nothing was loaded for it: no step was told.
    assert bench(*words) == (2, "", f"Error: {sentence}\n")


def test_a_report_is_a_table_for_people() -> None:
    assert shown(REPORT) == (
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


def test_what_was_too_quick_to_be_measured_is_a_dash_and_no_point() -> None:
    quick = replace(REPORT, lengths=(LengthFigures(32, 0.0, 0.2, 1, None),))
    assert "32             0           -         0.2             -                -\n" in shown(quick)
    assert "Prefill, tokens per second" not in picture(quick)
    assert "Until the first token" in picture(quick)


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
async def test_a_busy_host_does_not_slow_the_runtime_but_slows_it_inside_its_own_process(newest: Emulator) -> None:
    ratios: list[float] = []
    for worker in ("process", "inline"):
        async with open_engine(settings_of(newest, "speed prefill 20000 decode 400", worker=worker)) as engine:
            await engine.ready()
            way = await measure_delivery(engine, PROMPTS.question, 48)
            assert (way.tokens, way.mean_us > 0) == (48, True)
            busy = await measure_busy_host(engine, PROMPTS.question, 48, rounds=1)
        assert busy is not None
        ratios.append(busy.ratio)
    assert 4 * ratios[0] < ratios[1]


PANELS = (
    Panel("Speed <b>", [Series("first & only", [(32, 600.0), (64, 640.0), (100, 0.0)])]),
    Panel("Nothing", [Series("empty", [])]),
    Panel("Time", [Series("long", [(32, 0.31), (64, 2.2)]), Series("short", [(32, 0.3), (64, 2.1)])]),
)


def test_a_plot_is_a_picture_that_stands_by_itself() -> None:
    root = ET.fromstring(plot("A & B", "on <a board>", "prompt, tokens", PANELS))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:3] == ["A & B", "on <a board>", "Speed <b>"]
    assert "Nothing" not in texts
    assert {"0", "200", "400", "600", "800", "0.5", "1", "2.5", "32", "64", "prompt, tokens"} <= set(texts)
    lines = list(root.iter("{http://www.w3.org/2000/svg}polyline"))
    assert [len((line.get("points") or "").split()) for line in lines] == [3, 2, 2]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", ET.tostring(root, "unicode"))


def test_points_and_names_of_a_plot_stay_inside_and_apart() -> None:
    root = ET.fromstring(plot("t", "s", "x", PANELS))
    width, height = (float(root.get(name) or 0) for name in ("width", "height"))
    circles = [
        (float(c.get("cx") or 0), float(c.get("cy") or 0)) for c in root.iter("{http://www.w3.org/2000/svg}circle")
    ]
    assert len(circles) == 7
    assert all(0 <= x <= width and 0 <= y <= height for x, y in circles)
    # Wider is more: the x of the axis grows with the value.
    assert circles[0][0] < circles[1][0] < circles[2][0]
    names = {e.text: float(e.get("y") or 0) for e in root.iter("{http://www.w3.org/2000/svg}text")}
    assert abs(names["long"] - names["short"]) >= 15


@pytest.mark.parametrize("points", [[], [(5.0, 0.0)], [(3.0, 1e-9), (3.0, 1e9)]])
def test_strange_points_make_a_plot_too(points: list[tuple[float, float]]) -> None:
    svg = plot("t", "s", "x", [Panel("p", [Series("n", points)])])
    assert ET.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert "nan" not in svg


def test_a_report_has_no_figure_that_json_cannot_say() -> None:
    assert json.loads(json.dumps(asdict(REPORT)))["busy"]["ratio"] == 1.00032
