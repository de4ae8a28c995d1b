"""Authentication: bearer token -> Access.

A token is a JWT signed with HS256 (configured secret) or RS256 (configured JWKS file). The algorithm in the token must
be one that is configured, so a public key is never used as a secret and unsigned tokens are refused. Claims:

    exp           required; nbf, iat, aud and iss as in RFC 7519
    tenant        required; grants what belongs to this tenant or to no tenant
    department    optional; grants what belongs to this department or to no department
    clearance     integer, default 0; grants documents up to this level
    role          read: searches only; write: also uploads files; without one: all but files

Error messages never contain part of a token. References: RFC 7519, RFC 7515, RFC 8725.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import jwt

from mcp_servers.knowledge.errors import InvalidTokenError
from mcp_servers.knowledge.settings import SettingsError, TokenSettings
from mcp_servers.knowledge.types import Access

# Tolerance for clock differences, seconds.
_LEEWAY_S = 30
# RFC 7518, 3.3.
_MIN_RSA_BITS = 2048
_REFUSALS: Mapping[type[Exception], str] = {
    jwt.ExpiredSignatureError: "it has expired",
    jwt.ImmatureSignatureError: "it is not valid yet",
    jwt.InvalidAudienceError: "it is meant for another audience",
    jwt.InvalidIssuerError: "it is not from the configured issuer",
}
# Members of a private JWK.
_PRIVATE_PARTS = frozenset({"d", "p", "q", "dp", "dq", "qi"})


class TokenVerifier:
    """Verify tokens and read the claims that control access."""

    def __init__(self, settings: TokenSettings) -> None:
        self._settings = settings
        self._keys = JwksFile(settings.jwks) if settings.jwks else None

    def access_of(self, header: str) -> Access:
        """Return the access granted by an ``Authorization`` header; raise InvalidTokenError if it grants none."""
        scheme, _, token = header.strip().partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise InvalidTokenError("there is no bearer token")
        claims: Mapping[str, Any]
        try:
            about = jwt.get_unverified_header(token.strip())
            algorithm = about.get("alg")
            if "crit" in about:
                raise InvalidTokenError("it requires an unknown extension")
            if algorithm == "HS256" and self._settings.secret:
                key: Any = self._settings.secret
            elif algorithm == "RS256" and self._keys:
                key = self._keys.key(about.get("kid"))
            else:
                raise InvalidTokenError("its signature algorithm is not accepted")
            claims = jwt.decode(
                token.strip(),
                key,
                algorithms=[algorithm],
                # Without a configured audience, a token that names one is refused.
                audience=self._settings.audience or None,
                issuer=self._settings.issuer or None,
                leeway=_LEEWAY_S,
                options={"require": ["exp", *(["aud"] if self._settings.audience else [])]},
            )
        except jwt.MissingRequiredClaimError as error:
            raise InvalidTokenError(f"it has no {error.claim}") from None
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            reason = _REFUSALS.get(type(error), "it is not a token signed for this service")
            raise InvalidTokenError(reason) from None
        tenant, department = claims.get("tenant"), claims.get("department", "")
        clearance: object = claims.get("clearance", 0)
        if not isinstance(tenant, str) or not tenant.strip():
            raise InvalidTokenError("it names no tenant")
        if not isinstance(department, str):
            raise InvalidTokenError("its department is not a string")
        if isinstance(clearance, bool) or not isinstance(clearance, int) or clearance < 0:
            raise InvalidTokenError("its clearance is not an integer of at least 0")
        role: object = claims.get("role", "")
        if role not in ("", "read", "write"):
            raise InvalidTokenError("its role is neither read nor write")
        return Access(tenant, department, clearance, role)


class JwksFile:
    """Public keys of a JWKS file, reloaded when the file changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = self._file_stamp()
        self._keys = read_jwks(path)

    def key(self, kid: object) -> jwt.PyJWK:
        """Return the key with this id, or the only key if the token names none."""
        stamp = self._file_stamp()
        if stamp != self._stamp:
            # The file may be half written or missing: then the previous keys are used.
            with suppress(SettingsError):
                self._keys = read_jwks(self._path)
                self._stamp = stamp
        if kid is None and len(self._keys) == 1:
            return self._keys[0]
        for key in self._keys:
            if kid is not None and key.key_id == kid:
                return key
        raise InvalidTokenError("it is signed with an unknown key")

    def _file_stamp(self) -> tuple[int, int]:
        try:
            status = self._path.stat()
        except OSError:
            return (0, 0)
        return (status.st_mtime_ns, status.st_size)


def read_jwks(path: Path) -> list[jwt.PyJWK]:
    """Read the RS256 public keys of a JWKS file; raise SettingsError if it has none or contains a private key."""
    try:
        table: object = json.loads(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"jwks {path} cannot be read ({error.strerror}): check the path.") from None
    except (ValueError, RecursionError):
        raise SettingsError(f"jwks {path} is not JSON: give a JSON Web Key Set.") from None
    entries = cast("Mapping[str, Any]", table).get("keys") if isinstance(table, Mapping) else None
    usable = cast("Sequence[Any]", entries) if isinstance(entries, list) else ()
    tables = [dict(cast("Mapping[str, Any]", entry)) for entry in usable if isinstance(entry, Mapping)]
    keys: list[jwt.PyJWK] = []
    for entry in tables:
        operations = entry.get("key_ops")
        is_for_signatures = not isinstance(operations, list) or "verify" in operations
        if (entry.get("kty"), entry.get("use", "sig"), entry.get("alg", "RS256")) != ("RSA", "sig", "RS256"):
            continue
        if not is_for_signatures:
            continue
        if _PRIVATE_PARTS & entry.keys():
            raise SettingsError(f"jwks {path} holds a private key: give a file with public keys only.")
        try:
            key = jwt.PyJWK(entry, algorithm="RS256")
            bits: int = key.key.key_size
        except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError):
            raise SettingsError(f"jwks {path} holds a key that cannot be read: export it again.") from None
        if bits < _MIN_RSA_BITS:
            raise SettingsError(f"jwks {path} holds a key of {bits} bits: RS256 requires at least {_MIN_RSA_BITS}.")
        keys.append(key)
    if not keys:
        raise SettingsError(f"jwks {path} has no RSA key for RS256: give a JSON Web Key Set with one.")
    return keys
