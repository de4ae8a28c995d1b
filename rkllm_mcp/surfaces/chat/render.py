"""Events on a terminal and as a transcript; ``cli.run`` has the JSON lines."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
from typing_extensions import assert_never

from rkllm_mcp.catalogue import Catalogue, read_catalogue
from rkllm_mcp.events import (
    Approval,
    Elicitation,
    End,
    EndReason,
    Event,
    MemoriesUsed,
    Prefill,
    QuestionAnswered,
    Queued,
    ResourceRead,
    Sources,
    Status,
    Text,
    Thinking,
    ToolCallDetected,
    ToolCallFailed,
    ToolFinished,
    ToolProgress,
    Usage,
)
from rkllm_mcp.messages import Message
from rkllm_mcp.protocols import Decision, ElicitationAnswer
from rkllm_mcp.surfaces.chat.forms import FormPrompt
from rkllm_mcp.surfaces.terminal import YELLOW, PrintableStream, Terminal
from rkllm_mcp.text import collapse_whitespace, shorten, with_closed_fence

if TYPE_CHECKING:
    from rkllm_mcp.surfaces.chat.remote import ChatHost


ANSWER_MARK = "◆ "
# What of a result a person needs to see that it is the right one; the model reads all of it.
RESULT_CHARS = 160


@dataclass(eq=False)
class TerminalRenderer:
    """Events as text on a terminal."""

    terminal: Terminal
    phrases: Catalogue = field(default_factory=lambda: read_catalogue("en"))
    _streamed: type[Text | Thinking] | None = None  # what the last line consists of
    _printable: PrintableStream = field(default_factory=PrintableStream)  # of that text
    _usages: list[Usage] = field(default_factory=list[Usage])  # of the rounds of this answer

    def show(self, event: Event) -> None:
        """Show one event and flush; a BrokenPipeError if standard output is closed."""
        if isinstance(event, (Text, Thinking)):
            self._stream(event)
        if isinstance(event, Usage):
            self._usages.append(event)
        if isinstance(event, (Text, Thinking, Usage, Prefill)):
            return
        self._close()
        note = self.terminal.note
        match event:
            case Status():
                note(event.text)
            case Queued():
                note(self.phrases.sentence("answer.queued", position=event.position))
            case ToolCallDetected():
                repaired = self.phrases.sentence("answer.repaired") if event.repaired else ""
                note(f"  → {event.name}({arguments_text(event.arguments)}){repaired}")
            case ToolCallFailed():
                note(self.phrases.sentence("answer.unreadable", reason=event.reason), YELLOW)
            case ToolFinished() if not event.is_error:
                note(f"  ← {event.seconds:.1f} s  {shorten(collapse_whitespace(event.text), RESULT_CHARS)}")
            case ToolProgress():
                if self.terminal.shows_progress:
                    self.terminal.note(f"  {progress_text(event)}")
            case Approval() | Elicitation() | Sources() | MemoriesUsed():
                self._detail(event)
            case ToolFinished() | ResourceRead() | QuestionAnswered():
                pass  # a status line said that it failed, or that it was read
            case End():
                self._end(event)
            case _:
                assert_never(event)

    def _detail(self, event: Approval | Elicitation | Sources | MemoriesUsed) -> None:
        if isinstance(event, MemoriesUsed):
            rows = "; ".join(row["text"] for row in event.rows)
            text = self.phrases.sentence("answer.kept" if event.is_new else "answer.remembered", rows=rows)
        elif isinstance(event, Sources):
            names: list[str] = []
            for source in event.items:
                page = self.phrases.sentence("answer.page", page=source["page"]) if source["page"] else ""
                names.append(f"{source['document']}{page}")
            line = shorten(collapse_whitespace("; ".join(dict.fromkeys(names))), RESULT_CHARS)
            text = self.phrases.sentence("answer.sources", places=line)
        elif isinstance(event, Approval):
            text = self.phrases.sentence("answer.waiting", name=event.name, reason=event.reason)
        else:
            text = self.phrases.sentence("answer.asks", server=event.server, message=event.message)
        self.terminal.note(text, "" if isinstance(event, (Sources, MemoriesUsed)) else YELLOW)

    def _stream(self, event: Text | Thinking) -> None:
        text = event.text
        if self._streamed is not type(event):
            # Models leave blank lines between their thinking, their calls and their words.
            text = text.lstrip()
            if not text:
                return
            self._close()
            self._streamed = type(event)
            text = f"{ANSWER_MARK}{text}" if isinstance(event, Text) else text
        self.terminal.answer(self._printable.feed(text), is_thought=self._streamed is Thinking)

    def _end(self, event: End) -> None:
        if event.reason == "failed":
            error = event.error or self.phrases.sentence("answer.nameless")
            self.terminal.error(self.phrases.sentence("answer.failed", error=error))
        elif event.reason in self.phrases.table("answer.endings"):
            self.terminal.note(self.phrases.table("answer.endings")[event.reason], YELLOW)
        if self.terminal.verbose and self._usages:
            tokens = self._usages[-1].picture_tokens
            pictures = self.phrases.sentence("answer.of_pictures", tokens=tokens) if tokens else ""
            read = sum(usage.prefilled_tokens for usage in self._usages)
            prompt = sum(usage.prompt_tokens for usage in self._usages)
            seconds = sum(usage.prefill_ms for usage in self._usages) / 1000
            figures = {"read": f"{read:,}", "prompt": f"{prompt:,}", "seconds": f"{seconds:.1f}"}
            self.terminal.note(self.phrases.sentence("answer.tokens_read", **figures, pictures=pictures))
        self._usages = []

    def _close(self) -> None:
        if remainder := self._printable.feed("", is_last=True):
            self.terminal.answer(remainder, is_thought=self._streamed is Thinking)
        self._streamed = None
        self.terminal.end_line()


def progress_text(event: ToolProgress) -> str:
    """The progress of a call: a share, or a number without a total, and the server's message."""
    share = f"{100 * event.progress / event.total:.0f} %" if event.total else f"{event.progress:g}"
    return f"… {share} {event.message or ''}".rstrip()


