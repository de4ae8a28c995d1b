"""Input lines of a conversation: a terminal or a pipe.

Both wait without blocking the event loop, so servers and the model continue. Input typed while an answer is shown is
not echoed and becomes the next line; input typed before a question was shown does not answer it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeAlias

import anyio

from rkllm_base.folders import user_folder
from rkllm_base.lines import Lines
from rkllm_mcp.surfaces.terminal import Terminal, discard_typed, printable

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History


PROMPT = "> "

# The text before the cursor ─▶ the word that ends it, and what that word may become, with descriptions.
Complete: TypeAlias = Callable[[str], Awaitable[tuple[str, Mapping[str, str]]]]


@dataclass(eq=False)
class ConsoleAnswers:
    """Answers typed line by line during a command; questions are on standard error.

    Ctrl-C is a signal here and ends the command.
    """

    terminal: Terminal
    _lines: Lines = field(default_factory=lambda: Lines(sys.stdin.fileno()))

    async def ask(self, prompt: str) -> str | None:
        """One line, without its end; None at the end of the input."""
        self.terminal.prompt(prompt)
        line = await self._lines.read()
        if line is not None:
            self.terminal.on_enter()
        return line


class TerminalLines:
    """Lines typed at a terminal, with history, completion and multi-line input (Alt-Enter)."""

    def __init__(
        self, complete: Complete, env: Mapping[str, str] = os.environ, hint: Callable[[], None] = lambda: None
    ) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import Completion, DummyCompleter
        from prompt_toolkit.history import InMemoryHistory
        from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
        from prompt_toolkit.keys import Keys

        # Shift-Enter begins a line where a terminal tells it from Enter, and the other Enter keys send: xterm's
        # modifyOtherKeys, which tmux has as well, and the protocol of kitty; 2 is Shift, 3 Alt, 5 Ctrl.
        new_line_keys = (Keys.Escape, Keys.ControlM)
        for modifier, keys in (("2", new_line_keys), ("3", new_line_keys), ("5", Keys.ControlM)):
            ANSI_SEQUENCES[f"\x1b[27;{modifier};13~"] = ANSI_SEQUENCES[f"\x1b[13;{modifier}u"] = keys
        # The Enter of a number pad.
        ANSI_SEQUENCES["\x1bOM"] = Keys.ControlM
        bindings = KeyBindings()

        # Terminals send Alt-Enter as Escape, Enter; some send the line feed for Enter.
        @bindings.add("escape", "c-j")
        @bindings.add("escape", "enter")
        def new_line(event: KeyPressEvent) -> None:  # pyright: ignore[reportUnusedFunction]  # the decorator keeps it
            event.current_buffer.insert_text("\n")

        class Names(DummyCompleter):
            async def get_completions_async(
                self, document: Document, complete_event: CompleteEvent
            ) -> AsyncGenerator[Completion, None]:
                del complete_event
                # All of them are there before the first is given away: nothing is open across a yield.
                word, names = await complete(document.text_before_cursor)
                for name, meaning in names.items():
                    yield Completion(name, start_position=-len(word), display_meta=printable(meaning))

        self._env = env
        self._hint = hint  # says that another Ctrl-C leaves
        self._was_given_up = False  # the last line was empty and given up
        self._is_answering = False

        self._session: PromptSession[str] = PromptSession(
            history=_history(env),
            completer=Names(),
            complete_while_typing=False,
            key_bindings=bindings,
            enable_history_search=True,
            enable_open_in_editor=True,
            enable_suspend=True,
            tempfile_suffix=".md",
        )
        # Answers to questions are not lines of the conversation and may be confidential: not in the history.
        self._asking: PromptSession[str] = PromptSession(history=InMemoryHistory(), enable_suspend=True)

    async def read(self) -> str | None:
        """Return the next line, empty where Ctrl-C gave it up; None after two Ctrl-C on empty lines, or Ctrl-D."""
        try:
            line = await self._prompt(self._session, PROMPT)
        except KeyboardInterrupt:
            is_empty = not self._session.default_buffer.text
            if is_empty and self._was_given_up:
                return None
            self._was_given_up = is_empty
            if is_empty:
                self._hint()
            return ""
        except EOFError:
            return None
        self._was_given_up = False
        return line

    async def edit(self, text: str) -> str | None:
        """Return a text as the person left it, in the editor of ``$VISUAL`` or ``$EDITOR``, or at the prompt.

        None if the editor failed.
        """
        if self._env.get("VISUAL") or self._env.get("EDITOR"):
            return await edit_text(text, self._env)
        try:
            return (await self._prompt(self._session, PROMPT, text)).strip()
        except (KeyboardInterrupt, EOFError):
            return ""

    async def ask(self, prompt: str) -> str | None:
        """The answer to a question; None when the person left it with Ctrl-C or Ctrl-D."""
        try:
            return await self._prompt(self._asking, prompt)
        except (KeyboardInterrupt, EOFError):
            return None
        finally:
            if self._is_answering:
                _mark_pasted(is_on=True)

    def forget_typed(self) -> None:
        """Discard pending input."""
        self.on_interrupt()
        discard_typed()

    def on_interrupt(self) -> None:
        """Discard input typed during an answer that the person stopped; the terminal has discarded what is unread."""
        from prompt_toolkit.input.typeahead import clear_typeahead

        clear_typeahead(self._asking.input)
        clear_typeahead(self._session.input)

    @contextmanager
    def while_answering(self) -> Generator[None]:
        """Read keys without echo for the time of an answer: what is typed is the next line. Ctrl-C remains a signal.

        Text that is pasted meanwhile stays one text, not a question a line.
        """
        import termios

        descriptor, before = sys.stdin.fileno(), None
        with suppress(termios.error):  # no terminal, or not any more
            before = termios.tcgetattr(descriptor)
            quiet = termios.tcgetattr(descriptor)
            quiet[3] &= ~(termios.ECHO | termios.ICANON)
            termios.tcsetattr(descriptor, termios.TCSANOW, quiet)
        self._is_answering = True
        _mark_pasted(is_on=True)
        try:
            yield
        finally:
            self._is_answering = False
            _mark_pasted(is_on=False)
            if before is not None:
                with suppress(termios.error):
                    termios.tcsetattr(descriptor, termios.TCSANOW, before)

    async def _prompt(self, session: PromptSession[str], prompt: str, text: str = "") -> str:
        from prompt_toolkit.patch_stdout import patch_stdout

        # What servers say meanwhile appears above the prompt. SIGINT is the command's own to handle.
        with patch_stdout(raw=True):
            return await session.prompt_async(prompt, default=text, handle_sigint=False)


async def edit_text(text: str, env: Mapping[str, str]) -> str | None:
    """Return a text as ``$VISUAL`` or ``$EDITOR`` left it; None if it does not run or fails."""
    command = shlex.split(env.get("VISUAL") or env.get("EDITOR") or "")
    if not command or shutil.which(command[0]) is None:
        return None
    with TemporaryDirectory() as folder:
        path = Path(folder) / "question.md"
        path.write_text(text, encoding="utf-8")
        # The terminal is the editor's until it ends.
        process = await anyio.run_process([*command, str(path)], stdin=None, stdout=None, stderr=None, check=False)
        return path.read_text("utf-8", "replace").strip() if process.returncode == 0 else None


def _mark_pasted(*, is_on: bool) -> None:
    """Have the terminal put marks around pasted text, or not; prompts do it for themselves."""
    with suppress(OSError):
        os.write(sys.stdout.fileno(), b"\x1b[?2004h" if is_on else b"\x1b[?2004l")


def _history(env: Mapping[str, str]) -> History:
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    path = user_folder("state", env) / "history"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_NOCTTY, 0o600))
        # What people ask is theirs alone; a link to /dev/null is how some turn the history off.
        if path.is_file():
            path.chmod(0o600)
    except OSError:
        return InMemoryHistory()

    class Lines(FileHistory):
        """The file's lines; those that it cannot take are there until the end."""

        def load_history_strings(self) -> Iterable[str]:
            try:
                return list(super().load_history_strings())
            except OSError:
                return ()

        def store_string(self, string: str) -> None:
            with suppress(OSError):
                super().store_string(string)

    return Lines(str(path))
