"""State of a conversation at a terminal, and its statistics."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio

from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.events import Event, ToolFinished, Usage
from rkllm_mcp.messages import Conversation, Picture, picture_type
from rkllm_mcp.protocols import DENY_ALL, CallContext
from rkllm_mcp.sampling import OPTIONS
from rkllm_mcp.surfaces.chat.files import take_files
from rkllm_mcp.surfaces.chat.forms import FormPrompt
from rkllm_mcp.surfaces.chat.input import TerminalLines
from rkllm_mcp.surfaces.chat.render import Answering
from rkllm_mcp.surfaces.chat.screen import renderer_for
from rkllm_mcp.surfaces.terminal import Terminal
from rkllm_mcp.tasks import open_task_group
from rkllm_mcp.text import Language

if TYPE_CHECKING:
    from rkllm_mcp.generation import AnswerOptions
    from rkllm_mcp.speech.engines import Speaker
    from rkllm_mcp.surfaces.chat.remote import ChatHost


@dataclass
class Stats:
    """Statistics of a conversation."""

    questions: int = 0
    rounds: int = 0
    tool_calls: int = 0
    failed_calls: int = 0
    prompt_tokens: int = 0
    prefilled_tokens: int = 0
    generated_tokens: int = 0
    corrections: int = 0
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
            self.corrections += event.corrections
            self.prefill_ms += event.prefill_ms
            self.decode_ms += event.decode_ms


# What /set changes: the name of the option, its field, and the least and the greatest value.
SETTINGS: Mapping[str, tuple[str, float, float]] = {
    **{name: (f"sampling.{name}", option.least, option.most) for name, option in OPTIONS.items()},
    "max_tokens": ("max_new_tokens", 1, 1_000_000),
    "thinking": ("thinking", 0, 1),
}


# As much as other files may have; what is cut off is a damaged picture.
_MOST_PICTURE_BYTES = 16 * 2**20


@dataclass
class Attachments:
    """What goes with the next question."""

    mentions: list[str] = field(default_factory=list[str])  # of resources, as questions name them
    material: list[str] = field(default_factory=list[str])  # texts of files, which are before it
    pictures: list[Picture] = field(default_factory=list[Picture])  # before it, for a model that sees


@dataclass
class ChatState:
    """A conversation at a terminal."""

    host: ChatHost  # the assistant
    conversation: Conversation  # its messages
    terminal: Terminal  # the output
    options: AnswerOptions  # options of each answer
    read_file: Callable[[str], Awaitable[str]]  # returns the text of a file with its name, or raises a UsageError
    inquirer: FormPrompt | None = None  # asks the person; None if the input is a pipe
    language: Language = "en"  # of the person
    stats: Stats = field(default_factory=Stats)  # statistics so far
    attached: Attachments = field(default_factory=Attachments)  # what goes with the next question
    console: TerminalLines | None = None  # the terminal; None if the input is a pipe
    is_over: bool = False  # the person has left
    speaker: Speaker | None = None  # reads answers aloud
    listens: bool = False  # an empty line is a question that is spoken
    _command: anyio.CancelScope | None = None

    def __post_init__(self) -> None:
        self.phrases = read_catalogue(self.language)  # texts in the person's language

    async def answer(self, events: AsyncGenerator[Event, None]) -> None:
        """Show an answer to its end."""
        renderer = renderer_for(self.terminal, self.phrases)
        self.stats.questions += 1
        answering = Answering(self.host, self.terminal, self.inquirer, phrases=self.phrases)
        if self.speaker is None:
            await answering.follow(self.conversation.id, events, self.stats.note, renderer.show)
            return
        from rkllm_mcp.surfaces.chat.speech import SpokenAnswer  # loads numpy

        spoken = SpokenAnswer(self.speaker)
        with self.interruptible():
            async with open_task_group() as tasks:
                tasks.start_soon(spoken.play)
                await answering.follow(self.conversation.id, events, self.stats.note, renderer.show, spoken.note)
                spoken.finish()

    async def ask(self, words: str) -> None:
        """Answer a question, with the files that it mentions and what was attached to it.

        Raises:
            UsageError: a file cannot be read; nothing was asked.
        """
        text, paths = take_files(words, self.host.server_names)
        with self.interruptible() as scope:
            for path in paths:
                await self.attach(path)
        if scope.cancel_called:
            return
        # What /resource fetched is named in the question, as if the person had typed it there.
        text = "\n".join([text, *self.attached.mentions])
        # The person's own words may name resources to read (``@server:uri``); a file may not.
        may_name = not any("@" in material for material in self.attached.material)
        question = "\n\n".join([*self.attached.material, text])
        options = replace(self.options, resources=may_name, pictures=tuple(self.attached.pictures))
        self.attached = Attachments()
        await self.answer(self.host.reply(self.conversation, question, options))

    async def attach(self, path: str) -> None:
        """Read a file that goes with the next question; a picture is shown to a model that sees."""
        data = b""
        if self.host.model.takes_pictures:
            # A file that cannot be read is reported below.
            with suppress(OSError):
                async with await (await anyio.Path(path).expanduser()).open("rb") as opened:
                    data = await opened.read(_MOST_PICTURE_BYTES)
        if picture_type(data):
            picture = Picture.of(data)
            if picture not in self.attached.pictures:
                self.attached.pictures.append(picture)
            return
        if (material := await self.read_file(path)) not in self.attached.material:
            self.attached.material.append(material)

    def complain(self, error: RkllmMcpError) -> None:
        """Show what went wrong."""
        self.terminal.error(self.phrases.sentence("answer.failed", error=self.phrases.phrase(str(error))))

    def need(self, command: str) -> None:
        """Show the argument that a command requires."""
        *_, example = self.phrases.table("help.commands")[command]
        self.terminal.error(example)

    def context(self) -> CallContext:
        """Return the call context of requests outside an answer."""
        return CallContext(asker=self.inquirer or DENY_ALL, tokens=self.options.tokens)

    def interrupt(self) -> bool:
        """Stop the running answer or command; return False if none is running."""
        if self.host.cancel(self.conversation.id):
            return True
        if self._command is None:
            return False
        self._command.cancel()
        return True

    @contextmanager
    def interruptible(self) -> Generator[anyio.CancelScope]:
        """Let ``interrupt`` end what runs inside this block."""
        before = self._command
        with anyio.CancelScope() as scope:
            self._command = scope
            yield scope
        self._command = before
        if scope.cancelled_caught:
            self.terminal.note(self.phrases.table("answer.endings")["cancelled"])
