"""NativeModel: the synchronous owner of one loaded model. Token ids go in, tokens come out through a callback.

Rules: the return of rkllm_run is the only end of a run that is believed; FINISH only brings figures. The callback,
which may be called on any thread, copies, hands over and returns 0; it never raises and keeps nothing that belongs to
the library. Every object the library may still look at lives as long as the library may look. rkllm_is_running and
rkllm_run_async are not used: their meaning and health differ between releases (rknn-llm #208, #320).

It knows nothing of processes, sockets or asyncio.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import byref, c_int, c_int32, c_void_p, pythonapi
from typing import Any, NamedTuple

from rkllm_mcp.errors import ModelLoadError, RunRejectedError
from rkllm_mcp.generation import Sampling
from rkllm_mcp.runtime.abi.common import (
    RKLLM_RUN_FINISH,
    RKLLM_RUN_NORMAL,
    RKLLM_RUN_WAITING,
    CallFailedError,
    LoadParameters,
    Perf,
)
from rkllm_mcp.runtime.library import Library

# (token id, the bytes of text it completed, CLOCK_MONOTONIC in ns when the callback was entered)
OnToken = Callable[[int, bytes, int], None]


class RunReport(NamedTuple):
    """How a run went.

    Args:
        first_ns: CLOCK_MONOTONIC when the first callback was entered; 0 when there was none.
        last_ns: the same of the last callback.
        perf: the runtime's figures; None from a family without them, and where no FINISH came.
    """

    first_ns: int
    last_ns: int
    perf: Perf | None


class CallbackThreads:
    """Keeps the interpreter's state of the runtime's thread from one callback of a run to the next.

    Python makes such a state whenever a thread it does not know calls in and frees it when the call returns, which is
    most of what a callback costs (measured on x86-64: 7 µs of 8). It is kept from a run's first callback to its FINISH.
    A run that ends without one leaves its thread's state behind; the runtime may use a new thread for every run, so
    only so many are kept.
    """

    _KEPT_AT_MOST = 32
    _PYGILSTATE_LOCKED = 0

    def __init__(self) -> None:
        # Belongs to the state itself, so it is gone when the state is, whatever becomes of the thread's number.
        self._here = threading.local()
        self._kept = 0

    def keep(self) -> None:
        """Keep the state of the thread that calls."""
        if self._kept < self._KEPT_AT_MOST and not getattr(self._here, "is_kept", False):
            pythonapi.PyGILState_Ensure()
            self._here.is_kept = True
            self._kept += 1

    def let_go(self) -> None:
        """Let the state of the thread that calls be freed when its call returns."""
        if getattr(self._here, "is_kept", False):
            self._here.is_kept = False
            self._kept -= 1
            pythonapi.PyGILState_Release(self._PYGILSTATE_LOCKED)


class NativeRun:
    """One run of a model: ``execute`` blocks until it is over, ``abort`` ends it from any thread at any time."""

    def __init__(
        self, model: NativeModel, tokens: Sequence[int], limit: int, sampling: Sampling | None, on_token: OnToken
    ) -> None:
        ids = tokens if isinstance(tokens, array) else array("i", tokens)
        self._model = model
        self._ids = (c_int32 * len(ids)).from_buffer(ids)
        self._input = model.abi.new_input(self._ids)
        self._infer_param = model.abi.new_infer_param(limit, sampling)
        self._on_token = on_token
        self._lock = threading.Lock()
        self._running = False
        self._abort_wanted = False
        self._error = False
        self._failure: BaseException | None = None
        self._first_ns = 0
        self._last_ns = 0
        self._perf: Perf | None = None

    def execute(self) -> RunReport:
        """Run to the end.

        Raises:
            RunRejectedError: the runtime refused the run or reported an error, or ``on_token`` raised.
        """
        with self._lock:
            if self._abort_wanted:
                return RunReport(0, 0, None)
            self._running = True
        refusal = self._call()
        if self._failure is not None:
            raise RunRejectedError(f"a token could not be handed over ({self._failure!r})") from self._failure
        if not self._abort_wanted and (refusal is not None or self._error):
            raise RunRejectedError(str(refusal) if refusal else "it reported an error in the middle of the answer")
        return RunReport(self._first_ns, self._last_ns, self._perf)

    def abort(self) -> None:
        """End the run after its current step, or before its first. Returns at once; ``execute`` returns when it ended.

        The runtime forgets an abort that reaches it before the run does, so callers repeat it while tokens still come.
        """
        with self._lock:
            self._abort_wanted = True
            if self._running:
                self._model.abort_native()

    def take(self, result: Any, state: int, entered_ns: int) -> None:
        """One callback: hand over a token, or note what else it says."""
        if not self._first_ns:
            self._first_ns = entered_ns
            self._model.callback_threads.keep()
        self._last_ns = entered_ns
        if state <= RKLLM_RUN_WAITING:  # NORMAL or WAITING, one token either way
            if result and self._failure is None:
                value = result.contents
                # WAITING holds back the bytes of an unfinished character; they come with the NORMAL that completes it.
                text = value.text if state == RKLLM_RUN_NORMAL else None
                self._on_token(value.token_id, text or b"", entered_ns)
        elif state == RKLLM_RUN_FINISH:
            self._model.callback_threads.let_go()
            if result:
                self._perf = self._model.abi.perf_of(result.contents)
        else:
            self._model.callback_threads.let_go()
            self._error = True

    def fail(self, failure: BaseException) -> None:
        """Note why tokens cannot be handed over, and end the run from another thread.

        Whether rkllm_abort may be called inside the callback is not documented.
        """
        if self._failure is None:
            self._failure = failure
            with suppress(RuntimeError):  # no more threads: the run goes to its end unheard
                threading.Thread(target=self.abort, daemon=True).start()

    def _call(self) -> CallFailedError | None:
        try:
            self._model.run_native(self, self._input, self._infer_param)
        except CallFailedError as error:
            return error
        finally:
            with self._lock:
                self._running = False
        return None


class NativeModel:
    """A loaded model. Its methods belong to one thread; only ``NativeRun.abort`` may come from others.

    Args:
        library: the bound library.
        load: every parameter of loading.

    Raises:
        ModelLoadError: the runtime refused the model.
    """

    def __init__(self, library: Library, load: LoadParameters) -> None:
        self.abi = library.abi
        self.callback_threads = CallbackThreads()
        self._functions = library.functions
        self._active: NativeRun | None = None
        self._param = self.abi.new_param(library.default_param, load)
        self._callback = self.abi.callback_type(self._on_result)
        self._callback_argument = self.abi.new_callback(self._callback)
        self._handle = c_void_p()
        try:
            self._functions.rkllm_init(byref(self._handle), byref(self._param), self._callback_argument)
        except CallFailedError as error:
            raise _load_error(load.model_path, str(error)) from None
        if not self._handle:
            # Seen in the field: a success status although loading had failed (rknn-llm #129).
            raise _load_error(load.model_path, "rkllm_init reported success but gave no model")

    def new_run(
        self, tokens: Sequence[int], on_token: OnToken, *, max_new_tokens: int, sampling: Sampling | None = None
    ) -> NativeRun:
        """Prepare a run on token ids; ``max_new_tokens`` and ``sampling`` count where the family has them per run."""
        return NativeRun(self, tokens, max_new_tokens, sampling, on_token)

    def clear_kv_cache(self) -> None:
        """Forget all that was prefilled.

        Raises:
            RunRejectedError: the runtime refused.
        """
        try:
            self._functions.rkllm_clear_kv_cache(self._handle, *self.abi.clear_all)
        except CallFailedError as error:
            raise RunRejectedError(str(error)) from None

    def kv_cache_size(self) -> int | None:
        """Tokens in the KV cache, or None where the family cannot tell.

        Raises:
            RunRejectedError: the runtime refused.
        """
        if not self.abi.has_kv_cache_size:
            return None
        sizes = (c_int * 1)()  # one per batch, and there is one batch
        try:
            self._functions.rkllm_get_kv_cache_size(self._handle, sizes)
        except CallFailedError as error:
            raise RunRejectedError(str(error)) from None
        return sizes[0]

    def destroy(self) -> None:
        """Free the model; harmless when repeated."""
        handle, self._handle = self._handle, c_void_p()
        if handle:
            try:
                self._functions.rkllm_destroy(handle)
            except CallFailedError:
                return  # there is nothing more to do about it: the process that owns the model ends next

    def run_native(self, run: NativeRun, value: Any, infer_param: Any) -> None:
        """Call rkllm_run with ``run`` receiving the callbacks; one at a time.

        Raises:
            CallFailedError: it returned another status than 0.
        """
        self._active = run
        try:
            self._functions.rkllm_run(self._handle, byref(value), byref(infer_param), None)
        finally:
            self._active = None  # a callback that comes after the return belongs to nobody

    def abort_native(self) -> None:
        """Call rkllm_abort; a refusal means that nothing runs, which is what was wanted."""
        try:
            self._functions.rkllm_abort(self._handle)
        except CallFailedError:
            return

    def _on_result(self, result: Any, _userdata: int | None, state: int) -> int:
        entered_ns = time.monotonic_ns()
        run = self._active
        if run is not None:
            try:
                run.take(result, state, entered_ns)
            except BaseException as failure:  # noqa: BLE001  an exception must not reach C, whatever it is
                run.fail(failure)
        return 0  # go on; 1 would pause the run instead of ending it


def _load_error(model_path: str, reason: str) -> ModelLoadError:
    return ModelLoadError(
        f"The runtime did not load {model_path}: {reason}.",
        "See the runtime's own lines, and run 'rkllm-mcp doctor'.",
    )
