"""Sound as 16-bit samples of one channel: read from a recording, written in the formats of OpenAI's API.

WAV is read here. Other formats are decoded by PyAV in its own process with limits, because decoders of foreign
files are attacked; PyAV belongs to the extra ``speech``.
"""

from __future__ import annotations

import io
import struct
import sys
import wave
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

import anyio
import numpy as np

from rkllm_mcp.errors import UsageError

# Its types are generic in ways that a reader gains nothing from.
_np: Any = np

# What every recogniser takes, samples per second.
RATE = 16_000
SAMPLE_BYTES = 2
MOST_BYTES = 25 * 1024 * 1024
MOST_SECONDS = 600
# Seconds of the processor and bytes of memory of the process that decodes; its result is at most 19 MB.
DECODE_CPU_S = 60
DECODE_BYTES = 1536 * 1024 * 1024
_DECODE_WAIT_S = 90
_BLOCK = 10 * RATE
_FULL_SCALE = 32_767
# Of mp3, opus and aac: speech needs no more.
_BIT_RATE = 48_000
# A WAV whose length is not known yet, as streams have it.
_UNKNOWN_BYTES = 0xFFFF_FFFF

SoundFormat: TypeAlias = Literal["wav", "pcm", "mp3", "opus", "flac", "aac"]
FORMATS: tuple[SoundFormat, ...] = ("wav", "pcm", "mp3", "opus", "flac", "aac")
MEDIA: dict[SoundFormat, str] = {
    "wav": "audio/wav",
    "pcm": "audio/pcm",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "flac": "audio/flac",
    "aac": "audio/aac",
}
# PyAV's container and codec for each format, and the sample rates that the codec takes; the first if none fits.
_ENCODERS: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "mp3": ("mp3", "libmp3lame", (24_000, 16_000, 22_050, 32_000, 44_100, 48_000)),
    "opus": ("ogg", "libopus", (24_000, 16_000, 48_000)),
    "flac": ("flac", "flac", ()),
    "aac": ("adts", "aac", (24_000, 16_000, 22_050, 32_000, 44_100, 48_000)),
}


@dataclass(eq=False)
class SoundError(UsageError):
    """A recording that cannot be read, or a format that cannot be written; the message says what to do."""


@dataclass(frozen=True)
class Sound:
    """Sound of one channel.

    Args:
        samples: 16-bit, little-endian.
        rate: samples per second.
    """

    samples: bytes
    rate: int = RATE

    @property
    def seconds(self) -> float:
        """Its length."""
        return len(self.samples) / SAMPLE_BYTES / self.rate

    def at(self, rate: int) -> Sound:
        """Return it with another sample rate."""
        if rate == self.rate:
            return self
        # The mean over each new sample's time, or between neighbours at a higher rate: speech needs no better filter.
        samples = _np.frombuffer(self.samples, "<i2")
        count, step = len(samples) * rate // self.rate, self.rate / rate
        resampled = _np.empty(count, "<i2")
        # Blocks keep the memory small.
        for start in range(0, count, _BLOCK):
            end = min(start + _BLOCK, count)
            first, last = int(start * step), min(len(samples), int(end * step) + 2)
            block = samples[first:last].astype(_np.float64)
            edges = _np.arange(start, end + 1) * step - first
            if step > 1:
                sums = _np.concatenate(([0.0], _np.cumsum(block)))
                values = _np.diff(_np.interp(edges, _np.arange(len(sums)), sums)) / step
            else:
                values = _np.interp(edges[:-1], _np.arange(len(block)), block)
            resampled[start:end] = _np.clip(_np.rint(values), -_FULL_SCALE - 1, _FULL_SCALE)
        return Sound(resampled.tobytes(), rate)


async def read_recording(data: bytes) -> Sound:
    """Return a recording of any format at ``RATE``.

    Raises:
        SoundError: it is empty, damaged, too long, or of a format that needs PyAV.
    """
    if not data:
        raise SoundError("the recording is empty; record again")
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return await anyio.to_thread.run_sync(read_wav, data)
    if find_spec("av") is None:
        message = "only WAV is read here; send WAV, or have the owner run 'rkllm-mcp install speech'"
        raise SoundError(message)
    # A hostile file costs the process that decodes it alone.
    command = [sys.executable, "-m", "rkllm_mcp.speech.decoder"]
    with anyio.move_on_after(_DECODE_WAIT_S):
        process = await anyio.run_process(command, input=data, check=False)
        reason = process.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        if process.returncode == 0:
            return from_pcm(process.stdout, 1, SAMPLE_BYTES, RATE)
        advice = reason if process.returncode == 1 and reason else "its decoder gave up"
        raise SoundError(f"the recording cannot be read: {advice}; record it again, or send WAV")
    raise SoundError(f"the recording was not decoded within {_DECODE_WAIT_S} s; send a shorter one, or WAV")


