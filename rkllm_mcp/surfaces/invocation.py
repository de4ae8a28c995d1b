"""Options, exit codes and signals of one invocation of the command line."""

from __future__ import annotations

import getpass
import json
import math
import os
import re
import shutil
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rkllm_mcp.catalogue import Catalogue, read_catalogue, translate
from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.terminal import DIM, Terminal, is_interactive, printable, write_json
from rkllm_mcp.text import Language, language_of_setting

if TYPE_CHECKING:
    from rkllm_mcp.config.sections import Config


PREFIX = "RKLLM_MCP_TOKEN_"
_UNUSUAL = re.compile(r"[^A-Za-z0-9]+")


def read_tokens(
    words: Sequence[str], env: Mapping[str, str] = os.environ, ask: Callable[[str], str] | None = None
) -> dict[str, str]:
    """Return the tokens of ``--token`` options by name, or raise a UsageError.

    ``ask`` shows a prompt and returns what a person types without echo; None where no person can be asked.
    """
    tokens: dict[str, str] = {}
    for word in words:
        name, equals, file = word.partition("=")
        if not name:
            raise UsageError("--token needs the name of a token; write --token NAME")
        variable = PREFIX + _UNUSUAL.sub("_", name).strip("_").upper()
        if not equals:
            value = env.get(variable) or None
            if value is None and ask is not None:
                with suppress(EOFError):
                    value = ask(f"Token '{name}' (not shown): ")
            if value is None:
                raise UsageError(f"there is no token '{name}'; set {variable}, or write --token {name}=@FILE")
        elif file.startswith("@"):
            path = Path(file[1:]).expanduser()
            try:
                value = path.read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is no text"
                problem = f"the token '{name}' cannot be read from {path} ({reason})"
                raise UsageError(f"{problem}; correct the path") from None
        else:
            raise UsageError(
                f"others on this machine could read the token '{name}' on the command line; "
                f"set {variable} and write --token {name}, or put it into a file and write --token {name}=@FILE"
            )
        if not value.strip():
            raise UsageError(f"the token '{name}' is empty; give it in {variable} or with --token {name}=@FILE")
        tokens[name] = value.strip()
    return tokens


EXIT_DONE = 0
EXIT_ANSWER_FAILED = 1
EXIT_USAGE = 2
EXIT_UNUSABLE = 3
EXIT_INTERRUPTED = 130


def locale_of(environment: Mapping[str, str]) -> str:
    """Return the locale of messages, such as ``ja_JP.UTF-8``; empty if none is set."""
    return next(filter(None, (environment.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))), "")


# The value of ``--config`` that stands for the configuration of the demo, which is part of the program.
_DEMO = "demo"
_LOSS = "[State: "
_DEMO_FILES = "RKLLM_MCP_FILES"


