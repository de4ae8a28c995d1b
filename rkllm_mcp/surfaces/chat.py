"""The conversation in a terminal: ``rkllm-mcp chat``.

    a line ─▶ a command (/help …), or a question ─▶ events ─▶ the screen

Rules: the model loads and the servers connect while the first question is typed; Ctrl-C stops an answer and the
conversation goes on, Ctrl-D leaves; whatever fails costs one answer. Without a terminal the same conversation is read
line by line.
"""

from __future__ import annotations

import sys
from contextlib import aclosing
from typing import TYPE_CHECKING

from rkllm_mcp import __version__
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.surfaces.chat_commands import ChatState, obey
from rkllm_mcp.surfaces.lines import LineReader, PipedLines, TerminalLines
from rkllm_mcp.surfaces.render import TerminalRenderer
from rkllm_mcp.surfaces.session import EXIT_DONE, Session, emulation_note, run_async

if TYPE_CHECKING:
    from rkllm_mcp.app import App


def chat(session: Session) -> int:
    """Hold a conversation; returns the exit code when the person leaves."""
    states: list[ChatState] = []

    def stop() -> bool:
        return any(state.app.cancel(state.conversation.id) for state in states)

    async def work() -> int:
        from rkllm_mcp.app import open_app

        async with open_app(session.config(), status=session.status) as app:
            state = ChatState(app, app.new_conversation(), session.terminal)
            states.append(state)
            _greet(session, app)
            await converse(state, _reader(app))
        return EXIT_DONE

    return run_async(work, stop)


async def converse(state: ChatState, lines: LineReader) -> None:
    """Read lines and answer them until there are none, or ``/quit``."""
    while not state.is_over:
        line = await lines.read()
        if line is None:
            return
        text = line.strip()
        if text.startswith("/"):
            obey(state, text)
        elif text:
            await _answer(state, text)


async def _answer(state: ChatState, text: str) -> None:
    renderer = TerminalRenderer(state.terminal)
    state.stats.questions += 1
    try:
        async with aclosing(state.app.reply(state.conversation, text)) as events:
            async for event in events:
                state.stats.note(event)
                renderer.show(event)
    except RkllmMcpError as error:
        state.terminal.error(f"Error: {error}")


def _greet(session: Session, app: App) -> None:
    session.status(f"rkllm-mcp {__version__}, model {app.model.name}. /help shows the commands, Ctrl-D leaves.")
    if app.model.card.emulated:
        session.status(emulation_note(app.model.name))


def _reader(app: App) -> LineReader:
    if sys.stdin.isatty() and sys.stdout.isatty():
        return TerminalLines(lambda: [tool.name for tool in app.toolbox.tools()])
    return PipedLines(sys.stdin.fileno())
