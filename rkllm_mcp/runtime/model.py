"""NativeModel: the synchronous owner of one loaded model. Inputs go in, tokens come out through a callback.

Rules: every object the library may still look at lives as long as the library may look. rkllm_is_running and
rkllm_run_async are not used: their meaning and health differ between releases (rknn-llm #208, #320). A method that the
family has no function for raises; it never does half of what was asked.

It knows nothing of processes, sockets or asyncio. How a run goes is told in ``native_run.py``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import contextmanager
from ctypes import byref, c_int, c_void_p
from typing import TYPE_CHECKING, Any

from rkllm_mcp.errors import ModelLoadError, RunRejectedError
from rkllm_mcp.generation import Input
from rkllm_mcp.runtime.abi.common import CallFailedError, InferParameters, LoadParameters, require
from rkllm_mcp.runtime.frames import OutputSelection
from rkllm_mcp.runtime.inputs import as_input, check_support, native_input
from rkllm_mcp.runtime.library import Library
from rkllm_mcp.runtime.native_run import (
    CallbackThreads,
    NativeRun,
    OnToken,
    PausingRun,
    RowsRun,
    RunReport,
    TimedRun,
    callback_argument,
)

if TYPE_CHECKING:
    from collections.abc import Generator


__all__ = ["NativeModel", "NativeRun", "OnToken", "RowsRun", "RunReport"]


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
        self.version = library.version
        self.callback_threads = CallbackThreads()
        self._functions = library.functions
        self._active: NativeRun | None = None
        self._kept: list[Any] = []
        self._param = self.abi.new_param(library.default_param, load)
        self._callback = self.abi.callback_type(self._on_result)
        self._callback_argument = callback_argument(self.abi, self._callback, load)
        self._handle = c_void_p()
        try:
            self._functions.rkllm_init(byref(self._handle), byref(self._param), self._callback_argument)
        except CallFailedError as error:
            raise _load_error(load.model_path, str(error)) from None
        if not self._handle:
            # Seen in the field: a success status although loading had failed (rknn-llm #129).
            raise _load_error(load.model_path, "rkllm_init reported success but gave no model")

    # Runs

    def new_run(
        self,
        prompt: Input | Sequence[int],
        on_token: OnToken,
        infer: InferParameters,
        *,
        rows: OutputSelection | None = None,
        pause_after: int = 0,
        is_timed: bool = False,
    ) -> NativeRun:
        """Prepare a run.

        Args:
            prompt: the input; a plain sequence is one of token ids.
            on_token: is given every token of a generation, on any thread.
            infer: the run's parameters; sampling and limit count where the family has them per run.
            rows: what is wanted of an evaluation, which is then a ``RowsRun``.
            pause_after: pause after this many tokens, where the family can; 0 for never.
            is_timed: report how long the callbacks of a generation that is not to pause keep the runtime.

        Raises:
            UnsupportedError: the family lacks something that the run needs.
            InputRefusedError: the prompt is no sequence of token ids.
        """
        value = as_input(prompt)
        check_support(value, self.abi, self.version)
        native = native_input(value, self.abi)
        if rows is not None:
            arguments = (self, native, infer, on_token)
            return RowsRun(*arguments, infer=infer, wanted=rows)
        if pause_after:
            require(self.abi, self.version, "callback_returns_int")
            return PausingRun(self, native, infer, on_token, pause_after=pause_after)
        return (TimedRun if is_timed else NativeRun)(self, native, infer, on_token)

    # The KV cache

    def clear_kv_cache(self, *, keep_system: bool = False, span: Sequence[int] | None = None) -> None:
        """Forget what was prefilled.

        Args:
            keep_system: all but the system prompt's part, if there is one.
            span: only this range [start, end), tokens; the runtime allows it while a run is paused (1.2.1 on).

        Raises:
            RunRejectedError: the runtime refused.
            UnsupportedError: the family cannot clear a range.
        """
        if span is not None:
            require(self.abi, self.version, "has_cache_ranges")
        arguments = self.abi.clear_arguments(keep_system, (span[0], span[1]) if span is not None else None)
        with _rejections():
            self._functions.rkllm_clear_kv_cache(self._handle, *arguments)

    def kv_cache_size(self) -> int | None:
        """Tokens in the KV cache, or None where the family cannot tell.

        Raises:
            RunRejectedError: the runtime refused.
        """
        if not self.abi.has_kv_cache_size:
            return None
        sizes = (c_int * 1)()  # one per batch, and there is one batch
        with _rejections():
            self._functions.rkllm_get_kv_cache_size(self._handle, sizes)
        return sizes[0]

    def load_prompt_cache(self, path: str) -> None:
        """Take the KV cache from a file that a run saved.

        Raises:
            RunRejectedError: it does not exist, or belongs to another model or release.
        """
        with _rejections():
            self._functions.rkllm_load_prompt_cache(self._handle, path.encode())

    def release_prompt_cache(self) -> None:
        """Give up the loaded prompt cache, as the runtime wants before another one is loaded.

        Raises:
            RunRejectedError: the runtime refused.
        """
        with _rejections():
            self._functions.rkllm_release_prompt_cache(self._handle)

    # What else can be set on a model

    def load_lora(self, path: str, name: str, scale: float = 1.0) -> None:
        """Load an adapter, which runs then select by its name.

        Raises:
            RunRejectedError: the runtime refused it.
        """
        adapter = self.abi.structs["RKLLMLoraAdapter"]
        self._kept.append(adapter(lora_adapter_path=path.encode(), lora_adapter_name=name.encode(), scale=scale))
        with _rejections():
            self._functions.rkllm_load_lora(self._handle, byref(self._kept[-1]))

    def set_chat_template(self, system: str, prefix: str, postfix: str) -> None:
        """Put text inputs between these instead of the model's own template; it empties the KV cache.

        Raises:
            RunRejectedError: the runtime refused.
        """
        with _rejections():
            self._functions.rkllm_set_chat_template(self._handle, system.encode(), prefix.encode(), postfix.encode())

    def set_function_tools(self, system: str, tools: str, response_tag: str) -> None:
        """Describe tools (a JSON array) in the runtime's own prompt for text inputs.

        Raises:
            RunRejectedError: the runtime refused; it needs the model's own chat template.
            UnsupportedError: the family has no tools.
        """
        require(self.abi, self.version, "has_function_tools")
        with _rejections():
            self._functions.rkllm_set_function_tools(
                self._handle, system.encode(), tools.encode(), response_tag.encode()
            )

    def destroy(self) -> None:
        """Free the model; harmless when repeated."""
        handle, self._handle = self._handle, c_void_p()
        if handle:
            try:
                self._functions.rkllm_destroy(handle)
            except CallFailedError:
                return  # there is nothing more to do about it: the process that owns the model ends next

    # For the runs

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
                return run.take(result, state, entered_ns)
            except BaseException as failure:  # noqa: BLE001  an exception must not reach C, whatever it is
                run.fail(failure)
        return 0  # go on


@contextmanager
def _rejections() -> Generator[None, None, None]:
    """A status other than success becomes the error of a request."""
    try:
        yield
    except CallFailedError as error:
        raise RunRejectedError(str(error)) from None


def _load_error(model_path: str, reason: str) -> ModelLoadError:
    return ModelLoadError(
        f"The runtime did not load {model_path}: {reason}.",
        "See the runtime's own lines, and run 'rkllm-mcp doctor'.",
    )
