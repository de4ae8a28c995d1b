"""A recording of 25 MB that is made to do harm costs its own process, and that at most 300 MB."""

from __future__ import annotations

import io
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from rkllm_mcp.speech.audio import MOST_BYTES, MOST_SECONDS, RATE, SoundError, read_recording
from tests.support.speech_programs import wav

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(find_spec("av") is None, reason="PyAV, of the extra speech, is not installed"),
]
MOST_MB = 300


def encoded(form: str, codec: str, seconds: int, rate: int = 48_000) -> bytes:
    """Silence in a format, which is small however long it is."""
    import av

    library: Any = av
    written = io.BytesIO()
    with library.open(written, "w", format=form) as container:
        stream = container.add_stream(codec, rate=rate, layout="mono")
        for second in range(seconds):
            frame = library.AudioFrame.from_ndarray(np.zeros((1, rate), "<i2"), "s16", "mono")
            frame.sample_rate, frame.pts, frame.time_base = rate, second * rate, Fraction(1, rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return written.getvalue()


def filled(head: bytes, unit: bytes) -> bytes:
    """Return a head and so many units that it is as large as a recording may be."""
    return (head + unit * (MOST_BYTES // len(unit) + 1))[:MOST_BYTES]


def wav_of_floats(channels: int, rate: int) -> bytes:
    body = b"\0" * (MOST_BYTES - 44)
    head = struct.pack("<HHIIHH", 3, channels, rate, rate * channels * 4, channels * 4, 32)
    return b"RIFF" + struct.pack("<I", MOST_BYTES - 8) + b"WAVEfmt " + struct.pack("<I", 16) + head + b"data" + body[4:]


# EBML with an unknown length, and clusters without an end.
WEBM = b"\x1aE\xdf\xa3\x9fB\x86\x81\x01B\xf7\x81\x01B\xf2\x81\x04B\xf3\x81\x08B\x82\x84webmB\x87\x81\x04B\x85\x81\x02"
FILES: dict[str, Callable[[], bytes]] = {
    "a bomb of FLAC": lambda: encoded("flac", "flac", 1_500, 16_000),
    "a bomb of Opus": lambda: encoded("ogg", "libopus", 650),
    "a bomb of MP3": lambda: encoded("mp3", "libmp3lame", 650),
    "frames of MP3 without an end": lambda: filled(b"", b"\xff\xfb\x90\x64" + bytes(413)),
    "a picture in an ID3 tag": lambda: filled(
        b"ID3\x04\0\0\x7f\x7f\x7f\x7fAPIC\x7f\x7f\x7f\x7f", b"\xff\xd8" + bytes(30)
    ),
    "pages of Ogg without an end": lambda: filled(b"", b"OggS\0\2" + bytes(20) + b"\xff" + b"\xff" * 255 + bytes(700)),
    "clusters of WebM without an end": lambda: filled(WEBM, b"\x18S\x80g\x01\xff\xff\xff\xff\xff\xff\xff\x1fC\xb6u"),
    "boxes in boxes of MP4": lambda: filled(
        struct.pack(">I", 16) + b"ftypM4A \0\0\0\0", struct.pack(">I", 0) + b"moov"
    ),
    "a table of MP4 with billions of entries": lambda: filled(
        struct.pack(">I", 16) + b"ftypM4A \0\0\0\0", struct.pack(">I4sII", 0x7FFFFFFF, b"stsz", 0, 0xFFFFFFF0)
    ),
    "a head of FLAC with much metadata": lambda: filled(b"fLaC\x06\xff\xff\xff", bytes(1000)),
    "AAC without an end": lambda: filled(b"", b"\xff\xf1\x50\x80\x02\x1f\xfc" + bytes(10)),
    "WAV of floats with 200 channels": lambda: wav_of_floats(200, 384_000),
    "noise": lambda: np.random.default_rng(1).bytes(MOST_BYTES),
}


@pytest.mark.parametrize("name", FILES)
async def test_it_costs_its_own_process_and_less_than_300_mb(name: str) -> None:
    content = FILES[name]()
    assert len(content) <= MOST_BYTES
    # VmHWM, since ru_maxrss of a process begins with the peak of the process that started it.
    program = (
        "import runpy, sys\n"
        "try:\n    runpy.run_module('rkllm_mcp.speech.decoder', run_name='__main__')\n"
        "finally:\n    sys.stderr.write('\\npeak ' + open('/proc/self/status').read().split('VmHWM:')[1].split()[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], input=content, capture_output=True, check=False)  # noqa: ASYNC221
    peak_mb = int(done.stderr.rpartition(b"peak ")[2]) * 1024 / 10**6
    assert peak_mb < MOST_MB
    assert len(done.stdout) <= (MOST_SECONDS * RATE + 1) * 2


async def test_the_service_itself_reads_wav_within_300_mb_and_refuses_the_rest() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for rate, channels, width in ((384_000, 1, 2), (8_000, 2, 4), (16_000, 64, 1), (1_000, 1, 3)):
        head = wav(0, rate, channels, 2)[:44]
        content = bytearray(head + bytes(MOST_BYTES - 44))
        content[22:36] = struct.pack("<HIIHH", channels, rate, rate * channels * width, channels * width, width * 8)
        content[4:8], content[40:44] = struct.pack("<I", MOST_BYTES - 8), struct.pack("<I", MOST_BYTES - 44)
        try:
            sound = await read_recording(bytes(content))
        except SoundError as error:
            assert "longer than 10 minutes" in str(error)
        else:
            assert sound.seconds <= MOST_SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / 10**6 < MOST_MB
