"""OpenAI's API for audio: recordings become text, and text becomes sound, by the programs of ``[speech]``.

Recordings are neither stored nor logged. WAV is read here; other formats by a process that may die.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Field, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from rkllm_mcp.config.section import DocumentedModel
from rkllm_mcp.errors import QueueFullError
from rkllm_mcp.speech.audio import (
    FORMATS,
    MEDIA,
    MOST_BYTES,
    Sound,
    SoundError,
    SoundFormat,
    SoundWriter,
    read_recording,
)
from rkllm_mcp.speech.engines import (
    Speaker,
    SpokenText,
    recogniser_of,
    speaker_of,
)
from rkllm_mcp.speech.sentences import MOST_CHARS, sentences_of
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.errors import RETRY_AFTER_S, HTTPError
from rkllm_mcp.surfaces.http.route import EVENT_STREAM, Route, RouteResponse
from rkllm_mcp.surfaces.http.state import MEBIBYTE, service_of, tenant_of
from rkllm_mcp.surfaces.http.streaming import EventStream, records, while_connected

if TYPE_CHECKING:
    from rkllm_mcp.surfaces.http.state import ServiceState

_FORM_BYTES = 65_536  # a form's own bytes: boundaries, names and short fields
_MOST_INPUT_CHARS = 4_096
# The message of the refusal if no program is configured for a kind of speech.
MISSING = (
    "no program for this is configured; the owner sets {key} in [speech] of the configuration, such as "
    '{key} = "wyoming://127.0.0.1:{port}"'
)

# Begins to recognise a recording.
Hearing: TypeAlias = Callable[[], AbstractAsyncContextManager[AsyncGenerator[SpokenText, None]]]
TextFormat = Literal["json", "text", "verbose_json", "srt", "vtt"]


class TranscriptionForm(DocumentedModel):
    """A recording."""

    file: str = Field("", description="The recording, up to 25 MB and 10 minutes; WAV, and others with PyAV.")
    model: str = Field("", description="Whatever a program sends; there is one program that recognises.")
    language: Annotated[str, Field(max_length=16, pattern=r"^[A-Za-z-]*$")] = Field(
        "", description="The language that is spoken, such as ja; the program finds it out without."
    )
    prompt: Annotated[str, Field(max_length=1_000)] = Field("", description="Words that may occur in it.")
    response_format: TextFormat = Field("json", description="What comes back.")
    stream: Literal["", "true", "false"] = Field("", description="Send the text as it is recognised, as events.")


class Transcription(DocumentedModel):
    """The text of a recording."""

    text: str


class SpeechBody(bodies.LenientBody):
    """A text to be spoken."""

    input: Annotated[str, Field(min_length=1, max_length=_MOST_INPUT_CHARS)]
    """The text; code, tables and addresses in it are left out."""
    model: str = ""
    """Whatever a program sends; there is one program that speaks."""
    voice: Annotated[str, Field(max_length=200)] = ""
    """One of GET /v1/audio/voices; the one of the configuration if it is empty, or one of OpenAI's names."""
    response_format: SoundFormat | None = None
    """wav if it is not given; all but wav and pcm need PyAV. pcm has 16 bits and the sample rate of the voice."""
    speed: Annotated[float, Field(ge=0.25, le=4.0)] = 1.0
    """Ignored by programs that have no speed."""
    stream_format: Literal["audio", "sse"] = "audio"
    """Only audio."""


class VoiceShown(DocumentedModel):
    """A voice."""

    name: str
    languages: list[str] = Field(description="Codes such as ja; empty if the program does not say.")


class Voices(DocumentedModel):
    """What can be asked for."""

    voices: list[VoiceShown]
    formats: list[str] = Field(description="Values of response_format.")


# Voices of OpenAI's, which programs send to every server.
_OPENAI_VOICES = frozenset(
    {"alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse"}
)


def _speaker(request: Request) -> Speaker:
    speaker = speaker_of(service_of(request).config.speech)
    if speaker is None:
        raise HTTPError(501, MISSING.format(key="tts", port=10_200), code="not_configured")
    return speaker


