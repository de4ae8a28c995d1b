"""Start and restart the worker, and limit the runtime's silence.

The supervisor starts the worker, loads the model and replaces a worker that died: immediately after a successful run or
a minute with the model loaded, after growing pauses if it died of its first run, a few times if it died before any run,
and not at all if the runtime or the model was refused. ``Engine`` owns the runs; it is called when a worker is in
service and when it is lost.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

import anyio
import anyio.to_thread

from rkllm_mcp.errors import ModelLoadError, RkllmMcpError, RunRejectedError, RuntimeUnusableError, WorkerDiedError
from rkllm_mcp.runtime import frames
from rkllm_mcp.runtime.abi import choose_abi
from rkllm_mcp.runtime.emulator import emulator_library
from rkllm_mcp.runtime.frames import pack
from rkllm_mcp.runtime.library import AUTOMATIC, EMULATOR
from rkllm_mcp.runtime.settings import EngineSettings, SilenceLimits
from rkllm_mcp.runtime.worker_process import WorkerProcess, open_worker

# The speed of shorter prefills is dominated by overhead.
_MEASURED_FROM_TOKENS = 64


@dataclass(eq=False)
class PrefillPace:
    """Prefill speed on this board: the slowest run measured, so that one fast run does not shorten the limits."""

    _limits: SilenceLimits
    _expected_s: Callable[[int], float | None] | None = None  # of a profile
    _slowest: float | None = None  # tokens per second

    def record_prefill(self, tokens: int, took_ms: float) -> None:
        """Record the prefill of a run."""
        if tokens >= _MEASURED_FROM_TOKENS and took_ms > 0:
            speed = tokens / took_ms * 1000
            self._slowest = speed if self._slowest is None else min(speed, self._slowest)

    def cost_s(self, tokens: int) -> float:
        """Return the seconds for this many tokens at the measured speed; 0 without a measurement."""
        return tokens / self._slowest if self._slowest else 0.0

    def limit_s(self, prompt_tokens: int) -> float:
        """Return the longest time to the first token of a prompt, seconds.

        The whole prompt counts, because the reusable part is not known for certain.
        """
        expected_s = prompt_tokens / (self._slowest or self._limits.prefill_tokens_per_s)
        profiled_s = self._expected_s(prompt_tokens) if self._expected_s else None
        if profiled_s is not None:
            expected_s = max(profiled_s, expected_s) if self._slowest else profiled_s
        return self._limits.prefill_base_s + self._limits.prefill_factor * expected_s


@dataclass(eq=False)
class Watchdog:
    """One timer for the runtime's next sign of life."""

    _on_silence: Callable[[str], None]  # gets a message when it expires
    _timer: asyncio.TimerHandle | None = None
    _limit_s: float = 0.0
    _event: str = ""
    _now: Callable[[], float] = time.monotonic
    _fed_at: float = 0.0

    def start(self, event: str, limit_s: float) -> None:
        """Allow ``limit_s`` seconds of silence until ``event`` (a noun phrase), in place of the previous limit."""
        self.stop()
        loop = asyncio.get_running_loop()
        self._now = loop.time
        self._event, self._limit_s, self._fed_at = event, limit_s, loop.time()
        self._timer = loop.call_later(limit_s, self._check)

    def feed(self) -> None:
        """Note a sign of life; the limit counts from now."""
        if self._timer is not None:
            self._fed_at = self._now()

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        due = self._fed_at + self._limit_s
        if loop.time() < due:
            # Moved only here: a timer per token would cost more than the token.
            self._timer = loop.call_at(due, self._check)
            return
        self._timer = None
        self._on_silence(f"{self._event} did not come within {self._limit_s:.3g} s")


logger = logging.getLogger(__name__)

_UNLOADED = "its model is not loaded at the moment"
_MISFIT = "Run 'rkllm-mcp doctor'; the runtime, the driver and the model may not fit each other."


@dataclass
class WorkerRecord:
    """Facts about one worker; those of the last worker stay until the next one is started."""

    opened: frames.Opened | None = None  # report of the loaded library
    loaded_at_s: float | None = None  # clock of the event loop when the model was loaded
    is_used: bool = False  # a run was sent to it; set by the engine
    is_proven: bool = False  # a run of it succeeded; set by the engine
    # Its memory before each of its first two runs with new pictures, bytes; the second is compared with.
    before_pictures: list[int] = field(default_factory=list[int])


