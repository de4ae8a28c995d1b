"""The check-up: everything an answer needs, from the chip to the tools, each with what to do about it.

``examine`` is a list of checks run in order. A check that fails in a way nobody foresaw becomes a finding that says
so. On a machine without an NPU the same checks run; with the emulated runtime what only an NPU needs is told, and is
no fault.
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
    """Look at everything; never raises.

    Args:
        machine: where.
        subjects: the configuration, the library, the model and the servers, as the composition root found them.
    """
    findings: list[Finding] = []
    emulated = subjects.library.emulated
    for name, check in _npu_checks(machine, subjects, on_board=soc_of(machine) is not None):
        found = _run(name, check)
        findings += [_excused(finding) for finding in found] if emulated else found
    for name, check in _host_checks(machine, subjects):
        findings += _run(name, check)
    return findings


def worst(findings: Iterable[Finding]) -> FindingStatus:
    """The gravest status: ``fail``, ``warn`` or ``ok``."""
    statuses = {finding.status for finding in findings}
    return "fail" if "fail" in statuses else "warn" if "warn" in statuses else "ok"


def _npu_checks(machine: Machine, subjects: Subjects, *, on_board: bool) -> list[_Check]:
    """What only a run on the NPU needs; the clocks matter, and can be judged, on a board alone."""
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
    except Exception as error:  # noqa: BLE001  # a doctor that dies of its patient is no use
        return [Finding(name, "unknown", f"could not be looked at: {type(error).__name__}: {error}")]


def _excused(finding: Finding) -> Finding:
    """The same finding where no NPU is needed: told, and no fault."""
    if finding.status not in {"fail", "warn"}:
        return finding
    return replace(finding, status="info", remedy="Not needed by the emulated runtime.", command="")
