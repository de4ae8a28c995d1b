"""``rkllm-mcp chat``: the conversation in a terminal.

    a line ─▶ a command (/help …), or a question ─▶ events ─▶ the screen, and questions back to the person

The model loads and the servers connect while the first question is typed. Ctrl-C stops an answer or a command, Ctrl-D
leaves; an error ends one answer, not the conversation. Without a terminal, lines are read from a pipe and calls that
need approval are refused.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING

from rkllm_base.lines import Lines
from rkllm_mcp import __version__
from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.generation import AnswerOptions
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.surfaces.chat.commands import (
    CHOICE,
    LATEST,
    is_command,
    obey,
    offer_schedule,
    stored_conversation,
    take_up,
)
from rkllm_mcp.surfaces.chat.completion import Completions
from rkllm_mcp.surfaces.chat.files import take_dropped
from rkllm_mcp.surfaces.chat.forms import FormPrompt
from rkllm_mcp.surfaces.chat.input import TerminalLines
from rkllm_mcp.surfaces.chat.screen import load_markdown
from rkllm_mcp.surfaces.chat.state import ChatState
from rkllm_mcp.surfaces.invocation import EXIT_DONE, Session, emulation_note, run_async

if TYPE_CHECKING:
    from rkllm_mcp.surfaces.chat.remote import ChatHost


def chat(
    session: Session,
    open_host: Callable[[], AbstractAsyncContextManager[ChatHost]],
    read_file: Callable[[str], Awaitable[str]],
    resumed: str | None = None,
    *,
    is_spoken: bool = False,
) -> int:
    """Hold a conversation and return the exit code.

    ``open_host`` opens the assistant, and ``read_file`` returns the text of a file for a question. ``resumed`` is the
    beginning of a stored conversation's id, ``LATEST``, or ``CHOICE`` for one that the person chooses from a list; None
    for a new one. ``is_spoken`` reads answers aloud, and listens for a question after an empty line.
    """
    tokens = session.tokens
    ready: list[ChatState] = []

    def stop() -> bool:
        stopped = [state for state in ready if state.interrupt()]
        for state in stopped:
            # Lines of a pipe stay valid.
            if state.console is not None:
                state.console.on_interrupt()
        return bool(stopped)

    async def run_chat() -> int:
        async with open_host() as host:
            language = session.language(host.config)
            lines: Lines | TerminalLines = Lines(sys.stdin.fileno())
            inquirer: FormPrompt | None = None
            console: TerminalLines | None = None
            if sys.stdin.isatty() and sys.stdout.isatty():
                phrases = read_catalogue(language)
                hint = partial(session.status, phrases.sentence("chat.leave_hint"))
                completions = Completions(host, CallContext(tokens=tokens), language)
                lines = console = TerminalLines(completions.complete, hint=hint)
                # Questions are shown on standard error; ask only if it is a terminal.
                if sys.stderr.isatty():
                    inquirer = FormPrompt(session.terminal, console.ask, phrases, console.forget_typed)
            approvals, save = "ask" if inquirer else "refuse", host.config.service.history
            options = AnswerOptions(approvals=approvals, tokens=tokens, save=save, language=language, memory=True)
            state = ChatState(
                host,
                host.new_conversation(),
                session.terminal,
                options,
                read_file,
                inquirer,
                language,
                console=console,
            )
            ready.append(state)
            stored = None if resumed in (None, CHOICE) else await stored_conversation(host, resumed)
            session.note_configuration(host.config)
            session.status(state.phrases.sentence("chat.greeting", version=__version__, model=host.model.name))
            if host.model.is_emulated:
                session.status(emulation_note(host.model.name, language, has_weights=host.model.has_weights))
            load_markdown(session.terminal)
            if resumed == CHOICE:
                await obey(state, "/resume")
            elif stored is not None:
                take_up(state, stored)
            elif resumed == LATEST:
                session.status(state.phrases.sentence("chat.none_kept_yet"))
            if is_spoken:
                await obey(state, "/speak on")
                state.listens = True
                session.status(state.phrases.sentence("chat.enter_listens"))
            await converse(state, lines)
            if state.conversation.kept_turns and host.store.shared.is_lasting:
                command = f"rkllm-mcp chat --resume {state.conversation.id}"
                session.status(state.phrases.sentence("chat.farewell", command=command))
        return EXIT_DONE

    code = run_async(run_chat, stop)
    # A signal may have broken off an answer in its line, and the terminal may be what has gone.
    with suppress(OSError):
        session.terminal.end_line()
    return code


# What people type to leave other programs.
_LEAVING = ("exit", "quit")


async def converse(state: ChatState, lines: Lines | TerminalLines) -> None:
    """Read and answer lines until the input ends or ``/quit``."""
    while not state.is_over:
        line = await lines.read()
        if line is None:
            return
        text = line.strip()
        if not text and state.listens:
            text = line = "/listen"
        if not text:
            continue
        if text in _LEAVING:
            return
        # A pipe has no echo.
        with nullcontext() if state.console is None else state.console.while_answering():
            text, pictures = take_dropped(text)
            for path in pictures:
                await obey(state, f"/file {shlex.quote(path)}")
            if is_command(text if pictures else line):
                await obey(state, text)
            elif text:
                try:
                    if not await offer_schedule(state, text):
                        await state.ask(text)
                except RkllmMcpError as error:
                    state.complain(error)
