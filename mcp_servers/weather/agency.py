"""A path on the agency's site -> the document there, read, at most a few minutes old.

Politeness and robustness live here: one request per document at a time, none while the last answer is fresh,
conditional requests afterwards, our own user agent, few tries in a bounded time. When the agency does not answer, or
answers with something unreadable, the last good document serves, marked as stale. What the documents mean is the
caller's ``read``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import anyio
import httpx2

from mcp_servers.weather.errors import AgencyUnreachableError, AgencyUnreadableError
from mcp_servers.weather.settings import Clock, Settings
from mcp_servers.weather.store import DocumentStore, StoredDocument

T = TypeVar("T")

# Closing a TLS connection says goodbye over the network; nobody waits long for that.
_CLOSE_S = 1.0

_OK, _NOT_MODIFIED, _SERVER_ERROR = 200, 304, 500


@dataclass(frozen=True)
class Fetched(Generic[T]):
    """A document, read.

    Args:
        value: what ``read`` made of it.
        stale: the agency could not be asked whether it is still the newest.
    """

    value: T
    stale: bool


@dataclass(frozen=True)
class _Held:
    stored: StoredDocument
    value: Any


class Agency:
    """The agency's site, asked as seldom as possible."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._store = DocumentStore(settings.cache_folder)
        self._held: dict[str, _Held] = {}
        self._locks: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        self._client: httpx2.AsyncClient | None = None

    async def aclose(self) -> None:
        """Closes the connections."""
        if self._client:
            await self._client.aclose()

    async def document(self, path: str, read: Callable[[object], T], *, max_age_s: float) -> Fetched[T]:
        """The document at a path.

        Args:
            path: from the root of the site, with the leading slash.
            read: makes a value of the parsed JSON; raises ValueError, LookupError or TypeError when it cannot.
            max_age_s: how long an answer is not asked for again, seconds.

        Raises:
            AgencyUnreachableError: when there is no answer and nothing older.
            AgencyUnreadableError: when the answer cannot be read and there is nothing older.
        """
        async with self._locks[path]:
            held = self._held.get(path) or self._load(path, read)
            now = self._clock().timestamp()
            if held and 0 <= now - held.stored.checked_at < max_age_s:
                return Fetched(held.value, stale=False)
            try:
                held = await self._renew(path, read, held, now)
            except (AgencyUnreachableError, AgencyUnreadableError):
                if held is None:
                    raise
                return Fetched(held.value, stale=True)
            return Fetched(held.value, stale=False)

    def _load(self, path: str, read: Callable[[object], T]) -> _Held | None:
        stored = self._store.load(self._settings.base_url + path)
        if stored is None:
            return None
        try:
            held = _Held(stored, _read_json(path, stored.body, read))
        except AgencyUnreadableError:
            return None
        self._held[path] = held
        return held

    async def _renew(self, path: str, read: Callable[[object], T], held: _Held | None, now: float) -> _Held:
        response = await self._get(path, held)
        if response.status_code == _NOT_MODIFIED and held:
            renewed = replace(held, stored=replace(held.stored, checked_at=now))
        else:
            renewed = _Held(
                StoredDocument(
                    url=self._settings.base_url + path,
                    checked_at=now,
                    etag=response.headers.get("etag", ""),
                    last_modified=response.headers.get("last-modified", ""),
                    body=response.content,
                ),
                _read_json(path, response.content, read),
            )
        self._held[path] = renewed
        self._store.save(renewed.stored)
        return renewed

    async def _get(self, path: str, held: _Held | None) -> httpx2.Response:
        """One document's answer, 200 or 304, within the total time."""
        with anyio.move_on_after(self._settings.total_timeout_s):
            for last in (*(False,) * (self._settings.tries - 1), True):
                response = await self._try(path, held, last=last)
                if response:
                    return response
                await anyio.sleep(self._settings.pause_s)
        raise AgencyUnreachableError(self._settings.host, f"no answer in {self._settings.total_timeout_s:g} s")

    async def _try(self, path: str, held: _Held | None, *, last: bool) -> httpx2.Response | None:
        """One request; None when another may do better."""
        try:
            response = await self._connected().get(path, headers=_conditions(held))
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, OSError) as error:
            # No route, no name, no listener: another try in half a second fails alike, and somebody is waiting.
            raise AgencyUnreachableError(self._settings.host, _reason(error)) from error
        except httpx2.HTTPError as error:
            if last:
                raise AgencyUnreachableError(self._settings.host, _reason(error)) from error
            return None
        if response.status_code in {_OK, _NOT_MODIFIED}:
            return response
        if response.status_code >= _SERVER_ERROR and not last:
            return None
        if response.status_code >= _SERVER_ERROR:
            raise AgencyUnreachableError(self._settings.host, f"HTTP {response.status_code}")
        raise AgencyUnreadableError(path.rpartition("/")[2], f"HTTP {response.status_code}")

    def _connected(self) -> httpx2.AsyncClient:
        # Made at the first request: reading the trust store takes a moment, and can fail on a bare system.
        if self._client is None:
            self._client = httpx2.AsyncClient(
                base_url=self._settings.base_url,
                headers={"User-Agent": self._settings.user_agent, "Accept": "application/json"},
                timeout=httpx2.Timeout(self._settings.read_timeout_s, connect=self._settings.connect_timeout_s),
            )
        return self._client


@asynccontextmanager
async def open_agency(settings: Settings, clock: Clock) -> AsyncGenerator[Agency, None]:
    """The agency's site for as long as the block lasts."""
    agency = Agency(settings, clock)
    try:
        yield agency
    finally:
        with anyio.move_on_after(_CLOSE_S, shield=True):
            await agency.aclose()


def _conditions(held: _Held | None) -> dict[str, str]:
    if held is None:
        return {}
    conditions = {"If-None-Match": held.stored.etag, "If-Modified-Since": held.stored.last_modified}
    return {name: value for name, value in conditions.items() if value}


def _read_json(path: str, body: bytes, read: Callable[[object], T]) -> T:
    try:
        return read(json.loads(body))
    except (ValueError, LookupError, TypeError) as error:
        first_line = str(error).partition("\n")[0]
        raise AgencyUnreadableError(path.rpartition("/")[2], first_line) from error


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
