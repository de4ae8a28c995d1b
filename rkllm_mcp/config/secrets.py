"""API keys (made, hashed, compared) and the redaction of secrets."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit, urlunsplit

# The prefix that OpenAI clients expect, by which redaction also recognises keys.
PREFIX = "sk-rkllm-"
# Of the keys that devices get for a code; see ``store.tables``.
DEVICE_PREFIX = f"{PREFIX}device-"
# The parent of a device's key that was made with a key of the configuration begins so; another is the id of a device.
CONFIGURED = "configured "
SCHEME = "sha256:"
KEY_ADVICE = "'rkllm-mcp config add-key' makes one"
# Shorter keys can be guessed by machines that reach the service.
SHORTEST_KEY_CHARS = 16
_HASHED = re.compile(r"sha256:([0-9a-f]{32}):([0-9a-f]{64})")


def new_key() -> str:
    """Return a new random key."""
    return f"{PREFIX}{secrets.token_urlsafe(32)}"


def hash_key(key: str) -> str:
    """Return the stored form of a key: ``sha256:SALT:HASH``."""
    salt = secrets.token_bytes(16)
    return f"{SCHEME}{salt.hex()}:{_digest(salt, key).hex()}"


def is_hashed(entry: str) -> bool:
    """Return True if an entry of a configuration is a hash, not the key itself."""
    return _HASHED.fullmatch(entry) is not None


def problem_off_loopback(entries: Sequence[str]) -> str:
    """Return why these keys do not protect a service that other machines reach; empty if they do."""
    if not entries:
        return "off loopback a key is required"
    is_short = any(not is_hashed(entry) and len(entry.strip()) < SHORTEST_KEY_CHARS for entry in entries)
    return f"off loopback every key needs at least {SHORTEST_KEY_CHARS} characters" if is_short else ""


def matches(key: str, entry: str) -> bool:
    """Return True if ``key`` matches an entry, hashed or not; the duration does not depend on the first difference."""
    hashed = _HASHED.fullmatch(entry)
    salt = bytes.fromhex(hashed[1]) if hashed else b""
    expected = bytes.fromhex(hashed[2]) if hashed else _digest(salt, entry)
    return hmac.compare_digest(_digest(salt, key), expected)


def plain_keys(file: Mapping[str, Any]) -> list[str]:
    """Return the positions of plain-text keys in a configuration file, without those from ``${VARIABLES}``."""
    service: Any = file.get("service", {})
    tenants: Any = file.get("tenants", [])
    entries = {f"service.api_keys[{index}]": entry for index, entry in enumerate(service.get("api_keys", []))}
    entries |= {
        f"service.keys[{index}].key": table.get("key", "") for index, table in enumerate(service.get("keys", []))
    }
    entries |= {f"tenants[{index}].api_key": tenant.get("api_key", "") for index, tenant in enumerate(tenants)}
    return [key_path for key_path, entry in entries.items() if not is_hashed(entry) and "${" not in entry]


def _digest(salt: bytes, key: str) -> bytes:
    return hashlib.sha256(salt + key.encode("utf-8", "surrogatepass")).digest()


REDACTED = "[REDACTED]"
# A shorter secret would also be replaced where it is a part of ordinary words.
SHORTEST_REDACTED_CHARS = 8

_SECRET_NAME = re.compile(
    r"(?:^|[_\-.])(?:keys?|tokens?|secrets?|pass(?:word|wd|phrase)?|pwd|credentials?|auth(?:orization)?|cookie|pat|dsn"
    r"|jwt|sig(?:nature)?)(?:$|[_\-.])|(?:api|access|secret|private|subscription)[_\-]?keys?(?:$|[_\-.])|(?:password|token|secret)$",
    re.IGNORECASE,
)
# Between a small letter or digit and a capital: tavilyApiKey is tavily_Api_Key.
_CAMEL_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# What follows searches texts of any length, such as a question or a result of a tool. A repetition that may begin at
# every character is bounded, or begins only where the run of its characters does: otherwise the time grows with the
# square of the length, and the event loop waits for minutes.
# Published prefixes of common keys and tokens; and JSON Web Tokens.
_SECRET_LOOK = re.compile(
    r"\b(?:sk-[\w\-]{8,}|(?:[spr]k_(?:live|test)|gh[pousr]|github_pat|glpat|xox[abprs]|hf|npm|pypi|gsk|tvly|xai|fc|pplx"
    r"|lin_api|ntn|secret|shpat|sbp|r8|AIza|AKIA|ya29)[_\-.]?(?=[\w\-]{0,60}\d)[\w\-]{12,}"
    r"|(?<![\w\-])eyJ[\w\-]{8,}\.[\w\-.]+|eyJ\w{8}[\w\-]{0,1000}\.[\w\-.]+)"
)
# Inside text: a URL, a setting such as password=…, and the credentials after a scheme name in a header.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]{0,30}://[^\s\"'<>]+")
_SETTING = re.compile(r"(?<![\w?&=\-.])([A-Za-z][\w\-.]*)=([^\s&]+)")
_LOGIN = re.compile(r"\b(Bearer)\s+[\w\-.~+/=]{8,}", re.IGNORECASE)
_OPTION = re.compile(r"^--?[\w\-]+$")
# In an address: letters and digits in turn, which words and versions have not.
_RANDOM = re.compile(r"[\w\-=+.]+")
_MIXED = re.compile(
    r"(?<![A-Za-z])(?=(?:[A-Za-z]+\d+){2})(?=(?:.*?\d){3})(?=(?:.*?[A-Za-z]){3})|(?<!\d)\d+[A-Za-z]+\d+[A-Za-z]+"
)
_RANDOM_CHARS = 20


def redact_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration as JSON values with every secret replaced."""
    return {key: _value(key, value) for key, value in config.items()}