@asynccontextmanager
async def _form(request: Request) -> AsyncGenerator[tuple[TranscriptionForm, bytes], None]:
    """Yield the fields and the recording of a form, which holds its room until the end."""
    too_large = HTTPError(
        413, f"the recording is larger than {MOST_BYTES // MEBIBYTE} MB; send it in parts", param="file"
    )
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > MOST_BYTES + _FORM_BYTES:
        raise too_large
    size = int(length) if length.isdecimal() else MOST_BYTES
    limited = bodies.limit_body(request, MOST_BYTES + _FORM_BYTES, problem=too_large)
    try:
        async with (
            service_of(request).admission.receiving(request.state.key, size),
            limited.form(max_files=1, max_fields=20) as form,
        ):
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise HTTPError(400, "file: is missing; send multipart/form-data with a recording", param="file")
            known = {name: form.get(name) for name in TranscriptionForm.model_fields if name != "file"}
            fields = TranscriptionForm.model_validate({name: value for name, value in known.items() if value})
            yield fields, await file.read()
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise HTTPError(400, f"{name}: {first['msg']}", param=name) from None
    except HTTPException as error:
        raise HTTPError(400, f"the body is not a form: {error.detail}; send multipart/form-data") from None
    except QueueFullError:
        message = "too many recordings of this key are on their way; wait for their answers, or send fewer at once"
        raise HTTPError(429, message, retry_after_s=RETRY_AFTER_S) from None


_TEXTS = (
    RouteResponse(Transcription, says="The text; with segments, subtitles or plain by response_format."),
    RouteResponse(media=EVENT_STREAM, says="transcript.text.delta and transcript.text.done."),
)


@Route(
    "POST",
    "/v1/audio/transcriptions",
    body=TranscriptionForm,
    body_media="multipart/form-data",
    answers=_TEXTS,
    problems=(413, 429, 501, 502),
)
async def transcribe(request: Request) -> Response:
    """Make text of a recording."""
    return await _text_of(request)


@Route(
    "POST",
    "/v1/audio/translations",
    body=TranscriptionForm,
    body_media="multipart/form-data",
    answers=_TEXTS,
    problems=(413, 429, 501, 502),
)
async def translate(request: Request) -> Response:
    """Make English text of a recording in any language; 501 where the program does not translate."""
    return await _text_of(request, into_english=True)


async def _text_of(request: Request, *, into_english: bool = False) -> Response:
    service, tenant = service_of(request), tenant_of(request)
    recogniser = recogniser_of(service.config.speech)
    if recogniser is None:
        raise HTTPError(501, MISSING.format(key="stt", port=10_300), code="not_configured")
    await service.quota.check(tenant, with_sound=True)
    async with _form(request) as (fields, data):
        try:
            sound = await read_recording(data)
        except SoundError as error:
            raise HTTPError(400, str(error), param="file", code="invalid_audio") from None
    await service.quota.spend_sound(tenant, sound.seconds)
    hearing = partial(recogniser.transcribe, sound, fields.language, fields.prompt, into_english=into_english)
    if fields.stream == "true":
        return EventStream(partial(_recognise, service, hearing))
    pieces = await while_connected(request, partial(_recognise, service, hearing))
    text = "".join(piece.text for piece in pieces).strip()
    form = fields.response_format
    if form == "json":
        return JSONResponse({"text": text, "usage": {"type": "duration", "seconds": round(sound.seconds, 1)}})
    if form == "text":
        return PlainTextResponse(f"{text}\n")
    spans = [(piece.start_s, sound.seconds if piece.end_s is None else piece.end_s, piece.text) for piece in pieces]
    if form == "verbose_json":
        segments = [
            {"id": index, "start": start, "end": end, "text": words} for index, (start, end, words) in enumerate(spans)
        ]
        duration = round(sound.seconds, 3)
        task, language = ("translate", "english") if into_english else ("transcribe", fields.language)
        body = {"task": task, "language": language, "duration": duration, "text": text, "segments": segments}
        return JSONResponse(body)
    point = "," if form == "srt" else "."
    blocks = ["WEBVTT"] if form == "vtt" else []
    for number, (start, end, words) in enumerate(spans, 1):
        lines = [f"{_time(start, point)} --> {_time(end, point)}", words.strip()]
        blocks.append("\n".join([str(number), *lines] if form == "srt" else lines))
    media = "text/vtt" if form == "vtt" else "application/x-subrip"
    return PlainTextResponse("\n\n".join(blocks) + "\n", media_type=media)


