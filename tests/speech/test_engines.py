"""Programs for speech are asked in their own protocol; one that misbehaves costs its request, within a time limit."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from rkllm_mcp.config.sections import SpeechSection
from rkllm_mcp.speech.audio import Sound, read_wav
from rkllm_mcp.speech.engines import Recogniser, Speaker, SpeechError, recogniser_of, speaker_of
from tests.support.speech_programs import VOICE_RATE, Behaviour, SpeechService, WyomingProgram, tone, wav

pytestmark = pytest.mark.anyio
RECORDING = read_wav(wav(1_250))


@pytest.fixture(params=["wyoming", "openai"])
def program(request: pytest.FixtureRequest) -> Generator[WyomingProgram | SpeechService, None, None]:
    with WyomingProgram() if request.param == "wyoming" else SpeechService() as it:
        yield it


def engines(address: str, **settings: object) -> tuple[Recogniser, Speaker]:
    section = SpeechSection.model_validate({"stt": address, "tts": address, **settings})
    recogniser, speaker = recogniser_of(section), speaker_of(section)
    assert recogniser is not None
    assert speaker is not None
    return recogniser, speaker


async def text_of(recogniser: Recogniser, language: str = "") -> list[tuple[str, float, float | None]]:
    async with recogniser.transcribe(RECORDING, language) as pieces:
        return [(piece.text, piece.start_s, piece.end_s) async for piece in pieces]


async def test_wyoming_is_sent_the_recording_and_its_language() -> None:
    with WyomingProgram() as program:
        recogniser, _ = engines(program.address)
        assert await text_of(recogniser, "ja") == [("heard 1250 ms", 0.0, None)]
        program.behaviour = "streams"
        assert [piece for piece, _, _ in await text_of(recogniser)] == ["heard", " 1250 ms"]
    assert [each["type"] for each in program.asked] == ["transcribe", "audio-start", "audio-stop"] * 2
    assert [each.get("language") for each in program.asked] == ["ja", None, None, None, None, None]


async def test_wyoming_speaks_with_the_voice_that_is_asked_for_or_configured() -> None:
    with WyomingProgram() as program:
        _, speaker = engines(program.address, voice="haru")
        assert await speaker.speak("Hello there.") == Sound(tone(120), VOICE_RATE)
        await speaker.speak("x", "amy")
        assert [voice.name for voice in await speaker.voices()] == ["amy", "haru"]
    assert [each["voice"] for each in program.asked if each["type"] == "synthesize"] == [
        {"name": "haru"},
        {"name": "amy"},
    ]


async def test_openais_api_is_asked_with_model_key_and_voice() -> None:
    with SpeechService() as program:
        recogniser, speaker = engines(f"{program.address}#tiny", api_key="secret", voice="haru")
        assert await text_of(recogniser, "en") == [(" Hello", 0.0, 0.5), (" there.", 0.5, 1.25)]
        assert round((await speaker.speak("Hello there.", speed=1.5)).seconds, 2) == 0.12
        assert [voice.name for voice in await speaker.voices()] == ["nova", "haru"]
    heard, said = program.asked
    assert heard["authorization"] == "Bearer secret"
    assert all(
        part in heard["body"] for part in (b'name="model"\r\n\r\ntiny', b'name="language"\r\n\r\nen', b"WAVEfmt ")
    )
    assert {name: said[name] for name in ("model", "voice", "speed", "response_format")} == {
        "model": "tiny",
        "voice": "haru",
        "speed": 1.5,
        "response_format": "wav",
    }


REASONS: dict[tuple[str, Behaviour], str] = {
    ("wyoming", "dies"): "ended the connection",
    ("wyoming", "hangs"): "did not answer within 0.5 s",
    ("wyoming", "lies"): "ended the connection before its answer",
    ("wyoming", "fails"): "failed: no model is loaded",
    ("http", "dies"): "cannot be asked",
    ("http", "hangs"): "did not answer within 0.5 s",
    ("http", "lies"): "answered something else than a transcription",
    ("http", "fails"): "answered 400: no such model",
}


@pytest.mark.parametrize("behaviour", ["dies", "hangs", "lies", "fails"])
async def test_a_program_that_misbehaves_is_named_with_its_reason_and_answers_the_next_time(
    program: WyomingProgram | SpeechService, behaviour: Behaviour
) -> None:
    recogniser, speaker = engines(program.address, timeout_s=0.5)
    program.behaviour = behaviour
    with pytest.raises(SpeechError) as unheard:
        await text_of(recogniser)
    assert REASONS[program.address.partition(":")[0], behaviour] in str(unheard.value)
    with pytest.raises(SpeechError):
        await speaker.speak("Hello.")
    program.behaviour = "answers"
    recogniser, speaker = engines(program.address)
    assert await text_of(recogniser)
    assert (await speaker.speak("Hello.")).seconds > 0


@pytest.mark.parametrize("address", ["wyoming://127.0.0.1:9", "http://127.0.0.1:9/v1"])
async def test_a_program_that_is_not_there_is_named(address: str) -> None:
    recogniser, _ = engines(address)
    with pytest.raises(SpeechError, match=f"the program for speech at {address} cannot be"):
        await text_of(recogniser)
