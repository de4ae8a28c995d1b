"""``rkllm-mcp run``, ``chat``, ``prompt`` and ``detect``."""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from rkllm_mcp.app.settings import chosen_model, sees, starting_lines
from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.errors import RkllmMcpError, UsageError, did_you_mean
from rkllm_mcp.events import (
    DetectorEvent,
    End,
    EndReason,
    Event,
    Status,
    ToolCallDetected,
    event_to_dict,
    event_to_json,
    to_json,
)
from rkllm_mcp.generation import AnswerOptions, ForcedTool, ModelOptions
from rkllm_mcp.messages import ToolSpec, as_mapping
from rkllm_mcp.protocols import CallContext, DiscardEvents
from rkllm_mcp.surfaces.cli.attached import Alone, attached_lines, service_to_use
from rkllm_mcp.surfaces.cli.options import argument, command, flag, in_loop, option, tool_named
from rkllm_mcp.surfaces.cli.question import CommandQuestion, read_named_file, read_question
from rkllm_mcp.surfaces.invocation import (
    EXIT_ANSWER_FAILED,
    EXIT_DONE,
    EXIT_INTERRUPTED,
    Session,
    emulation_note,
    run_async,
)
from rkllm_mcp.surfaces.terminal import BOLD, apply_style, is_interactive, wants_color

if TYPE_CHECKING:
    from rkllm_mcp.config.sections import Config
    from rkllm_mcp.messages import Conversation
    from rkllm_mcp.surfaces.chat.remote import ChatHost
    from rkllm_mcp.surfaces.running_service import RunningService


def show_json(event: Event) -> None:
    """Print an event as a line of JSON, flushed; a BrokenPipeError if standard output is closed."""
    sys.stdout.write(f"{event_to_json(event)}\n")
    sys.stdout.flush()


_READ_BYTES = 4096


def read_tools(path: Path) -> tuple[ToolSpec, ...]:
    """Read tools from a JSON file: a list in MCP's or OpenAI's form, or an object with such a list under ``tools``.

    Raises:
        UsageError: the file has another form.
    """
    try:
        value: Any = json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); name a file with tools as JSON") from None
    except ValueError as error:
        raise UsageError(f"{path} is not JSON ({error}); mend it") from None
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value).get("tools")
    if not isinstance(value, list):
        raise UsageError(f'{path} holds no tools; write a list: [{{"name": "…", "input_schema": {{…}}}}]')
    tools: list[ToolSpec] = []
    for item in cast("list[Any]", value):
        # OpenAI's form has the tool below ``function``.
        tool = as_mapping(item)
        tool = as_mapping(tool.get("function", tool))
        name = tool.get("name")
        if not isinstance(name, str) or not name:
            raise UsageError(f'{path} holds a tool without a name; each tool is {{"name": "…", "input_schema": {{…}}}}')
        schema: Any = next((tool[key] for key in ("input_schema", "inputSchema", "parameters") if key in tool), None)
        if schema is not None and not isinstance(schema, dict):
            raise UsageError(f"{path} holds a tool {name!r} whose schema is no object; write {{}} for no arguments")
        input_schema = cast("dict[str, Any]", schema) or {"type": "object", "properties": {}}
        tools.append(ToolSpec(name, str(tool.get("description") or ""), input_schema))
    return tuple(tools)


def _print(events: Sequence[DetectorEvent]) -> None:
    for event in events:
        record = event_to_dict(event)
        if isinstance(event, ToolCallDetected):
            record = {key: getattr(event, key) for key in ("kind", "name", "arguments", "raw", "repaired")}
        sys.stdout.write(f"{to_json(record)}\n")
        sys.stdout.flush()


# An answer that a limit cut is an answer; a line says so.
EXIT_CODES: dict[EndReason, int] = {
    "answered": EXIT_DONE,
    "round_limit": EXIT_DONE,
    "token_limit": EXIT_DONE,
    "cancelled": EXIT_INTERRUPTED,
    "interrupted": EXIT_ANSWER_FAILED,
    "failed": EXIT_ANSWER_FAILED,
}
# The exit code of a command that a signal ended is greater.
_SIGNALLED = 128


