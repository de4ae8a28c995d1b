"""Probe the configured runtime and model, save the profile, and turn its facts into check results."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

from rkllm_mcp.app.model_form import model_form
from rkllm_mcp.app.settings import chosen_model, engine_settings
from rkllm_mcp.config.sections import Config
from rkllm_mcp.diagnostics.findings import CheckResult
from rkllm_mcp.diagnostics.probe.child import request_for
from rkllm_mcp.diagnostics.probe.experiments import LIMIT
from rkllm_mcp.diagnostics.probe.plan import PLAN, Experiment
from rkllm_mcp.diagnostics.probe.prompts import picture_prompt, prompts_for
from rkllm_mcp.diagnostics.probe.subject import ProbePrompts
from rkllm_mcp.errors import ModelFileError, ModelLoadError, RkllmMcpError
from rkllm_mcp.generation import Token
from rkllm_mcp.protocols import Deadline
from rkllm_mcp.providers.rkllm import TokenComparison
from rkllm_mcp.runtime.emulator import emulator_library
from rkllm_mcp.runtime.library import EMULATOR, find_library, fingerprint
from rkllm_mcp.runtime.profile import RuntimeProfile, model_identity, save_profile
from rkllm_mcp.runtime.settings import EngineSettings

# One experiment's patience: a prefill of some thousand tokens on a slow board, several times over.
PATIENCE_S = 120.0
# A runtime that breaks on everything is not asked everything.
_LOSSES_AT_MOST = 4
_END_TIMEOUT_S = 5.0
_RECEIVE_BYTES = 65_536
_LAST_BYTES = 16_384
_COMPLAINTS_KEPT = 5
_BOOTSTRAP = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from rkllm_mcp.diagnostics.probe.child import main; main(int(sys.argv[2]))"
)
_PACKAGE_PARENT = Path(__file__).resolve().parents[3]

# Label of each fact on screen. The values are JSON; those in braces are the possible ones.
FACTS: Mapping[str, str] = json.loads(Path(__file__).with_name("facts.json").read_text("utf-8"))


class _LostError(RkllmMcpError):
    """The process did not answer; ``hung`` tells a silence from a death."""

    def __init__(self, reason: str, *, hung: bool) -> None:
        super().__init__(reason)
        self.hung = hung


def probe(
    settings: EngineSettings,
    prompts: ProbePrompts,
    *,
    on_step: Callable[[str], None] = lambda _: None,
    patience_s: float = PATIENCE_S,
    plan: tuple[Experiment, ...] = PLAN,
) -> RuntimeProfile:
    """Run every experiment, which takes seconds on an emulator and minutes on a board; see ``probe_runtime``."""
    library = emulator_library() if settings.library == EMULATOR else find_library(str(settings.library))
    load = replace(settings.load_parameters(), max_new_tokens=LIMIT)
    identity = model_identity(Path(load.model_path))
    waiting = [*plan]
    about: dict[str, Any] = {}
    found: dict[str, Any] = {}
    unsettled: dict[str, str] = {}
    streams: set[str] = set()
    complaints: list[str] | None = None
    losses = 0
    while waiting and losses < _LOSSES_AT_MOST:
        # One process makes the experiments that need the model loaded in the same way, until one of them ends it.
        changes = waiting[0].load(load)
        request = request_for(library, settings.abi, replace(load, **changes), prompts)
        with _open_child() as child:
            answer: dict[str, Any]
            try:
                answer = child.ask(request, settings.start_timeout_s)
            except _LostError as lost:
                answer = {"refused": str(lost)}
            refusal = answer.get("refused")
            if refusal is not None and not about:
                raise ModelLoadError(f"The probe cannot load the model: {refusal}", "See 'rkllm-mcp doctor'.")
            about = about or answer["loaded"]
            while waiting and waiting[0].load(load) == changes:
                experiment = waiting.pop(0)
                if refusal is not None:
                    found |= experiment.if_refused
                    if not experiment.if_refused:
                        unsettled[experiment.name] = f"the model could not be loaded for it: {refusal}"
                    continue
                on_step(experiment.name)
                try:
                    answer = child.ask({"experiment": experiment.name}, patience_s * experiment.deadline)
                except _LostError as lost:
                    outcome = experiment.if_hung if lost.hung else experiment.if_crashed
                    found |= outcome
                    if not outcome:
                        unsettled[experiment.name] = str(lost)
                        losses += 1
                    break
                found |= answer["facts"]
                if answer["reason"]:
                    unsettled[experiment.name] = answer["reason"]
            if refusal is None:
                # The streams that the runtime has printed to.
                streams |= {name for name, file in child.printed.items() if os.fstat(file.fileno()).st_size}
                if complaints is None:  # later experiments provoke some
                    complaints = child.complaints()
    unsettled |= {experiment.name: "not tried: too many experiments before it broke" for experiment in waiting}
    printed_to = "both" if len(streams) > 1 else next(iter(streams), "nowhere")
    observed = {"load_ms": about["load_ms"], "complaints": complaints, "log_streams": printed_to}
    facts = {**observed, "defaults": about["defaults"], **found}
    return RuntimeProfile(
        library=fingerprint(library).git_blob,
        model=identity,
        version=about["version"],
        abi=about["abi"],
        emulated=about["emulated"],
        measured_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        # As it will be read from the file, where there are no tuples.
        facts=json.loads(json.dumps(facts)),
        unsettled=unsettled,
    )


@dataclass
class _Child:
    """The process that makes experiments."""

    process: subprocess.Popen[bytes]
    connection: socket.socket
    printed: Mapping[str, IO[bytes]]  # by the stream's name
    received: bytes = b""

    def ask(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a line and wait for the answer; a _LostError if the process died or was too slow."""
        deadline = Deadline(timeout_s)
        try:
            self.connection.settimeout(timeout_s)
            self.connection.sendall(f"{json.dumps(message)}\n".encode())
            while b"\n" not in self.received:
                self.connection.settimeout(max(0.001, deadline.left_s))
                received = self.connection.recv(_RECEIVE_BYTES)
                if not received:
                    break
                self.received += received
        except TimeoutError:
            self.process.kill()
            raise _LostError(f"hung: no end within {timeout_s:g} s", hung=True) from None
        except OSError:
            pass  # as when it ends the connection
        if b"\n" not in self.received:
            try:
                code = self.process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise _LostError("crashed: its process broke the connection", hung=False) from None
            how = signal.Signals(-code).name if -code in set(signal.Signals) else f"exit code {code}"
            reason = ", ".join([f"crashed: {how}", *self.complaints()[-1:]])
            raise _LostError(reason, hung=False)
        line, _, self.received = self.received.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def complaints(self) -> list[str]:
        """The error lines that the runtime printed last, each once, oldest first."""
        lines: dict[str, None] = {}
        for file in self.printed.values():
            size = os.fstat(file.fileno()).st_size
            text = os.pread(file.fileno(), _LAST_BYTES, max(0, size - _LAST_BYTES)).decode("utf-8", "replace")
            lines |= dict.fromkeys(line.strip() for line in text.splitlines() if line.startswith("E "))
        return list(lines)[-_COMPLAINTS_KEPT:]


