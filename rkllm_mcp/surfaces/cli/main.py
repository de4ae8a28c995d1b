"""The command ``rkllm-mcp``: words on a command line become calls of the commands.

This module declares and imports little, so that ``--help`` is there at once; each command imports what it needs when
it runs. Whatever goes wrong is one sentence on standard error and an exit code: 0 done, 1 the answer failed, 2 wrong
usage or configuration, 3 runtime or model not usable, 130 interrupted. ``--debug`` shows where it happened.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from rkllm_mcp import __version__
from rkllm_mcp.errors import RkllmMcpError, UsageError
from rkllm_mcp.surfaces.cli import (
    bench_commands,
    config,
    conversations_commands,
    knowledge_commands,
    models_commands,
    resources_commands,
    servers_commands,
    tools_commands,
)
from rkllm_mcp.surfaces.cli import service_commands as systemd
from rkllm_mcp.surfaces.invocation import EXIT_ANSWER_FAILED, EXIT_INTERRUPTED, Session

app = typer.Typer(
    name="rkllm-mcp",
    help="An assistant on a Rockchip NPU that answers in the terminal and acts through MCP tools.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="The options above may also follow the command. Configuration: 'rkllm-mcp config schema'.",
)
app.add_typer(servers_commands.app, name="servers")
app.add_typer(tools_commands.app, name="tools")
app.add_typer(resources_commands.resources, name="resources")
app.add_typer(resources_commands.prompts, name="prompts")
app.add_typer(models_commands.app, name="models")
app.add_typer(knowledge_commands.app, name="knowledge")
app.add_typer(conversations_commands.app, name="conversations")
app.add_typer(config.app, name="config")
app.add_typer(systemd.app, name="service")

# The options of ``main`` below that people type behind the command as well; those with a value are True.
_GLOBAL_OPTIONS = {
    "--config": True,
    "--model": True,
    "--runtime": True,
    "--token": True,
    "--no-mcp": False,
    "--debug": False,
    "--quiet": False,
    "-q": False,
    "--version": False,
}

# Libraries that log requests with their headers and addresses, and with those keys.
_TELL_HEADERS = ("httpx", "httpcore", "httpx2", "httpcore2", "websockets")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    _open_closed_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        # Whatever the locale says, an answer in Japanese must not end in an encoding error.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    try:
        try:
            app(args=hoisted(words), prog_name="rkllm-mcp")
        finally:
            # What the interpreter cannot flush at its own end costs a traceback and exit code 120.
            sys.stdout.flush()
    except RkllmMcpError as error:
        _fail(str(error), error.exit_code, error, debug="--debug" in words)
    except BrokenPipeError:
        _leave_output()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:  # noqa: BLE001  # a mistake of ours is one sentence, too
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _leave_output(f"nothing more can be written ({error.strerror}); make room and ask again")
        sentence = f"Something went wrong inside rkllm-mcp ({type(error).__name__}: {error}); run it again with --debug"
        _fail(sentence, EXIT_ANSWER_FAILED, error, debug="--debug" in words)


def hoisted(words: Sequence[str]) -> list[str]:
    """The words with the global options first, wherever they were typed; what follows ``--`` stays where it is.

    Raises:
        UsageError: the last word is an option that needs a value.
    """
    front: list[str] = []
    rest: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, equals, _ = word.partition("=")
        if word == "--":
            return [*front, *rest, word, *waiting]
        if name not in _GLOBAL_OPTIONS or (equals and not _GLOBAL_OPTIONS[name]):
            rest.append(word)
            continue
        front.append(word)
        if _GLOBAL_OPTIONS[name] and not equals:
            if not waiting:
                raise UsageError(f"{name} needs a value behind it; 'rkllm-mcp --help' says which")
            front.append(waiting.pop(0))
    return [*front, *rest]


def _fail(sentence: str, code: int, error: BaseException, *, debug: bool) -> None:
    if debug:
        import traceback

        traceback.print_exception(error)
    Session().terminal.error(f"Error: {sentence}")
    sys.exit(code)


def _open_closed_streams() -> None:
    """Give the standard streams that the caller closed to the null device.

    Python has None in their place, and the next file or pipe that is opened would get their number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest number that is free is the stream's own.
            null = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(null, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  # for good


def _leave_output(sentence: str = "") -> None:
    """Leave when standard output takes no more; the interpreter would complain about it at its end."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    if sentence:
        Session().terminal.error(f"Error: {sentence}")
    sys.exit(EXIT_ANSWER_FAILED)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"rkllm-mcp {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    context: typer.Context,
    config: Annotated[str | None, typer.Option(metavar="FILE", help="The configuration, TOML or JSON.")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME|PATH", help="The model; 'models list' shows them.")] = None,
    runtime: Annotated[
        str | None, typer.Option(metavar="auto|emulator|PATH", help="The runtime library, or the emulated NPU.")
    ] = None,
    token: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=@FILE]",
            help="A token that a server wants, of $RKLLM_MCP_TOKEN_NAME, a file, or typed; may be repeated.",
        ),
    ] = None,
    no_mcp: Annotated[bool, typer.Option("--no-mcp", metavar="", help="No servers and no tools.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", metavar="", help="No status lines.")] = False,
    debug: Annotated[bool, typer.Option("--debug", metavar="", help="Log on standard error; tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", metavar="", callback=_version, is_eager=True, help="The version.")
    ] = False,
) -> None:
    del version
    if debug:
        _log()
    context.obj = Session(config, model, runtime, no_mcp, quiet, tuple(token or ()))


def _log() -> None:
    """Show on standard error what is logged, without what would tell keys."""
    import logging

    def is_discreet(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or record.name.partition(".")[0] not in _TELL_HEADERS

    handler = logging.StreamHandler()
    handler.addFilter(is_discreet)
    logging.basicConfig(level=logging.DEBUG, format="%(relativeCreated)6d ms %(name)s: %(message)s", handlers=[handler])


def _finish(code: int) -> None:
    raise typer.Exit(code)


@app.command()
def chat(
    context: typer.Context,
    resume: Annotated[
        str | None, typer.Option(metavar="ID", help="Go on with a kept conversation; 'conversations list' shows them.")
    ] = None,
    go_on: Annotated[
        bool, typer.Option("--continue", metavar="", help="Go on with the conversation that went on last.")
    ] = False,
) -> None:
    """Talk with the assistant. Ctrl-C stops an answer, Ctrl-D leaves, /help shows the commands."""
    from rkllm_mcp.surfaces.chat.session import chat as command

    if resume is not None and go_on:
        raise UsageError("--resume and --continue exclude each other; leave one of the two out")
    if resume == "":
        raise UsageError("--resume needs an id; 'rkllm-mcp conversations list' shows them")
    _finish(command(context.obj, "" if go_on else resume))


@app.command()
def run(
    context: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]", help="The question, in quotes; - reads standard input.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="One event per line.")] = False,
    force_tool: Annotated[str | None, typer.Option(metavar="NAME", help="Begin with a call of this tool.")] = None,
    no_tools: Annotated[bool, typer.Option("--no-tools", metavar="", help="Answer without tools.")] = False,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="The system prompt.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, metavar="N", help="The longest answer.")] = None,
    yes: Annotated[bool, typer.Option("--yes", metavar="", help="Run tools also when they change something.")] = False,
    no_approve: Annotated[
        bool, typer.Option("--no-approve", metavar="", help="Refuse what needs a yes, without asking.")
    ] = False,
) -> None:
    """Answer one question."""
    from rkllm_mcp.surfaces.chat.forms import is_interactive
    from rkllm_mcp.surfaces.cli.run import RunRequest
    from rkllm_mcp.surfaces.cli.run import run as command

    if yes and no_approve:
        raise UsageError("--yes and --no-approve exclude each other; leave one of the two out")
    can_ask = not (no_approve or as_json) and is_interactive()
    approvals = "grant" if yes else "ask" if can_ask else "refuse"
    question = RunRequest(question_text(words), system, force_tool, max_tokens, tools=not no_tools, approvals=approvals)
    _finish(command(context.obj, question, as_json=as_json))


@app.command()
def serve(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Where to listen; [service] host.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, metavar="N", help="The port; [service] port, 0 for any.")
    ] = None,
) -> None:
    """Serve over HTTP, with a page for the browser; docs/service.md shows how."""
    from rkllm_mcp.surfaces.http.server import Address
    from rkllm_mcp.surfaces.http.server import serve as command

    _finish(command(context.obj, Address(host, port)))


@app.command()
def prompt(
    context: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="TEXT", help="The question, in quotes; - reads standard input.")
    ],
    no_tools: Annotated[bool, typer.Option("--no-tools", metavar="", help="Without the tools.")] = False,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="The system prompt.")] = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="The parts as JSON.")] = False,
) -> None:
    """Show the exact prompt, its text and its token ids, without running it."""
    from rkllm_mcp.surfaces.cli.run import show_prompt

    _finish(
        show_prompt(context.obj, question_text(words, command="prompt"), system, tools=not no_tools, as_json=as_json)
    )


@app.command()
def detect(
    context: typer.Context,
    syntax: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A tool-call syntax to look for; may be repeated. The common ones."),
    ] = None,
    tools: Annotated[
        str | None, typer.Option(metavar="FILE", help="The declared tools, as JSON; without it any name is taken.")
    ] = None,
    thinking: Annotated[str, typer.Option(metavar="off|auto|open", help="How thinking is marked.")] = "auto",
    explain: Annotated[
        bool, typer.Option("--explain", metavar="", help="Say also why something is a call, or is none.")
    ] = False,
) -> None:
    """Read a model's output on standard input and print the detector's events as JSON lines."""
    from rkllm_mcp.surfaces.cli.run import detect_calls

    _finish(detect_calls(context.obj, syntax or [], tools, thinking, explain=explain))


@app.command()
def doctor(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="The findings as JSON.")] = False,
    probe: Annotated[
        bool, typer.Option("--probe", metavar="", help="Measure also what no document says; takes minutes on a board.")
    ] = False,
) -> None:
    """Look at the board, driver, runtime, model and servers: what is right, what is wrong, how to mend it."""
    from rkllm_mcp.surfaces.cli.doctor import examine

    _finish(examine(context.obj, as_json=as_json, probe=probe))


app.command()(bench_commands.bench)


def question_text(words: Sequence[str] | None, command: str = "run") -> str:
    """The question: the word on the command line, or standard input for ``-`` and where it is not a terminal.

    Raises:
        UsageError: there is none, or it is not text, or it is several words without quotes.
    """
    if words and len(words) > 1:
        quoted = " ".join(words).replace('"', "'")
        raise UsageError(f'the question is several words; put it in quotes: rkllm-mcp {command} "{quoted}"')
    text = words[0] if words else None
    if text is None and sys.stdin.isatty():
        raise UsageError("there is no question; write it behind the command, in quotes, or - to read standard input")
    if text in {None, "-"}:
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    typed: Any = text
    try:
        typed.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError("the question is not UTF-8; set a UTF-8 locale or give it on standard input") from None
    if not typed.strip():
        raise UsageError("the question is empty; write it behind the command, in quotes")
    return str(typed)
