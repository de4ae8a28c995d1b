"""The supervisor: a worker with a loaded model, for as long as it is wanted.

It starts the worker, loads the model, notices the worker's death, and starts over: at once when the worker had proven
itself or was healthy for long, after growing pauses when it died of its first run, and only so often when it died
before it was asked anything; not at all when the runtime or the model was refused. It knows nothing of generations; it
tells when a worker is in service and when it is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from copy import copy

import anyio
import anyio.to_thread

from rkllm_mcp.errors import ModelLoadError, RkllmMcpError, RunRejectedError, RuntimeUnusableError, WorkerDiedError
from rkllm_mcp.runtime import frames
from rkllm_mcp.runtime.abi import choose_abi
from rkllm_mcp.runtime.emulator import emulator_library
from rkllm_mcp.runtime.frames import LoadCommand, pack_load
from rkllm_mcp.runtime.library import AUTOMATIC
from rkllm_mcp.runtime.settings import EngineSettings, SilenceLimits
from rkllm_mcp.runtime.worker_process import WorkerProcess, open_worker

# Runs that prefill less say more about overhead than about speed.
_MEASURED_FROM_TOKENS = 64


class PrefillPace:
    """How fast prefill is on this board: the slowest run seen, so that a fast one promises nothing.

    Args:
        limits: how long the runtime may be silent.
        expected_s: how long a prompt of so many tokens takes, where that was measured before, seconds.
    """

    def __init__(self, limits: SilenceLimits, expected_s: Callable[[int], float | None] | None = None) -> None:
        self._limits = limits
        self._expected_s = expected_s
        self._slowest: float | None = None

    def measured(self, tokens: int, took_ms: float) -> None:
        """A run evaluated so many prompt tokens in so many milliseconds."""
        if tokens >= _MEASURED_FROM_TOKENS and took_ms > 0:
            speed = tokens / took_ms * 1000
            self._slowest = speed if self._slowest is None else min(speed, self._slowest)

    def cost_s(self, tokens: int) -> float:
        """How long so many tokens take at the speed measured; 0 where none was."""
        return tokens / self._slowest if self._slowest else 0.0

    def limit_s(self, prompt_tokens: int) -> float:
        """How long a prompt may take until its first token, seconds.

        What of it is in the cache already is not known for sure, so all of it counts.
        """
        expected_s = prompt_tokens / (self._slowest or self._limits.prefill_tokens_per_s)
        profiled_s = self._expected_s(prompt_tokens) if self._expected_s else None
        if profiled_s is not None:
            expected_s = max(profiled_s, expected_s) if self._slowest else profiled_s
        return self._limits.prefill_base_s + self._limits.prefill_patience * expected_s


class Watchdog:
    """Waits for a sign of life.

    Args:
        on_silence: is told when there was none for as long as was allowed, and what was waited for.
    """

    def __init__(self, on_silence: Callable[[str], None]) -> None:
        self._on_silence = on_silence
        self._timer: asyncio.TimerHandle | None = None
        self._limit_s = 0.0
        self._awaited = ""
        self._heard_at = 0.0

    def expect(self, awaited: str, limit_s: float) -> None:
        """From now on, wait for this at most so long; a new expectation replaces the last.

        Args:
            awaited: a noun, such as ``a token``.
            limit_s: the longest silence, seconds.
        """
        self.rest()
        loop = asyncio.get_running_loop()
        self._awaited, self._limit_s, self._heard_at = awaited, limit_s, loop.time()
        self._timer = loop.call_later(limit_s, self._look)

    def heard(self) -> None:
        """There was a sign of life."""
        if self._timer is not None:
            self._heard_at = asyncio.get_running_loop().time()

    def rest(self) -> None:
        """Nothing is expected."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        due = self._heard_at + self._limit_s
        if loop.time() < due:
            self._timer = loop.call_at(due, self._look)
            return
        self._timer = None
        self._on_silence(f"{self._awaited} did not come within {self._limit_s:.3g} s")


logger = logging.getLogger(__name__)

EMULATOR = "emulator"

_MISFIT = "Run 'rkllm-mcp doctor'; the runtime, the driver and the model may not fit each other."


