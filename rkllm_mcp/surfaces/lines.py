"""Where a conversation's lines come from: a person at a terminal, or a pipe.

Both wait without holding up the event loop, so that servers and the model go on while nobody types.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import anyio

from rkllm_mcp.surfaces.chat_commands import COMMANDS

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings

PROMPT = "> "
_READ_BYTES = 65536


class LineReader(Protocol):
    """A source of lines."""

    async def read(self) -> str | None:
        """The next line; empty where it was given up, None at the end."""
        ...


class PipedLines:
    """Lines of a pipe or a file.

    Args:
        descriptor: the open file.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._ended = False

    async def read(self) -> str | None:
        """See ``LineReader.read``."""
        while "\n" not in self._text and not self._ended:
            data = await self._bytes()
            self._ended = not data
            self._text += self._decoder.decode(data, final=self._ended)
        if not self._text:
            return None
        line, _, self._text = self._text.partition("\n")
        return line

    async def _bytes(self) -> bytes:
        try:
            await anyio.wait_readable(self._descriptor)
        except OSError:
            # A regular file cannot be waited for, and need not be.
            await anyio.lowlevel.checkpoint()
        return os.read(self._descriptor, _READ_BYTES)


class TerminalLines:
    """Lines that a person types, with history, completion and several lines in one (Alt-Enter).

    Args:
        tool_names: the names to complete.
        env: where the history is kept: ``$XDG_STATE_HOME/rkllm-mcp/history``.
    """

    def __init__(self, tool_names: Callable[[], Sequence[str]], env: Mapping[str, str] = os.environ) -> None:
        from prompt_toolkit import PromptSession

        self._session: PromptSession[str] = PromptSession(
            history=_history(env),
            completer=_completer(tool_names),
            complete_while_typing=False,
            key_bindings=_key_bindings(),
            enable_history_search=True,
        )

    async def read(self) -> str | None:
        """See ``LineReader.read``; Ctrl-C gives up the line, Ctrl-D on an empty line ends."""
        from prompt_toolkit.patch_stdout import patch_stdout

        try:
            # What servers say meanwhile appears above the prompt. SIGINT is the command's own to handle.
            with patch_stdout(raw=True):
                return await self._session.prompt_async(PROMPT, handle_sigint=False)
        except KeyboardInterrupt:
            return ""
        except EOFError:
            return None


def complete(text: str, tool_names: Sequence[str]) -> tuple[str, list[str]]:
    """The word that ends ``text``, and what it may become: a command at the beginning, a tool's name anywhere."""
    if text.startswith("/") and " " not in text:
        return text, [name for name in COMMANDS if name.startswith(text)]
    word = text.rsplit(maxsplit=1)[-1] if text and not text[-1].isspace() else ""
    return word, [name for name in tool_names if word and name.startswith(word)]


def _completer(tool_names: Callable[[], Sequence[str]]) -> Completer:
    from prompt_toolkit.completion import Completer, Completion

    class Names(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            del complete_event
            word, names = complete(document.text_before_cursor, tool_names())
            return [Completion(name, start_position=-len(word)) for name in names]

    return Names()


def _key_bindings() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    bindings = KeyBindings()

    # Terminals send Alt-Enter as Escape, Enter.
    @bindings.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:  # pyright: ignore[reportUnusedFunction]  # the decorator keeps it
        event.current_buffer.insert_text("\n")

    return bindings


def _history(env: Mapping[str, str]) -> History:
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    path = history_path(env)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # What people ask is theirs alone.
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        path.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def history_path(env: Mapping[str, str]) -> Path:
    """Where the lines of earlier conversations are kept."""
    home = Path(env.get("HOME") or Path.home())
    return Path(env.get("XDG_STATE_HOME") or home / ".local" / "state") / "rkllm-mcp" / "history"