@contextmanager
def _open_child() -> Generator[_Child, None, None]:
    """Start a process for experiments; it is gone when this is left."""
    with ExitStack() as stack:
        ours, theirs = socket.socketpair()
        stack.callback(ours.close)
        out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, str(_PACKAGE_PARENT), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        child = _Child(process, ours, {"stdout": out, "stderr": err})
        try:
            yield child
        except BaseException:
            process.kill()
            raise
        finally:
            # Let it end by itself, or kill it.
            ours.close()
            try:
                process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                with suppress(subprocess.TimeoutExpired):  # a driver that does not let go of it
                    process.wait(_END_TIMEOUT_S)


def probe_runtime(config: Config, on_step: Callable[[str], None]) -> tuple[RuntimeProfile, Path]:
    """Probe what the configuration names and keep the profile; blocks for seconds, on a board for minutes."""
    model = chosen_model(config)
    form = model_form(config, model)
    prompts = replace(prompts_for(form), pictures=picture_prompt(form, model))
    profile = probe(engine_settings(config, model), prompts, on_step=on_step)
    compared = TokenComparison(form.tokenizer, form.uncompared_ids)
    try:
        compared.add(Token(token, text) for token, text in profile.facts.get("first_tokens", ()))
        compared.finish()
    except ModelFileError as error:
        facts = {**profile.facts, "tokenizer_problem": [error.message, error.remedy]}
        profile = replace(profile, facts=facts)
    return profile, save_profile(profile)


def profile_findings(profile: RuntimeProfile) -> list[CheckResult]:
    """Return a check result for each fact; unsettled ones are ``unknown`` with the reason."""
    problem = profile.facts.get("tokenizer_problem")
    facts = [CheckResult("tokenizer", "fail", *problem)] if problem else []
    facts += [
        CheckResult("probe", "info", f"{label.partition(' {')[0]}: {text_of_fact(profile.facts[name])}")
        for name, label in FACTS.items()
        if name in profile.facts
    ]
    return facts + [CheckResult("probe", "unknown", f"{name}: {why}") for name, why in profile.unsettled.items()]


def text_of_fact(value: Any) -> str:
    """Return a fact for a person; its JSON is in the profile."""
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case None:
            return "waits for the end of the other"
        case {**entries}:
            return ", ".join(f"{name} {entry}" for name, entry in entries.items())
        case [[_, _], *_]:
            return ", ".join(f"{tokens} → {text_of_fact(figure)}".replace("\n", "\\n") for tokens, figure in value)
        case [str(), *_]:
            return "; ".join(value)
        case [_, _]:
            return f"{text_of_fact(value[0])} / {text_of_fact(value[1])}"
        case []:
            return "nothing"
        case _:
            return str(value)
