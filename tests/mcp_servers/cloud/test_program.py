"""The cloud server as a program: its command line, its exit codes, and one call as its own process."""

from __future__ import annotations

import subprocess
import sys

import anyio
import pytest
from mcp import Client, StdioServerParameters

from mcp_servers.cloud.__main__ import main
from mcp_servers.cloud.settings import NO_KEY
from tests.support.chat_service import ChatService, refusal
from tests.support.shared import REPOSITORY

KEY = "a-key-that-nobody-sees"


@pytest.mark.anyio
async def test_the_server_runs_as_its_own_process_and_writes_no_key() -> None:
    with ChatService(refusal(401, f"wrong: {KEY}")) as service, anyio.fail_after(60):
        environment = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": service.url}
        arguments = ["-m", "mcp_servers.cloud"]
        process = StdioServerParameters(command=sys.executable, args=arguments, cwd=REPOSITORY, env=environment)
        async with Client(process) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["ask_anthropic"]
            result = await client.call_tool("ask_anthropic", {"question": "?"})
    assert result.is_error
    assert KEY not in str(result.content)


def test_without_a_key_it_says_which_would_help() -> None:
    command = [sys.executable, "-m", "mcp_servers.cloud"]
    done = subprocess.run(
        command, check=False, input="", capture_output=True, text=True, cwd=REPOSITORY, env={}, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"{NO_KEY}\n")


def test_an_unusable_variable_ends_it_with_the_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLOUD_TIMEOUT_S", "-1")
    assert main([]) == 2
    assert capsys.readouterr().err == "CLOUD_TIMEOUT_S is '-1': give a number of at least 0.1, or leave it unset.\n"


def test_the_command_line_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "Questions leave this machine." in " ".join(capsys.readouterr().out.split())
