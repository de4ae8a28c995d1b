"""``rkllm-mcp chat`` in a real terminal: what a person types and sees, all that MCP has, and nothing left behind."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pexpect

from tests.support.demo_app import Demo, command_line, descendants, is_alive, make_demo
from tests.support.feature_demo import OLD_DESK, make_features

if TYPE_CHECKING:
    Terminal = pexpect.spawn[str]

# The terminal is asked to mark pasted text whenever a line is to be typed, and during an answer.
PROMPT = r"\x1b\[\?2004h[^\r\n]*>"


@contextmanager
def started(demo: Demo, *words: str) -> Generator[Terminal, None, None]:
    """A command in a pseudo-terminal; killed at the end if it is still there."""
    command = demo.command(*words)
    terminal: Terminal = pexpect.spawn(
        command[0],
        command[1:],
        env={**demo.environment, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", "NO_COLOR": "1"},  # pyright: ignore[reportArgumentType]
        cwd=str(demo.folder),
        dimensions=(60, 140),
        encoding="utf-8",
        timeout=60,
    )
    try:
        yield terminal
    finally:
        terminal.close(force=True)


def ask(terminal: Terminal, line: str) -> None:
    """Type a line at the prompt of the conversation."""
    terminal.expect(PROMPT)
    terminal.send(f"{line}\r")


def answer(terminal: Terminal, question: str, line: str) -> None:
    """Type a line at a question."""
    terminal.expect_exact(question)
    terminal.send(f"{line}\r")


def leave(terminal: Terminal) -> int | None:
    """Ctrl-D at the prompt; the exit code."""
    terminal.expect(PROMPT)
    terminal.sendeof()
    terminal.expect(pexpect.EOF)
    terminal.wait()
    return terminal.exitstatus


def pid_of(terminal: Terminal) -> int:
    assert terminal.pid is not None
    return terminal.pid


def worker_of(terminal: Terminal) -> int:
    """The process that owns the model."""
    (worker,) = [pid for pid in descendants(pid_of(terminal)) if "rkllm_mcp.runtime.worker" in command_line(pid)]
    return worker


def test_a_conversation_with_an_interruption_a_tool_and_a_command_leaves_nothing_running(tmp_path: Path) -> None:
    with started(make_demo(tmp_path, speed=""), "chat") as terminal:
        terminal.expect("Ctrl-D exits")
        ask(terminal, "こんにちは")
        terminal.expect("◆ ")
        terminal.expect("これは")
        # Not another word until Ctrl-C was heard.
        os.kill(worker_of(terminal), signal.SIGSTOP)
        terminal.sendintr()
        terminal.expect("Stopped")
        os.kill(worker_of(terminal), signal.SIGCONT)
        ask(terminal, "What time is it in London?")
        terminal.expect(r"\[MCP: Calling tool 'get_current_time'\]")
        terminal.expect(r"\[MCP: Tool 'get_current_time' completed\]")
        terminal.expect("In Europe/London it is ")
        ask(terminal, "/tools")
        terminal.expect("convert_time")
        children = descendants(pid_of(terminal))
        assert len(children) >= 2
        assert leave(terminal) == 0
        assert [pid for pid in children if is_alive(pid)] == []


def test_a_text_that_is_pasted_during_an_answer_is_one_question(tmp_path: Path) -> None:
    demo = make_features(tmp_path, [])
    with started(demo, "chat") as terminal:
        ask(terminal, "capital of France")
        # During the answer the terminal is asked to mark what is pasted.
        terminal.expect_exact("\x1b[?2004h")
        lines = "\r".join(f"line {number}" for number in range(100))
        terminal.send(f"\x1b[200~{lines}\x1b[201~")
        terminal.expect_exact("Paris.")
        terminal.expect("line 99")
        terminal.send("\r")
        terminal.expect("I do not know.")
        ask(terminal, "/stats")
        terminal.expect(r"questions +2\r")
        assert leave(terminal) == 0


def test_without_an_editor_the_last_question_is_edited_at_the_prompt(tmp_path: Path) -> None:
    with started(make_features(tmp_path, []), "chat") as terminal:
        ask(terminal, "capital of Spain")
        terminal.expect("I do not know.")
        ask(terminal, "/edit")
        terminal.expect("capital of Spain")
        terminal.send("\x7f" * len("Spain") + "France\r")
        terminal.expect_exact("Paris.")
        assert leave(terminal) == 0


def test_stopping_an_answer_drops_the_text_pasted_after_the_question(tmp_path: Path) -> None:
    with started(make_demo(tmp_path, servers=(), speed=""), "chat") as terminal:
        ask(terminal, "こんにちは\rOne more question\rAnd another")
        terminal.expect("これは")
        # Not another word until Ctrl-C was heard.
        os.kill(worker_of(terminal), signal.SIGSTOP)
        terminal.sendintr()
        terminal.expect("Stopped")
        os.kill(worker_of(terminal), signal.SIGCONT)
        ask(terminal, "/stats")
        terminal.expect(r"questions +1\r")
        assert leave(terminal) == 0


def test_a_worker_that_is_killed_costs_one_answer(tmp_path: Path) -> None:
    with started(make_demo(tmp_path, [], speed=""), "chat") as terminal:
        ask(terminal, "Hello")
        terminal.expect("◆ ")
        terminal.expect("This")
        os.kill(worker_of(terminal), signal.SIGKILL)
        terminal.expect("SIGKILL")
        ask(terminal, "こんにちは")
        terminal.expect("エミュレート")
        assert leave(terminal) == 0


def test_an_unknown_command_names_those_that_exist_and_quit_leaves(tmp_path: Path) -> None:
    with started(make_demo(tmp_path, []), "chat") as terminal:
        ask(terminal, "/frobnicate")
        terminal.expect("/help")
        ask(terminal, "/quit")
        terminal.expect(pexpect.EOF)
        terminal.wait()
        assert terminal.exitstatus == 0


def test_a_conversation_with_a_resource_a_prompt_an_approval_a_form_and_a_server_that_asks(tmp_path: Path) -> None:
    demo = make_features(tmp_path)
    (tmp_path / "old.txt").write_text("gone soon")
    with started(demo, "chat") as terminal:
        # Resources: in a question, and by a command.
        ask(terminal, "@desk:memo://monday: What is to be done?")
        terminal.expect_exact("[MCP: Fetched resource: memo://monday]")
        terminal.expect_exact("◆ You should buy milk.")
        ask(terminal, "/clear")
        ask(terminal, "/resource memo://monday")
        terminal.expect_exact("Buy milk.")
        terminal.expect_exact("It will be added to your next question.")
        ask(terminal, "What is to be done?")
        terminal.expect_exact("◆ You should buy milk.")
        # A prompt, its name and its argument completed by Tab.
        terminal.expect(PROMPT)
        terminal.send("/prompt code\t")
        terminal.expect_exact("_review")
        terminal.send(" language=r\t")
        terminal.expect_exact("ust")
        terminal.send("\r")
        terminal.expect_exact("[MCP: Using prompt template 'code_review' from server 'desk']")
        terminal.expect_exact("◆ The rust code is fine.")
        # A call that deletes waits for a yes.
        ask(terminal, "Please delete old.txt")
        terminal.expect_exact("deletes or overwrites something")
        terminal.expect_exact("path = old.txt")
        answer(terminal, "Run it?", "y")
        terminal.expect_exact("[MCP: Tool 'delete_file' completed]")
        assert not (tmp_path / "old.txt").exists()
        # A server's form.
        ask(terminal, "Who am I?")
        answer(terminal, "Name>", "Ada")
        answer(terminal, "size>", "huge")
        answer(terminal, "choose one of Small, Large", "Large")
        answer(terminal, "count>", "")
        answer(terminal, "Send this?", "")
        terminal.expect_exact('"content":{"name":"Ada","size":"l","count":2}')
        # A server that asks the model.
        ask(terminal, "Ask yourself.")
        terminal.expect_exact("wants to ask the model this")
        terminal.expect_exact("user: What is the capital of France?")
        answer(terminal, "Allow it?", "y")
        terminal.expect_exact("secretary says Paris. (endTurn)")
        # An address.
        ask(terminal, "Let me log in")
        terminal.expect_exact("if you trust example.com")
        answer(terminal, "Done?", "y")
        terminal.expect_exact('{"action":"accept"}')
        # What was called.
        ask(terminal, "/history")
        terminal.expect(r"delete_file +once +\d")
        children = descendants(terminal.pid or 0)
        assert leave(terminal) == 0
        assert [pid for pid in children if is_alive(pid)] == []


def test_ctrl_c_at_a_question_is_a_no_that_stops_the_answer(tmp_path: Path) -> None:
    demo = make_features(tmp_path, extra='[agent]\nlanguage = "ja"\n')
    (tmp_path / "one.txt").write_text("stays")
    (tmp_path / "two.txt").write_text("stays")
    with started(demo, "chat") as terminal:
        ask(terminal, "Delete both")
        terminal.expect_exact("実行しますか？")
        terminal.sendcontrol("c")
        terminal.expect_exact("[中止しました]")
        # The next one is answered for the rest of the conversation: the second call does not ask.
        ask(terminal, "Delete both")
        answer(terminal, "実行しますか？", "c")
        terminal.expect_exact("deleted one.txt")
        terminal.expect_exact("deleted two.txt")
        ask(terminal, "/approve")
        terminal.expect(r"この会話で許可 +notes +delete_file")
        ask(terminal, "/approve forget delete_file")
        terminal.expect_exact("取り消しました: この会話でのサーバー「notes」の「delete_file」。次からまた尋ねます。")
        ask(terminal, "/approve")
        terminal.expect_exact("許可や拒否をしたものはありません")
        ask(terminal, "/approve forget delete_file")
        terminal.expect_exact("'delete_file' について保存された許可・拒否はありません")
        assert leave(terminal) == 0
    assert not (tmp_path / "two.txt").exists()


def test_a_question_whose_server_dies_is_taken_off_the_screen(tmp_path: Path) -> None:
    with started(make_features(tmp_path, [OLD_DESK]), "chat") as terminal:
        ask(terminal, "Who am I?")
        terminal.expect_exact("Name>")
        (server,) = [pid for pid in descendants(terminal.pid or 0) if "mcp_servers.asking" in command_line(pid)]
        os.kill(server, signal.SIGKILL)
        terminal.expect_exact("[MCP: The request was withdrawn]")
        terminal.expect_exact("was lost during the call")
        ask(terminal, "What is to be done?")
        terminal.expect_exact("◆ I do not know.")
        assert leave(terminal) == 0


def test_text_typed_during_an_answer_waits_for_the_prompt_and_approves_nothing(tmp_path: Path) -> None:
    demo = make_features(tmp_path, speed="prefill 5000 decode 40")
    (tmp_path / "old.txt").write_text("stays")
    with started(demo, "chat") as terminal:
        ask(terminal, "What is to be done?")
        terminal.expect_exact("◆ I do not know.")
        (model,) = [pid for pid in descendants(terminal.pid or 0) if "runtime.worker" in command_line(pid)]
        # The next answer takes its time, and the user types on; the one before is over when there is a prompt.
        terminal.expect(PROMPT)
        os.kill(model, signal.SIGSTOP)
        terminal.send("Please delete old.txt\r")
        terminal.expect(r"\[NPU: reading \d+ tokens …\]")
        terminal.send("y\ry\r")
        os.kill(model, signal.SIGCONT)
        answer(terminal, "Run it?", "")
        terminal.expect_exact("the user denied it")
        terminal.expect_exact("◆ The")
        terminal.send("/model\r")
        terminal.expect_exact("or ask the user.")
        assert terminal.before is not None
        assert "/model" not in terminal.before
        terminal.expect_exact("Esc leaves")
        terminal.send("\x1b")
        terminal.expect_exact("\x1b[?25h")
        assert leave(terminal) == 0
    assert (tmp_path / "old.txt").exists()


def test_ctrl_z_gives_the_shell_back_at_the_prompt_at_a_list_and_during_an_answer(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, servers=(), speed="")
    shell: Terminal = pexpect.spawn(
        "/bin/sh",
        ["-i"],
        env={**demo.environment, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "PS1": "sh> ", "ENV": ""},  # pyright: ignore[reportArgumentType]
        cwd=str(demo.folder),
        dimensions=(60, 300),
        encoding="utf-8",
        timeout=60,
    )

    def suspend() -> None:
        shell.send("\x1a")
        shell.expect("Stopped|Suspended")
        shell.sendline("echo back in the sh''ell")
        shell.expect("back in the shell")
        shell.sendline("fg")

    try:
        shell.sendline(shlex.join(demo.command("chat")))
        ask(shell, "Hello")
        shell.expect("This")
        suspend()
        shell.expect(PROMPT)
        shell.send("/sta")
        shell.expect("/sta")
        suspend()
        shell.expect("/sta")
        shell.send("ts\r")
        shell.expect("model rounds +1\r")
        ask(shell, "/quit")
        # The list that --resume opens without an id.
        shell.sendline(shlex.join(demo.command("chat", "--resume")))
        shell.expect("Continue which conversation")
        suspend()
        shell.expect("Continue which conversation")
        shell.send("\r")
        shell.expect("Continuing [0-9a-f]+ 'Hello'")
        assert leave_shell(shell) == 0
    finally:
        shell.close(force=True)


def leave_shell(shell: Terminal) -> int | None:
    """Leave the chat and then the shell around it, with the chat's exit code."""
    shell.expect(PROMPT)
    shell.sendeof()
    shell.sendline("exit $?")
    shell.expect(pexpect.EOF)
    shell.wait()
    return shell.exitstatus


