"""Releases of librkllmrt.so: download from Rockchip's repository, identification of files, and the list of both.

A file is only put in place if its checksum is the known one of its release, and never comes from a branch.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rkllm_mcp.errors import ConfigError, ModelDownloadError, RuntimeUnusableError, UsageError
from rkllm_mcp.models.folder import ModelFolderStore
from rkllm_mcp.models.hub import DOWNLOAD_ERRORS, Report, explain, receive
from rkllm_mcp.runtime.abi import (
    OFFICIAL_BUILDS,
    OFFICIAL_DIGESTS,
    RECOMMENDED_VERSION,
    UNSUPPORTED_VERSIONS,
    WORKING_VERSIONS,
)
from rkllm_mcp.runtime.emulator import emulator_library
from rkllm_mcp.runtime.library import (
    EMULATOR,
    LIBRARY_NAME,
    Fingerprint,
    LibraryFile,
    accepted_abi,
    find_library,
    fingerprint,
    read_library_file,
    runtime_folder,
    visible_libraries,
)

SOURCE_VARIABLE = "RKLLM_MCP_RUNTIMES"
_ADDRESS = "https://raw.githubusercontent.com/airockchip/rknn-llm"
_PATH = "rkllm-runtime/Linux/librkllm_api/aarch64/librkllmrt.so"
_LICENCE = "LICENSE"
_CHECKSUM = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_BY_HAND = f"Or copy {LIBRARY_NAME} here and use 'rkllm-mcp runtime use PATH'."


@dataclass(frozen=True)
class RuntimeSource:
    """Repository to download from; ``address/release-vVERSION/PATH`` is the file of a release."""

    address: str = _ADDRESS
    # Release -> git blob id (40 digits) or SHA-256 (64 digits) of its library.
    checksums: Mapping[str, str] = field(
        default_factory=lambda: {version: digest for digest, version in (OFFICIAL_BUILDS | OFFICIAL_DIGESTS).items()}
    )

    @classmethod
    def from_environment(cls) -> RuntimeSource:
        """Return Rockchip's repository, or the mirror of the JSON file that $RKLLM_MCP_RUNTIMES names.

        The file has ``address``, and may have ``checksums`` of further releases. A ConfigError if the file is not
        usable.
        """
        path = os.environ.get(SOURCE_VARIABLE)
        if not path:
            return cls()
        try:
            content: Any = json.loads(Path(path).expanduser().read_text("utf-8"))
            address, further = str(content["address"]).rstrip("/"), dict[str, str](content.get("checksums", {}))
        except (OSError, ValueError, TypeError, KeyError) as error:
            reason = f"a file that cannot be used ({error})"
            raise ConfigError(path, SOURCE_VARIABLE, reason, 'a JSON file with "address" and "checksums"') from None
        if wrong := next((text for text in further.values() if not _CHECKSUM.fullmatch(str(text))), None):
            raise ConfigError(path, "checksums", repr(wrong), "git blob ids (40 digits) and SHA-256 sums (64 digits)")
        return cls(address, {**cls().checksums, **further})

    def has(self, version: str, mark: Fingerprint) -> bool:
        """Return True if a file is the library of a release."""
        return self.checksums.get(version) in (mark.git_blob, mark.sha256)


def pull_runtime(
    version: str,
    *,
    progress: Report,
    say: Callable[[str], None] = lambda _: None,
    licence: Callable[[str], None] = lambda _: None,
) -> Path:
    """Download a release into ``runtime_folder()``, where ``auto`` finds it; return the library's path.

    A broken download is continued by the next call. ``say`` receives messages for the user, ``licence`` the text of
    Rockchip's licence, which is stored next to the library.

    Raises:
        UsageError: no such release is known.
        RuntimeUnusableError: this program does not drive the release, or the download failed.
    """
    source = RuntimeSource.from_environment()
    if version in UNSUPPORTED_VERSIONS:
        problem = f"RKLLM {version} is not driven by this program: {UNSUPPORTED_VERSIONS[version]}."
        raise RuntimeUnusableError(problem, f"Take {RECOMMENDED_VERSION}.")
    if version not in source.checksums:
        releases = ", ".join(release for release in source.checksums if release not in UNSUPPORTED_VERSIONS)
        raise UsageError(f"no release {version!r} with a known checksum; the releases are {releases}")
    store = ModelFolderStore(runtime_folder())
    library = store.folder(version) / LIBRARY_NAME
    if library.is_file() and source.has(version, fingerprint(library)):
        say(f"RKLLM {version} is here already: {library}")
        return library
    with store.workspace(version) as space:
        _receive(source, version, _LICENCE, space.ready / _LICENCE, progress)
        licence((space.ready / _LICENCE).read_text("utf-8", "replace").rstrip())
        part = space.place / f"{source.checksums[version]}.incomplete"
        if not part.exists() or not source.has(version, fingerprint(part)):
            _receive(source, version, _PATH, part, progress)
        mark = fingerprint(part)
        if not source.has(version, mark):
            # Another file is not continued.
            part.unlink()
            file = f"another file than {LIBRARY_NAME} of RKLLM {version} (SHA-256 {mark.sha256[:16]}…)"
            problem = f"{source.address} sent {file}, so it was not put in place."
            raise ModelDownloadError(problem, f"Download it again. {_BY_HAND}")
        part.chmod(0o644)
        part.replace(space.ready / LIBRARY_NAME)
        store.publish(version, space)
    file = read_library_file(library)
    if not file.runs_here:
        say(f"It is built for {file.machine}, and this machine is {os.uname().machine}.")
    return library


def _receive(source: RuntimeSource, version: str, path: str, target: Path, progress: Report) -> None:
    name = path.rpartition("/")[2]
    try:
        receive(f"{source.address}/release-v{version}/{path}", target, progress, name=name)
    except DOWNLOAD_ERRORS as error:
        raise explain(error, source.address, f"{name} of RKLLM {version}", _BY_HAND) from error


@dataclass(frozen=True)
class IdentifiedLibrary:
    """A library file of this machine."""

    file: LibraryFile
    official_release: str | None  # release by checksum; None if the file is not a published library
    release: str  # name of the release, by the checksum or else by the file's own text
    problem: str  # reason for which this program does not load it; empty if it does


def identify(path_or_release: str) -> IdentifiedLibrary:
    """Name the release of a file by its checksum, and say whether it can be loaded here.

    ``path_or_release`` is the file, its folder, or a release that was pulled. A RuntimeUnusableError if the file
    cannot be read.
    """
    pulled = runtime_folder() / path_or_release
    path = pulled if "/" not in path_or_release and pulled.is_dir() else Path(path_or_release).expanduser()
    file = read_library_file(path / LIBRARY_NAME if path.is_dir() else path)
    source, mark = RuntimeSource.from_environment(), fingerprint(file.path)
    official = next((version for version in source.checksums if source.has(version, mark)), None)
    release = official or (f"{file.version} by its own text" if file.version else "unknown")
    if official is None and file.is_emulator:
        release = f"{file.version or 'unknown'} (emulated)"
    try:
        accepted_abi(file)
    except RuntimeUnusableError as error:
        return IdentifiedLibrary(file, official, release, error.message)
    return IdentifiedLibrary(file, official, release, "")


def identified_libraries() -> list[IdentifiedLibrary]:
    """Return the libraries of this machine, in the order in which ``auto`` takes them; unreadable ones are left out."""
    libraries: list[IdentifiedLibrary] = []
    for path in visible_libraries(everywhere=True):
        with suppress(RuntimeUnusableError):
            libraries.append(identify(str(path)))
    return libraries


def library_in_use(configured: str) -> Path | None:
    """Return the library of the configuration's ``[runtime] library``; None if it is emulated or missing."""
    try:
        return None if configured == EMULATOR else find_library(configured)
    except RuntimeUnusableError:
        return None


def prepare_emulator() -> Path:
    """Return the emulated runtime's library; building it, if necessary, takes up to some minutes."""
    return emulator_library()


def pullable_releases() -> dict[str, str]:
    """Return the releases that can be downloaded and driven, newest first, each with a remark."""
    checksums = RuntimeSource.from_environment().checksums
    pullable = [version for version in reversed(WORKING_VERSIONS) if version in checksums]
    return {version: "recommended" if version == RECOMMENDED_VERSION else "to pull" for version in pullable}
