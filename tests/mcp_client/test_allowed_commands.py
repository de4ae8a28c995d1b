"""Which programs may be started as servers."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.mcp_client.allowed_commands import is_allowed, launch_of, refusal_here, resolve_program
from rkllm_mcp.mcp_client.lifecycle import ConnectionServices
from rkllm_mcp.tools.tool_servers import open_toolbox
from tests.support.mcp_servers.calling import said
from tests.support.mcp_servers.specs import PATIENCE_S, altered, local_server, tiny

SH = str(Path(shutil.which("sh") or "/bin/sh").absolute())


def program(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_a_program_is_found_as_starting_it_would_find_it(tmp_path: Path) -> None:
    here = program(tmp_path / "bin", "tool")
    assert resolve_program("tool", str(tmp_path / "bin"), None) == here
    assert resolve_program("tool", "/nowhere", None) is None
    assert resolve_program("bin/tool", None, str(tmp_path)) == here
    assert resolve_program("./bin/none", None, str(tmp_path)) is None
    assert resolve_program(str(tmp_path / "bin"), None, None) is None
    here.chmod(0o644)
    assert resolve_program(str(here), None, None) is None


def test_a_name_means_the_program_that_the_hosts_path_finds(tmp_path: Path) -> None:
    assert is_allowed(Path(SH), ["-c", "x"], ["sh"])
    assert is_allowed(Path(SH), [], ["ls", SH])
    assert not is_allowed(program(tmp_path, "sh"), [], ["sh"])
    assert not is_allowed(Path(SH), [], [])
    assert not is_allowed(Path(SH), [], ["no-such-program", "sh -c 'unclosed"])


def test_a_link_is_the_program_it_leads_to_unless_the_name_chooses_the_behaviour(tmp_path: Path) -> None:
    python = program(tmp_path, "python3.11")
    (tmp_path / "python").symlink_to(python)
    (tmp_path / "python3").symlink_to("python")
    assert is_allowed(tmp_path / "python", [], [str(tmp_path / "python3")])
    box = program(tmp_path, "busybox")
    (tmp_path / "ls").symlink_to(box)
    (tmp_path / "sh").symlink_to(box)
    assert is_allowed(tmp_path / "ls", [], [str(tmp_path / "ls")])
    assert not is_allowed(tmp_path / "sh", [], [str(tmp_path / "ls")])


@pytest.mark.parametrize(
    ("args", "allowed"),
    [
        (["@scope/server", "/home"], True),
        (["-y", "@scope/server"], True),
        (["-y", "--quiet", "@scope/server@1.2.3-rc.1"], True),
        (["@scope/server@latest"], True),
        (["@scope/server-evil"], False),
        (["@scope/server@npm:evil"], False),
        (["@scope/server@file:../evil"], False),
        (["@scope/server@git+https://h/evil"], False),
        (["--package=evil", "@scope/server"], False),
        (["-p", "evil", "@scope/server"], False),
        (["-c", "rm -rf ~"], False),
        ([], False),
        (["-y"], False),
    ],
)
def test_npx_with_a_package_is_that_package_in_any_version(tmp_path: Path, args: list[str], allowed: bool) -> None:
    npx = program(tmp_path, "npx")
    assert is_allowed(npx, args, [f"{npx} @scope/server"]) == allowed
    assert is_allowed(npx, args, [str(npx)])


def test_uvx_with_a_package_is_the_program_of_that_package(tmp_path: Path) -> None:
    uvx = program(tmp_path, "uvx")
    allowed = [f"{uvx} mcp-server-time"]
    assert is_allowed(uvx, ["mcp-server-time==2026.1", "--local-timezone", "UTC"], allowed)
    assert not is_allowed(uvx, ["--from", "evil", "mcp-server-time"], allowed)
    assert not is_allowed(uvx, ["mcp-server-time @ https://h/evil"], allowed)


def test_other_programs_have_to_begin_with_the_arguments(tmp_path: Path) -> None:
    python = program(tmp_path, "python")
    allowed = [f"{python} -m mcp_server_time"]
    assert is_allowed(python, ["-m", "mcp_server_time", "--x"], allowed)
    assert not is_allowed(python, ["-m", "evil"], allowed)
    assert not is_allowed(python, ["-c", "-m mcp_server_time"], allowed)


@pytest.mark.anyio
async def test_a_server_whose_program_is_not_allowed_is_left_out_and_the_others_serve(tmp_path: Path) -> None:
    good = tiny("good")
    evil = altered(tiny("evil"), command=str(program(tmp_path, "sh")))
    host = ConnectionServices(allowed_commands=(good.command,))
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([good, evil], host=host) as toolbox:
            await toolbox.wait_until_connected()
            state = toolbox.servers()[1]
            assert (state.state, state.reason) == (
                "failed",
                f"{evil.command} may not be started; security.allowed_commands allows {good.command}",
            )
            assert await said(toolbox, "add", a=1, b=2) == ("3", False)


@pytest.mark.anyio
async def test_the_servers_own_path_cannot_smuggle_another_program_in(tmp_path: Path) -> None:
    smuggled = program(tmp_path, "sh")
    spec = altered(tiny(), command="sh", env={"PATH": str(tmp_path)})
    assert refusal_here(spec, ["sh"]) == f"sh ({smuggled}) may not be started; security.allowed_commands allows sh"
    assert refusal_here(altered(spec, env={}), ["sh"]) == ""
    assert refusal_here(altered(spec, command="no-such-program"), ["sh"]) == ""
    started = await launch_of(altered(spec, env={}), ["sh"], {"PATH": os.environ["PATH"]})
    assert started.command == SH


@pytest.mark.anyio
@pytest.mark.parametrize("server", ["cloud", "knowledge", "weather"])
async def test_our_own_server_imports_nothing_of_the_folder_that_it_is_started_in(tmp_path: Path, server: str) -> None:
    """A folder of another person may have modules of any name, ours and those of the standard library."""
    for name in ("json", "runpy", "mcp_servers", "rkllm_base", f"mcp_servers/{server}"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('planted')\n", "utf-8")
    spec = local_server(server, command=sys.executable, args=("-m", f"mcp_servers.{server}", "--help"))
    started = await launch_of(spec, (f"{sys.executable} -m mcp_servers.{server}",))
    result = await anyio.run_process([started.command, *started.args], check=False, cwd=tmp_path)
    assert (result.returncode, b"planted" in result.stderr, b"--" in result.stdout) == (0, False, True)
