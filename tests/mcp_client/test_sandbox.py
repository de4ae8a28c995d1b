"""A server in the sandbox sees what it needs, does what it may, and nothing else; run under the real bubblewrap."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from rkllm_mcp.app.tools import open_tools
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.servers import StdioServer
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.mcp_client.allowed_commands import launch_of
from rkllm_mcp.mcp_client.sandbox import SandboxFolders, arguments, cache_folder, places_of, remedy, unusable
from rkllm_mcp.messages import ToolResult
from rkllm_mcp.tools.tool_servers import open_toolbox
from rkllm_mcp.tools.toolbox import Toolbox
from tests.support.fake_jma import FakeAgency
from tests.support.mcp_servers.calling import call
from tests.support.mcp_servers.specs import PATIENCE_S, altered, local_server
from tests.support.shared import REPOSITORY
from tests.support.third_party import program

needs_bubblewrap = pytest.mark.skipif(bool(unusable()), reason=f"bubblewrap cannot be used: {unusable()}")
PROBE = ("-m", "tests.support.mcp_servers.looking")
HOST_VARIABLES = {"HOME": os.environ.get("HOME", "/root"), "PATH": os.environ["PATH"]}


def looking(**settings: Any) -> StdioServer:
    """A server that looks around; its code is in the repository, which its working folder shows it."""
    spec = local_server("looking", command=sys.executable, args=PROBE, cwd=str(REPOSITORY), sandbox=True)
    return altered(spec, connect_timeout_s=PATIENCE_S, timeout_s=PATIENCE_S, **settings)


@asynccontextmanager
async def opened(*specs: StdioServer) -> AsyncGenerator[Toolbox]:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox(specs) as toolbox:
            await toolbox.wait_until_connected()
            assert [state.reason for state in toolbox.servers()] == [""] * len(specs)
            yield toolbox


async def text(toolbox: Toolbox, name: str, /, **words: Any) -> str:
    result: ToolResult = await call(toolbox, name, **words)
    return result.text


@needs_bubblewrap
@pytest.mark.anyio
async def test_only_named_folders_are_there_and_only_some_can_be_changed(tmp_path: Path) -> None:
    for name in ("read", "write", "hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(name)
    spec = looking(sandbox_read=(tmp_path / "read",), sandbox_write=(tmp_path / "write",))
    async with opened(spec) as toolbox:
        assert await text(toolbox, "read", path=str(tmp_path / "read" / "a.txt")) == "read"
        assert await text(toolbox, "read", path=str(tmp_path / "write" / "a.txt")) == "write"
        assert "No such file" in await text(toolbox, "read", path=str(tmp_path / "hidden" / "a.txt"))
        assert "Read-only file system" in await text(toolbox, "write", path=str(tmp_path / "read" / "b.txt"))
        assert await text(toolbox, "write", path=str(tmp_path / "write" / "b.txt")) == "written"
        assert await text(toolbox, "write", path="~/note.txt") == "written"
        assert await text(toolbox, "write", path="/tmp/note.txt") == "written"
        for place in ("/usr/bin/x", "/etc/x", "/x", str(REPOSITORY / "x")):
            assert "Read-only file system" in await text(toolbox, "write", path=place), place
    assert (tmp_path / "write" / "b.txt").read_text() == "here"
    assert not (tmp_path / "read" / "b.txt").exists()
    assert not (Path(HOST_VARIABLES["HOME"]) / "note.txt").exists()


@needs_bubblewrap
@pytest.mark.anyio
async def test_home_secrets_and_other_processes_are_not_there(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    async with opened(looking(env={"HOME": str(tmp_path)})) as toolbox:
        assert await text(toolbox, "list", path="~") == "(no output)"
        assert "No such file" in await text(toolbox, "list", path=str(tmp_path / ".ssh"))
        assert "No such file" in await text(toolbox, "read", path="/etc/shadow")
        assert "No such file" in await text(toolbox, "list", path="/sys/class")
        processes = (await text(toolbox, "processes")).split(",")
        assert len(processes) <= 3
        assert all("bwrap" in process or "looking" in process for process in processes)
        devices = (await text(toolbox, "list", path="/dev")).split(",")
        assert (
            {"null", "urandom"}
            <= set(devices)
            <= {
                *("console", "core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout"),
                *("tty", "urandom", "zero"),
            }
        )
        assert await text(toolbox, "capabilities") == "0000000000000000"


@needs_bubblewrap
@pytest.mark.anyio
@pytest.mark.parametrize("network", [False, True])
async def test_the_network_is_available_only_where_the_configuration_allows_it(network: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with opened(looking(sandbox_network=network)) as toolbox:
            said = await text(toolbox, "connect", port=listener.getsockname()[1])
    assert (said == "connected") == network


@needs_bubblewrap
@pytest.mark.anyio
async def test_the_npm_filesystem_server_works_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("天気は晴れ\n", encoding="utf-8")
    command = str(program("mcp-server-filesystem"))
    spec = local_server("files", command=command, args=(str(tmp_path),), connect_timeout_s=PATIENCE_S)
    reading = altered(spec, sandbox=True, sandbox_read=(tmp_path,))
    writing = altered(spec, name="write", sandbox=True, sandbox_write=(tmp_path,))
    new = tmp_path / "new.txt"
    async with opened(reading, writing) as toolbox:
        assert await text(toolbox, "mcp__files__list_directory", path=str(tmp_path)) == "[FILE] note.txt"
        assert "EROFS" in await text(toolbox, "mcp__files__write_file", path=str(new), content="x")
        assert "Successfully" in await text(toolbox, "mcp__write__write_file", path=str(new), content="x")
    assert new.read_text() == "x"


@needs_bubblewrap
@pytest.mark.anyio
async def test_our_weather_server_and_a_server_of_a_virtual_environment_work(tmp_path: Path) -> None:
    pytest.importorskip("mcp_server_time")
    with FakeAgency() as agency:
        weather = local_server(
            "weather",
            command=sys.executable,
            args=("-m", "mcp_servers.weather"),
            env=agency.environment(tmp_path),
            sandbox=True,
            sandbox_network=True,
            connect_timeout_s=PATIENCE_S,
        )
        clock = altered(weather, name="clock", args=("-m", "mcp_server_time"), env={}, sandbox_network=False)
        async with opened(weather, clock) as toolbox:
            assert "東京" in await text(toolbox, "get_weather", location="東京")
            assert "Asia/Tokyo" in await text(toolbox, "get_current_time", timezone="Asia/Tokyo")


@needs_bubblewrap
@pytest.mark.anyio
async def test_a_missing_named_folder_is_reported_in_a_sentence(tmp_path: Path) -> None:
    spec = looking(sandbox_write=(tmp_path / "none",))
    with pytest.raises(ServerUnavailableError) as refused:
        await launch_of(spec, None)
    assert str(refused.value) == (
        f"sandbox_write names {tmp_path / 'none'}, which does not exist; create it, or correct sandbox_write"
    )
    with pytest.raises(ServerUnavailableError, match="sandbox_read names /, the whole system"):
        await launch_of(looking(sandbox_read=("/",)), None)


@needs_bubblewrap
@pytest.mark.anyio
async def test_a_missing_program_is_reported_as_missing() -> None:
    with pytest.raises(FileNotFoundError):
        await launch_of(altered(looking(), command="no-such-program"), None)


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_where_bubblewrap_may_not_work_the_sentence_says_what_allows_it(tmp_path: Path) -> None:
    for name, value, sentence in (
        ("user/max_user_namespaces", "0", "allow it with: sudo sysctl -w user.max_user_namespaces=15000"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "allow it with: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ("kernel/unprivileged_userns_clone", "0", "allow it with: sudo sysctl -w kernel.unprivileged_userns_clone=1"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{value}\n", encoding="ascii")
        assert remedy(tmp_path) == sentence
    assert "docker run" in remedy(Path("/proc/sys")) or "sysctl" in remedy(Path("/proc/sys"))
    assert "chmod u+s" in remedy(tmp_path / "nothing")


def test_without_bubblewrap_the_sentence_says_how_to_get_it(tmp_path: Path) -> None:
    assert unusable(str(tmp_path)) == (
        "the sandbox needs bubblewrap, which is not installed; sudo apt install bubblewrap,"
        " or set sandbox = false in the server's entry"
    )


def test_a_bubblewrap_that_fails_is_quoted(tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    assert unusable(str(tmp_path)).startswith(
        "the sandbox does not work on this machine (bwrap: No permissions to create new namespace); "
    )


# --- what belongs to a program ---------------------------------------------------------------------------------------


def make(path: Path, content: str = "", mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    path.chmod(mode)
    return path


def places(program: Path, home: Path, *args: str, cwd: Path | None = None) -> set[Path]:
    spec = local_server("s", command=str(program), args=args, cwd=str(cwd) if cwd else None)
    return set(places_of(spec, program, {"HOME": str(home), "PATH": f"{home}/.nvm/node/bin"}))


def test_a_virtual_environment_its_python_and_its_sources_belong_to_a_program(tmp_path: Path) -> None:
    venv = tmp_path / "project" / ".venv"
    python = make(tmp_path / "pythons" / "3.11" / "bin" / "python3.11", mode=0o755)
    make(venv / "pyvenv.cfg", f"home = {python.parent}\ninclude-system-site-packages = false\n")
    about = '{"dir_info": {"editable": true}, "url": "file:///src/my%20server"}'
    make(venv / "lib/python3.11/site-packages/s.dist-info/direct_url.json", about)
    make(venv / "lib/python3.11/site-packages/t.dist-info/direct_url.json", '{"dir_info": {}, "url": "file:///t"}')
    make(venv / "lib/python3.11/site-packages/u.dist-info/direct_url.json", "[broken")
    (venv / "bin").mkdir()
    (venv / "bin" / "python").symlink_to(python)
    expected = {venv, tmp_path / "pythons" / "3.11", Path("/src/my server")}
    assert places(venv / "bin" / "python", tmp_path, "-m", "server") == expected
    script = make(venv / "bin" / "server", f"#!{venv}/bin/python\n", 0o755)
    assert places(script, tmp_path) == expected


def test_a_node_modules_tree_and_the_node_that_its_script_names_belong_to_a_program(tmp_path: Path) -> None:
    make(tmp_path / ".nvm" / "node" / "bin" / "node", mode=0o755)
    tree = tmp_path / "servers" / "node_modules"
    script = make(tree / "server" / "dist" / "index.js", "#!/usr/bin/env node\n", 0o755)
    (tree / ".bin").mkdir()
    (tree / ".bin" / "server").symlink_to(script)
    assert places(tree / ".bin" / "server", tmp_path) == {tree, tmp_path / ".nvm" / "node"}


def test_the_project_of_a_script_and_the_working_folder_belong_to_a_program(tmp_path: Path) -> None:
    node = make(tmp_path / ".nvm" / "node" / "bin" / "node", mode=0o755)
    project = tmp_path / "work" / "server"
    make(project / "package.json")
    make(project / "dist" / "index.js")
    assert places(node, tmp_path, "dist/index.js", cwd=project) == {node.parent.parent, project}
    assert places(node, tmp_path, "--inspect", "dist/index.js", cwd=project) == {node.parent.parent, project}
    assert places(node, tmp_path, str(project / "dist" / "index.js")) == {node.parent.parent, project}
    assert places(node, tmp_path, cwd=tmp_path) == {node.parent.parent}


def test_a_script_without_a_project_brings_its_modules_and_nothing_else_of_its_folder(tmp_path: Path) -> None:
    python = make(tmp_path / "pythons" / "bin" / "python3", mode=0o755)
    folder = tmp_path / "work" / "scripts"
    script, helper = make(folder / "server.py"), make(folder / "helper.py")
    make(folder / "package" / "__init__.py")
    for name in ("mcp_config.toml", "keys.txt", ".env", "state/state.db", "tenants/a/state.db"):
        make(folder / name)
    expected = {python.parent.parent, script, helper, folder / "package"}
    assert places(python, tmp_path, str(script)) == expected


@needs_bubblewrap
@pytest.mark.anyio
async def test_configuration_and_state_are_hidden_wherever_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All of them lie in folders that the configuration names.
    folder = tmp_path / "assistant"
    state = make(folder / "state" / "oauth.json", "every tenant").parent
    common = make(folder / "xdg" / "rkllm-mcp" / "config.toml", "").parent
    make(common / "keys.toml", "more keys")
    make(folder / "notes.txt", "a note")
    monkeypatch.setenv("RKLLM_MCP_STATE", str(state))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(common.parent))
    config = folder / "mcp_config.toml"
    entry = f'command = "{sys.executable}"\nargs = {json.dumps(PROBE)}\nsandbox = true\napprove = "never"\n'
    entry += f'env = {{ PYTHONPATH = "{REPOSITORY}" }}\nsandbox_read = ["{REPOSITORY}"]\nsandbox_write = ["{folder}"]\n'
    config.write_text(f'[[servers]]\nname = "looking"\n{entry}connect_timeout_s = {PATIENCE_S}\n', "utf-8")
    with anyio.fail_after(PATIENCE_S):
        async with open_tools(load_config(config)) as opened:
            toolbox = opened.toolbox
            await toolbox.wait_until_connected()
            assert [each.reason for each in toolbox.servers()] == [""]
            assert await text(toolbox, "read", path=str(folder / "notes.txt")) == "a note"
            shown = await text(toolbox, "read", path=str(config))
            assert "looking" not in shown
            assert (await text(toolbox, "list", path=str(state))).strip() in ("", "(no output)")
            assert "state.db" not in await text(toolbox, "list", path=str(common))
            assert "more keys" not in await text(toolbox, "read", path=str(common / "keys.toml"))
    assert (state / "state.db").exists()
    assert "looking" in config.read_text("utf-8")


def test_a_named_path_inside_the_state_folder_is_hidden_as_well(tmp_path: Path) -> None:
    state = make(tmp_path / "state" / "tenants" / "a.db").parent.parent
    spec = local_server("s", sandbox=True, sandbox_read=(state / "tenants", state / "tenants" / "a.db"))
    program = make(tmp_path / "bin" / "server", mode=0o755)
    words = arguments(spec, program, HOST_VARIABLES, SandboxFolders(hidden=(state, tmp_path / "not there")))
    place = words.index("--remount-ro")
    masks = ["--tmpfs", str(state / "tenants"), "--ro-bind", "/dev/null", str(state / "tenants" / "a.db")]
    assert words[place - len(masks) : place] == masks


def test_a_whole_home_never_belongs_to_a_program(tmp_path: Path) -> None:
    uvx = make(tmp_path / ".local" / "bin" / "uvx", mode=0o755)
    uv = make(tmp_path / ".local" / "bin" / "uv", mode=0o755)
    assert places(uvx, tmp_path, "mcp-server-time") == {uvx, uv}
    own = make(tmp_path / "bin" / "server", mode=0o755)
    assert places(own, tmp_path) == {own}
    python = make(tmp_path / "python" / "bin" / "python3", mode=0o755)
    script = make(tmp_path / "server.py")
    assert places(python, tmp_path, str(script)) == {python.parent.parent, script}


def test_scripts_that_name_each_other_for_ever_come_to_an_end(tmp_path: Path) -> None:
    one, other = tmp_path / "x" / "one", tmp_path / "x" / "other"
    make(one, f"#!{other}\n", 0o755)
    make(other, f"#!{one}\n", 0o755)
    assert places(one, tmp_path) == {one, other}


def test_a_program_that_downloads_files_has_its_own_cache(tmp_path: Path) -> None:
    spec = local_server("a b", sandbox=True, sandbox_network=True)
    caches = tmp_path / "cache"
    npx = make(tmp_path / "bin" / "npx", mode=0o755)
    words = arguments(spec, npx, HOST_VARIABLES, SandboxFolders(caches))
    home = HOST_VARIABLES["HOME"]
    assert words[words.index("npm_config_cache") + 1] == f"{home}/.cache/npm"
    place = words.index(str(caches / "a_b"))
    assert words[place - 1 : place + 2] == ["--bind", str(caches / "a_b"), f"{home}/.cache"]
    other = arguments(spec, make(tmp_path / "bin" / "other", mode=0o755), HOST_VARIABLES, SandboxFolders(caches))
    assert "npm_config_cache" not in other


def test_the_caches_are_in_the_users_cache_folder(tmp_path: Path) -> None:
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "rkllm-mcp" / "sandbox"
    assert cache_folder({}) == Path("~/.cache/rkllm-mcp/sandbox").expanduser()