def is_secret_name(name: str) -> bool:
    """Return True if a key of this name holds a secret; ``daily_tokens`` and the like only count tokens."""
    return bool(_SECRET_NAME.search(_CAMEL_HUMP.sub("_", name))) and not name.endswith(("_tokens", "Tokens"))


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
    public: list[Any] = []
    hide_next = False
    for value in values:
        is_option = isinstance(value, str) and bool(_OPTION.match(value))
        public.append(REDACTED if hide_next and not is_option else _value("" if name != "args" else "arg", value))
        hide_next = is_option and is_secret_name(cast("str", value).lstrip("-"))
    return public


def redacted_text(text: str) -> str:
    """Redact secrets in a text: ``--token=X``, ``user:password@``, query values, and values in the format of a key."""
    option, equals, tail = text.partition("=")
    is_setting = _OPTION.match(option) or (option.isidentifier() and tail)
    if equals and is_setting and is_secret_name(option.lstrip("-")):
        return f"{option}={REDACTED}"
    text = _URL.sub(lambda match: _address(match[0]), text)
    text = _SETTING.sub(lambda match: f"{match[1]}={REDACTED}" if is_secret_name(match[1]) else match[0], text)
    return _SECRET_LOOK.sub(REDACTED, _LOGIN.sub(rf"\1 {REDACTED}", text))


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return REDACTED
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    # A name without a password is often a token.
    user = f"{name}:{REDACTED}" if colon else REDACTED if _is_random(name) else name
    path = "/".join(REDACTED if _is_random(segment) else segment for segment in parts.path.split("/"))
    public: list[str] = []
    for part in (parts.query, parts.fragment):
        pairs = part.split("&")
        for index, pair in enumerate(pairs):
            name, _, value = pair.partition("=")
            if value and (is_secret_name(unquote(name)) or _is_random(unquote(value))):
                pairs[index] = f"{name}={REDACTED}"
        public.append("&".join(pairs))
    netloc, (query, fragment) = f"{user}{at}{host}", public
    return urlunsplit(parts._replace(netloc=netloc, path=path, query=query, fragment=fragment))


def _is_random(text: str) -> bool:
    """Return True for a long run of letters and digits without words, as services put keys into addresses."""
    return len(text) >= _RANDOM_CHARS and bool(_RANDOM.fullmatch(text)) and bool(_MIXED.search(text))


def secrets_in_address(url: str) -> tuple[str, ...]:
    """Return the secrets of an address, as they are there and decoded, that are long enough to be redacted safely."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ()
    name, colon, password = parts.netloc.rpartition("@")[0].partition(":")
    pairs = [pair.partition("=") for part in (parts.query, parts.fragment) for pair in part.split("&")]
    literal = [password if colon else name if _is_random(name) else ""]
    literal += [segment for segment in parts.path.split("/") if _is_random(segment)]
    literal += [value for key, _, value in pairs if is_secret_name(unquote(key)) or _is_random(unquote(value))]
    spellings = dict.fromkeys(secret for text in literal for secret in (text, unquote(text)))
    return tuple(spelling for spelling in spellings if len(spelling) >= SHORTEST_REDACTED_CHARS)


def secret_places(file: Mapping[str, Any]) -> list[str]:
    """Return the positions of secrets in a configuration file, without hashes and those from ``${VARIABLES}``."""
    places: list[str] = []
    waiting: list[tuple[str, Any, Any]] = [("", file, redact_config(dict(file)))]
    while waiting:
        key_path, value, public = waiting.pop()
        if isinstance(value, Mapping) and isinstance(public, Mapping):
            table, shown = cast("Mapping[str, Any]", value), cast("Mapping[str, Any]", public)
            parts = [(f"{key_path}.{key}" if key_path else key, table[key], shown[key]) for key in table]
            waiting += reversed(parts)
        elif isinstance(value, list) and isinstance(public, list):
            pairs = zip(cast("list[Any]", value), cast("list[Any]", public), strict=True)
            waiting += reversed([(f"{key_path}[{index}]", *pair) for index, pair in enumerate(pairs)])
        elif isinstance(value, str) and value and value != public and not is_hashed(value) and "${" not in value:
            places.append(key_path)
    return places


def readable_secrets(path: Path, file: Mapping[str, Any]) -> str:
    """Return a sentence if a configuration file has secrets and other users of the machine may read it; else empty."""
    secrets = secret_places(file)
    if not secrets or not path.stat().st_mode & 0o004:
        return ""
    return f"{path} has secrets ({', '.join(secrets)}), and every user of this machine can read it: chmod 600 {path}"


def redact_record(record: logging.LogRecord) -> bool:
    """Redact the message and the traceback of a log record: a filter for handlers, which passes every record on."""
    record.msg, record.args = redacted_text(record.getMessage()), ()
    if record.exc_info and record.exc_info[0] is not None:
        record.exc_text = redacted_text("".join(traceback.format_exception(*record.exc_info)).rstrip())
    return True


def redacted_arguments(arguments: Sequence[str]) -> list[str]:
    """Redact secrets in a program's arguments, including values after an option such as ``--token``."""
    return [str(argument) for argument in _list("args", list(arguments))]
