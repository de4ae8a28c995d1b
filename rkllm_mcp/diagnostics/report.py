"""One report about a board: every measurement of this package in one JSON file and one page, without private data.

    PARTS ─▶ BoardReport.run_part ─▶ FILE.json, from which it goes on ─▶ FILE.md, which a person reads before sending it

A part that fails is a line of the report, and the others go on. ``without_private`` reads every text that is written:
no names of users, machines, servers and own models, no keys, no addresses and no folders.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, cast

import anyio

from rkllm_mcp import __version__
from rkllm_mcp.app.settings import chosen_model
from rkllm_mcp.board import npu, system
from rkllm_mcp.board.machine import Machine
from rkllm_mcp.config.secrets import redacted_text
from rkllm_mcp.config.sections import Config
from rkllm_mcp.diagnostics.bench import measure
from rkllm_mcp.diagnostics.dialogue import open_trial
from rkllm_mcp.diagnostics.doctor import diagnose
from rkllm_mcp.diagnostics.probe.runner import FACTS, probe_runtime, text_of_fact
from rkllm_mcp.diagnostics.trial import TrialOutcome, TrialProgress, ask, figures, read_six
from rkllm_mcp.errors import RkllmMcpError, UsageError, WorkerDiedError
from rkllm_mcp.models.cards import is_catalogued
from rkllm_mcp.runtime.library import EMULATOR

FORMAT = 1
# Parts with the minutes that they take on a board at most, as published speeds let expect.
PARTS: Mapping[str, float] = {"doctor": 0.5, "probe": 5.0, "bench": 4.5, "trial": 5.0}
MOST_S = 15 * 60.0
TRIAL_TASKS = 20
# Open questions of docs/performance.md, by the beginning of their rows, with the facts of the probe that settle them.
UNKNOWNS: Mapping[str, list[str]] = json.loads(Path(__file__).with_name("unknowns.json").read_text("utf-8"))
# Checks whose results are about the board; the others have names and addresses of the person's own.
_SHOWN_CHECKS = frozenset(
    [
        "soc",
        "kernel",
        "npu driver",
        "npu device",
        "dma heap",
        "npu load",
        "npu clock",
        "npu users",
        "cpus",
        "cpu governor",
        "memory clock",
        "temperature",
        "npu memory",
        "memory",
        "swap",
        "model size",
        "iommu",
        "cma",
        "libgomp",
        "open files",
        "runtime library",
        "runtime release",
        "runtime behaviour",
        "model file",
        "model end",
        "vision encoder",
        "vision library",
    ]
)
_LOG_LINES = 10
OnStep = Callable[[str], None]

_PATH = re.compile(
    r"(?<![\w.:/])(?:~|/(?:home|root|Users|media|mnt|srv|opt|tmp|var|data|run|usr|etc))(?:/[^\s/,;:'\")]+)+"
)
_ADDRESS = re.compile(
    r"\b(?:\d{1,3}\.){3}\d{1,3}\b|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b|(?<![\w:])(?:[0-9a-f]{1,4}:){3,7}[0-9a-f:]{1,}",
    re.IGNORECASE,
)
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"]+", re.IGNORECASE)
_MAIL = re.compile(r"[\w.+-]+@[\w.-]+")


def without_private(text: str, names: frozenset[str] = frozenset()) -> str:
    """Return a text without keys, addresses and folders, and without ``names``; of a path its last part is left."""
    text = _MAIL.sub("[name]", _URL.sub("[address]", redacted_text(text)))
    text = _ADDRESS.sub("[address]", _PATH.sub(lambda match: f"…/{match[0].rpartition('/')[2]}", text))
    for name in names:
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "[name]", text, flags=re.IGNORECASE)
    return text


def _cleaned(value: Any, names: frozenset[str]) -> Any:
    """Return a JSON value with every text of it read by ``without_private``."""
    if isinstance(value, str):
        return without_private(value, names)
    if isinstance(value, dict):
        return {key: _cleaned(entry, names) for key, entry in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_cleaned(entry, names) for entry in cast("list[Any]", value)]
    return value


def private_names(config: Config, machine: Machine) -> frozenset[str]:
    """Return the names of this person and machine: user, host, servers, and a model that is not in the catalogue."""
    private = {Path.home().name, os.environ.get("USER", ""), socket.gethostname(), socket.gethostname().split(".")[0]}
    private |= {server.name for server in config.servers}
    model = chosen_model(config)
    if not is_catalogued(model.name):
        private |= {model.name, model.file.name, model.file.stem, model.folder.name}
    # Images name their user and host for the board or its maker; these words say nothing about a person.
    board = " ".join((*machine.strings("proc/device-tree/model"), *machine.strings("proc/device-tree/compatible")))
    board = board.lower()
    parts = re.findall(r"[a-z0-9]+", board)
    common = {"root", "pi", "rock", "radxa", "user", "ubuntu", "debian", "armbian", "localhost", "files", "six"}
    common |= {*parts, *board.replace(",", " ").split(), "".join(parts), "-".join(parts)}
    return frozenset(name for name in private if len(name) > 2 and name.lower() not in common)


@dataclass
class BoardReport:
    """A report that grows by parts, in the files ``FOLDER/rkllm-mcp-report.json`` and ``.md``."""

    config: Config
    folder: Path
    names: frozenset[str] = frozenset()
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    began: float = field(default_factory=time.monotonic)
    json_file: Path = field(init=False)  # for programs
    page_file: Path = field(init=False)  # for people

    def __post_init__(self) -> None:
        self.json_file, self.page_file = (self.folder / f"rkllm-mcp-report.{kind}" for kind in ("json", "md"))

    @property
    def is_over_time(self) -> bool:
        """True if this run has taken as long as a report may."""
        return time.monotonic() - self.began > MOST_S

    @property
    def waiting(self) -> list[str]:
        """Parts that have no result yet, or only a part of one."""
        parts = self.values["parts"]
        return [name for name in PARTS if name not in parts or parts[name].get("problem") or parts[name].get("left")]

    @classmethod
    def open(cls, config: Config, folder: Path, *, again: bool = False) -> BoardReport:
        """Begin a report, or go on with the one in the folder.

        Raises:
            UsageError: the one in the folder is of another board or model, or cannot be read.
        """
        machine = Machine()
        report = cls(config, folder, private_names(config, machine))
        soc, model = npu.soc_of(machine), chosen_model(config)
        driver, hottest = npu.driver_version(machine), system.hottest(machine)
        total, free = (system.memory_bytes(machine, name) for name in ("MemTotal", "MemAvailable"))
        board = {
            "name": (machine.strings("proc/device-tree/model") or ("a machine that is not a board",))[0],
            "soc": soc.name if soc else None,
            "npu_cores": soc.npu_cores if soc else None,
            "kernel": machine.text("proc/sys/kernel/osrelease"),
            "driver": ".".join(map(str, driver)) if driver else None,
            "cpus": len(os.sched_getaffinity(0)),
            "cpus_of_runtime": config.runtime.cpus or "the library's own choice",
            "memory_gib": round(total / 2**30, 1) if total else None,
            "memory_free_gib": round(free / 2**30, 1) if free else None,
            "npu_clocks": [str(clock) for clock in npu.npu_clocks(machine)],
            "celsius": round(hottest[1]) if hottest else None,
            "model": model.name if is_catalogued(model.name) else "a model that is not in the catalogue",
            "model_gib": round(model.file.stat().st_size / 2**30, 2) if model.file.is_file() else None,
        }
        here = _cleaned(board, report.names)
        emulated = model.card.emulated or config.runtime.library == EMULATOR
        report.values = {
            "format": FORMAT,
            "rkllm_mcp": __version__,
            "date": date.today().isoformat(),
            "emulated": emulated,
            "board": here,
            "parts": {},
        }
        if again or not report.json_file.exists():
            return report
        remedy = "start anew with --again, or name another folder with --out"
        try:
            earlier: dict[str, Any] = json.loads(report.json_file.read_text("utf-8"))
            is_same = all(earlier["board"][key] == here[key] for key in ("name", "kernel", "model", "model_gib"))
            is_same = is_same and earlier["format"] == FORMAT and earlier["emulated"] == emulated
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{report.json_file} is not a report ({type(error).__name__}); {remedy}") from None
        if not is_same:
            raise UsageError(f"{report.json_file} is of another board, model or kernel; {remedy}")
        report.values = earlier
        return report

    def run_part(self, name: str, on_step: OnStep) -> str:
        """Run a part, write both files, and return why it failed; empty if it did not."""
        began = time.monotonic()
        parts: dict[str, Any] = self.values["parts"]
        result = parts.setdefault(name, {"seconds": 0.0})
        spent = result["seconds"]
        problem, log = "", ()
        try:
            match name:
                case "doctor":
                    findings = [asdict(finding) for finding in diagnose(self.config) if finding.name in _SHOWN_CHECKS]
                    shown = [{key: finding[key] for key in ("name", "status", "found")} for finding in findings]
                    result |= {"findings": shown, "servers": len(self.config.active_servers)}
                case "probe":
                    profile, _ = probe_runtime(self.config, on_step)
                    about = {"version": profile.version, "interface": profile.abi, "git_blob": profile.library}
                    self.values |= {"emulated": self.values["emulated"] or profile.emulated, "runtime": about}
                    # The first words of an answer, and what the tokenizer said of them, are not about the runtime.
                    names = [fact for fact in profile.facts if fact in FACTS and fact != "first_tokens"]
                    facts = {fact: profile.facts[fact] for fact in names}
                    result |= {"facts": facts, "unsettled": dict(profile.unsettled)}
                case "bench":
                    anyio.run(self._bench, result, on_step)
                case _:
                    anyio.run(self._trial, result, on_step)
        except RkllmMcpError as error:
            problem, log = str(error), error.last_lines if isinstance(error, WorkerDiedError) else ()
        except OSError as error:
            problem = f"{type(error).__name__}: {error}"
        except BaseException:
            # Ctrl-C: the next run of the command makes this part again.
            result["problem"] = "stopped before its end"
            raise
        result["seconds"] = round(spent + time.monotonic() - began, 1)
        result.pop("problem", None)
        result.pop("log", None)
        if problem:
            result |= {"problem": problem, "log": list(log)[-_LOG_LINES:]}
        self.save()
        return problem

    def save(self) -> None:
        """Write both files; a UsageError if the folder cannot be written."""
        self.values["parts"] = {name: self.values["parts"][name] for name in PARTS if name in self.values["parts"]}
        # The questions, tools and results of the trial are this program's own.
        outcomes = self.values["parts"].get("trial", {}).get("outcomes")
        self.values = _cleaned(self.values, self.names)
        if outcomes is not None:
            self.values["parts"]["trial"]["outcomes"] = outcomes
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.json_file.write_text(json.dumps(self.values, ensure_ascii=False, indent=2) + "\n", "utf-8")
            self.page_file.write_text(page_of(self.values), "utf-8")
        except OSError as error:
            raise UsageError(
                f"the report cannot be written to {self.folder} ({error.strerror}); name another folder with --out"
            ) from None

    async def _bench(self, result: dict[str, Any], on_step: OnStep) -> None:
        report = await measure(self.config, on_step=on_step)
        self.values["emulated"] = self.values["emulated"] or report.machine.emulated
        values = asdict(report)
        sections = ("loading", "lengths", "delivery", "busy", "prompts", "dialogue", "notes")
        result |= {key: values[key] for key in sections}
        result["context_tokens"] = report.machine.context_tokens
        self.values.setdefault("runtime", {"version": report.machine.runtime})
        hottest = system.hottest(Machine())
        result["celsius_after"] = round(hottest[1]) if hottest else None

    async def _trial(self, result: dict[str, Any], on_step: OnStep) -> None:
        tasks = read_six()
        keys = [*tasks][:: len(tasks) // TRIAL_TASKS]
        outcomes = {entry["key"]: TrialOutcome(**entry) for entry in result.pop("outcomes", [])}
        try:
            async with open_trial(self.config) as app:
                for number, key in enumerate(keys, 1):
                    if key in outcomes:
                        continue
                    if self.is_over_time:
                        break
                    on_step(f"task {number} of {len(keys)}")
                    outcomes[key] = await ask(app, app.new_conversation(), tasks[key], 0, TrialProgress())
                    outcomes[key].key = key
        finally:
            remaining = len(keys) - len(outcomes)
            result["outcomes"] = [asdict(outcome) for outcome in outcomes.values()]
            result["counts"] = figures([*outcomes.values()])
            result["left"] = remaining


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def settled_unknowns(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the open questions of docs/performance.md that a report settles, with what it found."""
    facts: Mapping[str, Any] = values["parts"].get("probe", {}).get("facts", {})
    return [
        (title, "; ".join(f"{FACTS[name].partition(' {')[0]}: {text_of_fact(facts[name])}" for name in known_facts))
        for title, names in UNKNOWNS.items()
        if (known_facts := [name for name in names if name in facts])
    ]


