"""A file of a Hugging Face repository, or of a mirror of it, becomes a checked file here.

``huggingface_hub`` speaks to the hub, so its own settings hold: HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_OFFLINE and the
time limits. Rules: what its cache has is linked, not fetched; what arrived in part is continued, in the same run and in
the next one (``hf_hub_download`` begins anew since huggingface_hub 2); a file is only given its name when its size and
its checksum are right; every failure is one sentence. It knows no model and no platform.

Large files are fetched over plain HTTP and not through the Xet store: Xet has no part of a file to go on with.
"""

from __future__ import annotations

import errno
import hashlib
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from rkllm_mcp.errors import ModelDownloadError
from rkllm_mcp.shelf.folder import place_file

Report = Callable[[str, int, "int | None"], None]
"""Is told how a file grows: its name, the bytes that are here, and how many it will have."""

_BY_HAND = "Copy the files here and use 'rkllm-mcp models add PATH'."
# Each continues where the one before broke off; a connection that breaks more often is of no use.
_MOST_ATTEMPTS = 50
_CHUNK_BYTES = 1 << 20
# As long as huggingface_hub waits for what it asks about a file.
_ANSWER_TIMEOUT_S = 10
_SPELLING = "Write the repository as OWNER/NAME."
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class RemoteFile:
    """A file in a repository.

    Args:
        repository: ``owner/name``.
        name: the file's path in it.
        revision: a branch, tag or commit; None is the main branch.
        sha256: its SHA-256, where somebody wrote it down.
    """

    repository: str
    name: str
    revision: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class FoundFile:
    """A file that can be had.

    Args:
        remote: which one.
        etag: names its contents; a SHA-256 where the hub stores it as a large file.
        commit: the revision it is of.
        size: bytes; None when the hub does not say.
        cached: where huggingface_hub's cache has it already.
    """

    remote: RemoteFile
    etag: str
    commit: str | None
    size: int | None
    cached: Path | None

    def part(self, folder: Path) -> Path:
        """Where its parts are collected: another version of the file collects its parts elsewhere."""
        return folder / f"{re.sub(r'[^0-9A-Za-z]', '', self.etag)[:64] or 'unnamed'}.incomplete"


