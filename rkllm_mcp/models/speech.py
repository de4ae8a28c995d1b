"""Models for speech: the known ones, and their download into a folder that ``[speech]`` names.

    $XDG_DATA_HOME/rkllm-mcp/speech/NAME/      files of a repository; "sherpa:FOLDER" in the configuration

``speech.json`` has models that may be used commercially; sizes and speeds are those that their makers, or others who
measured them, publish. The speed is seconds of the processor for a second of sound.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rkllm_base.installation import InstallationError, install_extra
from rkllm_mcp.errors import UsageError, did_you_mean
from rkllm_mcp.models.cards import user_root
from rkllm_mcp.models.folder import ModelFolderStore
from rkllm_mcp.models.hub import Hub, RemoteFile, Report

_BY_HAND = "Or copy the folder here by other means, and write sherpa:FOLDER under [speech]."


@dataclass(frozen=True)
class SpeechCard:
    """A known model for speech."""

    name: str
    key: str  # of [speech]: stt recognises, tts speaks
    languages: Sequence[str]
    repository: str
    files: Mapping[str, str]  # name -> SHA-256, or empty where only the hub's own is compared
    download_mb: int
    licence: str
    attribution: str  # whom the licence wants to be named
    speed: str  # published; empty if none was found
    revision: str | None = None


CATALOGUE = {
    card.name: card
    for card in (SpeechCard(**row) for row in json.loads(Path(__file__).with_suffix(".json").read_text("utf-8")))
}


@dataclass(frozen=True)
class SpeechSources:
    """Destination and source of models for speech."""

    folders: ModelFolderStore = field(default_factory=lambda: ModelFolderStore(user_root().parent / "speech"))
    hub: Hub = field(default_factory=lambda: Hub(by_hand=_BY_HAND))
    install: Callable[[str], None] = install_extra

    def pull(self, name: str, report: Report) -> Path:
        """Download a model unless it is here, with the libraries that it needs; return its folder.

        Raises:
            UsageError: the name is unknown, or the libraries cannot be installed.
            ModelDownloadError: a file is not available or fails verification; the next call resumes.
        """
        card = CATALOGUE.get(name)
        if card is None:
            known = f"there are {', '.join(CATALOGUE)}{did_you_mean(name, CATALOGUE)}"
            raise UsageError(f"there is no model for speech {name!r}; {known}")
        try:
            self.install("speech")
        except InstallationError as error:
            raise UsageError(str(error)) from None
        if not self.folders.has(name):
            files = [RemoteFile(card.repository, file, card.revision, sha or None) for file, sha in card.files.items()]
            self.hub.fetch_folder(self.folders, name, files, report)
        return self.folders.folder(name)
