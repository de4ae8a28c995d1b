"""The vision encoder from outside: its own process, and the embeddings of the last pictures.

The process is started at the first picture, after the language model (which Rockchip's demo loads first), and stays;
it ends when memory is short, and starts again with the next new picture. An embedding depends on nothing but the
picture's bytes and the encoder, so a client that sends the whole conversation again pays for each picture once.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from array import array
from collections import OrderedDict
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
from anyio import to_thread

from rkllm_base.memory import available_bytes
from rkllm_mcp.errors import (
    InputRefusedError,
    ModelLoadError,
    RunRejectedError,
    RuntimeUnusableError,
    WorkerDiedError,
)
from rkllm_mcp.generation import PictureEmbedding
from rkllm_mcp.messages import Picture
from rkllm_mcp.runtime import frames
from rkllm_mcp.runtime.emulator import emulated_encoder_library
from rkllm_mcp.runtime.vision.library import EncoderShape, find_encoder_library, is_emulated_encoder
from rkllm_mcp.runtime.worker_process import WorkerProcess, open_worker

_T = TypeVar("_T")
# The largest encoder reads 1.4 GB from an SD card; the slowest published run takes 12 s.
_LOAD_TIMEOUT_S = 180.0
_RUN_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 5.0
# Embeddings in memory: 1 to 6 MB each.
_CACHE_BYTES = 64_000_000
# With less memory than this available the encoder's process ends when it has answered.
_LEAST_AVAILABLE = 300_000_000
# Address space of the process that decodes a picture, of which Python and Pillow have 100 MB.
PICTURE_MEMORY_BYTES = 640 * 2**20
# Where the picture's process waits for a core, its CPU time is less.
_PICTURE_LIMIT_S = 60.0
# -I: no working directory and no PYTHON* variables; the installation's own packages have Pillow.
_PICTURE_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from rkllm_mcp.runtime.vision.picture import main; main()"
_PACKAGE_PARENT = Path(__file__).resolve().parents[3]


@dataclass(eq=False)
class VisionEncoder:
    """Encode pictures, one at a time; the encoder is loaded at the first one. Use it under ``aclosing``."""

    model: Path  # its file
    runs: int = 0  # pictures that the NPU has encoded
    version: str = ""  # release of librknnrt.so; empty until it is loaded
    picture_tokens: int = 0  # tokens of a picture; 0 until the encoder was loaded
    _lock: anyio.Lock = field(default_factory=anyio.Lock)
    worker: WorkerProcess | None = None  # None while the encoder is not in memory
    _end_worker: AsyncExitStack = field(default_factory=AsyncExitStack)
    _shape: EncoderShape | None = None
    _loaded: asyncio.Future[frames.EncoderLoaded] = field(init=False)
    _rows: asyncio.Future[bytes] = field(init=False)
    _expected: int = 0  # number of the picture that is encoded
    _cache: OrderedDict[str, PictureEmbedding] = field(default_factory=OrderedDict[str, PictureEmbedding])

    async def shape(self) -> EncoderShape:
        """Return the encoder's properties; it is loaded for that at first.

        Raises:
            RuntimeUnusableError: the library or the encoder cannot be loaded.
        """
        if self._shape is not None:
            return self._shape
        async with self._lock:
            return (await self._load())[1]

    async def encode(self, picture: Picture) -> PictureEmbedding:
        """Return the embedding of a picture.

        Raises:
            InputRefusedError: the picture cannot be read.
            RunRejectedError: the encoder failed, or was silent for too long.
            WorkerDiedError: its process died twice; the next picture starts it again.
            RuntimeUnusableError: the library or the encoder cannot be loaded.
        """
        if (embedding := self._cache.get(picture.digest)) is not None:
            self._cache.move_to_end(picture.digest)
            return embedding
        async with self._lock:
            # Another request may have sent the same picture.
            if (embedding := self._cache.get(picture.digest)) is None:
                try:
                    embedding = await self._encode(picture)
                except WorkerDiedError as death:
                    if death.cause:  # it was silent, and would be again
                        raise
                    # Ended from outside, it is loaded again; a picture that kills it does so twice.
                    embedding = await self._encode(picture)
                self._cache[picture.digest] = embedding
                size = len(embedding.values) * embedding.values.itemsize
                while len(self._cache) > max(1, _CACHE_BYTES // size):
                    self._cache.popitem(last=False)
            return embedding

    async def _encode(self, picture: Picture) -> PictureEmbedding:
        # The size of the input is the encoder's.
        shape = self._shape or (await self._load())[1]
        pixels = await read_picture(picture.data, shape.width, shape.height)
        worker, shape = await self._load()
        self._expected += 1
        self._rows = asyncio.get_running_loop().create_future()
        frame = frames.pack_numbered(frames.ENCODE, self._expected, pixels)
        rows = await self._reply(worker, frame, self._rows, _RUN_TIMEOUT_S, "encoding a picture")
        self.runs += 1
        values: array[float] = array("f", rows)
        available = available_bytes()
        if available is not None and available < _LEAST_AVAILABLE:
            await self.aclose()
        return PictureEmbedding(values, shape.width, shape.height, shape.tokens)

    async def _load(self) -> tuple[WorkerProcess, EncoderShape]:
        if self.worker is not None and self.worker.is_gone:
            # It died between two pictures, as by the kernel's choice when memory ran out.
            await self.aclose()
        if self.worker is not None and self._shape is not None:
            return self.worker, self._shape
        find = (
            emulated_encoder_library if is_emulated_encoder(self.model) else partial(find_encoder_library, self.model)
        )
        library = await to_thread.run_sync(find)
        opened = open_worker(self._on_frames, environment={}, stop_timeout_s=_STOP_TIMEOUT_S, module="vision.worker")
        worker = await self._end_worker.enter_async_context(opened)
        command = frames.EncoderLoad(str(library), str(self.model.absolute()))
        doing = f"loading {self.model.name}"
        self._loaded = asyncio.get_running_loop().create_future()
        try:
            loaded = await self._reply(worker, frames.pack(command), self._loaded, _LOAD_TIMEOUT_S, doing)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.aclose()
            raise
        self.version = loaded.version
        self.worker, self._shape = worker, EncoderShape(*loaded.shape)
        self.picture_tokens = self._shape.tokens
        return self.worker, self._shape

    async def _reply(
        self, worker: WorkerProcess, frame: bytes, reply: asyncio.Future[_T], limit_s: float, doing: str
    ) -> _T:
        """Send a frame and return its reply; cancelled, the encoder finishes and its reply is ignored."""
        gone = asyncio.ensure_future(worker.gone())
        try:
            worker.send(frame)
            await asyncio.wait((reply, gone), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if reply.done():
                return reply.result()
            cause = "" if gone.done() else f"it was silent for {limit_s:g} s"
            worker.kill()
            death = WorkerDiedError(await gone, f"{doing} (the vision encoder)", worker.log.lines(), cause)
        finally:
            gone.cancel()
            reply.cancel()
        await self.aclose()
        raise death

    def _on_frames(self, received: list[tuple[int, bytes]]) -> None:
        for kind, body in received:
            if kind == frames.ENCODER_LOADED and not self._loaded.done():
                self._loaded.set_result(frames.unpack(frames.EncoderLoaded, body))
            elif kind == frames.LOAD_FAILED and not self._loaded.done():
                report = frames.unpack(frames.LoadFailed, body)
                error = _LOAD_ERRORS.get(report.error, ModelLoadError)
                self._loaded.set_exception(error(report.message, report.remedy))
            # A picture that was given up is ignored.
            elif kind == frames.ENCODE_FAILED and not self._rows.done():
                failed = frames.unpack(frames.EncodeFailed, body)
                if failed.number == self._expected:
                    self._rows.set_exception(RunRejectedError(failed.failure, task="the picture"))
            elif kind == frames.ENCODED and not self._rows.done():
                number, rows = frames.unpack_numbered(body)
                if number == self._expected:
                    self._rows.set_result(rows)

    async def aclose(self) -> None:
        """End the encoder's process; the next picture starts it again."""
        self.worker = None
        stack, self._end_worker = self._end_worker, AsyncExitStack()
        await stack.aclose()


