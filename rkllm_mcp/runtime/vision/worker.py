"""The encoder's process from inside: it loads one vision encoder, then encodes one picture after the other.

One thread reads, encodes and answers; the host kills a process that is silent for too long. It imports only the
standard library and small modules.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from rkllm_mcp.errors import RunRejectedError, RuntimeUnusableError
from rkllm_mcp.runtime import frames
from rkllm_mcp.runtime.vision.library import NativeEncoder, library_version
from rkllm_mcp.runtime.worker import prepare_process

_RECEIVE_BYTES = 1 << 20


def main(descriptor: int) -> None:
    """Serve the host on an inherited socket, then exit the process."""
    prepare_process()
    connection = socket.socket(fileno=descriptor)
    # The end of the socket ends the loop below, or SIGTERM a process that waits for the NPU.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    reader, is_served = frames.FrameReader(), True
    encoder: NativeEncoder | None = None
    with suppress(ConnectionError):
        while is_served and (received := connection.recv(_RECEIVE_BYTES)):
            for kind, body in reader.feed(received):
                if kind == frames.LOAD_ENCODER:
                    command = frames.unpack(frames.EncoderLoad, body)
                    library = Path(command.library)
                    try:
                        encoder = NativeEncoder(library, Path(command.path))
                        answer = frames.pack(frames.EncoderLoaded(library_version(library) or "", encoder.shape))
                    except RuntimeUnusableError as error:
                        encoder = None
                        answer = frames.pack(frames.LoadFailed(type(error).__name__, error.message, error.remedy))
                    connection.sendall(answer)
                elif kind == frames.ENCODE and encoder is not None:
                    number, pixels = frames.unpack_numbered(body)
                    try:
                        answer = frames.pack_numbered(frames.ENCODED, number, encoder.encode(pixels))
                    except RunRejectedError as error:
                        answer = frames.pack(frames.EncodeFailed(number, error.reason))
                    connection.sendall(answer)
                elif kind == frames.SHUTDOWN:
                    if encoder is not None:
                        encoder.destroy()
                    is_served = False
                    break
    sys.stdout.flush()
    sys.stderr.flush()
    # The library's exit handlers are not needed.
    os._exit(0)
