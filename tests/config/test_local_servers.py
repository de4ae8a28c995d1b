"""The keys of servers without a process: what is taken, what is refused, and what the tools layer is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_mcp.board.system import device_state
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.sections import Config
from rkllm_mcp.config.servers import OWN_TOOLS, BuiltinServer, BuiltinTool, OpenAPIServer
from rkllm_mcp.diagnostics.doctor import config_warnings
from rkllm_mcp.errors import ConfigError


def config_of(folder: Path, text: str) -> Config:
    path = folder / "config.toml"
    path.write_text(f'[[servers]]\nname = "s"\n{text}', encoding="utf-8")
    return load_config(path, env={})


def test_a_misspelt_key_of_a_tool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'entry_point'"):
        config_of(tmp_path, 'tools = [{ name = "clock", entrypoint = "a:b" }]\n')


def test_a_tool_that_nothing_runs_costs_that_tool_and_not_the_file(tmp_path: Path) -> None:
    # The definition that the mission's document describes: name, description and input_schema.
    tools = """
transport = "builtin"
[[servers.tools]]
name = "current_time"
description = "The present time"
input_schema = { type = "object", properties = { timezone = { type = "string" } }, required = [] }
[[servers.tools]]
name = "t"
entry_point = "no colon"
[[servers.tools]]
name = "clock"
"""
    assert config_warnings(config_of(tmp_path, tools))[-3:-1] == [
        "Server 's': tool 'current_time' is left out: it has no entry_point; name its function, or call it one of "
        + ", ".join(OWN_TOOLS),
        "Server 's': tool 't' is left out: its entry_point is 'no colon'; write package.module:function",
    ]


def test_built_in_tools_reach_the_tools_layer_with_a_way_to_look_at_the_machine(tmp_path: Path) -> None:
    config = config_of(
        tmp_path,
        'tools = [{ name = "clock" }, { name = "t", entry_point = "a.b:c", description = "T", read_only = true }]\n',
    )
    (spec,) = config.resolved_servers()
    assert isinstance(spec, BuiltinServer)
    assert spec.tools == (
        BuiltinTool(name="clock"),
        BuiltinTool(name="t", description="T", entry_point="a.b:c", read_only=True),
    )
    assert "memory" in dict(device_state())


@pytest.mark.parametrize(
    ("value", "settled"),
    [
        ('"api.yaml"', "{folder}/api.yaml"),
        ('"https://h/api.json"', "https://h/api.json"),
        ("'{\"paths\": {}}'", '{"paths": {}}'),
        ('"openapi: 3.1.0\\npaths: {}\\n"', "openapi: 3.1.0\npaths: {}\n"),
    ],
)
def test_a_specification_is_a_path_an_address_or_a_text(tmp_path: Path, value: str, settled: str) -> None:
    config = config_of(tmp_path, f'openapi_spec = {value}\nheaders_template = {{ A = "${{b}}" }}\ninclude = ["x"]\n')
    (spec,) = config.resolved_servers()
    assert isinstance(spec, OpenAPIServer)
    assert spec.openapi_spec == settled.replace("{folder}", str(tmp_path))
    assert (spec.headers_template, spec.include, spec.exclude) == ({"A": "${b}"}, ("x",), ())


@pytest.mark.parametrize(
    ("entry", "seconds"),
    [
        ('command = "x"', 60.0),
        ('url = "http://x/"', 30.0),
        ('url = "http://x/"\ntransport = "sse"', 60.0),
        ('url = "ws://x/"\ntransport = "websocket"', 60.0),
        ("tools = []", 10.0),
        ('openapi_spec = "x.json"', 30.0),
        ('command = "x"\ntimeout_s = 5', 5.0),
    ],
)
def test_each_transport_has_its_own_time_limit(entry: str, seconds: float, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(f'[[servers]]\nname = "s"\n{entry}\n', "utf-8")
    (server,) = load_config(path).servers
    assert server.timeout_s == seconds
