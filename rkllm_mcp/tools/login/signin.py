"""OAuth: how the host logs in to a server, as a person with a browser or as the program itself.

The SDK does the protocol; this gives it a place for tokens, a browser, and an end. Tokens lie in one file that only its
owner can read, under the issuer that gave them and the server that they are for, by its name and address. The browser
comes back to a loopback port that stays the same for a server, because an authorization server knows the host by it.
Who cannot be asked is not: a service without a terminal says where to log in.

Followed: MCP 2026-07-28, authorization; RFC 8252 (loopback redirect); ``OAuthClientProvider`` of mcp 2.3.0.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import urlsplit

from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.tools.login.loopback import redirected
from rkllm_mcp.tools.servers import OAuth, ServerSpec

if TYPE_CHECKING:
    import httpx2
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import (
        AuthorizationCodeResult,
        OAuthClientInformationFull,
        OAuthClientMetadata,
        OAuthToken,
    )

# Ports that nobody owns, and that Linux gives to no outgoing connection (net.ipv4.ip_local_port_range ends before).
_FIRST_PORT, _PORTS = 61_000, 4_536
# Reading a consent page, finding a password, a second factor.
_CONSENT_TIMEOUT_S = 300.0

# Shows somebody the address at which to log in to a server; its name and the address.
ShowAddress = Callable[[str, str], Awaitable[None]]


class Consent(Protocol):
    """Gets a person's consent."""

    async def __call__(self, server: str, url: str, redirect_uri: str) -> AuthorizationCodeResult:
        """Have ``url`` visited, and return what came back to ``redirect_uri``.

        Raises:
            ServerUnavailableError: nobody consented.
        """
        ...


@dataclass(frozen=True)
class BrowserConsent:
    """Shows the address and waits at a loopback port until the browser comes back.

    Args:
        show: shows or opens the address.
        timeout_s: how long to wait, seconds.
    """

    show: ShowAddress
    timeout_s: float = _CONSENT_TIMEOUT_S

    async def __call__(self, server: str, url: str, redirect_uri: str) -> AuthorizationCodeResult:
        """See ``Consent``."""
        from mcp.shared.auth import AuthorizationCodeResult

        async with redirected(redirect_uri, self.timeout_s) as coming:
            await self.show(server, url)
            answer = await coming()
        if answer is None:
            raise ServerUnavailableError(
                f"nobody logged in to server '{server}' within {self.timeout_s:g} s; open the address and try again"
            )
        if "error" in answer:
            said = answer.get("error_description") or answer["error"]
            raise ServerUnavailableError(f"logging in to server '{server}' was refused: {said}")
        return AuthorizationCodeResult(code=answer.get("code", ""), state=answer.get("state"), iss=answer.get("iss"))


@dataclass(frozen=True)
class Nobody:
    """The ``Consent`` of a host that nobody watches: says where to log in.

    Args:
        tenant: whose host it is; empty for the owner.
    """

    tenant: str = ""

    async def __call__(self, server: str, url: str, redirect_uri: str) -> AuthorizationCodeResult:
        """See ``Consent``."""
        del url, redirect_uri
        whose = f" --tenant {shlex.quote(self.tenant)}" if self.tenant else ""
        raise ServerUnavailableError(
            f"server '{server}' wants somebody to log in with a browser; "
            f"run 'rkllm-mcp servers test {server}{whose}' in a terminal"
        )


NOBODY = Nobody()


class TokenFile:
    """Tokens and registrations, in a file of mode 0600 or in memory.

    Args:
        path: the file; None keeps them until the program ends.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._held: dict[str, dict[str, dict[str, Any]]] = {}

    def entry(self, account: str) -> tuple[str, dict[str, Any]]:
        """Which issuer an account was logged in to at, and what was kept: ``client`` and ``tokens``."""
        for issuer, accounts in self._all().items():
            if account in accounts:
                return issuer, accounts[account]
        return "", {}

    def keep(self, account: str, issuer: str, entry: dict[str, Any]) -> None:
        """Keep what an account's issuer gave, in place of everything known of that account."""
        issuers = self._all()
        for accounts in issuers.values():
            accounts.pop(account, None)
        issuers.setdefault(issuer, {})[account] = entry
        self._held = {name: accounts for name, accounts in issuers.items() if accounts}
        if self._path is not None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(self._held, file)
            beside.replace(self._path)

    def _all(self) -> dict[str, dict[str, dict[str, Any]]]:
        if self._path is None:
            return self._held
        try:
            return cast("dict[str, dict[str, dict[str, Any]]]", json.loads(self._path.read_text("utf-8")))
        except (OSError, ValueError):
            return {}


