"""``{"mcpServers": {NAME: {...}}}`` of Claude Desktop and other hosts -> ``[[servers]]``.

Rules: an entry may use the keys of other hosts and of this project; keys of other hosts without a meaning here are
dropped, unknown ones are reported. An unknown key that seems to restrict the server is an error, because its author
relies on it. Unknown keys in ``[[servers]]`` are left for the later check. A ``timeout`` of 1000 and more is in
milliseconds, as in most hosts, and below that in seconds. In ``headers`` environment variables are filled in; any other
``${name}`` stays a placeholder.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rkllm_mcp.config.expansion import expand_known, is_list, is_table
from rkllm_mcp.config.servers import SERVER_KEYS, TYPE_OF, transport_of
from rkllm_mcp.errors import ConfigError, did_you_mean

# Other keys of these hosts' files and entries; none of them changes the available tools.
FOREIGN_TOP_KEYS = frozenset({"$schema", "globalShortcut", "preferences", "inputs", "scale", "locale", "theme"})
FOREIGN_ENTRY_KEYS = frozenset({
    "$schema", "autoStart", "color", "comment", "description", "gallery", "icon", "id", "note", "title", "trust",
    "version",
})  # fmt: skip
# Our transport -> its spellings, in lower case and without separators.
_TRANSPORTS: Mapping[str, tuple[str, ...]] = {
    "stdio": ("stdio", "local"),
    "http": ("http", "https", "streamablehttp", "httpstream", "remote"),
    "sse": ("sse", "httpsse"),
    "websocket": ("ws", "wss", "websocket"),
    "builtin": ("builtin",),
    "openapi": ("openapi",),
}
_TRANSPORT_OF = {spelling: ours for ours, spellings in _TRANSPORTS.items() for spelling in spellings}
MILLISECONDS_FROM = 1000
# Names of keys that restrict a server or its tools.
_RESTRICTS = re.compile(
    r"allow|approv|block|confirm|deny|denied|disable|exclu|forbid|permission|permit|read_?only|restrict|sandbox"
    r"|whitelist|blacklist|enabled_?tools",
    re.IGNORECASE,
)
_RESTRICTIONS = "sandbox, allowed_tools, excluded_tools, approve, always_ask or disabled"


@dataclass
class Entry:
    """One server as a table of ours, with the names in the file for error messages."""

    table: dict[str, Any]  # keys of ``[[servers]]``
    label: str  # position, such as ``mcpServers.weather`` or ``servers[1]``
    written: dict[str, str] = field(default_factory=dict[str, str])  # our key -> the key in the file
    remark: str = ""  # a line about the keys without a meaning here


def _convert(key: str, value: Any, env: Mapping[str, str]) -> Any:
    """Return a value as our key has it: ``disabled`` reversed, milliseconds in seconds, headers as a table."""
    if key == "disabled" and isinstance(value, bool):
        return not value
    if key == "timeout" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return value / 1000 if value >= MILLISECONDS_FROM else float(value)
    if key != "headers":
        return value
    headers = value
    if is_list(value):
        headers = dict[str, Any]()
        for item in value:
            if isinstance(item, str):
                name, _, text = item.partition(":")
                headers[name.strip()] = text.strip()
            elif is_table(item):
                headers[str(item.get("name", item.get("key", "")))] = item.get("value")
            else:
                headers[str(item)] = None
    if not is_table(headers):
        return headers
    return {name: expand_known(text, env) if isinstance(text, str) else text for name, text in headers.items()}


# Our key -> the keys of other hosts.
_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "transport": ("type",),
    "headers_template": ("headers",),
    "enabled": ("disabled",),
    "timeout_s": ("timeout",),
    "always_allow": ("alwaysAllow", "autoApprove"),
    "allowed_tools": ("allowedTools", "includeTools", "enabledTools", "enabled_tools"),
    "excluded_tools": ("excludedTools", "excludeTools", "disabledTools", "disabled_tools"),
    "url": ("serverUrl", "httpUrl"),
    "inherit_env": ("inheritEnv",),
}
_KEYS = {theirs: ours for ours, spellings in _SPELLINGS.items() for theirs in spellings}
# Keys of an entry that have a meaning here, in other hosts' format or ours.
KNOWN_KEYS = frozenset({*SERVER_KEYS, *_KEYS})


def entries_of(raw: Mapping[str, Any], env: Mapping[str, str], source: str) -> list[Entry]:
    """Return all servers of a file in our format, ``servers`` first; a ConfigError for a wrong type or transport."""
    entries: list[Entry] = []
    ours = raw.get("servers", [])
    if is_list(ours):
        for index, item in enumerate(ours):
            label = f"servers[{index}]"
            if not is_table(item):
                raise ConfigError(source, label, f"{item!r}", "a table is allowed, with name and command or url")
            entries.append(Entry(dict(item), label))
            _set_transport(entries[-1], source)
    elif is_table(ours):
        entries += _theirs("servers", ours, env, source)
    else:
        raise ConfigError(
            source, "servers", f"{ours!r}", "a list of tables is allowed: [[servers]] with name and command or url"
        )
    theirs = raw.get("mcpServers", {})
    if not is_table(theirs):
        raise ConfigError(source, "mcpServers", f"{theirs!r}", 'an object is allowed: {"NAME": {"command": "…"}}')
    return [*entries, *_theirs("mcpServers", theirs, env, source)]


def _theirs(top: str, servers: Mapping[str, Any], env: Mapping[str, str], source: str) -> list[Entry]:
    entries: list[Entry] = []
    if top == "servers" and {"name", "command", "url"} & {key for key in servers if isinstance(servers[key], str)}:
        raise ConfigError(source, top, "a table of one server", "write [[servers]], with two brackets, above each")
    for name, item in servers.items():
        label = f"{top}.{name}"
        if not is_table(item):
            raise ConfigError(source, label, f"{item!r}", "an object is allowed, with command or url")
        entry = Entry({"name": name}, label)
        for key, value in item.items():
            if key in FOREIGN_ENTRY_KEYS or key.startswith(("_", "//")):
                continue
            ours = _KEYS.get(key, key)
            if ours in entry.written:
                advice = f"'{entry.written[ours]}' is there; keep one of the two"
                raise ConfigError(source, f"{label}.{key}", "a second spelling of one key", advice)
            entry.table[ours] = _convert(key, value, env)
            entry.written[ours] = key
        if entry.table.get("command") == "" and "url" in entry.table:
            del entry.table["command"]  # some hosts write an empty command in addition to a url
        _set_transport(entry, source)
        fields = TYPE_OF[entry.table["transport"]].model_fields
        ignored = [entry.written[key] for key in entry.table if key not in fields]
        # An unknown key that restricts the server would have no effect, unless it is switched off.
        for key in ignored:
            if key not in KNOWN_KEYS and _RESTRICTS.search(key) and entry.table[key]:
                problem = "an unknown restriction that would have no effect"
                raise ConfigError(source, f"{label}.{key}", problem, f"use {_RESTRICTIONS} instead, or remove it")
        if ignored:
            names = ", ".join(f"'{key}'" for key in ignored)
            what = f"ignored, as they mean nothing here: {names}; remove them, or correct their names"
            entry.remark = f"{label}: {what}"
        entry.table = {key: value for key, value in entry.table.items() if key in fields}
        entries.append(entry)
    return entries


def _set_transport(entry: Entry, source: str) -> None:
    """Write the transport in our spelling; if missing, derive it from the other keys."""
    transport = entry.table.get("transport")
    if transport is None:
        implied = transport_of(entry.table)
        if implied is None:
            # A misspelt key that determines the type of server is named here; no later check would name it.
            for key in entry.table:
                hint = did_you_mean(key, SERVER_KEYS)
                if key not in SERVER_KEYS and hint:
                    where = f"{entry.label}.{entry.written.get(key, key)}"
                    raise ConfigError(source, where, "an unknown key", f"known are {', '.join(SERVER_KEYS)}{hint}")
            needed = "a server needs one of them, or 'tools' or 'openapi_spec'"
            raise ConfigError(source, entry.label, "neither 'command' nor 'url'", needed)
        if implied == "http" and str(entry.table["url"]).startswith(("ws://", "wss://")):
            implied = "websocket"
        entry.table["transport"] = implied
        return
    spelling = str(transport).lower().replace("-", "").replace("_", "").replace(" ", "").replace("+", "")
    if not isinstance(transport, str) or spelling not in _TRANSPORT_OF:
        key = entry.written.get("transport", "transport")
        close = difflib.get_close_matches(spelling, _TRANSPORT_OF, n=1)
        hint = f"; did you mean '{_TRANSPORT_OF[close[0]]}'?" if close else ""
        raise ConfigError(
            source, f"{entry.label}.{key}", repr(transport), f"allowed are {', '.join(_TRANSPORTS)}{hint}"
        )
    entry.table["transport"] = _TRANSPORT_OF[spelling]
