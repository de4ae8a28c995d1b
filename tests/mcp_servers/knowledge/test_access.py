from __future__ import annotations

import base64
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import HMACAlgorithm, RSAAlgorithm

from mcp_servers.knowledge.access import TokenVerifier
from mcp_servers.knowledge.errors import InvalidTokenError
from mcp_servers.knowledge.settings import SettingsError, TokenSettings
from mcp_servers.knowledge.types import Access

SECRET = "a secret of more than thirty-two bytes"
OTHER = "another secret of more than thirty-two"
KEY = rsa.generate_private_key(65537, 2048)
NEXT_KEY = rsa.generate_private_key(65537, 2048)


def claims(**more: Any) -> dict[str, Any]:
    return {"exp": time.time() + 600, "tenant": "acme", **more}


def signed(secret: str = SECRET, headers: dict[str, Any] | None = None, **more: Any) -> str:
    return jwt.encode(claims(**more), secret, "HS256", headers)


def by_key(kid: str | None = "one", key: Any = KEY, algorithm: str = "RS256") -> str:
    return jwt.encode(claims(), key, algorithm, {"kid": kid} if kid else None)


def unsigned(algorithm: str) -> str:
    """A token whose header says an algorithm and that nobody signed."""
    parts = ({"alg": algorithm, "typ": "JWT"}, claims())
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return f"{'.'.join(encoded)}."


def public(key: rsa.RSAPrivateKey, kid: str, **more: Any) -> dict[str, Any]:
    return {**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, **more}


def key_file(folder: Path, *keys: dict[str, Any]) -> Path:
    path = folder / "jwks.json"
    path.write_text(json.dumps({"keys": keys}), "utf-8")
    return path


def access_of(token: str, secret: str = SECRET, **settings: Any) -> Access:
    return TokenVerifier(TokenSettings(secret, **settings)).access_of(f"Bearer {token}")


def test_a_token_says_tenant_department_and_clearance() -> None:
    assert access_of(signed(department="legal", clearance=3)) == Access("acme", "legal", 3)
    assert access_of(signed()) == Access("acme")
    assert access_of(signed(aud="kb", iss="us"), audience="kb", issuer="us") == Access("acme")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: signed(OTHER), "it is not a token signed for this service"),
        (lambda: signed(exp=time.time() - 3600), "it has expired"),
        (lambda: signed(nbf=time.time() + 3600), "it is not valid yet"),
        (lambda: signed(iat="yesterday"), "it is not a token signed for this service"),
        (lambda: signed(aud="somebody"), "it is meant for another audience"),
        (lambda: jwt.encode({"tenant": "acme"}, SECRET, "HS256"), "it has no exp"),
        (lambda: signed(tenant=""), "it names no tenant"),
        (lambda: signed(tenant=None), "it names no tenant"),
        (lambda: signed(tenant=["acme", "b"]), "it names no tenant"),
        (lambda: signed(department=7), "its department is not a string"),
        (lambda: signed(clearance=-1), "its clearance is not an integer of at least 0"),
        (lambda: signed(clearance="9"), "its clearance is not an integer of at least 0"),
        (lambda: signed(clearance=True), "its clearance is not an integer of at least 0"),
        (lambda: signed(headers={"crit": ["x"], "x": 1}), "it is not a token signed for this service"),
        (lambda: unsigned("none"), "its signature algorithm is not accepted"),
        (lambda: unsigned("None"), "its signature algorithm is not accepted"),
        (lambda: unsigned("HS256"), "it is not a token signed for this service"),
        (lambda: jwt.encode(claims(), SECRET * 2, "HS512"), "its signature algorithm is not accepted"),
        (by_key, "its signature algorithm is not accepted"),
        (lambda: "a.b.c", "it is not a token signed for this service"),
        (lambda: "\x00é", "it is not a token signed for this service"),
    ],
    ids=itertools.count(),
)
def test_a_token_that_is_not_to_be_believed_says_why_and_nothing_of_itself(
    make: Callable[[], str], reason: str
) -> None:
    # Made now: by the time that its turn comes, one that was made when the tests were collected may have expired.
    with pytest.raises(InvalidTokenError) as refused:
        access_of(make())
    sentence = str(refused.value)
    assert sentence.startswith(f"Invalid authentication credentials: {reason}. ")
    assert refused.value.__cause__ is None
    assert refused.value.status == 401