async def _recognise(service: ServiceState, hearing: Hearing, stream: EventStream | None = None) -> list[SpokenText]:
    """Return the pieces of a recording, which go to a stream as they come."""
    spoken: list[SpokenText] = []
    async with service.speech, hearing() as pieces:
        async for piece in pieces:
            spoken.append(piece)
            if stream is not None:
                delta = {"type": "transcript.text.delta", "delta": piece.text}
                stream.feed(records([json.dumps(delta, ensure_ascii=False)]))
    if stream is not None:
        last_record = {"type": "transcript.text.done", "text": "".join(piece.text for piece in spoken).strip()}
        stream.feed(records([json.dumps(last_record, ensure_ascii=False)]))
    return spoken


def _time(seconds: float, point: str) -> str:
    milliseconds = round(seconds * 1000)
    minutes, remainder = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{remainder // 1000:02}{point}{remainder % 1000:03}"


@Route(
    "POST",
    "/v1/audio/speech",
    body=SpeechBody,
    answers=(RouteResponse(media="audio/wav", says="The sound, sentence by sentence as it is made."),),
    problems=(429, 501, 502),
)
async def speak(request: Request) -> Response:
    """Make sound of a text."""
    body = await bodies.read(request, SpeechBody)
    service, speaker = service_of(request), _speaker(request)
    tenant = tenant_of(request)
    await service.quota.check(tenant, with_sound=True)
    if body.stream_format != "audio":
        raise HTTPError(400, "stream_format: only audio is sent; leave it out", param="stream_format")
    form = body.response_format or "wav"
    try:
        writer = SoundWriter(form)
    except SoundError as error:
        raise HTTPError(400, str(error), param="response_format") from None
    # A slow sentence is a long sound, whose length is what a voice takes memory for.
    sentences = list(sentences_of(body.input, int(MOST_CHARS * min(1.0, body.speed))))
    if not sentences:
        raise HTTPError(
            400, "input: there is nothing to say in it; code, tables and addresses are left out", param="input"
        )
    voice = "" if body.voice in _OPENAI_VOICES else body.voice
    # The first sentence is made before the headers are sent, so that a program that fails has a status.
    first = await while_connected(request, partial(_speak, service, speaker, sentences[0], voice, body.speed))
    await service.quota.spend_sound(tenant, first.seconds)

    async def send(stream: EventStream) -> None:
        await stream.write(writer.write(first))
        for sentence in sentences[1:]:
            sound = await _speak(service, speaker, sentence, voice, body.speed)
            await service.quota.spend_sound(tenant, sound.seconds)
            await stream.write(writer.write(sound))
        await stream.write(writer.write(None))

    return EventStream(send, media=MEDIA[form], heartbeat=b"", failure=lambda _error: b"")


async def _speak(service: ServiceState, speaker: Speaker, sentence: str, voice: str, speed: float) -> Sound:
    async with service.speech:
        return await speaker.speak(sentence, voice, speed)


@Route("GET", "/v1/audio/voices", answers=(RouteResponse(Voices),), problems=(501, 502))
async def voices(request: Request) -> Voices:
    """The voices of the program that speaks."""
    speaker = _speaker(request)
    engine_voices = await while_connected(request, speaker.voices)
    shown_voices = [VoiceShown(name=voice.name, languages=[*voice.languages]) for voice in engine_voices]
    return Voices(voices=shown_voices, formats=[*FORMATS])
