"""Download of a file from a Hugging Face repository or a mirror, with resume and checksum.

``huggingface_hub`` makes the requests, so its settings apply: HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_OFFLINE and the
timeouts. Rules: cached files are linked, not downloaded; partial downloads are resumed, in the same run and in the next
one (``hf_hub_download`` restarts since huggingface_hub 2); a file gets its final name only after size and checksum
match; every failure is one sentence.

Large files are downloaded over plain HTTP instead of the Xet store, because Xet cannot resume a partial file.
"""

from __future__ import annotations

import errno
import hashlib
import io
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

from huggingface_hub import (
    constants,
    errors,
    get_hf_file_metadata,  # pyright: ignore[reportUnknownVariableType]
    hf_hub_url,
    try_to_load_from_cache,
)
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.file_download import (
    http_get,  # pyright: ignore[reportUnknownVariableType]
    repo_folder_name,
)
from huggingface_hub.utils import (
    build_hf_headers,  # pyright: ignore[reportUnknownVariableType]
    get_session,
    hf_raise_for_status,
)

from rkllm_base.answers import AnswerLimits, AnswerRefusedError, fetch_now, read_json
from rkllm_mcp.errors import ModelDownloadError
from rkllm_mcp.models.folder import ModelFolderStore, place_file

Report = Callable[[str, int, "int | None"], None]
"""Progress callback: file name, bytes received, total bytes or None."""

# Each attempt resumes the previous one; a connection that fails more often is not usable.
_MOST_ATTEMPTS = 50
_FIRST_ATTEMPTS = 1
_CHUNK_BYTES = 1 << 18
# HTTP status of a range that begins at the end of the file: a partial file that is complete.
_NOTHING_MORE = 416
# The timeout of huggingface_hub's own metadata requests.
_ANSWER_TIMEOUT_S = 10
# A repository with 10,000 files has a list of 2 MB.
_LIMITS = AnswerLimits(total_s=30.0, size_bytes=16 * 2**20)
_MIRROR = "Or set HF_ENDPOINT to a mirror."
_SPELLING = "Write the repository as OWNER/NAME."
_SHA256 = re.compile(r"[0-9a-f]{64}")
# The HTTP library's base class of connection errors: httpx's in huggingface_hub 1, httpx2's in 2.
_TRANSPORT_ERROR = cast("type[Exception]", HfHubHTTPError.__bases__[0])
# The exceptions of ``receive``, for ``explain``.
DOWNLOAD_ERRORS: tuple[type[Exception], ...] = (OSError, OfflineModeIsEnabled, _TRANSPORT_ERROR)


@dataclass(frozen=True)
class RemoteFile:
    """A file in a repository."""

    repository: str  # ``owner/name``
    name: str  # path in the repository
    revision: str | None = None  # branch, tag or commit; None is the main branch
    sha256: str | None = None  # expected SHA-256, if known


@dataclass(frozen=True)
class FoundFile:
    """A file that can be downloaded."""

    remote: RemoteFile
    etag: str  # identifies the contents; the SHA-256 of files in large-file storage
    commit: str | None  # commit of the revision
    size: int | None  # bytes; None if the hub does not report it
    cached: Path | None  # path in huggingface_hub's cache, if present

    def part(self, folder: Path) -> Path:
        """Return the path of its partial download, which differs between versions of the file."""
        return folder / f"{re.sub(r'[^0-9A-Za-z]', '', self.etag)[:64] or 'unnamed'}.incomplete"


