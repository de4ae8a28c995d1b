"""The catalogue of models as a board sees it, and the downloads that go on in the service.

A download belongs to the service, not to the page that began it. One goes on at a time; what has
arrived of one that was stopped, or failed, is kept and continued by the next one of the same name.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import anyio
from anyio import to_thread

from rkllm_mcp.board.system import memory_bytes
from rkllm_mcp.errors import ModelDownloadError, RkllmMcpError, UsageError

if TYPE_CHECKING:
    from rkllm_mcp.models.cards import ModelFolder
    from rkllm_mcp.models.install import ModelSources, Pull

logger = logging.getLogger(__name__)

DownloadState: TypeAlias = Literal["waiting", "running", "stopping", "ready", "stopped", "failed"]
ModelState: TypeAlias = Literal["here", "emulated", "on the CPU", "to pull", "to convert"]
# Slower models are not recommended: reading their answers takes patience.
_FLUENT_TOKENS_PER_SECOND = 10.0
# The share of the memory that a recommended model may take.
_MEMORY_SHARE = 0.6
# Downloads that are remembered once they are over.
_MOST_REMEMBERED = 20


def figures(folder: ModelFolder) -> tuple[float, int]:
    """Return the published speed in tokens per second and memory in MB of a model; 0 where they are unknown."""
    published = folder.card.published
    return (published.decode_tokens_per_second or 0, published.memory_mb or 0) if published else (0, 0)


def state_of(folder: ModelFolder) -> ModelState:
    """Return what can be done with a model: use it, download it, or convert it first."""
    if folder.missing:
        return "to pull" if folder.can_be_pulled else "to convert"
    return ("on the CPU" if folder.has_weights else "emulated") if folder.card.emulated else "here"


def by_recommendation(sources: ModelSources, folders: Sequence[ModelFolder]) -> list[ModelFolder]:
    """Return the models that are here or can be downloaded and fit this board, the one to take first."""
    total = memory_bytes(sources.machine, "MemTotal") or 0
    ranked: list[tuple[tuple[bool, bool, float], ModelFolder]] = []
    for folder in folders:
        can_be_had = not folder.missing or folder.can_be_pulled
        if folder.card.emulated or not can_be_had or sources.fitness_of(folder).verdict not in ("yes", "unknown"):
            continue
        speed, memory = figures(folder)
        is_good = speed >= _FLUENT_TOKENS_PER_SECOND and 0 < memory * 10**6 <= total * _MEMORY_SHARE
        # Of those that are fluent the largest, of the others the fastest.
        ranked.append(((not folder.missing, is_good, memory if is_good else speed), folder))
    ranked.sort(key=lambda pair: pair[0], reverse=True)
    return [folder for _, folder in ranked]


@dataclass
class Download:
    """A download of a model, which can be watched and stopped from elsewhere.

    Args:
        wish: what to download.
        sources: where from and where to.
    """

    wish: Pull
    sources: ModelSources
    state: DownloadState = "waiting"
    problem: str = ""  # why it failed, and the remedy
    folder: str = ""  # the name of the model's folder, once it is there
    # By file: the bytes that are there, and its size.
    files: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    # Cancelled, it ends at once and leaves its thread to end by itself.
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _is_unwanted: bool = False

    @property
    def is_over(self) -> bool:
        """True when nothing more will come."""
        return self.state in {"ready", "stopped", "failed"}

    async def run(self) -> None:
        """Download, and raise what ``pull`` raises; what has arrived stays when this is cancelled."""
        from rkllm_mcp.models.install import pull

        self.state = "running"
        try:
            self.folder = (
                await to_thread.run_sync(pull, self.sources, self.wish, self._report, abandon_on_cancel=True)
            ).folder.name
            self.state = "ready"
        except RkllmMcpError as error:
            self.state, self.problem = ("stopped", "") if self._is_unwanted else ("failed", str(error))
            raise
        finally:
            # The thread ends at its next report.
            self._is_unwanted = True
            if not self.is_over:
                self.state = "stopped"

    def stop(self) -> None:
        """End it; what has arrived is kept."""
        if self.state == "running":
            # Its thread holds the folder until it has ended, at its next piece or when the hub is silent for too long.
            self.state, self._is_unwanted = "stopping", True
        elif self.state == "waiting":
            self.scope.cancel()

    def _report(self, name: str, received: int, total: int | None) -> None:
        """Note the progress of a file; called in the thread that downloads."""
        if self._is_unwanted:
            raise ModelDownloadError(f"{name} was not wanted any more.", "Ask again; the download will resume.")
        self.files[name] = (received, total or received)


@dataclass(eq=False)
class Downloads:
    """The downloads of a service."""

    by_name: dict[str, Download] = field(default_factory=dict[str, Download])  # that was asked for, the latest last
    _turn: anyio.Lock = field(default_factory=anyio.Lock)

    def begin(self, wish: Pull, sources: ModelSources) -> Download | None:
        """Return a new download, to be run with ``run``; None if one of that name goes on."""
        before = self.by_name.get(wish.name)
        if before is not None and not before.is_over:
            return None
        self.by_name.pop(wish.name, None)
        over = [name for name, download in self.by_name.items() if download.is_over]
        for name in over[: max(0, len(over) + 1 - _MOST_REMEMBERED)]:
            del self.by_name[name]
        download = self.by_name[wish.name] = Download(wish, sources)
        return download

    async def run(self, download: Download) -> None:
        """Run a download when the earlier ones are over, until it is over or stopped; raises no error."""
        with download.scope:
            async with self._turn:
                try:
                    await download.run()
                except RkllmMcpError as error:
                    if download.state == "failed":
                        logger.warning("the download of %s failed: %s", download.wish.name, error)
                except Exception:
                    logger.exception("the download of %s failed", download.wish.name)
                    problem = "An internal error, which the log of the service describes."
                    download.state, download.problem = "failed", problem
        if not download.is_over:
            download.state = "stopped"

    def stop(self, name: str) -> None:
        """Stop a download, or forget one that is over; a UsageError if none exists."""
        download = self.by_name.get(name)
        if download is None:
            raise UsageError(f"{name!r} is not being downloaded")
        if download.is_over:
            del self.by_name[name]
        download.stop()
