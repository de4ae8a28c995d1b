"""One loaded model and its runs.

Rules: only the return of rkllm_run ends a run; FINISH only brings statistics. The callback, which may come on any
thread, copies, hands over and returns; it never raises and keeps no memory of the library. Its result continues the
run, except in RowsRun. It reads the clock once; only TimedRun reads it twice.

Every object that the library may still read stays alive. rkllm_is_running and rkllm_run_async are not used: their
meaning and health differ between releases (rknn-llm #208, #320). A method without a function in the family raises.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import addressof, byref, c_int, c_void_p, pythonapi, string_at
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from rkllm_mcp.errors import ModelLoadError, RunRejectedError
from rkllm_mcp.generation import GenerationOptions, Input
from rkllm_mcp.runtime.abi.common import (
    CALLBACK_DROP_BUFFER,
    CALLBACK_GO_ON,
    RKLLM_INFER_GENERATE,
    RKLLM_INFER_GET_LOGITS,
    RKLLM_RUN_FINISH,
    RKLLM_RUN_NORMAL,
    RKLLM_RUN_WAITING,
    LoadParameters,
    Perf,
)
from rkllm_mcp.runtime.abi.declarations import CallFailedError
from rkllm_mcp.runtime.frames import OutputSelection, RunReport
from rkllm_mcp.runtime.inputs import NativeInput, as_input, native_input
from rkllm_mcp.runtime.library import Library

_DONE = 0
_FAILED = -1


class EmbeddingTable:
    """Embedding rows in a file, mapped into memory.

    Raises:
        ModelLoadError: it cannot be read.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        try:
            with Path(path).open("rb") as file:
                self._rows = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ModelLoadError(
                f"The embedding table {path} cannot be read: {error}.", "Export it again, beside the model."
            ) from None

    def embed(self, _userdata: Any, tokens: Any, count: int, target: int | None, length: int) -> int:
        """Copy the row of each token to ``target``, which has room for ``length`` bytes (an LLMGetEmbedCallback)."""
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
    """Refuse to tokenize (an LLMTokenizerCallback)."""
    return _FAILED


# (token id, the bytes of text it completed, CLOCK_MONOTONIC at the entry of the callback, ns)
OnToken = Callable[[int, bytes, int], None]

_FLOAT_BYTES = 4
_MOST_HELD_THREADS = 32
_PYGILSTATE_LOCKED = 0


@dataclass(eq=False)
class CallbackThreads:
    """Keep Python's thread state of the runtime's thread between the callbacks of a run.

    Python creates a thread state when an unknown thread calls in and frees it at the return, which is most of the cost
    of a callback (7 of 8 µs on x86-64). The state is held from a run's first callback to its FINISH. A run without
    FINISH leaks it, and the runtime may use a new thread for every run, so the number is limited.
    """

    # Part of the thread state, so it disappears with it even if the thread's number is reused.
    _here: threading.local = field(default_factory=threading.local)
    _held_count: int = 0

    def hold(self) -> None:
        """Hold the state of the calling thread."""
        if self._held_count < _MOST_HELD_THREADS and not getattr(self._here, "is_held", False):
            pythonapi.PyGILState_Ensure()
            self._here.is_held = True
            self._held_count += 1

    def release(self) -> None:
        """Release the state of the calling thread; it is freed at the end of the call."""
        if getattr(self._here, "is_held", False):
            self._here.is_held = False
            self._held_count -= 1
            pythonapi.PyGILState_Release(_PYGILSTATE_LOCKED)


