"""OAuth login at an MCP server, by a person with a browser or by client credentials; token storage for the SDK.

Tokens are stored in one file of mode 0600, by issuer and by server name and URL. The client registration contains the
loopback port, so that is the one of the stored registration, or derived from the file and the account. Without a person
who can log in nothing is registered, and the error names the command that logs in.

Follows MCP 2026-07-28, authorization; RFC 8252 (loopback redirect); ``OAuthClientProvider`` of mcp 2.3.0.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import parse_qsl, urlsplit

import anyio
from anyio.abc import SocketStream

from rkllm_base.answers import AnswerLimits, limit_stream
from rkllm_mcp.config.addresses import Reach
from rkllm_mcp.config.servers import RemoteServer
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.mcp_client import sdk
from rkllm_mcp.messages import as_mapping

if TYPE_CHECKING:
    import httpx2
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken


# Limit of request line and headers; browsers send about 2 kB, code and state as much again.
_MAX_REQUEST_BYTES = 32 * 1024
_REQUEST_TIMEOUT_S = 10.0
_PAGE = "<!doctype html><meta charset=utf-8><title>rkllm-mcp</title><p>{}</p>"


@dataclass(eq=False)
class Redirect:
    """The redirect that ends a login at ``uri``: a browser sends it there, or a person hands its address over.

    Only the authorization server knows ``state``, so no other page can end the login, neither with a code nor an error.
    """

    uri: str
    state: str
    arrived: anyio.Event = field(default_factory=anyio.Event)
    query: dict[str, str] = field(default_factory=dict[str, str])  # of the address that was taken

    def take(self, address: str) -> bool:
        """Take the address that a browser was sent to, the first one only; return False if it is not of this login."""
        try:
            ours, theirs = urlsplit(self.uri), urlsplit(address.strip())
        except ValueError:
            return False
        query = dict(parse_qsl(theirs.query))
        if ours[:3] != theirs[:3] or not hmac.compare_digest(query.get("state", "").encode(), self.state.encode()):
            return False
        if not self.arrived.is_set():
            self.query = query
            self.arrived.set()
        return True

    async def answer_browser(self, stream: SocketStream) -> None:
        """Take the address that a browser requests over a connection, and show it a page."""
        parts = urlsplit(self.uri)
        async with stream:
            with anyio.move_on_after(_REQUEST_TIMEOUT_S):
                received, target = b"", ""
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    while b"\r\n\r\n" not in received and len(received) < _MAX_REQUEST_BYTES:
                        received += await stream.receive()
                method, _, tail = received.split(b"\r\n", 1)[0].decode("ascii", "replace").partition(" ")
                target = tail.partition(" ")[0] if method == "GET" else ""
                is_taken = target.startswith("/") and self.take(f"{parts.scheme}://{parts.netloc}{target}")
                text = "You can close this window and return." if is_taken else "Not found."
                status = "200 OK" if is_taken else "404 Not Found"
                body = _PAGE.format(text).encode()
                head = f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n"
                head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await stream.send(head.encode() + body)


# Of metadata, registrations and tokens.
_LOGIN_LIMITS = AnswerLimits(total_s=30.0, size_bytes=2**20)
# Unassigned ports above Linux's range for outgoing connections (net.ipv4.ip_local_port_range).
_FIRST_PORT, _PORTS = 61_000, 4_536
# Time to read a consent page, find a password and enter a second factor.
_CONSENT_TIMEOUT_S = 300.0

# Shows the user the URL at which to log in; called with the server's name and the URL.
ShowAddress = Callable[[str, str], Awaitable[None]]


# Asks a person to authorize the host at a server (its name, the URL to visit, the redirect URI), and returns the
# parameters of the redirect. Raises ServerUnavailableError if authorization was refused or timed out.
Consent: TypeAlias = "Callable[[str, str, str], Awaitable[AuthorizationCodeResult]]"


@dataclass(frozen=True)
class BrowserConsent:
    """Shows the URL and waits for the browser's redirect to the loopback port.

    ``expect`` is called before with the redirect, which a person on another machine hands over by ``Redirect.take``.
    """

    show: ShowAddress
    timeout_s: float = _CONSENT_TIMEOUT_S
    expect: Callable[[Redirect], None] = lambda _: None

    async def __call__(self, server: str, url: str, redirect_uri: str) -> AuthorizationCodeResult:
        """Ask for consent; see ``Consent``."""
        redirect = Redirect(redirect_uri, dict(parse_qsl(urlsplit(url).query)).get("state", ""))
        parts = urlsplit(redirect_uri)
        if parts.hostname not in ("127.0.0.1", "localhost", "::1"):
            message = f"{redirect_uri} is not a loopback address; use http://127.0.0.1:PORT/callback"
            raise ServerUnavailableError(message)
        try:
            listener = await anyio.create_tcp_listener(local_host=parts.hostname, local_port=parts.port or 80)
        except OSError as error:
            message = f"cannot listen on {redirect_uri}: {error.strerror}; set another redirect_uri"
            raise ServerUnavailableError(message) from None
        async with listener, anyio.create_task_group() as serving:
            serving.start_soon(listener.serve, redirect.answer_browser)
            self.expect(redirect)
            await self.show(server, url)
            with anyio.move_on_after(self.timeout_s):
                await redirect.arrived.wait()
            serving.cancel_scope.cancel()
        if not redirect.arrived.is_set():
            message = f"the login to server '{server}' was not completed within {self.timeout_s:g} s; try again"
            raise ServerUnavailableError(message)
        answer = redirect.query
        if "error" in answer:
            reason = answer.get("error_description") or answer["error"]
            raise ServerUnavailableError(f"the login to server '{server}' was refused: {reason}")
        return sdk.auth.AuthorizationCodeResult(
            code=answer.get("code", ""), state=answer.get("state"), iss=answer.get("iss")
        )


@dataclass(frozen=True)
class NoConsent:
    """Refuses with the command that logs in; for a host without a terminal. ``tenant`` is empty for the owner."""

    tenant: str = ""

    async def __call__(self, server: str, url: str, redirect_uri: str) -> AuthorizationCodeResult:
        """Ask for consent; see ``Consent``."""
        del url, redirect_uri
        option = f" --tenant {shlex.quote(self.tenant)}" if self.tenant else ""
        remedy = f"run 'rkllm-mcp servers test {server}{option}' in a terminal"
        raise ServerUnavailableError(f"server '{server}' requires a login in a browser; {remedy}")


NO_CONSENT = NoConsent()


@dataclass(eq=False)
class TokenFile:
    """Tokens and client registrations, in a file of mode 0600, or in memory if ``path`` is None."""

    path: Path | None = None
    _entries: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict[str, dict[str, dict[str, Any]]])

    def entry(self, account: str) -> tuple[str, dict[str, Any]]:
        """Return the issuer of an account and its stored values: ``client`` and ``tokens``."""
        for issuer, accounts in self._read_entries().items():
            if account in accounts:
                return issuer, accounts[account]
        return "", {}

    def redirect_uri(self, account: str) -> str:
        """Return the registered redirect URI of an account, else one whose port depends on file and account."""
        _, entry = self.entry(account)
        registered = entry.get("client", {}).get("redirect_uris") or [""]
        digest = hashlib.sha256(f"{self.path} {account}".encode()).digest()
        port = _FIRST_PORT + int.from_bytes(digest[:4], "big") % _PORTS
        return registered[0] or f"http://127.0.0.1:{port}/callback"

    def keep(self, account: str, issuer: str, entry: dict[str, Any]) -> None:
        """Store the values of an account, replacing all earlier ones of any issuer."""
        issuers = self._read_entries()
        for accounts in issuers.values():
            accounts.pop(account, None)
        issuers.setdefault(issuer, {})[account] = entry
        self._entries = {name: accounts for name, accounts in issuers.items() if accounts}
        if self.path is not None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(self._entries, file)
            temporary.replace(self.path)

    def _read_entries(self) -> dict[str, dict[str, dict[str, Any]]]:
        if self.path is None:
            return self._entries
        try:
            return cast("dict[str, dict[str, dict[str, Any]]]", json.loads(self.path.read_text("utf-8")))
        except (OSError, ValueError):
            return {}


@dataclass
class _Storage:
    """``TokenStorage`` of the SDK for one account."""

    file: TokenFile
    account: str
    given: OAuthClientInformationFull | None = None
    # A function, because the SDK discovers the issuer after this object is created.
    issuer: Callable[[], str] = str

    async def get_tokens(self) -> OAuthToken | None:
        _, entry = self.file.entry(self.account)
        return sdk.auth.OAuthToken.model_validate(entry["tokens"]) if entry.get("tokens") else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        issuer, entry = self.file.entry(self.account)
        updated = {**entry, "tokens": tokens.model_dump(mode="json", exclude_none=True)}
        self.file.keep(self.account, self.issuer() or issuer, updated)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        if self.given is not None:
            return self.given
        _, entry = self.file.entry(self.account)
        return sdk.auth.OAuthClientInformationFull.model_validate(entry["client"]) if entry.get("client") else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        client = client_info.model_dump(mode="json", exclude_none=True)
        # Tokens of an earlier registration are dropped: they belong to another client.
        self.file.keep(self.account, client_info.issuer or self.issuer(), {"client": client})


@dataclass(frozen=True)
class SignIn:
    """Creates the OAuth provider of each server; by default no person can be asked for consent."""

    tokens: TokenFile = field(default_factory=TokenFile)
    consent: Consent = NO_CONSENT
    client_metadata_url: str = ""  # used as client id by authorization servers that support it

    def auth(
        self, spec: RemoteServer, waiting_for_person: Callable[[], AbstractContextManager[None]]
    ) -> httpx2.Auth | None:
        """Return the ``httpx2.Auth`` of a server, None without OAuth; ``waiting_for_person`` is entered for consent."""
        if spec.auth == "none":
            return None
        reach = Reach(spec.url, [spec.url, spec.issuer], f"set issuer of '{spec.name}' if it is the right address")
        is_program = spec.auth == "client_credentials"
        spelling = _IssuerSpelling()
        if is_program:
            storage = _Storage(self.tokens, f"{spec.name} {spec.url}")
            account, scope = (spec.client_id or "", spec.client_secret or ""), " ".join(spec.scopes) or None
            provider = sdk.client_credentials.ClientCredentialsOAuthProvider(
                spec.url, storage, *account, scope=scope, issuer=spec.issuer or None
            )
            provider.context.client_metadata = _with_scopes(spec.scopes, provider.context.client_metadata)
            storage.issuer = partial(_issuer_of, provider)
        else:
            provider = self._as_person(spec, waiting_for_person, reach, spelling)
        # The host is registered only for a person who can log in.
        registers = is_program or not isinstance(self.consent, NoConsent)
        refuse = partial(self.consent, spec.name, "", "")

        class Limited(sdk.httpx2.Auth):
            """The provider, limited to the addresses that its server may lead to."""

            requires_response_body = provider.requires_response_body

            async def async_auth_flow(
                self, request: sdk.httpx2.Request
            ) -> AsyncGenerator[sdk.httpx2.Request, sdk.httpx2.Response]:
                async with aclosing(provider.async_auth_flow(request)) as flow:
                    outgoing = await anext(flow)
                    while True:
                        is_registration = outgoing is not request and b'"redirect_uris"' in outgoing.content
                        if is_registration and not registers:
                            await refuse()
                        reach.restrict(outgoing)
                        response = yield outgoing
                        if outgoing is not request or response.status_code in (401, 403):
                            _limit(response)
                        try:
                            outgoing = await flow.asend(await spelling.unify_issuer(response, provider))
                        except StopAsyncIteration:
                            return

        return Limited()

    def _as_person(
        self,
        spec: RemoteServer,
        waiting_for_person: Callable[[], AbstractContextManager[None]],
        reach: Reach,
        spelling: _IssuerSpelling,
    ) -> OAuthClientProvider:
        # The same URL under two server names is two accounts.
        account = f"{spec.name} {spec.url}"
        redirect_uri = spec.redirect_uri or self.tokens.redirect_uri(account)
        addresses: list[str] = []
        refusals: list[ServerUnavailableError] = []

        async def note_address(url: str) -> None:
            addresses.append(url)

        async def consent() -> AuthorizationCodeResult:
            # A failed handshake is retried with the older protocol; do not ask the person again.
            if refusals:
                raise refusals[0]
            with waiting_for_person():
                try:
                    await reach.check_resolved(addresses[-1])
                    return spelling.of_answer(await self.consent(spec.name, addresses.pop(), redirect_uri))
                except ServerUnavailableError as error:
                    refusals.append(error)
                    raise

        described = {
            "client_name": "rkllm-mcp",
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "scope": " ".join(spec.scopes) or None,
            "application_type": "native",
        }
        # Without a configured registration the host registers itself.
        registration: OAuthClientInformationFull | None = None
        if spec.client_id:
            registration = sdk.auth.OAuthClientInformationFull.model_validate(
                {
                    "client_id": spec.client_id,
                    "client_secret": spec.client_secret or None,
                    "redirect_uris": [redirect_uri],
                    "token_endpoint_auth_method": "client_secret_basic" if spec.client_secret else "none",
                    "issuer": spec.issuer or None,
                }
            )
        storage = _Storage(self.tokens, account, registration)
        metadata = _with_scopes(spec.scopes, sdk.auth.OAuthClientMetadata.model_validate(described))
        url = self.client_metadata_url or None
        provider = sdk.client_auth.OAuthClientProvider(
            spec.url,
            metadata,
            storage,
            redirect_handler=note_address,
            callback_handler=consent,
            client_metadata_url=url,
        )
        storage.issuer = partial(_issuer_of, provider)
        return provider


def _limit(response: httpx2.Response) -> None:
    """Limit an answer of a login, which the HTTP client and the SDK read whole, wherever it comes from."""
    problem = f"the login cannot go on at {response.request.url.host}"
    limit_stream(response, _LOGIN_LIMITS, lambda refusal: ServerUnavailableError(f"{problem}: {refusal}"))


@dataclass
class _IssuerSpelling:
    """An issuer as its own metadata spells it, where that differs from the MCP server's spelling by a final slash.

    Many leave the slash out in one of the two. Both lead to the same metadata (RFC 8414, section 3.1), and the SDK
    compares them as strings. The ``iss`` of an answer is compared with the spelling of the metadata, character by
    character (RFC 9207, section 2.4).
    """

    stated: str = ""
    expected: str = ""

    async def unify_issuer(self, response: httpx2.Response, provider: OAuthClientProvider) -> httpx2.Response:
        """Return metadata of an authorization server with the issuer as its MCP server spells it."""
        expected = provider.context.auth_server_url or ""
        if response.status_code != 200 or not any(name in response.request.url.path for name in _METADATA_PATHS):
            return response
        try:
            metadata = as_mapping(json.loads(await response.aread()))
        except ValueError:
            return response
        stated = str(metadata.get("issuer", ""))
        if stated == expected or stated.removesuffix("/") != expected.removesuffix("/"):
            return response
        self.stated, self.expected = stated, expected
        return sdk.httpx2.Response(200, json={**metadata, "issuer": expected}, request=response.request)

    def of_answer(self, answer: AuthorizationCodeResult) -> AuthorizationCodeResult:
        """Return the answer of an authorization server with its issuer in the same spelling."""
        if not self.stated:
            return answer
        # The spelling of the MCP server is not that of the metadata: as an answer it is another issuer.
        iss = {self.stated: self.expected, self.expected: self.stated}.get(answer.iss or "", answer.iss)
        return answer.model_copy(update={"iss": iss})


_METADATA_PATHS = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")


def _with_scopes(scopes: tuple[str, ...], metadata: OAuthClientMetadata) -> OAuthClientMetadata:
    """Fix ``scopes`` in ``metadata``: the SDK takes the scope of the challenge, which many servers leave empty."""
    scope = " ".join(scopes) or None

    class FixedScopes(sdk.auth.OAuthClientMetadata):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, sdk.auth_utils.union_scopes(scope, value) if name == "scope" else value)

    return FixedScopes.model_validate(metadata.model_dump())


def _issuer_of(provider: OAuthClientProvider) -> str:
    metadata = provider.context.oauth_metadata
    return str(metadata.issuer) if metadata is not None else ""
