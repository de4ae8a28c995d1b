"""The worker: commands on a socket become runs of a model, and what comes of them becomes frames.

It is a process of its own because the runtime has crashed hosts in the field, and because the NPU's callbacks should
not share an interpreter lock with the host that renders, parses and serves. It imports nothing heavy.

Two threads: this one reads commands and aborts; the other owns the model, makes every other call on it, in order, and
blocks in rkllm_run. The end of the socket means that the engine is gone: abort, destroy, exit. SIGTERM, also sent by
the kernel when the engine's thread dies, means the same.
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

from rkllm_mcp.errors import GenerationError, MemoryShortError, RunRejectedError, RuntimeUnusableError
from rkllm_mcp.runtime import frames
from rkllm_mcp.runtime.abi.common import LoadParameters
from rkllm_mcp.runtime.library import find_library, open_library
from rkllm_mcp.runtime.model import NativeModel
from rkllm_mcp.runtime.native_run import NativeRun, RowsRun, RunReport

MEMORY_TABLE = Path("/proc/meminfo")

# Of the models in the catalogue the one with the smallest cache per token: Qwen2.5-1.5B, 28 layers with 2 heads of 128
# for keys and values, 2 bytes each.
LEAST_CACHE_BYTES_PER_TOKEN = 28 * 2 * 128 * 2 * 2

_MB = 1_000_000


def needed_bytes(file_bytes: int, context_tokens: int) -> int:
    """The least memory that a model takes, bytes.

    Args:
        file_bytes: the size of its ``.rkllm`` file, bytes.
        context_tokens: the context window, tokens.

    The cache is not counted higher than the weights: files that small are no models of today.
    Source: our choice.
    """
    return file_bytes + min(file_bytes, context_tokens * LEAST_CACHE_BYTES_PER_TOKEN)


def available_bytes(table: Path = MEMORY_TABLE) -> int | None:
    """Memory that could be used without swapping (MemAvailable), bytes; None where the kernel does not say."""
    try:
        lines = table.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, rest = line.partition(":")
        amount = rest.split()
        if name == "MemAvailable" and amount and amount[0].isdecimal():
            return int(amount[0]) * 1024
    return None


def require_memory(load: LoadParameters, table: Path = MEMORY_TABLE) -> None:
    """Refuse a model that cannot fit; one that is not there is the runtime's business.

    Raises:
        MemoryShortError: with what it needs and what there is.
    """
    try:
        needed = needed_bytes(Path(load.model_path).stat().st_size, load.context_tokens)
    except OSError:
        return
    available = available_bytes(table)
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
    """The sending side of a blocking stream socket; any thread may send.

    Args:
        connection: the socket, which stays its owner's.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._overflow: deque[bytes] = deque()
        self._overflowing = threading.Semaphore(0)
        self._is_open = True
        self._writer = threading.Thread(target=self._write_overflow, name="rkllm-outbox", daemon=True)
        self._writer.start()

    def send(self, frame: bytes) -> None:
        """Send a frame now, or as soon as the other side has read enough."""
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
        """Stop sending; shut the connection down first, or this waits for the other side to read."""
        with self._lock:
            self._is_open = False
        self._overflowing.release()
        self._writer.join()

    def _write_overflow(self) -> None:
        while self._is_open:
            self._overflowing.acquire()
            try:
                while (frame := self._first_overflow()) is not None:
                    self._connection.sendall(frame)
                    # Only now: while a frame is in the queue, no other can overtake it.
                    self._forget_first()
            except OSError:
                with self._lock:
                    self._give_up()

    def _give_up(self) -> None:
        """Send no more, and make sure that both sides know: frames that are missing must not look like silence."""
        self._is_open = False
        self._overflow.clear()
        with suppress(OSError):  # it is closed already
            self._connection.shutdown(socket.SHUT_RDWR)

    def _first_overflow(self) -> bytes | None:
        with self._lock:
            return self._overflow[0] if self._overflow else None

    def _forget_first(self) -> None:
        with self._lock:
            self._overflow.popleft()


# How long the model may take to abort and to be destroyed when the engine is gone; then the process ends without it.
STOP_TIMEOUT_S = 10.0
EXIT_STUCK = 70

# A model maps thousands of buffers (rknn-llm #62); the limit that Rockchip's own demo asks for.
_OPEN_FILES = 102_400
_RECEIVE_BYTES = 65_536
_PR_SET_PDEATHSIG = 1
_IOLBF = 1

# What a request can get wrong that only the library's types notice, such as a number where a text belongs.
_MISTAKES = (GenerationError, ctypes.ArgumentError, TypeError, ValueError)

# What a CALL may name
_CALLS: dict[str, Callable[..., int | None]] = {
    "clear_kv_cache": NativeModel.clear_kv_cache,
    "kv_cache_size": NativeModel.kv_cache_size,
    "load_lora": NativeModel.load_lora,
    "load_prompt_cache": NativeModel.load_prompt_cache,
    "release_prompt_cache": NativeModel.release_prompt_cache,
    "set_chat_template": NativeModel.set_chat_template,
    "set_function_tools": NativeModel.set_function_tools,
}