@dataclass
class Session:
    """Global options of one invocation."""

    config_path: str | None = None  # ``--config``
    model: str | None = None  # ``--model``, a name or a path
    runtime: str | None = None  # ``--runtime``: auto, emulator or a path
    no_mcp: bool = False  # ``--no-mcp``
    quiet: bool = False  # ``--quiet``
    plain: bool = False  # ``--plain``
    token_words: Sequence[str] = ()  # ``--token``, as typed
    verbose: bool = False  # ``--verbose``
    spoken: ClassVar[Language | None] = None  # of the configuration that was read last, for the lines printed after it
    terminal: Terminal = field(init=False)
    _kept: list[str] | None = field(default=None, init=False, repr=False)  # status lines; None if they are shown

    def __post_init__(self) -> None:
        language = Session.spoken or language_of_setting(locale_of(os.environ))
        self.terminal = Terminal(quiet=self.quiet, plain=self.plain, verbose=self.verbose, language=language)

    @property
    def phrases(self) -> Catalogue:
        """The texts in the language of the person at the terminal."""
        return read_catalogue(self.terminal.language)

    def config(self, environment: Mapping[str, str] = os.environ) -> Config:
        """Load the configuration and apply the global options.

        Raises:
            ConfigError: it is not usable.
            UsageError: the files of the demo cannot be copied.
        """
        from rkllm_mcp.config.loading import load_config

        if self.config_path == _DEMO and not Path(_DEMO).is_file():
            from rkllm_base.folders import user_folder

            # In a checkout, or in an installed package.
            package = Path(__file__).parents[1]
            folders = (package.parent / "models" / _DEMO, package / "_models" / _DEMO)
            demo = next(folder for folder in folders if folder.is_dir())
            # Its files server has a copy of the folder, which it may change.
            files = Path(environment.get(_DEMO_FILES) or user_folder("state") / "demo-files")
            if not files.is_dir():
                try:
                    shutil.copytree(demo / "files", files)
                except OSError as error:
                    problem = f"the folder of the files server, {files}, cannot be filled ({error.strerror})"
                    raise UsageError(f"{problem}; set {_DEMO_FILES} to another") from None
            config = load_config(demo / "mcp_config.toml", env={**environment, _DEMO_FILES: str(files)})
        else:
            config = load_config(self.config_path, env=environment)
        config = config.with_origin(locale=locale_of(environment))
        Session.spoken = self.terminal.language = self.language(config, environment)
        return config.with_options(model=self.model, library=self.runtime, tools=not self.no_mcp)

    @cached_property
    def tokens(self) -> Mapping[str, str]:
        """The tokens by name; a person may be asked for them, so it is read before anything runs."""
        return read_tokens(self.token_words, ask=getpass.getpass if is_interactive() else None)

    def language(self, config: Config, environment: Mapping[str, str] = os.environ) -> Language:
        """Return the language of our own texts: the configured one, else the locale's."""
        return language_of_setting(config.agent.language or locale_of(environment))

    def note_configuration(self, config: Config) -> None:
        """Say in the first line if no configuration file exists, or which of two is used."""
        if note := self.configuration_note(config):
            self.status(note)

    def configuration_note(self, config: Config) -> str:
        """Return the line for ``note_configuration``; empty if there is one file, or ``--config`` names it."""
        from rkllm_mcp.config.loading import shadowed_file

        source, language = config.origin.source, self.language(config)
        if source is None:
            return translate("config.none", language)
        other = shadowed_file(source) if self.config_path is None else None
        return translate("config.two_files", language, used=source, other=other) if other else ""

    def status(self, text: str, style: str = DIM) -> None:
        """Show a status line in the person's language, or keep it; see ``details``."""
        if self._kept is None or text.startswith(_LOSS):
            self.terminal.note(self.phrases.phrase(text), style)
        else:
            self._kept.append(text)

    def error(self, text: str) -> None:
        """Show an error in the person's language."""
        self.terminal.error(self.phrases.sentence("answer.failed", error=self.phrases.phrase(text)))

    def result(self, text: str) -> None:
        """Print a line of the result on standard output, in the person's language."""
        sys.stdout.write(f"{printable(self.phrases.phrase(text))}\n")

    @contextmanager
    def details(self, *, are_shown: bool) -> Generator[Callable[[], None]]:
        """Keep the status lines of the block, and show them only if it fails or calls what it is given.

        A line about data that is not saved is shown at once.
        """

        def show_kept() -> None:
            lines, self._kept = self._kept or [], None
            for text in lines:
                self.status(text)

        self._kept = None if are_shown else []
        try:
            yield show_kept
        except BaseException:
            show_kept()
            raise
        finally:
            self._kept = None

    def show(self, value: Any, listing: str, *, as_json: bool, none: str = "") -> None:
        """Print a value for a program, or its listing for a person; ``none`` is the status line of an empty one."""
        if as_json:
            write_json(value)
            return
        sys.stdout.write(listing)
        if none and not listing:
            self.status(none)

    def show_value(self, values: Mapping[str, Any], *, as_json: bool) -> None:
        """Print one thing for a program, or its names and values line by line for a person."""
        rows = [
            (
                key,
                json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else str(value),
            )
            for key, value in values.items()
            if value is not None
        ]
        self.show(values, self.terminal.table((), rows), as_json=as_json)

    def target_file(self) -> Path:
        """Return the configuration file that a command may change.

        It is the one of ``--config``, else ``./mcp_config.toml`` if it exists, else the user's own.
        """
        from rkllm_mcp.config.loading import search_order

        if self.config_path == _DEMO and not Path(_DEMO).is_file():
            raise UsageError("the demo's configuration is not changed; 'rkllm-mcp setup' writes one of your own")
        if self.config_path is not None:
            return Path(self.config_path).expanduser().absolute()
        local, personal, _ = search_order()
        return local if local.is_file() else personal


def emulation_note(model: str, language: Language = "en", *, has_weights: bool = False) -> str:
    """Return the status line for a model on the emulated NPU; ``has_weights`` if the CPU computes it."""
    return translate("npu.on_the_cpu" if has_weights else "npu.emulated", language, model=model)


def run_async(work: Callable[[], Awaitable[int | None]], on_interrupt: Callable[[], bool] | None = None) -> int:
    """Run a command in an event loop; return its exit code, 0 for None, or 128 + the signal that ended it.

    ``on_interrupt`` is called on SIGINT; if it returns True, ``work`` continues, otherwise it is cancelled.
    """
    import anyio

    return anyio.run(_supervise, work, on_interrupt)


async def _supervise(work: Callable[[], Awaitable[int | None]], on_interrupt: Callable[[], bool] | None) -> int:
    import anyio

    from rkllm_mcp.tasks import open_task_group

    outcome = EXIT_DONE

    async def watch(scope: anyio.CancelScope, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        nonlocal outcome
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                if number == signal.SIGINT and on_interrupt is not None and on_interrupt():
                    continue
                outcome = 128 + number
                scope.cancel()
                break
        # From here on the default holds again: another SIGINT does not wait for the shutdown.

    async with open_task_group(cancel_at_end=True) as tasks:
        await tasks.start(watch, tasks.cancel_scope)
        outcome = await work() or EXIT_DONE
    return outcome


def open_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; a UsageError says why none can be had."""
    from rkllm_base.listener import ListenError, listening_socket

    try:
        return listening_socket(host, port)
    except ListenError as error:
        raise UsageError(str(error)) from None


@dataclass
class RefusalLog:
    """Log of requests with refused keys: at most one line in ``interval_s`` seconds, without the keys."""

    write: Callable[[str], None]  # takes a line
    interval_s: float = 60.0  # the shortest time between two lines
    clock: Callable[[], float] = time.monotonic  # seconds
    _count: int = 0
    _last_s: float = -math.inf

    def note(self, address: str, what: str) -> None:
        """Count a refused request of ``address`` and log it with those since the last line, if that is due."""
        self._count += 1
        if (now_s := self.clock()) - self._last_s >= self.interval_s:
            more = f" and {self._count - 1} more before" if self._count > 1 else ""
            self.write(f"refused a request that is not allowed ({what}) from {address or 'an unknown address'}{more}")
            self._count, self._last_s = 0, now_s
