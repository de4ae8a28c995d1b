"""Client of the agency's site: path -> parsed document, cached in memory and on disk.

``SampleDocuments`` has the documents of one day, without a network.

One request per document at a time, none while the cached document is fresh, conditional requests afterwards, and few
retries in a bounded time. When the agency does not answer or its answer cannot be parsed, the last good document is
returned, marked as stale.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import anyio
import httpx2
from pydantic import TypeAdapter

from mcp_servers.program import version
from mcp_servers.weather.errors import AgencyUnreachableError, AgencyUnreadableError
from mcp_servers.weather.settings import Clock, Settings
from rkllm_base.answers import Answer, AnswerLimits, AnswerRefusedError, fetch, read_json

T = TypeVar("T")

_OK, _NOT_MODIFIED, _SERVER_ERROR = 200, 304, 500
# The largest document has 200 kB; all tries together have their own limit of time.
_LIMITS = AnswerLimits(total_s=60.0, size_bytes=8 * 2**20)


@dataclass(frozen=True)
class FetchedDocument(Generic[T]):
    """A parsed document."""

    value: T  # result of ``read``
    stale: bool  # True if the agency could not confirm that it is the newest


class SampleDocuments:
    """The agency's documents of one day for Tokyo, from ``sample.json``."""

    def __init__(self) -> None:
        sample: dict[str, Any] = json.loads(Path(__file__).with_name("sample.json").read_text("utf-8"))
        self.time = datetime.fromisoformat(sample["time"])  # of its publication
        self._documents = sample["documents"]

    async def document(self, path: str, read: Callable[[object], T], *, max_age_s: float) -> FetchedDocument[T]:
        """Return the document at a path; raise AgencyUnreachableError if the sample does not contain it."""
        del max_age_s
        if path not in self._documents:
            raise AgencyUnreachableError("", "not in the sample")
        return FetchedDocument(read(self._documents[path]), stale=False)


@dataclass(frozen=True)
class _CachedDocument:
    stored: StoredDocument
    value: Any


