"""What a hostile server costs the host and its well-behaved neighbour.

Runs the servers of ``tests/support/mcp_servers`` that misbehave, one after the other, each beside a good one, and
notes: how it ended up, the time until that was known, the median and longest call of the good server while the other's
worst call was under way (milliseconds), the growth of the host's peak memory (MB), the time to take both down, and what
was left of processes, descriptors and tasks. The ratio to the good server alone makes figures of different machines
comparable.

    python -m bench.zoo [--json] [--calls 50]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from rkllm_mcp.config.servers import StdioServer
from rkllm_mcp.messages import ToolCall
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.tools.tool_servers import open_toolbox
from rkllm_mcp.tools.toolbox import Toolbox
from tests.support.mcp_servers.leftovers import Holdings, watched_lives
from tests.support.mcp_servers.specs import altered, hostile, timed, tiny, unruly

WAIT_S = 2.0

# The tool that makes each do its worst, and its arguments.
ZOO: tuple[tuple[StdioServer, str, dict[str, Any]], ...] = (
    (hostile("exits"), "", {}),
    (hostile("silent"), "", {}),
    (hostile("noisy"), "echo", {"text": "x"}),
    (hostile("malformed"), "any_of", {}),
    (hostile("dying"), "die", {}),
    (hostile("huge"), "say_much", {"megabytes": 30}),
    (hostile("endless"), "tool_7", {}),
    (hostile("stuck"), "hang", {}),
    (hostile("deaf"), "stop_listening", {}),
    (unruly("dies_at:initialize"), "", {}),
    (unruly("dies_at:tools/list"), "", {}),
    (unruly("dies_at:tools/call"), "echo", {"text": "x"}),
    (unruly("garbles:initialize"), "", {}),
    (unruly("garbles:tools/list"), "", {}),
    (unruly("garbles:tools/call"), "echo", {"text": "x"}),
    (unruly("misaddresses"), "echo", {"text": "x"}),
    (unruly("mistakes_ids"), "", {}),
    (unruly("cyclic"), "echo", {"text": "x"}),
    (unruly("floods"), "echo", {"text": "x"}),
    (unruly("floods_stderr"), "echo", {"text": "x"}),
    (unruly("endless_progress"), "work", {}),
    (unruly("hangs_up"), "close", {}),
    (hostile("stubborn"), "echo", {"text": "x"}),
)


@dataclass(frozen=True)
class Figures:
    """What one server did to the host.

    Args:
        name: the server.
        state: how it ended up.
        known_ms: until that was known.
        median_ms: the good server's median call meanwhile.
        longest_ms: its longest.
        grown_mb: by how much the peak memory of the host grew.
        stop_ms: to take both down.
        left: what was left of it.
    """

    name: str
    state: str
    known_ms: float
    median_ms: float
    longest_ms: float
    grown_mb: float
    stop_ms: float
    left: str


async def measure(spec: StdioServer | None, tool: str, arguments: dict[str, Any], calls: int) -> Figures:
    """Run one hostile server, or none, beside a good one."""
    took: list[float] = []
    before, tasks, memory = Holdings(), len(asyncio.all_tasks()), _peak_mb()
    start = time.perf_counter()
    servers = [tiny("good"), *([spec] if spec else [])]
    async with open_toolbox(servers, host=timed(stop_grace_s=0.5)) as toolbox:
        await toolbox.connected()
        known_ms, state = _since(start), toolbox.servers()[-1].state
        async with anyio.create_task_group() as callers:
            if tool:
                callers.start_soon(_provoke, toolbox, tool, arguments)
            for _ in range(calls):
                begun = time.perf_counter()
                result = await toolbox.call(ToolCall("call_1", "add", {"a": 1, "b": 1}))
                took.append(_since(begun))
                if result.text != "2":
                    raise SystemExit(f"the good server answered {result.text!r}")
        start = time.perf_counter()
    stop_ms = _since(start)
    left = "nothing" if (Holdings(), len(asyncio.all_tasks())) == (before, tasks) else f"{Holdings()}"
    name = spec.name if spec else "none"
    grown_mb = _peak_mb() - memory
    return Figures(name, state, known_ms, statistics.median(took), max(took), grown_mb, stop_ms, left)


async def _provoke(toolbox: Toolbox, tool: str, arguments: dict[str, Any]) -> None:
    async def ignore(progress: float, total: float | None, message: str | None) -> None:
        del progress, total, message

    name = toolbox.servers()[-1].name
    await toolbox.call(ToolCall("call_2", f"mcp__{name}__{tool}", arguments), CallContext(on_progress=ignore))


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _since(start: float) -> float:
    return (time.perf_counter() - start) * 1000


async def main(calls: int) -> list[Figures]:
    """Measure all, the good server alone first."""
    with tempfile.TemporaryDirectory() as folder, watched_lives(Path(folder)) as lives:
        # Twice: the first time imports the SDK.
        await measure(None, "", {}, 1)
        found = [await measure(None, "", {}, calls)]
        for spec, tool, arguments in ZOO:
            limited = altered(spec, env=lives.env, connect_timeout_s=WAIT_S, timeout_s=WAIT_S)
            found.append(await measure(limited, tool, arguments, calls))
    return found


def table(found: list[Figures]) -> str:
    """The figures as Markdown."""
    alone = found[0].median_ms
    lines = [
        "| server | becomes | known after | neighbour: median (ratio) | longest | host grows | gone in | left |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for f in found:
        ratio = f"{f.median_ms:.1f} ms ({f.median_ms / alone:.1f})"
        lines.append(
            f"| {f.name} | {f.state} | {f.known_ms:.0f} ms | {ratio} | {f.longest_ms:.0f} ms | {f.grown_mb:.0f} MB | "
            f"{f.stop_ms:.0f} ms | {f.left} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--calls", type=int, default=50)
    wishes = parser.parse_args()
    figures = anyio.run(main, wishes.calls)
    sys.stdout.write((json.dumps([vars(f) for f in figures]) if wishes.json else table(figures)) + "\n")
