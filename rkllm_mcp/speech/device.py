"""The board's own microphone and loudspeaker, by ALSA's default device, which PyAV reads and writes.

A recording ends when nothing more is said: its loudness is compared with the quietest that was heard before.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import anyio.to_thread
import numpy as np

from rkllm_mcp.errors import UsageError
from rkllm_mcp.speech.audio import RATE, SAMPLE_BYTES, Sound

_np: Any = np
_DEVICE = "default"
_MOST_S = 60
_FRAME = RATE // 10
# Frames of 100 ms: what ends a recording, and how long a person may think before the first word.
_SILENT_FRAMES = 15
_UNSAID_FRAMES = 100
# Speech is so much louder than the quietest frame of the last ten seconds, and at least so loud, of 32,767.
_LOUDER = 3.0
_LEAST_LOUD = 150.0


@dataclass(eq=False)
class EndOfSpeech:
    """Tells from the loudness of a microphone when a person has said all."""

    has_spoken: bool = False
    _heard: deque[float] = field(default_factory=lambda: deque[float](maxlen=_UNSAID_FRAMES))  # loudness of each frame
    _rest: bytes = b""

    def feed(self, samples: bytes) -> bool:
        """Take the next samples; return True when the recording should end."""
        self._rest += samples
        size = _FRAME * SAMPLE_BYTES
        while len(self._rest) >= size:
            frame, self._rest = self._rest[:size], self._rest[size:]
            self._heard.append(float(_np.sqrt((_np.frombuffer(frame, "<i2").astype(_np.float32) ** 2).mean())))
        # A person may speak at once, so that quiet is heard after speech only.
        limit = max(_LEAST_LOUD, _LOUDER * min(self._heard, default=0.0))
        silent = next((place for place, loud in enumerate(reversed(self._heard)) if loud > limit), len(self._heard))
        self.has_spoken = self.has_spoken or silent < len(self._heard)
        return silent >= (_SILENT_FRAMES if self.has_spoken else _UNSAID_FRAMES)


async def record(on_begin: Callable[[], None] = lambda: None) -> Sound | None:
    """Return the speech that the microphone records, without the silence at the end; None if there is none.

    Raises:
        UsageError: there is no microphone, or PyAV is missing.
    """
    is_over = threading.Event()
    try:
        return await anyio.to_thread.run_sync(_record, on_begin, is_over, abandon_on_cancel=True)
    finally:
        is_over.set()


def _record(on_begin: Callable[[], None], is_over: threading.Event) -> Sound | None:
    end, samples = EndOfSpeech(), bytearray()
    options = {"sample_rate": str(RATE), "channels": "1"}
    with _explained("microphone") as library, library.open(_DEVICE, format="alsa", options=options) as container:
        stream = container.streams.audio[0]
        rate = int(stream.rate)
        on_begin()
        for frame in container.decode(stream):
            mono = frame.to_ndarray().reshape(-1, frame.layout.nb_channels)[:, 0]
            part = Sound(_np.ascontiguousarray(mono, "<i2").tobytes(), rate).at(RATE).samples
            samples += part
            if is_over.is_set() or end.feed(part) or len(samples) >= _MOST_S * RATE * SAMPLE_BYTES:
                break
    return Sound(bytes(samples)) if end.has_spoken else None


async def play(sound: Sound) -> None:
    """Play sound on the loudspeaker until its end; it stops soon after a cancellation.

    Raises:
        UsageError: there is no loudspeaker, or PyAV is missing.
    """
    is_over = threading.Event()
    try:
        await anyio.to_thread.run_sync(_play, sound, is_over, abandon_on_cancel=True)
    finally:
        is_over.set()


def _play(sound: Sound, is_over: threading.Event) -> None:
    samples = _np.frombuffer(sound.samples, "<i2")
    step = sound.rate // 10
    with _explained("loudspeaker") as library, library.open(_DEVICE, "w", format="alsa") as container:
        stream = container.add_stream("pcm_s16le", rate=sound.rate, layout="mono")
        for number in range(math.ceil(len(samples) / step)):
            if is_over.is_set():
                return
            frame = library.AudioFrame.from_ndarray(samples[None, number * step : (number + 1) * step], "s16", "mono")
            frame.sample_rate = sound.rate
            container.mux(stream.encode(frame))


@contextmanager
def _explained(name: str) -> Generator[Any]:
    """Yield PyAV; what fails with a device is a UsageError with what to do."""
    if find_spec("av") is None:
        raise UsageError("sound needs PyAV; run 'rkllm-mcp install speech'")
    import av  # an extra

    library: Any = av
    library.logging.set_level(library.logging.PANIC)
    try:
        yield library
    except (library.FFmpegError, OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        advice = "connect one, and try it with arecord or aplay"
        raise UsageError(f"there is no {name} here ({reason}); {advice}") from None
