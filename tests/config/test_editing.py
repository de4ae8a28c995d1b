from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rkllm_mcp.config import editing
from rkllm_mcp.config.editing import add_key, add_servers, remove_server, set_value
from rkllm_mcp.config.loading import read_file
from rkllm_mcp.errors import ConfigError

TOML = """\
# mine
[agent]
max_rounds = 3  # few

# the weather
[[servers]]
name = "weather"
command = "weather"

# the time
[[servers]]
name = "time"
command = "time"
[servers.env]
TZ = "UTC"

# the end
[model]
name = "demo"
"""


def test_an_added_server_leaves_the_rest_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "mcp_config.toml"
    path.write_text(TOML)
    add_servers(path, [{"name": 'new "one"', "command": "x", "args": ["a\n", "日本"], "env": {"A B": "c"}}])
    assert path.read_text() == (
        TOML + '\n[[servers]]\nname = "new \\"one\\""\ncommand = "x"\nargs = ["a\\n", "日本"]\nenv = {"A B" = "c"}\n'
    )
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_file_is_created(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config.toml"
    add_servers(path, [{"name": "a", "url": "http://h"}])
    assert path.read_text() == '[[servers]]\nname = "a"\nurl = "http://h"\n'


def test_a_removed_server_takes_its_comment_and_tables_with_it(tmp_path: Path) -> None:
    path = tmp_path / "mcp_config.toml"
    path.write_text(TOML)
    remove_server(path, "time")
    assert path.read_text() == TOML.replace(
        '# the time\n[[servers]]\nname = "time"\ncommand = "time"\n[servers.env]\nTZ = "UTC"\n\n', ""
    )
    remove_server(path, "weather")
    assert "servers" not in path.read_text()
    assert "# the weather" not in path.read_text()


def test_removing_a_missing_server_names_the_existing_ones(tmp_path: Path) -> None:
    path = tmp_path / "mcp_config.toml"
    path.write_text(TOML)
    with pytest.raises(ConfigError) as caught:
        remove_server(path, "tme")
    assert str(caught.value) == f"{path}: servers: found no server named 'tme'; there are weather, time"
    assert path.read_text() == TOML


def test_a_form_that_is_not_edited_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mcp_config.toml"
    path.write_text('servers = [{name = "a", command = "x"}]\n')
    with pytest.raises(ConfigError) as caught:
        add_servers(path, [{"name": "b", "command": "y"}])
    assert str(caught.value) == (
        f"{path}: servers: found servers written in a form that is not edited here; add this by hand:\n"
        '[[servers]]\nname = "b"\ncommand = "y"\n'
    )
    with pytest.raises(ConfigError, match="remove the server 'a' by hand"):
        remove_server(path, "a")
    assert (path.read_text(), list(tmp_path.iterdir())) == ('servers = [{name = "a", command = "x"}]\n', [path])


def test_json_keeps_the_shape_it_has(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"mcpServers": {"a": {"command": "x"}}, "agent": {"max_rounds": 3}}))
    add_servers(path, [{"name": "b", "url": "http://h"}])
    assert json.loads(path.read_text()) == {
        "mcpServers": {"a": {"command": "x"}, "b": {"url": "http://h"}},
        "agent": {"max_rounds": 3},
    }
    remove_server(path, "a")
    assert json.loads(path.read_text())["mcpServers"] == {"b": {"url": "http://h"}}


def test_edits_of_several_processes_and_threads_at_once_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "mcp_config.toml"
    path.write_text(TOML)
    program = (
        "import sys, pathlib; from rkllm_mcp.config.editing import add_server\n"
        "for n in range(8): add_server(pathlib.Path(sys.argv[1]), {'name': f'{sys.argv[2]}{n}', 'command': 'x'})"
    )
    others = [subprocess.Popen([sys.executable, "-c", program, str(path), name]) for name in ("a", "b")]
    with ThreadPoolExecutor(4) as threads:
        keys = [threads.submit(add_key, path, f"sha256:{number:064x}") for number in range(12)]
        values = [threads.submit(set_value, path, "agent", "max_rounds", number) for number in range(12)]
    assert not any(edit.exception() for edit in (*keys, *values))
    assert [other.wait(60) for other in others] == [0, 0]
    raw = read_file(path)
    assert len(raw["service"]["api_keys"]) == 12
    assert {server["name"] for server in raw["servers"]} == {
        "weather",
        "time",
        *(f"{name}{n}" for name in "ab" for n in range(8)),
    }
    assert list(tmp_path.iterdir()) == [path]


def test_an_edit_that_waits_for_ever_names_what_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editing, "_LOCK_TIMEOUT_S", 0.05)
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    try:
        with pytest.raises(ConfigError, match="another program"):
            set_value(tmp_path / "mcp_config.toml", "agent", "max_rounds", 3)
    finally:
        os.close(other)
    set_value(tmp_path / "mcp_config.toml", "agent", "max_rounds", 3)


def test_a_folder_that_cannot_be_written_is_reported_with_the_name_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    path = tmp_path / "file" / "config.toml"
    with pytest.raises(ConfigError) as caught:
        add_servers(path, [{"name": "a", "command": "b"}])
    assert (caught.value.source, caught.value.allowed) == (str(path), "choose another with --config")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", '[model]\nname = "new"\n'),
        ("[agent]\nmax_rounds = 3", '[agent]\nmax_rounds = 3\n\n[model]\nname = "new"\n'),
        ('[model] # mine\npath = "x"\n', '[model] # mine\nname = "new"\npath = "x"\n'),
        ('[model]\nname = "old"  # quick\n\n[agent]\n', '[model]\nname = "new"  # quick\n\n[agent]\n'),
        ('[model]\nname = "a # b"\n', '[model]\nname = "new"\n'),
    ],
)
def test_one_value_is_set_and_the_rest_stays_as_it_was_written(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(old)
    set_value(path, "model", "name", "new")
    assert path.read_text() == new


def test_a_value_is_set_in_json_and_refused_where_the_text_is_unusual(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model": {"name": "old", "path": "x"}}')
    set_value(path, "model", "name", "new")
    assert json.loads(path.read_text()) == {"model": {"name": "new", "path": "x"}}
    inline = tmp_path / "inline.toml"
    inline.write_text('model = {name = "old"}\n')
    with pytest.raises(ConfigError, match=r'write this under \[model\] by hand: name = "new"'):
        set_value(inline, "model", "name", "new")
    assert inline.read_text() == 'model = {name = "old"}\n'
