from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from rkllm_mcp.config.loading import load_config, search_order, shadowed_file
from rkllm_mcp.config.sections import AgentSection, Config
from rkllm_mcp.config.servers import RemoteServer, ServerBase, StdioServer
from rkllm_mcp.errors import ConfigError

REPOSITORY = Path(__file__).resolve().parents[2]
ALL_COMMON = ", ".join(ServerBase.model_fields)
ALL_OF_AGENT = ", ".join(AgentSection.model_fields)


def load(folder: Path, text: str, name: str = "mcp_config.toml", **env: str) -> Config:
    path = folder / name
    path.write_text(text, "utf-8")
    return load_config(path, env=env, cwd=folder)


def complaint(folder: Path, text: str, name: str = "mcp_config.toml", **env: str) -> str:
    """What the ConfigError says, without the folder and the line."""
    with pytest.raises(ConfigError) as caught:
        load(folder, text, name, **env)
    return re.sub(r"\.toml:\d+:", ".toml:", str(caught.value).replace(f"{folder}/", ""))


def server(line: str) -> str:
    return f'[[servers]]\nname = "a"\ncommand = "x"\n{line}\n'


def test_the_first_file_of_the_search_order_is_the_configuration(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    here, user, system = search_order(env, tmp_path)
    assert (user, system) == (tmp_path / "xdg/rkllm-mcp/config.toml", Path("/etc/rkllm-mcp/config.toml"))
    user.parent.mkdir(parents=True)
    user.write_text("[agent]\nmax_rounds = 2\n")
    assert load_config(env=env, cwd=tmp_path).agent.max_rounds == 2
    here.write_text("[agent]\nmax_rounds = 3\n")
    assert load_config(env=env, cwd=tmp_path).origin.source == here


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[agnt]\nx = 1\n",
            (
                "agnt: found an unknown key; known here are runtime, model, agent, security, service, provider, "
                "servers, "
                "tenants, store, boards, speech, mcpServers; did you mean 'agent'?"
            ),
        ),
        (
            "[agent]\nmax_round = 1\n",
            f"agent.max_round: found an unknown key; known here are {ALL_OF_AGENT}; did you mean 'max_rounds'?",
        ),
        (
            '[[servers]]\nname = "a"\ncommand = "x"\n[[servers]]\nname = "b"\ncomand = "x"\n',
            (
                f"servers[1].comand: found an unknown key; known are {ALL_COMMON}, transport, command, args, env, "
                f"inherit_env, "
                "cwd, sandbox, sandbox_read, sandbox_write, sandbox_network, url, headers_template, ca_file, auth, "
                "client_id, client_secret, scopes, issuer, redirect_uri, tools, folder, write, "
                "openapi_spec, openapi_base_url, "
                "include, exclude; "
                "did you mean 'command'?"
            ),
        ),
        (
            server("arg = []"),
            (
                f"servers[0].arg: found an unknown key; known for stdio servers are {ALL_COMMON}, transport, command, "
                f"args, "
                "env, inherit_env, cwd, sandbox, sandbox_read, sandbox_write, sandbox_network; did you mean 'args'?"
            ),
        ),
        (
            server('url = "http://x"'),
            (
                "servers[0].url: found an unknown key; it is for http, sse and websocket servers and this one is "
                "stdio; "
                "remove it, or change 'transport'"
            ),
        ),
        (
            '[[servers]]\nname = "a"\n',
            "servers[0]: found neither 'command' nor 'url'; a server needs one of them, or 'tools' or 'openapi_spec'",
        ),
        ('[[servers]]\ncommand = "x"\n', "servers[0].name: found nothing; it is required"),
        ('[agent]\nmax_rounds = "8"\n', "agent.max_rounds: found '8' (a string); a whole number is allowed"),
        ("[agent]\nmax_rounds = 0\n", "agent.max_rounds: found 0 (a number); a number above 0 is allowed"),
        ("[agent]\nmax_rounds = true\n", "agent.max_rounds: found true (a boolean); a whole number is allowed"),
        ("agent = 3\n", "agent: found 3 (a number); a table is allowed"),
        (
            '[security]\napprove = "alway"\n',
            (
                "security.approve: found 'alway' (a string); allowed are 'writes', 'dangerous', 'always' or 'never'; "
                "did you mean 'always'?"
            ),
        ),
        (
            '[runtime]\nabi = "one"\n',
            "runtime.abi: found 'one' (a string); auto, or a version such as 1.2.3, is allowed",
        ),
        ("[runtime]\ncpus = [4, -1]\n", "runtime.cpus[1]: found -1 (a number); a number from 0 on is allowed"),
        (server('args = "y"'), "servers[0].args: found 'y' (a string); a list is allowed"),
        (server('args = ["y", 3]'), "servers[0].args[1]: found 3 (a number); a string is allowed"),
        (server("env = {A = 3}"), "servers[0].env.A: found 3 (a number); a string is allowed"),
        (
            server("inherit_env = 3"),
            "servers[0].inherit_env: found 3 (a number); true, false or a list of names is allowed",
        ),
        (server("timeout_s = 0"), "servers[0].timeout_s: found 0 (a number); a number above 0 is allowed"),
        (
            server('transport = "studio"'),
            (
                "servers[0].transport: found 'studio'; allowed are stdio, http, sse, websocket, builtin, openapi; "
                "did you mean 'stdio'?"
            ),
        ),
        (
            '[[servers]]\nname = "a"\nurl = "localhost:1/mcp?key=secret"\n',
            "servers[0].url: found 'localhost:1/mcp'; http needs an address that begins with http:// or https://",
        ),
        (
            server("") + server(""),
            "servers[1].name: found 'a'; another entry has this name; give it one of its own",
        ),
        (
            '[model]\nname = "a"\npath = "/b"\n',
            "model.path: found both name = 'a' and path = '/b'; keep one of them",
        ),
        (
            '[service]\nhost = "0.0.0.0"\n',
            "service.host: found '0.0.0.0'; off loopback a key is required: 'rkllm-mcp config add-key' makes one",
        ),
        ("[provider]\napi_key = 12345\n", "provider.api_key: found 12345 (a number); a string is allowed"),
        ('[provider]\nkind = "openai"\n', "provider.model: found nothing; kind = 'openai' needs the name of a model"),
        (
            '[[tenants]]\nname = "t"\napi_key = "k"\nservers = ["x"]\n',
            "tenants[0].servers: found 'x'; no servers are configured",
        ),
        (
            "[runtime]\n[model\n",
            (
                "found a TOML error: Expected ']' at the end of a table declaration (at line 2, column 7); "
                "correct that line"
            ),
        ),
        (
            "[service]\n[service]\n",
            (
                "found a TOML error: Cannot declare ('service',) twice (at line 2, column 9); "
                "put its keys below the one above"
            ),
        ),
    ],
)
def test_an_unusable_value_is_named_with_the_allowed_ones(tmp_path: Path, text: str, expected: str) -> None:
    assert complaint(tmp_path, text) == f"mcp_config.toml: {expected}"


