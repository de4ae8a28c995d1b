"""Subject: one loaded model under experiment. Every call returns what happened; nothing is smoothed over.

Unlike ``model.NativeModel``, which hides what releases do differently, this one shows it: the status of each call,
every callback with its thread and its moment, and a hook that answers the callback. It makes calls that the engine
never makes, so it belongs into a process that may die.
"""

from __future__ import annotations

import ctypes
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from typing import Any

from rkllm_mcp.errors import ModelLoadError
from rkllm_mcp.generation import GenerationOptions, ImageInput
from rkllm_mcp.runtime.abi.common import (
    RKLLM_INFER_GENERATE,
    RKLLM_RUN_ERROR,
    RKLLM_RUN_FINISH,
    RKLLM_RUN_NORMAL,
    RKLLM_RUN_WAITING,
    LoadParameters,
    Perf,
)
from rkllm_mcp.runtime.abi.declarations import CallFailedError
from rkllm_mcp.runtime.inputs import native_input
from rkllm_mcp.runtime.library import Library
from rkllm_mcp.sampling import Sampling


@dataclass(frozen=True)
class ProbePictures:
    """A question with one picture, for a model that sees."""

    encoder: str  # path of the vision encoder
    library: str  # path of librknnrt.so
    tags: tuple[str, str, str]  # before, after and in place of a picture's tokens
    text: str  # a whole prompt with the mark of a picture
    text_tokens: int  # tokens of that prompt without the picture's own, and with its tags


@dataclass(frozen=True)
class ProbePrompts:
    """Prompts of the experiments."""

    question: tuple[int, ...]  # a whole prompt with a short answer, as token ids
    other: tuple[int, ...]  # another one, whose answer begins differently
    filler: tuple[int, ...]  # ids of plain text, from which prompts are made as long as needed
    stop_ids: frozenset[int]  # the tokens that end an answer
    pictures: ProbePictures | None = None

    def of_length(self, tokens: int) -> list[int]:
        """A prompt of this many tokens that ends with the question; never shorter than the question."""
        missing = max(0, tokens - len(self.question))
        return [*islice(cycle(self.filler), missing), *self.question]

    def tail(self) -> list[int]:
        """Return the continuation of an evaluated prompt: some text and the other question."""
        return [*islice(cycle(self.filler), 8), *self.other]


# The likeliest token each time, so that the same prompt has the same answer.
GREEDY = Sampling(temperature=1.0, top_k=1, top_p=1.0, repeat_penalty=1.0)
# (tokens so far) -> what the callback returns
Hook = Callable[[int], int]
_NS_PER_MS = 1e6


@dataclass(frozen=True)
class ProbeRows:
    """Rows that one callback brought: how many, how long, and the last of them."""

    count: int
    width: int
    last: tuple[float, ...]


@dataclass
class Observed:
    """Record of one run."""

    status: int = 0  # what rkllm_run returned
    states: list[int] = field(default_factory=list[int])  # the states of the callbacks, in order
    ids: list[int] = field(default_factory=list[int])  # the tokens' ids
    texts: list[bytes | None] = field(default_factory=list["bytes | None"])  # their texts; None is NULL
    threads: set[int] = field(default_factory=set[int])  # native ids of the threads that called back
    caller: int = 0  # the thread that called rkllm_run
    times_ns: list[int] = field(default_factory=list[int])  # when each callback was entered
    began_ns: int = 0  # when rkllm_run was called
    ended_ns: int = 0  # when it returned
    finish_text: bytes | None = None  # the text that came with FINISH; None is NULL
    perf: Perf | None = None  # the runtime's figures; None without
    hidden: list[ProbeRows] = field(default_factory=list[ProbeRows])  # the rows of hidden states that came
    logits: list[ProbeRows] = field(default_factory=list[ProbeRows])  # the rows of logits that came

    @property
    def is_complete(self) -> bool:
        """Return True if the run ended normally."""
        return self.status == 0 and RKLLM_RUN_ERROR not in self.states

    @property
    def evaluated_tokens(self) -> int | None:
        """Prompt tokens that were evaluated; None where the runtime does not say."""
        return self.perf.prefill_tokens if self.perf else None

    @property
    def prefill_ms(self) -> float:
        """As the runtime says, else up to the first callback."""
        if self.perf is not None:
            return self.perf.prefill_ms
        return ((self.times_ns[0] if self.times_ns else self.ended_ns) - self.began_ns) / _NS_PER_MS

    @property
    def tokens_ms(self) -> list[float]:
        """From the call to the callback with each token or its rows."""
        times = zip(self.times_ns, self.states, strict=True)
        return [(at - self.began_ns) / _NS_PER_MS for at, state in times if state <= RKLLM_RUN_WAITING]