@dataclass(frozen=True)
class Hub:
    """A hub; ``endpoint`` and ``cache`` default to the values of HF_ENDPOINT and HF_HOME."""

    # The library reads the variable only when it is imported.
    endpoint: str = field(default_factory=lambda: os.environ.get("HF_ENDPOINT") or constants.ENDPOINT)
    cache: Path | None = None  # default: HF_HOME
    # Advice without a network, a sentence.
    by_hand: str = "Or fetch the files on another machine, copy them here and use 'rkllm-mcp models add PATH'."

    def find(self, file: RemoteFile) -> FoundFile:
        """Look up a file, or raise a ModelDownloadError; the cache is used only if the hub is not reachable."""
        _bounded_session()
        # huggingface_hub declares parameters as "dict" without type arguments.
        try:
            metadata = get_hf_file_metadata(self._url(file), endpoint=self.endpoint)
        except DOWNLOAD_ERRORS as error:
            cached = None if _is_refusal(error) else self._find_cached(file, file.revision)
            if cached is None:
                raise self._explain(error, file) from error
            parts = cached.parts  # …/snapshots/<commit>/<path in the repository>
            commit = parts[parts.index("snapshots") + 1] if "snapshots" in parts else None
            return FoundFile(file, "", commit, cached.stat().st_size, cached)
        except ValueError as error:
            raise ModelDownloadError(f"{error}.", _SPELLING) from None
        if metadata.etag is None or metadata.commit_hash is None:
            raise ModelDownloadError(
                f"{self.endpoint} does not answer like a hub.", "Correct HF_ENDPOINT, or unset it."
            )
        return FoundFile(
            file, metadata.etag, metadata.commit_hash, metadata.size, self._find_cached(file, metadata.commit_hash)
        )

    def names(self, repository: str, revision: str | None = None) -> list[str]:
        """Return the files of a repository, or raise a ModelDownloadError; the cache answers for an unreachable hub."""
        file = RemoteFile(repository, "the list of files", revision)
        # A single request: ``HfApi`` retries an unreachable hub for half a minute.
        tree = (
            f"{self.endpoint}/api/models/{quote(repository)}/tree/{quote(revision or 'main', safe='')}?recursive=true"
        )
        try:
            return [str(entry["path"]) for entry in self._fetch_list(tree) if entry.get("type") == "file"]
        except (TypeError, KeyError, AttributeError):
            raise self._no_hub("its list of files is another one") from None
        except DOWNLOAD_ERRORS as error:
            cached: list[str] = []
            if not _is_refusal(error):
                folder_name = repo_folder_name(repo_id=repository, repo_type="model")
                folder = Path(self.cache or constants.HF_HUB_CACHE) / folder_name
                paths = folder.glob("snapshots/*/**/*")
                cached = sorted({"/".join(path.relative_to(folder).parts[2:]) for path in paths if path.is_file()})
            if not cached:
                raise self._explain(error, file) from error
            return cached

    def search(self, words: str, limit: int) -> list[str]:
        """Return the repositories whose names match ``words``, the most fetched ones first.

        Raises:
            ModelDownloadError: the hub does not answer.
        """
        query = urlencode({"search": words, "sort": "downloads", "limit": limit})
        try:
            entries = self._fetch_list(f"{self.endpoint}/api/models?{query}")
            return [str(entry["id"]) for entry in entries][:limit]
        except DOWNLOAD_ERRORS as error:
            raise explain(error, self.endpoint, "the search", f"{_MIRROR} {self.by_hand}") from error
        except (TypeError, KeyError):
            raise self._no_hub("its list of models is another one") from None

    def fetch(self, source: FoundFile, parts: Path, target: Path, report: Report) -> None:
        """Download a file from ``find`` to ``target`` and verify it, or raise a ModelDownloadError.

        ``parts`` is the folder for the partial file and must be on the same file system.
        """
        try:
            if source.cached is not None:
                place_file(source.cached, target)
                self._check(source, target)
                report(source.remote.name, target.stat().st_size, target.stat().st_size)
                return
            part = source.part(parts)
            if part.exists() and (source.size is None or part.stat().st_size > source.size):
                part.unlink()  # the total size is unknown, or the partial file is longer
            address = self._url(source.remote, source.commit)
            receive(address, part, report, name=source.remote.name, size=source.size, headers=build_hf_headers())
            self._check(source, part)
            part.replace(target)
        except DOWNLOAD_ERRORS as error:
            raise self._explain(error, source.remote) from error

    def fetch_folder(self, folders: ModelFolderStore, name: str, files: Iterable[RemoteFile], report: Report) -> None:
        """Download files into a new folder, under their names in the repository, or raise a ModelDownloadError."""
        located = [self.find(file) for file in files]
        with folders.workspace(name) as space:
            folders.check_room(sum(file.size or 0 for file in located if file.cached is None))
            for file in located:
                target = space.ready / file.remote.name
                target.parent.mkdir(parents=True, exist_ok=True)
                self.fetch(file, space.place, target, report)
            folders.publish(name, space)

    def _check(self, source: FoundFile, path: Path) -> None:
        """Verify size and checksum; delete a file that does not match, so that it is not resumed."""
        size = path.stat().st_size
        if source.size is not None and size != source.size:
            path.unlink()
            raise ModelDownloadError(
                f"{source.remote.name} arrived with {size} bytes instead of {source.size}.", "Fetch it again."
            )
        etag = source.etag if _SHA256.fullmatch(source.etag) else None
        digests = {digest for digest in (source.remote.sha256, etag) if digest}
        checksum = hashlib.sha256()
        if digests:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    checksum.update(chunk)
        if digests and digests != {checksum.hexdigest()}:
            path.unlink()
            raise ModelDownloadError(
                f"{source.remote.name} from {source.remote.repository} has a wrong checksum.",
                "Download it again; if that repeats, the repository has a newer version than the catalogue.",
            )

    def _url(self, file: RemoteFile, revision: str | None = None) -> str:
        return hf_hub_url(file.repository, file.name, revision=revision or file.revision, endpoint=self.endpoint)

    def _find_cached(self, file: RemoteFile, revision: str | None) -> Path | None:
        cached = try_to_load_from_cache(file.repository, file.name, cache_dir=self.cache, revision=revision)
        return Path(cached) if isinstance(cached, str) else None

    def _fetch_list(self, address: str) -> list[dict[str, Any]]:
        """Return a list of the hub, or raise a ModelDownloadError or one of ``DOWNLOAD_ERRORS``."""
        session = _bounded_session()
        headers = build_hf_headers()
        try:
            # The first byte has its limit too.
            answer = fetch_now(
                session, "GET", address, _LIMITS, check=hf_raise_for_status, headers=headers, timeout=_ANSWER_TIMEOUT_S
            )
            entries = read_json(answer.content)
        except AnswerRefusedError as refusal:
            raise self._no_hub(str(refusal)) from None
        if not isinstance(entries, list):
            raise self._no_hub("its answer is no list")
        return cast("list[dict[str, Any]]", entries)

    def _no_hub(self, reason: str) -> ModelDownloadError:
        problem = f"{self.endpoint} does not answer like a hub: {reason}."
        return ModelDownloadError(problem, "Correct HF_ENDPOINT, or unset it.")

    def _explain(self, error: Exception, file: RemoteFile) -> ModelDownloadError:
        """Return the message for an error of a request."""
        page = f"{self.endpoint}/{file.repository}"
        if isinstance(error, errors.OfflineModeIsEnabled):
            return ModelDownloadError(
                f"HF_HUB_OFFLINE is set, and {self.cache or constants.HF_HUB_CACHE} does not have {file.name} of "
                f"{file.repository}.",
                f"Unset it. {self.by_hand}",
            )
        if isinstance(error, errors.GatedRepoError):
            return ModelDownloadError(
                f"{file.repository} is gated.",
                f"Accept its terms at {page}, make a token there, and set HF_TOKEN to it.",
            )
        if isinstance(error, errors.RepositoryNotFoundError):
            return ModelDownloadError(
                f"The repository {file.repository} does not exist or is private.",
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
                + (" and name it with --file." if file.name.endswith(".rkllm") else f". {self.by_hand}"),
            )
        return explain(error, self.endpoint, file.name, f"{_MIRROR} {self.by_hand}")


