"""API keys (made, hashed, compared) and the redaction of secrets."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

# The prefix that OpenAI clients expect, by which redaction also recognises keys.
PREFIX = "sk-rkllm-"
# Of the keys that devices get for a code; see ``store.tables``.
DEVICE_PREFIX = f"{PREFIX}device-"
SCHEME = "sha256:"
KEY_ADVICE = "'rkllm-mcp config add-key' makes one"
# Shorter keys can be guessed by machines that reach the service.
SHORTEST_KEY_CHARS = 16
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


def problem_off_loopback(entries: Sequence[str]) -> str:
    """Return why these keys do not protect a service that other machines reach; empty if they do."""
    if not entries:
        return "off loopback a key is required"
    is_short = any(not is_hashed(entry) and len(entry.strip()) < SHORTEST_KEY_CHARS for entry in entries)
    return f"off loopback every key needs at least {SHORTEST_KEY_CHARS} characters" if is_short else ""


def matches(key: str, entry: str) -> bool:
    """Return True if ``key`` matches an entry, hashed or not; the duration does not depend on the first difference."""
    found = _HASHED.fullmatch(entry)
    salt = bytes.fromhex(found[1]) if found else b""
    expected = bytes.fromhex(found[2]) if found else _digest(salt, entry)
    return hmac.compare_digest(_digest(salt, key), expected)


def plain_keys(file: Mapping[str, Any]) -> list[str]:
    """Return the positions of plain-text keys in a configuration file, without those from ``${VARIABLES}``."""
    service: Any = file.get("service", {})
    tenants: Any = file.get("tenants", [])
    found = {f"service.api_keys[{index}]": entry for index, entry in enumerate(service.get("api_keys", []))}
    found |= {f"service.keys[{index}].key": each.get("key", "") for index, each in enumerate(service.get("keys", []))}
    found |= {f"tenants[{index}].api_key": tenant.get("api_key", "") for index, tenant in enumerate(tenants)}
    return [place for place, entry in found.items() if not is_hashed(entry) and "${" not in entry]


def _digest(salt: bytes, key: str) -> bytes:
    return hashlib.sha256(salt + key.encode("utf-8", "surrogatepass")).digest()


REDACTED = "[REDACTED]"

_SECRET_NAME = re.compile(
    r"(?:^|[_\-.])(?:api[_\-]?keys?|keys?|tokens?|secrets?|pass(?:word|wd|phrase)?|credentials?|auth(?:orization)?|cookie|pat|dsn)(?:$|[_\-.])",
    re.IGNORECASE,
)
# Published prefixes of common keys and tokens; and JSON Web Tokens.
_SECRET_LOOK = re.compile(
    r"\b(?:sk-[\w\-]{8,}|(?:gh[pousr]|github_pat|glpat|xox[abprs]|hf|npm|AIza|AKIA)[_\-]?[\w\-]{12,}|eyJ[\w\-]{8,}\.[\w\-.]+)"
)
# Inside text: a URL, a setting such as password=…, and the credentials after a scheme name in a header.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://[^\s\"'<>]+")
_SETTING = re.compile(r"(?<![\w?&=\-.])([A-Za-z][\w\-.]*)=([^\s&]+)")
_LOGIN = re.compile(r"\b(Bearer)\s+[\w\-.~+/=]{8,}", re.IGNORECASE)
_OPTION = re.compile(r"^--?[\w\-]+$")


def redacted(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration as JSON values with every secret replaced."""
    return {key: _value(key, value) for key, value in config.items()}


def is_secret_name(name: str) -> bool:
    """Return True if a key of this name holds a secret; ``daily_tokens`` and the like only count tokens."""
    return bool(_SECRET_NAME.search(name)) and not name.endswith("_tokens")


def _value(name: str, value: Any) -> Any:
    if value in (None, "", [], {}) or isinstance(value, (bool, int, float)):
        return value
    if is_secret_name(name):
        return [REDACTED for _ in cast("list[Any]", value)] if isinstance(value, list) else REDACTED
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        if name == "headers_template":
            return {key: REDACTED for key, _ in items}
        return {key: _value(key, item) for key, item in items}
    if isinstance(value, list):
        return _list(name, cast("list[Any]", value))
    return redacted_text(str(value))


def _list(name: str, values: list[Any]) -> list[Any]:
    shown: list[Any] = []
    hide_next = False
    for value in values:
        is_option = isinstance(value, str) and bool(_OPTION.match(value))
        shown.append(REDACTED if hide_next and not is_option else _value("" if name != "args" else "arg", value))
        hide_next = is_option and is_secret_name(cast("str", value).lstrip("-"))
    return shown


def redacted_text(text: str) -> str:
    """Redact secrets in a text: ``--token=X``, ``user:password@``, query values, and values in the format of a key."""
    option, equals, rest = text.partition("=")
    is_setting = _OPTION.match(option) or (option.isidentifier() and rest)
    if equals and is_setting and is_secret_name(option.lstrip("-")):
        return f"{option}={REDACTED}"
    text = _URL.sub(lambda found: _address(found[0]), text)
    text = _SETTING.sub(lambda found: f"{found[1]}={REDACTED}" if is_secret_name(found[1]) else found[0], text)
    return _SECRET_LOOK.sub(REDACTED, _LOGIN.sub(rf"\1 {REDACTED}", text))


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return REDACTED
    user, at, host = parts.netloc.rpartition("@")
    if ":" in user:
        user = f"{user.split(':', 1)[0]}:{REDACTED}"
    pairs = [_pair(pair) for pair in parts.query.split("&")] if parts.query else []
    return urlunsplit(parts._replace(netloc=f"{user}{at}{host}", query="&".join(pairs)))


def _pair(pair: str) -> str:
    name, equals, value = pair.partition("=")
    return f"{name}={REDACTED}" if equals and value and is_secret_name(name) else pair


def redacted_arguments(arguments: Sequence[str]) -> list[str]:
    """Redact secrets in a program's arguments, including values after an option such as ``--token``."""
    return [str(argument) for argument in _list("args", list(arguments))]
