"""The system text is the owner's, or the project's, and names the language when one is set."""

from __future__ import annotations

from rkllm_mcp.agent.system_text import system_text, without_tools
from rkllm_mcp.catalogue import translate


def test_the_owners_words_are_used_as_they_are() -> None:
    assert system_text("You are a cat.") == "You are a cat."
    assert system_text("") == ""


def test_without_words_the_project_speaks_and_the_question_sets_the_language() -> None:
    assert system_text() == translate(
        "model.system_prompt",
        tools=translate("model.call_tools"),
        instruction="Answer in the language of the question.",
    )


def test_without_tools_nothing_is_said_of_them_and_the_owners_words_stay() -> None:
    for setting in (None, "en", "ja"):
        bare = without_tools(system_text(None, setting))
        assert "tool" not in bare
        assert "ツール" not in bare
        assert system_text(None, setting).startswith(bare[:20])
    assert without_tools("You are a cat with a tool.") == "You are a cat with a tool."


def test_a_language_is_named() -> None:
    assert system_text("You are a cat.", "ja") == "You are a cat. 日本語で答えてください。"
    assert system_text("You are a cat.", "en") == "You are a cat. Answer in English."
    for setting in ("ja", "ja-JP", "日本語"):
        text = system_text(None, setting)
        assert text.startswith("あなたは小さなボードの上で動く")
        assert text.endswith("日本語で答えてください。")
    assert system_text(None, "Ainu") == translate(
        "model.system_prompt", tools=translate("model.call_tools"), instruction="Answer in Ainu."
    )
