"""Models of sherpa-onnx hear and speak in a process of their own, which may die; their files tell what they are.

The library is the real one; the models are written here, and only their form is that of real ones.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest

from rkllm_mcp.config.sections import SpeechSection
from rkllm_mcp.speech.audio import RATE, Sound, read_wav
from rkllm_mcp.speech.engines import NoTranslationError, Recogniser, Speaker, SpeechError, recogniser_of, speaker_of
from rkllm_mcp.speech.process import EngineProcess, process_of
from rkllm_mcp.speech.sherpa import UnknownModelError, find_model, phonemes_of, segments
from tests.support.demo_app import wait_for_end
from tests.support.onnx_models import VOICE_RATE, VOICE_STEP, write_recogniser, write_voice
from tests.support.speech_programs import wav

pytestmark = pytest.mark.anyio
# A program that writes the letters of its input, each word with an accent, as espeak-ng does with sounds.
ESPEAK = "#!/bin/sh\nprintf '\u02c8'\ncat\n"


@pytest.fixture
def ears(tmp_path: Path) -> Generator[Path, None, None]:
    folder = write_recogniser(tmp_path / "ears")
    yield folder
    process_of(f"sherpa:{folder}").stop()


@pytest.fixture
def voice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path, None, None]:
    program = tmp_path / "bin" / "espeak-ng"
    program.parent.mkdir()
    program.write_text(ESPEAK, "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    folder = write_voice(tmp_path / "voice")
    yield folder
    process_of(f"sherpa:{folder}").stop()


def recogniser(folder: Path) -> Recogniser:
    made = recogniser_of(SpeechSection(stt=f"sherpa:{folder}"))
    assert made is not None
    return made


def speaker(folder: Path) -> Speaker:
    made = speaker_of(SpeechSection(tts=f"sherpa:{folder}"))
    assert made is not None
    return made


async def heard(ears: Recogniser, sound: Sound) -> list[tuple[str, float, float | None]]:
    async with ears.transcribe(sound) as pieces:
        return [(piece.text, piece.start_s, piece.end_s) async for piece in pieces]


async def test_a_recording_becomes_text_in_parts_with_their_times(ears: Path) -> None:
    assert await heard(recogniser(ears), read_wav(wav(1_000))) == [("good morning", 0.0, 1.0)]
    quiet_after_20_s = wav(20_000)[44:] + bytes(RATE * 4) + wav(20_000)[44:]
    parts = await heard(recogniser(ears), Sound(quiet_after_20_s))
    assert [text for text, _, _ in parts] == ["good morning", " good morning"]
    assert 20 < (parts[0][2] or 0) == parts[1][1] < 22
    assert await recogniser(ears).languages() == ("zh", "en", "ja", "ko", "yue")


async def test_a_model_that_does_not_translate_says_so(ears: Path) -> None:
    with pytest.raises(NoTranslationError, match=r"does not translate \(of its kind only Whisper does\)"):
        async with recogniser(ears).transcribe(read_wav(wav(500)), into_english=True) as pieces:
            assert not [piece async for piece in pieces]
    assert await heard(recogniser(ears), read_wav(wav(500))) == [("good morning", 0.0, 0.5)]


async def test_a_sentence_becomes_sound_of_the_voice(voice: Path) -> None:
    said = await speaker(voice).speak("Hi, you.")
    # Begin and end, the eight signs of the sounds, and a pad after each.
    assert said.rate == VOICE_RATE
    assert len(said.samples) // 2 % VOICE_STEP == 0
    assert said.seconds > 0.1
    longer = await speaker(voice).speak("Hi, you and all the others.")
    assert longer.seconds > 2 * said.seconds
    assert [(each.name, each.languages) for each in await speaker(voice).voices()] == [("en_US-tiny-low", ("en",))]


async def test_a_text_without_sounds_is_refused(voice: Path, tmp_path: Path) -> None:
    (tmp_path / "bin" / "espeak-ng").write_text("#!/bin/sh\necho no voice >&2\nexit 1\n", "utf-8")
    with pytest.raises(SpeechError, match=r"failed: espeak-ng has no sounds for the text \(no voice\)"):
        await speaker(voice).speak("Hi, you.")


async def test_a_process_that_is_killed_costs_one_request(ears: Path) -> None:
    assert await heard(recogniser(ears), read_wav(wav(500)))
    first = process_of(f"sherpa:{ears}").pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    section = SpeechSection(stt=f"sherpa:{ears}", timeout_s=0.5)
    hanging = recogniser_of(section)
    assert hanging is not None
    with pytest.raises(SpeechError, match=r"did not answer within 0\.5 s"):
        await heard(hanging, read_wav(wav(500)))
    os.kill(first, signal.SIGKILL)
    wait_for_end([first])
    assert await heard(recogniser(ears), read_wav(wav(500))) == [("good morning", 0.0, 0.5)]
    assert process_of(f"sherpa:{ears}").pid not in (None, first)


def test_a_process_without_requests_ends_and_the_next_request_starts_it_again(ears: Path) -> None:
    process = EngineProcess(ears, idle_s=0.2)
    socket = process.start()
    wait_for_end([pid for pid in [process.pid] if pid is not None])
    assert not socket.parent.exists()
    assert process.start() != socket
    process.stop()


def test_a_process_has_a_low_priority_a_limit_of_memory_and_leaves_no_core(ears: Path) -> None:
    process_of(f"sherpa:{ears}").start()
    pid = process_of(f"sherpa:{ears}").pid
    assert pid is not None
    assert os.getpriority(os.PRIO_PROCESS, pid) >= min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
    limits = Path(f"/proc/{pid}/limits").read_text("ascii")
    assert "Max core file size        0" in limits
    assert f"Max data size             {2 * find_model(ears).memory_bytes} " in limits
    assert Path(f"/proc/{pid}/oom_score_adj").read_text("ascii") == "1000\n"


async def test_what_cannot_be_loaded_is_named_with_its_reason(tmp_path: Path, ears: Path) -> None:
    folder = tmp_path / "none"
    with pytest.raises(SpeechError, match=f"sherpa:{folder} does not start: there is no folder"):
        await heard(recogniser(folder), read_wav(wav(500)))
    damaged = write_recogniser(tmp_path / "damaged")
    network = damaged / "model.int8.onnx"
    network.write_bytes(network.read_bytes()[:500])
    with pytest.raises(SpeechError, match="cannot be loaded"):
        await heard(recogniser(damaged), read_wav(wav(500)))
    with pytest.raises(SpeechError, match="no program that speaks is configured"):
        await speaker(ears).speak("Hello.")


FILES: dict[tuple[str, ...], str] = {
    ("base-encoder.int8.onnx", "base-encoder.onnx", "base-decoder.int8.onnx", "base-tokens.txt"): "whisper",
    ("model.onnx", "model.int8.onnx", "tokens.txt", "README.md"): "sense-voice",
    ("model.onnx", "voices.bin", "tokens.txt", "lexicon-us-en.txt"): "kokoro",
    ("vits-ljs.onnx", "lexicon.txt", "tokens.txt"): "vits",
    ("en_US-joe-medium.onnx", "en_US-joe-medium.onnx.json", "tokens.txt"): "piper",
}


@pytest.mark.parametrize("names", FILES, ids=FILES.values())
def test_the_files_of_a_folder_tell_its_model(names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    model = find_model(tmp_path)
    assert model.kind == FILES[names]
    assert all("int8" in path.name for path in model.networks if any("int8" in name for name in names))


@pytest.mark.parametrize(
    ("names", "reason"),
    [((), "has no model of sherpa-onnx"), (("tokens.txt", "encoder-epoch-99.onnx"), "is no SenseVoice, Whisper")],
)
def test_other_folders_are_refused(names: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(UnknownModelError, match=reason):
        find_model(tmp_path)


def test_a_long_recording_is_cut_where_it_is_quiet_and_silence_is_left_out() -> None:
    noise = np.tile(np.array([8_000, -8_000], np.int16), RATE * 35 // 2)
    noise[RATE * 25 : RATE * 26] = 0
    (first, cut), (second, end) = segments(noise)
    assert (first, end) == (0, len(noise))
    assert RATE * 25 <= cut == second <= RATE * 26
    assert list(segments(np.zeros(RATE * 40, np.int16))) == []
    assert list(segments(np.zeros(0, np.int16))) == []


def test_sounds_keep_the_marks_of_their_sentence_and_lose_those_of_languages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "espeak-ng"
    program.write_text("#!/bin/sh\nprintf '(en)'; cat; printf '(ja)\\n'\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert phonemes_of("It rains, Taro! 21 degrees", "en-us") == "It rains, Taro! 21 degrees"
    assert phonemes_of("At 10:30 it is 3.5 to 1,000; well...", "en-us") == "At 10:30 it is 3.5 to 1,000; well."
