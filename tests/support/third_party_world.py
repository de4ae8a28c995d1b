"""All third-party servers at once: one configuration of them, its toolbox, and whoever they may ask."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from rkllm_mcp.events import Approval, Elicitation
from rkllm_mcp.messages import ToolCall, ToolResult
from rkllm_mcp.protocols import CallContext, Decision, ElicitationAnswer, SamplingAnswer, SamplingRequest
from rkllm_mcp.tools.toolbox import Toolbox
from tests.support.third_party import everything_behind, has_program, program, server

# Far beyond what a server needs on a loaded machine; a test that meets it has found a hang.
PATIENCE_S = 60.0


def make_folder(folder: Path) -> Path:
    """Fill a folder for the servers: a file in ``files``, a repository with one commit in ``repository``."""
    if shutil.which("git") is None:
        pytest.skip("mcp-server-git needs git, which is not installed")
    (folder / "files").mkdir()
    (folder / "files" / "note.txt").write_text("天気は晴れ\n雲はない\n", encoding="utf-8")
    repository = str(folder / "repository")
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", repository], check=True)
    for key, value in {"user.name": "Ann", "user.email": "ann@example.org", "commit.gpgsign": "false"}.items():
        subprocess.run(["git", "-C", repository, "config", key, value], check=True)
    subprocess.run(["git", "-C", repository, "commit", "--quiet", "--allow-empty", "--message", "Begin"], check=True)
    return folder


@contextmanager
def everything_listening() -> Generator[Mapping[str, str], None, None]:
    """Where the everything server listens, over ``http`` and ``sse``; nowhere without npm."""
    if not has_program("mcp-server-everything"):
        yield {}
        return
    with everything_behind("streamableHttp") as http, everything_behind("sse") as sse:
        yield {"http": http, "sse": sse}


def write_configuration(folder: Path, addresses: Mapping[str, str]) -> Path:
    """A configuration of all servers in a folder that ``make_folder`` has filled.

    Args:
        folder: where.
        addresses: of the everything server over ``http`` and ``sse``.
    """
    fetch = program("mcp-server-fetch")
    servers = [
        *(_from_npm(folder, addresses) if has_program("mcp-server-everything") else ()),
        server("time", command=str(program("mcp-server-time")), args=["--local-timezone", "Asia/Tokyo"]),
        server("git", command=str(program("mcp-server-git")), args=["--repository", str(folder / "repository")]),
        server(
            "fetch",
            command=str(fetch),
            args=["--allow-private-ips", "--ignore-robots-txt"],
            # Where it finds npm it installs more before its first page.
            env={"PATH": str(fetch.parent)},
        ),
        server("sqlite", command=str(program("mcp-server-sqlite")), args=["--db-path", str(folder / "users.db")]),
    ]
    path = folder / "mcp_config.toml"
    path.write_text('[security]\nlog_wire = true\napprove = "dangerous"\n' + "".join(servers), encoding="utf-8")
    return path


def _from_npm(folder: Path, addresses: Mapping[str, str]) -> list[str]:
    files, roots = str(folder / "files"), {"roots": [str(folder / "files")]}
    filesystem = str(program("mcp-server-filesystem"))
    memory = {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}
    return [
        server("stdio", command=str(program("mcp-server-everything")), args=["stdio"], **roots),
        server("http", url=addresses["http"], **roots),
        server("sse", url=addresses["sse"], transport="sse", **roots),
        server("files", command=filesystem, args=[files]),
        server("rooted", command=filesystem, allowed_tools=["list_allowed_*"], **roots),
        server("memory", command=str(program("mcp-server-memory")), env=memory),
        server("thinking", command=str(program("mcp-server-sequential-thinking"))),
    ]


@dataclass
class Owner:
    """Says yes, fills forms, and keeps what was asked."""

    answer: ElicitationAnswer = field(default_factory=lambda: ElicitationAnswer("accept"))
    decision: Decision = "once"
    approvals: list[Approval] = field(default_factory=list[Approval])
    questions: list[Elicitation] = field(default_factory=list[Elicitation])

    async def approve(self, question: Approval) -> Decision:
        self.approvals.append(question)
        return self.decision

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        self.questions.append(question)
        return self.answer


@dataclass
class Paris:
    """A ``Sampler`` that knows one word, and keeps what it was asked."""

    asked: list[SamplingRequest] = field(default_factory=list[SamplingRequest])
    sees: bool = False

    async def sample(self, request: SamplingRequest) -> SamplingAnswer:
        self.asked.append(request)
        return SamplingAnswer("Paris", "demo")


@dataclass
class World:
    """All servers behind one toolbox, and what belongs to them."""

    toolbox: Toolbox
    folder: Path
    model: Paris

    async def call(self, tool: str, owner: Owner | None = None, /, **arguments: Any) -> ToolResult:
        """The result of a call, the owner's yes included."""
        with anyio.fail_after(PATIENCE_S):
            call = ToolCall("call_1", tool, arguments)
            return await self.toolbox.call(call, CallContext(asker=owner or Owner()))

    async def said(self, tool: str, /, **arguments: Any) -> str:
        """The text of a call that works."""
        result = await self.call(tool, **arguments)
        assert not result.is_error, result.text
        return result.text

    async def failed(self, tool: str, /, **arguments: Any) -> str:
        """The text of a call that does not."""
        result = await self.call(tool, **arguments)
        assert result.is_error, result.text
        return result.text

    def messages(self, server_name: str) -> list[tuple[str, str]]:
        """Direction and method of the messages with a server, in order; an answer has no method."""
        lines = (json.loads(line) for line in (self.folder / "state" / "wire.log").read_text("utf-8").splitlines())
        of_server = (line for line in lines if line["server"] == server_name)
        return [(line["direction"], line["message"].get("method", "")) for line in of_server]
