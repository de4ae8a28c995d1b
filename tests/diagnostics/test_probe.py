"""The probe, held against every switch of the emulated runtime that it is meant to find."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rkllm_mcp.app.model_form import model_form
from rkllm_mcp.app.settings import engine_settings
from rkllm_mcp.config.sections import Config
from rkllm_mcp.diagnostics.probe.plan import PLAN
from rkllm_mcp.diagnostics.probe.prompts import picture_prompt, prompts_for
from rkllm_mcp.diagnostics.probe.runner import FACTS, probe
from rkllm_mcp.diagnostics.probe.subject import ProbePrompts
from rkllm_mcp.errors import ModelLoadError
from rkllm_mcp.models.cards import load_model
from rkllm_mcp.runtime.profile import RuntimeProfile
from rkllm_mcp.runtime.settings import EngineSettings
from tests.support.emulator import EVERY_VERSION, IM_END, Emulator, libraries, prompt_of
from tests.support.seeing_model import seeing_model
from tests.support.shared import REPOSITORY

RULES = """
rule
  user other
  say The other answer is another one.
rule
  say An answer of some words, and no more.
"""
PROMPTS = ProbePrompts(
    tuple(prompt_of("a question")), tuple(prompt_of("the other")), (*b"plain text ",), frozenset({IM_END})
)
# Prefill and decode that take long enough to be aborted, and no longer.
SLOW = "speed prefill 1200 decode 2000\ncontext 4096"


def profile_of(
    emulator: Emulator,
    *faults: str,
    experiments: str = "",
    patience_s: float = 20.0,
    speed: str = "speed flat\ncontext 4096",
) -> RuntimeProfile:
    """Probe the emulated runtime with these faults; only these experiments, separated by commas."""
    head = "\n".join([speed, *(f"fault {fault}" for fault in faults)])
    settings = EngineSettings(emulator.model(RULES, head), emulator.library, context_tokens=2048)
    wanted = tuple(one for one in PLAN if not experiments or one.name in experiments.split(","))
    return probe(settings, PROMPTS, plan=wanted, patience_s=patience_s)


def test_every_experiment_is_made_on_every_family(emulator: Emulator) -> None:
    profile = profile_of(emulator)
    settled = {name for name in FACTS if name in profile.facts}
    # Flat out there is no time in which to abort a prefill, and 1.2.0 counts no tokens.
    untimed = {"abort_in_prefill", "abort_in_prefill_ms", "prompt_cache_speed_up", "keeps_leading_tokens"}
    uncounted = {
        "caches_last_token",
        "full_match_evaluates",
        "history_continues",
        "logits_step_keeps_cache",
        "prompt_cache_prefills",
        "reuses_prefix",
        "reuses_prefix_after_history",
        "restart_evaluates",
    }
    later = {"null_role", "pause_left_by", "pause_returns"}
    pictures = {name for name in FACTS if name.startswith(("encoder_", "picture_", "second_picture"))}
    missing = pictures | (untimed | uncounted | later if emulator.version == "1.2.0" else untimed)
    assert set(FACTS) - settled == missing
    assert set(profile.unsettled) >= {"abort", "leading tokens"}
    assert profile.unsettled["pictures"] == "this model has no vision encoder"
    assert (profile.version, profile.emulated, len(profile.library)) == (emulator.version, True, 40)


def test_a_runtime_that_counts_no_tokens_is_timed(newest: Emulator) -> None:
    oldest = Emulator("1.2.0", libraries()["1.2.0"], newest.folder)
    facts = profile_of(oldest, experiments="cache", speed=SLOW).facts
    assert (facts["reuses_prefix"], facts["reuses_prefix_after_history"]) == (True, True)


@pytest.mark.parametrize(
    ("faults", "experiment", "expected"),
    [
        (
            "callback-thread library",
            "callback thread",
            {"callback_thread": "library", "callback_thread_is_kept": True},
        ),
        (
            "callback-thread calling",
            "callback thread",
            {"callback_thread": "calling", "callback_thread_is_kept": True},
        ),
        ("callback-thread new", "callback thread", {"callback_thread": "library", "callback_thread_is_kept": False}),
        ("finish-text empty", "ending", {"finish_text": "empty", "ends_at_stop_token": True}),
        ("finish-text null", "ending", {"finish_text": "null"}),
        ("ignore-eos", "ending", {"ends_at_stop_token": False}),
        ("skipped-token silent", "hidden tokens", {"skipped_token": "silent"}),
        ("skipped-token null", "hidden tokens", {"skipped_token": "null"}),
        ("skipped-token empty", "hidden tokens", {"skipped_token": "empty"}),
        ("is-running normal", "is_running", {"is_running_while_idle": 0, "is_running_while_running": 1}),
        ("is-running inverted", "is_running", {"is_running_while_idle": 1, "is_running_while_running": 0}),
        ("reuse always", "cache", {"reuses_prefix": True, "reuses_prefix_after_history": True}),
        ("reuse keep-history-only", "cache", {"reuses_prefix": False, "reuses_prefix_after_history": True}),
        ("reuse off", "cache", {"reuses_prefix": False, "reuses_prefix_after_history": False}),
        ("full-match last", "cache", {"full_match_evaluates": "last"}),
        ("full-match none", "cache", {"full_match_evaluates": "none"}),
        ("full-match all", "cache", {"full_match_evaluates": "all"}),
        ("last-token uncached", "cache", {"caches_last_token": False}),
        ("last-token cached", "cache", {"caches_last_token": True, "reuses_prefix": True}),
        ("reuse off; system-prompt cached", "leading tokens", {"keeps_leading_tokens": True}),
        ("reuse off; system-prompt dropped", "leading tokens", {"keeps_leading_tokens": False}),
        ("hidden-rows all; logits-rows last", "rows", {"hidden_rows": "all", "logits_rows": "last"}),
        ("hidden-rows last; logits-rows all", "rows", {"hidden_rows": "last", "logits_rows": "all"}),
        ("hidden-callbacks two", "rows", {"hidden_callbacks": 2, "hidden_needs_clear": False}),
        ("hidden-callbacks one", "rows", {"hidden_callbacks": 1}),
        ("hidden-needs-clear", "rows", {"hidden_needs_clear": True}),
        (
            "reuse always",
            "logits step",
            {"logits_step_rows": 1, "logits_step_keeps_cache": True, "logits_step_is_wrong": False},
        ),
        ("logits-cache dropped", "logits step", {"logits_step_rows": 167, "logits_step_keeps_cache": False}),
        ("logits-rows last; reuse off", "logits step", {"logits_step_rows": 1, "logits_step_keeps_cache": False}),
        ("hidden-needs-clear", "logits step", {"logits_step_is_wrong": True}),
        ("after-abort finish", "abort", {"abort_ends_with": "finish", "abort_idle_status": 0, "abort_status": 0}),
        ("after-abort error", "abort", {"abort_ends_with": "error"}),
        ("after-abort nothing", "abort", {"abort_ends_with": "nothing", "abort_in_decode": "honoured"}),
        ("abort-return -1", "abort", {"abort_status": -1}),
        ("abort-idle-fails", "abort", {"abort_idle_status": -1}),
        ("abort-late 5", "abort", {"abort_in_decode_tokens": 5}),
        ("abort-forgotten always", "abort", {"abort_in_decode": "forgotten"}),
        ("leave-pause clear", "pause", {"pause_left_by": ["clear"], "pause_returns": True}),
        ("leave-pause abort", "pause", {"pause_left_by": ["clear", "abort"]}),
        ("leave-pause run", "pause", {"pause_left_by": ["clear", "abort", "run"]}),
        ("leave-pause never", "pause", {"pause_left_by": []}),
        ("over-long return", "overflow", {"over_long": "return"}),
        ("over-long callback", "overflow", {"over_long": "callback"}),
        ("over-long crash", "overflow", {"over_long": "crash"}),
        ("run-async returns", "asynchronous", {"run_async": "works"}),
        ("log-noise", "ending", {"log_streams": "both"}),
        ("matmul-fails", "callback thread", {"complaints": ["E rkllm: matmul(w8a8) run failed"]}),
        ("reuse always", "callback thread", {"complaints": []}),
    ],
)
def test_a_switch_of_the_runtime_is_found(
    newest: Emulator, faults: str, experiment: str, expected: Mapping[str, Any]
) -> None:
    profile = profile_of(newest, *faults.split("; "), experiments=experiment)
    assert {name: profile.facts.get(name) for name in expected} == expected


def test_a_slow_logits_step_is_measured_as_slow(newest: Emulator) -> None:
    """A step of 1 to 8 tokens was reported to take 2.2 s."""
    slow, quick = (
        profile_of(newest, f"stall after 0 {seconds}", experiments="logits step").facts["logits_step_ms"]
        for seconds in (0.2, 0)
    )
    # The emulator never takes less time than that.
    assert slow >= 200
    assert quick < slow


def test_what_a_correction_costs_is_measured(newest: Emulator) -> None:
    facts = profile_of(newest, experiments="abort").facts
    # The token that the cache lacks, and the last of the prompt.
    assert facts["restart_ms"] > 0
    assert facts["restart_evaluates"] in {1, 2}
    without_reuse = profile_of(newest, "reuse off", experiments="abort").facts
    assert without_reuse["restart_evaluates"] > 2


@pytest.mark.parametrize(
    ("faults", "expected"),
    [([], "waits"), (["abort-in-prefill"], "cuts"), (["abort-forgotten in-prefill"], "forgotten")],
    ids=["waits", "cuts", "forgotten"],
)
def test_what_an_abort_does_to_a_prefill_is_found(newest: Emulator, faults: list[str], expected: str) -> None:
    facts = profile_of(newest, *faults, experiments="abort", speed=SLOW).facts
    assert facts["abort_in_prefill"] == expected
    took_ms, whole_ms = facts["abort_in_prefill_ms"]
    assert 0 < took_ms < 2 * whole_ms


@pytest.mark.parametrize(("fault", "expected"), [("run-async hangs", "hangs"), ("run-async silent", "silent")])
def test_an_asynchronous_run_that_never_calls_back_is_distinguished_from_one_that_never_returns(
    newest: Emulator, fault: str, expected: str
) -> None:
    profile = profile_of(newest, fault, experiments="asynchronous", patience_s=20.0 if expected == "silent" else 0.5)
    assert (profile.facts["run_async"], profile.unsettled) == (expected, {})


def test_a_crash_costs_the_facts_of_its_experiment_and_no_others(newest: Emulator) -> None:
    rules = RULES.replace("user other", "user other\n  fault crash SIGSEGV after 2")
    settings = EngineSettings(newest.model(rules), newest.library, context_tokens=2048)
    wanted = tuple(one for one in PLAN if one.name in {"callback thread", "pause", "ending"})
    profile = probe(settings, PROMPTS, plan=wanted)
    assert profile.unsettled == {"pause": "crashed: SIGSEGV"}
    assert (profile.facts["callback_thread"], profile.facts["finish_text"]) == ("library", "empty")


def test_a_silence_is_ended_and_noted(newest: Emulator) -> None:
    profile = profile_of(
        newest, "hang after 2 ignoring-abort", experiments="callback thread,is_running", patience_s=0.3
    )
    assert profile.unsettled == {
        "callback thread": "hung: no end within 0.3 s",
        "is_running": "hung: no end within 0.3 s",
    }


def test_a_runtime_that_breaks_on_everything_is_not_asked_everything(newest: Emulator) -> None:
    unsettled = profile_of(newest, "crash SIGBUS after 1").unsettled
    assert list(unsettled.values()).count("crashed: SIGBUS") == 4
    assert unsettled["role"] == unsettled["busy"] == "not tried: too many experiments before it broke"


def test_a_runtime_that_fails_every_run_does_not_stop_it(newest: Emulator) -> None:
    profile = profile_of(newest, "error after 0", experiments="callback thread,is_running")
    assert profile.unsettled == {
        "callback thread": "rkllm_run failed (it returned -1)",
        "is_running": "it did not answer during a run",
    }


@pytest.mark.parametrize("fault", ["init-fails", "init-null-handle", "crash SIGILL at init"])
def test_a_model_that_does_not_load_cannot_be_probed(newest: Emulator, fault: str) -> None:
    with pytest.raises(ModelLoadError, match="The probe cannot load the model: "):
        profile_of(newest, fault)


def test_a_context_that_is_refused_is_a_fact(newest: Emulator) -> None:
    settings = EngineSettings(newest.model(RULES, "speed flat\ncontext 64"), newest.library, context_tokens=64)
    odd = tuple(one for one in PLAN if one.name in {"callback thread", "odd context"})
    assert probe(settings, PROMPTS, plan=odd).facts["odd_context"] == "accepted"


def test_the_pace_is_measured_for_longer_and_longer_prompts(newest: Emulator) -> None:
    facts = profile_of(newest, experiments="pace", speed="speed prefill 20000 decode 5000\ncontext 4096").facts
    assert [tokens for tokens, _ in facts["prefill_ms"]] == [64, 256, 1024]
    # The emulator never takes less time than that.
    assert all(took_ms >= tokens / 20 for tokens, took_ms in facts["prefill_ms"])
    assert all(took_ms > 0 for _, took_ms in facts["decode_ms"])


def test_the_probe_leaves_no_file_and_no_descriptor(newest: Emulator) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    profile_of(newest, "over-long crash")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert [path.name for path in newest.folder.iterdir()] == ["model.rkllm"]


def test_every_fact_has_a_name_and_every_experiment_another_name() -> None:
    assert len({one.name for one in PLAN}) == len(PLAN)
    known = {name for one in PLAN for facts in (one.if_crashed, one.if_hung, one.if_refused) for name in facts}
    assert known <= set(FACTS)


def open_questions() -> list[list[str]]:
    page = (REPOSITORY / "docs" / "performance.md").read_text("utf-8").partition("## Open questions")[2]
    return [line.split("|") for line in page.partition("Of models")[0].splitlines() if line.startswith("| **")]


def test_every_unknown_names_an_existing_experiment() -> None:
    rows = open_questions()
    named = {name for row in rows for name in re.findall("`([a-z_ ]+)`", row[3])}
    assert named == {one.name for one in PLAN}
    assert all(row[3].strip() in {"—", "every load"} or "`" in row[3] for row in rows)


def test_every_reported_fact_names_a_switch_of_the_emulator_that_a_test_sets() -> None:
    reported = [row[1] for row in open_questions() if re.search(r"eported|#\d|measurement", row[1])]
    switches = [re.findall("`([a-z-]+)`", text.rpartition("witch")[2]) for text in reported]
    assert [text for text, names in zip(reported, switches, strict=True) if not names] == []
    table = (REPOSITORY / "native" / "README.md").read_text("utf-8")
    # On the product's own path: the tests of the probe and of the C interface alone are not enough.
    files = (REPOSITORY / "tests").rglob("test_*.py")
    texts = [path.read_text("utf-8") for path in files if path.parent.name not in {"diagnostics", "native"}]
    for name in {name for names in switches for name in names}:
        assert re.search(rf"^\|.*`{name}[ `]", table, re.MULTILINE), name
        assert any(re.search(rf"(?:fault |[\"(; ]){name} ?[^`]", text) for text in texts), name


@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize(
    ("faults", "second", "lost"),
    [("", "right", 0), ("fault stale-pictures\nfault leak-pictures 2", "otherwise", 2048)],
    ids=["sound", "stale and leaking"],
)
def test_what_a_runtime_makes_of_pictures_is_found(
    tmp_path: Path, version: str, faults: str, second: str, lost: int
) -> None:
    folder = load_model(seeing_model(tmp_path, faults=f"template chatml\n{faults}", encoder="seconds 0.01"))
    config = Config.model_validate({"model": {"path": str(folder.folder)}})
    form = model_form(config, folder)
    prompts = replace(prompts_for(form), pictures=picture_prompt(form, folder))
    settings = replace(engine_settings(config, folder), library=libraries()[version])
    plan = tuple(one for one in PLAN if one.name == "pictures")
    profile = probe(settings, prompts, plan=plan, patience_s=20.0)
    facts = profile.facts
    assert profile.unsettled == {}
    assert facts["second_picture"] == second
    # An idle heap grows by some pages.
    leaks = facts["picture_leak_kib"]
    assert [round(leak / 1024) for leak in leaks.values()] == [lost // 1024] * 2
    assert list(leaks) == ["without history", "with history, cleared"]
    # Fewer cores take longer, and an empty template adds nothing.
    assert facts["encoder_ms"]["three"] < facts["encoder_ms"]["two"] < facts["encoder_ms"]["one"]
    if version != "1.2.0":
        assert facts["picture_empty_template_adds"] == 0 < facts["picture_template_adds"]
