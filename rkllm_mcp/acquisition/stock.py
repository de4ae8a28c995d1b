"""Where models come from and go to: the catalogue, the user's folder, the hub and this board, under one name.

``Stock`` is what ``pulling`` and ``adding`` work on, and tests build with a folder, a hub and a machine of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rkllm_mcp.board.fitness import Fitness, Need, fitness, needed_bytes, platform_of
from rkllm_mcp.board.machine import Machine
from rkllm_mcp.board.system import gib
from rkllm_mcp.config.models import ModelFolder, list_models, model_directories
from rkllm_mcp.errors import ModelFileError, UsageError
from rkllm_mcp.shelf.folder import Shelf
from rkllm_mcp.shelf.hub import Hub, Report

__all__ = ["Fitness", "Report", "Stock", "gib", "user_root"]


def user_root(env: Mapping[str, str] = os.environ) -> Path:
    """The folder of the user's models: ``$XDG_DATA_HOME/rkllm-mcp/models``."""
    home = Path(env.get("HOME") or Path.home())
    return Path(env.get("XDG_DATA_HOME") or home / ".local" / "share") / "rkllm-mcp" / "models"


def _nothing(text: str) -> None:
    del text


@dataclass(frozen=True)
class Stock:
    """Where models come from and go to.

    Args:
        shelf: the user's folder.
        hub: where files are fetched.
        machine: this board.
        directories: where models are looked for; all of them by default.
        say: is told what a person may want to know.
    """

    shelf: Shelf = field(default_factory=lambda: Shelf(user_root()))
    hub: Hub = field(default_factory=Hub)
    machine: Machine = field(default_factory=Machine)
    directories: tuple[Path, ...] = field(default_factory=model_directories)
    say: Callable[[str], None] = _nothing

    def models(self) -> list[ModelFolder]:
        """Every model there is a card for."""
        return list_models(self.directories)

    def check_platform(self, platform: str | None, *, any_platform: bool) -> None:
        """Refuse a file for another chip; on a machine without an NPU, a file may be meant for a board.

        Raises:
            ModelFileError: it is for another one.
        """
        here = platform_of(self.machine)
        if any_platform or platform is None or here is None or platform == here:
            return
        raise ModelFileError(
            f"The file is for the {platform}, and this board has an {here}.",
            f"Take one converted for the {here}, or go on with --any-platform.",
        )

    def fitness_of(self, folder: ModelFolder) -> Fitness:
        """Whether a model runs on this machine, as far as its card and its file say."""
        card = folder.card
        published = card.published.memory_mb if card.published else None
        size = folder.file.stat().st_size if folder.file.is_file() else 0
        platform = card.source.platform if card.source else None
        memory = published * 10**6 if published else needed_bytes(size)
        return fitness(self.machine, Need(platform, memory, any_machine=card.emulated))

    def removable(self, name: str) -> Path:
        """The folder of a model of the user's, which may be removed.

        Raises:
            UsageError: it is none of the user's.
        """
        if self.shelf.has(name):
            return self.shelf.folder(name)
        other = next((folder for folder in self.models() if name in {folder.name, folder.folder.name}), None)
        if other is None:
            raise UsageError(
                f"there is no model {name!r} in {self.shelf.root}; 'rkllm-mcp models list' shows what there is"
            )
        raise UsageError(f"{name!r} is in {other.folder}, which rkllm-mcp did not fill; remove it there by hand")
