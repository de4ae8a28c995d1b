"""How well the host guesses the tool that a question needs, and the weights of its guess.

    python -m bench.offers [--fit] [--misses] [--kept-back]

The weights of ``rkllm_mcp.agent.offers`` are fitted to the set ``own`` and its first six fresh sets with ``--fit``, by
maximum likelihood with a small penalty on large weights. The threshold is chosen from the same tasks, each guessed with
weights that were fitted to the others (five folds): the call is begun from where on about one in twenty is begun
wrongly, and one in ten of the tasks that need no tool. No model is asked; the search for tools and the kinds of values
are all that is measured.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import numpy as np

from bench.real_model import DIALOGUE, FRESH, KEPT_BACK, TUNING, agency_of_today, configuration, read_tasks
from rkllm_mcp.agent.offers import BEGINS, NO_TOOL, WEIGHTS, offer_of, parts_of, probabilities
from rkllm_mcp.app.tools import open_tools
from rkllm_mcp.protocols import ToolEvidence
from rkllm_mcp.tools.search import ToolSearch
from rkllm_mcp.tools.toolbox import Toolbox

# The servers' tools that can answer a task, by its kind. Documents are searched with each question, so that none is
# begun for them.
_SEARCHED = "search_documents"
_TOOLS = {
    "clock": ("clock",),
    "calculator": ("calculator",),
    "units": ("convert_units",),
    "files": ("list_directory", "read_text_file", "search_files"),
    "weather": ("get_weather", "get_forecast"),
    "device": ("device_status",),
}
_PENALTY = 0.01
_STEPS = 500
_FOLDS = 5
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


@asynccontextmanager
async def open_own_tools() -> AsyncGenerator[Toolbox]:
    """Open the tools of the set ``own``."""
    with tempfile.TemporaryDirectory() as folder, agency_of_today() as agency:
        config = await configuration(Path(folder), "demo", "emulator", "own", agency)
        async with open_tools(config) as environment:
            await environment.toolbox.wait_until_started()
            yield environment.toolbox


async def cases(*, kept_back: bool | None) -> list[Case]:
    """Return the tasks of one half, or all, with their evidence; in dialogues the tool of a turn is not known."""
    search = ToolSearch()
    asked = [
        (task.turns[0].question, _TOOLS.get(task.kind, ()))
        for task in read_tasks([TUNING, KEPT_BACK, *FRESH[:6]]).values()
        if task.set == "own" and kept_back in {None, task.kept_back} and task.kind != DIALOGUE
    ]
    found: list[Case] = []
    async with open_own_tools() as toolbox:
        tools = [tool for tool in toolbox.tools() if not (tool.on_demand or tool.is_helper or tool.name == _SEARCHED)]
        for question, right in asked:
            shares = await toolbox.shares_in_data(question)
            found.append(Case(question, right, await search.evidence(question, tools, shares)))
    return found


def fit(cases_to_fit: Sequence[Case]) -> tuple[dict[str, float], float]:
    """Return the weights and the value for no tool under which the right tools are most probable."""
    names = list(WEIGHTS)
    weights, no_tool = np.array([WEIGHTS[name] for name in names]), NO_TOOL
    prepared = [
        (
            np.array([[each[name] for name in names] for each in case.parts]),
            np.array([value > 0 for value in probabilities(case.parts, WEIGHTS, NO_TOOL)]),
            np.array([each.tool.name in case.tools for each in case.evidence]),
        )
        for case in cases_to_fit
    ]
    # Nothing speaks for the right tool of the others.
    prepared = [
        (parts, is_there, right) for parts, is_there, right in prepared if not right.any() or any(right & is_there)
    ]
    for _ in range(_STEPS):
        slope, slope_of_none = np.zeros(len(names)), 0.0
        for parts, is_there, right in prepared:
            odds = np.exp(parts @ weights) * is_there
            guessed = odds / (odds.sum() + math.exp(no_tool))
            wanted = guessed * right / guessed[right].sum() if right.any() else np.zeros(len(guessed))
            slope += (wanted - guessed) @ parts
            slope_of_none += (0.0 if right.any() else 1.0) - (1.0 - guessed.sum())
        weights += _RATE * (slope / len(cases_to_fit) * 10 - _PENALTY * weights)
        no_tool += _RATE * slope_of_none / len(cases_to_fit) * 10
    return dict(zip(names, weights.tolist(), strict=True)), float(no_tool)


def guesses(asked: Sequence[Case], weights: Mapping[str, float], no_tool: float) -> list[tuple[Case, list[float]]]:
    """Return the probabilities of the tools for each task."""
    return [(case, probabilities(case.parts, weights, no_tool)) for case in asked]


def cross_guesses(asked: Sequence[Case]) -> list[tuple[Case, list[float]]]:
    """Return the same, each with weights that were fitted to the tasks of the other folds."""
    found: list[tuple[Case, list[float]]] = []
    for fold in range(_FOLDS):
        others = [case for number, case in enumerate(asked) if number % _FOLDS != fold]
        found += guesses(asked[fold::_FOLDS], *fit(others))
    return found


def report(guessed_cases: Sequence[tuple[Case, list[float]]], *, misses: bool) -> None:
    """Print what would be begun and shown at each threshold, and the likelihood."""
    rows: list[tuple[float, bool, bool]] = []
    likelihood = 0.0
    for case, guessed in guessed_cases:
        right = [value for value, each in zip(guessed, case.evidence, strict=True) if each.tool.name in case.tools]
        likelihood += math.log(max(1e-9, sum(right) if case.tools else 1 - sum(guessed)))
        best = max(range(len(guessed)), key=lambda number: guessed[number])
        is_right = case.evidence[best].tool.name in case.tools
        rows.append((guessed[best], is_right, bool(case.tools)))
        if misses and (not is_right if case.tools else guessed[best] > 0.2):
            print(f"  {case.question} | {case.tools} | {case.evidence[best].tool.name} {guessed[best]:.2f}")
    print(f"{len(rows)} tasks, log likelihood each {likelihood / len(rows):.3f}")
    for threshold in (0.3, 0.4, BEGINS, 0.5, 0.6, 0.7, 0.8, 0.9):
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
    if options.fit:
        tuning = anyio.run(lambda: cases(kept_back=None))
        weights, no_tool = fit(tuning)
        print({name: round(value, 2) for name, value in weights.items()}, round(no_tool, 2))
        report(cross_guesses(tuning), misses=options.misses)
        return
    asked = anyio.run(lambda: cases(kept_back=options.kept_back))
    report(guesses(asked, WEIGHTS, NO_TOOL), misses=options.misses)
    shown = [len(offer_of(case.evidence, case.followed).cards) for case in asked]
    print(f"cards shown: {sum(shown) / max(1, len(shown)):.2f} a task")


if __name__ == "__main__":
    main()