def test_a_file_that_is_not_text_or_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(ConfigError, match="found bytes that are not UTF-8 at offset 8; save it as UTF-8"):
        load_config(tmp_path / "bytes.toml", env={})
    with pytest.raises(ConfigError, match=r"found a file that cannot be read \(Is a directory\); name a readable file"):
        load_config(tmp_path, env={})


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_bytes(b"\xef\xbb\xbf[agent]\r\nmax_rounds = 3\r\n")
    assert load_config(tmp_path / "c.toml", env={}).agent.max_rounds == 3


def test_variables_are_filled_from_the_environment(tmp_path: Path) -> None:
    text = server('args = ["${A}-${B:-two}", "${C:-}", "$${A}", "${PYTHON}", "${not a name}", "${env:A}"]')
    (only,) = load(tmp_path, text, A="one", B="", PYTHON="/somewhere/else").servers
    assert isinstance(only, StdioServer)
    assert only.args == ("one-two", "", "${A}", sys.executable, "${not a name}", "one")


def test_a_server_that_lacks_a_variable_is_known_to_and_costs_nothing_else(tmp_path: Path) -> None:
    text = (
        '[[servers]]\nname = "a"\nurl = "${ADDRESS}/${ADDRESS}/${PATH_:-x}"\n'
        '[[servers]]\nname = "b"\ncommand = "${B}"\n'
    )
    config = load(tmp_path, text, B="b")
    assert config.origin.unset == {"a": ("ADDRESS",)}
    assert [getattr(each, "command", "") for each in config.servers] == ["", "b"]
    assert load(tmp_path, text, B="b", ADDRESS="http://h").origin.unset == {}


