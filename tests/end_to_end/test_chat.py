"""``rkllm-mcp chat`` in a real terminal: what a person types, what a person sees, and nothing left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pexpect

from tests.support.demo_app import Demo, command_line, descendants, is_alive, make_demo

if TYPE_CHECKING:
    Terminal = pexpect.spawn[str]

# The terminal is asked to mark pasted text whenever a line is to be typed, and only then.
PROMPT = r"\x1b\[\?2004h"


@contextmanager
def chat(demo: Demo) -> Generator[Terminal, None, None]:
    """The chat in a pseudo-terminal; killed at the end if it is still there."""
    command = demo.command("chat")
    terminal: Terminal = pexpect.spawn(
        command[0],
        command[1:],
        env={**demo.environment, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1"},  # pyright: ignore[reportArgumentType]
        cwd=str(demo.folder),
        dimensions=(40, 100),
        encoding="utf-8",
        timeout=60,
    )
    try:
        yield terminal
    finally:
        terminal.close(force=True)


def leave(terminal: Terminal) -> int | None:
    """Ctrl-D on an empty line; the exit code."""
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
    with chat(make_demo(tmp_path, speed="")) as terminal:
        terminal.expect("Ctrl-D exits")
        terminal.expect(PROMPT)
        terminal.send("こんにちは\r")
        terminal.expect("◆ ")
        terminal.expect("これは")
        # Not another word until Ctrl-C was heard.
        os.kill(worker_of(terminal), signal.SIGSTOP)
        terminal.sendintr()
        terminal.expect("Stopped")
        os.kill(worker_of(terminal), signal.SIGCONT)
        terminal.expect(PROMPT)
        terminal.send("What time is it in London?\r")
        terminal.expect(r"\[MCP: Calling tool 'get_current_time'\]")
        terminal.expect(r"\[MCP: Tool 'get_current_time' completed\]")
        terminal.expect("In Europe/London it is ")
        terminal.expect(PROMPT)
        terminal.send("/tools\r")
        terminal.expect("convert_time")
        terminal.expect(PROMPT)
        children = descendants(pid_of(terminal))
        assert len(children) >= 2
        assert leave(terminal) == 0
        assert [pid for pid in children if is_alive(pid)] == []


def test_stopping_an_answer_drops_the_text_pasted_behind_the_question(tmp_path: Path) -> None:
    with chat(make_demo(tmp_path, servers=(), speed="")) as terminal:
        terminal.expect(PROMPT)
        terminal.send("こんにちは\rOne more question\rAnd another\r")
        terminal.expect("これは")
        # Not another word until Ctrl-C was heard.
        os.kill(worker_of(terminal), signal.SIGSTOP)
        terminal.sendintr()
        terminal.expect("Stopped")
        os.kill(worker_of(terminal), signal.SIGCONT)
        terminal.expect(PROMPT)
        terminal.send("/stats\r")
        terminal.expect(r"questions +1\r")
        terminal.expect(PROMPT)
        assert leave(terminal) == 0


def test_a_worker_that_is_killed_costs_one_answer(tmp_path: Path) -> None:
    with chat(make_demo(tmp_path, [], speed="")) as terminal:
        terminal.expect(PROMPT)
        terminal.send("Hello\r")
        terminal.expect("◆ ")
        terminal.expect("This")
        os.kill(worker_of(terminal), signal.SIGKILL)
        terminal.expect("SIGKILL")
        terminal.expect(PROMPT)
        terminal.send("こんにちは\r")
        terminal.expect("エミュレート")
        terminal.expect(PROMPT)
        assert leave(terminal) == 0


def test_an_unknown_command_names_those_that_exist_and_quit_leaves(tmp_path: Path) -> None:
    with chat(make_demo(tmp_path, [])) as terminal:
        terminal.expect(PROMPT)
        terminal.send("/frobnicate\r")
        terminal.expect("/help")
        terminal.expect(PROMPT)
        terminal.send("/quit\r")
        terminal.expect(pexpect.EOF)
        terminal.wait()
        assert terminal.exitstatus == 0