class NativeRun:
    """One run of a model: ``execute`` blocks until it has returned, ``abort`` ends it from any thread."""

    def __init__(
        self,
        model: NativeModel,
        prompt: NativeInput,
        options: GenerationOptions,
        on_token: OnToken,
        mode: int = RKLLM_INFER_GENERATE,
        *,
        keeps_history: bool = False,
    ) -> None:
        self._model = model
        self._prompt = prompt
        self._infer_param = model.abi.new_infer_param(options, mode, keeps_history=keeps_history)
        self._on_token = on_token
        self._lock = threading.Lock()
        self._running = False
        self._abort_wanted = False
        self._error = False
        self._failure: BaseException | None = None
        self._first_ns = 0
        self._perf: Perf | None = None
        self._callback_ns = 0

    def execute(self) -> RunReport:
        """Run to the end.

        Raises:
            RunRejectedError: the runtime refused the run or reported an error, or ``on_token`` raised.
        """
        with self._lock:
            if self._abort_wanted:
                return RunReport()
            self._running = True
        refusal, model = "", self._model
        try:
            model.active = self
            model.functions.rkllm_run(model.handle, byref(self._prompt.struct), byref(self._infer_param), None)
        except CallFailedError as error:
            refusal = str(error)
        finally:
            model.active = None  # a callback after the return has no run
            with self._lock:
                self._running = False
        if self._failure is not None:
            raise RunRejectedError(f"a token could not be handed over ({self._failure!r})") from self._failure
        if not self._abort_wanted and (refusal or self._error):
            raise RunRejectedError(refusal or "it reported an error in the middle of the answer")
        return RunReport(self._first_ns, self._perf, self._callback_ns)

    def abort(self) -> None:
        """End the run after its current step, or before its first; returns immediately.

        The runtime forgets an abort that arrives before the run, so callers repeat it while tokens arrive.
        """
        with self._lock:
            self._abort_wanted = True
            if self._running:
                with suppress(CallFailedError):  # nothing runs
                    self._model.functions.rkllm_abort(self._model.handle)

    def on_result(self, result: Any, state: int, entered_ns: int) -> int:
        """Process a callback: hand over a token or note the end; return the callback's result."""
        if not self._first_ns:
            self._first_ns = entered_ns
            self._model.callback_threads.hold()
        if state <= RKLLM_RUN_WAITING:  # NORMAL or WAITING, one token either way
            if result and self._failure is None:
                value = result.contents
                # WAITING holds back the bytes of an unfinished character; they come with the NORMAL that completes it.
                text = value.text if state == RKLLM_RUN_NORMAL else None
                self._on_token(value.token_id, text or b"", entered_ns)
        elif state == RKLLM_RUN_FINISH:
            self._model.callback_threads.release()
            if result:
                self._perf = self._model.abi.perf_of(result.contents)
        else:
            self._model.callback_threads.release()
            self._error = True
        return CALLBACK_GO_ON

    def fail(self, failure: BaseException) -> None:
        """Note the exception that prevented handing over a token, and abort the run."""
        if self._failure is None:
            self._failure = failure
            self._abort_elsewhere()

    def _abort_elsewhere(self) -> None:
        """Abort on another thread: it is undocumented if rkllm_abort may be called inside the callback."""
        with suppress(RuntimeError):  # no more threads: the run continues to its end
            threading.Thread(target=self.abort, name="rkllm-abort", daemon=True).start()


class TimedRun(NativeRun):
    """A run that measures the duration of its callbacks, which makes each slightly longer."""

    def on_result(self, result: Any, state: int, entered_ns: int) -> int:
        """Process and time a callback."""
        status = super().on_result(result, state, entered_ns)
        self._callback_ns += time.monotonic_ns() - entered_ns
        return status


class RowsRun(NativeRun):
    """A run for hidden states or logits.

    Rows come for every evaluated token or only for the last one, after callbacks without rows (rknn-llm #278). The
    first rows are the prompt's; if a release continues to generate, the run is aborted.
    """

    def __init__(
        self,
        model: NativeModel,
        prompt: NativeInput,
        options: GenerationOptions,
        on_token: OnToken,
        selection: OutputSelection,
    ) -> None:
        super().__init__(model, prompt, options, on_token, selection.mode)
        self._is_logits = selection.mode == RKLLM_INFER_GET_LOGITS
        self._selection = selection
        # Width, number of rows that the runtime gave, and the selected values as float32; None if there are none yet.
        # If a selected column does not exist, the values are empty and the width is that of the runtime's rows.
        self.rows: tuple[int, int, bytes] | None = None

    def execute(self) -> RunReport:
        """Run to the end; a run that gave no rows is rejected, too."""
        report = super().execute()
        if self.rows is None and not self._abort_wanted:
            raise RunRejectedError(f"it gave no {'logits' if self._is_logits else 'hidden states'} for this model")
        return report

    def on_result(self, result: Any, state: int, entered_ns: int) -> int:
        """Process a callback: copy the rows, and let the library free them if it would keep them."""
        if state > RKLLM_RUN_WAITING:
            return super().on_result(result, state, entered_ns)
        self._first_ns = self._first_ns or entered_ns
        if self.rows is not None:
            self._abort_elsewhere()
            return CALLBACK_GO_ON
        if not result:
            return CALLBACK_GO_ON
        if self._is_logits:
            output = result.contents.logits
            pointer, width, count = output.logits, output.vocab_size, output.num_tokens
        else:
            output = result.contents.last_hidden_layer
            pointer, width, count = output.hidden_states, output.embd_size, output.num_tokens
        if not pointer or width <= 0 or count <= 0:
            return CALLBACK_GO_ON
        first, columns = (count - 1 if self._selection.which == "last" else 0), self._selection.columns
        if not columns:
            start = addressof(pointer.contents) + first * width * _FLOAT_BYTES
            values = string_at(start, (count - first) * width * _FLOAT_BYTES)
        elif max(columns) >= width:
            values = b""
        else:
            chosen = [pointer[row * width + column] for row in range(first, count) for column in columns]
            values, width = array("f", chosen).tobytes(), len(columns)
        self.rows = (width, count, values)
        # Otherwise the library keeps every row of a long input (rknn-llm #504).
        return CALLBACK_DROP_BUFFER if self._model.abi.can_drop_buffers else CALLBACK_GO_ON