class Supervisor:
    """Keeps a worker in service.

    Args:
        settings: what to load and how long that may take.
        on_frames: is given what the worker sends, but for the outcome of loading, which is for ``on_load_report``.
        on_service: is told when a model is loaded.
        on_loss: is told when the worker is gone or will never be there, and why.

    Attributes:
        worker: the worker that runs, loaded or loading; None between two.
        loaded: what it has loaded; None while it has not.
        library: the path of the library; empty until it is known.
        opened: the library that the worker has loaded; None while it has not.
        is_used: a run was given to the worker since its model was loaded; the engine says so.
        is_proven: a run has returned well since then; the engine says so.
        restarts: how often a worker has been started again.
    """

    def __init__(
        self,
        settings: EngineSettings,
        *,
        on_frames: Callable[[Iterator[tuple[int, bytes]]], None],
        on_service: Callable[[], None],
        on_loss: Callable[[RkllmMcpError], None],
    ) -> None:
        self._settings = settings
        self._on_frames = on_frames
        self._on_service = on_service
        self._on_loss = on_loss
        self._loading: asyncio.Future[frames.ModelLoaded | frames.LoadFailed] | None = None
        self._settled = asyncio.Event()
        self._given_up = asyncio.Event()
        self._failure: RkllmMcpError | None = None
        self._last_log: tuple[str, ...] = ()
        self._loaded_at_s: float | None = None
        self.library = ""
        self.worker: WorkerProcess | None = None
        self.loaded: frames.ModelLoaded | None = None
        self.opened: frames.Opened | None = None
        self.is_used = False
        self.is_proven = False
        self.restarts = 0

    @property
    def log_lines(self) -> tuple[str, ...]:
        """The last lines that the runtime printed, of the last worker where there is none now."""
        return self.worker.log.last() if self.worker else self._last_log

    @property
    def failure(self) -> RkllmMcpError | None:
        """The reason why there will never be a worker in service again; None while one is there or will be."""
        return self._failure

    def check(self) -> None:
        """Raise why there will never be a worker in service again; otherwise do nothing."""
        if self._failure is not None:
            raise copy(self._failure)

    async def ready(self) -> None:
        """Wait until a model is loaded.

        Raises:
            RuntimeUnusableError: it cannot be loaded, and why.
        """
        await self._settled.wait()
        self.check()

    async def given_up(self) -> None:
        """Wait until there will never be a worker in service again, and ``failure`` is the reason.

        Closing the engine does not end the wait.
        """
        await self._given_up.wait()

    def on_load_report(self, kind: int, body: bytes) -> None:
        """News of loading arrived."""
        if kind == frames.OPENED:
            self.opened = frames.unpack_opened(body)
            return
        report = frames.unpack_loaded(body) if kind == frames.LOADED else frames.unpack_load_failed(body)
        if self._loading is not None and not self._loading.done():
            self._loading.set_result(report)

    def suspicion(self) -> str:
        """What to do, where the interface was chosen by hand and is not that of the release that the library names.

        A wrong interface passes rkllm_init as often as not and dies in the first run (rknn-llm #509).
        """
        opened, chosen = self.opened, self._settings.abi
        if chosen == AUTOMATIC or opened is None:
            return ""
        known = choose_abi(opened.version)
        if known is not None and known.name == opened.abi:
            return ""
        return (
            f"[runtime] abi = {chosen!r} overrides what the library says of itself ({opened.version}), and a wrong "
            "interface fails like this: remove abi, or install that runtime"
        )

    async def run(self) -> None:
        """Keep a worker in service until cancelled, or until there is no use in it."""
        try:
            self.library = await self._library()
            await self._keep_worker(self.library)
        except RuntimeUnusableError as error:
            self._give_up(error)
        except asyncio.CancelledError:
            self._end(RunRejectedError("the engine was closed"))
            raise
        except Exception as error:
            self._give_up(RuntimeUnusableError(f"The engine broke: {error!r}.", "Please report it."))
            raise

    async def _library(self) -> str:
        if self._settings.library != EMULATOR:
            return str(self._settings.library)
        return str(await anyio.to_thread.run_sync(emulator_library, abandon_on_cancel=True))

    async def _keep_worker(self, library: str) -> None:
        pauses = iter(self._settings.reload_pauses_s)
        while True:
            try:
                death = await self._live_through_one_worker(library)
                failure: ModelLoadError = self._died_unused(death)
            except ModelLoadError as error:
                # A model that was refused will be refused again; one that had been loaded before may only need a
                # moment, until the driver has taken back the memory of the worker that died.
                if not isinstance(error, _DiedWhileLoadingError) and self.restarts == 0:
                    raise
                logger.info("%s", error.message)
                failure = error
            if self.is_proven or self._was_healthy():
                pauses = iter(self._settings.reload_pauses_s)
            elif (pause_s := next(pauses, None)) is not None:
                await anyio.sleep(pause_s)
            elif self.is_used:
                # It is questions that kill it, not loading: each one may, but none comes sooner than this.
                await anyio.sleep(max(self._settings.reload_pauses_s, default=0.0))
            else:
                raise failure
            self.restarts += 1

    def _was_healthy(self) -> bool:
        """Tell whether the last worker had its model loaded for so long that earlier deaths no longer count."""
        if self._loaded_at_s is None:
            return False
        return asyncio.get_running_loop().time() - self._loaded_at_s >= self._settings.healthy_s

    async def _live_through_one_worker(self, library: str) -> WorkerDiedError:
        """Start a worker, load the model, and stay until the worker is gone; how it went.

        Raises:
            RuntimeUnusableError: the model was not loaded.
        """
        settings = self._settings
        environment = {"RKLLM_LOG_LEVEL": str(settings.log_level)} if settings.log_level else {}
        async with open_worker(
            settings.worker, self._on_frames, environment=environment, stop_timeout_s=settings.stop_timeout_s
        ) as worker:
            self.worker, self.opened, self.is_used, self.is_proven = worker, None, False, False
            self._loaded_at_s = None
            try:
                self.loaded = await self._load(worker, library)
                self._loaded_at_s = asyncio.get_running_loop().time()
                logger.info("process %d has loaded %s", worker.pid, settings.model_path)
                self._settled.set()
                self._on_service()
                exit_code = await worker.gone()
            finally:
                self.worker, self.loaded, self._last_log = None, None, worker.log.last()
                self._settled.clear()
            if settings.worker == "inline":
                raise RuntimeUnusableError(
                    "The runtime hung in this process.", 'Use worker = "process" and start again.'
                )
            death = WorkerDiedError(exit_code, "answering", self._last_log, advice=self.suspicion())
            logger.info("%s", _obituary(death, "with its model loaded"))
            self._on_loss(death)
        return death

    async def _load(self, worker: WorkerProcess, library: str) -> frames.ModelLoaded:
        loading = self._loading = asyncio.get_running_loop().create_future()
        settings = self._settings
        command = LoadCommand(library, settings.abi, settings.load_parameters(), check_memory=settings.check_memory)
        worker.send(pack_load(command))
        gone = asyncio.ensure_future(worker.gone())
        limit_s = self._settings.start_timeout_s
        try:
            await asyncio.wait({loading, gone}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if loading.done():
            report = loading.result()
            if isinstance(report, frames.LoadFailed):
                raise self._refused(report, worker.log.last())
            return report
        if gone.done():
            raise self._died_while_loading(WorkerDiedError(gone.result(), "loading the model", worker.log.last()))
        worker.kill()
        raise ModelLoadError(
            f"The model did not finish loading within {limit_s:g} s.", "Raise [runtime] start_timeout_s, or see doctor."
        )

    def _give_up(self, error: RuntimeUnusableError) -> None:
        self._end(error)
        self._given_up.set()

    def _end(self, error: RkllmMcpError) -> None:
        self._failure = error
        self._settled.set()
        self._on_loss(error)

    def _refused(self, report: frames.LoadFailed, log: Sequence[str]) -> RuntimeUnusableError:
        error = _load_error(report, log)
        if type(error) is ModelLoadError:
            error.remedy = self._remedy(error.remedy)
        return error

    def _died_while_loading(self, death: WorkerDiedError) -> ModelLoadError:
        return _DiedWhileLoadingError(_obituary(death, "while loading the model"), self._remedy())

    def _died_unused(self, death: WorkerDiedError) -> ModelLoadError:
        return ModelLoadError(_obituary(death, "again and again before it was asked anything"), self._remedy())

    def _remedy(self, otherwise: str = _MISFIT) -> str:
        suspicion = self.suspicion()
        return f"{suspicion}." if suspicion else otherwise


class _DiedWhileLoadingError(ModelLoadError):
    """The worker died before the model was loaded."""


def _obituary(death: WorkerDiedError, when: str) -> str:
    how = f"was killed by {death.signal_name}" if death.signal_name else f"exited ({death.exit_code_or_signal})"
    said = f' Its last words: "{death.last_lines[-1]}".' if death.last_lines else ""
    return f"The runtime's process {how} {when}.{said}"


def complaint(lines: Sequence[str]) -> str:
    """The runtime's first error line, which names the cause; the later ones tell what failed with it. Empty without."""
    return next((line for line in lines if line.startswith("E ")), "")


def failed_arithmetic(lines: Sequence[str]) -> str:
    """The runtime's first line that says that it could not compute, as ``matmul(w8a8) run failed``. Empty without."""
    return next((line for line in lines if line.startswith("E ") and "run failed" in line), "")


_LOAD_ERRORS = {
    error.__name__: error
    for error in (RuntimeUnusableError, *RuntimeUnusableError.__subclasses__(), *ModelLoadError.__subclasses__())
}


def _load_error(failure: frames.LoadFailed, log: Sequence[str]) -> RuntimeUnusableError:
    """The error that the worker raised, with what the runtime printed about it."""
    kind = _LOAD_ERRORS.get(failure.error, RuntimeUnusableError)
    said = complaint(log) if kind is ModelLoadError else ""
    return kind(f'{failure.message} It said "{said}".' if said else failure.message, failure.remedy)
