from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rkllm_mcp.app.models import held_limits
from rkllm_mcp.diagnostics.findings import CheckResult
from rkllm_mcp.diagnostics.probe.runner import FACTS
from rkllm_mcp.models.cards import load_model
from rkllm_mcp.runtime.library import fingerprint
from rkllm_mcp.runtime.profile import RuntimeProfile, model_identity, profile_folder, save_profile
from rkllm_mcp.surfaces.cli.doctor import report
from rkllm_mcp.surfaces.cli.main import main
from tests.support.demo_model import demo_with_wrong_tokenizer
from tests.support.emulator import libraries
from tests.support.rkllm_files import container
from tests.support.served import scripted_model

Doctor = Callable[..., tuple[int, str, str]]


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """``rkllm-mcp doctor`` in an empty folder, on the emulated runtime flat out."""
    for name in [name for name in os.environ if name.startswith(("RKLLM_", "MCP_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RKLLM_EMULATOR_SPEED", "flat")
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["doctor", *words])
        captured = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, captured.out, captured.err

    return run


def named(out: str) -> dict[str, dict[str, Any]]:
    return {finding["name"]: finding for finding in json.loads(out)["findings"]}


def test_the_probe_reports_its_answers_and_stores_them(doctor: Doctor, tmp_path: Path) -> None:
    library = str(libraries()["1.2.3"])
    words = ("--runtime", library, "--model", "demo")
    before = named(doctor("--json", *words)[1])["runtime profile"]
    assert (before["status"], before["command"]) == ("info", "rkllm-mcp doctor --probe")
    code, out, err = doctor("--json", "--probe", *words)
    result = json.loads(out)
    assert (code, list(result)) == (0, ["format", "status", "findings", "profile"])
    assert result["format"] == 1
    assert all(set(finding) == {"name", "status", "found", "remedy", "command"} for finding in result["findings"])
    facts = result["profile"]["facts"]
    assert (result["profile"]["version"], facts["callback_thread"], facts["reuses_prefix"]) == (
        "1.2.3",
        "library",
        True,
    )
    told = [finding["found"] for finding in result["findings"] if finding["name"] == "probe"]
    assert "who calls back: library" in told
    assert "a run without history leaves its tokens for the next: yes" in told
    assert len(told) == len(facts) + len(result["profile"]["unsettled"])
    assert err.startswith("[probe: callback thread]\n")
    (kept,) = profile_folder({"HOME": str(tmp_path)}).iterdir()
    assert named(out)["runtime profile"]["found"] == f"kept in {kept}"
    after = named(doctor("--json", *words)[1])["runtime profile"]
    assert (after["status"], after["found"].endswith(f", {len(facts)} facts")) == ("ok", True)


@pytest.mark.parametrize(
    ("facts", "status", "found"),
    [
        ({"reuses_prefix": True, "restart_ms": 360.0}, "ok", "are held to their schema"),
        ({"reuses_prefix": True, "restart_ms": 1900.0}, "info", "a correction takes 1.9 s"),
        ({"reuses_prefix": False}, "info", "its runs do not reuse the KV cache"),
    ],
)
def test_it_says_whether_answers_are_held_as_the_model_holds_them(
    doctor: Doctor, tmp_path: Path, facts: dict[str, Any], status: str, found: str
) -> None:
    pytest.importorskip("llguidance")
    library, model = libraries()["1.2.3"], scripted_model(tmp_path / "model", "rule\nsay Hello.\n", is_held=True)
    identity = model_identity(model / "model.rkllm")
    profile = RuntimeProfile(fingerprint(library).git_blob, identity, "1.2.3", "1.2.1", True, "2026-11-29", facts)
    save_profile(profile)
    finding = named(doctor("--json", "--runtime", str(library), "--model", str(model))[1])["held answers"]
    assert finding["status"] == status
    assert found in finding["found"]
    assert (held_limits(load_model(model), profile) is not None) == (status == "ok")


def test_the_probe_finds_another_models_tokenizer(doctor: Doctor, tmp_path: Path) -> None:
    model = demo_with_wrong_tokenizer(tmp_path / "wrong")
    code, out, _ = doctor("--json", "--probe", "--runtime", "emulator", "--model", str(model))
    finding = named(out)["tokenizer"]
    assert (code, finding["status"]) == (3, "fail")
    assert finding["found"].startswith("tokenizer.json is not this model's own: token ")


def test_every_fact_can_be_shown(doctor: Doctor) -> None:
    out = doctor("--probe", "--runtime", "emulator", "-q")[1]
    shown = [line.partition("probe")[2].strip() for line in out.splitlines() if " probe " in line]
    # This model has no vision encoder; tests/diagnostics/test_probe.py measures one that has.
    of_pictures = ("encoder_", "picture_", "second_picture")
    labels = {label.partition(" {")[0] for name, label in FACTS.items() if not name.startswith(of_pictures)}
    # Flat out no prefill is long enough to be aborted, and no cache quicker than another.
    assert labels - {line.partition(": ")[0] for line in shown} <= {
        "an abort during prefill",
        "until the run returned, and the whole prefill, ms",
        "prefill without a prompt cache, times as long",
        "n_keep tokens stay when a run leaves nothing else",
    }
    assert not [line for line in shown if line.endswith(": ") or "{" in line]


def test_a_runtime_that_cannot_be_probed_is_a_finding(doctor: Doctor) -> None:
    code, out, _ = doctor("--probe", "--json", "--model", "demo", "--runtime", "none.so")
    finding = named(out)["runtime profile"]
    assert (code, finding["status"], json.loads(out)["profile"]) == (3, "fail", None)
    assert finding["found"].startswith("There is no runtime library at")


def test_a_real_models_header_is_read(doctor: Doctor, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "model.rkllm").write_bytes(container())
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.toml").write_text('name = "mine"\ncontext_tokens = 8192\n')
    finding = named(doctor("--json", "--model", str(folder), "--runtime", str(libraries()["1.2.3"]))[1])["model file"]
    assert finding["status"] == "fail"
    assert finding["found"].startswith(
        "RK3588, toolkit 1.2.3, 3 NPU cores, context up to 4096, qwen2; 8192 are configured"
    )
    (folder / "model.rkllm").write_bytes(b"PK\x03\x04")
    finding = named(doctor("--json", "--model", str(folder), "--runtime", "emulator")[1])["model file"]
    assert (finding["status"], finding["remedy"]) == ("warn", "Unpack it and name the .rkllm file in it.")


def test_conflicting_libraries_are_reported(doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [str(libraries()[version].parent) for version in ("1.3.0", "1.2.3")]
    monkeypatch.setenv("LD_LIBRARY_PATH", ":".join(folders))
    found = named(doctor("--json", "--model", "demo", "--runtime", str(libraries()["1.3.0"]))[1])
    assert found["other libraries"]["found"] == f"{libraries()['1.2.3']} (1.2.3)"


def test_servers_are_started_and_one_that_fails_is_reported_with_its_reason(doctor: Doctor, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    servers = {"time": '["-m", "mcp_server_time"]', "gone": '["-c", "import sys; sys.exit(3)"]'}
    config.write_text(
        "".join(
            f'[[servers]]\nname = "{name}"\ncommand = "{sys.executable}"\nargs = {args}\n'
            for name, args in servers.items()
        )
    )
    code, out, err = doctor("--json", "--config", str(config), "--runtime", "emulator", "--model", "demo")
    found = named(out)
    assert (code, err.splitlines()[0]) == (0, "[doctor: starting 2 servers]")
    assert found["server time"]["status"] == "ok"
    assert re.search(r"-m mcp_server_time: 2 tools after [\d.]+ s$", found["server time"]["found"])
    assert (found["server gone"]["status"], found["server gone"]["command"]) == ("warn", "rkllm-mcp servers test gone")
    assert "so the server is skipped" in found["server gone"]["found"]


def test_a_remedy_and_its_command_are_below_the_finding(doctor: Doctor) -> None:
    lines = doctor("--runtime", "emulator", "-q")[1].splitlines()
    at = next(index for index, line in enumerate(lines) if "servers" in line and "none configured" in line)
    assert [line.strip() for line in lines[at + 1 : at + 3]] == [
        "Add one.",
        "$ rkllm-mcp servers add NAME -- COMMAND ARGS",
    ]


def test_on_a_narrow_screen_sentences_are_below_the_names_and_commands_stay_whole() -> None:
    findings = [
        CheckResult(
            "driver", "warn", "0.9.6 is older than 0.9.8", "Update the kernel of the board.", "apt-get upgrade --all"
        ),
        CheckResult("model", "ok", "東京"),
    ]
    assert report(findings, color=False, columns=24) == (
        "! driver\n"
        "    0.9.6 is older than\n"
        "    0.9.8\n"
        "    Update the kernel of\n"
        "    the board.\n"
        "    $ apt-get upgrade --all\n"
        "✓ model\n"
        "    東京\n"
        "It works here; 1 thing could be better.\n"
    )
    assert report(findings, color=False, columns=40).startswith(
        "! driver  0.9.6 is older than 0.9.8\n"
        "          Update the kernel of the\n"
        "          board.\n"
        "          $ apt-get upgrade --all\n"
    )
