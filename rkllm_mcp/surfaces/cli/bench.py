"""Measurements on screen: ``rkllm-mcp bench`` as a table and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.cli.options import argument, command, flag, option
from rkllm_mcp.surfaces.invocation import Session
from rkllm_mcp.text import shorten

if TYPE_CHECKING:
    from rkllm_mcp.diagnostics.bench import Report
    from rkllm_mcp.diagnostics.dialogue import Dialogue
    from rkllm_mcp.surfaces.terminal import Terminal

# The heading of a table, and its rows.
_Table: TypeAlias = tuple[Sequence[str], Sequence[Sequence[str]]]


# The number of the shape that ``--json`` prints; fields may be added to it, and none leaves or changes its meaning.
JSON_FORMAT = 1
_QUESTION_CHARS = 30

app = typer.Typer()


@command(app, "bench")
async def bench_command(
    session: Session,
    part: Annotated[str | None, argument("Measurement to run. Default: all.", "prefill|decode|delivery|prompt")] = None,
    as_json: Annotated[bool, flag("Print the figures as JSON.", "--json")] = False,
    beside: Annotated[
        str,
        option(
            "With prefill: ask another host with OpenAI's API the same ten questions, then this product. "
            "Its key is read from $RKLLM_MCP_BESIDE_KEY.",
            "URL",
        ),
    ] = "",
) -> None:
    """Measure one part or all of them, and print the results."""
    from rkllm_mcp.diagnostics.bench import PARTS, measure

    if beside:
        if part != "prefill":
            raise UsageError("--beside belongs to one part; write 'rkllm-mcp bench prefill --beside URL'")
        from rkllm_mcp.diagnostics.dialogue import play_dialogue

        dialogue = await play_dialogue(session.config(), beside, session.status)
        json_text = f"{json.dumps({'format': JSON_FORMAT, **asdict(dialogue)}, ensure_ascii=False, indent=2)}\n"
        sys.stdout.write(json_text if as_json else dialogue_text(dialogue, session.terminal))
        sys.stdout.flush()
        return
    if part is not None and part not in PARTS:
        raise UsageError(f"there is nothing to measure by the name '{part}'; there are {', '.join(PARTS)}")
    parts = PARTS if part is None else (part,)
    report = await measure(session.config(), parts, session.status)
    if as_json:
        text = f"{json.dumps({'format': JSON_FORMAT, **asdict(report)}, ensure_ascii=False, indent=2)}\n"
    else:
        text = shown(report, session.terminal, decode="decode" in parts)
    sys.stdout.write(text)
    sys.stdout.flush()


def shown(report: Report, terminal: Terminal, *, decode: bool = True) -> str:
    """Return the report as text; ``decode`` adds the columns of decoding."""
    machine, loading = report.machine, report.loading
    runtime = f"RKLLM {machine.runtime}{' (emulated)' if machine.emulated else ''}"
    lines = [f"{machine.model} on {machine.board}, {runtime}, {machine.context_tokens} tokens of context"]
    lines += [f"Note: {note}." for note in report.notes]
    memory = [
        f", {_figure(value)} MB {when}"
        for value, when in ((loading.memory_mb, "after loading"), (loading.peak_memory_mb, "at most"))
        if value is not None
    ]
    lines.append(f"loaded in {_figure(loading.load_ms)} ms{''.join(memory)}")
    speeds: list[list[str]] = []
    for figures in report.lengths:
        cells = [figures.prefill_ms, figures.prefill_tokens_per_s, figures.time_to_first_token_ms]
        cells += [figures.decode_ms_per_token, figures.decode_tokens_per_s] if decode else []
        speeds.append([str(figures.prompt_tokens), *map(_figure, cells)])
    heading = ["PROMPT tokens", "PREFILL ms", "tokens/s", "FIRST TOKEN ms"]
    tables: list[_Table] = [([*heading, *(["DECODE ms/token", "tokens/s"] if decode else [])], speeds)]
    if (delivery := report.delivery) is not None:
        cells = [delivery.mean_us, delivery.p50_us, delivery.p99_us, delivery.max_us, delivery.blocked_us]
        heading = ["DELIVERY tokens", "mean µs", "median µs", "p99 µs", "max µs", "IN THE CALLBACK µs"]
        tables.append((heading, [[str(delivery.tokens), *map(_figure, cells)]]))
    if (busy := report.busy) is not None:
        heading = ["HOST", "decode ms/token", "busy to idle"]
        rows = [["idle", f"{busy.idle_ms_per_token:.3f}", ""]]
        rows.append(["never yields", f"{busy.busy_ms_per_token:.3f}", f"{busy.ratio:.4f}"])
        tables.append((heading, rows))
    rows = [
        [f"{prompt.tools}", f"{prompt.prompt_tokens}", f"{prompt.first_ms:.2f}", f"{prompt.next_ms:.2f}"]
        for prompt in report.prompts
    ]
    tables.append((["TOOLS", "PROMPT tokens", "written ms", "next question ms"], rows))
    listings = [terminal.table(heading, [list(map(terminal.word, row)) for row in rows]) for heading, rows in tables]
    if report.dialogue is not None:
        listings.append(dialogue_text(report.dialogue, terminal))
    return "\n".join([*map(terminal.word, lines), "", *filter(None, listings)])


def dialogue_text(dialogue: Dialogue, terminal: Terminal) -> str:
    """Return the ten questions as a table, with what each host read of them."""
    hosts = {"HERE": dialogue.here, "BESIDE": dialogue.beside}
    asked_hosts = {name: rows for name, rows in hosts.items() if rows}
    heading = [
        "QUESTION",
        *(f"{name} {what}" for name in asked_hosts for what in ("tokens read", "first token ms", "s")),
    ]
    rows: list[list[str]] = []
    for figures in zip(*asked_hosts.values(), strict=True):
        cells = [shorten(figures[0].question, _QUESTION_CHARS)]
        for row in figures:
            tokens = f"{_counted(row.read_tokens)} / {_counted(row.prompt_tokens or None)}"
            cells += [tokens, _figure(row.first_token_ms), f"{row.seconds:.1f}"]
        rows.append(cells)
    lines: list[str] = []
    for name, figures in asked_hosts.items():
        reported = [row.read_tokens for row in figures if row.read_tokens is not None]
        read = _counted(sum(reported) if len(reported) == len(figures) else None)
        prompts = _counted(sum(row.prompt_tokens for row in figures) or None)
        first_s = sum(row.first_token_ms or 0 for row in figures) / 1000
        seconds = sum(row.seconds for row in figures)
        lines.append(
            f"{name}: {read} of {prompts} tokens read, {first_s:.1f} s until first tokens, {seconds:.1f} s in all"
        )
    if dialogue.here:
        in_advance = dialogue.here[0].prompt_tokens - (dialogue.here[0].read_tokens or 0)
        lines.append(f"HERE read {in_advance:,} tokens of system text and tools before the first one")
    if (start := dialogue.start) is not None:
        evaluated, read = _figure(start.evaluated_ms), _figure(start.from_file_ms)
        lines.append(
            f"The first question after a start has its first token after {evaluated} ms; "
            f"after {read} ms if {start.head_tokens:,} tokens are read from a file ({_figure(start.file_mb)} MB)"
        )
    lines += [f"Note: {dialogue.problem}."] if dialogue.problem else []
    return "\n".join([terminal.table(heading, rows), *map(terminal.word, lines), ""])


def _counted(tokens: int | None) -> str:
    """Return a count of tokens; a host that streams no usage has counted none."""
    return "?" if tokens is None else f"{tokens:,}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.3g}"
