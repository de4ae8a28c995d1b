"""What boards of one list believe each other: a new board by a code, the others by the secret that all share.

    code ─▶ id, which is sent, and secret, which is not ─▶ scrypt with a number of the new board ─▶ two keys
    the new board's request has a proof made with one; the answer is encrypted with the other, and has a proof, too
    boards_secret ─▶ HMAC with a number of the sender ─▶ two keys for a new list; or the proof of one GET

The secret of a code has 78 random bits, so that a recorded answer cannot be opened by trying: no certificate is needed.
The cipher is HMAC-SHA256 in counter mode, encrypt-then-MAC, of the standard library; a pair of keys encrypts one text.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rkllm_mcp.errors import UsageError

VALID_S, MOST_TRIES = 600, 5
NONCE_BYTES = 16
# Without letters and digits that look alike.
_LETTERS = "ABCDEFGHJKMNPQRSTVWXYZ23456789"
_ID_LETTERS, _SECRET_LETTERS, _GROUP = 4, 16, 4
_HASH_BYTES = 32


# What a board proves is believed for so long, by its clock; the same list is not taken twice.
FRESH_S = 600.0
_SCHEME = "Board "


class WrongCodeError(Exception):
    """An answer, or a request, was not made with the code."""


@dataclass
class _Invitation:
    secret: str
    until: float
    tries: int = 0


@dataclass(eq=False)
class Invitations:
    """The open invitations of a service; they end with it."""

    clock: Callable[[], float] = time.monotonic
    _open: dict[str, _Invitation] = field(default_factory=dict[str, _Invitation], repr=False)

    def invite(self) -> str:
        """Return a new code, for one board and ten minutes."""
        letters = "".join(secrets.choice(_LETTERS) for _ in range(_ID_LETTERS + _SECRET_LETTERS))
        number, secret = split_code(letters)
        self._open[number] = _Invitation(secret, self.clock() + VALID_S)
        return "-".join(letters[start : start + _GROUP] for start in range(0, len(letters), _GROUP))

    def accept(self, number: str, nonce: bytes, message: bytes, proof: bytes) -> JoinKeys:
        """Return the keys for a request with a right proof, and end its invitation; else a WrongCodeError."""
        self._open = {key: invitation for key, invitation in self._open.items() if invitation.until > self.clock()}
        invitation = self._open.get(number)
        if invitation is None:
            raise WrongCodeError
        invitation.tries += 1
        if invitation.tries >= MOST_TRIES:
            del self._open[number]
        keys = JoinKeys.derive(invitation.secret, nonce)
        if not hmac.compare_digest(keys.proof_of(message), proof):
            raise WrongCodeError
        self._open.pop(number, None)
        return keys


def split_code(code: str) -> tuple[str, str]:
    """Return id and secret of a code as a person types it; a UsageError if it is none."""
    letters = "".join(code.upper().replace("-", " ").split())
    if len(letters) != _ID_LETTERS + _SECRET_LETTERS or set(letters) - set(_LETTERS):
        raise UsageError("a code has five groups of four letters; 'rkllm-mcp boards invite' on a board shows one")
    return letters[:_ID_LETTERS], letters[_ID_LETTERS:]


def join_message(number: str, nonce: bytes, board: Sequence[str | int | bool]) -> bytes:
    """Return what the proof of a request is made of; ``board`` is what it says of the new board."""
    return json.dumps([number, nonce.hex(), *board]).encode()


@dataclass(frozen=True)
class JoinKeys:
    """The keys of one answer to a new board."""

    _cipher: bytes
    _mac: bytes

    @classmethod
    def of_boards(cls, secret: str, nonce: bytes) -> JoinKeys:
        """Return the keys of ``[service] boards_secret``, which is too long to be tried, and of a random number."""
        cipher, mac = (hmac.digest(secret.encode(), use + nonce, "sha256") for use in (b"cipher", b"mac"))
        return cls(cipher, mac)

    @classmethod
    def derive(cls, secret: str, nonce: bytes) -> JoinKeys:
        """Return the keys of a secret and of the new board's random number; takes 16 MB and some 50 ms."""
        both = hashlib.scrypt(secret.encode(), salt=nonce, n=2**14, r=8, p=1, dklen=2 * _HASH_BYTES)
        return cls(both[:_HASH_BYTES], both[_HASH_BYTES:])

    def proof_of(self, message: bytes) -> bytes:
        """Return the proof that a request comes from one who has the code."""
        return hmac.digest(self._mac, b"request" + message, "sha256")

    def seal(self, value: Mapping[str, Any]) -> bytes:
        """Encrypt a value; once with these keys."""
        text = self._crypt(json.dumps(value).encode())
        return hmac.digest(self._mac, b"answer" + text, "sha256") + text

    def open(self, box: bytes) -> dict[str, Any]:
        """Return the value in a box; a WrongCodeError if it was not sealed with these keys."""
        proof, text = box[:_HASH_BYTES], box[_HASH_BYTES:]
        if not hmac.compare_digest(hmac.digest(self._mac, b"answer" + text, "sha256"), proof):
            raise WrongCodeError
        return json.loads(self._crypt(text))

    def _crypt(self, text: bytes) -> bytes:
        blocks = range(0, len(text), _HASH_BYTES)
        stream = b"".join(hmac.digest(self._cipher, start.to_bytes(8, "big"), "sha256") for start in blocks)
        return bytes(byte ^ other for byte, other in zip(text, stream, strict=False))


def new_boards_secret() -> str:
    """Return a new ``[service] boards_secret``."""
    return secrets.token_urlsafe(_HASH_BYTES)


def board_header(secret: str, path: str, nonce: str = "", at: str = "") -> str:
    """Return the Authorization with which a board asks another one for ``path``: good for this GET, ten minutes.

    Its number is random, and its time now, unless they are given.
    """
    nonce, at = nonce or secrets.token_hex(NONCE_BYTES), at or f"{time.time():.0f}"
    proof = hmac.digest(secret.encode(), f"GET {path} {nonce} {at}".encode(), "sha256").hex()
    return f"{_SCHEME}{nonce} {at} {proof}"


def is_board(header: str, secret: str, path: str) -> bool:
    """Return True if an Authorization was made with the secret, for this path and now."""
    words = header.removeprefix(_SCHEME).split(" ") if header.startswith(_SCHEME) else []
    if len(words) != 3 or not words[1].isdecimal():
        return False
    nonce, at, _ = words
    is_made_with_it = hmac.compare_digest(board_header(secret, path, nonce, at).encode(), header.encode())
    return is_made_with_it and abs(time.time() - int(at)) <= FRESH_S
