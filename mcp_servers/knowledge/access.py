"""A bearer token -> who asks.

A token is a JWT signed with HS256 by the configured secret, or with RS256 by a key of the configured JWKS file. Which
of the two a token says is compared with what is configured for it, so a public key is never taken for a secret, and a
token without a signature is none. Its claims:

    exp           required; nbf, iat, aud and iss as RFC 7519 says
    tenant        required: sees what belongs to this tenant, and what belongs to nobody
    department    likewise; none when left out
    clearance     sees documents up to this level, a whole number; 0 when left out

No sentence of this module repeats a part of a token. Followed: RFC 7519, RFC 7515, RFC 8725.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import jwt

from mcp_servers.knowledge.errors import InvalidTokenError
from mcp_servers.knowledge.settings import SettingsError, TokenSettings
from mcp_servers.knowledge.types import Access

# Two clocks differ by a few seconds.
_LEEWAY_S = 30
# RFC 7518, 3.3.
_MIN_RSA_BITS = 2048
# Of the private part of a key: whoever reads them can sign.
_PRIVATE_PARTS = frozenset({"d", "p", "q", "dp", "dq", "qi"})


class TokenVerifier:
    """Reads tokens.

    Args:
        settings: what they have to be signed with, and say.

    Raises:
        SettingsError: the JWKS file cannot be used.
    """

    def __init__(self, settings: TokenSettings) -> None:
        self._settings = settings
        self._keys = JwksFile(settings.jwks) if settings.jwks else None

    def access_of(self, header: str) -> Access:
        """Who asks.

        Args:
            header: the value of ``Authorization``; empty when there is none.

        Raises:
            InvalidTokenError: there is no token, or it is not to be believed.
        """
        scheme, _, token = header.strip().partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise InvalidTokenError("there is no bearer token")
        return _access_from(self._claims(token.strip()))

    def _claims(self, token: str) -> Mapping[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
            algorithm, key = self._key(header)
            return jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                # Without a name of ours, a token that is meant for somebody is meant for somebody else.
                audience=self._settings.audience or None,
                issuer=self._settings.issuer or None,
                leeway=_LEEWAY_S,
                options={"require": ["exp", *(["aud"] if self._settings.audience else [])]},
            )
        except jwt.ExpiredSignatureError:
            raise InvalidTokenError("it has expired") from None
        except jwt.ImmatureSignatureError:
            raise InvalidTokenError("it is not valid yet") from None
        except jwt.InvalidAudienceError:
            raise InvalidTokenError("it is meant for somebody else") from None
        except jwt.InvalidIssuerError:
            raise InvalidTokenError("it is not from the issuer that is believed here") from None
        except jwt.MissingRequiredClaimError as error:
            raise InvalidTokenError(f"it has no {error.claim}") from None
        except (jwt.PyJWTError, ValueError, TypeError):
            raise InvalidTokenError("it is no token signed for this service") from None

    def _key(self, header: Mapping[str, Any]) -> tuple[str, Any]:
        algorithm = header.get("alg")
        if "crit" in header:
            raise InvalidTokenError("it demands an extension that is not known here")
        if algorithm == "HS256" and self._settings.secret:
            return "HS256", self._settings.secret
        if algorithm == "RS256" and self._keys:
            return "RS256", self._keys.key(header.get("kid"))
        raise InvalidTokenError("it is not signed in a way that is accepted here")


class JwksFile:
    """The public keys of a JWKS file; a file that was replaced is noticed at the next token.

    Args:
        path: the file.

    Raises:
        SettingsError: it cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = self._file_stamp()
        self._keys = read_jwks(path)

    def key(self, kid: object) -> jwt.PyJWK:
        """The key of an id; the only key there is for a token that names none.

        Raises:
            InvalidTokenError: there is no such key.
        """
        self._refresh()
        if kid is None and len(self._keys) == 1:
            return self._keys[0]
        for key in self._keys:
            if kid is not None and key.key_id == kid:
                return key
        raise InvalidTokenError("it is signed with a key that is not known here")

    def _refresh(self) -> None:
        stamp = self._file_stamp()
        if stamp == self._stamp:
            return
        try:
            self._keys = read_jwks(self._path)
        except SettingsError:
            # Half written, or gone: the keys that were good a moment ago still are.
            return
        self._stamp = stamp

    def _file_stamp(self) -> tuple[int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_size)


def read_jwks(path: Path) -> list[jwt.PyJWK]:
    """The keys of a JWKS file that sign with RS256.

    Raises:
        SettingsError: it cannot be read, or has no such key, or a private one.
    """
    try:
        table: object = json.loads(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"jwks {path} cannot be read ({error.strerror}): check the path.") from None
    except (ValueError, RecursionError):
        raise SettingsError(f"jwks {path} is no JSON: give a JSON Web Key Set.") from None
    entries = cast("Mapping[str, Any]", table).get("keys") if isinstance(table, Mapping) else None
    found = cast("Sequence[Any]", entries) if isinstance(entries, list) else ()
    tables = [dict(cast("Mapping[str, Any]", entry)) for entry in found if isinstance(entry, Mapping)]
    keys = [_public_key(entry, path) for entry in tables if _signs_rs256(entry)]
    if not keys:
        raise SettingsError(f"jwks {path} has no RSA key for RS256: give a JSON Web Key Set with one.")
    return keys


def _signs_rs256(entry: Mapping[str, Any]) -> bool:
    operations = entry.get("key_ops")
    return (
        entry.get("kty") == "RSA"
        and entry.get("use", "sig") == "sig"
        and entry.get("alg", "RS256") == "RS256"
        and (not isinstance(operations, list) or "verify" in operations)
    )


def _public_key(entry: dict[str, Any], path: Path) -> jwt.PyJWK:
    if _PRIVATE_PARTS & entry.keys():
        raise SettingsError(f"jwks {path} holds a private key: keep that where tokens are signed, give the public one.")
    try:
        key = jwt.PyJWK(entry, algorithm="RS256")
        bits: int = key.key.key_size
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError):
        raise SettingsError(f"jwks {path} holds a key that cannot be read: export it anew.") from None
    if bits < _MIN_RSA_BITS:
        raise SettingsError(f"jwks {path} holds a key of {bits} bits: RS256 wants at least {_MIN_RSA_BITS}.")
    return key


def _access_from(claims: Mapping[str, Any]) -> Access:
    tenant, department = claims.get("tenant"), claims.get("department", "")
    clearance: object = claims.get("clearance", 0)
    if not isinstance(tenant, str) or not tenant.strip():
        raise InvalidTokenError("it names no tenant")
    if not isinstance(department, str):
        raise InvalidTokenError("its department is no text")
    if isinstance(clearance, bool) or not isinstance(clearance, int) or clearance < 0:
        raise InvalidTokenError("its clearance is no whole number from 0")
    return Access(tenant, department, clearance)
