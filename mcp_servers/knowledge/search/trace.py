"""Trace of a search: input, output and duration of each stage."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from mcp_servers.knowledge.types import ExplainedStage, StageName


@dataclass
class StageRecord:
    """A running stage."""

    made: str = ""  # output, set by the stage
    left_out: str = ""  # reason for skipping, set by the stage


@dataclass
class Trace:
    """The stages of one search and the warnings about skipped stages."""

    is_enabled: bool = False  # an explanation is requested: stages may do extra work
    stages: list[ExplainedStage] = field(default_factory=list[ExplainedStage])  # in the order they ended
    problems: list[str] = field(default_factory=list[str])  # warnings, without repetitions

    @contextmanager
    def stage(self, name: StageName, given: str) -> Generator[StageRecord, None, None]:
        """Record a stage when the block ends."""
        stage, start = StageRecord(), time.perf_counter()
        yield stage
        seconds = time.perf_counter() - start
        self.stages.append(ExplainedStage(name, given, stage.made, stage.left_out, seconds))

    def skip(self, name: StageName, given: str, why: str, *, is_problem: bool = False) -> None:
        """Record a stage that did not run; with ``is_problem`` also as a warning."""
        self.stages.append(ExplainedStage(name, given, left_out=why))
        if is_problem and why not in self.problems:
            self.problems.append(why)
