"""What a model proposes to remember of conversations, half of them without a fact: how much of it is right, and found.

    python -m bench.proposals MODEL [--part kept|fresh]

MODEL is a model of ``rkllm-mcp models list``. The conversations are in ``tests/data/memory/proposals.tsv``; some of
their questions are about a page, and what its tool says of it wants to be remembered. Those of ``kept`` and ``fresh``
were written before their first run. A proposal is right if it has the words of a fact.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import anyio

from rkllm_mcp.app.assistant import App
from rkllm_mcp.app.idle_requests import IDLE_S
from rkllm_mcp.app.root import open_app
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.events import ToolFinished
from rkllm_mcp.generation import AnswerOptions
from tests.support.demo_app import reply_of

CONVERSATIONS = Path("tests/data/memory/proposals.tsv")
_CONFIG = """
[model]
name = "{model}"
max_new_tokens = 60
[runtime]
library = "emulator"
[agent]
memory_proposals = true
[service]
titles = false
[[servers]]
name = "page"
transport = "builtin"
tools = [{{ name = "read_page", description = "Read the page.", entry_point = "bench.proposals:read_page" }}]
"""
_OPTIONS = AnswerOptions(save=True, memory=True, approvals="grant")
# Nothing runs for that time when all requests were made.
_QUIET_S = IDLE_S + 2


def read_page() -> str:
    """Read the page."""
    return os.environ["PAGE"]


async def _proposed(app: App, messages: list[str]) -> tuple[list[str], bool]:
    """Hold a conversation; return what is proposed, which is removed again, and True if the page was read."""
    conversation = app.new_conversation()
    events = [event for message in messages for event in await reply_of(app, message, conversation, _OPTIONS)]
    quiet_since = anyio.current_time()
    while anyio.current_time() - quiet_since < _QUIET_S:
        await anyio.sleep(0.1)
        if not app.model_host.board.engine.is_idle:
            quiet_since = anyio.current_time()
    rows = await app.store.memories.all()
    await app.store.memories.remove([row.id for row in rows])
    return [row.text for row in rows], any(isinstance(event, ToolFinished) for event in events)


async def _measure(model: str, lines: Sequence[Sequence[str]]) -> None:
    made = right = found = facts = read = 0
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "mcp_config.toml"
        await anyio.Path(config).write_text(_CONFIG.format(model=model), "utf-8")
        os.environ["RKLLM_MCP_STATE"] = str(Path(folder) / "state")
        async with open_app(load_config(config)) as app:
            await app.ready()
            for _, page, messages, fact in lines:
                os.environ["PAGE"] = page
                proposed, is_read = await _proposed(app, messages.split(" / "))
                matching = [text for text in proposed if fact and re.search(fact, text)]
                made, right, read = made + len(proposed), right + len(matching), read + (is_read and bool(page))
                found, facts = found + bool(matching), facts + bool(fact)
                print(f"{fact or '-':<15}{'page ' if is_read else ''}{messages}\n    {proposed}", flush=True)
    print(f"{len(lines)} conversations, page read in {read}; proposed {made}, right {right}; found {found} of {facts}")


def main() -> None:
    """Measure one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--part", default="tune", choices=("tune", "kept", "fresh"))
    arguments = parser.parse_args()
    every = [line.split("\t") for line in CONVERSATIONS.read_text("utf-8").splitlines()]
    lines = [line for line in every if line[0] == arguments.part]
    anyio.run(_measure, arguments.model, lines)


if __name__ == "__main__":
    main()
