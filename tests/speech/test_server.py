"""What Home Assistant sends to a Wyoming program is answered here; the client is the protocol's own library."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager

import pytest
from wyoming.asr import Transcribe, Transcript, TranscriptChunk, TranscriptStart, TranscriptStop
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event, Eventable
from wyoming.info import Describe, Info, SelectProgram
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

from rkllm_mcp.config.sections import SpeechSection
from rkllm_mcp.speech.engines import recogniser_of, speaker_of
from rkllm_mcp.speech.server import SpeechServer, listen
from tests.support.speech_programs import MS_PER_CHARACTER, VOICE_RATE, WyomingProgram, wav

pytestmark = pytest.mark.anyio
SAMPLES = wav(1_000)[44:]


@pytest.fixture
def program() -> Generator[WyomingProgram, None, None]:
    with WyomingProgram() as it:
        yield it


@asynccontextmanager
async def client_of(program: WyomingProgram | None) -> AsyncGenerator[AsyncTcpClient, None]:
    """A client of a server that asks ``program``."""
    section = SpeechSection(stt=program.address, tts=program.address, voice="haru") if program else SpeechSection()
    place = socket.create_server(("127.0.0.1", 0))
    server = SpeechServer(recogniser_of(section), speaker_of(section))
    client = AsyncTcpClient("127.0.0.1", place.getsockname()[1], read_timeout=30)
    async with await listen(server, place), client:
        yield client


async def send(client: AsyncTcpClient, *events: Eventable) -> None:
    for event in events:
        await client.write_event(event.event())


async def events_until(client: AsyncTcpClient, end: str) -> list[Event]:
    events: list[Event] = []
    while not events or events[-1].type != end:
        event = await client.read_event()
        assert event is not None
        events.append(event)
    return events


def recording(rate: int = 16_000, channels: int = 1, samples: bytes = SAMPLES) -> list[Eventable]:
    blocks = [samples[start : start + 2_048] for start in range(0, len(samples), 2_048)]
    chunks = [AudioChunk(rate, 2, channels, block) for block in blocks]
    return [AudioStart(rate, 2, channels), *chunks, AudioStop()]


async def test_home_assistant_learns_what_is_here(program: WyomingProgram) -> None:
    async with client_of(program) as client:
        await send(client, Describe())
        event = await client.read_event()
    assert event is not None
    info = Info.from_event(event)
    assert [(each.supports_transcript_streaming, each.models[0].languages) for each in info.asr] == [
        (True, ["en", "ja"])
    ]
    (speaker,) = info.tts
    assert speaker.supports_synthesize_streaming
    assert [(voice.name, voice.languages) for voice in speaker.voices] == [("amy", ["en"]), ("haru", ["ja"])]
    assert not [*info.wake, *info.handle, *info.intent]


async def test_a_recording_becomes_a_transcript_that_streams(program: WyomingProgram) -> None:
    program.behaviour = "streams"
    async with client_of(program) as client:
        await send(client, Transcribe(language="ja"), *recording())
        events = await events_until(client, "transcript-stop")
        start, *chunks, whole, _ = events
        assert TranscriptStart.from_event(start).language == "ja"
        assert [TranscriptChunk.from_event(each).text for each in chunks] == ["heard", " 1000 ms"]
        assert Transcript.from_event(whole) == Transcript("heard 1000 ms", language="ja")
        assert TranscriptStop.is_type(events[-1].type)
        # Two channels at another rate, on the same connection.
        await send(client, Transcribe(), *recording(48_000, 2, wav(1_000, 48_000, 2)[44:]))
        whole = (await events_until(client, "transcript-stop"))[-2]
    assert Transcript.from_event(whole).text == "heard 1000 ms"
    assert [each.get("language") for each in program.asked if each["type"] == "transcribe"] == ["ja", None]


async def test_a_text_becomes_sound_with_the_voice_that_is_wished(program: WyomingProgram) -> None:
    text = "It will rain tomorrow. Take an umbrella with you."
    async with client_of(program) as client:
        await send(client, Synthesize(text, SynthesizeVoice("amy")))
        start, *chunks, _ = await events_until(client, "audio-stop")
    assert AudioStart.from_event(start) == AudioStart(VOICE_RATE, 2, 1)
    spoken_ms = sum(len(AudioChunk.from_event(each).audio) for each in chunks) / 2 / VOICE_RATE * 1000
    assert spoken_ms == pytest.approx(MS_PER_CHARACTER * (len(text) - 1), abs=20)
    said = [(each["text"], each["voice"]["name"]) for each in program.asked if each["type"] == "synthesize"]
    assert said == [("It will rain tomorrow.", "amy"), ("Take an umbrella with you.", "amy")]


async def test_a_text_that_comes_in_pieces_is_spoken_as_its_sentences_end(program: WyomingProgram) -> None:
    async with client_of(program) as client:
        await send(client, SynthesizeStart(), SynthesizeChunk("It costs 3.5 euros. It wi"))
        first = [await client.read_event(), await client.read_event()]
        assert [event.type for event in first if event] == ["audio-start", "audio-chunk"]
        assert [each["text"] for each in program.asked if each["type"] == "synthesize"] == ["It costs 3.5 euros."]
        await send(client, SynthesizeChunk("ll rain. "), Synthesize("It costs 3.5 euros. It will rain."))
        await send(client, SynthesizeStop())
        rest = [event.type for event in await events_until(client, "synthesize-stopped")]
    assert SynthesizeStopped.is_type(rest[-1])
    assert (rest.count("audio-start"), rest.count("audio-stop"), rest[-2]) == (0, 1, "audio-stop")
    assert [each["text"] for each in program.asked if each["type"] == "synthesize"][1:] == ["It will rain."]


async def refusal(server: AsyncTcpClient, *events: Eventable) -> str:
    """Return the error that events have on a connection of their own, which then ends, as Home Assistant waits for."""
    async with AsyncTcpClient(server.host, server.port, read_timeout=30) as client:
        await send(client, *events)
        error = (await events_until(client, "error"))[-1]
        assert await client.read_event() is None
    return Error.from_event(error).text


async def test_what_fails_is_an_error_that_ends_its_connection_and_no_other(program: WyomingProgram) -> None:
    async with client_of(program) as client:
        program.behaviour = "fails"
        assert "no model is loaded" in await refusal(client, Transcribe(), *recording())
        assert "has no sound" in await refusal(client, Transcribe(), AudioStart(16_000, 2, 1), AudioStop())
        program.behaviour = "answers"
        await send(client, SelectProgram("rkllm-mcp"), Ping("x"), Transcribe(), *recording())
        first, *_, whole, _ = await events_until(client, "transcript-stop")
    assert Pong.from_event(first).text == "x"
    assert Transcript.from_event(whole).text == "heard 1000 ms"


async def test_without_programs_each_wish_is_refused_with_its_reason() -> None:
    async with client_of(None) as client:
        assert "no program that recognises" in await refusal(client, Transcribe(), *recording())
        assert "no program that speaks" in await refusal(client, Synthesize("Hello there."))


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n",
        b"[]\n",
        b'{"type": "audio-chunk", "payload_length": 99999999999}\n',
        b'{"type": "audio-chunk", "payload_length": -1}\n',
        b'{"type": "synthesize"}\n',
        b"x" * 100_000,
        b'{"type": "audio-start", "data": {"rate": "fast", "width": 2, "channels": 1}}\n{"type": "audio-stop"}\n',
    ],
)
async def test_what_is_not_an_event_ends_the_connection_and_no_other(sent: bytes, program: WyomingProgram) -> None:
    async with client_of(program) as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        writer.write(sent)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(reader.readexactly(10_000), 30)
        writer.close()
        await send(client, Ping())
        event = await client.read_event()
    assert event is not None
    assert Pong.is_type(event.type)


async def test_a_recording_without_an_end_is_refused(program: WyomingProgram) -> None:
    async with client_of(program) as client:
        block = AudioChunk(16_000, 2, 1, bytes(1_000_000))
        assert "longer than 10 minutes" in await refusal(client, AudioStart(16_000, 2, 1), *[block] * 60)