SERVERS = '# two\n[[servers]]\nname = "a"\ncommand = "x"\n\n[[servers]]\n"name" = "b"\ncommand = "x"\n'


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("[agent]\n\nmax_round = 1\n", "agent.max_round", 3),
        ('[model]\nname = "x"\n[agnt]\nx = 1\n', "agnt", 3),
        ("agent.max_rounds = 0\n", "agent.max_rounds", 1),
        (f'{SERVERS}comand = "y"\n', "servers[1].comand", 9),
        (f'{SERVERS}args = ["a", 3]\n', "servers[1].args[1]", 9),
        (f'{SERVERS}[servers.env]\nA = "1"\nB = 2\n', "servers[1].env.B", 11),
        (SERVERS.replace('command = "x"\n', "", 1), "servers[0]", 2),
    ],
)
def test_a_wrong_key_is_named_with_its_line(tmp_path: Path, text: str, key: str, line: int) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert (caught.value.key, caught.value.line) == (key, line)
    assert str(caught.value).startswith(f"{tmp_path}/mcp_config.toml:{line}: {key}: found ")


def test_what_comes_of_the_environment_or_of_json_has_no_line(tmp_path: Path) -> None:
    for text, name, env in (
        ("[agent]\nmax_rounds = 3\n", "a.toml", {"RKLLM_MCP_AGENT__MAX_ROUNDS": "0"}),
        ('{"agent": {"max_rounds": 0}}', "a.json", {}),
    ):
        with pytest.raises(ConfigError) as caught:
            load(tmp_path, text, name, **env)
        assert caught.value.line == 0


def test_an_unset_variable_outside_of_the_servers_is_an_error(tmp_path: Path) -> None:
    assert complaint(tmp_path, '[model]\nname = "${NAME}"\n') == (
        "mcp_config.toml: model.name: found ${NAME}, which is not set in the environment; "
        "set NAME, or write ${NAME:-default}"
    )


def test_placeholders_of_headers_stay_for_the_call(tmp_path: Path) -> None:
    text = (
        '[[servers]]\nname = "a"\nurl = "http://h/mcp"\nheaders_template = {Authorization = "Bearer ${servicenow}"}\n'
    )
    (only,) = load(tmp_path, text, servicenow="never").servers
    assert isinstance(only, RemoteServer)
    assert only.headers_template == {"Authorization": "Bearer ${servicenow}"}


@pytest.mark.parametrize("value", ["false", "0", "no", "off", "FALSE"])
def test_mcp_enabled_switches_all_tools_off(tmp_path: Path, value: str) -> None:
    config = load(tmp_path, server(""), MCP_ENABLED=value)
    assert (config.origin.mcp_enabled, config.active_servers, len(config.servers)) == (False, (), 1)


def test_mcp_enabled_must_be_a_word_for_yes_or_no(tmp_path: Path) -> None:
    assert complaint(tmp_path, "", MCP_ENABLED="maybe") == (
        "environment variable MCP_ENABLED: found 'maybe'; allowed are true and false"
    )


def test_paths_begin_in_the_folder_of_the_file(tmp_path: Path) -> None:
    text = '[runtime]\nlibrary = "lib/librkllmrt.so"\n[model]\npath = "m.rkllm"\n' + server('cwd = "."')
    config = load(tmp_path, text)
    (only,) = config.servers
    assert isinstance(only, StdioServer)
    assert (config.runtime.library, config.model.path, only.cwd) == (
        str(tmp_path / "lib/librkllmrt.so"),
        tmp_path / "m.rkllm",
        tmp_path,
    )


