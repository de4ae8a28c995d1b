"""The configured runtime and model are probed, the profile is kept, and its facts become findings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rkllm_mcp.assembly import chosen_model, engine_settings, model_form
from rkllm_mcp.board.finding import Finding
from rkllm_mcp.config import Config
from rkllm_mcp.measurement.asking import prompts_for
from rkllm_mcp.runtime.probe import probe
from rkllm_mcp.runtime.profile import FACTS, RuntimeProfile, save_profile


def probe_runtime(config: Config, on_step: Callable[[str], None]) -> tuple[RuntimeProfile, Path]:
    """Probe what the configuration names and keep the profile; blocks for seconds, on a board for minutes.

    Args:
        config: which runtime and which model.
        on_step: is told the name of each experiment.

    Raises:
        RuntimeUnusableError: runtime or model cannot be used, or the profile cannot be written.
    """
    model = chosen_model(config)
    profile = probe(engine_settings(config, model), prompts_for(model_form(config, model)), on_step=on_step)
    return profile, save_profile(profile)


def profile_findings(profile: RuntimeProfile) -> list[Finding]:
    """What was found, a finding each; what stayed open is ``unknown`` and says why."""
    facts = [
        Finding("probe", "info", f"{label.partition(' {')[0]}: {_shown(profile.facts[name])}")
        for name, label in FACTS.items()
        if name in profile.facts
    ]
    return facts + [Finding("probe", "unknown", f"{name}: {why}") for name, why in profile.unsettled.items()]


def _shown(value: Any) -> str:
    """A fact for a person; its JSON is in the profile."""
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case None:
            return "waits for the end of the other"
        case {**entries}:
            return ", ".join(f"{name} {entry}" for name, entry in entries.items())
        case [[_, _], *_]:
            return ", ".join(f"{tokens} → {_shown(figure)}" for tokens, figure in value)
        case [str(), *_]:
            return "; ".join(value)
        case [_, _]:
            return f"{_shown(value[0])} / {_shown(value[1])}"
        case []:
            return "nothing"
        case _:
            return str(value)
