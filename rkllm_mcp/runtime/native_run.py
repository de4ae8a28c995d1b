"""One run of a native model: rkllm_run is called and blocks, and what its callbacks bring is handed over.

Rules: the return of rkllm_run is the only end of a run that is believed; FINISH only brings figures. The callback,
which may be called on any thread, copies, hands over and returns; it never raises and keeps nothing that belongs to the
library. It tells the library to go on, except in the two runs that are made for something else: PausingRun and RowsRun.
It reads the clock once; only a TimedRun reads it twice.

It knows nothing of processes, sockets or asyncio.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from ctypes import addressof, pythonapi, string_at
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rkllm_mcp.errors import ModelLoadError, RunRejectedError
from rkllm_mcp.runtime.abi.common import (
    CALLBACK_DROP_BUFFER,
    CALLBACK_GO_ON,
    CALLBACK_PAUSE,
    RKLLM_INFER_GET_LOGITS,
    RKLLM_RUN_FINISH,
    RKLLM_RUN_NORMAL,
    RKLLM_RUN_WAITING,
    Abi,
    CallFailedError,
    InferParameters,
    LoadParameters,
    Perf,
)
from rkllm_mcp.runtime.frames import OutputSelection
from rkllm_mcp.runtime.inputs import NativeInput

_DONE = 0
_FAILED = -1


class EmbeddingTable:
    """The rows of a file.

    Args:
        path: the file.

    Raises:
        ModelLoadError: it cannot be read.
    """

    def __init__(self, path: str) -> None:
        try:
            with Path(path).open("rb") as file:
                self._rows = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ModelLoadError(
                f"The embedding table {path} cannot be read: {error}.", "Export it again, beside the model."
            ) from None

    def embed(self, _userdata: Any, tokens: Any, count: int, target: int | None, length: int) -> int:
        """An LLMGetEmbedCallback: copy the row of each token to ``target``, which has room for ``length`` bytes."""
        if not target or count <= 0 or length % count:
            return _FAILED
        row = length // count
        for index in range(count):
            start = tokens[index] * row
            if start < 0 or start + row > len(self._rows):
                return _FAILED
            ctypes.memmove(target + index * row, self._rows[start : start + row], row)
        return _DONE


def refuse_text(*_arguments: Any) -> int:
    """An LLMTokenizerCallback that cuts nothing."""
    return _FAILED


def callback_argument(abi: Abi, result_callback: Any, load: LoadParameters) -> Any:
    """The third argument of rkllm_init, which keeps all that it points to.

    Raises:
        ModelLoadError: the family asks the host nothing, or the table cannot be read.
    """
    if load.embedding_table is None and not load.lacks_tokenizer:
        return abi.new_callback(result_callback)
    if abi.host_callback_types is None:
        raise ModelLoadError(
            f"The runtime ({abi.name}) cannot use a model without tokenizer or embeddings.",
            "Use RKLLM 1.3.0 or newer, or export the model with both.",
        )
    tokenizer_type, embed_type = abi.host_callback_types
    tokenize = tokenizer_type(refuse_text) if load.lacks_tokenizer else tokenizer_type()
    embed = embed_type(EmbeddingTable(load.embedding_table).embed) if load.embedding_table else embed_type()
    return abi.new_callback(result_callback, tokenize, embed)


# (token id, the bytes of text it completed, CLOCK_MONOTONIC in ns when the callback was entered)
OnToken = Callable[[int, bytes, int], None]

_FLOAT_BYTES = 4


class RunReport(NamedTuple):
    """How a run went.

    Args:
        first_ns: CLOCK_MONOTONIC when the first callback was entered; 0 when there was none.
        last_ns: the same of the last callback.
        perf: the runtime's figures; None from a family without them, and where no FINISH came.
        is_paused: it did not end, it was told to pause.
        callback_ns: how long the callbacks of a TimedRun kept it, ns; taking the interpreter's lock is not in it.
    """

    first_ns: int
    last_ns: int
    perf: Perf | None
    is_paused: bool = False
    callback_ns: int = 0


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


class Runnable(Protocol):
    """What a run needs of its model: its interface, and the two calls that only the model may make."""

    @property
    def abi(self) -> Abi:
        """The interface in use."""
        ...

    @property
    def callback_threads(self) -> CallbackThreads:
        """The threads that have called back."""
        ...

    def run_native(self, run: NativeRun, value: Any, infer_param: Any) -> None:
        """Call rkllm_run with ``run`` receiving the callbacks."""
        ...

    def abort_native(self) -> None:
        """Call rkllm_abort."""
        ...


class NativeRun:
    """One run of a model: ``execute`` blocks until it is over, ``abort`` ends it from any thread at any time."""

    def __init__(self, model: Runnable, prompt: NativeInput, infer: InferParameters, on_token: OnToken) -> None:
        self._model = model
        self._prompt = prompt
        self._infer_param = model.abi.new_infer_param(infer)
        self._on_token = on_token
        self._lock = threading.Lock()
        self._running = False
        self._abort_wanted = False
        self._error = False
        self._failure: BaseException | None = None
        self._first_ns = 0
        self._last_ns = 0
        self._perf: Perf | None = None
        self._is_paused = False
        self._callback_ns = 0

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
        return RunReport(self._first_ns, self._last_ns, self._perf, self._is_paused, self._callback_ns)

    def abort(self) -> None:
        """End the run after its current step, or before its first. Returns at once; ``execute`` returns when it ended.

        The runtime forgets an abort that reaches it before the run does, so callers repeat it while tokens still come.
        """
        with self._lock:
            self._abort_wanted = True
            if self._running:
                self._model.abort_native()

    def take(self, result: Any, state: int, entered_ns: int) -> int:
        """One callback: hand over a token, or note what else it says; what the library is told to do next."""
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
        return CALLBACK_GO_ON

    def fail(self, failure: BaseException) -> None:
        """Note why tokens cannot be handed over, and end the run."""
        if self._failure is None:
            self._failure = failure
            self._abort_elsewhere()

    def _abort_elsewhere(self) -> None:
        """Abort on another thread: whether rkllm_abort may be called inside the callback is not documented."""
        with suppress(RuntimeError):  # no more threads: the run goes to its end unheard
            threading.Thread(target=self.abort, name="rkllm-abort", daemon=True).start()

    def _call(self) -> CallFailedError | None:
        try:
            self._model.run_native(self, self._prompt.struct, self._infer_param)
        except CallFailedError as error:
            return error
        finally:
            with self._lock:
                self._running = False
        return None


class TimedRun(NativeRun):
    """A run that adds up how long its callbacks keep the runtime, which keeps it a little longer."""

    def take(self, result: Any, state: int, entered_ns: int) -> int:
        """One callback, from its entry to its return."""
        status = super().take(result, state, entered_ns)
        self._callback_ns += time.monotonic_ns() - entered_ns
        return status


class PausingRun(NativeRun):
    """A run that pauses after some tokens: rkllm_run returns, and the next one goes on with it.

    No FINISH comes with a pause, and what the next run brings along is ignored by the runtimes that were seen.
    Source: SDK guide 1.3.0, 3.2.15.
    """

    def __init__(self, *arguments: Any, pause_after: int) -> None:
        super().__init__(*arguments)
        self._left = pause_after

    def take(self, result: Any, state: int, entered_ns: int) -> int:
        """One callback; the one that brings the last wanted token pauses the run."""
        super().take(result, state, entered_ns)
        if state > RKLLM_RUN_WAITING:
            return CALLBACK_GO_ON
        self._left -= 1
        if self._left:
            return CALLBACK_GO_ON
        self._is_paused = True
        self._model.callback_threads.let_go()
        return CALLBACK_PAUSE


class RowsRun(NativeRun):
    """A run for its hidden states or logits.

    Rows may come for every token that was evaluated or only for the last, and callbacks without any come before them
    (rknn-llm #278). The first rows are the prompt's; should a release go on and generate, that ends the run.
    """

    def __init__(self, *arguments: Any, infer: InferParameters, wanted: OutputSelection) -> None:
        super().__init__(*arguments)
        self._is_logits = infer.mode == RKLLM_INFER_GET_LOGITS
        self._wanted = wanted
        self._values = b""
        self._width = 0
        self._given = 0

    def execute(self) -> RunReport:
        """Run to the end.

        Raises:
            RunRejectedError: the runtime refused the run, reported an error, or gave no rows.
        """
        report = super().execute()
        if not self._given and not self._abort_wanted:
            raise RunRejectedError(f"it gave no {'logits' if self._is_logits else 'hidden states'} for this model")
        return report

    def rows(self) -> tuple[int, int, bytes] | None:
        """Width, rows that the runtime gave, and those that were wanted, as float32; None when it was aborted first.

        Where a column was wanted that no row has, no values, and the width of the runtime's rows.
        """
        if not self._given:
            return None
        return self._width, self._given, self._values

    def take(self, result: Any, state: int, entered_ns: int) -> int:
        """One callback; rows are copied, and where the library would keep them, it is told that it need not."""
        if state > RKLLM_RUN_WAITING:
            return super().take(result, state, entered_ns)
        self._first_ns = self._first_ns or entered_ns
        self._last_ns = entered_ns
        if self._given:
            self._abort_elsewhere()
        elif result and self._take_rows(result.contents) and self._model.abi.can_drop_buffers:
            # The library keeps every row of a long input otherwise (rknn-llm #504).
            return CALLBACK_DROP_BUFFER
        return CALLBACK_GO_ON

    def _take_rows(self, value: Any) -> bool:
        if self._is_logits:
            pointer, width, count = value.logits.logits, value.logits.vocab_size, value.logits.num_tokens
        else:
            layer = value.last_hidden_layer
            pointer, width, count = layer.hidden_states, layer.embd_size, layer.num_tokens
        if not pointer or width <= 0 or count <= 0:
            return False
        first, columns = (count - 1 if self._wanted.which == "last" else 0), self._wanted.columns
        if not columns:
            start = addressof(pointer.contents) + first * width * _FLOAT_BYTES
            self._values = string_at(start, (count - first) * width * _FLOAT_BYTES)
        elif max(columns) >= width:
            self._values = b""
        else:
            chosen = [pointer[row * width + column] for row in range(first, count) for column in columns]
            self._values, width = array("f", chosen).tobytes(), len(columns)
        self._width, self._given = width, count
        return True
