"""The worker from inside: commands on a socket become runs of a model, and their results become frames.

It is its own process because the runtime has crashed hosts in the field, and because the callbacks of the NPU must
not share the GIL with the host. It imports only the standard library and small modules.

Two threads: this one reads commands and aborts runs; the other owns the model, makes all other calls in order, and
blocks in rkllm_run. The end of the socket means that the host is gone: abort, destroy, exit. SIGTERM, which the kernel
also sends when the host's thread dies, means the same.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from rkllm_base.memory import available_bytes
from rkllm_mcp.errors import GenerationError, MemoryShortError, RunRejectedError, RuntimeUnusableError
from rkllm_mcp.runtime import frames
from rkllm_mcp.runtime.abi.common import LoadParameters
from rkllm_mcp.runtime.library import find_library, open_library
from rkllm_mcp.runtime.model import NativeModel, NativeRun, RowsRun

# The smallest cache per token in the catalogue: Qwen2.5-1.5B, 28 layers with 2 heads of 128 for keys and values in
# 2 bytes each.
LEAST_CACHE_BYTES_PER_TOKEN = 28 * 2 * 128 * 2 * 2

_MB = 1_000_000


def needed_bytes(file_bytes: int, context_tokens: int, cache_bytes_per_token: int | None = None) -> int:
    """Return the least memory that a model of this file size and context window takes, bytes.

    A cache of unknown size counts as the smallest, and at most as much as the weights.
    """
    if cache_bytes_per_token is not None:
        return file_bytes + context_tokens * cache_bytes_per_token
    return file_bytes + min(file_bytes, context_tokens * LEAST_CACHE_BYTES_PER_TOKEN)


def require_memory(load: LoadParameters, root: Path = Path("/")) -> None:
    """Refuse a model that does not fit into memory; a missing file is left to the runtime.

    Raises:
        MemoryShortError: with the needed and the available memory.
    """
    try:
        needed = needed_bytes(Path(load.model_path).stat().st_size, load.context_tokens, load.cache_bytes_per_token)
    except OSError:
        return
    available = available_bytes(root)
    if available is None or needed <= available:
        return
    raise MemoryShortError(
        f"{load.model_path} needs at least {needed // _MB} MB with a context of {load.context_tokens} tokens, and "
        f"{available // _MB} MB of memory are available.",
        "End other programs or models, choose a smaller model or context_tokens, or set check_memory = false under "
        "[runtime] to try all the same.",
    )


_WITHOUT_WAITING = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class SendQueue:
    """Sending side of a blocking stream socket, for any thread; ``send`` never waits."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._overflow: deque[bytes] = deque()
        self._overflowing = threading.Semaphore(0)
        self._is_open = True
        self._writer = threading.Thread(target=self._write_overflow, name="rkllm-send", daemon=True)
        self._writer.start()

    def send(self, frame: bytes) -> None:
        """Send a frame now, or queue it until the other side has read enough."""
        with self._lock:
            if not self._is_open:
                return
            if self._overflow:
                self._overflow.append(frame)
                return
            try:
                sent = self._connection.send(frame, _WITHOUT_WAITING)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._give_up()
                return
            if sent < len(frame):
                self._overflow.append(frame[sent:])
                self._overflowing.release()

    def close(self) -> None:
        """Stop sending; waits for the other side to read unless the connection was shut down first."""
        with self._lock:
            self._is_open = False
        self._overflowing.release()
        self._writer.join()

    def _write_overflow(self) -> None:
        while self._is_open:
            self._overflowing.acquire()
            try:
                while True:
                    with self._lock:
                        frame = self._overflow[0] if self._overflow else None
                    if frame is None:
                        break
                    self._connection.sendall(frame)
                    # Removed only now: while the queue is not empty, later frames are queued after it.
                    with self._lock:
                        self._overflow.popleft()
            except OSError:
                with self._lock:
                    self._give_up()

    def _give_up(self) -> None:
        """Stop sending and shut the connection down, so that missing frames are noticed on both sides."""
        self._is_open = False
        self._overflow.clear()
        with suppress(OSError):  # already closed
            self._connection.shutdown(socket.SHUT_RDWR)


# Time limit for aborting and destroying the model at the end; after that the process exits anyway.
STOP_TIMEOUT_S = 10.0
EXIT_STUCK = 70

# A model maps thousands of buffers (rknn-llm #62); the limit that Rockchip's own demo asks for.
_OPEN_FILES = 102_400
_RECEIVE_BYTES = 65_536
_PR_SET_PDEATHSIG = 1
_IOLBF = 1

# Mistakes of a request that only ctypes notices, such as a number in place of text.
_MISTAKES = (GenerationError, ctypes.ArgumentError, TypeError, ValueError)

# Methods that a CALL may name
_CALLS: dict[str, Callable[..., int | None]] = {
    "clear_kv_cache": NativeModel.clear_kv_cache,
    "kv_cache_size": NativeModel.kv_cache_size,
    "load_lora": NativeModel.load_lora,
    "load_prompt_cache": NativeModel.load_prompt_cache,
    "release_prompt_cache": NativeModel.release_prompt_cache,
    "set_chat_template": NativeModel.set_chat_template,
}


