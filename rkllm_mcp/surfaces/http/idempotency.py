"""The ``Idempotency-Key`` of a request: sent again after a lost connection, it is answered and stored once.

As draft-ietf-httpapi-idempotency-key-header-07 and Stripe's API describe it: the same key with the same body gets the
stored answer, with ``Idempotent-Replayed: true``; while that answer is made, or with another body, it gets 409.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
from starlette.requests import Request

from rkllm_mcp.errors import StoreError
from rkllm_mcp.records import KeyedRequest
from rkllm_mcp.surfaces.http.errors import HTTPError
from rkllm_mcp.surfaces.http.state import run_work, tenant_of

if TYPE_CHECKING:
    from rkllm_mcp.app.assistant import App

IDEMPOTENCY_KEY = "Idempotency-Key"
REPLAYED = {"Idempotent-Replayed": "true"}
# Looked for again after so long, seconds: an answer whose client has left ends at once.
_RETRY_S = 1.0
_KEY = re.compile(r"[!-~]{1,255}", re.ASCII)


@dataclass
class RepeatableRequest:
    """A request with a key, for ``held``; without a key nothing is remembered of it."""

    app: App
    name: str  # of the key in the store; empty without one
    request: KeyedRequest
    earlier: KeyedRequest | None = None  # the same request of before, of which nothing is stored
    is_under_way: bool = False  # the same request is being answered
    response: str = ""  # id of the response that was stored of it

    @asynccontextmanager
    async def held(self, stored: Callable[[], bool]) -> AsyncGenerator[None, None]:
        """Claim the key while the request is answered; ``stored`` says at the end whether its answer is.

        While the store cannot be read the request is answered as if it had no key.

        Raises:
            HTTPError: 409, the same request was faster.
        """
        claimed: KeyedRequest | None = None
        if self.name:
            with suppress(StoreError):
                claimed = await self.app.store.request_keys.claim(self.name, self.request, self.earlier)
                if claimed is None:
                    raise still_answered()
        try:
            yield
        finally:
            if claimed is not None:
                with anyio.CancelScope(shield=True), suppress(StoreError):
                    if stored():
                        await self.app.store.request_keys.finish(self.name, claimed, self.response)
                    else:
                        await self.app.store.request_keys.forget(self.name, claimed)


async def repeatable(request: Request, asked: Callable[[], str], *, is_stored: bool) -> RepeatableRequest:
    """Return a request with its key, and what is stored of the same one; ``asked`` returns all that it asks for.

    Raises:
        HTTPError: 400, the key is none; 409, the key was used for another request.
    """
    app = tenant_of(request).app
    key = request.headers.get(IDEMPOTENCY_KEY)
    if key is None or not is_stored:
        return RepeatableRequest(app, "", KeyedRequest(""))
    if not _KEY.fullmatch(key):
        raise HTTPError(400, f"{IDEMPOTENCY_KEY}: send 1 to 255 visible ASCII characters, such as a UUID")
    # A key is its caller's own, at this address.
    name = hashlib.sha256(f"{request.state.parent}\n{request.url.path}\n{key}".encode()).hexdigest()
    body = await run_work(request, lambda: hashlib.sha256(f"{key}\n{asked()}".encode("utf-8", "replace")).hexdigest())
    repeated = RepeatableRequest(app, name, KeyedRequest(body))
    with suppress(StoreError):  # the database is away: it is answered like the first one
        if (keyed := await app.store.request_keys.find(name)) is not None:
            repeated.earlier, repeated.is_under_way = keyed
            if repeated.earlier.body != body:
                raise other_request()
    return repeated


def still_answered() -> HTTPError:
    """Return the error for a request that is being answered."""
    message = "this request is being answered already; send it again in a moment for its answer"
    return HTTPError(409, message, code="answer_under_way", retry_after_s=_RETRY_S)


def other_request() -> HTTPError:
    """Return the error for a key that was used for another request."""
    message = f"this {IDEMPOTENCY_KEY} was sent with another request; send a new key with each question"
    return HTTPError(409, message, "invalid_request_error", code="idempotency_key_reused")
