"""Diagnosis of everything that an answer needs, from the chip to the tools, with remedies.

``examine`` runs a list of checks in order. A check that raises an unexpected exception becomes an ``unknown`` finding.
The same checks run on machines without an NPU; with the emulated runtime, checks of the NPU are informational.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from rkllm_mcp.board.finding import Finding, FindingStatus, Subjects
from rkllm_mcp.board.machine import Machine
from rkllm_mcp.board.npu import (
    check_clock,
    check_device,
    check_domains,
    check_driver,
    check_load,
    check_soc,
    soc_of,
)
from rkllm_mcp.board.software import check_library, check_model, check_model_file, check_servers
from rkllm_mcp.board.system import (
    check_gomp,
    check_governors,
    check_kernel,
    check_memory,
    check_memory_clock,
    check_open_files,
    check_reserve,
    check_temperature,
)

_Check = tuple[str, Callable[[], Iterable[Finding]]]


def examine(machine: Machine, subjects: Subjects) -> list[Finding]:
    """Run all checks; never raises. ``subjects`` describes the library, model and servers of the configuration."""
    findings: list[Finding] = []
    emulated = subjects.library.emulated
    for name, check in _npu_checks(machine, subjects, on_board=soc_of(machine) is not None):
        found = _run(name, check)
        findings += [_as_information(finding) for finding in found] if emulated else found
    for name, check in _host_checks(machine, subjects):
        findings += _run(name, check)
    return findings


def worst(findings: Iterable[Finding]) -> FindingStatus:
    """Return the most severe status: ``fail``, ``warn`` or ``ok``."""
    statuses = {finding.status for finding in findings}
    return "fail" if "fail" in statuses else "warn" if "warn" in statuses else "ok"


def _npu_checks(machine: Machine, subjects: Subjects, *, on_board: bool) -> list[_Check]:
    """Return the checks for running on the NPU; clocks are checked on a board only."""
    checks: list[_Check] = [
        ("soc", lambda: check_soc(machine)),
        ("kernel", lambda: check_kernel(machine, on_board=on_board)),
        ("npu driver", lambda: check_driver(machine)),
        ("npu device", lambda: check_device(machine)),
        ("npu load", lambda: check_load(machine)),
    ]
    if on_board:
        checks += [
            ("npu clock", lambda: check_clock(machine)),
            ("cpu governor", lambda: check_governors(machine)),
            ("memory clock", lambda: check_memory_clock(machine)),
            ("temperature", lambda: check_temperature(machine)),
            ("npu memory", lambda: check_domains(machine, subjects.model.file_bytes)),
            ("cma", lambda: check_reserve(machine)),
        ]
    return [*checks, ("libgomp", lambda: check_gomp(machine)), ("open files", lambda: check_open_files(machine))]


def _host_checks(machine: Machine, subjects: Subjects) -> list[_Check]:
    return [
        ("memory", lambda: check_memory(machine, subjects.model.file_bytes)),
        ("configuration", lambda: [Finding("configuration", "info", subjects.configuration)]),
        ("runtime library", lambda: check_library(subjects.library)),
        ("model", lambda: check_model(subjects.model)),
        ("model file", lambda: check_model_file(machine, subjects)),
        ("servers", lambda: check_servers(subjects.servers)),
    ]


def _run(name: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    try:
        return list(check())
    except Exception as error:  # noqa: BLE001  # a failing check must not end the diagnosis
        return [Finding(name, "unknown", f"could not be checked: {type(error).__name__}: {error}")]


def _as_information(finding: Finding) -> Finding:
    """Return a finding as information, for machines that do not need an NPU."""
    if finding.status not in {"fail", "warn"}:
        return finding
    return replace(finding, status="info", remedy="Not needed by the emulated runtime.", command="")
