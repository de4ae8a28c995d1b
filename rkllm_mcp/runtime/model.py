"""NativeModel: the synchronous owner of one loaded model.

Rules: every object that the library may still read stays alive. rkllm_is_running and rkllm_run_async are not used:
their meaning and health differ between releases (rknn-llm #208, #320). A method without a function in the family
raises.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from ctypes import byref, c_int, c_void_p
from typing import Any

from rkllm_mcp.errors import ModelLoadError, RunRejectedError
from rkllm_mcp.generation import GenerationOptions, Input
from rkllm_mcp.runtime.abi.common import LoadParameters, require
from rkllm_mcp.runtime.abi.declarations import CallFailedError
from rkllm_mcp.runtime.frames import OutputSelection
from rkllm_mcp.runtime.inputs import as_input, check_support, native_input
from rkllm_mcp.runtime.library import Library
from rkllm_mcp.runtime.native_run import (
    CallbackThreads,
    NativeRun,
    OnToken,
    PausingRun,
    RowsRun,
    TimedRun,
    callback_argument,
)


class NativeModel:
    """A loaded model; its methods belong to one thread, except ``NativeRun.abort``.

    A refused model is a ModelLoadError, a refused call a RunRejectedError, and a call that the family lacks an
    UnsupportedError.
    """

    def __init__(self, library: Library, load: LoadParameters) -> None:
        self.abi = library.abi
        self.version = library.version
        self.callback_threads = CallbackThreads()
        self._functions = library.functions
        self._active: NativeRun | None = None
        self._referenced: list[Any] = []
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
        options: GenerationOptions,
        *,
        rows: OutputSelection | None = None,
        is_timed: bool = False,
    ) -> NativeRun:
        """Prepare a run; ``on_token`` may be called on any thread.

        ``rows`` selects the output of an evaluation (``RowsRun``), ``is_timed`` makes a ``TimedRun``.
        """
        value = as_input(prompt)
        check_support(value, self.abi, self.version)
        native = native_input(value, self.abi)
        if rows is not None:
            return RowsRun(self, native, options, on_token, rows)
        if options.pause_after_tokens:
            require(self.abi, self.version, "callback_returns_int")
            return PausingRun(self, native, options, on_token)
        return (TimedRun if is_timed else NativeRun)(self, native, options, on_token)

    # The KV cache

    def clear_kv_cache(self, *, keep_system: bool = False, span: Sequence[int] | None = None) -> None:
        """Clear all of the KV cache, all but the system prompt, or, during a pause, only the tokens of ``span``."""
        if span is not None:
            require(self.abi, self.version, "has_cache_ranges")
        arguments = self.abi.clear_arguments(keep_system, (span[0], span[1]) if span is not None else None)
        self._call("rkllm_clear_kv_cache", *arguments)

    def kv_cache_size(self) -> int | None:
        """Return the number of tokens in the KV cache; None if the family cannot report it."""
        if not self.abi.has_kv_cache_size:
            return None
        sizes = (c_int * 1)()  # one per batch, and there is one batch
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
        """Wrap text inputs in these texts instead of the model's own template; clears the KV cache."""
        self._call("rkllm_set_chat_template", system.encode(), prefix.encode(), postfix.encode())

    def set_function_tools(self, system: str, tools: str, response_tag: str) -> None:
        """Describe tools (a JSON array) in the runtime's own prompt for text inputs; needs its own chat template."""
        require(self.abi, self.version, "has_function_tools")
        self._call("rkllm_set_function_tools", system.encode(), tools.encode(), response_tag.encode())

    def destroy(self) -> None:
        """Free the model; may be called again."""
        handle, self._handle = self._handle, c_void_p()
        if handle:
            try:
                self._functions.rkllm_destroy(handle)
            except CallFailedError:
                return  # the process ends next

    def _call(self, function: str, *arguments: Any) -> None:
        try:
            getattr(self._functions, function)(self._handle, *arguments)
        except CallFailedError as error:
            raise RunRejectedError(str(error)) from None

    # Called by the runs

    def run_native(self, run: NativeRun, value: Any, infer_param: Any) -> None:
        """Call rkllm_run with ``run`` receiving the callbacks; one at a time."""
        self._active = run
        try:
            self._functions.rkllm_run(self._handle, byref(value), byref(infer_param), None)
        finally:
            self._active = None  # a callback after the return has no run

    def abort_native(self) -> None:
        """Call rkllm_abort; a refusal means that nothing runs and is ignored."""
        try:
            self._functions.rkllm_abort(self._handle)
        except CallFailedError:
            return

    def _on_result(self, result: Any, _userdata: int | None, state: int) -> int:
        entered_ns = time.monotonic_ns()
        run = self._active
        if run is not None:
            try:
                return run.on_result(result, state, entered_ns)
            except BaseException as failure:  # noqa: BLE001  an exception must not reach C, whatever it is
                run.fail(failure)
        return 0  # go on


def _load_error(model_path: object, reason: str) -> ModelLoadError:
    return ModelLoadError(
        f"The runtime did not load {model_path}: {reason}.",
        "See the runtime's own lines, and run 'rkllm-mcp doctor'.",
    )
