"""/v1/audio as OpenAI's client meets it: text of a recording in every form, and sound sentence by sentence."""

from __future__ import annotations

import io
import wave
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from tests.support.served import Served, scripted_model, served
from tests.support.speech_programs import MS_PER_CHARACTER, VOICE_RATE, SpeechService, WyomingProgram, wav

RECORDING = ("speech.wav", wav(1_250), "audio/wav")


@pytest.fixture(scope="module")
def program() -> Generator[WyomingProgram, None, None]:
    with WyomingProgram() as it:
        yield it


@pytest.fixture(scope="module")
def service(program: WyomingProgram, tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("audio")
    speech = f'[speech]\nstt = "{program.address}"\ntts = "{program.address}"\nvoice = "haru"\ntimeout_s = 5.0\n'
    with served(folder / "home", scripted_model(folder / "chat", "rule\n  say Hello.\n"), extra=speech) as it:
        yield it


@pytest.fixture
def client(service: Served, program: WyomingProgram) -> Generator[openai.OpenAI, None, None]:
    program.behaviour = "answers"
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0, timeout=60) as it:
        yield it


def duration(content: bytes) -> float:
    """Seconds of a WAV whose header may not know its length."""
    return (len(content) - 44) / 2 / VOICE_RATE


def test_a_recording_becomes_text_in_every_form(client: openai.OpenAI) -> None:
    create: Any = client.audio.transcriptions.create
    assert create(model="whisper-1", file=RECORDING).text == "heard 1250 ms"
    assert create(model="whisper-1", file=RECORDING, response_format="text") == "heard 1250 ms\n"
    detailed = create(model="whisper-1", file=RECORDING, language="en", response_format="verbose_json")
    assert (detailed.text, detailed.duration, detailed.language) == ("heard 1250 ms", 1.25, "en")
    assert [(segment.start, segment.end, segment.text) for segment in detailed.segments] == [(0, 1.25, "heard 1250 ms")]
    assert create(model="x", file=RECORDING, response_format="srt") == (
        "1\n00:00:00,000 --> 00:00:01,250\nheard 1250 ms\n"
    )
    assert create(model="x", file=RECORDING, response_format="vtt") == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.250\nheard 1250 ms\n"
    )


@pytest.mark.parametrize("media", ["audio/wav; charset=utf-8", "audio/x-wav;codecs=1", "text/plain", ""])
def test_the_content_type_of_a_recording_does_not_matter(service: Served, program: WyomingProgram, media: str) -> None:
    program.behaviour = "answers"
    files = {"file": ("question", wav(500), media)}
    answer = httpx2.post(f"{service.url}/v1/audio/transcriptions", files=files, timeout=60)
    assert (answer.status_code, answer.json()["text"]) == (200, "heard 500 ms")


def test_the_text_comes_as_it_is_recognised(client: openai.OpenAI, program: WyomingProgram) -> None:
    program.behaviour = "streams"
    events = list(client.audio.transcriptions.create(model="gpt-4o-transcribe", file=RECORDING, stream=True))
    assert [event.type for event in events] == ["transcript.text.delta"] * 2 + ["transcript.text.done"]
    assert [getattr(event, "delta", getattr(event, "text", "")) for event in events] == [
        "heard",
        " 1250 ms",
        "heard 1250 ms",
    ]


