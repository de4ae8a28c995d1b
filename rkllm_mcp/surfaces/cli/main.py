"""The command ``rkllm-mcp``: global options, and a table of commands whose modules are imported on use.

An error is one sentence on standard error and an exit code: 0 done, 1 the answer failed, 2 wrong usage or
configuration, 3 runtime or model not usable, 130 interrupted. ``--debug`` adds the traceback.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from rkllm_mcp import __version__
from rkllm_mcp.config.secrets import redact_record
from rkllm_mcp.errors import RkllmMcpError, UsageError, did_you_mean
from rkllm_mcp.surfaces.cli.options import examples, flag, option, prepare_help, usable_models
from rkllm_mcp.surfaces.invocation import (
    EXIT_ANSWER_FAILED,
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    Session,
)


@dataclass(frozen=True)
class CommandEntry:
    """A command or a group of commands: its help text, and the module below ``surfaces.cli`` that declares it."""

    module: str
    help: str
    app: str = "app"  # the module's typer.Typer: the group itself, or it holds the command


# By the heading of the help, in its order.
_GROUPS: Mapping[str, Mapping[str, CommandEntry]] = {
    "Ask": {
        "setup": CommandEntry("setup", "Set up a working assistant, from the bare board to the page on your phone."),
        "chat": CommandEntry(
            "run", "Chat with the assistant. Ctrl-C stops an answer, Ctrl-D exits, /help lists the commands."
        ),
        "run": CommandEntry("run", "Answer one question."),
        "serve": CommandEntry("serve", "Serve the assistant over HTTP, with a page for the browser."),
    },
    "Models": {
        "models": CommandEntry("models", "List, download, add and remove models."),
        "runtime": CommandEntry(
            "models", "List, download and choose the runtime library (librkllmrt.so).", "runtime_app"
        ),
        "doctor": CommandEntry(
            "doctor", "Check the board, driver, runtime, model and servers, and explain how to fix problems."
        ),
        "bench": CommandEntry("bench", "Measure model loading, prefill, decode, delivery and prompts."),
        "tune": CommandEntry("tune", "Set NPU, CPU, GPU and memory to their highest clocks, and back."),
        "report": CommandEntry(
            "report", "Measure everything about this board and write one page to send, without private data."
        ),
    },
    "Tools and documents": {
        "servers": CommandEntry("servers", "Manage MCP servers."),
        "tools": CommandEntry("tools", "List, call, enable and disable tools."),
        "resources": CommandEntry("resources", "List and read resources of MCP servers."),
        "prompts": CommandEntry("resources", "List and show prompts of MCP servers.", "prompts_app"),
        "knowledge": CommandEntry("knowledge", "Manage and search knowledge bases of your documents."),
        "voice": CommandEntry("voice", "Make text of a recording, and speak a text."),
    },
    "Conversations, service and upkeep": {
        "status": CommandEntry("maintenance", "Show whether the assistant runs, where, and with which model."),
        "conversations": CommandEntry("conversations", "Manage saved conversations."),
        "schedules": CommandEntry("schedules", "Ask questions and give reminders at certain times."),
        "memory": CommandEntry("memory", "Manage what the assistant remembers of you in all conversations."),
        "config": CommandEntry("config", "Check, show and create the configuration."),
        "service": CommandEntry("service", "Install, start and stop the assistant as a systemd service."),
        "backup": CommandEntry("backup", "Save configuration, conversations, keys and knowledge bases to one file."),
        "restore": CommandEntry("backup", "Put back what a backup holds."),
        "install": CommandEntry("maintenance", "Install optional parts of the program, such as postgres."),
        "update": CommandEntry("maintenance", "Update the program with what installed it."),
        "uninstall": CommandEntry("maintenance", "Remove the service and the program."),
    },
    "Several boards": {
        "boards": CommandEntry("boards", "Serve several boards behind one address, and show their state."),
        "store": CommandEntry(
            "store", "What is stored in a database that several boards share: how long it is kept, and copies of it."
        ),
    },
    "For developers": {
        "prompt": CommandEntry(
            "run", "Show the prompt of a question, as text and token ids, without running the model."
        ),
        "detect": CommandEntry(
            "run", "Read a model's output on standard input and print the detector's events as JSON lines."
        ),
    },
}
COMMANDS: Mapping[str, CommandEntry] = {name: entry for group in _GROUPS.values() for name, entry in group.items()}


class CommandTable(TyperGroup):
    """The commands of ``COMMANDS``: listed and suggested from the table, imported when one is resolved."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for heading, entries in _GROUPS.items():
            for name, entry in entries.items():
                self.commands[name] = TyperCommand(name, help=entry.help, rich_help_panel=heading)
        prepare_help(self)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command that the first word names."""
        name, _, arguments = super().resolve_command(ctx, args)
        if name is None:
            return name, None, arguments
        entry = COMMANDS[name]
        group = get_group(getattr(import_module(f"rkllm_mcp.surfaces.cli.{entry.module}"), entry.app))
        command = group.commands.get(name, group)
        command.help = entry.help
        prepare_help(command)
        return name, command, arguments


app = typer.Typer(
    name="rkllm-mcp",
    cls=CommandTable,
    help="An assistant on a Rockchip NPU that answers in the terminal and acts through MCP tools.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="The options above may also follow the command. Configuration: 'rkllm-mcp config schema'.",
)

# Libraries that log requests with their headers and addresses, and with those keys.
_TELL_HEADERS = ("httpx", "httpcore", "httpx2", "httpcore2", "websockets")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        # Python has None in place of a stream that the caller closed; the next file would get its number, which is the
        # lowest that is free.
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(null, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  # for good
    words = list(sys.argv[1:] if arguments is None else arguments)
    Session.spoken = None  # until this command reads a configuration
    for stream in (sys.stdout, sys.stderr):
        # Whatever the locale says, an answer in Japanese must not end in an encoding error.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    try:
        try:
            sys.exit(app(args=hoist_global_options(words), prog_name="rkllm-mcp", standalone_mode=False) or EXIT_DONE)
        finally:
            # What the interpreter cannot flush at its own end costs a traceback and exit code 120.
            sys.stdout.flush()
    except RkllmMcpError as error:
        _fail(str(error), error.exit_code, error, debug="--debug" in words)
    except BrokenPipeError:
        _leave_output()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except typer.Abort:
        sys.exit(EXIT_ANSWER_FAILED)
    except Exception as error:  # noqa: BLE001  # a mistake of ours is one sentence, too
        if hasattr(error, "format_message"):
            _fail(_usage_of(error), EXIT_USAGE, error, debug="--debug" in words)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _leave_output(f"nothing more can be written ({error.strerror}); make room and ask again")
        sentence = f"Something went wrong inside rkllm-mcp ({type(error).__name__}: {error}); run it again with --debug"
        _fail(sentence, EXIT_ANSWER_FAILED, error, debug="--debug" in words)


# Options that have an empty value where none is given; Typer knows no such options.
_OPTIONAL_VALUES = ("--resume",)


def hoist_global_options(words: Sequence[str]) -> list[str]:
    """Return the words with the global options first; what follows ``--`` stays where it is."""
    # By option: True if it takes a value.
    flags = {
        name: not getattr(parameter, "is_flag", False)
        for parameter in get_command(app).params
        for name in parameter.opts
    }
    front: list[str] = []
    others_in_order: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, equals, _ = word.partition("=")
        if word == "--":
            return [*front, *others_in_order, word, *waiting]
        if name not in flags or (equals and not flags[name]):
            has_no_value = word in _OPTIONAL_VALUES and (not waiting or waiting[0].startswith("-"))
            others_in_order.append(f"{word}=" if has_no_value else word)
            continue
        front.append(word)
        if flags[name] and not equals:
            if not waiting:
                raise UsageError(f"{name} needs a value behind it; 'rkllm-mcp --help' says which")
            front.append(waiting.pop(0))
    return [*front, *others_in_order]


def _fail(sentence: str, code: int, error: BaseException, *, debug: bool) -> None:
    if debug:
        traceback.print_exception(error)
    Session().error(sentence)
    sys.exit(code)


def _usage_of(error: Any) -> str:
    """Return a sentence about an exception of the library that reads the command line.

    Which module has its classes depends on the version of Typer.
    """
    context, kind = error.ctx, type(error).__name__
    command = context.command_path if context is not None else "rkllm-mcp"
    if kind == "NoArgsIsHelpError":
        error.show()
        sys.exit(EXIT_USAGE)
    if kind == "MissingParameter" and error.param is not None:
        parameter = error.param
        name = parameter.opts[0] if parameter.opts[0].startswith("-") else (parameter.metavar or parameter.name.upper())
        lines = [line for line in examples(command) if line.startswith(command)]
        return f"'{command}' needs {name}; {f'for example: {lines[0]}' if lines else f'see {command} --help'}"
    if kind == "NoSuchOption":
        # Global options may follow the command.
        parameters = [*(context.command.params if context is not None else ()), *get_command(app).params]
        names = [name for parameter in parameters for name in parameter.opts if name.startswith("-")]
        near = did_you_mean(error.option_name, [name for name in names if name != "--help"])
        return f"'{command}' has no option {error.option_name}{near or f'; see {command} --help'}"
    message = error.format_message().rstrip(".")
    return message if message.endswith("?") else f"{message}; see {command} --help"


def _leave_output(sentence: str = "") -> None:
    """Leave when standard output takes no more; the interpreter would complain about it at its end."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    if sentence:
        Session().error(sentence)
    sys.exit(EXIT_ANSWER_FAILED)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"rkllm-mcp {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    context: typer.Context,
    config: Annotated[
        str | None, option("Configuration file, TOML or JSON; demo for that of the demo.", "FILE")
    ] = None,
    model: Annotated[
        str | None, option("Model to use; 'models list' lists them.", "NAME|PATH", autocompletion=usable_models)
    ] = None,
    runtime: Annotated[
        str | None, option("Runtime library to use; emulator runs without an NPU.", "auto|emulator|PATH")
    ] = None,
    token: Annotated[
        list[str] | None,
        option(
            "Token for a server: from $RKLLM_MCP_TOKEN_NAME, from a file, or typed in; may be repeated.", "NAME[=@FILE]"
        ),
    ] = None,
    no_mcp: Annotated[bool, flag("Do not start MCP servers; answer without tools.", "--no-mcp")] = False,
    quiet: Annotated[bool, flag("Do not print status lines.", "--quiet", "-q")] = False,
    verbose: Annotated[
        bool,
        flag(
            "Print after each answer how many tokens the model read, and the status lines of tools call.",
            "--verbose",
            "-v",
        ),
    ] = False,
    plain: Annotated[
        bool, flag("Print answers as the model writes them, without Markdown or moving the cursor.", "--plain")
    ] = False,
    debug: Annotated[bool, flag("Log to standard error, with tracebacks.", "--debug")] = False,
    version: Annotated[bool, flag("Show the version.", "--version", callback=_version, is_eager=True)] = False,
) -> None:
    del version
    if debug:
        # Without libraries that log keys.
        handler = logging.StreamHandler()
        handler.addFilter(
            lambda record: record.levelno >= logging.WARNING or record.name.partition(".")[0] not in _TELL_HEADERS
        )
        handler.addFilter(redact_record)
        form = "%(relativeCreated)6d ms %(name)s: %(message)s"
        logging.basicConfig(level=logging.DEBUG, format=form, handlers=[handler])
    context.obj = Session(config, model, runtime, no_mcp, quiet, plain, tuple(token or ()), verbose)
