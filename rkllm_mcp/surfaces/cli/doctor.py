"""The check-up on screen: ``rkllm-mcp doctor``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import anyio
import typer

from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.diagnostics.doctor import diagnose, start_servers, worst
from rkllm_mcp.diagnostics.findings import CheckResult
from rkllm_mcp.diagnostics.probe.runner import probe_runtime, profile_findings
from rkllm_mcp.errors import RuntimeUnusableError
from rkllm_mcp.surfaces.cli.options import command, flag
from rkllm_mcp.surfaces.invocation import EXIT_DONE, EXIT_UNUSABLE, Session
from rkllm_mcp.surfaces.terminal import DIM, RED, YELLOW, apply_style, printable, wants_color, width, wrap, write_json
from rkllm_mcp.text import Language

# The number of the shape that ``--json`` prints; fields may be added to it, and none leaves or changes its meaning.
JSON_FORMAT = 1

# Sentences and paths are below the names if less room is next to them.
_LEAST_COLUMNS = 30

# status -> the mark, and its colour.
_MARKS: Mapping[str, tuple[str, str]] = {
    "ok": ("✓", "32"),
    "warn": ("!", YELLOW),
    "fail": ("✗", RED),
    "unknown": ("?", YELLOW),
    "info": ("·", DIM),
}


def report(
    findings: Sequence[CheckResult], *, color: bool, columns: int | None = None, language: Language = "en"
) -> str:
    """Return the results as lines: mark, name and state, then remedy and command; wrapped to ``columns`` if given."""
    texts = read_catalogue(language)
    names = [texts.phrase(finding.name) for finding in findings]
    widest = max(map(width, names), default=0)
    margin = " " * (widest + 4)
    if columns is not None and columns - len(margin) < _LEAST_COLUMNS:
        margin = "    "
    lines: list[str] = []
    for finding, name in zip(findings, names, strict=True):
        mark, style = _MARKS[finding.status]
        marked = apply_style(mark, style) if color else mark
        sentences = [finding.found, *([finding.remedy] if finding.remedy else [])]
        sentences = [texts.phrase(texts.translate_text("setup.findings", sentence)) for sentence in sentences]
        printed = [printable(sentence) for sentence in sentences]
        if columns is not None:
            printed = [line for sentence in printed for line in wrap(sentence, columns - len(margin))]
        below = [f"{margin}{line}" for line in printed]
        if len(margin) > widest:
            first, *below = below
            lines.append(f"{marked} {name}{' ' * (widest - width(name))}  {first.lstrip()}".rstrip())
        else:
            lines.append(f"{marked} {name}")
        lines += below
        # A command is there to be copied: it stays whole.
        lines += [f"{margin}$ {printable(finding.command)}"] if finding.command else []
    counts = {status: sum(finding.status == status for finding in findings) for status in ("fail", "warn")}
    if counts["fail"]:
        what = "1 thing keeps" if counts["fail"] == 1 else f"{counts['fail']} things keep"
        last = f"{what} the assistant from answering here."
    elif counts["warn"]:
        last = f"It works here; {counts['warn']} {'thing' if counts['warn'] == 1 else 'things'} could be better."
    else:
        last = "Everything is right."
    return "\n".join([*lines, texts.phrase(last), ""])


app = typer.Typer()


@command(app, "doctor")
def doctor_command(
    session: Session,
    as_json: Annotated[bool, flag("Print the results as JSON.", "--json")] = False,
    probe: Annotated[
        bool, flag("Also measure undocumented behaviour of the runtime; takes minutes on a board.", "--probe")
    ] = False,
) -> int:
    """Print the results of all checks; the exit code is 3 if one of them prevents answers."""
    config = session.config()
    count = len(config.active_servers)
    if count:
        session.status(f"[doctor: starting {count} servers]" if count > 1 else "[doctor: starting 1 server]")
    findings = diagnose(config, states=anyio.run(start_servers, config) if count else None)
    profile: dict[str, Any] | None = None
    if probe:
        findings = [finding for finding in findings if finding.name != "runtime profile"]
        try:
            measured, path = probe_runtime(config, lambda name: session.status(f"[probe: {name}]"))
        except RuntimeUnusableError as error:
            # A runtime that cannot be probed is a finding, too.
            findings.append(CheckResult("runtime profile", "fail", error.message, error.remedy))
        else:
            profile = asdict(measured)
            findings += [*profile_findings(measured), CheckResult("runtime profile", "ok", f"kept in {path}")]
    status = worst(findings)
    if as_json:
        found_values = [asdict(finding) for finding in findings]
        write_json({"format": JSON_FORMAT, "status": status, "findings": found_values, "profile": profile})
    else:
        terminal = session.terminal
        sys.stdout.write(
            report(findings, color=wants_color(sys.stdout), columns=terminal.columns, language=terminal.language)
        )
    sys.stdout.flush()
    return EXIT_UNUSABLE if status == "fail" else EXIT_DONE