def run(
    session: Session,
    question: CommandQuestion,
    system: str | None,
    options: AnswerOptions,
    *,
    as_json: bool = False,
    alone: bool = False,
) -> int:
    """Answer one question for a program, or on the terminal; returns the exit code."""
    config = session.config()
    language = session.language(config)
    options = replace(
        options,
        tokens=session.tokens,
        language=language,
        resources=question.may_name_resources,
        pictures=question.pictures,
    )
    service = service_to_use(session, config, alone=alone)
    if not options.tools:
        config = config.with_options(tools=False)
    # Everything that the answer needs is imported after the first sign of life.
    if service is not None:
        lines = list[Event](map(Status, attached_lines(session, config, service)))
    else:
        model = chosen_model(config, check_names=False).name if config.provider.kind == "rkllm" else None
        lines = list[Event](starting_lines(model, len(config.active_servers), language))
    show: Callable[[Event], None] = show_json
    if not as_json:
        from rkllm_mcp.surfaces.chat.screen import renderer_for

        show = renderer_for(session.terminal, read_catalogue(language)).show
    if note := session.configuration_note(config):
        show(Status(note))
    for line in lines:
        show(line)

    running: list[tuple[ChatHost, Conversation]] = []
    ended: list[EndReason] = []

    def stop() -> bool:
        # A second Ctrl-C does not wait for the answer to end by itself.
        return bool(running) and (last := running.pop())[0].cancel(last[1].id)

    async def answer_once() -> int:
        async with _open_host(session, config, service, question, options, show) as host:
            from rkllm_mcp.surfaces.chat.forms import FormPrompt
            from rkllm_mcp.surfaces.chat.input import ConsoleAnswers
            from rkllm_mcp.surfaces.chat.render import Answering
            from rkllm_mcp.surfaces.chat.screen import load_markdown

            if not as_json:
                load_markdown(session.terminal)
            if (answering_model := host.model).is_emulated:
                has_weights = answering_model.has_weights
                session.status(emulation_note(answering_model.name, language, has_weights=has_weights))
            conversation = host.new_conversation(system)
            running.append((host, conversation))
            events = host.reply(conversation, question.text, options)
            inquirer: FormPrompt | None = None
            if options.approvals == "ask":
                asker = ConsoleAnswers(session.terminal).ask
                inquirer = FormPrompt(session.terminal, asker, read_catalogue(language))
            answering = Answering(host, session.terminal, inquirer, phrases=read_catalogue(language))
            ended.append(await answering.follow(conversation.id, events, show))
        return EXIT_CODES[ended[0]]

    code = run_async(answer_once, stop)
    if code > _SIGNALLED and not ended:
        # A signal broke the answer off, whose end a reader of the stream waits for. The terminal may be what has gone.
        with suppress(OSError):
            show(End("cancelled"))
    return code


@asynccontextmanager
async def _open_host(
    session: Session,
    config: Config,
    service: RunningService | None,
    question: CommandQuestion,
    options: AnswerOptions,
    show: Callable[[Event], None],
) -> AsyncGenerator[ChatHost]:
    """Open the assistant of a running service, or one of this process, ready to answer."""
    if service is not None:
        from rkllm_mcp.surfaces.chat.remote import open_remote

        async with open_remote(config, service, session.language(config), session.model) as host:
            yield host
        return
    from rkllm_mcp.app.root import open_app

    async with open_app(config, status=session.status, one_shot=True) as app:
        from rkllm_mcp.surfaces.chat.host import LocalHost

        await app.model_host.ready()
        if options.model.forced_tool is not None:
            await app.servers_ready(question.text, options, _ShownStatus(show))
            tool_named(app, options.model.forced_tool)
        yield LocalHost(app)


@dataclass(frozen=True)
class _ShownStatus(DiscardEvents):
    """A sink that shows events at once."""

    show: Callable[[Event], None]

    def feed(self, batch: Sequence[Event]) -> None:
        """Show the events."""
        for event in batch:
            self.show(event)


app = typer.Typer()


