"""Which questions an automatic search gives passages: 40 about the documents and 60 about something else."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import anyio
import pytest

from bench.context_gate import FOLDER, add_documents, is_of, read_questions
from mcp_servers.knowledge.settings import Settings
from rkllm_mcp.agent.question import gather_context
from rkllm_mcp.config.servers import StdioServer
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.tools.tool_servers import open_toolbox
from tests.support.knowledge_server import open_tools, said
from tests.support.mcp_servers.specs import PATIENCE_S

pytestmark = pytest.mark.anyio


def test_questions_and_documents_are_those_from_before_the_first_run() -> None:
    for line in (FOLDER / "SHA256SUMS").read_text("utf-8").splitlines():
        digest, name = line.split("  ")
        assert (hashlib.sha256((FOLDER / name).read_bytes()).hexdigest(), name) == (digest, name)


@pytest.mark.parametrize("kept_back", [False, True])
async def test_an_automatic_search_gives_passages_to_the_questions_about_the_documents_only(
    tmp_path: Path, *, kept_back: bool
) -> None:
    kept: list[str] = []
    clean: list[str] = []
    settings = Settings(tmp_path, default_base="*", default_results=3)
    async with open_tools(tmp_path, settings) as tools:
        await add_documents(tools.service.library)
        for question in read_questions(kept_back=kept_back):
            found = await tools.client.call_tool(
                "search_documents", {"query": question.text}, meta={"io.github.rkllm-mcp/automatic": True}
            )
            sources: list[dict[str, str]] = [result["metadata"] for result in said(found).facts["results"]]
            if question.document and any(is_of(source["title"], source["uri"], question) for source in sources):
                kept.append(question.text)
            if not question.document and not sources:
                clean.append(question.text)
    assert len(kept) >= 18
    assert len(clean) >= 29


async def test_the_host_says_that_a_search_is_automatic_and_leaves_out_what_nothing_speaks_for(tmp_path: Path) -> None:
    async with open_tools(tmp_path) as tools:
        await tools.base(text="# House rules\n\nThe bins are emptied on Thursday morning.")
    server = StdioServer(
        name="knowledge",
        command=sys.executable,
        args=("-m", "mcp_servers.knowledge", "--folder", str(tmp_path / "kept"), "--default-base", "*"),
        auto_context_tool="search_documents",
    )
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([server]) as toolbox:
            await toolbox.wait_until_connected()
            found = {
                question: [
                    result.tool.name
                    for result in await gather_context(toolbox.auto_context_tools(), question, toolbox, CallContext())
                ]
                for question in ("When are the bins emptied?", "In which morning light do I paint?")
            }
    assert found == {"When are the bins emptied?": ["search_documents"], "In which morning light do I paint?": []}