class JmaClient:
    """Client of the agency's site."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._host = urlsplit(settings.base_url).netloc  # for messages
        self._clock = clock
        self._store = DocumentStore(settings.cache_folder)
        self._cached: dict[str, _CachedDocument] = {}
        self._locks: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        self._client: httpx2.AsyncClient | None = None

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client:
            await self._client.aclose()

    async def document(self, path: str, read: Callable[[object], T], *, max_age_s: float) -> FetchedDocument[T]:
        """Return the document at a path, which starts with a slash.

        ``read`` converts the decoded JSON and raises ValueError, LookupError or TypeError for an invalid document. A
        document younger than ``max_age_s`` seconds is returned without a request.

        Without an older document, raises AgencyUnreachableError if the agency does not answer, and
        AgencyUnreadableError if its answer is invalid.
        """
        async with self._locks[path]:
            cached = self._cached.get(path)
            if cached is None and (stored := self._store.load(self._settings.base_url + path)):
                with contextlib.suppress(AgencyUnreadableError):
                    cached = self._cached[path] = _CachedDocument(stored, _read_json(path, stored.body, read))
            now = self._clock().timestamp()
            if cached and 0 <= now - cached.stored.checked_at < max_age_s:
                return FetchedDocument(cached.value, stale=False)
            try:
                response = await self._get(path, cached)
                if response.status == _NOT_MODIFIED and cached:
                    renewed = replace(cached, stored=replace(cached.stored, checked_at=now))
                else:
                    etag, last_modified = (response.headers.get(name, "") for name in ("etag", "last-modified"))
                    stored = StoredDocument(self._settings.base_url + path, now, etag, last_modified, response.content)
                    renewed = _CachedDocument(stored, _read_json(path, response.content, read))
                self._cached[path] = renewed
                self._store.save(renewed.stored)
                cached = renewed
            except (AgencyUnreachableError, AgencyUnreadableError):
                if cached is None:
                    raise
                return FetchedDocument(cached.value, stale=True)
            return FetchedDocument(cached.value, stale=False)

    async def _get(self, path: str, cached: _CachedDocument | None) -> Answer:
        """Return the response for one document, 200 or 304, within the total time."""
        headers: dict[str, str] = {}
        if cached:
            conditions = {"If-None-Match": cached.stored.etag, "If-Modified-Since": cached.stored.last_modified}
            headers = {name: value for name, value in conditions.items() if value}
        with anyio.move_on_after(self._settings.total_timeout_s):
            for is_last in (*(False,) * (self._settings.tries - 1), True):
                try:
                    # At the first request: loading the trust store takes time and can fail on a minimal system.
                    if self._client is None:
                        self._client = httpx2.AsyncClient(
                            base_url=self._settings.base_url,
                            headers={"User-Agent": f"rkllm-mcp-weather/{version()}", "Accept": "application/json"},
                            timeout=httpx2.Timeout(
                                self._settings.read_timeout_s, connect=self._settings.connect_timeout_s
                            ),
                        )
                    response = await fetch(self._client, "GET", path, _LIMITS, headers=headers)
                except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, OSError) as error:
                    # Without route, name or listener a retry after half a second would fail too, while the user waits.
                    raise AgencyUnreachableError(self._host, str(error) or type(error).__name__) from error
                except AnswerRefusedError as error:
                    raise AgencyUnreadableError(path.rpartition("/")[2], str(error)) from error
                except httpx2.HTTPError as error:
                    if is_last:
                        raise AgencyUnreachableError(self._host, str(error) or type(error).__name__) from error
                else:
                    if response.status in {_OK, _NOT_MODIFIED}:
                        return response
                    if response.status < _SERVER_ERROR:
                        raise AgencyUnreadableError(path.rpartition("/")[2], f"HTTP {response.status}")
                    if is_last:
                        raise AgencyUnreachableError(self._host, f"HTTP {response.status}")
                await anyio.sleep(self._settings.pause_s)
        raise AgencyUnreachableError(self._host, f"no answer in {self._settings.total_timeout_s:g} s")


def _read_json(path: str, body: bytes, read: Callable[[object], T]) -> T:
    try:
        return read(read_json(body))
    except (ValueError, LookupError, TypeError) as error:
        first_line = str(error).partition("\n")[0]
        raise AgencyUnreadableError(path.rpartition("/")[2], first_line) from error


@dataclass(frozen=True)
class StoredDocument:
    """A document in the cache folder."""

    url: str
    checked_at: float  # last confirmation by the agency, seconds since 1970
    etag: str  # as received; may be empty
    last_modified: str  # as received; may be empty
    body: bytes


_STORED = TypeAdapter(StoredDocument)


@dataclass(frozen=True)
class DocumentStore:
    """The files of one cache folder; stores nothing if the folder is None.

    One file per address: a line of JSON metadata, then the document as received. Files are replaced atomically. An
    unwritable folder or unreadable file is not an error; it only costs a request.
    """

    folder: Path | None

    def load(self, url: str) -> StoredDocument | None:
        """Return the stored document of an address, or None."""
        if self.folder is None:
            return None
        try:
            head, _, body = self._path(self.folder, url).read_bytes().partition(b"\n")
            stored = _STORED.validate_python({**json.loads(head), "body": body})
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return stored if stored.url == url else None

    def save(self, document: StoredDocument) -> None:
        """Store a document; ignore a folder that cannot be written."""
        if self.folder is None:
            return
        head = asdict(document)
        body = head.pop("body")
        temporary = ""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=".new-")
            with os.fdopen(handle, "wb") as file:
                file.write(json.dumps(head).encode() + b"\n" + body)
            Path(temporary).replace(self._path(self.folder, document.url))
        except OSError:
            with contextlib.suppress(OSError):
                Path(temporary).unlink(missing_ok=True) if temporary else None

    @staticmethod
    def _path(folder: Path, url: str) -> Path:
        digest = hashlib.sha256(url.encode()).hexdigest()[:16]
        return folder / f"{url.rpartition('/')[2]}.{digest}"
