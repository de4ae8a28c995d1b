"""``--token NAME``: the secrets that servers want of the one who asks, without a place where others read them.

    NAME        $RKLLM_MCP_TOKEN_NAME, else what the person at the terminal types unseen
    NAME=@FILE  what the file holds

Rules: a value on the command line is refused, because every user of the machine sees command lines. Tokens live as long
as the command; nothing here writes or shows one.
"""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.questions import somebody_is_there

PREFIX = "RKLLM_MCP_TOKEN_"
_UNUSUAL = re.compile(r"[^A-Za-z0-9]+")


def read_tokens(
    words: Sequence[str], env: Mapping[str, str] = os.environ, ask: Callable[[str], str] | None = None
) -> dict[str, str]:
    """The tokens by name.

    Args:
        words: what was said behind each ``--token``.
        env: the environment.
        ask: asks a person, who types unseen; the one at the terminal when None.

    Raises:
        UsageError: a token cannot be had, or its value stands on the command line.
    """
    return dict(_token(word, env, ask or _typed) for word in words)


def variable_of(name: str) -> str:
    """The environment variable that holds a token: capitals, and one ``_`` for whatever else is in the name."""
    return PREFIX + _UNUSUAL.sub("_", name).strip("_").upper()


def _token(word: str, env: Mapping[str, str], ask: Callable[[str], str]) -> tuple[str, str]:
    name, equals, place = word.partition("=")
    if not name:
        raise UsageError("--token needs the name of a token; write --token NAME")
    if equals and not place.startswith("@"):
        raise UsageError(
            f"others on this machine could read the token '{name}' on the command line; "
            f"set {variable_of(name)} and write --token {name}, or put it into a file and write --token {name}=@FILE"
        )
    value = _file(name, place[1:]) if equals else env.get(variable_of(name)) or ask(name)
    if not value.strip():
        raise UsageError(f"the token '{name}' is empty; give it in {variable_of(name)} or with --token {name}=@FILE")
    return name, value.strip()


def _file(name: str, place: str) -> str:
    path = Path(place).expanduser()
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"the token '{name}' cannot be read from {path} ({reason}); correct the path") from None


def _typed(name: str) -> str:
    if somebody_is_there():
        try:
            return getpass.getpass(f"Token '{name}' (not shown): ")
        except EOFError:
            pass
    raise UsageError(f"there is no token '{name}'; set {variable_of(name)}, or write --token {name}=@FILE")