@command(app, "chat")
def chat_command(
    session: Session,
    resume: Annotated[
        str | None, option("Continue a saved conversation; without an id, choose it from a list.", "[ID]")
    ] = None,
    go_on: Annotated[bool, flag("Continue the most recent conversation.", "--continue")] = False,
    alone: Alone = False,
) -> int:
    """Check the options of ``chat`` and start it."""
    from rkllm_mcp.surfaces.chat.commands import CHOICE, LATEST

    if resume is not None and go_on:
        raise UsageError("--resume and --continue exclude each other; leave one of the two out")
    if resume == CHOICE and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("--resume needs an id; 'rkllm-mcp conversations list' shows them")
    return hold_chat(session, LATEST if go_on else resume, alone=alone)


def hold_chat(session: Session, resumed: str | None = None, *, alone: bool = False, is_spoken: bool = False) -> int:
    """Open the assistant of a running service, or of this process, and hold a conversation; see ``chat``."""
    from rkllm_mcp.surfaces.chat.host import open_here
    from rkllm_mcp.surfaces.chat.session import chat

    config = session.config()
    service = service_to_use(session, config, alone=alone)
    open_host: Callable[[], AbstractAsyncContextManager[ChatHost]] = partial(open_here, config, session.status)
    if service is not None:
        from rkllm_mcp.surfaces.chat.remote import open_remote

        for line in attached_lines(session, config, service):
            session.status(line)
        open_host = partial(open_remote, config, service, session.language(config), session.model)
    return chat(session, open_host, partial(read_named_file, session=session), resumed, is_spoken=is_spoken)


@command(app, "run")
def run_command(
    session: Session,
    words: Annotated[
        list[str] | None, argument("The question; - is the place of the text on standard input.", "WORDS")
    ] = None,
    files: Annotated[
        list[str] | None, option("File to answer from, text or a document; may be repeated.", "FILE", "--file", "-f")
    ] = None,
    as_json: Annotated[bool, flag("Print one JSON event per line.", "--json")] = False,
    force_tool: Annotated[str | None, option("Call this tool first.", "NAME")] = None,
    no_tools: Annotated[bool, flag("Answer without tools.", "--no-tools")] = False,
    system: Annotated[str | None, option("System prompt, instead of the configured one.", "TEXT")] = None,
    max_tokens: Annotated[int | None, option("Maximum number of tokens in the answer.", "N", min=1)] = None,
    yes: Annotated[bool, flag("Approve every tool call without asking.", "--yes")] = False,
    no_approve: Annotated[
        bool, flag("Refuse every tool call that needs approval, without asking.", "--no-approve")
    ] = False,
    alone: Alone = False,
) -> int:
    """Check the options of ``run`` and answer."""
    if yes and no_approve:
        raise UsageError("--yes and --no-approve exclude each other; leave one of the two out")
    can_ask = not (no_approve or as_json) and is_interactive()
    approvals = "grant" if yes else "ask" if can_ask else "refuse"
    model = ModelOptions(max_tokens, tool_choice=ForcedTool(force_tool) if force_tool is not None else "auto")
    options = AnswerOptions(model, not no_tools, approvals=approvals, is_single=True)
    # What is piped into the command is not what the person says.
    options = replace(options, memory=bool(words) and "-" not in words)
    if force_tool is not None and (no_tools or session.no_mcp):
        raise UsageError("a tool cannot be forced while tools are switched off; leave one of the two out")
    if as_json:
        # JSON is UTF-8 in every locale.
        sys.stdout.reconfigure(encoding="utf-8")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    try:
        config = session.config()
        takes_pictures = bool(files) and sees(config)
        language = session.language(config)
        question = read_question(session, words or (), files or (), language, takes_pictures=takes_pictures)
        return run(session, question, system, options, as_json=as_json, alone=alone)
    except RkllmMcpError as error:
        if as_json:
            # A reader of the stream waits for its end.
            show_json(End("failed", str(error)))
        raise


