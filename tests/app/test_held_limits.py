"""Where held answers and calls are corrected: by the card, the package and what a probe has measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rkllm_mcp.app.models import held_limits
from rkllm_mcp.generation import HeldLimits
from rkllm_mcp.models.cards import ModelCard, ModelFolder
from rkllm_mcp.runtime.profile import RuntimeProfile
from rkllm_mcp.toolcalls import constraint


def model_of(folder: Path, **card: Any) -> ModelFolder:
    file = folder / "m.rkllm"
    file.write_bytes(b"RKLLM")
    return ModelFolder(folder, ModelCard(name="m", template="qwen2.5", **card), file, folder / "tokenizer.json")


def profile_of(**facts: Any) -> RuntimeProfile:
    return RuntimeProfile("blob", "model", "1.3.0", "1.3.0", emulated=False, measured_at="", facts=facts)


@pytest.mark.parametrize(
    ("card", "facts", "is_held"),
    [
        ({}, None, True),
        ({"held": False}, None, False),
        ({"emulated": True}, None, False),
        ({"emulated": True, "held": True}, None, True),
        ({}, {"restart_ms": 360.0, "reuses_prefix": True}, True),
        ({}, {"restart_ms": 1501.0}, False),
        ({}, {"reuses_prefix": False}, False),
        ({"held": True}, {"restart_ms": 1501.0}, False),
        ({}, {}, True),
    ],
)
def test_a_model_is_held_unless_its_card_or_its_profile_says_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card: dict[str, Any], facts: dict[str, Any] | None, is_held: bool
) -> None:
    monkeypatch.setattr(constraint, "is_installed", lambda: True)
    limits = held_limits(model_of(tmp_path, **card), None if facts is None else profile_of(**facts))
    assert limits == (HeldLimits() if is_held else None)


def test_nothing_is_held_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constraint, "is_installed", lambda: False)
    assert held_limits(model_of(tmp_path), None) is None
