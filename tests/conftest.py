"""What every test may use, the tiers of the suite, and what a run prints at its end."""

from __future__ import annotations

import functools
import gc
import os
import signal
import ssl
import uuid
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import Any

import httpcore2
import hypothesis
import pytest

from tests.support.cuts import EVERY_POINT
from tests.tiers import (
    DATABASE_FIXTURES,
    LONGEST,
    MARKERS,
    TABLE,
    cuts_its_inputs,
    is_left_out_whole,
    may_have_other_tiers,
    tier_of,
)

# A shell that starts the tests in the background has SIGINT ignored, and so would every program that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No property depends on the speed of the machine.
hypothesis.settings.register_profile(
    "any speed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any speed")

_read_certificates = httpcore2.default_ssl_context


@functools.cache
def _certificates(trust_env: bool, file: str | None, folder: str | None) -> ssl.SSLContext:
    del file, folder
    return _read_certificates(_trust_env=trust_env)


def _default_ssl_context(*, _trust_env: bool = True) -> ssl.SSLContext:
    """The certificates of the system, read once: every new client of HTTP reads them, which takes it 50 ms."""
    return _certificates(_trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


httpcore2.default_ssl_context = _default_ssl_context

pytest_plugins = ["tests.support.run_again", "tests.support.postgres", "tests.support.browser"]

SLOWEST = 10


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def own_memory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the program remembers between runs begins empty in every test, and is never the developer's own."""
    monkeypatch.setenv("RKLLM_MCP_STATE", str(tmp_path_factory.getbasetemp() / "state" / uuid.uuid4().hex))


# --- tiers ------------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers", "the tiers of tests/tiers.py")
    group.addoption("--default-tier", action="store_true", help="leave out the tests that have a tier's marker")
    group.addoption(
        "--other-tiers", action="store_true", help="leave out the default tier, but for the tests that cut their inputs"
    )
    group.addoption("--every-point", action="store_true", help="cut inputs at every point (tests/support/cuts.py)")


def pytest_configure(config: pytest.Config) -> None:
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is not None:
        # The programs that tests start are not measured: to begin and end that takes each of them half a second.
        os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
        if config.args_source is config.ArgsSource.TESTPATHS:
            # Each worker collects all tests, and compiles what no other one has yet: each begins in another folder.
            tests = config.rootpath / "tests"
            places = [file.relative_to(tests).parts[0] for file in sorted(tests.rglob("test_*.py"))]
            begin = int(worker["workerid"].removeprefix("gw")) * len(places) // worker["workercount"] % len(places)
            config.args = [str(tests / place) for place in dict.fromkeys(places[begin:] + places[:begin])]
    for marker, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{marker}: {meaning}")
    if config.getoption("every_point"):
        os.environ[EVERY_POINT] = "1"


def pytest_collection() -> None:
    # Nothing of what is collected goes before the end.
    gc.disable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # Some files take seconds to import. What was named is collected whatever it is.
    is_named = config.args_source is config.ArgsSource.ARGS and collection_path in map(Path, config.args)
    if collection_path.suffix != ".py" or is_named:
        return None
    file = collection_path.relative_to(config.rootpath).as_posix()
    if config.getoption("default_tier") and is_left_out_whole(file):
        return True
    if config.getoption("other_tiers") and not may_have_other_tiers(file, collection_path):
        return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    early: set[Path] = set()
    for item in items:
        marker = tier_of(item.nodeid)
        if not marker and not DATABASE_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            marker = "system"
        if marker:
            item.add_marker(marker)
            early.add(item.path)
    # The longest files first, then those of the tiers: a long one at the end would keep one of two workers busy alone.
    # Then by name, as the workers have to agree.
    ranks = {file: rank for rank, file in enumerate(LONGEST)}
    files = {item.path: item.nodeid.partition("::")[0] for item in items}
    order = {path: (ranks.get(file, len(ranks)), path not in early, file) for path, file in files.items()}
    items.sort(key=lambda item: order[item.path])
    default, others = config.getoption("default_tier"), config.getoption("other_tiers")
    selected: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        has_marker = any(item.get_closest_marker(name) for name in TABLE)
        is_left_out = (default and has_marker) or (others and not has_marker and not cuts_its_inputs(item.nodeid))
        (left_out if is_left_out else selected).append(item)
    items[:] = selected
    config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish() -> None:
    # The modules and thousands of items stay until the end; each full collection would look through them.
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    if config.getoption("default_tier") and not hasattr(config, "workerinput"):
        tiers = ", ".join(MARKERS)
        print(f"Left out: the tiers {tiers}. All of it: scripts/test --all; one file of it: scripts/test PATH")


# --- where the time went ----------------------------------------------------------------------------------------------


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tests: defaultdict[str, float] = defaultdict(float)
    folders: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                tests[report.nodeid] += report.duration
                folders[str(PurePosixPath(report.nodeid.partition("::")[0]).parent)] += report.duration
    if len(tests) <= SLOWEST:
        return
    terminalreporter.section("slowest tests and the sum of each folder, in seconds")
    slowest, places = (sorted(each.items(), key=lambda item: -item[1]) for each in (tests, folders))
    for name, seconds in [*slowest[:SLOWEST], *places, ("all", sum(tests.values()))]:
        terminalreporter.write_line(f"{seconds:8.1f}  {name}")