@command(app, "prompt")
def prompt_command(
    session: Session,
    words: Annotated[list[str], argument("The question; - is the place of the text on standard input.", "WORDS")],
    no_tools: Annotated[bool, flag("Leave the tools out of the prompt.", "--no-tools")] = False,
    system: Annotated[str | None, option("System prompt, instead of the configured one.", "TEXT")] = None,
    as_json: Annotated[bool, flag("Print the parts of the prompt as JSON.", "--json")] = False,
) -> int:
    """Print the prompt part by part, with its token ids and their count."""
    from rkllm_mcp.app.preview import prompt_parts
    from rkllm_mcp.app.tools import open_tools

    text = read_question(session, words, language=session.language(session.config()), command="prompt").text

    async def show_prompt() -> None:
        config, call = session.config(), CallContext(tokens=session.tokens)
        async with open_tools(config.with_options(tools=not no_tools), status=session.status) as environment:
            await environment.toolbox.wait_until_connected()
            async with environment.toolbox.attending(call.tokens):
                parts = await prompt_parts(config, text, environment, system, call)
        tokens = sum(len(part.ids) for part in parts)
        if as_json:
            values = [
                {"part": part.label, "tokens": len(part.ids), "text": part.text, "ids": part.ids} for part in parts
            ]
            sys.stdout.write(f"{json.dumps({'tokens': tokens, 'parts': values}, ensure_ascii=False)}\n")
            return
        lines: list[str] = []
        for part in parts:
            heading = f"── {part.label}: {len(part.ids)} tokens"
            lines += [apply_style(heading, BOLD if wants_color(sys.stdout) else ""), part.text.rstrip("\n")]
            lines.append(f"   ids: {' '.join(map(str, part.ids))}")
        sys.stdout.write("\n".join([*lines, f"── total: {tokens} tokens", ""]))

    return in_loop(session, show_prompt)


@command(app, "detect")
def detect_command(
    session: Session,
    syntax: Annotated[
        list[str] | None,
        option("Tool-call syntax to look for first; may be repeated. All others are read as well.", "NAME"),
    ] = None,
    tools: Annotated[
        str | None, option("JSON file with the declared tools; without it every tool name is accepted.", "FILE")
    ] = None,
    thinking: Annotated[str, option("How the output marks thinking.", "off|auto|open")] = "auto",
    explain: Annotated[bool, flag("Also explain why a text is or is not a tool call.", "--explain")] = False,
) -> None:
    """Feed standard input to a detector and print its events, each as soon as it is certain."""
    if not session.quiet and sys.stdin.isatty():
        session.status("Paste what the model wrote, then Ctrl-D.")
    from rkllm_mcp.toolcalls.detector import Detector, ThinkingMode
    from rkllm_mcp.toolcalls.formats import SYNTAXES

    modes = get_args(ThinkingMode)
    text = sys.stdin.buffer.read().decode("utf-8", "replace") if tools is None or explain else None
    if tools is not None:
        declared = read_tools(Path(tools).expanduser())
    else:
        from rkllm_mcp.toolcalls.resolve import names_in

        # A tool of every name that a call may have; without any tool nothing would be looked for.
        names = names_in(text or "") or ("any",)
        declared = tuple(ToolSpec(name, input_schema={"type": "object"}) for name in names)
    if thinking not in modes:
        raise UsageError(f"there is no thinking mode {thinking!r}; allowed are {', '.join(modes)}")
    for name in syntax or ():
        if name not in SYNTAXES:
            syntax_names = f"there are {', '.join(SYNTAXES)}{did_you_mean(name, SYNTAXES)}"
            raise UsageError(f"there is no syntax {name!r}; {syntax_names}")
    syntaxes, mode = tuple(syntax or ()) or None, cast("ThinkingMode", thinking)
    detector = Detector(declared, syntaxes, thinking=mode)
    if text is not None:
        _print([*detector.feed(text), *detector.finish()])
    else:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while piece := os.read(sys.stdin.fileno(), _READ_BYTES):
            _print(detector.feed(decoder.decode(piece)))
        _print([*detector.feed(decoder.decode(b"", final=True)), *detector.finish()])
    if explain:
        from rkllm_mcp.toolcalls.explain import explain as explanations_of

        for explanation in explanations_of(text or "", declared, syntaxes, mode):
            line = to_json({"kind": "why", "text": explanation.text, "why": explanation.why})
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
