"""The assistant for Python programs: ``Assistant`` and ``AsyncAssistant``.

``AsyncAssistant`` opens the application in the caller's event loop. ``Assistant`` is the same for programs without
one: an ``AsyncAssistant`` in its own thread, whose events are passed to the caller's thread.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing, closing
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import anyio
import anyio.to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal
from typing_extensions import Self, TypedDict, Unpack

from rkllm_mcp.app.root import open_app
from rkllm_mcp.builtin.python_tool import PythonTool, python_tool
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.sections import Config
from rkllm_mcp.config.servers import BuiltinServer
from rkllm_mcp.errors import GenerationError, RkllmMcpError, UsageError, did_you_mean
from rkllm_mcp.events import Approval, Elicitation, End, Event, Text
from rkllm_mcp.generation import AnswerOptions, ForcedTool, ModelOptions
from rkllm_mcp.protocols import ElicitationAnswer
from rkllm_mcp.sampling import SamplingOverrides

if TYPE_CHECKING:
    from rkllm_mcp.app.assistant import App
    from rkllm_mcp.messages import Conversation

ApproveCall: TypeAlias = Callable[[Approval], bool]
ApproveCallAsync: TypeAlias = Callable[[Approval], "bool | Awaitable[bool]"]
_AnyFunction = TypeVar("_AnyFunction", bound=Callable[..., Any])

_FORKED = "the assistant was opened before os.fork, by another process; open one of its own in this process"
_NOT_OPEN = "the assistant is not open; ask inside of its 'with' block"
_TOOL_ATTRIBUTE = "__rkllm_mcp_tool__"


class AskOptions(TypedDict, total=False):
    """Options of one question."""

    max_tokens: int  # the longest answer, in tokens; the model's setting when not given
    temperature: float  # 0 selects the most probable token; the model's setting when not given
    thinking: bool  # think before the answer, if the model can; its setting when not given
    tools: bool | Sequence[str]  # False: answer without tools; names: with these tools only
    force_tool: str  # the tool that the model has to call first


def tool(function: _AnyFunction) -> _AnyFunction:
    """Mark a function as a tool, for ``Assistant(tools=[…])``, and return it unchanged.

    The model reads the docstring to know when to call it, and the annotations for the types of its arguments. It may be
    ``async``. What it returns goes to the model as text, anything but a ``str`` as JSON; an exception goes to the model
    as a failed call.

    Raises:
        UsageError: the function cannot be a tool; the message says why.
    """
    setattr(function, _TOOL_ATTRIBUTE, python_tool(function))
    return function


# The types of each option, and what they are called.
_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "max_tokens": ((int,), "a whole number above 0"),
    "temperature": ((int, float), "a number from 0 to 2"),
    "thinking": ((bool,), "True or False"),
    "tools": ((bool, Sequence), "True, False or a list of names"),
    "force_tool": ((str,), "the name of a tool"),
}


def _check_question(question: object, options: AskOptions) -> None:
    """Check a question and its options.

    Raises:
        TypeError: no such option exists.
        UsageError: the question or an option has the wrong type.
    """
    if not isinstance(question, str):
        raise UsageError(f"a question is text; found {question!r}")
    for name, value in options.items():
        if name not in _TYPES:
            raise TypeError(f"a question has no option {name!r}{did_you_mean(name, _TYPES)}")
        types, allowed = _TYPES[name]
        # A bool is an int.
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise UsageError(f"{name} is {allowed}; found {value!r}")
    if options.get("max_tokens", 1) < 1 or not 0 <= options.get("temperature", 0) <= 2:
        name = "max_tokens" if options.get("max_tokens", 1) < 1 else "temperature"
        raise UsageError(f"{name} is {_TYPES[name][1]}; found {options.get(name)!r}")


def _check(end: End) -> None:
    """Raise the error of an answer that failed, was cancelled or broken off."""
    if end.reason in ("failed", "cancelled", "interrupted"):
        if isinstance(end.cause, RkllmMcpError):
            raise end.cause
        raise GenerationError(end.error or "the answer was cancelled; ask again") from end.cause


class AsyncChat:
    """A conversation of an ``AsyncAssistant``: each question continues the ones before."""

    def __init__(self, assistant: AsyncAssistant, conversation: Conversation) -> None:
        self._assistant = assistant
        self._conversation = conversation

    async def ask(self, question: str, **options: Unpack[AskOptions]) -> str:
        """Return the answer to a question; see ``Assistant.ask``."""
        async with aclosing(self.stream(question, **options)) as texts:
            return "".join([text async for text in texts]).strip()

    async def stream(self, question: str, **options: Unpack[AskOptions]) -> AsyncGenerator[str]:
        """Yield the answer as it is written; see ``Assistant.stream``."""
        async with aclosing(self.events(question, **options)) as events:
            async for event in events:
                if isinstance(event, Text):
                    yield event.text
                elif isinstance(event, End):
                    _check(event)

    async def events(self, question: str, **options: Unpack[AskOptions]) -> AsyncGenerator[Event]:
        """Yield every event of the answer, ``End`` last; see ``Assistant.events``."""
        _check_question(question, options)
        app, approve = self._assistant.app, self._assistant.approve
        tools, forced = options.get("tools", True), options.get("force_tool")
        if isinstance(tools, str):
            raise UsageError(f"tools={tools!r} is one name; give a list of names: tools=[{tools!r}]")
        model = ModelOptions(
            options.get("max_tokens"),
            SamplingOverrides(temperature=options.get("temperature")),
            thinking=options.get("thinking"),
            tool_choice="auto" if forced is None else ForcedTool(forced),
        )
        names = None if isinstance(tools, bool) else tuple(tools)
        is_on = tools if isinstance(tools, bool) else bool(names)
        # A script asks at once, so its question waits for the servers that can serve it.
        answer_options = AnswerOptions(model, is_on, names, "ask" if callable(approve) else approve, is_single=True)
        async with aclosing(app.reply(self._conversation, question, answer_options)) as events:
            async for event in events:
                yield event
                if isinstance(event, Approval) and callable(approve):
                    if inspect.iscoroutinefunction(approve):
                        allowed = await approve(event)
                    else:
                        # It may wait for a person; a thread that still waits when the answer is stopped is left alone.
                        allowed = await anyio.to_thread.run_sync(approve, event, abandon_on_cancel=True)
                        allowed = await allowed if inspect.isawaitable(allowed) else allowed
                    app.pending.respond(event.id, "once" if allowed else "deny")
                elif isinstance(event, Elicitation):
                    app.pending.respond(event.id, ElicitationAnswer("decline"))


class AsyncAssistant:
    """The assistant in an event loop of asyncio; opened with ``async with``. See ``Assistant``."""

    def __init__(
        self,
        config: Config | str | Path | None = None,
        *,
        model: str | None = None,
        runtime: str | None = None,
        system: str | None = None,
        tools: Sequence[Callable[..., Any]] = (),
        servers: bool = True,
        approve: Literal["grant", "refuse"] | ApproveCallAsync = "refuse",
        on_status: Callable[[str], None] | None = None,
    ) -> None:
        loaded = config if isinstance(config, Config) else load_config(config)
        self._config = loaded.with_options(model=model, library=runtime)
        if not servers:
            self._config = self._config.model_copy(update={"servers": ()})
        self.approve: Literal["grant", "refuse"] | ApproveCallAsync = approve
        self._system = system
        self._tools: list[PythonTool] = []
        self._on_status = on_status
        self._opened = AsyncExitStack()
        self._app: App | None = None
        self._process = 0  # that opened it
        for function in tools:
            self.tool(function)

    @property
    def app(self) -> App:
        """The open application, with everything that this class leaves out.

        Raises:
            UsageError: it is not open.
        """
        if self._app is None:
            raise UsageError(_NOT_OPEN)
        if self._process != os.getpid():
            raise UsageError(_FORKED)
        return self._app

    def tool(self, function: _AnyFunction) -> _AnyFunction:
        """Add a function as a tool, before the assistant is opened, and return it unchanged; see ``tool``."""
        if self._app is not None:
            raise UsageError("the assistant is open; add its tools before the 'with' block, or give them as tools=[…]")
        self._tools.append(getattr(function, _TOOL_ATTRIBUTE, None) or python_tool(function))
        return function

    async def open(self) -> Self:
        """Open the assistant, as ``async with`` does; the model loads and the servers connect in the background.

        It is closed by the task that opened it.

        Raises:
            RuntimeUnusableError: no model is configured, or it lacks a file.
        """
        if self._app is not None:
            raise UsageError("the assistant is open already")
        config = self._config
        if self._tools:
            used_names = {server.name for server in config.servers}
            names = ("python", "python_functions", "functions_of_this_program")
            name = next(candidate for candidate in names if candidate not in used_names)
            # The program that adds a function wants it called, so no approval is needed.
            own_server = BuiltinServer(name=name, tools=tuple(self._tools), approve="never")
            config = config.model_copy(update={"servers": (own_server, *config.servers)})
        self._app = await self._opened.enter_async_context(open_app(config, status=self._on_status))
        self._process = os.getpid()
        return self

    async def close(self) -> None:
        """Stop everything that was started, as leaving ``async with`` does; a forked process stops nothing."""
        self._app = None
        if self._process in (0, os.getpid()):
            await self._opened.aclose()

    async def __aenter__(self) -> Self:
        """See ``open``."""
        return await self.open()

    async def __aexit__(self, *error: object) -> None:
        """See ``close``."""
        await self.close()

    def chat(self, system: str | None = None) -> AsyncChat:
        """Begin a conversation; see ``Assistant.chat``."""
        app = self.app
        return AsyncChat(self, app.new_conversation(self._system if system is None else system, with_person=False))

    async def ask(self, question: str, **options: Unpack[AskOptions]) -> str:
        """Return the answer to a question on its own; see ``Assistant.ask``."""
        return await self.chat().ask(question, **options)

    def stream(self, question: str, **options: Unpack[AskOptions]) -> AsyncGenerator[str]:
        """Yield the answer to a question on its own; see ``Assistant.stream``."""
        return self.chat().stream(question, **options)

    def events(self, question: str, **options: Unpack[AskOptions]) -> AsyncGenerator[Event]:
        """Yield the events of an answer to a question on its own; see ``Assistant.events``."""
        return self.chat().events(question, **options)


class Chat:
    """A conversation of an ``Assistant``: each question continues the ones before."""

    def __init__(self, portal: BlockingPortal, chat: AsyncChat) -> None:
        self._portal = portal
        self._chat = chat
        self._process = os.getpid()

    def ask(self, question: str, **options: Unpack[AskOptions]) -> str:
        """Return the answer to a question; see ``Assistant.ask``."""
        return "".join(self.stream(question, **options)).strip()

    def stream(self, question: str, **options: Unpack[AskOptions]) -> Generator[str]:
        """Yield the answer as it is written; see ``Assistant.stream``."""
        with closing(self.events(question, **options)) as events:
            for event in events:
                if isinstance(event, Text):
                    yield event.text
                elif isinstance(event, End):
                    _check(event)

    def events(self, question: str, **options: Unpack[AskOptions]) -> Generator[Event]:
        """Yield every event of the answer, ``End`` last; see ``Assistant.events``."""
        _check_question(question, options)
        if self._process != os.getpid():
            raise UsageError(_FORKED)
        arrived: SimpleQueue[Event | None] = SimpleQueue()

        async def pass_on() -> None:
            try:
                async with aclosing(self._chat.events(question, **options)) as events:
                    async for event in events:
                        arrived.put(event)
            finally:
                arrived.put(None)

        task = self._portal.start_task_soon(pass_on)
        is_over = False
        try:
            while (event := arrived.get()) is not None:
                yield event
            is_over = True
            task.result()
        finally:
            if not is_over:
                # Left early, or by Ctrl-C: the answer is stopped, and the NPU is free when this returns.
                task.cancel()
                while arrived.get() is not None:
                    pass


class Assistant:
    """The assistant: the model on the NPU, or the configured one, with the tools of the configured servers.

        with Assistant() as assistant:
            print(assistant.ask("What time is it in Tokyo?"))

    Args:
        config: a configuration, or its file; found as by ``rkllm-mcp`` when None.
        model: name or path of a model, instead of the configured one.
        runtime: ``"auto"``, ``"emulator"`` or the path of librkllmrt.so, instead of the configured one.
        system: the system prompt, instead of the configured one.
        tools: functions that the model may call; see ``tool``.
        servers: False leaves the configured MCP servers out.
        approve: the decision about calls of servers' tools that need approval: ``"refuse"`` or ``"grant"`` for all of
            them, or a function that takes the ``Approval`` and returns True to allow the call; it runs in a thread and
            may wait for a person.
        on_status: takes a line about each server that is connected or failed.

    Raises:
        ConfigError: the configuration cannot be used.
        UsageError: a function cannot be a tool.
    """

    def __init__(
        self,
        config: Config | str | Path | None = None,
        *,
        model: str | None = None,
        runtime: str | None = None,
        system: str | None = None,
        tools: Sequence[Callable[..., Any]] = (),
        servers: bool = True,
        approve: Literal["grant", "refuse"] | ApproveCall = "refuse",
        on_status: Callable[[str], None] | None = None,
    ) -> None:
        self._assistant = AsyncAssistant(
            config,
            model=model,
            runtime=runtime,
            system=system,
            tools=tools,
            servers=servers,
            approve=approve,
            on_status=on_status,
        )
        self._opened = ExitStack()
        self._portal: BlockingPortal | None = None
        self._process = 0  # that opened it

    def tool(self, function: _AnyFunction) -> _AnyFunction:
        """Add a function as a tool, before the assistant is opened, and return it unchanged; see ``tool``."""
        return self._assistant.tool(function)

    def open(self) -> Self:
        """Open the assistant, as ``with`` does; the model loads and the servers connect in the background.

        Raises:
            RuntimeUnusableError: no model is configured, or it lacks a file.
        """
        if self._portal is not None:
            raise UsageError("the assistant is open already")
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal())
            stack.enter_context(portal.wrap_async_context_manager(self._assistant))
            self._opened, self._portal, self._process = stack.pop_all(), portal, os.getpid()
        return self

    def close(self) -> None:
        """Stop everything that was started, as leaving ``with`` does; a forked process stops nothing."""
        self._portal = None
        if self._process in (0, os.getpid()):
            self._opened.close()

    def __enter__(self) -> Self:
        """See ``open``."""
        return self.open()

    def __exit__(self, *error: object) -> None:
        """See ``close``."""
        self.close()

    def chat(self, system: str | None = None) -> Chat:
        """Begin a conversation, with a system prompt of its own if one is given.

        Raises:
            UsageError: the assistant is not open.
        """
        if self._portal is None:
            raise UsageError(_NOT_OPEN)
        if self._process != os.getpid():
            raise UsageError(_FORKED)
        return Chat(self._portal, self._portal.call(self._assistant.chat, system))

    def ask(self, question: str, **options: Unpack[AskOptions]) -> str:
        """Return the answer to a question on its own, which knows nothing of earlier ones.

        Raises:
            UsageError: the assistant is not open, or an option cannot be used.
            RuntimeUnusableError: the model cannot be loaded.
            GenerationError: the answer failed; the next question may be answered.
        """
        return self.chat().ask(question, **options)

    def stream(self, question: str, **options: Unpack[AskOptions]) -> Generator[str]:
        """Yield the answer to a question on its own as it is written; leaving the loop stops it.

        Raises:
            As ``ask``.
        """
        return self.chat().stream(question, **options)

    def events(self, question: str, **options: Unpack[AskOptions]) -> Generator[Event]:
        """Yield every event of an answer to a question on its own: text, thinking, tool calls, results, token counts.

        The last is ``End``. An answer that fails raises nothing here: ``End.reason`` is then ``"failed"``.

        Raises:
            UsageError: the assistant is not open, or an option cannot be used.
        """
        return self.chat().events(question, **options)
