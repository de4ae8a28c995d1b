"""Keys of the service: made here, kept as a hash, compared in a time that tells nothing.

A key has 256 random bits, so one round of SHA-256 with a salt is all that its hash needs: there is nothing to guess. A
configuration may also hold a key as it is; then whoever reads the file has it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Any

# What programs for OpenAI expect a key to begin with, and by what it is hidden wherever text is shown.
PREFIX = "sk-rkllm-"
SCHEME = "sha256:"
KEY_ADVICE = "'rkllm-mcp config add-key' makes one"
_HASHED = re.compile(r"sha256:([0-9a-f]{32}):([0-9a-f]{64})")


def new_key() -> str:
    """A key that nobody can guess."""
    return f"{PREFIX}{secrets.token_urlsafe(32)}"


def hashed(key: str) -> str:
    """The key as a configuration keeps it: ``sha256:SALT:HASH``."""
    salt = secrets.token_bytes(16)
    return f"{SCHEME}{salt.hex()}:{_digest(salt, key).hex()}"


def is_hashed(entry: str) -> bool:
    """Whether an entry of a configuration is a hash that ``hashed`` made, and not the key itself."""
    return _HASHED.fullmatch(entry) is not None


def problem_of_entry(entry: str) -> str:
    """What is wrong with an entry of a configuration, as what was found there; empty when it can be used."""
    if not entry.strip():
        return "an empty key"
    if entry.startswith(SCHEME) and not is_hashed(entry):
        return "a hash that is not whole"
    return ""


def matches(key: str, entry: str) -> bool:
    """Whether ``key`` is the one that an entry of a configuration means, hashed or not.

    It takes the same time wherever the two differ.
    """
    found = _HASHED.fullmatch(entry)
    salt = bytes.fromhex(found[1]) if found else b""
    expected = bytes.fromhex(found[2]) if found else _digest(salt, entry)
    return hmac.compare_digest(_digest(salt, key), expected)


def plain_keys(file: Mapping[str, Any]) -> list[str]:
    """Where a configuration file, as it is written, has keys as they are; those of ``${VARIABLES}`` are elsewhere."""
    service: Any = file.get("service", {})
    tenants: Any = file.get("tenants", [])
    found = {f"service.api_keys[{index}]": entry for index, entry in enumerate(service.get("api_keys", []))}
    found |= {f"tenants[{index}].api_key": tenant.get("api_key", "") for index, tenant in enumerate(tenants)}
    return [place for place, entry in found.items() if not is_hashed(entry) and "${" not in entry]


def _digest(salt: bytes, key: str) -> bytes:
    return hashlib.sha256(salt + key.encode("utf-8", "surrogatepass")).digest()