_LOAD_ERRORS: dict[str, type[RuntimeUnusableError]] = {
    error.__name__: error for error in (RuntimeUnusableError, *RuntimeUnusableError.__subclasses__())
}


async def read_picture(data: bytes, width: int, height: int, memory_bytes: int = PICTURE_MEMORY_BYTES) -> bytes:
    """Return a picture as RGB lines of this size, read in its own process.

    Raises:
        InputRefusedError: it is not a picture, damaged or too large, or its decoder crashed or took too long.
    """
    command = (sys.executable, "-I", "-c", _PICTURE_PROGRAM, *map(str, (_PACKAGE_PARENT, width, height, memory_bytes)))
    try:
        with anyio.fail_after(_PICTURE_LIMIT_S):
            run = await anyio.run_process(command, input=data, stderr=subprocess.DEVNULL, check=False)
    except TimeoutError:
        raise InputRefusedError(f"the picture was not read within {_PICTURE_LIMIT_S:g} s; send a smaller one") from None
    except OSError as error:
        raise InputRefusedError(f"no process for the picture can be started ({error}); free some memory") from None
    mark, answer = run.stdout[:1], run.stdout[1:]
    if run.returncode == 0 and mark == b"\1" and len(answer) == width * height * 3:
        return answer
    if run.returncode == 0 and mark == b"\0":
        raise InputRefusedError(answer.decode("utf-8", "replace"))
    raise InputRefusedError("the picture cannot be read: its decoder ended; send it anew as PNG or JPEG")
