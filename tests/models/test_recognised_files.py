from __future__ import annotations

import pytest

from rkllm_mcp.models.cards import ModelCard
from rkllm_mcp.models.compatibility import match_model

ENTRIES = [
    ModelCard(name=name)
    for name in (
        "deepseek-r1-distill-1.5b",
        "gemma3-1b",
        "gemma3-4b",
        "gemma4-e2b",
        "hammer2.1-1.5b",
        "internlm2-1.8b",
        "llama3.2-1b",
        "llama3.2-3b",
        "minicpm4-0.5b",
        "phi-3.5-mini",
        "qwen2.5-0.5b",
        "qwen2.5-1.5b",
        "qwen2.5-coder-1.5b",
        "qwen3-0.6b",
        "qwen3-4b",
        "qwen3-4b-2507",
        "qwen3.5-4b",
        "rwkv7-1.5b",
        "smollm3-3b",
        "telechat2-3b",
        "xlam2-1b",
    )
]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen2.5-1.5B-Instruct_W8A8_RK3588", ("qwen2.5-1.5b", "model")),
        ("Qwen2.5-Coder-0.5B", ("qwen2.5-0.5b", "model")),
        ("qwen_qwen3-4b-rk3588-w8a8-opt-0-hybrid-ratio-0.5", ("qwen3-4b", "model")),
        ("Qwen3.5-4B", ("qwen3.5-4b", "model")),
        ("Qwen3-8B-rk3588", ("qwen3-0.6b", "family")),
        ("google_gemma-3-12b-it", ("gemma3-1b", "family")),
        ("Llama-3.2-3B-Instruct", ("llama3.2-3b", "model")),
        ("Llama-3.2-11B-Vision", ("llama3.2-1b", "family")),
        ("Llama-3.1-8B", None),
        ("Llama-xLAM-2-1b-fc-r", ("xlam2-1b", "model")),
        ("internlm2-chat-1_8b", ("internlm2-1.8b", "family")),
        ("SmolLM3-3B", ("smollm3-3b", "model")),
        ("TeleChat2-3B", ("telechat2-3b", "model")),
        ("Qwen2.5-Coder-1.5B-Instruct", ("qwen2.5-coder-1.5b", "model")),
        ("Qwen3-4B-Instruct-2507", ("qwen3-4b-2507", "model")),
        ("model", None),
        ("", None),
        ("1.5b", None),
    ],
)
def test_a_name_leads_to_the_entry_it_is_like(name: str, expected: tuple[str, str] | None) -> None:
    found = match_model([name], None, ENTRIES)
    assert (None if found is None else (found.card.name, found.by)) == expected


def test_the_first_name_that_tells_something_counts() -> None:
    found = match_model(["model", "Qwen3-0.6B", "gemma-3-1b"], "llama", ENTRIES)
    assert found is not None
    assert (found.card.name, found.by) == ("qwen3-0.6b", "model")


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [("qwen2", "qwen2.5-0.5b"), ("qwen3", "qwen3-0.6b"), ("gemma3_text", "gemma3-1b"), ("llama", None), (None, None)],
)
def test_without_a_name_the_architecture_tells_the_family(architecture: str | None, expected: str | None) -> None:
    found = match_model(["model"], architecture, ENTRIES)
    assert (None if found is None else (found.card.name, found.by)) == (expected and (expected, "architecture"))


def test_a_script_for_the_emulator_is_like_nothing() -> None:
    assert match_model(["demo"], None, [ModelCard(name="demo", emulated=True)]) is None