@pytest.mark.parametrize("before", ["", "Basic "])
def test_without_a_bearer_token_every_request_is_refused(before: str) -> None:
    for header in ("", "Bearer", "Bearer ", f"{before}{signed()}"):
        with pytest.raises(InvalidTokenError, match="there is no bearer token"):
            TokenVerifier(TokenSettings(SECRET)).access_of(header)


def test_an_audience_and_an_issuer_that_are_configured_have_to_be_there() -> None:
    with pytest.raises(InvalidTokenError, match="it has no aud"):
        access_of(signed(), audience="kb")
    with pytest.raises(InvalidTokenError, match="it has no iss"):
        access_of(signed(), issuer="us")
    with pytest.raises(InvalidTokenError, match="issuer"):
        access_of(signed(iss="them"), issuer="us")


def test_a_key_of_the_file_signs(tmp_path: Path) -> None:
    keys = key_file(tmp_path, public(KEY, "one"), public(NEXT_KEY, "two", use="sig", alg="RS256"))
    assert access_of(by_key(), secret="", jwks=keys) == Access("acme")
    assert access_of(by_key("two", NEXT_KEY), secret="", jwks=keys) == Access("acme")
    for token in (by_key("three"), by_key("two"), by_key(None), by_key(algorithm="RS512"), signed(), unsigned("RS256")):
        with pytest.raises(InvalidTokenError):
            access_of(token, secret="", jwks=keys)


def test_the_public_key_cannot_sign(tmp_path: Path) -> None:
    keys = key_file(tmp_path, public(KEY, "one"))
    pem = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for secret in (pem, keys.read_bytes()):
        # The library refuses to make a token like that, so it is put together by hand.
        head, body, _ = jwt.encode(claims(), OTHER, "HS256", {"kid": "one"}).split(".")
        mark = HMACAlgorithm(HMACAlgorithm.SHA256).sign(f"{head}.{body}".encode(), secret)
        token = f"{head}.{body}.{base64.urlsafe_b64encode(mark).rstrip(b'=').decode()}"
        for configured in ("", SECRET):
            with pytest.raises(InvalidTokenError):
                access_of(token, configured, jwks=keys)


def test_a_file_of_new_keys_is_noticed_and_a_broken_one_is_not_believed(tmp_path: Path) -> None:
    reader = TokenVerifier(TokenSettings(jwks=key_file(tmp_path, public(KEY, "one"))))
    with pytest.raises(InvalidTokenError):
        reader.access_of(f"Bearer {by_key('two', NEXT_KEY)}")
    key_file(tmp_path, public(NEXT_KEY, "two"), public(KEY, "other"))
    assert reader.access_of(f"Bearer {by_key('two', NEXT_KEY)}") == Access("acme")
    with pytest.raises(InvalidTokenError):
        reader.access_of(f"Bearer {by_key()}")
    (tmp_path / "jwks.json").write_text("{", "utf-8")
    assert reader.access_of(f"Bearer {by_key('two', NEXT_KEY)}") == Access("acme")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[", "is not JSON"),
        ("[]", "has no RSA key for RS256"),
        ('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "has no RSA key for RS256"),
        ('{"keys": [{"kty": "RSA", "use": "enc"}]}', "has no RSA key for RS256"),
        ('{"keys": [{"kty": "RSA", "n": "x"}]}', "holds a key that cannot be read"),
        ('{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB", "d": "AQAB"}]}', "holds a private key"),
        (json.dumps({"keys": [public(rsa.generate_private_key(65537, 1024), "s")]}), "holds a key of 1024 bits"),
    ],
    ids=itertools.count(),
)
def test_a_key_file_that_cannot_be_used_says_what_to_give(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(content, "utf-8")
    with pytest.raises(SettingsError, match=words):
        TokenVerifier(TokenSettings(jwks=path))
