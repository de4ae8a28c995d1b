"""How well the host guesses the tool that a question needs, and the weights of its guess.

    python -m bench.offers [--fit] [--misses] [--kept-back]

The weights of ``rkllm_mcp.agent.offers`` are fitted to the tasks of the set ``own`` that are not kept back, with
``--fit``, by maximum likelihood with a small penalty on large weights. The thresholds are chosen from the same tasks:
the call is begun where at most one in twenty is begun wrongly, and a tool is shown where it is the right one in at
least one of twenty-five. No model is asked; the search for tools and the kinds of values are all that is measured.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from bench.real_model import configuration, read_tasks
from rkllm_mcp.agent.offers import NO_TOOL, WEIGHTS, offer_of, parts_of, probabilities
from rkllm_mcp.app.tools import open_tools
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.protocols import ToolEvidence
from rkllm_mcp.tools.search import ToolSearch

_PENALTY = 0.01
_STEPS = 3000
_RATE = 0.05


@dataclass(frozen=True)
class Case:
    """A question, the tools that can answer it, and the evidence for each tool."""

    question: str
    tools: tuple[str, ...]
    evidence: Sequence[ToolEvidence]
    followed: str = ""

    @property
    def parts(self) -> list[dict[str, float]]:
        """The parts of the evidence for each tool."""
        return [parts_of(each, is_followed=each.tool.name == self.followed) for each in self.evidence]


async def own_tools() -> tuple[ToolSpec, ...]:
    """Return the tools of the set ``own``."""
    with tempfile.TemporaryDirectory() as folder:
        config = await configuration(Path(folder), "demo", "emulator", "own")
        async with open_tools(config) as environment:
            await environment.toolbox.started()
            return environment.toolbox.tools()


async def cases(*, kept_back: bool) -> list[Case]:
    """Return the tasks of one half with their evidence."""
    tools, search = await own_tools(), ToolSearch()
    tasks = [task for task in read_tasks() if task.set == "own" and task.kept_back == kept_back]
    return [Case(task.question, task.tools, await search.evidence(task.question, tools)) for task in tasks]


def fit(cases_to_fit: Sequence[Case]) -> tuple[dict[str, float], float]:
    """Return the weights and the value for no tool under which the right tools are most probable."""
    weights, no_tool = dict(WEIGHTS), NO_TOOL
    prepared = [(case.parts, [each.tool.name in case.tools for each in case.evidence]) for case in cases_to_fit]
    for _ in range(_STEPS):
        slope, slope_of_none = dict.fromkeys(weights, 0.0), 0.0
        for parts, right in prepared:
            guessed = probabilities(parts, weights, no_tool)
            of_right = sum(value for value, is_right in zip(guessed, right, strict=True) if is_right)
            for each, value, is_right in zip(parts, guessed, right, strict=True):
                wanted = (value / of_right if is_right else 0.0) if any(right) else 0.0
                for name, amount in each.items():
                    slope[name] += (wanted - value) * amount
            slope_of_none += (0.0 if any(right) else 1.0) - (1.0 - sum(guessed))
        count = len(prepared)
        for name, weight in tuple(weights.items()):
            weights[name] = weight + _RATE * (slope[name] / count * 10 - _PENALTY * weight)
        no_tool += _RATE * slope_of_none / count * 10
    return weights, no_tool


def report(asked: Sequence[Case], weights: Mapping[str, float], no_tool: float, *, misses: bool) -> None:
    """Print what would be begun and shown at each threshold, and the likelihood."""
    rows: list[tuple[float, bool, bool]] = []
    likelihood = 0.0
    for case in asked:
        guessed = probabilities(case.parts, weights, no_tool)
        right = [value for value, each in zip(guessed, case.evidence, strict=True) if each.tool.name in case.tools]
        likelihood += math.log(max(1e-9, sum(right) if case.tools else 1 - sum(guessed)))
        best = max(range(len(guessed)), key=lambda number: guessed[number])
        is_right = case.evidence[best].tool.name in case.tools
        rows.append((guessed[best], is_right, bool(case.tools)))
        if misses and (not is_right if case.tools else guessed[best] > 0.2):
            print(f"  {case.question} | {case.tools} | {case.evidence[best].tool.name} {guessed[best]:.2f}")
    print(f"{len(asked)} tasks, log likelihood each {likelihood / len(asked):.3f}")
    for threshold in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        begun = [row for row in rows if row[0] >= threshold]
        print(
            f"  from {threshold}: begun right {sum(row[1] for row in begun)}, wrong "
            f"{sum(row[2] and not row[1] for row in begun)} of {sum(row[2] for row in rows)}; without a tool "
            f"{sum(not row[2] for row in begun)} of {sum(not row[2] for row in rows)}"
        )


def main() -> None:
    """Fit or measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true", help="fit the weights to the tasks that are not kept back")
    parser.add_argument("--misses", action="store_true", help="print the tasks that are guessed wrongly")
    parser.add_argument("--kept-back", action="store_true", help="measure the other half")
    options = parser.parse_args()
    weights, no_tool = dict(WEIGHTS), NO_TOOL
    if options.fit:
        weights, no_tool = fit(anyio.run(lambda: cases(kept_back=False)))
        print({name: round(value, 2) for name, value in weights.items()}, round(no_tool, 2))
    asked = anyio.run(lambda: cases(kept_back=options.kept_back))
    report(asked, weights, no_tool, misses=options.misses)
    shown = [len(offer_of(case.evidence, case.followed).cards) for case in asked]
    print(f"cards shown: {sum(shown) / max(1, len(shown)):.2f} a task")


if __name__ == "__main__":
    main()
