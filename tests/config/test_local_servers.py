"""The keys of servers without a process: what is taken, what is refused, and what the tools layer is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_mcp.board.system import device_state
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.sections import Config
from rkllm_mcp.config.servers import BuiltinServer, BuiltinTool, OpenAPIServer
from rkllm_mcp.errors import ConfigError


def config_of(folder: Path, text: str) -> Config:
    path = folder / "config.toml"
    path.write_text(f'[[servers]]\nname = "s"\n{text}', encoding="utf-8")
    return load_config(path, env={})


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ('{ name = "nonsense" }', "name: found 'nonsense' without entry_point; name what runs, or one of clock, calc"),
        ('{ name = "t", entry_point = "no colon" }', "entry_point: found 'no colon'; write package.module:function"),
        ('{ name = "clock", entrypoint = "a:b" }', "did you mean 'entry_point'?"),
    ],
)
def test_a_tool_that_nothing_runs_is_refused(tmp_path: Path, tool: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(tmp_path, f"tools = [{tool}]\n")
    assert message in str(caught.value)


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
