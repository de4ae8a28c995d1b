"""A wish that this version cannot grant is said; one that protects somebody is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_mcp.availability import ineffective, refuse_unprotected, unavailable_transport
from rkllm_mcp.config import Config, load_config
from rkllm_mcp.errors import ConfigError, ServerUnavailableError
from rkllm_mcp.tools.lines import LastLines
from rkllm_mcp.tools.servers import ServerSpec
from rkllm_mcp.tools.transports import open_channel

SERVER = '[[servers]]\nname = "x"\ncommand = "/usr/bin/true"\n'


def config_of(folder: Path, text: str) -> Config:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return load_config(path)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[security]\napprove = "always"\n', "security.approve"),
        ("[security]\nsandbox = true\n", "security.sandbox"),
        (f'{SERVER}approve = "always"\n', "servers[0].approve"),
        (f"{SERVER}sandbox = true\n", "servers[0].sandbox"),
        (f'[security]\nallowed_commands = ["npx"]\n{SERVER}', "servers[0].command"),
    ],
)
def test_a_protection_that_is_not_there_is_refused(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        refuse_unprotected(config_of(tmp_path, text))
    assert caught.value.key == key


def test_another_program_of_an_allowed_name_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "true"
    other.write_text("#!/bin/sh\n", encoding="utf-8")
    other.chmod(0o755)
    text = f'[security]\nallowed_commands = ["true"]\n[[servers]]\nname = "x"\ncommand = "{other}"\n'
    with pytest.raises(ConfigError) as caught:
        refuse_unprotected(config_of(tmp_path, text))
    assert caught.value.key == "servers[0].command"


@pytest.mark.parametrize(
    "text",
    [
        "",
        f'[security]\nallowed_commands = ["true"]\n{SERVER}',
        f'[security]\nallowed_commands = ["/usr/bin/true"]\n{SERVER}',
        f"{SERVER}sandbox = true\nenabled = false\n",
    ],
)
def test_what_holds_is_not_refused(tmp_path: Path, text: str) -> None:
    refuse_unprotected(config_of(tmp_path, text))


def test_other_wishes_are_named_and_have_no_effect(tmp_path: Path) -> None:
    config = config_of(tmp_path, f'[model]\nprompt_cache = true\n{SERVER}lazy = true\nsystem_instruction = "Hi"\n')
    assert ineffective(config) == [
        "model.prompt_cache is not available in this version and has no effect",
        "servers[0].lazy is not available in this version and has no effect",
        "servers[0].system_instruction is not available in this version and has no effect",
    ]
    assert ineffective(config_of(tmp_path, "")) == []


def test_the_doctor_knows_the_transports_that_servers_are_reached_over(tmp_path: Path) -> None:
    servers = config_of(
        tmp_path,
        SERVER
        + '[[servers]]\nname = "h"\nurl = "http://h/mcp"\n'
        + '[[servers]]\nname = "s"\nurl = "http://h/sse"\ntransport = "sse"\n'
        + '[[servers]]\nname = "w"\nurl = "ws://h/mcp"\n',
    ).servers
    assert [unavailable_transport(server) for server in servers] == [
        "",
        "",
        "",
        "transport 'websocket' is not available in this version",
    ]
    for server in servers:
        spec = ServerSpec(server.name, server.transport)
        if unavailable_transport(server):
            with pytest.raises(ServerUnavailableError):
                open_channel(spec, LastLines())
        else:
            open_channel(spec, LastLines())
