"""A ``headers_template`` and one request's tokens become headers; tokens that come back become ``[REDACTED]``.

A placeholder is ``${name}``, and its value is the token of that name. Tokens live as long as the request that brought
them: nothing here keeps one, and no error or sentence contains one. A server may echo what it was sent, so whatever it
says is passed through ``redacted`` before anybody else sees it.

Followed: mission "MCP統合設計", トークン置換機能; which spellings of an echo are recognised is our choice.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, quote_plus

from rkllm_mcp.config.redaction import REDACTED, is_secret_name

_PLACEHOLDER = re.compile(r"\$\{([^{}]*)\}")
# What HTTP allows in a header's value, apart from the tab: anything else would end the header or never arrive.
_UNSENDABLE = re.compile(r"[^\x20-\x7e\t]")
# What is shorter may well be a word of an ordinary text.
_KEY_CHARS = 8


@dataclass(eq=False)
class MissingTokenError(ValueError):
    """A placeholder for which the request brought no token.

    Args:
        token: the name in the placeholder.
        header: the header that waits for it.
    """

    token: str
    header: str = ""

    def __str__(self) -> str:
        where = f" for the header {self.header}" if self.header else ""
        how = f"tokens = {{{self.token}: …}}, or --token {self.token}"
        return f"No token '{self.token}' was given{where}; send it with the request: {how}."


@dataclass(eq=False)
class UnusableTokenError(MissingTokenError):
    """A token that no HTTP header can carry: it has a line break or a character outside ASCII."""

    def __str__(self) -> str:
        return f"The token '{self.token}' has characters that no HTTP header can carry; send it as it was issued."


def placeholders(text: str) -> tuple[str, ...]:
    """The names of the tokens that a template's value waits for, in order."""
    return tuple(dict.fromkeys(name.strip() for name in _PLACEHOLDER.findall(text)))


def fill(template: Mapping[str, str], tokens: Mapping[str, str]) -> dict[str, str]:
    """The headers of one request.

    Args:
        template: a value per header, with placeholders or without.
        tokens: the request's tokens by name; what a token itself contains is never taken for a placeholder.

    Raises:
        MissingTokenError: there is no token for a placeholder, or one that cannot be sent; names the token, never its
            value.
    """

    def token_of(name: str, header: str) -> str:
        value = tokens.get(name, "").strip()
        if not value:
            raise MissingTokenError(name, header)
        if _UNSENDABLE.search(value):
            raise UnusableTokenError(name, header)
        return value

    return {
        header: _PLACEHOLDER.sub(lambda match, header=header: token_of(match.group(1).strip(), header), value)
        for header, value in template.items()
    }


def claimed_by(server: str, template: Mapping[str, str]) -> frozenset[str]:
    """The names of the tokens that are meant for a server: its own, and those in its ``headers_template``."""
    return frozenset((server, *(name for value in template.values() for name in placeholders(value))))


def tokens_for(server: str, template: Mapping[str, str], tokens: Mapping[str, str]) -> Mapping[str, str]:
    """The tokens by the names in a template; one that waits for a single token may get it under the server's name.

    Args:
        server: the server's name in the configuration.
        template: its ``headers_template``.
        tokens: the request's tokens, by placeholder or by server.
    """
    names = set(claimed_by("", template) - {""})
    own = {name: tokens[name] for name in names if name in tokens}
    if not own and len(names) == 1 and server in tokens:
        return {names.pop(): tokens[server]}
    return own


def secrets_of(template: Mapping[str, str], tokens: Mapping[str, str]) -> tuple[str, ...]:
    """What must not come back in a text: every token, and the keys that the template itself spells out."""
    found = {value.strip() for value in tokens.values()}
    for header, value in template.items():
        if is_secret_name(header) and not placeholders(value):
            # "Bearer abc" is a scheme and a key; either may be echoed.
            found |= {value.strip(), value.strip().rpartition(" ")[2]}
    return tuple(sorted(found - {""}, key=len, reverse=True))


def keys_of(headers: Mapping[str, str]) -> tuple[str, ...]:
    """What must not come back of the headers that a configuration spells out; words that say nothing are no keys."""
    return tuple(secret for secret in secrets_of(headers, {}) if len(secret) >= _KEY_CHARS)


def redacted(text: str, secrets: Iterable[str]) -> str:
    """``text`` with every secret replaced, also where it is spelled for an address, for JSON or in base64."""
    spellings = {spelling for secret in secrets if secret.strip() for spelling in _spellings(secret.strip())}
    if not spellings:
        return text
    # The longest first: what contains another secret goes as a whole.
    pattern = "|".join(re.escape(spelling) for spelling in sorted(spellings, key=len, reverse=True))
    return re.sub(pattern, REDACTED, text)


def _spellings(secret: str) -> Iterable[str]:
    data = secret.encode("utf-8", "replace")
    yield from (secret, quote(secret, safe=""), quote(secret), quote_plus(secret))
    yield from (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    encoded = base64.b64encode(data).decode()
    # Of short secrets base64 is too short to mean anything.
    if len(secret) >= 6:
        yield from (encoded, encoded.rstrip("="), encoded.translate(str.maketrans("+/", "-_")))