class Worker:
    """Serves one engine.

    Args:
        connection: the socket to the engine; the worker closes it.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._outbox = SendQueue(connection)
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._owner = threading.Thread(target=self._own_model, name="rkllm-model", daemon=True)
        self._model: NativeModel | None = None
        self._run: tuple[int, NativeRun] | None = None
        self._is_clean = False

    def serve(self) -> bool:
        """Do what the engine says until it says to stop or is gone; False when the runtime was stuck or broke."""
        self._owner.start()
        self._read_commands()
        if self._run is not None:
            self._run[1].abort()
        self._jobs.put(None)
        self._owner.join(STOP_TIMEOUT_S)
        self._outbox.close()
        self._connection.close()
        return self._is_clean

    def stop(self) -> None:
        """End ``serve`` from a signal handler or another thread, as if the engine were gone."""
        with suppress(OSError):  # it is closed already
            self._connection.shutdown(socket.SHUT_RDWR)

    def _read_commands(self) -> None:
        reader = frames.FrameReader()
        try:
            while received := self._connection.recv(_RECEIVE_BYTES):
                for kind, body in reader.feed(received):
                    if kind == frames.SHUTDOWN:
                        return
                    self._obey(kind, body)
        except ConnectionError:
            return
        finally:
            self.stop()

    def _obey(self, kind: int, body: bytes) -> None:
        if kind == frames.ABORT:
            if self._run is not None and self._run[0] == frames.unpack_abort(body):
                self._run[1].abort()
        elif kind == frames.LOAD:
            self._jobs.put(partial(self._load, frames.unpack_load(body)))
        elif kind == frames.RUN:
            self._prepare(frames.unpack_run(body))
        elif kind == frames.CALL:
            self._jobs.put(partial(self._answer, frames.unpack_call(body)))

    def _prepare(self, command: frames.RunCommand) -> None:
        """Make the run at once, so that an abort that is right behind it finds it."""
        send, pack, number = self._outbox.send, frames.pack_token, command.run

        def on_token(token_id: int, text: bytes, entered_ns: int) -> None:
            send(pack(number, token_id, entered_ns, text))

        model = self._loaded_model()
        try:
            run = model.new_run(
                command.prompt,
                on_token,
                command.infer,
                rows=command.rows,
                pause_after=command.pause_after,
                is_timed=command.is_timed,
            )
        except _MISTAKES as error:
            self._jobs.put(partial(send, frames.pack_run_ended(frames.RunEnded(number, str(error), 0, 0, None))))
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
            self.stop()  # when a job broke, there is no use in reading on

    def _load(self, command: frames.LoadCommand) -> None:
        try:
            library = open_library(find_library(command.library), command.abi)
            # Before anything of it is used: should it die of a wrong interface, this tells why.
            self._outbox.send(frames.pack_opened(frames.Opened(library.version, library.abi.name)))
            if command.check_memory:
                require_memory(command.parameters)
            self._model = NativeModel(library, command.parameters)
        except RuntimeUnusableError as error:
            failure = frames.LoadFailed(type(error).__name__, error.message, error.remedy)
            self._outbox.send(frames.pack_load_failed(failure))
            return
        loaded = frames.ModelLoaded(library.version, library.abi.name, library.file.is_emulator)
        self._outbox.send(frames.pack_loaded(loaded))

    def _execute(self, command: frames.RunCommand, run: NativeRun) -> None:
        report, failure = RunReport(0, 0, None), ""
        try:
            if command.clears_before:
                self._loaded_model().clear_kv_cache()
            report = run.execute()
            if isinstance(run, RowsRun) and (rows := run.rows()) is not None:
                self._outbox.send(frames.pack_rows(command.run, *rows))
        except RunRejectedError as error:
            failure = error.reason
        if command.clears_after:
            failure = self._cleared() or failure
        self._outbox.send(frames.pack_run_ended(frames.RunEnded(command.run, failure, *report)))

    def _cleared(self) -> str:
        """Empty the KV cache; why that failed, or nothing."""
        try:
            self._loaded_model().clear_kv_cache()
        except RunRejectedError as error:
            return error.reason
        return ""

    def _answer(self, command: frames.CallCommand) -> None:
        call = _CALLS[command.name]
        try:
            answer = frames.CallReply(call(self._loaded_model(), **command.arguments))
        except RunRejectedError as error:
            answer = frames.CallReply(failure=error.reason)
        except _MISTAKES as error:
            answer = frames.CallReply(failure=str(error))
        self._outbox.send(frames.pack_answer(answer))

    def _loaded_model(self) -> NativeModel:
        if self._model is None:
            raise RuntimeError("the engine sent a run before it loaded a model")
        return self._model


def main(descriptor: int) -> None:
    """The process: serve the engine on an inherited socket, then exit without looking back."""
    _die_with_parent()
    _allow_many_files()
    _print_lines_at_once()
    worker = Worker(socket.socket(fileno=descriptor))
    signal.signal(signal.SIGTERM, lambda _number, _frame: worker.stop())
    is_clean = worker.serve()
    sys.stdout.flush()
    sys.stderr.flush()
    # The library's own exit handlers have nothing left to do and have been seen to crash.
    os._exit(0 if is_clean else EXIT_STUCK)


def _die_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent dies: a second belt, should somebody else hold the socket open."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _allow_many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _print_lines_at_once() -> None:
    """Make C's stdout line-buffered: the runtime explains itself there, and a crash would take its buffer with it."""
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, _IOLBF, 0)