def test_the_environment_overrides_keys_by_their_type(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "[agent]\nmax_rounds = 5\n",
        RKLLM_MCP_AGENT__MAX_ROUNDS="3",
        RKLLM_MCP_AGENT__PARALLEL_TOOLS="yes",
        RKLLM_MCP_MODEL__NAME="qwen",
        RKLLM_MCP_MODEL__TEMPERATURE="0.5",
        RKLLM_MCP_RUNTIME__CPUS="[4, 5]",
        RKLLM_MCP_AGENT__LANGUAGE="",
        RKLLM_MCP_MODELS="/not/a/section",
    )
    assert (config.agent.max_rounds, config.agent.parallel_tools, config.model.name) == (3, True, "qwen")
    assert (config.model.model_dump()["temperature"], config.runtime.cpus, config.agent.language) == (0.5, (4, 5), None)


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("AGENT__MAX_ROUNDS", "x", "agent.max_rounds: found 'x' (a string); a whole number is allowed"),
        ("AGENT__MAX_ROUNDS", "0", "agent.max_rounds: found 0 (a number); a number above 0 is allowed"),
        (
            "RUNTIME__WORKER",
            "proces",
            "runtime.worker: found 'proces' (a string); allowed are 'process'; did you mean 'process'?",
        ),
        ("RUNTIME__CPUS", "4,5", 'found \'4,5\'; a list in JSON is allowed, such as ["a", "b"]'),
        ("RUNTIME__CPUS", "[-4]", "runtime.cpus[0]: found -4 (a number); a number from 0 on is allowed"),
        (
            "AGENT__MAX_ROUNS",
            "3",
            f"found key 'MAX_ROUNS'; the keys of agent are {ALL_OF_AGENT.upper()}; did you mean 'MAX_ROUNDS'?",
        ),
        (
            "AGNT__X",
            "3",
            (
                "found section 'AGNT'; the sections are RUNTIME, MODEL, AGENT, SECURITY, SERVICE, PROVIDER, STORE, "
                "SPEECH; did you mean 'AGENT'?"
            ),
        ),
    ],
)
def test_an_override_that_cannot_be_used_names_its_variable(
    tmp_path: Path, variable: str, value: str, expected: str
) -> None:
    name = f"RKLLM_MCP_{variable}"
    assert complaint(tmp_path, "", **{name: value}) == f"environment variable {name}: {expected}"


def test_the_command_line_overrides_model_runtime_and_tools(tmp_path: Path) -> None:
    config = load(tmp_path, '[model]\nname = "a"\n' + server(""))
    by_name = config.with_options(model="b", library="emulator", tools=False)
    assert (by_name.model.name, by_name.runtime.library, by_name.active_servers) == ("b", "emulator", ())
    by_path = config.with_options(model="/m/x.rkllm", library="/l/librkllmrt.so")
    assert (by_path.model.name, by_path.model.path, by_path.runtime.library) == (
        None,
        Path("/m/x.rkllm"),
        "/l/librkllmrt.so",
    )
    assert (by_path.origin.source, by_path.active_servers) == (config.origin.source, config.servers)


def test_the_demos_configuration_works_unchanged() -> None:
    config = load_config(REPOSITORY / "models" / "demo" / "mcp_config.toml", env={})
    assert [server.name for server in config.active_servers] == ["weather", "time", "files"]
    # The first start of a fresh clone compiles: the servers took more than the usual 3 s, and the question of README.md
    # was answered without the tool.
    assert config.agent.wait_for_servers_s >= 15


def test_the_clone_itself_has_no_configuration_that_would_hide_the_users() -> None:
    assert not (REPOSITORY / "mcp_config.toml").exists()


def test_a_project_file_hides_the_users_own_and_no_other_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"XDG_CONFIG_HOME": str(tmp_path / "home")}
    monkeypatch.chdir(tmp_path)
    local, own = tmp_path / "mcp_config.toml", tmp_path / "home" / "rkllm-mcp" / "config.toml"
    local.touch()
    assert shadowed_file(local, env) is None
    own.parent.mkdir(parents=True)
    own.touch()
    assert shadowed_file(local, env) == own
    assert (shadowed_file(own, env), shadowed_file(tmp_path / "other.toml", env), shadowed_file(None, env)) == (
        None,
    ) * 3


def test_json_is_read_where_the_name_or_the_text_says_so(tmp_path: Path) -> None:
    text = json.dumps({"agent": {"max_rounds": 2}})
    assert load(tmp_path, text, "c.json").agent.max_rounds == 2
    assert load(tmp_path, text, "config").agent.max_rounds == 2
    assert complaint(tmp_path, "{", "c.json") == (
        "c.json: found a JSON error: Expecting property name enclosed in double quotes (at line 1, column "
        "2); correct that line"
    )
    assert complaint(tmp_path, "[1]", "c.json") == (
        'c.json: found JSON that is not an object; begin with {"mcpServers": …}'
    )


def test_one_bracket_too_few_around_servers_is_recognised(tmp_path: Path) -> None:
    assert complaint(tmp_path, '[servers]\nname = "a"\ncommand = "b"\n') == (
        "mcp_config.toml: servers: found a table of one server; write [[servers]], with two brackets, above each"
    )
