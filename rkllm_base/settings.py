"""Values that people write into files and environment variables: TOML, and the words for on and off."""

from __future__ import annotations

import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TOMLDecodeError = tomllib.TOMLDecodeError


def parse_toml(text: str | bytes) -> dict[str, Any]:
    """Return the table of a TOML text; of bytes a mark of the byte order may come first.

    Raises TOMLDecodeError, or UnicodeDecodeError for bytes that are not UTF-8.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig")
    # A lone carriage return is not valid TOML, but CRLF of a file edited on Windows is accepted.
    return tomllib.loads(text.replace("\r\n", "\n"))


_SWITCH = {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(("0", "false", "no", "off"), False)}


def read_switch(text: str) -> bool | None:
    """Return what a word for on or off says, such as true or no; None for other words."""
    return _SWITCH.get(text.strip().lower())
