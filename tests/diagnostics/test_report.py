"""``rkllm-mcp report``: what it measures, what it never writes, and the page of boards that is made of reports."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.sections import Config
from rkllm_mcp.diagnostics.probe.runner import FACTS
from rkllm_mcp.diagnostics.report import MOST_S, PARTS, UNKNOWNS, BoardReport, figures_of, without_private
from rkllm_mcp.errors import UsageError
from scripts.reference import BOARD_REPORTS, REPOSITORY, board_table, boards
from tests.support.board_trees import ORANGE_PI_5, RK3588, plant
from tests.support.outcome import run_here

CONFIG = """
[model]
name = "demo"
[runtime]
library = "emulator"
[service]
api_keys = ["sk-rkllm-0123456789abcdef0123456789abcdef"]
[[servers]]
name = "suzuki-nas"
command = "/home/hanako/bin/nas"
args = ["--token=hf_abcdefghijklmnopqrstuvwxyz", "--host", "192.168.1.20"]
"""
Configured = Callable[..., Config]


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configured:
    """Return a function that plants a board with faults of the runtime and returns the configuration of a person."""
    home = tmp_path / "hanako"
    home.mkdir()
    (home / "mcp_config.toml").write_text(CONFIG, "utf-8")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("RKLLM_EMULATOR_SPEED", "flat")

    def configure(board: dict[str, str], faults: str = "") -> Config:
        root = tmp_path / str(abs(hash(board["proc/device-tree/model"])))
        monkeypatch.setenv("RKLLM_MCP_MACHINE_ROOT", str(root if root.exists() else plant(root, board)))
        monkeypatch.setenv("RKLLM_EMULATOR_FAULTS", faults)
        return load_config(str(home / "mcp_config.toml"))

    return configure


def run_parts(report: BoardReport, *names: str) -> list[str]:
    return [report.run_part(name, lambda _: None) for name in names]


def test_two_fault_profiles_are_two_rows_with_what_each_settles(configured: Configured, tmp_path: Path) -> None:
    whole = BoardReport.open(configured({**RK3588}, "reuse off; after-abort nothing"), tmp_path / "one")
    assert run_parts(whole, *PARTS) == ["", "", "", ""]
    assert whole.waiting == []
    part = BoardReport.open(configured({**ORANGE_PI_5}, "callback-thread calling"), tmp_path / "two")
    assert run_parts(part, "doctor", "probe") == ["", ""]
    assert part.waiting == ["bench", "trial"]
    first, second = (json.loads(report.json_file.read_text("utf-8")) for report in (whole, part))

    table, asked = board_table([first, second]).split("\n\n")
    heads, _, orange, radxa = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
    assert heads[:6] == ["board", "SoC", "kernel", "rknpu", "model", "librkllmrt.so"]
    assert orange[:5] == ["Orange Pi 5", "RK3588", "6.1.43-rockchip-rk3588", "0.9.8", "demo"]
    assert radxa[:5] == ["Radxa ROCK 5B", "RK3588", "6.1.84-rockchip", "0.9.8", "demo"]
    figures = dict(zip(heads, radxa, strict=True))
    assert re.fullmatch(r"\d+ of 20", figures["useful answers"])
    # Without reuse every prompt is read whole.
    read, prompt = (int(text.replace(",", "")) for text in re.findall(r"[\d,]+", figures["ten questions read"]))
    assert read >= prompt - 10
    # A file saves nothing where runs do not reuse the KV cache, and both times are there.
    for name in ("first question after a start, first token ms", "the same with the file of its tools, ms"):
        assert float(figures[name]) > 0
    unmeasured = {name for name, text in zip(heads, orange, strict=True) if text == "-"}
    assert {*heads[6:-1]} - unmeasured <= {"abort ms", "logits step ms"}
    rows = dict(line.strip("| ").split(" | ", 1) for line in asked.splitlines()[2:])
    assert set(rows) <= set(UNKNOWNS)
    assert "Radxa ROCK 5B, 1.3.0: who calls back: library" in rows["Which thread runs the callback"]
    assert "Orange Pi 5, 1.3.0: who calls back: calling" in rows["Which thread runs the callback"]
    reuse = rows["Whether `keep_history = 0` leaves tokens in the KV cache"]
    assert "Radxa ROCK 5B, 1.3.0: a run without history leaves its tokens for the next: no" in reuse
    assert "Orange Pi 5, 1.3.0: a run without history leaves its tokens for the next: yes" in reuse

    page = whole.page_file.read_text("utf-8")
    assert page.startswith("# rkllm-mcp on Radxa ROCK 5B\n\n**Emulated**: no NPU was measured.")
    for name, text in figures_of(first).items():
        assert f"| {name} | {text} |" in page
    assert "Still to come: bench, trial." in part.page_file.read_text("utf-8")

    # An emulated board never gets onto the page itself.
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "one.json").write_text(json.dumps(first), "utf-8")
    with pytest.raises(ValueError, match=r"one\.json: an emulated board says nothing about a board"):
        boards(tmp_path / "reports")

    private = r"hanako|suzuki|sk-rkllm|hf_|192\.168|/home/(?!user)|/tmp|" + re.escape(str(tmp_path))
    for file in (whole.json_file, whole.page_file, part.json_file, part.page_file):
        assert re.findall(private, file.read_text("utf-8")) == []


def test_a_report_that_was_stopped_goes_on_and_one_of_another_board_is_refused(
    configured: Configured, tmp_path: Path
) -> None:
    report = BoardReport.open(configured({**RK3588}), tmp_path / "out")
    report.began -= MOST_S + 1
    assert (report.is_over_time, run_parts(report, "doctor", "trial")) == (True, ["", ""])
    assert report.values["parts"]["trial"]["left"] == 20
    again = BoardReport.open(configured({**RK3588}), tmp_path / "out")
    assert again.waiting == ["probe", "bench", "trial"]

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        again.run_part("probe", interrupt)
    again.save()
    assert BoardReport.open(configured({**RK3588}), tmp_path / "out").waiting == ["probe", "bench", "trial"]
    assert "- probe failed: stopped before its end" in again.page_file.read_text("utf-8")
    with pytest.raises(UsageError, match="is of another board, model or kernel; start anew with --again"):
        BoardReport.open(configured({**ORANGE_PI_5}), tmp_path / "out")
    assert BoardReport.open(configured({**ORANGE_PI_5}), tmp_path / "out", again=True).waiting == [*PARTS]
    report.json_file.write_text("{}", "utf-8")
    with pytest.raises(UsageError, match=r"is not a report \(KeyError\); start anew with --again"):
        BoardReport.open(configured({**RK3588}), tmp_path / "out")


def test_a_part_that_fails_is_a_line_with_the_last_lines_of_the_runtime_and_is_tried_again(
    configured: Configured, tmp_path: Path
) -> None:
    report = BoardReport.open(configured({**RK3588}, "crash 0"), tmp_path / "out")
    problem = report.run_part("bench", lambda _: None)
    assert problem
    assert f"- bench failed: {report.values['parts']['bench']['problem']}" in report.page_file.read_text("utf-8")
    assert "bench" in report.waiting
    assert run_parts(BoardReport.open(configured({**RK3588}), tmp_path / "out"), "doctor") == [""]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("/home/hanako/models/qwen.rkllm cannot be read", "…/qwen.rkllm cannot be read"),
        ("~/models/a.rkllm", "…/a.rkllm"),
        ("/usr/lib/librkllmrt.so, version 1.3.0", "…/librkllmrt.so, version 1.3.0"),
        ("http://user:pass@10.0.0.3:8080/v1 did not answer", "[address] did not answer"),
        ("192.168.1.20, fe80:0:0:0:1:2:3:4, 00:1a:2b:3c:4d:5e", "[address], [address], [address]"),
        ("hanako@rock5b wrote to hanako@example.com", "[name] wrote to [name]"),
        ("the server suzuki-nas and Hanako", "the server [name] and [name]"),
        ("rknpu 0.9.8 on 6.1.115-vendor-rk35xx at 1000 MHz", "rknpu 0.9.8 on 6.1.115-vendor-rk35xx at 1000 MHz"),
        ("key hf_AbC123dEf456GhI789jKl012MnO345pQr", "key [REDACTED]"),
    ],
)
def test_a_text_loses_what_is_private_and_keeps_what_is_of_the_board(text: str, written: str) -> None:
    assert without_private(text, frozenset({"hanako", "suzuki-nas"})) == written


def test_every_unknown_is_a_row_of_its_page_and_every_fact_is_one_of_the_probe() -> None:
    page = (REPOSITORY / "docs" / "performance.md").read_text("utf-8")
    assert [title for title in UNKNOWNS if f"| **{title}" not in page] == []
    assert [name for names in UNKNOWNS.values() for name in names if name not in FACTS] == []


def test_the_page_of_boards_is_what_the_reports_in_its_folder_make() -> None:
    assert boards(BOARD_REPORTS) in (REPOSITORY / "docs" / "performance.md").read_text("utf-8")
    form = (REPOSITORY / ".github" / "ISSUE_TEMPLATE" / "board-report.yml").read_text("utf-8")
    assert ("rkllm-mcp-report.md" in form, "rkllm-mcp-report.json" in form) == (True, True)


def test_the_command_says_what_it_does_and_for_how_long(
    configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured({**RK3588})
    words = ["--config", str(tmp_path / "hanako" / "mcp_config.toml"), "report", "--out", str(tmp_path / "out")]
    report = BoardReport.open(configured({**RK3588}), tmp_path / "out")
    run_parts(report, "doctor")
    for name in ("probe", "bench", "trial"):
        report.values["parts"][name] = {"seconds": 1.0}
    report.save()
    done = run_here(os.environ, *words)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"Written: {report.page_file}")
    assert "  doctor: done\n  probe: done\n" in done.stderr
