"""``${token}`` placeholders of ``headers_template``, filled per request, and redaction of the tokens in server output.

Tokens live as long as the request that brought them: no error message and no log contains one. A server may echo what
it received, so its output passes through ``redact`` before it is logged or shown.

Follows mission "MCP統合設計", トークン置換機能; the recognised encodings of an echoed token are our choice.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, quote_plus

from rkllm_mcp.config.secrets import REDACTED, is_secret_name

_PLACEHOLDER = re.compile(r"\$\{([^{}]*)\}")
# Everything but visible ASCII, space and tab: other characters end the header or are refused by HTTP.
_UNSENDABLE = re.compile(r"[^\x20-\x7e\t]")


@dataclass(eq=False)
class MissingTokenError(ValueError):
    """A placeholder in ``header`` for which the request has no token."""

    token: str
    header: str = ""

    def __str__(self) -> str:
        header = f" for the header {self.header}" if self.header else ""
        how = f"tokens = {{{self.token}: …}}, or --token {self.token}"
        return f"No token '{self.token}' was given{header}; send it with the request: {how}."


@dataclass(eq=False)
class UnusableTokenError(MissingTokenError):
    """A token that is not valid in an HTTP header: it contains a line break or a character outside ASCII."""

    def __str__(self) -> str:
        return (
            f"The token '{self.token}' has characters that are not valid in an HTTP header; send it as it was issued."
        )


def placeholders(text: str) -> tuple[str, ...]:
    """Return the token names in ``text``, in order, without duplicates."""
    return tuple(dict.fromkeys(name.strip() for name in _PLACEHOLDER.findall(text)))


def fill(template: Mapping[str, str], tokens: Mapping[str, str]) -> dict[str, str]:
    """Fill the placeholders of a header template; a MissingTokenError names a token that is missing or unsendable."""
    filled: dict[str, str] = {}
    for header, value in template.items():
        for name in placeholders(value):
            token = tokens.get(name, "").strip()
            if not token:
                raise MissingTokenError(name, header)
            if _UNSENDABLE.search(token):
                raise UnusableTokenError(name, header)
        filled[header] = _PLACEHOLDER.sub(lambda match: tokens[match.group(1).strip()].strip(), value)
    return filled


def tokens_for(server: str, template: Mapping[str, str], tokens: Mapping[str, str]) -> Mapping[str, str]:
    """Return the request's tokens by placeholder; for a single one the token named like the server counts, too."""
    names = {name for value in template.values() for name in placeholders(value)} - {""}
    server_tokens = {name: tokens[name] for name in names if name in tokens}
    if not server_tokens and len(names) == 1 and server in tokens:
        return {names.pop(): tokens[server]}
    return server_tokens


def secrets_of(template: Mapping[str, str], tokens: Mapping[str, str]) -> tuple[str, ...]:
    """Return the strings to redact, longest first: every token, and the literal secrets of the template."""
    secrets = {value.strip() for value in tokens.values()}
    for header, value in template.items():
        if is_secret_name(header) and not placeholders(value):
            # "Bearer abc" is a scheme and a key; the server may echo both together or the key alone.
            secrets |= {value.strip(), value.strip().rpartition(" ")[2]}
    return tuple(sorted(secrets - {""}, key=len, reverse=True))


def redact(text: str, secrets: Iterable[str]) -> str:
    """Replace every secret in ``text``, also if it is percent-encoded, JSON-escaped or base64-encoded."""
    spellings = _spellings(secrets)
    # Longest first, so that a secret that contains another one is replaced as a whole.
    pattern = "|".join(re.escape(spelling) for spelling in sorted(spellings, key=len, reverse=True))
    return re.sub(pattern, REDACTED, text) if spellings else text


def redacted_so_far(text: str, secrets: Iterable[str]) -> str:
    """Redact the beginning of a text that grows; leave out an end that may become a secret."""
    spellings = _spellings(secrets)
    text = redact(text, secrets)
    for count in range(max(map(len, spellings), default=1) - 1, 0, -1):
        if any(len(spelling) > count and text.endswith(spelling[:count]) for spelling in spellings):
            return text[:-count]
    return text


def _spellings(secrets: Iterable[str]) -> set[str]:
    spellings: set[str] = set()
    for secret in {secret.strip() for secret in secrets} - {""}:
        spellings |= {secret, quote(secret, safe=""), quote(secret), quote_plus(secret)}
        spellings |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
        # The base64 form of a shorter secret would match ordinary text.
        if len(secret) >= 6:
            encoded = base64.b64encode(secret.encode("utf-8", "replace")).decode()
            spellings |= {encoded, encoded.rstrip("="), encoded.translate(str.maketrans("+/", "-_"))}
    return spellings