# OpenAI's client calls its own method deprecated.
@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")
def test_a_recording_becomes_english_text_where_the_program_translates(client: openai.OpenAI, tmp_path: Path) -> None:
    translations: Any = client.audio.translations
    with pytest.raises(openai.APIStatusError, match=r"Wyoming has no request for it\); ask for that text") as wyoming:
        translations.create(model="x", file=RECORDING)
    with SpeechService() as upstream:
        chat = scripted_model(tmp_path / "chat", "rule\n  say Hello.\n")
        with (
            served(tmp_path / "home", chat, extra=f'[speech]\nstt = "{upstream.address}"\n') as service,
            openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0, timeout=60) as client,
        ):
            translations = client.audio.translations
            create = translations.create
            assert create(model="whisper-1", file=RECORDING, prompt="Anna").text == "Hello there."
            assert create(model="whisper-1", file=RECORDING, response_format="text") == "Hello there.\n"
            detailed = create(model="whisper-1", file=RECORDING, response_format="verbose_json")
            assert (detailed.language, detailed.duration, len(detailed.segments)) == ("english", 1.25, 2)
            assert create(model="x", file=RECORDING, response_format="srt").count("-->") == 2
            upstream.behaviour = "transcribes"
            with pytest.raises(openai.APIStatusError, match="answered 404: Not Found; ask for that text") as missing:
                create(model="x", file=RECORDING)
    assert (wyoming.value.status_code, wyoming.value.code) == (501, "not_offered")
    assert (missing.value.status_code, missing.value.code) == (501, "not_offered")
    assert {each["path"] for each in upstream.asked} == {"/v1/audio/translations"}
    assert not any(b'name="language"' in each["body"] for each in upstream.asked)


