"""The chat without a terminal: the same conversation, line by line. A real terminal is in tests/end_to_end."""

from __future__ import annotations

from pathlib import Path

from rkllm_mcp.messages import Message, ToolCall, ToolResult
from rkllm_mcp.surfaces.chat_commands import COMMANDS
from rkllm_mcp.surfaces.chat_help import HELP
from rkllm_mcp.surfaces.transcript import transcript
from rkllm_mcp.surfaces.unheard import NO_TOOLS
from tests.support.demo_app import make_demo
from tests.support.feature_demo import DESK, make_features


def test_a_conversation_is_held_line_by_line(tmp_path: Path) -> None:
    saved = tmp_path / "saved.md"
    lines = [
        "/help",
        "/tools",
        "/servers",
        "こんにちは",
        "/stats",
        "/model",
        f"/save {saved}",
        f"/save {saved}",
        "/save",
    ]
    lines += ["/hlep", "/clear", "/quit", "never read"]
    done = make_demo(tmp_path, servers=()).run("chat", stdin="\n".join(lines))
    assert done.returncode == 0
    for usage, explanation in HELP["en"].commands.values():
        assert f"\n{usage} " in f"\n{done.stdout}"
        assert f"  {explanation}\n" in done.stdout
    for piece in (
        "No tools; /servers says why.",
        "No servers are configured.",
        "◆ ",
        "questions            1\n",
        "demo",
    ):
        assert piece in done.stdout
    for piece in (
        f"Saved to {saved}",
        f"{saved} exists; choose another name",
        "/save needs a file: /save answer.md",
        (
            "There is no /hlep; did you mean /help? "
            "The commands are /help /tools /servers /resources /resource /prompts /prompt /enable /disable /approve "
            "/history /conversations /resume /rename /stats /model /clear /save /quit"
        ),
        "A new conversation begins.",
        "[NPU: emulated; model 'demo' answers from a script, not from a language model]",
    ):
        assert piece in done.stderr
    assert "## You\n\nこんにちは\n\n## Assistant\n\n" in saved.read_text("utf-8")
    assert "never read" not in done.stdout + done.stderr


def test_every_command_is_explained_in_every_language() -> None:
    assert [list(said.commands) for said in HELP.values()] == [list(COMMANDS)] * len(HELP)
    assert [usage.split()[0] for said in HELP.values() for usage, _ in said.commands.values()] == [*COMMANDS] * 2


def test_a_japanese_chat_explains_itself_in_japanese(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, servers=(), extra='[agent]\nlanguage = "ja"\n')
    done = demo.run("chat", stdin="/help\n/quit\n")
    assert "この一覧\n" in done.stdout
    assert "Ctrl-D で終了します。\n" in done.stdout
    assert "this list" not in done.stdout


def test_a_call_that_no_tool_can_take_is_told_in_a_sentence(tmp_path: Path) -> None:
    demo = make_features(tmp_path, [DESK])
    done = demo.run("run", "--no-tools", "Who am I?")
    assert NO_TOOLS in done.stdout
    assert "<tool_call>" not in done.stdout
    assert "<tool_call>" in done.stderr


def test_a_result_with_a_fence_of_its_own_stands_in_a_longer_one() -> None:
    text = "```python\nprint()\n```"
    messages = [Message("tool", results=(ToolResult("call_1", "read", text),))]
    assert transcript(messages) == f"### read\n\n````\n{text}\n````\n"


def test_a_transcript_tells_calls_and_results() -> None:
    messages = [
        Message("system", "Be brief."),
        Message("user", "Weather?"),
        Message("assistant", "", calls=(ToolCall("call_1", "get_weather", {"location": "東京"}),)),
        Message("tool", results=(ToolResult("call_1", "get_weather", "sunny"),)),
        Message("assistant", "\nSunny."),
    ]
    assert transcript(messages) == (
        "> Be brief.\n\n"
        "## You\n\nWeather?\n\n"
        '## Assistant\n\n`get_weather({"location": "東京"})`\n\n'
        "### get_weather\n\n```\nsunny\n```\n\n"
        "## Assistant\n\nSunny.\n"
    )