class Worker:
    """Serve one engine on a socket, which the worker closes."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._send_queue = SendQueue(connection)
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._owner = threading.Thread(target=self._own_model, name="rkllm-model", daemon=True)
        self._model: NativeModel | None = None
        self._run: tuple[int, NativeRun] | None = None
        self._is_clean = False

    def serve(self) -> bool:
        """Execute commands until SHUTDOWN or the end of the socket; return False if the runtime hung or broke."""
        self._owner.start()
        reader, is_served = frames.FrameReader(), True
        try:
            while is_served and (received := self._connection.recv(_RECEIVE_BYTES)):
                for kind, body in reader.feed(received):
                    if kind == frames.SHUTDOWN:
                        is_served = False
                        break
                    if kind == frames.ABORT:
                        if self._run is not None and self._run[0] == frames.unpack_numbered(body)[0]:
                            self._run[1].abort()
                    elif kind == frames.LOAD:
                        self._jobs.put(partial(self._load, frames.unpack_load(body)))
                    elif kind == frames.RUN:
                        self._prepare(frames.unpack_run(body))
                    elif kind == frames.CALL:
                        self._jobs.put(partial(self._execute_call, frames.unpack(frames.CallCommand, body)))
        except ConnectionError:
            pass  # the host is gone
        finally:
            self.stop()
        if self._run is not None:
            self._run[1].abort()
        self._jobs.put(None)
        self._owner.join(STOP_TIMEOUT_S)
        self._send_queue.close()
        self._connection.close()
        return self._is_clean

    def stop(self) -> None:
        """End ``serve`` from a signal handler or another thread, like the end of the socket."""
        with suppress(OSError):  # already closed
            self._connection.shutdown(socket.SHUT_RDWR)

    def _prepare(self, command: frames.RunCommand) -> None:
        """Create the run immediately, so that an abort right after it finds it."""
        send, pack, number = self._send_queue.send, frames.pack_token, command.run
        model = self._loaded_model()
        try:
            run = model.new_run(
                command.prompt,
                lambda token_id, text, entered_ns: send(pack(number, token_id, entered_ns, text)),
                command.options,
                rows=command.rows,
                is_timed=command.is_timed,
                keeps_history=command.keeps_history,
            )
        except _MISTAKES as error:
            self._jobs.put(partial(send, frames.pack_run_ended(frames.RunEnded(number, str(error)))))
            return
        self._run = (number, run)
        self._jobs.put(partial(self._execute, command, run))

    # Below: on the thread that owns the model

    def _own_model(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                job()
            if self._model is not None:
                self._model.destroy()
            self._is_clean = True
        finally:
            self.stop()  # also after a failed job

    def _load(self, load: LoadParameters) -> None:
        try:
            library = open_library(find_library(str(load.library)), load.abi)
            # Sent before the first call: if a wrong interface kills the process, the host knows the release.
            self._send_queue.send(frames.pack(frames.Opened(library.version, library.abi.name)))
            if load.check_memory:
                require_memory(load)
            self._model = NativeModel(library, load)
        except RuntimeUnusableError as error:
            failure = frames.LoadFailed(type(error).__name__, error.message, error.remedy)
            self._send_queue.send(frames.pack(failure))
            return
        loaded = frames.ModelLoaded(library.version, library.abi.name, library.file.is_emulator)
        self._send_queue.send(frames.pack(loaded))

    def _execute(self, command: frames.RunCommand, run: NativeRun) -> None:
        report, failure = frames.RunReport(), ""
        try:
            if command.clears_before:
                self._loaded_model().clear_kv_cache()
            report = run.execute()
            if isinstance(run, RowsRun) and run.rows is not None:
                self._send_queue.send(frames.pack_rows(command.run, *run.rows))
        except RunRejectedError as error:
            failure = error.reason
        if command.clears_after:
            try:
                self._loaded_model().clear_kv_cache()
            except RunRejectedError as error:
                failure = error.reason or failure
        self._send_queue.send(frames.pack_run_ended(frames.RunEnded(command.run, failure, report)))

    def _execute_call(self, command: frames.CallCommand) -> None:
        call = _CALLS[command.name]
        try:
            answer = frames.CallReply(call(self._loaded_model(), **command.arguments))
        except RunRejectedError as error:
            answer = frames.CallReply(failure=error.reason)
        except _MISTAKES as error:
            answer = frames.CallReply(failure=str(error))
        self._send_queue.send(frames.pack(answer))

    def _loaded_model(self) -> NativeModel:
        if self._model is None:
            raise RuntimeError("the engine sent a run before it loaded a model")
        return self._model


def prepare_process() -> None:
    """Prepare this process for a library of the NPU: its end, its open files, its output."""
    libc = ctypes.CDLL(None)
    # The kernel sends SIGTERM when the parent dies, in case another process holds the socket open.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if limit > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    # C's stdout is line-buffered: a crash would lose the runtime's buffered error lines.
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, _IOLBF, 0)


def main(descriptor: int) -> None:
    """Serve the engine on an inherited socket, then exit the process."""
    prepare_process()
    worker = Worker(socket.socket(fileno=descriptor))
    signal.signal(signal.SIGTERM, lambda _number, _frame: worker.stop())
    is_clean = worker.serve()
    sys.stdout.flush()
    sys.stderr.flush()
    # The library's exit handlers are not needed and have crashed in the field.
    os._exit(0 if is_clean else EXIT_STUCK)