def arguments_text(arguments: Mapping[str, Any]) -> str:
    """The arguments of a call on one line."""
    pairs = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    return shorten(collapse_whitespace(", ".join(pairs)), RESULT_CHARS)


def transcript(messages: Sequence[Message]) -> str:
    """A conversation as Markdown, tool calls and their results included."""
    parts: list[str] = []
    for message in messages:
        if message.role == "system":
            parts.append(f"> {message.text}")
        elif message.role == "user":
            parts.append(f"## You\n\n{with_closed_fence(message.text)}")
        elif message.role == "assistant":
            calls = [f"`{call.name}({json.dumps(dict(call.arguments), ensure_ascii=False)})`" for call in message.calls]
            parts += ["## Assistant", *filter(None, [with_closed_fence(message.text.strip())]), *calls]
        else:
            for result in message.results:
                # A fence longer than any in the text.
                longest = max(map(len, re.findall("`+", result.text)), default=0)
                fence = "`" * max(3, longest + 1)
                parts.append(f"### {result.name}\n\n{fence}\n{result.text}\n{fence}")
    return "\n\n".join(parts) + "\n"


# Shorter silences are nothing to wonder about, seconds.
SILENCE_S = 2.0


@dataclass
class Answering:
    """Shows an answer, asks its questions, and reports silences longer than ``silence_s``."""

    host: ChatHost
    terminal: Terminal
    inquirer: FormPrompt | None = None
    silence_s: float = SILENCE_S
    phrases: Catalogue = field(default_factory=lambda: read_catalogue("en"))

    async def follow(
        self, conversation_id: str, events: AsyncGenerator[Event, None], *shows: Callable[[Event], None]
    ) -> EndReason:
        """Show an answer to its end, each event by all of ``shows`` in turn, and return its end reason."""
        reason: EndReason = "failed"
        is_late = False  # the request was withdrawn before the answer
        call_later = asyncio.get_running_loop().call_later
        silence = call_later(self.silence_s, self._explain_silence, conversation_id)
        try:
            async with aclosing(events):
                async for event in events:
                    silence.cancel()
                    # A question was taken back, and not because the person stopped the answer.
                    if is_late and not (isinstance(event, End) and event.reason == "cancelled"):
                        self.terminal.error(self.phrases.sentence("answer.too_late"), YELLOW)
                    is_late = False
                    if isinstance(event, (Approval, Elicitation)) and self.inquirer is not None:
                        is_late = not await self._ask_person(conversation_id, event, self.inquirer)
                    else:
                        for show in shows:
                            show(event)
                    reason = event.reason if isinstance(event, End) else reason
                    silence = call_later(self.silence_s, self._explain_silence, conversation_id)
        finally:
            silence.cancel()
        return reason

    def _explain_silence(self, conversation_id: str) -> None:
        reading = self.host.prefill_progress(conversation_id)
        if reading is None:
            return
        seconds = reading.seconds or 0.0
        share = self.phrases.sentence("answer.about", seconds=f"{seconds:.0f}") if seconds >= 1 else ""
        self.terminal.note(self.phrases.sentence("answer.reading", tokens=reading.tokens, share=share))

    async def _ask_person(self, conversation_id: str, question: Approval | Elicitation, inquirer: FormPrompt) -> bool:
        """Settle a question with the person's answer; return False if it was withdrawn before."""
        is_call = isinstance(question, Approval)
        answer: Decision | ElicitationAnswer | None = None
        async with anyio.create_task_group() as asking:

            async def take_away() -> None:
                await self.host.wait_until_settled(question.id)
                asking.cancel_scope.cancel()

            asking.start_soon(take_away)
            answer = await (inquirer.approve(question) if is_call else inquirer.elicit(question))
            asking.cancel_scope.cancel()
        if answer is None:
            return False
        is_settled = await self.host.settle(question.id, answer)
        if inquirer.has_left:
            self.host.cancel(conversation_id)
        elif is_settled:
            is_refused = answer in ("deny", "never")
            self.terminal.note(self.phrases.sentence("answer.refused" if is_refused else "answer.goes_on"))
        return is_settled or inquirer.has_left
