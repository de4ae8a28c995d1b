"""A question from the microphone is asked, and answers are read aloud; ALSA takes files for the devices."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
import pytest

from rkllm_mcp.errors import UsageError
from rkllm_mcp.events import Text
from rkllm_mcp.speech.audio import RATE, Sound
from rkllm_mcp.speech.device import EndOfSpeech, play, record
from rkllm_mcp.surfaces.chat.speech import SpokenAnswer
from tests.support.demo_app import make_demo
from tests.support.speech_programs import MS_PER_CHARACTER, VOICE_RATE, WyomingProgram, tone

DEVICE = """pcm.!default {
  type file
  slave.pcm { type null }
  file "FOLDER/said.raw"
  infile "FOLDER/heard.raw"
  format "raw"
}
"""


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sound card whose microphone hears ``heard.raw``, and whose loudspeaker writes ``said.raw``."""
    (tmp_path / "asound.conf").write_text(DEVICE.replace("FOLDER", str(tmp_path)), "utf-8")
    monkeypatch.setenv("ALSA_CONFIG_PATH", str(tmp_path / "asound.conf"))
    return tmp_path


def speech(seconds: float) -> bytes:
    return tone(int(seconds * 1000), RATE)


@pytest.mark.anyio
async def test_what_is_said_is_recorded_until_it_is_quiet(device: Path) -> None:
    (device / "heard.raw").write_bytes(bytes(RATE) + speech(2) + bytes(2 * RATE * 30))
    begun: list[bool] = []
    sound = await record(lambda: begun.append(True))
    assert sound is not None
    assert (begun, round(sound.seconds, 1)) == ([True], pytest.approx(0.5 + 2 + 1.5, abs=0.2))


@pytest.mark.anyio
async def test_a_microphone_that_hears_nothing_gives_up(device: Path) -> None:
    (device / "heard.raw").write_bytes(bytes(2 * RATE * 60))
    assert await record() is None


@pytest.mark.anyio
async def test_sound_is_played_whole(device: Path) -> None:
    sound = Sound(tone(1_234), VOICE_RATE)
    await play(sound)
    assert (device / "said.raw").read_bytes() == sound.samples


@pytest.mark.anyio
async def test_without_a_device_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "asound.conf").write_text("", "utf-8")
    monkeypatch.setenv("ALSA_CONFIG_PATH", str(tmp_path / "asound.conf"))
    with pytest.raises(UsageError, match=r"there is no microphone here \(.*\); connect one"):
        await record()
    with pytest.raises(UsageError, match="there is no loudspeaker here"):
        await play(Sound(bytes(2_000)))


def frames(loudness: float, seconds: float) -> bytes:
    count = int(RATE * seconds)
    return struct.pack(f"<{count}h", *(int(loudness * math.sin(i)) for i in range(count)))


@pytest.mark.parametrize(("room", "voice"), [(0, 3_000), (40, 1_500), (600, 6_000)])
def test_the_end_is_found_in_quiet_and_in_noisy_rooms(room: float, voice: float) -> None:
    end = EndOfSpeech()
    assert not end.feed(frames(room, 2))
    assert not end.has_spoken
    assert not end.feed(frames(voice, 1) + frames(room, 1) + frames(voice, 1) + frames(room, 1.2))
    assert end.has_spoken
    assert end.feed(frames(room, 0.5))


class _Recorder:
    """A speaker that notes what it says and makes no sound."""

    def __init__(self) -> None:
        self.said: list[str] = []

    async def speak(self, text: str, voice: str = "", speed: float = 1.0) -> Sound:
        del voice, speed
        self.said.append(text)
        return Sound(bytes(200))

    async def voices(self) -> tuple[()]:
        return ()


@pytest.mark.anyio
async def test_an_answer_is_spoken_in_sentences_without_its_code(device: Path) -> None:
    del device
    speaker = _Recorder()
    spoken = SpokenAnswer(speaker)
    for piece in ("It is 3", ".5 degrees. Run", " this:\n```\nrm x. y", ". z\n```\nThen it is do", "ne"):
        spoken.note(Text(piece))
    spoken.finish()
    await spoken.play()
    assert speaker.said == ["It is 3.5 degrees.", "Run this:", "Then it is done."]


def test_a_chat_hears_a_question_and_speaks_its_answer(device: Path, tmp_path: Path) -> None:
    (device / "heard.raw").write_bytes(speech(1) + bytes(2 * RATE * 10))
    with WyomingProgram() as program:
        extra = f'[speech]\nstt = "{program.address}"\ntts = "{program.address}"\n'
        demo = make_demo(tmp_path / "home", servers=(), extra=extra)
        environment = {"ALSA_CONFIG_PATH": str(device / "asound.conf")}
        done = demo.run_here("chat", stdin="/speak on\n/listen\n/speak\n/speak off\n", environment=environment)
        asked = [each["text"] for each in program.asked if each["type"] == "synthesize"]
    assert done.returncode == 0
    assert "Answers are read aloud; /speak off stops that." in done.stderr
    assert "Listening; silence ends the question." in done.stderr
    assert "heard 2" in done.stderr, "a second, and the silence that ends it"
    assert "/speak needs on or off" in done.stderr
    # The file has the last sentence alone: each is played anew.
    said = np.frombuffer((device / "said.raw").read_bytes(), "<i2")
    assert len(said) / VOICE_RATE == pytest.approx(len(asked[-1]) * MS_PER_CHARACTER / 1000, abs=0.01)