def test_run_on_a_terminal_asks_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    demo = make_features(tmp_path)
    (tmp_path / "old.txt").write_text("gone soon")
    with started(demo, "run", "Please delete old.txt") as terminal:
        terminal.expect_exact("Run it? [y/c/a/N/x] ")
        terminal.send("y\r")
        terminal.expect_exact("◆ The tool said: deleted old.txt")
        terminal.expect(pexpect.EOF)
        terminal.wait()
        assert terminal.exitstatus == 0
    (tmp_path / "old.txt").write_text("stays")
    with started(demo, "run", "Please delete old.txt") as terminal:
        terminal.expect_exact("Run it? [y/c/a/N/x] ")
        terminal.sendintr()
        terminal.expect(pexpect.EOF)
        terminal.wait()
        assert terminal.exitstatus == 130
    assert (tmp_path / "old.txt").exists()


def test_a_single_call_asks_its_person_what_the_model_would_have_asked(tmp_path: Path) -> None:
    demo = make_features(tmp_path)
    (tmp_path / "old.txt").write_text("kept")
    with started(demo, "tools", "call", "ask_owner") as terminal:
        answer(terminal, "Name>", "Ada")
        answer(terminal, "size>", "Large")
        answer(terminal, "count>", "")
        answer(terminal, "Send this?", "y")
        terminal.expect_exact('"content":{"name":"Ada","size":"l","count":2}')
    with started(demo, "tools", "call", "delete_file", "path=old.txt") as terminal:
        terminal.expect_exact("path = old.txt")
        answer(terminal, "Run it?", "")
        terminal.expect_exact("Error: ")
    assert (tmp_path / "old.txt").exists()
