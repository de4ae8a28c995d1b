"""Lists of the MCP registry: the copy of the release, and what others may send."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from rkllm_mcp.config import registry
from rkllm_mcp.config.registry import RegistryServer, matching, next_cursor, read_servers, registry_copy


def test_the_copy_is_small_dated_says_its_origin_and_every_entry_can_be_used() -> None:
    path = Path(registry.__file__).with_name("registry.json")
    assert path.stat().st_size <= 60_000
    copy = registry_copy()
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", copy.date)
    assert "the registry itself was not asked" in copy.origin
    assert len(copy.servers) == len(json.loads(path.read_text("utf-8"))["servers"]) > 10
    assert len({server.name for server in copy.servers}) == len(copy.servers)
    for server in copy.servers:
        assert bool(server.url) != bool(server.command), server.name
        assert server.description, server.name
    assert [server.short for server in matching(copy.servers, "Search BRAVE")] == ["brave-search-mcp-server"]
    assert matching(copy.servers, "") == list(copy.servers)


def one(server: dict[str, Any], **entry: Any) -> RegistryServer:
    (found,) = read_servers({"servers": [{"server": {"name": "com.example/it", **server}, **entry}]})
    return found


def test_a_server_has_an_address_or_a_command_and_what_it_wants() -> None:
    remote = {"type": "streamable-http", "url": "https://x.example/mcp", "headers": [{"name": "X", "isRequired": True}]}
    found = one({"title": " The \n one ", "remotes": [{"type": "sse", "url": "https://old.example"}, remote]})
    assert (found.short, found.title, found.url, found.command) == ("it", "The one", "https://x.example/mcp", "")
    assert [(value.name, value.is_required, value.is_secret) for value in found.headers] == [("X", True, False)]
    package = {
        "registryType": "npm",
        "identifier": "@x/y",
        "version": "1.2.3",
        "packageArguments": [
            {"type": "positional", "value": "a b; rm"},
            {"type": "named", "name": "--to", "isRequired": True, "valueHint": "folder"},
            {"type": "named", "name": "--never"},
        ],
        "environmentVariables": [{"name": "KEY", "isSecret": True}],
    }
    found = one({"packages": [{"registryType": "oci", "identifier": "x"}, package]})
    assert shlex.split(found.command) == ["npx", "-y", "@x/y@1.2.3", "a b; rm", "--to", "FOLDER"]
    assert [value.name for value in found.environment] == ["KEY"]


@pytest.mark.parametrize(
    "server",
    [
        {"packages": [{"registryType": "npm", "identifier": "x; rm -rf ~", "version": "1"}]},
        {"packages": [{"registryType": "npm", "identifier": "x", "version": "latest"}]},
        {"packages": [{"registryType": "npm", "identifier": "x", "version": "1", "transport": {"type": "sse"}}]},
        {"packages": [{"registryType": "pypi", "identifier": "--index-url", "version": "1"}]},
        {"remotes": [{"type": "streamable-http", "url": "javascript:alert(1)"}]},
        {"remotes": [{"type": "streamable-http", "url": "https://{tenant}.example/mcp"}]},
        {"packages": "x", "remotes": {"url": 1}, "title": 4},
    ],
)
def test_what_cannot_be_used_has_neither_address_nor_command(server: dict[str, Any]) -> None:
    found = one(server)
    assert (found.url, found.command) == ("", "")


def test_any_answer_is_read_without_an_error() -> None:
    answers: tuple[Any, ...] = (None, [], {}, {"servers": None}, {"servers": [1, None, {}, {"server": {"name": 3}}]})
    for content in answers:
        assert read_servers(content) == ()
        assert next_cursor(content) == ""
    official = "io.modelcontextprotocol.registry/official"
    gone = {"server": {"name": "a/b"}, "_meta": {official: {"status": "deleted"}}}
    assert read_servers({"servers": [gone]}) == ()
    # Older lists have no ``server`` around it.
    assert [found.name for found in read_servers({"servers": [{"name": "a/b"}]})] == ["a/b"]
    assert [next_cursor({"metadata": {name: "n"}}) for name in ("nextCursor", "next_cursor")] == ["n", "n"]