def read_wav(data: bytes) -> Sound:
    """Return a WAV at ``RATE``: 8, 16, 24 or 32 bits, any channels and rate.

    Raises:
        SoundError: it is damaged, too long, or its samples are not whole numbers.
    """
    try:
        with wave.open(io.BytesIO(data)) as file:
            channels, width, rate, _, _, _ = file.getparams()
            if not (1 <= channels <= 64 and 1_000 <= rate <= 384_000):
                raise SoundError(f"the recording has {channels} channels and {rate} samples a second; record again")
            content = file.readframes(MOST_SECONDS * rate + 1)
    except (wave.Error, EOFError, OSError) as error:
        raise SoundError(f"the WAV cannot be read ({error}); send whole numbers of 8 to 32 bits (PCM)") from None
    return from_pcm(content, channels, width, rate)


def from_pcm(content: bytes, channels: int, width: int, rate: int) -> Sound:
    """Return samples of any channels, bytes and rate at ``RATE``.

    Raises:
        SoundError: there are too few or too many, or their form is impossible.
    """
    if not (1 <= channels <= 64 and 1 <= width <= 4 and 1_000 <= rate <= 384_000):
        raise SoundError(f"the recording has {channels} channels and {rate} samples a second; record again")
    frames = len(content) // (width * channels)
    if not frames:
        raise SoundError("the recording has no sound; record again")
    if frames > MOST_SECONDS * rate:
        raise SoundError(f"the recording is longer than {MOST_SECONDS // 60} minutes; send it in parts")
    content = content[: frames * width * channels]
    # Of 24 and 32 bits the two highest bytes are taken.
    if width == 1:
        samples = (_np.frombuffer(content, _np.uint8).astype(_np.int16) - 128) << 8
    elif width == SAMPLE_BYTES:
        samples = _np.frombuffer(content, "<i2")
    else:
        parts = _np.frombuffer(content, _np.uint8).reshape(-1, width)[:, -SAMPLE_BYTES:]
        samples = _np.ascontiguousarray(parts).view("<i2")
    samples = samples.reshape(frames, channels)
    mono = samples[:, 0] if channels == 1 else samples.mean(axis=1, dtype=_np.float32).astype(_np.int16)
    return Sound(_np.ascontiguousarray(mono, "<i2").tobytes(), rate).at(RATE)


def wav_of(rate: int, samples: bytes | None = None) -> bytes:
    """Return samples of 16 bits and one channel as a WAV; without them a header of unknown length."""
    size = _UNKNOWN_BYTES if samples is None else len(samples)
    riff = struct.pack("<4sI4s", b"RIFF", min(_UNKNOWN_BYTES, size + 36), b"WAVE")
    form = struct.pack("<HHIIHH", 1, 1, rate, rate * SAMPLE_BYTES, SAMPLE_BYTES, 8 * SAMPLE_BYTES)
    header = riff + struct.pack("<4sI", b"fmt ", len(form)) + form + struct.pack("<4sI", b"data", size)
    return header + (samples or b"")


class SoundWriter:
    """Writes parts of one sound in a format, so that the first is heard before the last is made.

    Raises:
        SoundError: the format needs PyAV, which is not installed.
    """

    def __init__(self, form: SoundFormat) -> None:
        if form in _ENCODERS and find_spec("av") is None:
            message = f"{form} needs PyAV; ask for wav or pcm, or have the owner run 'rkllm-mcp install speech'"
            raise SoundError(message)
        self._form = form
        self._rate = 0
        self._file = _Written()
        # PyAV's, once the first part is written.
        self._container: Any = None
        self._stream: Any = None

    def write(self, sound: Sound | None) -> bytes:
        """Return the bytes of the next part, which has the sample rate of the first; None ends the sound."""
        begins = not self._rate
        if sound is None:
            if self._container is None:
                return b""
            self._container.mux(self._stream.encode(None))
            self._container.close()
        elif self._form not in _ENCODERS:
            self._rate = self._rate or sound.rate
            return (wav_of(self._rate) if begins and self._form == "wav" else b"") + sound.at(self._rate).samples
        else:
            import av as library  # an extra

            av: Any = library
            if begins:
                container, codec, rates = _ENCODERS[self._form]
                self._rate = sound.rate if not rates or sound.rate in rates else rates[0]
                self._container = av.open(self._file, "w", format=container)
                self._stream = self._container.add_stream(codec, rate=self._rate, layout="mono")
                self._stream.bit_rate = _BIT_RATE
            sound = sound.at(self._rate)
            frame = av.AudioFrame.from_ndarray(_np.frombuffer(sound.samples, "<i2")[None, :], "s16", "mono")
            frame.sample_rate = sound.rate
            self._container.mux(self._stream.encode(frame))
        written, self._file.parts = b"".join(self._file.parts), []
        return written


@dataclass(eq=False)
class _Written:
    """A file that cannot be wound back; what is written is kept until it is taken."""

    parts: list[bytes] = field(default_factory=list[bytes])

    def write(self, data: Any) -> int:
        self.parts.append(bytes(data))
        return len(data)


def blocks_of(sound: Sound, milliseconds: int = 100) -> Iterator[bytes]:
    """Yield the samples in blocks of so many milliseconds."""
    size = max(1, sound.rate * milliseconds // 1000) * SAMPLE_BYTES
    for start in range(0, len(sound.samples), size):
        yield sound.samples[start : start + size]