def receive(
    address: str,
    part: Path,
    report: Report,
    *,
    name: str,
    size: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Download an address to a partial file, which is continued as often as a connection breaks.

    The caller verifies the contents; a file that has nothing more to receive is left as it is.
    """
    for attempt in range(_MOST_ATTEMPTS):
        before = part.stat().st_size if part.exists() else 0
        try:
            _receive_once(address, part, report, before, name=name, size=size, headers=headers or {})
        except HfHubHTTPError as error:
            if error.response.status_code == _NOTHING_MORE and before:
                return
            raise
        except _TRANSPORT_ERROR:
            if part.stat().st_size <= before or attempt == _MOST_ATTEMPTS - 1:
                raise
        else:
            return


def _receive_once(
    address: str, part: Path, report: Report, before: int, *, name: str, size: int | None, headers: Mapping[str, str]
) -> None:
    # It writes whole chunks, and a download continues after the last one; its own are of 10 MB.
    constants.DOWNLOAD_CHUNK_SIZE = _CHUNK_BYTES
    # Its warnings report every connection that broke and was continued.
    log = logging.getLogger("huggingface_hub")
    log.setLevel(log.level if logging.getLogger().isEnabledFor(logging.DEBUG) else logging.ERROR)
    arrived, total = before, size

    class Bar:
        """Replacement for huggingface_hub's progress bar."""

        def __init__(self, **options: Any) -> None:
            nonlocal total
            total = total or options.get("total")

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def update(self, count: float) -> None:
            nonlocal arrived
            arrived += int(count)
            # If a mirror restarts the file, huggingface_hub before 2 does not reset its count.
            report(name, arrived if total is None else min(arrived, total), total)

    _bounded_session()
    report(name, arrived, total)
    with _BoundedFile(part, "ab") as file:
        file.most_bytes = size
        http_get(
            address,
            cast("Any", file),
            resume_size=before,
            headers={**headers, "Accept-Encoding": "identity"},
            expected_size=size,
            displayed_filename=name,
            tqdm_class=cast("Any", Bar),
            # An address that cannot be reached is reported at once; after the first byte there are five attempts.
            _nb_retries=_FIRST_ATTEMPTS,
        )


def _bounded_session() -> Any:
    """Return huggingface_hub's session, which reads the bodies of redirects and refusals whole, however long they are.

    From now on it takes them as empty: a status and headers say what is needed.
    """
    session: Any = get_session()
    if _leave_out_body not in session.event_hooks["response"]:
        session.event_hooks["response"].append(_leave_out_body)
    return session


def _leave_out_body(response: Any) -> None:
    if not response.is_success:
        response.stream.close()
        response.stream = type(response)(response.status_code, content=b"").stream


class _BoundedFile(io.FileIO):
    """A partial file that takes no more than was announced: the rest would fill the disk before its size is checked."""

    most_bytes: int | None = None

    def write(self, data: Any, /) -> int:
        """Write a chunk, or raise an OSError."""
        if self.most_bytes is not None and self.tell() + len(data) > self.most_bytes:
            raise OSError(errno.EFBIG, f"more than the {self.most_bytes:,} bytes that were announced arrived")
        return super().write(data)


def explain(error: Exception, address: str, name: str, otherwise: str) -> ModelDownloadError:
    """Return the message for a download that failed; ``otherwise`` is what else the reader can do without a network."""
    if isinstance(error, errors.HfHubHTTPError):
        return ModelDownloadError(
            f"{address} answered {error.response.status_code} for {name}.", "Try again later; the download will resume."
        )
    if isinstance(error, errors.OfflineModeIsEnabled):
        return ModelDownloadError(f"HF_HUB_OFFLINE is set, so {name} is not fetched.", f"Unset it. {otherwise}")
    if isinstance(error, _TRANSPORT_ERROR):
        return ModelDownloadError(
            f"{address} cannot be reached ({error or type(error).__name__}).",
            f"Check the network and try again (the download will resume). {otherwise}",
        )
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return ModelDownloadError(
            f"Not enough disk space for {name}.", "Free disk space and try again; the download will resume."
        )
    return ModelDownloadError(f"{name} could not be fetched: {error}", "Try again.")


def _is_refusal(error: Exception) -> bool:
    """Return True if the hub rejected the request, as opposed to a failed connection or server."""
    return isinstance(error, HfHubHTTPError) and error.response.status_code < 500