class ProbeSubject:
    """A loaded model, unless the runtime refused it, which is a ModelLoadError."""

    def __init__(self, library: Library, load: LoadParameters) -> None:
        self.abi = library.abi
        self.load = replace(load, sampling=GREEDY)
        self._functions = library.functions
        self._observed: Observed | None = None
        self._hook: Hook | None = None
        self._finished = threading.Event()
        self._handle = ctypes.c_void_p()
        self._param = self.abi.new_param(library.default_param, self.load)
        # Both must live as long as the model.
        self._callback = self.abi.types["LLMResultCallback"](self._on_result)
        self._callback_argument = self.abi.new_callback(self._callback)
        pointers = ctypes.byref(self._handle), ctypes.byref(self._param)
        try:
            status = int(self._functions.rkllm_init(*pointers, self._callback_argument))
        except CallFailedError as error:
            status = error.status
        if status != 0 or not self._handle:
            raise ModelLoadError(f"rkllm_init returned {status}{'' if self._handle else ' and gave no model'}.")

    def run(
        self,
        ids: Sequence[int] | ImageInput,
        limit: int,
        *,
        mode: int = RKLLM_INFER_GENERATE,
        keep_history: bool = False,
        save_to: str | None = None,
        hook: Hook | None = None,
        role: bool = True,
    ) -> Observed:
        """Run the model and record the callbacks; ``hook`` runs inside the callback of each token."""
        observed = self._observed = Observed(caller=threading.get_native_id())
        self._hook = hook
        arguments, _tokens = self._arguments(ids, limit, mode, keep_history, save_to)
        if not role and self.abi.has_roles:
            arguments[0].role = None
        observed.began_ns = time.monotonic_ns()
        observed.status = self.call("rkllm_run", *map(ctypes.byref, arguments), None)
        observed.ended_ns = time.monotonic_ns()
        self._observed = self._hook = None
        return observed

    def run_async(self, ids: Sequence[int], timeout_s: float) -> tuple[int, bool]:
        """Start a run with rkllm_run_async: its status, and whether FINISH came in time."""
        self._finished.clear()
        self._observed = Observed()
        arguments, _tokens = self._arguments(ids, 2, RKLLM_INFER_GENERATE, False, None)
        status = self.call("rkllm_run_async", *map(ctypes.byref, arguments), None)
        has_finished = status == 0 and self._finished.wait(timeout_s)
        self._observed = None
        return status, has_finished

    def intrude(self, ids: Sequence[int]) -> int:
        """Call rkllm_run while another run is under way, and tell its status."""
        arguments, _tokens = self._arguments(ids, 1, RKLLM_INFER_GENERATE, False, None)
        return self.call("rkllm_run", *map(ctypes.byref, arguments), None)

    def clear(self) -> int:
        """Clear the whole KV cache."""
        return self.call("rkllm_clear_kv_cache", *self.abi.clear_arguments)

    def cache_size(self) -> int | None:
        """Tokens in the KV cache; None where the runtime does not say."""
        sizes = (ctypes.c_int * 1)()
        if not self.abi.has_kv_cache_size or self.call("rkllm_get_kv_cache_size", sizes) != 0:
            return None
        return sizes[0]

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function of the library with the model and these arguments, and return its status."""
        try:
            return int(getattr(self._functions, name)(self._handle, *arguments))
        except CallFailedError as error:
            return error.status

    def _arguments(
        self, ids: Sequence[int] | ImageInput, limit: int, mode: int, keep_history: bool, save_to: str | None
    ) -> tuple[list[Any], Any]:
        """Return the structs of a run and the objects they point to."""
        options = GenerationOptions(limit, save_prompt_cache=save_to)
        infer_param = self.abi.new_infer_param(options, mode, keeps_history=keep_history)
        if isinstance(ids, ImageInput):
            native = native_input(ids, self.abi)
            return [native.struct, infer_param], native.memory
        values = array("i", ids)
        tokens = (ctypes.c_int32 * len(values)).from_buffer(values)
        return [self.abi.new_input(tokens), infer_param], tokens

    def _on_result(self, result: Any, _userdata: int | None, state: int) -> int:
        entered_ns = time.monotonic_ns()
        observed = self._observed
        if observed is None:
            return 0
        observed.times_ns.append(entered_ns)
        observed.states.append(state)
        observed.threads.add(threading.get_native_id())
        # No error in here may reach C; missing values show in the observation.
        with suppress(Exception):
            value = result.contents if result else None
            if state == RKLLM_RUN_FINISH:
                self._finished.set()
                if value is not None:
                    observed.finish_text = value.text
                    observed.perf = self.abi.perf_of(value)
            elif state <= RKLLM_RUN_WAITING and value is not None:
                observed.ids.append(value.token_id)
                observed.texts.append(value.text if state == RKLLM_RUN_NORMAL else b"")
                for rows, brought, values, width_field in (
                    (observed.hidden, value.last_hidden_layer, "hidden_states", "embd_size"),
                    (observed.logits, value.logits, "logits", "vocab_size"),
                ):
                    count, width, pointer = brought.num_tokens, getattr(brought, width_field), getattr(brought, values)
                    if pointer and count > 0 and width > 0:
                        start = (count - 1) * width
                        rows.append(ProbeRows(count, width, tuple(pointer[start : start + width])))
            if state <= RKLLM_RUN_WAITING and self._hook is not None:
                return self._hook(len(observed.ids))
        return 0
