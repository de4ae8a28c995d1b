"""How a command is declared: its options and arguments, the event loop of those that wait, and common checks."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib.resources import files
from inspect import iscoroutinefunction
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import typer

from rkllm_base.settings import parse_toml
from rkllm_mcp.catalogue import Catalogue, read_catalogue
from rkllm_mcp.errors import RkllmMcpError, UsageError
from rkllm_mcp.surfaces.invocation import EXIT_DONE, EXIT_INTERRUPTED, Session, run_async
from rkllm_mcp.surfaces.terminal import BOLD, Terminal, apply_style, table, wants_color, wrap

if TYPE_CHECKING:
    from rkllm_mcp.app.assistant import App
    from rkllm_mcp.app.environment import ToolEnvironment
    from rkllm_mcp.config.sections import Config
    from rkllm_mcp.messages import ToolSpec


# More would push the list of commands off the screen.
_GROUP_EXAMPLES = 4


def argument(text: str, metavar: str | None = None, **settings: Any) -> Any:
    """Return an argument with its help; its name stands for the value unless ``metavar`` does."""
    return typer.Argument(metavar=metavar, help=text, **settings)


def option(text: str, metavar: str, *names: str, **limits: Any) -> Any:
    """Return an option with its help and the word for its value; the parameter names it unless ``names`` do."""
    return typer.Option(*names, metavar=metavar, help=text, **limits)


def flag(text: str, *names: str, **settings: Any) -> Any:
    """Return an option without a value, with its help."""
    return typer.Option(*names, metavar="", help=text, **settings)


def model_names(incomplete: str) -> list[tuple[str, str]]:
    """Return the names of models that a shell completes, with their descriptions."""
    from rkllm_mcp.models.cards import list_models

    # Without a description zsh completes nothing; its colons would end it.
    return [
        (folder.folder.name, folder.card.description.replace(":", ",") or str(folder.folder))
        for folder in list_models()
        if folder.folder.name.startswith(incomplete)
    ]


def usable_models(incomplete: str) -> list[tuple[str, str]]:
    """Return those of ``model_names`` whose files are here."""
    from rkllm_mcp.models.cards import list_models

    usable = {folder.folder.name for folder in list_models() if not folder.missing}
    return [(name, description) for name, description in model_names(incomplete) if name in usable]


def server_names(incomplete: str) -> list[str]:
    """Return the configured servers whose name begins with a text; none if the configuration cannot be read."""
    from rkllm_mcp.config.loading import load_config

    try:
        names = [server.name for server in load_config().servers]
    except RkllmMcpError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def typed_name(parameter: Any) -> str:
    """Return how an argument or option is typed: the word for its value, after the names of an option."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    value = "" if parameter.is_flag else f" {parameter.metavar or 'VALUE'}"
    return ", ".join([*parameter.opts, *parameter.secondary_opts]) + value


def usage(command: Any, path: str) -> str:
    """Return how a command is typed: its path, then the words for its options, arguments and commands."""
    words = [path, "[OPTIONS]"]
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            name = typed_name(parameter)
            if not name.startswith("["):
                name += "…" if parameter.nargs == -1 else ""
                name = name if parameter.required else f"[{name}]"
            words.append(name)
    return " ".join([*words, *(["COMMAND …"] if getattr(command, "commands", {}) else [])])


def parameter_help(parameter: Any, texts: Catalogue) -> str:
    """Return the help of an argument or option, with its default."""
    text, default = _told(parameter.help, texts), parameter.default
    is_shown = isinstance(default, str | int) and not isinstance(default, bool) and default != ""
    return texts.sentence("help.default", text=text, default=default) if is_shown else text


def _told(text: str | None, texts: Catalogue) -> str:
    """Return the paragraphs of a help text in a language."""
    return "\n\n".join(texts.phrase(" ".join(part.split())) for part in (text or "").split("\n\n"))


def help_text(command: Any, path: str, terminal: Terminal) -> str:
    """Return the help of a command in the language of the terminal, in as many columns as it has."""
    texts, columns = read_catalogue(terminal.language), get_terminal_size((100, 24)).columns
    commands: Mapping[str, Any] = getattr(command, "commands", {})
    first, *paragraphs = _told(command.help, texts).split("\n\n")
    lines = [*wrap(texts.sentence("help.usage", usage=usage(command, path)), columns), ""]
    lines += [*wrap(first, columns), ""]
    if commands_typed := examples(path, commands):
        lines += [*(f"  $ {line}" for line in commands_typed), ""]
    for paragraph in paragraphs:
        lines += [*wrap(paragraph, columns), ""]
    groups: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.params:
        is_argument = parameter.param_type_name == "argument"
        name = typed_name(parameter)
        groups.setdefault("Arguments" if is_argument else "Options", []).append(
            (name, parameter_help(parameter, texts))
        )
    groups.setdefault("Options", []).append(("--help, -h", texts.phrase("Show this message and exit.")))
    for name, inner in commands.items():
        about = _told((inner.help or "").split("\n\n")[0], texts)
        groups.setdefault(str(inner.rich_help_panel or "Commands"), []).append((name, about))
    for heading, rows in groups.items():
        name = texts.phrase(heading)
        lines += [apply_style(name, BOLD) if wants_color(sys.stdout) else name]
        lines += [f"  {line}".rstrip() for line in table((), rows, columns - 2).split("\n")]
    return "\n".join([*lines, *(wrap(texts.phrase(command.epilog), columns) if command.epilog else [])]).rstrip()