@dataclass
class _Storage:
    """The SDK's view of one account's entry."""

    file: TokenFile
    account: str
    given: OAuthClientInformationFull | None = None
    # Known once it has been found out, which may be after this is made.
    issuer: Callable[[], str] = str

    async def get_tokens(self) -> OAuthToken | None:
        from mcp.shared.auth import OAuthToken

        _, entry = self.file.entry(self.account)
        return OAuthToken.model_validate(entry["tokens"]) if entry.get("tokens") else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        issuer, entry = self.file.entry(self.account)
        self.file.keep(
            self.account,
            self.issuer() or issuer,
            {**entry, "tokens": tokens.model_dump(mode="json", exclude_none=True)},
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        from mcp.shared.auth import OAuthClientInformationFull

        if self.given is not None:
            return self.given
        _, entry = self.file.entry(self.account)
        return OAuthClientInformationFull.model_validate(entry["client"]) if entry.get("client") else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        kept = client_info.model_dump(mode="json", exclude_none=True)
        # Another registration: the tokens of the former one are not its.
        self.file.keep(self.account, client_info.issuer or self.issuer(), {"client": kept})


@dataclass(frozen=True)
class SignIn:
    """How OAuth servers are logged in to.

    Args:
        tokens: where tokens are kept.
        consent: how a person is asked; by default nobody can be.
    """

    tokens: TokenFile = field(default_factory=TokenFile)
    consent: Consent = NOBODY

    def auth(
        self, spec: ServerSpec, waiting_for_person: Callable[[], AbstractContextManager[None]]
    ) -> httpx2.Auth | None:
        """What puts a token on a server's requests, and gets one when there is none; None for a server without OAuth.

        Args:
            spec: the server.
            waiting_for_person: entered while a person is waited for.
        """
        if spec.oauth is None:
            return None
        if spec.oauth.without_person:
            return self._as_program(spec, spec.oauth)
        return self._as_person(spec, spec.oauth, waiting_for_person)

    def _as_program(self, spec: ServerSpec, oauth: OAuth) -> OAuthClientProvider:
        from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

        storage = _Storage(self.tokens, _account(spec))
        provider = ClientCredentialsOAuthProvider(
            spec.url,
            storage,
            oauth.client_id,
            oauth.client_secret,
            scope=" ".join(oauth.scopes) or None,
            issuer=oauth.issuer or None,
        )
        provider.context.client_metadata = _asking_for(oauth.scopes, provider.context.client_metadata)
        storage.issuer = lambda: _issuer_of(provider)
        return provider

    def _as_person(
        self, spec: ServerSpec, oauth: OAuth, waiting_for_person: Callable[[], AbstractContextManager[None]]
    ) -> OAuthClientProvider:
        from mcp.client.auth import OAuthClientProvider
        from mcp.shared.auth import OAuthClientMetadata

        redirect_uri = oauth.redirect_uri or f"http://127.0.0.1:{_port(spec.url)}/callback"
        addresses: list[str] = []
        refusals: list[ServerUnavailableError] = []

        async def take(url: str) -> None:
            addresses.append(url)

        async def consent() -> AuthorizationCodeResult:
            # A handshake that fails is tried once more in the older way; that is no reason to ask a person twice.
            if refusals:
                raise refusals[0]
            with waiting_for_person():
                try:
                    return await self.consent(spec.name, addresses.pop(), redirect_uri)
                except ServerUnavailableError as error:
                    refusals.append(error)
                    raise

        metadata = OAuthClientMetadata.model_validate(
            {
                "client_name": "rkllm-mcp",
                "redirect_uris": [redirect_uri],
                "grant_types": ["authorization_code", "refresh_token"],
                "response_types": ["code"],
                "scope": " ".join(oauth.scopes) or None,
                "application_type": "native",
            }
        )
        storage = _Storage(self.tokens, _account(spec), _registered(oauth, redirect_uri))
        provider = OAuthClientProvider(
            spec.url,
            _asking_for(oauth.scopes, metadata),
            storage,
            redirect_handler=take,
            callback_handler=consent,
            client_metadata_url=oauth.client_metadata_url or None,
        )
        storage.issuer = lambda: _issuer_of(provider)
        return provider


def _account(spec: ServerSpec) -> str:
    """Whose tokens they are: the same address under two names is two accounts there."""
    return f"{spec.name} {spec.url}"


def _asking_for(scopes: tuple[str, ...], metadata: OAuthClientMetadata) -> OAuthClientMetadata:
    """The metadata, which keeps asking for ``scopes`` whatever else is asked for.

    The SDK replaces its scope by what the server's challenge names, which for many servers is nothing.
    """
    from mcp.client.auth.utils import union_scopes
    from mcp.shared.auth import OAuthClientMetadata

    wanted = " ".join(scopes) or None

    class Asking(OAuthClientMetadata):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, union_scopes(wanted, value) if name == "scope" else value)

    return Asking.model_validate(metadata.model_dump())


def _issuer_of(provider: OAuthClientProvider) -> str:
    metadata = provider.context.oauth_metadata
    return str(metadata.issuer) if metadata is not None else ""


def _registered(oauth: OAuth, redirect_uri: str) -> OAuthClientInformationFull | None:
    """The name that the owner has registered; None when the host registers itself."""
    from mcp.shared.auth import OAuthClientInformationFull

    if not oauth.client_id:
        return None
    return OAuthClientInformationFull.model_validate(
        {
            "client_id": oauth.client_id,
            "client_secret": oauth.client_secret or None,
            "redirect_uris": [redirect_uri],
            "token_endpoint_auth_method": "client_secret_basic" if oauth.client_secret else "none",
            "issuer": oauth.issuer or None,
        }
    )


def _port(server_url: str) -> int:
    """A loopback port for a server: always the same, because the registration names it."""
    digest = hashlib.sha256(urlsplit(server_url)._replace(query="", fragment="").geturl().encode()).digest()
    return _FIRST_PORT + int.from_bytes(digest[:4], "big") % _PORTS