def test_a_text_becomes_sound_in_every_format(client: openai.OpenAI, program: WyomingProgram, service: Served) -> None:
    program.asked.clear()
    text = "This is the first sentence. And this is the second one."
    sound = client.audio.speech.create(model="tts-1", voice="alloy", input=text, response_format="wav").content
    with wave.open(io.BytesIO(sound)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (VOICE_RATE, 1, 2)
    assert duration(sound) == pytest.approx((len(text) - 1) * MS_PER_CHARACTER / 1000, abs=0.01)
    # A voice of OpenAI's is that of the configuration; another one is asked for.
    client.audio.speech.create(model="tts-1", voice="amy", input="Hello to all of you.", response_format="pcm")
    assert [(each["text"], each["voice"]["name"]) for each in program.asked] == [
        ("This is the first sentence.", "haru"),
        ("And this is the second one.", "haru"),
        ("Hello to all of you.", "amy"),
    ]
    heads = {"mp3": (b"ID3", b"\xff"), "opus": (b"OggS",), "flac": (b"fLaC",), "aac": (b"\xff",)}
    for form, begins in heads.items():
        made: Any = client.audio.speech.create(model="tts-1", voice="alloy", input=text, response_format=form)  # type: ignore[arg-type]
        assert made.content.startswith(begins)
    # A sound has no charset, also where the request has one.
    json_body = b'{"input": "Hello to all of you.", "response_format": "mp3"}'
    for media in ("application/json; charset=utf-8", "Application/JSON;charset=UTF-8"):
        answer = httpx2.post(
            f"{service.url}/v1/audio/speech", content=json_body, headers={"Content-Type": media}, timeout=60
        )
        assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/mpeg")


def test_the_voices_are_listed(service: Served) -> None:
    listed = httpx2.get(f"{service.url}/v1/audio/voices", timeout=60).json()
    assert listed["voices"] == [{"name": "amy", "languages": ["en"]}, {"name": "haru", "languages": ["ja"]}]
    assert "wav" in listed["formats"]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no file": ({"data": {"model": "x"}, "files": {"other": ("a", b"b")}}, "file: is missing"),
    "no form": ({"json": {"file": "x"}}, "file: is missing"),
    "another form": ({"data": {"response_format": "xml"}, "files": {"file": RECORDING}}, "response_format: "),
    "another language": ({"data": {"language": "日本語"}, "files": {"file": RECORDING}}, "language: "),
    "no sound": ({"files": {"file": ("a.wav", b"")}}, "the recording is empty"),
    "a text": ({"files": {"file": ("a.mp3", b"Hello. " * 50)}}, "the recording cannot be read"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_recording_is_refused_by_name(service: Served, name: str) -> None:
    content, words = WRONG[name]
    answer = httpx2.post(f"{service.url}/v1/audio/transcriptions", timeout=60, **content)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(words)


def test_a_recording_of_more_than_25_megabytes_is_refused_before_it_is_read(service: Served) -> None:
    files = {"file": ("a.wav", bytes(26 * 1024 * 1024))}
    answer = httpx2.post(f"{service.url}/v1/audio/transcriptions", files=files, timeout=60)
    assert (answer.status_code, answer.json()["error"]["param"]) == (413, "file")


def test_a_text_without_words_and_a_text_that_is_too_long_are_refused(service: Served) -> None:
    for text, status in (("```\nx = 1\n```", 400), ("a" * 5_000, 422), ("", 422)):
        body = {"model": "x", "voice": "alloy", "input": text}
        answer = httpx2.post(f"{service.url}/v1/audio/speech", json=body, timeout=60)
        assert (answer.status_code, "input" in answer.json()["error"]["message"]) == (status, True)


def test_a_program_that_dies_costs_one_request(client: openai.OpenAI, program: WyomingProgram) -> None:
    program.behaviour = "dies"
    with pytest.raises(openai.APIStatusError, match="the program for speech at wyoming://") as heard:
        client.audio.transcriptions.create(model="x", file=RECORDING)
    with pytest.raises(openai.APIStatusError) as said:
        client.audio.speech.create(model="x", voice="alloy", input="Hello.")
    assert (heard.value.status_code, said.value.status_code) == (502, 502)
    program.behaviour = "answers"
    assert client.audio.transcriptions.create(model="x", file=RECORDING).text == "heard 1250 ms"


def test_without_a_program_the_line_of_the_configuration_is_named(tmp_path: Path) -> None:
    with served(tmp_path / "home", scripted_model(tmp_path / "chat", "rule\n  say Hello.\n")) as service:
        address = f"{service.url}/v1/audio"
        heard = httpx2.post(f"{address}/transcriptions", files={"file": RECORDING}, timeout=60)
        said = httpx2.post(f"{address}/speech", json={"input": "Hello."}, timeout=60)
        listed = httpx2.get(f"{address}/voices", timeout=60)
        translated = httpx2.post(f"{address}/translations", files={"file": RECORDING}, timeout=60)
    assert [each.status_code for each in (heard, said, listed, translated)] == [501] * 4
    assert 'stt = "wyoming://127.0.0.1:10300"' in heard.json()["error"]["message"]
    assert 'tts = "wyoming://127.0.0.1:10200"' in said.json()["error"]["message"]


def test_a_key_has_so_many_seconds_of_sound_a_day(program: WyomingProgram, tmp_path: Path) -> None:
    program.behaviour = "answers"
    extra = f'[speech]\nstt = "{program.address}"\ntts = "{program.address}"\n'
    extra += '[[tenants]]\nname = "ann"\napi_key = "ann"\ndaily_audio_s = 3\n'
    extra += '[[tenants]]\nname = "bea"\napi_key = "bea"\n'
    with served(tmp_path / "home", scripted_model(tmp_path / "chat", "rule\n  say Hello.\n"), extra=extra) as service:

        def post(key: str, path: str, **content: Any) -> httpx2.Response:
            headers = {"Authorization": f"Bearer {key}"}
            return httpx2.post(f"{service.url}/v1/audio/{path}", headers=headers, timeout=60, **content)

        # 1.25 s count as 2, and the sentence of .22 s as one.
        statuses = [post("ann", "transcriptions", files={"file": RECORDING}).status_code]
        statuses.append(post("ann", "speech", json={"input": "This is the sentence."}).status_code)
        refused = [post("ann", "transcriptions", files={"file": RECORDING})]
        refused.append(post("ann", "speech", json={"input": "This is the sentence."}))
        assert statuses == [200, 200]
        assert [(each.status_code, each.json()["error"]["code"]) for each in refused] == [
            (429, "daily_audio_exceeded")
        ] * 2
        assert int(refused[0].headers["Retry-After"]) <= 86_400
        assert post("bea", "transcriptions", files={"file": RECORDING}).status_code == 200