def figures_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures of a report that boards are compared by, as text; ``-`` where one was not measured."""
    parts: Mapping[str, Mapping[str, Any]] = values["parts"]
    bench, trial, probe = (parts.get(name) or dict[str, Any]() for name in ("bench", "trial", "probe"))
    facts: Mapping[str, Any] = probe.get("facts") or {}
    lengths: list[dict[str, Any]] = bench.get("lengths") or []
    # The longest up to 512 tokens, as publishers measure.
    short = sorted(
        (length for length in lengths if length["prompt_tokens"] <= 512), key=lambda row: row["prompt_tokens"]
    )
    length: dict[str, Any] = short[-1] if short else {}
    dialogue: Mapping[str, Any] = bench.get("dialogue") or {}
    questions: list[dict[str, Any]] = dialogue.get("here", [])
    start: Mapping[str, float] = dialogue.get("start") or {}
    counts: Mapping[str, float] = trial.get("counts") or {}
    calls = int(counts.get("with a tool", 0) + counts.get("without", 0))
    useful = int(counts.get("useful", 0) + counts.get("answered", 0))
    read, prompt = (sum(question[key] or 0 for question in questions) for key in ("read_tokens", "prompt_tokens"))
    loading: Mapping[str, float] = bench.get("loading") or {}
    return {
        "prefill tokens/s": _rate(length.get("prefill_tokens_per_s")),
        "decode tokens/s": _rate(length.get("decode_tokens_per_s")),
        "load s": _rate(loading["load_ms"] / 1000 if loading else None),
        "first question after a start, first token ms": _rate(start.get("evaluated_ms")),
        "the same with the file of its tools, ms": _rate(start.get("from_file_ms")),
        "second turn, first token ms": _rate(questions[1]["first_token_ms"] if len(questions) > 1 else None),
        "ten questions read": f"{read:,} of {prompt:,} tokens" if questions else "-",
        "abort ms": _rate(facts.get("abort_in_decode_ms")),
        "logits step ms": _rate(facts.get("logits_step_ms")),
        "memory MB": _rate(loading.get("peak_memory_mb")),
        "°C after": "-" if bench.get("celsius_after") is None else f"{bench['celsius_after']}",
        "useful answers": f"{useful} of {calls}" if calls else "-",
    }


def page_of(values: Mapping[str, Any]) -> str:
    """Return a report as Markdown."""
    board, runtime, parts = values["board"], values.get("runtime", {}), values["parts"]
    lines = [f"# rkllm-mcp on {board['name']}", ""]
    if values["emulated"]:
        lines += ["**Emulated**: no NPU was measured. The speeds are those of a script.", ""]
    about = {
        "SoC": board["soc"],
        "kernel": board["kernel"],
        "rknpu": board["driver"],
        "librkllmrt.so": runtime.get("version"),
        "model": f"{board['model']}, {board['model_gib']} GiB" if board["model_gib"] else board["model"],
        "memory": f"{board['memory_gib']} GiB, {board['memory_free_gib']} free",
        "CPUs": f"{board['cpus']}; the runtime's: {board['cpus_of_runtime']}",
        "NPU": ", ".join([f"{board['npu_cores'] or 'no known'} cores", *board["npu_clocks"]]),
        "°C before": board["celsius"],
        "rkllm-mcp": f"{values['rkllm_mcp']}, {values['date']}",
    }
    lines += ["| | |", "|---|---|", *(f"| {key} | {'-' if entry is None else entry} |" for key, entry in about.items())]
    lines += ["", "## Figures", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {text} |" for name, text in figures_of(values).items()]
    # Parts that failed with their last lines, checks, and answers of the trial.
    trouble: list[str] = []
    for name, part in parts.items():
        if problem := part.get("problem"):
            log: list[str] = part.get("log") or []
            trouble += [f"- {name} failed: {problem}", *(f"  - `{line}`" for line in log)]
    trouble += [
        f"- doctor, {finding['name']}: {finding['found']}"
        for finding in parts.get("doctor", {}).get("findings", [])
        if finding["status"] in {"warn", "fail"}
    ]
    probe = parts.get("probe", {})
    trouble += [f"- probe, {name}: {why}" for name, why in probe.get("unsettled", {}).items()]
    complaints: list[str] = probe.get("facts", {}).get("complaints") or []
    trouble += [f"- the runtime said: `{line}`" for line in complaints]
    trouble += [
        f"- trial: not useful: {outcome['question']} ({len(outcome['calls'])} calls)"
        for outcome in parts.get("trial", {}).get("outcomes", [])
        if not outcome["useful"]
    ]
    lines += ["", "## What was not right", "", *(trouble or ["Nothing."])]
    if settled := settled_unknowns(values):
        lines += ["", "## Open questions of docs/performance.md", "", "| asked | here |", "|---|---|"]
        for title, facts_text in settled:
            cell = facts_text.replace("|", "\\|").replace("\n", " ")
            lines.append(f"| {title} | {cell} |")
    seconds = ", ".join(f"{name} {part['seconds']:.0f} s" for name, part in parts.items())
    missing = [name for name in PARTS if name not in parts or parts[name].get("left")]
    lines += ["", f"Measured in: {seconds or 'nothing yet'}."]
    lines += [f"Still to come: {', '.join(missing)}."] if missing else []
    return "\n".join([*lines, ""])
