from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rkllm_mcp.app.settings import unsupported_settings
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.sections import Config
from rkllm_mcp.config.servers import RemoteServer, StdioServer
from rkllm_mcp.errors import ConfigError


def load(folder: Path, servers: dict[str, Any], env: dict[str, str] | None = None, **beside: Any) -> Config:
    path = folder / "claude_desktop_config.json"
    path.write_text(json.dumps({"mcpServers": servers, **beside}), "utf-8")
    return load_config(path, env=env or {})


def test_a_claude_desktop_file_is_read_as_it_is(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        {
            "files": {
                "command": "npx",
                "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/user"],
                "env": {"KEY": "${KEY:-none}"},
                "cwd": "/srv",
                "disabled": False,
                "timeout": 60000,
                "alwaysAllow": ["read_file"],
                "allowedTools": ["read_file", "write_file"],
                "excludedTools": ["write_file"],
                "description": "told to people",
                "_comment": "likewise",
            }
        },
        globalShortcut="",
    )
    assert config.servers == (
        StdioServer(
            name="files",
            command="npx",
            args=("-y", "@modelcontextprotocol/server-filesystem", "/home/user"),
            env={"KEY": "none"},
            cwd=Path("/srv"),
            timeout_s=60.0,
            always_allow=("read_file",),
            allowed_tools=("read_file", "write_file"),
            excluded_tools=("write_file",),
        ),
    )


@pytest.mark.parametrize(
    ("spelling", "transport"),
    [
        ("http", "http"),
        ("HTTP", "http"),
        ("streamable-http", "http"),
        ("streamable_http", "http"),
        ("streamableHttp", "http"),
        ("sse", "sse"),
        ("SSE", "sse"),
    ],
)
@pytest.mark.parametrize("key", ["type", "transport"])
def test_transports_are_understood_in_any_common_spelling(
    tmp_path: Path, key: str, spelling: str, transport: str
) -> None:
    (server,) = load(tmp_path, {"s": {key: spelling, "url": "https://h/mcp"}}).servers
    assert server == RemoteServer(name="s", transport=transport, url="https://h/mcp")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "entry", [{"url": "wss://h/x"}, {"url": "ws://h/x", "type": "ws"}, {"url": "ws://h/x", "transport": "WebSocket"}]
)
def test_websocket_is_understood_by_its_address_or_name(tmp_path: Path, entry: dict[str, str]) -> None:
    (server,) = load(tmp_path, {"s": entry}).servers
    assert server.transport == "websocket"


@pytest.mark.parametrize(
    "headers",
    [
        {"A": "Bearer ${SET}", "B": "${later}"},
        ["A: Bearer ${SET}", "B: ${later}"],
        [{"name": "A", "value": "Bearer ${SET}"}, {"name": "B", "value": "${later}"}],
    ],
)
def test_headers_come_as_a_table_or_a_list(tmp_path: Path, headers: Any) -> None:
    (server,) = load(tmp_path, {"s": {"url": "http://h/mcp", "headers": headers}}, {"SET": "token"}).servers
    assert isinstance(server, RemoteServer)
    assert server.headers_template == {"A": "Bearer token", "B": "${later}"}


@pytest.mark.parametrize(("timeout", "seconds"), [(60, 60.0), (999, 999.0), (1000, 1.0), (30000, 30.0), (2.5, 2.5)])
def test_a_timeout_from_1000_on_is_in_milliseconds(tmp_path: Path, timeout: float, seconds: float) -> None:
    (server,) = load(tmp_path, {"s": {"command": "x", "timeout": timeout}}).servers
    assert server.timeout_s == seconds


def test_a_disabled_server_may_name_variables_that_are_not_set(tmp_path: Path) -> None:
    config = load(tmp_path, {"s": {"url": "${ADDRESS}", "disabled": True}})
    assert (config.active_servers, len(config.servers)) == ((), 1)


def test_the_same_shape_is_read_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "mcp_config.toml"
    path.write_text(
        '[mcpServers.time]\ncommand = "uvx"\nargs = ["mcp-server-time"]\nsystem_instruction = "Mind the time."\n'
    )
    assert load_config(path, env={}).servers == (
        StdioServer(name="time", command="uvx", args=("mcp-server-time",), system_instruction="Mind the time."),
    )


def test_what_other_hosts_keep_in_an_entry_is_named_and_ignored(tmp_path: Path) -> None:
    theirs = {"iconPath": "${EXTENSION_DIR}/icon.png", "oauth": {"clientId": "x"}, "icon": "a.png"}
    config = load(
        tmp_path,
        {
            "w": {"command": "${PYTHON}", "autoApprove": ["look"], "disabledTools": ["write"], **theirs},
            "far": {"url": "http://h/mcp", "env": {}},
            "plain": {"command": "y"},
        },
    )
    assert config.servers == (
        StdioServer(name="w", command=sys.executable, always_allow=("look",), excluded_tools=("write",)),
        RemoteServer(name="far", url="http://h/mcp"),
        StdioServer(name="plain", command="y"),
    )
    lines = list(unsupported_settings(config.with_options(model="demo")))
    assert lines == [
        "mcpServers.w: ignored, as they mean nothing here: 'iconPath', 'oauth'; remove them, or correct their names",
        "mcpServers.far: ignored, as they mean nothing here: 'env'; remove them, or correct their names",
    ]
    assert config.origin.unset == {}


def test_our_own_shape_stays_strict(tmp_path: Path) -> None:
    path = tmp_path / "mcp_config.toml"
    path.write_text('[[servers]]\nname = "w"\ncommand = "x"\niconPath = "a.png"\n')
    with pytest.raises(ConfigError, match=r"servers\[0\].iconPath: found an unknown key"):
        load_config(path, env={})


@pytest.mark.parametrize("key", ["sandboxed", "denyTools", "requireApproval", "readOnly", "permissions", "disable"])
def test_a_restriction_that_would_not_hold_is_refused_unless_it_restricts_nothing(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=f"mcpServers.w.{key}: found an unknown restriction"):
        load(tmp_path, {"w": {"command": "x", key: True}})
    assert load(tmp_path, {"w": {"command": "x", key: False}}).origin.remarks == (
        f"mcpServers.w: ignored, as they mean nothing here: '{key}'; remove them, or correct their names",
    )


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ({"w": {"command": "x", "timeout": "60"}}, "mcpServers.w.timeout: found '60' (a string); a number is allowed"),
        (
            {"w": {"command": "x", "disabled": "no"}},
            "mcpServers.w.disabled: found 'no' (a string); true or false is allowed",
        ),
        ({"w": 3}, "mcpServers.w: found 3; an object is allowed, with command or url"),
        (
            {"w": {"command": "x", "type": "carrier"}},
            "mcpServers.w.type: found 'carrier'; allowed are stdio, http, sse, websocket, builtin, openapi",
        ),
        (
            {"w": {"command": "x", "type": "stdio", "transport": "stdio"}},
            "mcpServers.w.transport: found a second spelling of one key; 'type' is there; keep one of the two",
        ),
        (
            {"w": {"command": "x", "blockedTools": ["delete"]}},
            (
                "mcpServers.w.blockedTools: found an unknown restriction that would have no effect; "
                "use sandbox, allowed_tools, excluded_tools, approve, always_ask or disabled instead, or remove it"
            ),
        ),
    ],
)
def test_errors_name_keys_as_they_are_written(tmp_path: Path, servers: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, servers)
    assert str(caught.value) == f"{tmp_path}/claude_desktop_config.json: {expected}"
