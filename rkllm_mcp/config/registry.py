"""Servers of the MCP registry: a dated copy of a few, shipped with the release, and the reader of the registry's lists.

The copy is ``registry.json``, in the shape of the registry's ``/v0/servers``, with its date and origin.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rkllm_mcp.messages import as_list, as_mapping

# Programs that run a package, and how they write its version.
_RUNNERS: Mapping[str, tuple[tuple[str, ...], str]] = {"npm": (("npx", "-y"), "@"), "pypi": (("uvx",), "==")}
_UNNAMELY = re.compile(r"[^A-Za-z0-9._-]+")
# What a package's name and version are made of; they become words of a command.
_IDENTIFIER = re.compile(r"@?[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?", re.ASCII)
_VERSION = re.compile(r"[0-9][\w.+-]*", re.ASCII)
_LONGEST = 300


@dataclass(frozen=True)
class RegistryValue:
    """A header or an environment variable that a server wants."""

    name: str
    description: str = ""
    is_required: bool = False
    is_secret: bool = False


@dataclass(frozen=True)
class RegistryServer:
    """A server of the registry, with one way to reach it."""

    name: str  # of the registry, such as io.github.owner/server
    short: str  # a name for the configuration
    title: str
    description: str
    version: str
    url: str = ""  # of a remote server
    headers: tuple[RegistryValue, ...] = ()  # that the remote server wants
    command: str = ""  # what runs on the board; empty for a remote server, or if no package of it can be run
    environment: tuple[RegistryValue, ...] = ()  # that the command wants


@dataclass(frozen=True)
class RegistryList:
    """Servers of the registry."""

    date: str = ""  # of the copy
    origin: str = ""  # of the copy
    servers: tuple[RegistryServer, ...] = ()
    cursor: str = ""  # of the next page; empty at the end


@cache
def registry_copy() -> RegistryList:
    """Return the dated copy."""
    content = json.loads(Path(__file__).with_name("registry.json").read_text("utf-8"))
    return RegistryList(content["date"], content["origin"], read_servers(content))


def matching(servers: Iterable[RegistryServer], words: str) -> list[RegistryServer]:
    """Return the servers whose names, titles and descriptions contain every word, ignoring the case."""
    lowered = words.lower().split()
    texts = ((server, f"{server.name} {server.title} {server.description}".lower()) for server in servers)
    return [server for server, text in texts if all(word in text for word in lowered)]


def read_servers(content: Any) -> tuple[RegistryServer, ...]:
    """Read a list of the registry; entries that say nothing usable are left out."""
    servers: list[RegistryServer] = []
    for entry in map(as_mapping, as_list(as_mapping(content).get("servers"))):
        # Older lists have the server itself where newer ones have it next to ``_meta``.
        server = as_mapping(entry.get("server")) or entry
        official = as_mapping(as_mapping(entry.get("_meta")).get("io.modelcontextprotocol.registry/official"))
        name = _text(server, "name")
        if not name or official.get("status") == "deleted":
            continue
        url, command = "", ""
        headers: tuple[RegistryValue, ...] = ()
        environment: tuple[RegistryValue, ...] = ()
        for remote in map(as_mapping, as_list(server.get("remotes"))):
            address = _text(remote, "url")
            # An address with a variable is none that could be filled in.
            is_web = address.startswith(("https://", "http://")) and "{" not in address
            if is_web and remote.get("type") == "streamable-http":
                url, headers = address, _values(remote.get("headers"))
                break
        for package in map(as_mapping, as_list(server.get("packages")) if not url else ()):
            runner = _RUNNERS.get(_text(package, "registryType"))
            identifier, version = _text(package, "identifier"), _text(package, "version")
            is_local = as_mapping(package.get("transport")).get("type", "stdio") == "stdio"
            is_named = _IDENTIFIER.fullmatch(identifier) and _VERSION.fullmatch(version)
            if runner is None or not is_local or not is_named:
                continue
            words = [*runner[0], f"{identifier}{runner[1]}{version}"]
            # The arguments that have a value or must have one, which the reader of the command fills in.
            for argument in map(as_mapping, as_list(package.get("packageArguments"))):
                value = _text(argument, "value")
                if value or argument.get("isRequired") is True:
                    words += filter(None, [_text(argument, "name")])
                    words.append(value or (_text(argument, "valueHint") or "VALUE").upper())
            command, environment = shlex.join(words), _values(package.get("environmentVariables"))
            break
        short = _UNNAMELY.sub("-", name.rpartition("/")[2]).strip("-.")[:64] or "server"
        title = _text(server, "title") or name.rpartition("/")[2]
        about = title, _text(server, "description"), _text(server, "version")
        servers.append(RegistryServer(name, short, *about, url, headers, command, environment))
    return tuple(servers)


def next_cursor(content: Any) -> str:
    """Return the cursor of the next page; empty at the end."""
    metadata = as_mapping(as_mapping(content).get("metadata"))
    return _text(metadata, "nextCursor") or _text(metadata, "next_cursor")


def _values(entries: Any) -> tuple[RegistryValue, ...]:
    return tuple(
        RegistryValue(
            _text(entry, "name"),
            _text(entry, "description"),
            entry.get("isRequired") is True,
            entry.get("isSecret") is True,
        )
        for entry in map(as_mapping, as_list(entries))
        if _text(entry, "name")
    )


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    return " ".join(value.split())[:_LONGEST] if isinstance(value, str) else ""
