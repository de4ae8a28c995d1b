"""API keys of the service: generation, hashing, and comparison in constant time.

A key has 256 random bits, so one round of salted SHA-256 is a sufficient hash. A configuration may also contain a key
in plain text; then everyone who can read the file has the key.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Any

# The prefix that OpenAI clients expect, by which redaction also recognises keys.
PREFIX = "sk-rkllm-"
SCHEME = "sha256:"
KEY_ADVICE = "'rkllm-mcp config add-key' makes one"
_HASHED = re.compile(r"sha256:([0-9a-f]{32}):([0-9a-f]{64})")


def new_key() -> str:
    """Return a new random key."""
    return f"{PREFIX}{secrets.token_urlsafe(32)}"


def hashed(key: str) -> str:
    """Return the stored form of a key: ``sha256:SALT:HASH``."""
    salt = secrets.token_bytes(16)
    return f"{SCHEME}{salt.hex()}:{_digest(salt, key).hex()}"


def is_hashed(entry: str) -> bool:
    """Return True if an entry of a configuration is a hash, not the key itself."""
    return _HASHED.fullmatch(entry) is not None


def problem_of_entry(entry: str) -> str:
    """Return the defect of an entry of a configuration, as a description; empty if valid."""
    if not entry.strip():
        return "an empty key"
    if entry.startswith(SCHEME) and not is_hashed(entry):
        return "a hash that is not whole"
    return ""


def matches(key: str, entry: str) -> bool:
    """Return True if ``key`` matches an entry of a configuration, hashed or not.

    The duration does not depend on the position of the first difference.
    """
    found = _HASHED.fullmatch(entry)
    salt = bytes.fromhex(found[1]) if found else b""
    expected = bytes.fromhex(found[2]) if found else _digest(salt, entry)
    return hmac.compare_digest(_digest(salt, key), expected)


def plain_keys(file: Mapping[str, Any]) -> list[str]:
    """Return the positions of plain-text keys in a configuration file, without those from ``${VARIABLES}``."""
    service: Any = file.get("service", {})
    tenants: Any = file.get("tenants", [])
    found = {f"service.api_keys[{index}]": entry for index, entry in enumerate(service.get("api_keys", []))}
    found |= {f"tenants[{index}].api_key": tenant.get("api_key", "") for index, tenant in enumerate(tenants)}
    return [place for place, entry in found.items() if not is_hashed(entry) and "${" not in entry]


def _digest(salt: bytes, key: str) -> bytes:
    return hashlib.sha256(salt + key.encode("utf-8", "surrogatepass")).digest()
