"""What each stage of a search was given and made of it, while it happens."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from mcp_servers.knowledge.types import ExplainedStage, StageName


@dataclass
class StageRecord:
    """A stage at work.

    Args:
        made: what came out, filled in by the stage.
        left_out: why it did not run, likewise.
    """

    made: str = ""
    left_out: str = ""


@dataclass
class Trace:
    """The stages of one search, and the sentences about those that a configured model did not serve.

    Args:
        is_wanted: somebody will read it, so a stage may do a little more to say what it did.
        stages: in the order they ended.
        problems: each sentence once.
    """

    is_enabled: bool = False
    stages: list[ExplainedStage] = field(default_factory=list[ExplainedStage])
    problems: list[str] = field(default_factory=list[str])

    @contextmanager
    def stage(self, name: StageName, given: str) -> Generator[StageRecord, None, None]:
        """Notes a stage when the block ends."""
        stage, start = StageRecord(), time.perf_counter()
        yield stage
        seconds = time.perf_counter() - start
        self.stages.append(ExplainedStage(name, given, stage.made, stage.left_out, seconds))

    def skip(self, name: StageName, given: str, why: str, *, is_problem: bool = False) -> None:
        """Notes a stage that did not run.

        Args:
            name: the stage.
            given: what it would have worked on.
            why: a sentence.
            is_problem: a model is configured and did not serve, so the answer is to say so.
        """
        self.stages.append(ExplainedStage(name, given, left_out=why))
        if is_problem and why not in self.problems:
            self.problems.append(why)
