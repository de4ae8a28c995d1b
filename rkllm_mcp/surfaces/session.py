"""What every command shares: the global options, the configuration they lead to, and a way to run that ends in order.

``run_async`` owns the signals. A SIGINT stops what is under way and lets it clean up, a second one does not
wait; SIGTERM and SIGHUP stop everything in order, so that no server and no worker outlives the command.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rkllm_mcp.surfaces.terminal import Terminal

if TYPE_CHECKING:
    from rkllm_mcp.config import Config
    from rkllm_mcp.surfaces.phrases import Language

EXIT_DONE = 0
EXIT_ANSWER_FAILED = 1
EXIT_USAGE = 2
EXIT_UNUSABLE = 3
EXIT_INTERRUPTED = 130


@dataclass
class Session:
    """One invocation of the command.

    Args:
        config_path: ``--config``.
        model: ``--model``, a name or a path.
        runtime: ``--runtime``: auto, emulator or a path.
        no_mcp: ``--no-mcp``.
        quiet: ``--quiet``.
        token_words: ``--token``, each as it was written.
    """

    config_path: str | None = None
    model: str | None = None
    runtime: str | None = None
    no_mcp: bool = False
    quiet: bool = False
    token_words: Sequence[str] = ()
    terminal: Terminal = field(init=False)

    def __post_init__(self) -> None:
        self.terminal = Terminal(quiet=self.quiet)

    def config(self, environment: Mapping[str, str] = os.environ) -> Config:
        """The configuration that holds here, with the global options in it.

        Args:
            environment: what its variables stand for.

        Raises:
            ConfigError: it cannot be used.
        """
        from rkllm_mcp.config import load_config

        config = load_config(self.config_path, env=environment)
        return config.overridden(model=self.model, library=self.runtime, tools=not self.no_mcp)

    @cached_property
    def tokens(self) -> Mapping[str, str]:
        """The tokens by name; a person may be asked for them, so it is read before anything runs.

        Raises:
            UsageError: one cannot be had.
        """
        from rkllm_mcp.surfaces.tokens import read_tokens

        return read_tokens(self.token_words)

    def status(self, text: str) -> None:
        """Show a line of somebody who starts or stops something; the lines below the first are details."""
        self.terminal.note(text)

    def target_file(self) -> Path:
        """The configuration file that a command may change: the one in use, else ``./mcp_config.toml``."""
        from rkllm_mcp.config import search_order

        if self.config_path is not None:
            return Path(self.config_path).expanduser().absolute()
        return next((path for path in search_order() if path.is_file()), Path.cwd() / "mcp_config.toml")


def emulation_note(model: str, language: Language = "en") -> str:
    """What a person must know about answers of an emulated model."""
    from rkllm_mcp.surfaces.phrases import PHRASES

    return PHRASES[language].emulated.format(model=model)


def run_async(work: Callable[[], Awaitable[int]], on_interrupt: Callable[[], bool] | None = None) -> int:
    """Run a command's work to its end.

    Args:
        work: returns the exit code.
        on_interrupt: is asked at a SIGINT; True when it stops what is under way and the work goes on by itself.
            Otherwise the work is cancelled.

    Returns:
        What ``work`` returned, or 128 + the signal that ended it.
    """
    import anyio

    return anyio.run(_supervised, work, on_interrupt)


async def _supervised(work: Callable[[], Awaitable[int]], on_interrupt: Callable[[], bool] | None) -> int:
    import anyio

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

    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        scope = tasks.cancel_scope
        await tasks.start(watch, scope)
        try:
            outcome = await work()
        except Exception as error:  # noqa: BLE001  # raised again below, outside of the group that would wrap it
            failure = _alone(error)
        scope.cancel()
    if failure is not None:
        raise failure
    return outcome


def _alone(error: Exception) -> Exception:
    """The one error in a group of one, however deep; task groups wrap what happens inside them."""
    inner: tuple[Exception, ...] = getattr(error, "exceptions", ())
    return _alone(inner[0]) if len(inner) == 1 else error