class Supervisor:
    """Keep a worker with a loaded model in service."""

    def __init__(
        self,
        settings: EngineSettings,
        *,
        on_frames: Callable[[list[tuple[int, bytes]]], None],
        on_service: Callable[[], None],
        on_loss: Callable[[RkllmMcpError], None],
    ) -> None:
        self._settings = settings
        self._on_frames = on_frames
        self._on_service = on_service
        self._on_loss = on_loss
        self._loading: asyncio.Future[frames.ModelLoaded | frames.LoadFailed] | None = None
        # Set when the first worker loads the model, or none can be started.
        self.started = asyncio.Event()
        self._settled = asyncio.Event()
        # Set with ``failure``, but not when the engine is closed.
        self.given_up = asyncio.Event()
        # A model is to be in service; cleared between ``unload`` and ``load``.
        self._load_requested = asyncio.Event()
        self._load_requested.set()
        self._unload_requested = asyncio.Event()
        # No worker runs: the model is unloaded, or will not be loaded again.
        self._stopped = asyncio.Event()
        self._was_loaded = False
        # Reason why no worker will be in service again; None while one is or will be.
        self.failure: RkllmMcpError | None = None
        self._last_log: tuple[str, ...] = ()
        # Path of the library; empty until it is known.
        self.library = ""
        # The running worker, loaded or loading; None between two workers.
        self.worker: WorkerProcess | None = None
        self.record = WorkerRecord()
        # Report of the loaded model; None until it is loaded.
        self.loaded: frames.ModelLoaded | None = None
        # Warnings of the runtime while it loaded the model.
        self.warnings: tuple[str, ...] = ()
        # Number of restarts.
        self.restarts = 0

    def check(self) -> None:
        """Raise ``failure`` if it is set, or RunRejectedError if the model is unloaded."""
        if self.failure is not None:
            raise copy(self.failure)
        if not self._load_requested.is_set():
            raise RunRejectedError(_UNLOADED)

    @property
    def is_unloaded(self) -> bool:
        """True between ``unload`` and ``load``."""
        return not self._load_requested.is_set() and self.failure is None

    async def unload(self) -> None:
        """Stop the worker, which frees the model's memory, until ``load``; runs and calls fail.

        The wait is bounded by the time that loading or stopping may take.
        """
        self._load_requested.clear()
        self._unload_requested.set()
        await self._stopped.wait()

    def load(self) -> None:
        """Start a worker again after ``unload``; ``ready`` waits for the model."""
        if self.is_unloaded:
            self._settled.clear()
            self._unload_requested.clear()
            self._load_requested.set()

    async def ready(self) -> None:
        """Wait until a model is loaded, or raise the reason why none can be."""
        await self._settled.wait()
        self.check()

    def on_load_report(self, kind: int, body: bytes) -> None:
        """Process a report about loading."""
        if kind == frames.OPENED:
            self.record.opened = frames.unpack(frames.Opened, body)
            return
        report = (
            frames.unpack(frames.ModelLoaded, body) if kind == frames.LOADED else frames.unpack(frames.LoadFailed, body)
        )
        if self._loading is not None and not self._loading.done():
            self._loading.set_result(report)

    def suspicion(self) -> str:
        """Return advice if the interface was set by hand and differs from the library's release; else an empty text.

        A wrong interface often passes rkllm_init and dies in the first run (rknn-llm #509).
        """
        opened, chosen = self.record.opened, self._settings.abi
        if chosen == AUTOMATIC or opened is None:
            return ""
        reported_abi = choose_abi(opened.version)
        if reported_abi is not None and reported_abi.name == opened.abi:
            return ""
        return (
            f"[runtime] abi = {chosen!r} overrides what the library says of itself ({opened.version}), and a wrong "
            "interface fails like this: remove abi, or install that runtime"
        )

    async def run(self) -> None:
        """Keep a worker in service until cancelled or given up."""
        try:
            library = self._settings.library
            if library == EMULATOR:
                library = await anyio.to_thread.run_sync(emulator_library, abandon_on_cancel=True)
            self.library = str(library)
            await self._keep_worker(self.library)
        except RuntimeUnusableError as error:
            self._end(error)
            self.given_up.set()
        except asyncio.CancelledError:
            self._end(RunRejectedError("the engine was closed"))
            raise
        except Exception as error:
            self._end(RuntimeUnusableError(f"The engine broke: {error!r}.", "Please report it."))
            self.given_up.set()
            raise

    async def _keep_worker(self, library: str) -> None:
        pauses = iter(self._settings.reload_pauses_s)
        while True:
            if not self._load_requested.is_set():
                self._settled.set()
                self._stopped.set()
                await self._load_requested.wait()
                self._stopped.clear()
                pauses = iter(self._settings.reload_pauses_s)
            try:
                death = await self._run_one_worker(library)
                if death is None:
                    continue
                message = _death_message(death, "again and again before it was asked anything")
                failure = ModelLoadError(message, self._remedy())
            except ModelLoadError as error:
                # A refused model is refused again. One that was loaded before may load a moment later, when the driver
                # has freed the memory of the dead worker.
                is_first = self.restarts == 0 and not self._was_loaded
                if not isinstance(error, _DiedWhileLoadingError) and is_first:
                    raise
                logger.info("%s", error.message)
                failure = error
            # The last worker was healthy if its model was loaded for so long that earlier deaths no longer count.
            loaded_at_s, now_s = self.record.loaded_at_s, asyncio.get_running_loop().time()
            was_healthy = loaded_at_s is not None and now_s - loaded_at_s >= self._settings.healthy_s
            if self.record.is_proven or was_healthy:
                pauses = iter(self._settings.reload_pauses_s)
            elif (pause_s := next(pauses, None)) is not None:
                await anyio.sleep(pause_s)
            elif self.record.is_used:
                # The runs kill it, not loading: restart for each one, with at least this pause.
                await anyio.sleep(max(self._settings.reload_pauses_s, default=0.0))
            else:
                raise failure
            self.restarts += 1

    async def _run_one_worker(self, library: str) -> WorkerDiedError | None:
        """Start a worker, load the model, and return the worker's death; None if the model is to be unloaded."""
        settings = self._settings
        environment = {"RKLLM_LOG_LEVEL": str(settings.log_level)} if settings.log_level else {}
        async with open_worker(
            self._on_frames, environment=environment, stop_timeout_s=settings.stop_timeout_s
        ) as worker:
            self.worker, self.record = worker, WorkerRecord()
            self.started.set()
            try:
                self.loaded = await self._load(worker, library)
                self.record.loaded_at_s = asyncio.get_running_loop().time()
                self._was_loaded = True
                logger.info("process %d has loaded %s", worker.pid, settings.model_path)
                self.warnings = load_warnings(worker.log.lines(), self.loaded.version)
                for warning in self.warnings:
                    logger.warning("the runtime: %s", warning)
                self._settled.set()
                self._on_service()
                # Until the worker's end, or until the model is to be unloaded.
                gone = asyncio.ensure_future(worker.gone())
                unwanted = asyncio.ensure_future(self._unload_requested.wait())
                try:
                    await asyncio.wait({gone, unwanted}, return_when=asyncio.FIRST_COMPLETED)
                    exit_code = gone.result() if gone.done() else None
                finally:
                    gone.cancel()
                    unwanted.cancel()
            finally:
                self.worker, self.loaded, self._last_log = None, None, worker.log.lines()
                self._settled.clear()
            if exit_code is None:
                logger.info("process %d unloads %s", worker.pid, settings.model_path)
                self._on_loss(RunRejectedError(_UNLOADED))
                return None
            death = WorkerDiedError(exit_code, "answering", self._last_log, advice=self.suspicion())
            logger.info("%s", _death_message(death, "with its model loaded"))
            self._on_loss(death)
        return death

    async def _load(self, worker: WorkerProcess, library: str) -> frames.ModelLoaded:
        loading = self._loading = asyncio.get_running_loop().create_future()
        settings = self._settings
        worker.send(pack(replace(settings.load_parameters(), library=library)))
        gone = asyncio.ensure_future(worker.gone())
        limit_s = self._settings.start_timeout_s
        try:
            await asyncio.wait({loading, gone}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if loading.done():
            report = loading.result()
            if isinstance(report, frames.LoadFailed):
                kind, message, remedy = (
                    _LOAD_ERRORS.get(report.error, RuntimeUnusableError),
                    report.message,
                    report.remedy,
                )
                if kind is ModelLoadError:
                    # With the runtime's own message, which names the cause.
                    log = worker.log.lines()
                    if error_line := complaint(log):
                        message = f'{message} It said "{error_line}".'
                        known = (advice for words, advice in _REMEDIES if any(words in line for line in log))
                        remedy = next(known, remedy)
                    remedy = self._remedy(remedy)
                raise kind(message, remedy)
            return report
        if gone.done():
            death = WorkerDiedError(gone.result(), "loading the model", worker.log.lines())
            raise _DiedWhileLoadingError(_death_message(death, "while loading the model"), self._remedy())
        worker.kill()
        raise ModelLoadError(
            f"The model did not finish loading within {limit_s:g} s.", "Raise [runtime] start_timeout_s, or see doctor."
        )

    def _end(self, error: RkllmMcpError) -> None:
        self.failure = error
        self.started.set()
        self._settled.set()
        self._stopped.set()
        self._on_loss(error)

    def _remedy(self, otherwise: str = _MISFIT) -> str:
        suspicion = self.suspicion()
        return f"{suspicion}." if suspicion else otherwise


class _DiedWhileLoadingError(ModelLoadError):
    """The worker died before the model was loaded."""


def _death_message(death: WorkerDiedError, when: str) -> str:
    how = f"was killed by {death.signal_name}" if death.signal_name else f"exited ({death.exit_code_or_signal})"
    last_words = f' Its last words: "{death.last_lines[-1]}".' if death.last_lines else ""
    return f"The runtime's process {how} {when}.{last_words}"


def complaint(lines: Sequence[str]) -> str:
    """Return the runtime's first error line, which names the cause; empty without one."""
    return next((line for line in lines if line.startswith("E ")), "")


_TOOLKIT = re.compile(r"rkllm-toolkit version: (\d+\.\d+\.\d+)")


def load_warnings(lines: Sequence[str], version: str) -> tuple[str, ...]:
    """Return the runtime's warnings about driver and model, and that the model's toolkit is newer than the runtime."""
    warned = [line.partition(": ")[2].removeprefix("Warning: ") for line in lines if line.startswith("W ")]
    toolkit = next((match[1] for line in lines if (match := _TOOLKIT.search(line))), version)
    made_by, running = ([int(number) for number in re.findall(r"\d+", release)[:3]] for release in (toolkit, version))
    if made_by > running:
        warned.append(f"the model was made by rkllm-toolkit {toolkit}, which is newer than this runtime, {version}")
    return tuple(dict.fromkeys(warned))


_LOAD_ERRORS = {
    error.__name__: error
    for error in (RuntimeUnusableError, *RuntimeUnusableError.__subclasses__(), *ModelLoadError.__subclasses__())
}


# Words of the runtime's error lines -> what to do. Source: strings of the libraries, rknn-llm #530, #55, #335.
_REMEDIES = (
    (
        "runtime version is lower than the rkllm-toolkit",
        "The model was made by a newer rkllm-toolkit: fetch that runtime ('rkllm-mcp runtime list'), or another model.",
    ),
    ("target_platform does not match", "It is for another chip; 'rkllm-mcp models list' shows those for this board."),
    ("Platform error", "The board is not recognised; 'rkllm-mcp doctor' says why, for example in a container."),
    ("failed to open rkn", "The NPU's device cannot be opened; 'rkllm-mcp doctor' names the node and the group."),
    ("invalid rkllm model", "Fetch the file again: it is damaged, or no .rkllm file of toolkit 1.2 or newer."),
    ("failed to malloc npu memory", "End other programs, or choose a smaller model or [model] context_tokens."),
    ("failed to allocate handle", "End other programs, or choose a smaller model or [model] context_tokens."),
)
