"""The commands of a conversation: ``/help`` and its relatives, one table of them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rkllm_mcp.events import Event, ToolFinished, Usage
from rkllm_mcp.messages import Conversation, Message
from rkllm_mcp.surfaces.table import table
from rkllm_mcp.surfaces.terminal import Terminal
from rkllm_mcp.surfaces.tools import tool_table, tool_text

if TYPE_CHECKING:
    from rkllm_mcp.app import App


@dataclass
class Stats:
    """What a conversation has cost so far."""

    questions: int = 0
    rounds: int = 0
    tool_calls: int = 0
    failed_calls: int = 0
    prompt_tokens: int = 0
    prefilled_tokens: int = 0
    generated_tokens: int = 0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0

    def note(self, event: Event) -> None:
        """Count an event."""
        if isinstance(event, ToolFinished):
            self.tool_calls += 1
            self.failed_calls += event.is_error
        elif isinstance(event, Usage):
            self.rounds += 1
            self.prompt_tokens += event.prompt_tokens
            self.prefilled_tokens += event.prefilled_tokens
            self.generated_tokens += event.generated_tokens
            self.prefill_ms += event.prefill_ms
            self.decode_ms += event.decode_ms

    def rows(self) -> list[tuple[str, str]]:
        """The figures for a person."""
        return [
            ("questions", str(self.questions)),
            ("rounds of the model", str(self.rounds)),
            ("tool calls", f"{self.tool_calls}, {self.failed_calls} of them failed"),
            ("prompt tokens", f"{self.prompt_tokens}, {self.prefilled_tokens} of them prefilled"),
            ("generated tokens", str(self.generated_tokens)),
            ("prefill", _speed(self.prefilled_tokens, self.prefill_ms)),
            ("decode", _speed(self.generated_tokens, self.decode_ms)),
        ]


def _speed(tokens: int, milliseconds: float) -> str:
    return f"{1000 * tokens / milliseconds:.1f} tokens/s" if milliseconds > 0 else "-"


@dataclass
class ChatState:
    """A conversation at a terminal.

    Args:
        app: who answers.
        conversation: what was said.
        terminal: where words go.
    """

    app: App
    conversation: Conversation
    terminal: Terminal
    stats: Stats = field(default_factory=Stats)
    is_over: bool = False


@dataclass(frozen=True)
class _Command:
    usage: str
    explanation: str
    action: Callable[[ChatState, str], None]


def obey(state: ChatState, text: str) -> None:
    """Carry out a line that begins with a slash."""
    name, _, rest = text.partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        state.terminal.error(f"There is no {name}; {hint}The commands are {' '.join(COMMANDS)}")
        return
    command.action(state, rest.strip())


def _help(state: ChatState, rest: str) -> None:
    del rest
    state.terminal.answer(table((), [(command.usage, command.explanation) for command in COMMANDS.values()]))
    state.terminal.answer("Alt-Enter begins a new line, Tab completes, Ctrl-C stops an answer, Ctrl-D leaves.\n")


def _tools(state: ChatState, rest: str) -> None:
    toolbox = state.app.toolbox
    if not rest:
        tools = toolbox.tools()
        state.terminal.answer(tool_table(tools) or "No tools; /servers says why.\n")
        return
    tool = toolbox.resolve(rest)
    if tool is not None:
        state.terminal.answer(tool_text(tool))
        return
    near = toolbox.suggest(rest)
    state.terminal.error(f"There is no tool {rest!r}; {f'did you mean {near!r}?' if near else '/tools lists them'}")


def _servers(state: ChatState, rest: str) -> None:
    del rest
    rows = [
        (server.name, server.state, f"{server.tool_count} tools", server.reason)
        for server in state.app.toolbox.servers()
    ]
    state.terminal.answer(table(("NAME", "STATE", "TOOLS", "REASON"), rows) or "No servers are configured.\n")


def _stats(state: ChatState, rest: str) -> None:
    del rest
    state.terminal.answer(table((), state.stats.rows()))


def _clear(state: ChatState, rest: str) -> None:
    del rest
    state.conversation = state.app.new_conversation()
    state.terminal.note("A new conversation begins.")


def _save(state: ChatState, rest: str) -> None:
    if not rest:
        state.terminal.error("/save needs a file: /save answer.md")
        return
    path = Path(rest).expanduser()
    try:
        # Never over a file that is there: a conversation is not worth somebody's document.
        with path.open("x", encoding="utf-8") as file:
            file.write(transcript(state.conversation.messages))
    except FileExistsError:
        state.terminal.error(f"{path} exists; choose another name")
    except OSError as error:
        state.terminal.error(f"{path} cannot be written ({error.strerror}); choose another name")
    else:
        state.terminal.note(f"Saved to {path}")


def _model(state: ChatState, rest: str) -> None:
    del rest
    model = state.app.model
    rows = [
        ("name", model.name),
        ("description", model.card.description),
        ("file", str(model.file)),
        ("template", model.card.template),
        ("context", f"{state.app.config.model.context_tokens or model.card.context_tokens} tokens"),
        ("kind", "emulated: answers come from a script" if model.card.emulated else "on the NPU"),
    ]
    state.terminal.answer(table((), rows))


def _quit(state: ChatState, rest: str) -> None:
    del rest
    state.is_over = True


COMMANDS: Mapping[str, _Command] = {
    "/help": _Command("/help", "this list", _help),
    "/tools": _Command("/tools [NAME]", "the tools, or one of them", _tools),
    "/servers": _Command("/servers", "the servers and how they are", _servers),
    "/stats": _Command("/stats", "tokens and speed of this conversation", _stats),
    "/clear": _Command("/clear", "begin a new conversation", _clear),
    "/save": _Command("/save FILE", "write the conversation to a new file, as Markdown", _save),
    "/model": _Command("/model", "the model", _model),
    "/quit": _Command("/quit", "leave", _quit),
}


def transcript(messages: Sequence[Message]) -> str:
    """A conversation as Markdown, tool calls and their results included."""
    parts: list[str] = []
    for message in messages:
        if message.role == "system":
            parts.append(f"> {message.text}")
        elif message.role == "user":
            parts.append(f"## You\n\n{message.text}")
        elif message.role == "assistant":
            calls = [f"`{call.name}({json.dumps(dict(call.arguments), ensure_ascii=False)})`" for call in message.calls]
            parts.append(
                "\n\n".join(["## Assistant", *([message.text.strip()] if message.text.strip() else []), *calls])
            )
        else:
            parts += [f"### {result.name}\n\n```\n{result.text}\n```" for result in message.results]
    return "\n\n".join(parts) + "\n"