def prepare_help(command: Any) -> None:
    """Let the help and the completion of a command, and of the commands in it, be in the person's language."""
    complete, commands = command.shell_complete, getattr(command, "commands", {})

    def format_help(ctx: Any, formatter: Any) -> None:
        formatter.write(f"{help_text(command, ctx.command_path, Session().terminal)}\n")

    def complete_translated(ctx: Any, incomplete: str) -> Any:
        for part in (*command.params, *commands.values()):
            part.help = _told(part.help, Session().phrases)
        return complete(ctx, incomplete)

    command.format_help, command.shell_complete = format_help, complete_translated
    for inner in commands.values():
        prepare_help(inner)


def examples(command_path: str, commands: Iterable[str] = ()) -> Sequence[str]:
    """Return the examples of a command, such as ``rkllm-mcp models pull``.

    A group without any has the first one of each of its ``commands``.
    """
    text = files("rkllm_mcp.surfaces.cli").joinpath("examples.toml").read_text("utf-8")
    of_commands: Mapping[str, Sequence[str]] = parse_toml(text)
    program, _, words = command_path.partition(" ")
    if not (lines := of_commands.get(words or program, ())):
        lines = [line for name in commands for line in of_commands.get(f"{words} {name}", ())[:1]][:_GROUP_EXAMPLES]
    return [line.strip() for line in lines]


AsJson = Annotated[bool, flag("Print JSON.", "--json")]
Host = Annotated[str | None, option("Address to listen on. Default: service.host of the configuration.", "ADDRESS")]
Port = Annotated[
    int | None, option("Port, 0 for any free one. Default: service.port of the configuration.", "N", min=0, max=65535)
]
System = Annotated[bool, flag("Of the service of the system's systemd; needs root.", "--system")]
Yes = Annotated[bool, flag("Do not ask for confirmation.", "--yes", "-y")]

_P = ParamSpec("_P")
_Action = TypeVar("_Action", bound=Callable[..., Any])


def command(app: typer.Typer, name: str) -> Callable[[_Action], _Action]:
    """Register a function of a session as a command: it returns the exit code, None for success.

    A coroutine function runs in an event loop, see ``in_loop``.
    """

    def register(action: _Action) -> _Action:
        @wraps(action)
        def run_command(session: typer.Context, **options: Any) -> None:
            code = (
                in_loop(session.obj, lambda: action(session.obj, **options))
                if waits
                else action(session.obj, **options)
            )
            raise typer.Exit(code or EXIT_DONE)

        waits = iscoroutinefunction(action)
        # Typer hands its context to the parameter of that type.
        run_command.__annotations__ = {**action.__annotations__, "session": typer.Context}
        app.command(name)(run_command)
        return action

    return register


def in_loop(session: Session, work: Callable[[], Awaitable[int | None]]) -> int:
    """Run ``work`` in an event loop and return its exit code; None is success."""
    # A person may be asked for a token, and could not interrupt that inside of the loop.
    _ = session.tokens

    return run_async(work)


@contextmanager
def exit_on_interrupt() -> Generator[None, None, None]:
    """End the command on SIGINT while a person is asked, also in an event loop, which cannot run meanwhile."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGINT, handler)


def may_proceed(session: Session, question: str, *, yes: bool) -> bool:
    """Return True with ``--yes``, or if the person answers yes; a UsageError if no person is there.

    For what cannot be undone: Enter alone means no.
    """
    from rkllm_mcp.surfaces.chat.forms import TerminalApprover

    with exit_on_interrupt():
        if yes or TerminalApprover(session.terminal).confirm(session.phrases.phrase(question), "--yes", default=False):
            return True
    session.status("Nothing was changed.")
    return False


def require_mcp(config: Config) -> None:
    """Raise a UsageError if MCP is switched off."""
    if not config.origin.mcp_enabled:
        raise UsageError("MCP is switched off, so there are no servers and no tools; leave out --no-mcp or MCP_ENABLED")


def tool_named(host: App | ToolEnvironment, name: str) -> ToolSpec:
    """Return the tool of that name, or raise a UsageError."""
    tool = host.toolbox.resolve(name)
    if tool is not None:
        return tool
    raise unknown_tool(name, host.toolbox.suggest(name) or "")


def unknown_tool(name: str, suggestion: str) -> UsageError:
    """Return the error for a tool that does not exist; ``suggestion`` is a similar name, or empty."""
    hint = f"did you mean {suggestion!r}?" if suggestion else "'rkllm-mcp tools list' shows those there are"
    return UsageError(f"there is no tool {name!r}; {hint}")
