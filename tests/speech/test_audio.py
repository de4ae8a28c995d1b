"""Recordings of any format and rate become 16 kHz samples; damaged and hostile ones cost a sentence."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from rkllm_mcp.speech.audio import FORMATS, MOST_SECONDS, RATE, Sound, SoundError, SoundWriter, read_recording, read_wav
from tests.support.speech_programs import tone, wav

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 22_050, 44_100, 48_000])
@pytest.mark.parametrize(("channels", "width"), [(1, 2), (2, 2), (1, 3), (2, 4)])
def test_a_wav_of_any_rate_and_width_has_its_length_and_its_tone(rate: int, channels: int, width: int) -> None:
    sound = read_wav(wav(500, rate, channels, width))
    assert (sound.rate, round(sound.seconds, 2)) == (RATE, 0.5)
    samples = np.frombuffer(sound.samples, "<i2").astype(float)
    spectrum = np.abs(np.fft.rfft(samples))
    assert round(int(spectrum.argmax()) / sound.seconds, -1) == 440
    assert 6_500 < samples.max() < 8_100


def test_a_tone_above_what_the_new_rate_holds_is_weak_afterwards() -> None:
    rate = 48_000
    high = (8_000 * np.sin(2 * np.pi * 15_500 * np.arange(rate) / rate)).astype("<i2").tobytes()
    samples = np.frombuffer(Sound(high, rate).at(RATE).samples, "<i2").astype(float)
    assert np.sqrt((samples**2).mean()) < 0.25 * 8_000 / np.sqrt(2)


def test_blocks_of_a_long_recording_meet_without_a_step() -> None:
    ramp = np.linspace(-30_000, 30_000, 25 * 44_100).astype("<i2")
    made = np.frombuffer(Sound(ramp.tobytes(), 44_100).at(RATE).samples, "<i2").astype(int)
    assert (len(made), np.abs(np.diff(made)).max()) == (25 * RATE, 1)


@pytest.mark.parametrize("form", FORMATS)
async def test_what_is_written_in_parts_is_read_as_one_sound(form: str) -> None:
    writer = SoundWriter(form)  # type: ignore[arg-type]
    parts = [Sound(tone(300), 22_050), Sound(tone(200, 24_000), 24_000)]
    content = b"".join([*(writer.write(part) for part in parts), writer.write(None)])
    if form == "pcm":
        assert len(content) == 2 * 22_050 // 2
        return
    assert (await read_recording(content)).seconds == pytest.approx(0.5, abs=0.12)


HEAD = b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00"
BAD = {
    "empty": (b"", "the recording is empty"),
    "cut head": (b"RIFF\x00\x00\x00\x00WAVE", "the WAV cannot be read"),
    "no samples": (wav(0), "the recording has no sound"),
    "floats": (HEAD + struct.pack("<HHIIHH", 3, 1, 16_000, 64_000, 4, 32) + b"data\0\0\0\0", "the WAV cannot be read"),
    "no rate": (HEAD + struct.pack("<HHIIHH", 1, 1, 0, 0, 2, 16) + b"data\x02\0\0\0ab", "0 samples a second"),
    "text": (b"Hello. " * 1000, "the recording cannot be read: "),
    "cut webm": (b"\x1aE\xdf\xa3" + bytes(2000), "the recording cannot be read: "),
    "picture": (b"\x89PNG\r\n\x1a\n" + bytes(500), "the recording cannot be read: "),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_recording_that_cannot_be_read_is_refused_with_what_to_do(name: str) -> None:
    content, words = BAD[name]
    with pytest.raises(SoundError) as refused:
        await read_recording(content)
    assert words in str(refused.value)
    assert ";" in str(refused.value)


def test_a_wav_whose_header_promises_more_than_there_is_has_what_is_there() -> None:
    content = bytearray(wav(200))
    content[40:44] = struct.pack("<I", 0x7FFF_FFF0)
    assert round(read_wav(bytes(content)).seconds, 2) == 0.2


def test_a_recording_of_more_than_ten_minutes_is_refused() -> None:
    silence = wav(10, 1_000)[:44] + bytes(2 * 1_000 * (MOST_SECONDS + 1))
    content = bytearray(silence)
    content[4:8], content[40:44] = struct.pack("<I", len(silence) - 8), struct.pack("<I", len(silence) - 44)
    with pytest.raises(SoundError, match="longer than 10 minutes"):
        read_wav(bytes(content))
