"""Sources and destination of models: the catalogue, the user's folder, the hub and this board.

``pulling`` and ``adding`` work on a ``Stock``; tests build one with their own folder, hub and machine.
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
    """Return the folder of the user's models: ``$XDG_DATA_HOME/rkllm-mcp/models``."""
    home = Path(env.get("HOME") or Path.home())
    return Path(env.get("XDG_DATA_HOME") or home / ".local" / "share") / "rkllm-mcp" / "models"


def _nothing(text: str) -> None:
    del text


@dataclass(frozen=True)
class Stock:
    """Sources and destination of models."""

    shelf: Shelf = field(default_factory=lambda: Shelf(user_root()))  # the user's folder
    hub: Hub = field(default_factory=Hub)  # download source
    machine: Machine = field(default_factory=Machine)  # this board
    # search path of models; None for the default
    directories: tuple[Path, ...] = field(default_factory=model_directories)
    say: Callable[[str], None] = _nothing  # callback for messages to the user

    def models(self) -> list[ModelFolder]:
        """Return every model with a card."""
        return list_models(self.directories)

    def check_platform(self, platform: str | None, *, any_platform: bool) -> None:
        """Check that a file is for this board's chip; any chip is accepted on a machine without an NPU.

        Raises:
            ModelFileError: the file is for another chip.
        """
        here = platform_of(self.machine)
        if any_platform or platform is None or here is None or platform == here:
            return
        raise ModelFileError(
            f"The file is for the {platform}, and this board has an {here}.",
            f"Take one converted for the {here}, or go on with --any-platform.",
        )

    def fitness_of(self, folder: ModelFolder) -> Fitness:
        """Return the compatibility of a model with this machine, from its card and file."""
        card = folder.card
        published = card.published.memory_mb if card.published else None
        size = folder.file.stat().st_size if folder.file.is_file() else 0
        platform = card.source.platform if card.source else None
        memory = published * 10**6 if published else needed_bytes(size)
        return fitness(self.machine, Need(platform, memory, any_machine=card.emulated))

    def removable(self, name: str) -> Path:
        """Return the folder of a model that the user may remove.

        Raises:
            UsageError: the model is not in the user's folder.
        """
        if self.shelf.has(name):
            return self.shelf.folder(name)
        other = next((folder for folder in self.models() if name in {folder.name, folder.folder.name}), None)
        if other is None:
            raise UsageError(f"unknown model {name!r} in {self.shelf.root}; 'rkllm-mcp models list' lists the models")
        raise UsageError(f"{name!r} is in {other.folder}, which rkllm-mcp does not manage; remove it by hand")
