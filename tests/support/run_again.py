"""Run a failed test again, alone, and the rest of a lost worker's tests elsewhere: a plugin of pytest.

With ``--run-again``, a test that fails next to others is run once more when every worker has ended. If it passes then,
it waits on the clock of a busy machine: the run lists it and stays green, for ``MOST`` such tests. Crashes, leaks and
hangs are defects wherever they happen, and are never run again.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadFileScheduling
    from xdist.workermanage import WorkerController

MOST = 3
# More failures than this are no matter of the clock, and each costs the start of a process.
MOST_TRIED = 10
HEADING = "passed alone: waits on the clock"
# pytest itself ends a test that waits for ever (faulthandler_timeout).
_LIMIT_S = 900.0
# In the lines of a failure that tell why. A match too many costs a second run, nothing else.
_DEFECT = re.compile(
    r"ResourceWarning|Unraisable|UnhandledThreadException|leak|descriptors|Holdings|processes\(|left_behind|leftover"
    r"|Fatal Python error|Segmentation fault|Sanitizer|SIG(SEGV|ABRT|BUS|ILL|FPE)|(code|assert)[ =]*-(4|6|7|8|11)\b",
    re.IGNORECASE,
)


def is_defect(report: pytest.TestReport) -> bool:
    """Whether a failure is a crash, a leak or a hang, which is not excused by a second run that passes."""
    if report.when not in ("setup", "call", "teardown"):
        return True  # the worker ended: a crash, or the limit for a test that waits for ever
    return any(map(_DEFECT.search, _telling_lines(report)))


def _telling_lines(report: pytest.TestReport) -> list[str]:
    """Return the statement and the error of a failure; those of a group of errors, such as of leaks, are in a frame."""
    return [line for line in report.longreprtext.splitlines() if line.startswith(("E", ">", "  |", "  +"))]


@dataclass
class FailedTests:
    """The failures of a run, by test; those that pass alone are taken out of its result."""

    reports: defaultdict[str, list[pytest.TestReport]] = field(default_factory=lambda: defaultdict(list))
    passed_alone: list[str] = field(default_factory=list[str])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.reports[report.nodeid].append(report)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Any, Any]:
        result = yield
        again = [test for test, reports in self.reports.items() if not any(map(is_defect, reports))]
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        if again and len(again) <= MOST_TRIED and terminal is not None:
            terminal.write_line("")
            terminal.write_line(f"Running again, alone: {len(again)} failed")
            self.passed_alone = [test for test in again if self._passes_alone(session.config, test)]
            if len(self.passed_alone) <= MOST:
                for test in self.passed_alone:
                    self._excuse(session, terminal, test)
        return result

    def _passes_alone(self, config: pytest.Config, test: str) -> bool:
        # Of pytest's own variables one names the test that runs; coverage would measure the programs of the test.
        env = {key: value for key, value in os.environ.items() if key != "COVERAGE_PROCESS_CONFIG"}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *_plugins(config), test]
        try:
            done = subprocess.run(
                command, check=False, capture_output=True, text=True, cwd=config.rootpath, env=env, timeout=_LIMIT_S
            )
        except subprocess.TimeoutExpired:
            return False
        if done.returncode:
            self.reports[test][0].sections.append(("Run again, alone", done.stdout + done.stderr))
        return done.returncode == 0

    def _excuse(self, session: pytest.Session, terminal: pytest.TerminalReporter, test: str) -> None:
        reports = self.reports[test]
        for category in ("failed", "error", "passed"):
            left = [report for report in terminal.stats.get(category, []) if getattr(report, "nodeid", "") != test]
            terminal.stats[category] = left
            # The reporter takes the presence of a category for a failure.
            if not left:
                del terminal.stats[category]
        session.testsfailed -= len(reports)
        location = reports[0].location
        passed = pytest.TestReport(test, location, {}, "passed", None, "call")
        session.config.hook.pytest_runtest_logreport(report=passed)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.passed_alone:
            many = len(self.passed_alone) > MOST
            terminalreporter.section(f"{HEADING}{f'; more than {MOST} are a failure' if many else ''}")
            for test in self.passed_alone:
                terminalreporter.write_line(test)
                # What to mend: the failure next to others.
                for line in _telling_lines(self.reports[test][0]):
                    terminalreporter.write_line(f"    {line}")


def _plugins(config: pytest.Config) -> list[str]:
    """The plugins that the command line of the run names."""
    return [word for name in config.option.plugins or () if not name.startswith("no:") for word in ("-p", name)]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-again", action="store_true", help="run a failed test once more, alone, at the end")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("run_again") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailedTests(), "failed-tests")


# --- a lost worker ----------------------------------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Whole files for each worker, as ``--dist loadfile`` has them; the test that ended a worker is not run again."""
    return _scheduling()(config, log) if config.option.dist == "loadfile" else None


def _scheduling() -> type[LoadFileScheduling]:
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def remove_node(self, node: WorkerController) -> str | None:
            files = self.assigned_work.pop(node)
            pending = [test for tests in files.values() for test, is_complete in tests.items() if not is_complete]
            if not pending:
                return None
            ended, *rest = pending
            left = {file: {test: False for test in tests if test in rest} for file, tests in files.items()}
            self.workqueue = OrderedDict({file: tests for file, tests in left.items() if tests} | self.workqueue)
            for other in self.nodes:
                self._reschedule(other)
            return ended

        def _reschedule(self, node: WorkerController) -> None:
            if node not in self.registered_collections:
                return  # in a lost worker's place, and still collecting
            # A worker begins a test when it knows the next one or the end: one file may be too little.
            while self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) <= 2:
                self._assign_work_unit(node)
            if not self.workqueue and not node.shutting_down:
                node.shutdown()

    return Scheduling