class NativeModel:
    """A loaded model; its methods belong to one thread, except ``NativeRun.abort``.

    A refused model is a ModelLoadError, a refused call a RunRejectedError.

    Attributes:
        functions: the ctypes library.
        handle: the model for its functions.
        active: the run that receives the callbacks; one at a time.
    """

    def __init__(self, library: Library, load: LoadParameters) -> None:
        self.abi = library.abi
        self.version = library.version
        self.callback_threads = CallbackThreads()
        self.functions = library.functions
        self.active: NativeRun | None = None
        self._referenced: list[Any] = []
        self._param = self.abi.new_param(library.default_param, load)
        self._callback = self.abi.types["LLMResultCallback"](self._on_result)
        if (load.embedding_table is not None or load.lacks_tokenizer) and not self.abi.has_host_callbacks:
            raise ModelLoadError(
                f"The runtime ({self.abi.name}) cannot use a model without tokenizer or embeddings.",
                "Use RKLLM 1.3.0 or newer, or export the model with both.",
            )
        tokenize = refuse_text if load.lacks_tokenizer else None
        embed = EmbeddingTable(load.embedding_table).embed if load.embedding_table else None
        # It keeps everything it points to alive.
        self._callback_argument = self.abi.new_callback(self._callback, tokenize, embed)
        self.handle = c_void_p()
        # Seen in the field: a success status although loading had failed (rknn-llm #129).
        reason = "rkllm_init reported success but gave no model"
        try:
            self.functions.rkllm_init(byref(self.handle), byref(self._param), self._callback_argument)
            is_loaded = bool(self.handle)
        except CallFailedError as error:
            is_loaded, reason = False, str(error)
        if not is_loaded:
            raise ModelLoadError(
                f"The runtime did not load {load.model_path}: {reason}.",
                "See the runtime's own lines, and run 'rkllm-mcp doctor'.",
            )

    # Runs

    def new_run(
        self,
        prompt: Input | Sequence[int],
        on_token: OnToken,
        options: GenerationOptions,
        *,
        rows: OutputSelection | None = None,
        is_timed: bool = False,
        keeps_history: bool = False,
    ) -> NativeRun:
        """Prepare a run; ``on_token`` may be called on any thread.

        ``rows`` selects the output of an evaluation (``RowsRun``), ``is_timed`` makes a ``TimedRun``, and
        ``keeps_history`` appends to the content of the KV cache instead of comparing with it.
        """
        native = native_input(as_input(prompt), self.abi)
        if rows is not None:
            return RowsRun(self, native, options, on_token, rows)
        kind = TimedRun if is_timed else NativeRun
        return kind(self, native, options, on_token, keeps_history=keeps_history)

    # The KV cache

    def clear_kv_cache(self) -> None:
        """Clear all of the KV cache."""
        self._call("rkllm_clear_kv_cache", *self.abi.clear_arguments)

    def kv_cache_size(self) -> int | None:
        """Return the number of tokens in the KV cache; None if the family cannot report it."""
        if not self.abi.has_kv_cache_size:
            return None
        sizes = (c_int * 1)()  # one per batch, of which a run has one
        self._call("rkllm_get_kv_cache_size", sizes)
        return sizes[0]

    def load_prompt_cache(self, path: str) -> None:
        """Load the KV cache from a file that a run saved with this model and release."""
        self._call("rkllm_load_prompt_cache", path.encode())

    def release_prompt_cache(self) -> None:
        """Release the loaded prompt cache, which the runtime requires before loading another one."""
        self._call("rkllm_release_prompt_cache")

    # Other settings of the model

    def load_lora(self, path: str, name: str, scale: float = 1.0) -> None:
        """Load an adapter, which runs select by its name."""
        adapter = self.abi.types["RKLLMLoraAdapter"]
        self._referenced.append(adapter(lora_adapter_path=path.encode(), lora_adapter_name=name.encode(), scale=scale))
        self._call("rkllm_load_lora", byref(self._referenced[-1]))

    def set_chat_template(self, system: str, prefix: str, postfix: str) -> None:
        """Wrap the text of image inputs in these texts instead of the model's own template; clears the KV cache."""
        self._call("rkllm_set_chat_template", system.encode(), prefix.encode(), postfix.encode())

    def destroy(self) -> None:
        """Free the model; may be called again."""
        handle, self.handle = self.handle, c_void_p()
        if handle:
            try:
                self.functions.rkllm_destroy(handle)
            except CallFailedError:
                return  # the process ends next

    def _call(self, function: str, *arguments: Any) -> None:
        try:
            getattr(self.functions, function)(self.handle, *arguments)
        except CallFailedError as error:
            raise RunRejectedError(str(error)) from None

    def _on_result(self, result: Any, _userdata: int | None, state: int) -> int:
        entered_ns = time.monotonic_ns()
        run = self.active
        if run is not None:
            try:
                return run.on_result(result, state, entered_ns)
            except BaseException as failure:  # noqa: BLE001  an exception must not reach C, whatever it is
                run.fail(failure)
        return 0  # go on
