"""The chat without a terminal: the same conversation, line by line. A real terminal is in tests/end_to_end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from rkllm_mcp.catalogue import read_catalogue, translate
from rkllm_mcp.config.sections import AgentSection, Config
from rkllm_mcp.messages import Message, ToolCall, ToolResult
from rkllm_mcp.surfaces.chat.commands import COMMANDS, is_command
from rkllm_mcp.surfaces.chat.render import transcript
from rkllm_mcp.surfaces.invocation import Session, emulation_note
from rkllm_mcp.text import LANGUAGES, with_closed_fence
from tests.support.demo_app import Demo, make_demo
from tests.support.feature_demo import DESK, make_features
from tests.support.served import scripted_model


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
    lines += ["/hlep", "/con", "/nothing", "/clear", "/quit", "never read"]
    done = make_demo(tmp_path, servers=()).run("chat", stdin="\n".join(lines))
    assert done.returncode == 0
    for usage, explanation, *_ in read_catalogue("en").table("help.commands").values():
        assert f"\n{usage} " in f"\n{done.stdout}"
        assert f"  {explanation}\n" in done.stdout
    for piece in (
        "There are no tools; /servers shows why.",
        "No servers are configured.",
        "◆ ",
        "questions         1\n",
        "demo",
    ):
        assert piece in done.stdout
    for piece in (
        f"Saved to {saved}",
        f"{saved} exists; choose another name",
        "/save needs a file: /save answer.md",
        "There is no command /hlep; did you mean /help?\n",
        "There is no command /con; did you mean /conversations?\n",
        "There is no command /nothing; /help lists the commands\n",
        "Started a new conversation.",
        "[NPU: emulated; model 'demo' answers from a script, not from a language model]",
    ):
        assert piece in done.stderr
    assert "## You\n\nこんにちは\n\n## Assistant\n\n" in saved.read_text("utf-8")
    assert "never read" not in done.stdout + done.stderr


def test_exit_and_quit_leave_and_the_locale_chooses_the_language_unless_the_configuration_does(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, servers=())
    for word, locale, said in (("exit", "ja_JP.UTF-8", "Ctrl-D で終了します。"), ("quit", "C.UTF-8", "Ctrl-D exits.")):
        done = demo.run_here("chat", stdin=f"{word}\nHello\n", environment={"LANG": locale})
        assert (done.returncode, done.stdout) == (0, "")
        assert said in done.stderr
    assert Session().language(Config(agent=AgentSection(language="en")), {"LC_ALL": "", "LANG": "ja_JP.UTF-8"}) == "en"
    assert Session().language(Config(), {"LC_ALL": "ja_JP", "LANG": "C"}) == "ja"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/help", True),
        (" /help", True),
        ("/hlep", True),
        ("/", True),
        ("/?", True),
        ("／ｈｅｌｐ", True),
        ("／？", True),
        ("/system\nBe a pirate.", True),
        ("/system　海賊として", True),
        ("/etc/hosts what is it?", False),
        ("/usr/bin/python: No module named foo", False),
        ("/api/機能/説明 を直して", False),
        ("/usr is full", False),
        ("/usr", False),
        ("// TODO explain", False),
        ("/* why? */", False),
        (" /hlep", False),
        ("what is /help", False),
    ],
)
def test_a_line_with_a_slash_is_a_command_unless_it_begins_with_a_path(line: str, expected: bool) -> None:
    assert is_command(line) is expected


def test_a_command_may_have_its_argument_in_the_next_line(tmp_path: Path) -> None:
    lines = ["／ｓｙｓｔｅｍ　海賊として", "/system", "/bye", "never read"]
    done = make_demo(tmp_path, servers=()).run_here("chat", stdin="\n".join(lines))
    assert (done.returncode, done.stdout) == (0, "海賊として\n")


def test_another_model_goes_on_with_the_conversation(tmp_path: Path) -> None:
    folder = tmp_path / ".local" / "share" / "rkllm-mcp" / "models"
    scripted_model(folder / "owl", "rule\n  user again\n  prompt once\n  say I have read it.\n", name="owl")
    lines = ["once", "/model owl", "again", "/model nobody", "/model", "/quit"]
    done = make_demo(tmp_path, servers=()).run_here("chat", stdin="\n".join(lines))
    assert done.returncode == 0
    assert "\n◆ I have read it.\n" in done.stdout
    assert "name      owl\n" in done.stdout
    assert "[NPU: Loading model 'owl']\n'owl' answers from now on" in done.stderr
    assert "There is no model 'nobody' here. Choose one of demo, owl." in done.stderr


def test_a_question_with_a_file_is_named_by_its_words_and_not_by_the_text_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("eggs", encoding="utf-8")
    lines = ["@notes.txt Hello", "/retry", "/conversations", "/undo", "/quit"]
    done = make_demo(tmp_path, servers=()).run_here("chat", stdin="\n".join(lines))
    assert "❯ notes.txt Hello\n" in done.stderr
    assert "Taken back: notes.txt Hello\n" in done.stderr
    assert "\nnotes.txt Hello " in done.stdout, "the title"


def test_the_last_question_is_asked_again_taken_back_and_replaced(tmp_path: Path) -> None:
    (tmp_path / "メモ 1.txt").write_text("牛乳を買う", encoding="utf-8")
    lines = [
        *("/undo", "Hello", "/retry", "/undo", "/undo", "/system Be a pirate.", "/system", "/file absent.txt"),
        *(
            "/file メモ 1.txt",
            '何が書いてある？ @notes.txtと@"メモ 1.txt"',
            "/set temperature ０．２",
            "/set thinking on",
        ),
        *(
            "/set top_k 1.5",
            "/set temprature 1",
            "/set top_p default",
            "/set",
            "/stats",
            f"/save {tmp_path}/all.md",
            "/quit",
        ),
    ]
    (tmp_path / "notes.txt").write_text("eggs", encoding="utf-8")
    demo = make_demo(tmp_path, servers=())
    done = demo.run_here("chat", stdin="\n".join(lines))
    assert done.returncode == 0
    for piece in (
        "There is no question yet.\n",
        "Taken back: Hello\n",
        "The system prompt of this conversation is set.\n",
        "Error: No such file: absent.txt\n",
        "It will be added to your next question.\n",
        "temperature: 0.2\n",
        "thinking: on\n",
        "Error: top_k is a whole number from 1 to 1000, or default; found '1.5'\n",
        "presence_penalty, max_tokens, thinking; did you mean 'temperature'?\n",
    ):
        assert piece in done.stderr
    assert "Be a pirate.\n" in done.stdout
    assert "temperature        0.2\ntop_k              default\n" in done.stdout
    assert "questions         3\n" in done.stdout
    fence = "````"
    material = f"メモ 1.txt:\n{fence}\n牛乳を買う\n{fence}\n\nnotes.txt:\n{fence}\neggs\n{fence}\n\n"
    question = f"## You\n\n{material}何が書いてある？ notes.txtとメモ 1.txt\n"
    assert (tmp_path / "all.md").read_text("utf-8").startswith(f"> Be a pirate.\n\n{question}")
    # One conversation of one exchange; what was asked before is an earlier version.
    listed = demo.run_here("conversations", "list", "--json")
    assert [stored["messages"] for stored in json.loads(listed.stdout)] == [2]


def test_every_command_is_explained_in_every_language() -> None:
    for language in LANGUAGES:
        explained = read_catalogue(language).table("help.commands")
        assert list(explained) == list(COMMANDS)
        assert [usage.split()[0] for usage, *_ in explained.values()] == list(COMMANDS)
        # The third text is shown where the argument is missing.
        assert [name for name, (usage, *_) in explained.items() if " " in usage and "[" not in usage.split()[1]] == [
            name for name, texts in explained.items() if len(texts) > 2 and name not in ("/approve", "/set")
        ]


def test_in_a_japanese_terminal_servers_are_told_of_in_japanese(tmp_path: Path) -> None:
    servers = '[[servers]]\nname = "local"\ntransport = "builtin"\ntools = [{ name = "clock" }]\n'
    demo = make_demo(tmp_path, servers=(), extra=servers)
    demo = Demo(demo.folder, {**demo.environment, "LC_ALL": "ja_JP.UTF-8"})
    for done in (demo.run_here("chat", stdin="こんにちは\n/quit\n"), demo.run("run", "こんにちは")):
        assert "[MCP: サーバー「local」の準備完了: ツール 1 個]\n" in done.stderr
        assert not [line for line in done.stderr.splitlines() if "is ready" in line or "Connecting" in line]


def test_a_japanese_chat_explains_itself_in_japanese(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, servers=(), extra='[agent]\nlanguage = "ja"\n')
    lines = "/help /tools /servers /resources /prompts /history /approve /conversations /model /stats /enable /disable "
    lines += "/resource /prompt /rename /save /file /remember /forget /every /speak /hlep"
    typed = [
        *lines.split(),
        "/rename x",
        "/approve x",
        "/tools x",
        "/set top_k",
        "/retry",
        "/clear",
        "こんにちは",
        "/quit",
    ]
    done = demo.run_here("chat", stdin="\n".join(typed))
    japanese = read_catalogue("ja")
    shown = ["この一覧\n", "Ctrl-D で終了します。\n", "質問", "コンテキスト  4096 トークン\n"]
    keys = ("none_kept", "no_tools", "no_servers", "no_resources", "no_prompts", "no_calls", "nothing_said")
    shown += [japanese.sentence(f"chat.{key}") for key in keys]
    assert [piece for piece in shown if piece not in done.stdout] == []
    told = [texts[2] for texts in japanese.table("help.commands").values() if len(texts) > 2]
    told += [
        japanese.sentence("chat.no_question"),
        japanese.sentence("chat.not_kept_yet"),
        japanese.sentence("chat.new_conversation"),
    ]
    told += [emulation_note("demo", "ja"), "「x」というツールはありません。一覧は /tools"]
    told += ["/hlep というコマンドはありません。/help のことですか？", "この会話を続けるには: rkllm-mcp chat --resume"]
    assert [piece for piece in told if piece not in done.stderr] == []


def test_a_call_that_fits_no_tool_is_described_in_a_sentence_of_the_readers_language(tmp_path: Path) -> None:
    demo = make_features(tmp_path, [DESK], extra='[agent]\nlanguage = "ja"\n')
    done = demo.run_here("run", "--no-tools", "Who am I?")
    assert f"◆ {translate('answer.no_tool_on', 'ja')}" in done.stdout
    assert "<tool_call>" not in done.stdout
    assert "[MCP: ツールの呼び出しを読み取れません: " in done.stderr
    assert "<tool_call>" in done.stderr
    assert emulation_note("secretary", "ja") in done.stderr


def test_a_result_with_its_own_fence_is_put_in_a_longer_one() -> None:
    text = "```python\nprint()\n```"
    messages = [Message("tool", results=(ToolResult("call_1", "read", text),))]
    assert transcript(messages) == f"### read\n\n````\n{text}\n````\n"


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ("a\n```py\nb", "a\n```py\nb\n```"),
        ("a\n```py\nb\n```", "a\n```py\nb\n```"),
        ("````md\n```\nx\n```", "````md\n```\nx\n```\n````"),
        ("~~~\n```\n~~~~", "~~~\n```\n~~~~"),
        ("```\n~~~\n``` not yet", "```\n~~~\n``` not yet\n```"),
        ("1. step\n   ```sh\n   ls", "1. step\n   ```sh\n   ls\n   ```"),
        ("1. step\n\t```sh\n\tls", "1. step\n\t```sh\n\tls\n    ```"),
        ("1. step\n   ```sh\n   ls\n\nand then", "1. step\n   ```sh\n   ls\n\nand then"),
        ("- ```sh\n  ls", "- ```sh\n  ls\n  ```"),
        ("- ```sh\n  ls\n  ```\n- two", "- ```sh\n  ls\n  ```\n- two"),
        ("``` in ``` a line", "``` in ``` a line"),
        ("none", "none"),
    ],
)
def test_what_follows_an_answer_that_was_stopped_in_code_is_not_code(text: str, closed: str) -> None:
    assert with_closed_fence(text) == closed
    assert [token.tag for token in MarkdownIt().parse(f"{closed}\n\n## Next") if token.tag == "h2"] == ["h2", "h2"]
    said = transcript([Message("user", text), Message("assistant", text), Message("user", "next")])
    assert said == f"## You\n\n{closed}\n\n## Assistant\n\n{closed}\n\n## You\n\nnext\n"


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