@dataclass(frozen=True)
class Hub:
    """Where files are fetched from.

    Args:
        endpoint: its address; that of huggingface_hub, which HF_ENDPOINT sets, by default.
        cache: huggingface_hub's cache; the one that HF_HOME sets by default.
    """

    endpoint: str | None = None
    cache: Path | None = None

    @property
    def address(self) -> str:
        """The endpoint in use."""
        from huggingface_hub import constants

        return self.endpoint or constants.ENDPOINT

    def find(self, file: RemoteFile) -> FoundFile:
        """Ask for a file without fetching it; where the hub cannot be asked, the cache alone is looked at.

        Raises:
            ModelDownloadError: it cannot be had.
        """
        # huggingface_hub types its parameters as "dict" without saying of what.
        from huggingface_hub import get_hf_file_metadata  # pyright: ignore[reportUnknownVariableType]
        from huggingface_hub.errors import OfflineModeIsEnabled

        try:
            found = get_hf_file_metadata(self._url(file), endpoint=self.endpoint)
        except (OfflineModeIsEnabled, _transport_error()) as error:
            cached = None if _is_refusal(error) else self._cached(file, file.revision)
            if cached is None:
                raise self._explained(error, file) from error
            return FoundFile(file, "", _commit_of(cached), cached.stat().st_size, cached)
        except ValueError as error:
            raise ModelDownloadError(f"{error}.", _SPELLING) from None
        if found.etag is None or found.commit_hash is None:
            raise ModelDownloadError(
                f"{self.address} does not answer like a hub.", "Correct HF_ENDPOINT, or leave it away."
            )
        return FoundFile(file, found.etag, found.commit_hash, found.size, self._cached(file, found.commit_hash))

    def names(self, repository: str, revision: str | None = None) -> list[str]:
        """The files of a repository; where the hub cannot be asked, those of them that its cache has.

        Raises:
            ModelDownloadError: neither can be told.
        """
        from huggingface_hub.errors import OfflineModeIsEnabled

        file = RemoteFile(repository, "the list of files", revision)
        try:
            return self._listed(file)
        except (OfflineModeIsEnabled, _transport_error()) as error:
            cached = [] if _is_refusal(error) else self._cached_names(repository)
            if not cached:
                raise self._explained(error, file) from error
            return cached

    def fetch(self, found: FoundFile, parts: Path, target: Path, report: Report) -> None:
        """Bring a file here.

        Args:
            found: from ``find``.
            parts: the folder in which an unfinished file waits for the next try.
            target: where the finished file is wanted; on the same file system.
            report: is told how it grows.

        Raises:
            ModelDownloadError: it did not arrive, or not as it should be.
        """
        with self._told(found.remote):
            if found.cached is not None:
                place_file(found.cached, target)
                self._check(found, target)
                report(found.remote.name, target.stat().st_size, target.stat().st_size)
                return
            part = found.part(parts)
            if part.exists() and (found.size is None or part.stat().st_size > found.size):
                part.unlink()  # where a file ends is not known, or this is none of it
            self._receive(found, part, report)
            self._check(found, part)
            part.replace(target)

    def _receive(self, found: FoundFile, part: Path, report: Report) -> None:
        from huggingface_hub.errors import HfHubHTTPError

        for attempt in range(_MOST_ATTEMPTS):
            before = part.stat().st_size if part.exists() else 0
            try:
                self._receive_once(found, part, before, report)
            except HfHubHTTPError:
                raise
            except _transport_error():
                if part.stat().st_size <= before or attempt == _MOST_ATTEMPTS - 1:
                    raise
            else:
                return

    def _receive_once(self, found: FoundFile, part: Path, before: int, report: Report) -> None:
        from huggingface_hub.file_download import http_get  # pyright: ignore[reportUnknownVariableType]
        from huggingface_hub.utils import build_hf_headers  # pyright: ignore[reportUnknownVariableType]

        name, arrived = found.remote.name, before

        class Bar:
            """What huggingface_hub takes for its progress bar."""

            def __init__(self, **options: Any) -> None:
                del options

            def __enter__(self) -> Bar:
                return self

            def __exit__(self, *error: object) -> None:
                pass

            def update(self, count: float) -> None:
                nonlocal arrived
                arrived += int(count)
                # Where a mirror begins anew, huggingface_hub before 2 does not count back.
                report(name, arrived if found.size is None else min(arrived, found.size), found.size)

        report(name, arrived, found.size)
        with part.open("ab") as file:
            http_get(
                self._url(found.remote, found.commit),
                file,
                resume_size=before,
                headers={**build_hf_headers(), "Accept-Encoding": "identity"},
                expected_size=found.size,
                displayed_filename=name,
                tqdm_class=cast("Any", Bar),
            )

    def _check(self, found: FoundFile, path: Path) -> None:
        """Compare what is here with what was announced; what is wrong is removed, so that it is not continued."""
        size = path.stat().st_size
        if found.size is not None and size != found.size:
            path.unlink()
            raise ModelDownloadError(
                f"{found.remote.name} arrived with {size} bytes instead of {found.size}.", "Fetch it again."
            )
        etag = found.etag if _SHA256.fullmatch(found.etag) else None
        wanted = {digest for digest in (found.remote.sha256, etag) if digest}
        if wanted and wanted != {_sha256(path)}:
            path.unlink()
            raise ModelDownloadError(
                f"{found.remote.name} from {found.remote.repository} does not have the checksum it should have.",
                "Fetch it again; if that repeats, its owner has replaced it, and the catalogue knows another version.",
            )

    def _url(self, file: RemoteFile, revision: str | None = None) -> str:
        from huggingface_hub import hf_hub_url

        return hf_hub_url(file.repository, file.name, revision=revision or file.revision, endpoint=self.endpoint)

    def _cached(self, file: RemoteFile, revision: str | None) -> Path | None:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(file.repository, file.name, cache_dir=self.cache, revision=revision)
        return Path(found) if isinstance(found, str) else None

    def _listed(self, file: RemoteFile) -> list[str]:
        """The hub's own list, asked for once: ``HfApi`` tries for half a minute to reach a hub that is not there."""
        from huggingface_hub.utils import (
            build_hf_headers,  # pyright: ignore[reportUnknownVariableType]
            get_session,
            hf_raise_for_status,
        )

        address = f"{self.address}/api/models/{quote(file.repository)}/tree/{quote(file.revision or 'main', safe='')}"
        session: Any = get_session()
        response = session.get(f"{address}?recursive=true", headers=build_hf_headers(), timeout=_ANSWER_TIMEOUT_S)
        hf_raise_for_status(response)
        entries: list[dict[str, Any]] = response.json()
        return [str(entry["path"]) for entry in entries if entry.get("type") == "file"]

    def _cached_names(self, repository: str) -> list[str]:
        from huggingface_hub import constants
        from huggingface_hub.file_download import repo_folder_name

        folder = Path(self.cache or constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repository, repo_type="model")
        found = folder.glob("snapshots/*/**/*")
        return sorted({"/".join(path.relative_to(folder).parts[2:]) for path in found if path.is_file()})

    @contextmanager
    def _told(self, file: RemoteFile) -> Generator[None]:
        try:
            yield
        except (OSError, _transport_error()) as error:
            raise self._explained(error, file) from error

    def _explained(self, error: Exception, file: RemoteFile) -> ModelDownloadError:
        """The sentence for whatever went wrong."""
        from huggingface_hub import constants, errors

        page = f"{self.address}/{file.repository}"
        if isinstance(error, errors.OfflineModeIsEnabled):
            return ModelDownloadError(
                f"HF_HUB_OFFLINE is set, and {self.cache or constants.HF_HUB_CACHE} does not have {file.name} of "
                f"{file.repository}.",
                f"Unset it, or: {_BY_HAND}",
            )
        if isinstance(error, errors.GatedRepoError):
            return ModelDownloadError(
                f"{file.repository} is gated.",
                f"Accept its terms at {page}, and set HF_TOKEN or use 'hf auth login'.",
            )
        if isinstance(error, errors.RepositoryNotFoundError):
            return ModelDownloadError(
                f"There is no repository {file.repository}, or it is private.",
                "Name another with --repository and --file; for a private one set HF_TOKEN.",
            )
        if isinstance(error, errors.RevisionNotFoundError):
            return ModelDownloadError(
                f"{file.repository} has no revision {file.revision!r}.", "Correct 'revision' in [source]."
            )
        if isinstance(error, errors.EntryNotFoundError):
            return ModelDownloadError(
                f"{file.repository} has no file {file.name!r}.",
                f"Look at {page}/tree/main"
                + (" and name it with --file." if file.name.endswith(".rkllm") else f". {_BY_HAND}"),
            )
        if isinstance(error, errors.HfHubHTTPError):
            return ModelDownloadError(
                f"{self.address} answered {error.response.status_code} for {file.name}.",
                "Try again later; what has arrived is kept.",
            )
        return self._explained_further(error, file)

    def _explained_further(self, error: Exception, file: RemoteFile) -> ModelDownloadError:
        if isinstance(error, _transport_error()):
            return ModelDownloadError(
                f"{self.address} cannot be reached ({error or type(error).__name__}).",
                "Check the network and try again, what has arrived is kept; or set HF_ENDPOINT to a mirror; or: "
                + _BY_HAND,
            )
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return ModelDownloadError(
                f"There is no room left for {file.name}.", "Make room and try again; what has arrived is kept."
            )
        return ModelDownloadError(f"{file.name} could not be fetched: {error}", "Try again.")


def _transport_error() -> type[Exception]:
    """What the HTTP library raises when a connection fails: httpx's in huggingface_hub 1, httpx2's in 2."""
    from huggingface_hub.errors import HfHubHTTPError

    return cast("type[Exception]", HfHubHTTPError.__bases__[0])


def _is_refusal(error: Exception) -> bool:
    """Whether the hub itself said no, in contrast to a connection or a server that failed."""
    from huggingface_hub.errors import HfHubHTTPError

    return isinstance(error, HfHubHTTPError) and error.response.status_code < 500


def _commit_of(cached: Path) -> str | None:
    """The commit that a file of huggingface_hub's cache is of: ``…/snapshots/<commit>/<path in the repository>``."""
    parts = cached.parts
    return parts[parts.index("snapshots") + 1] if "snapshots" in parts else None


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
