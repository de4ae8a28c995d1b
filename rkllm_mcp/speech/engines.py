"""The programs that recognise and speak: a Wyoming server, a service with OpenAI's API, or a model in a process.

    recording ─▶ 16 kHz samples ─▶ Recogniser.transcribe ─▶ pieces of text
    text ─▶ sentences ─▶ Speaker.speak ─▶ sound

Wyoming 1.10 is Home Assistant's protocol for speech; it has neither keys nor encryption. Each wait is bounded, and a
program that dies, hangs or answers something else costs one request.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import anyio
import httpx2

from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.messages import as_list, as_mapping
from rkllm_mcp.speech.audio import MOST_SECONDS, RATE, Sound, SoundError, blocks_of, read_recording, wav_of
from rkllm_mcp.speech.process import SHERPA, process_of
from rkllm_mcp.text import shorten

if TYPE_CHECKING:
    from wyoming.client import AsyncClient
    from wyoming.event import Event

    from rkllm_mcp.config.sections import SpeechSection

_CONNECT_S = 10.0
_REASON_CHARS = 200
_WYOMING_PORT = 10_300
# The code of the error of a model that does not translate.
NO_TRANSLATION = "no-translation"
_TRANSLATIONS = "/audio/translations"
# As much as ten minutes of sound at 48 kHz.
_MOST_SOUND_BYTES = MOST_SECONDS * 48_000 * 2


@dataclass(eq=False)
class SpeechError(RkllmMcpError):
    """A program for speech that does not answer, or answers something else."""

    address: str
    reason: str
    remedy: str = "see that it runs, and that [speech] in the configuration has its address"

    def __str__(self) -> str:
        """Return what is wrong and what to do."""
        return f"the program for speech at {self.address} {self.reason}; {self.remedy}"


@dataclass(eq=False)
class NoTranslationError(SpeechError):
    """A program that makes text of speech only in the language that is spoken."""

    remedy: str = "ask for that text, and a model for its translation"


@dataclass(frozen=True)
class SpokenText:
    """A part of what was said.

    Args:
        text: its words.
        start_s: where it begins in the recording.
        end_s: where it ends; None if the program does not say.
    """

    text: str
    start_s: float = 0.0
    end_s: float | None = None


@dataclass(frozen=True)
class NamedVoice:
    """A voice that can be asked for."""

    name: str
    languages: tuple[str, ...] = ()


class Recogniser(Protocol):
    """Makes text of speech."""

    def transcribe(
        self, sound: Sound, language: str = "", prompt: str = "", *, into_english: bool = False
    ) -> AbstractAsyncContextManager[AsyncGenerator[SpokenText, None]]:
        """Yield the generator of the pieces of a recording; ``language`` is a code such as ``ja``, or empty.

        Raises:
            NoTranslationError: the program cannot translate ``into_english``.
        """
        ...

    async def languages(self) -> tuple[str, ...]:
        """Return the codes of the languages that the program names."""
        ...


class Speaker(Protocol):
    """Makes sound of text."""

    async def speak(self, text: str, voice: str = "", speed: float = 1.0) -> Sound:
        """Return the sound of one sentence; ``voice`` is one of ``voices``, or empty for the usual one."""
        ...

    async def voices(self) -> tuple[NamedVoice, ...]:
        """Return the voices that the program names."""
        ...


def recogniser_of(section: SpeechSection) -> Recogniser | None:
    """Return the program that recognises speech; None if none is configured."""
    if section.stt is None:
        return None
    if not section.stt.startswith("http"):
        return _Wyoming(section.stt, section.timeout_s)
    return _OpenAI(section.stt, section)


def speaker_of(section: SpeechSection) -> Speaker | None:
    """Return the program that speaks; None if none is configured."""
    if section.tts is None:
        return None
    if not section.tts.startswith("http"):
        return _Wyoming(section.tts, section.timeout_s, section.voice)
    return _OpenAI(section.tts, section)


def process_memory_mb(address: str) -> float | None:
    """Return the memory of the process of a model, while it runs; None of a program."""
    pid = process_of(address).pid if address.startswith(SHERPA) else None
    if pid is None:
        return None
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 / 10**6 for line in lines if line.startswith("VmRSS:"))


class _Wyoming:
    """A program that speaks Wyoming, or a model in a process of this program; one connection for each request."""

    def __init__(self, address: str, timeout_s: float, voice: str | None = None) -> None:
        self._address, self._timeout_s, self._voice = address, timeout_s, voice
        self._process = process_of(address) if address.startswith(SHERPA) else None

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[AsyncClient, None]:
        """Yield a client that is connected; the process of a model is started for it."""
        if find_spec("wyoming") is None:
            raise SpeechError(self._address, "needs the library wyoming", "run 'rkllm-mcp install speech'")
        from wyoming.client import AsyncTcpClient, AsyncUnixClient  # an extra

        parts = urlsplit(self._address)
        client: AsyncClient = AsyncTcpClient(parts.hostname or "", parts.port or _WYOMING_PORT)
        try:
            # A process may have ended by itself in the moment of the first attempt.
            for is_last in (self._process is None, True):
                try:
                    if self._process is not None:
                        path = await anyio.to_thread.run_sync(self._process.start, abandon_on_cancel=True)
                        client = AsyncUnixClient(path)
                    with anyio.fail_after(_CONNECT_S):
                        await client.connect()
                    break
                except OSError:
                    if is_last:
                        raise
        except RuntimeError as error:
            raise SpeechError(self._address, f"does not start: {shorten(str(error), _REASON_CHARS)}") from None
        except (OSError, TimeoutError) as error:
            raise SpeechError(self._address, f"cannot be reached ({error or 'no answer'})") from None
        try:
            with anyio.fail_after(self._timeout_s):
                yield client
        except TimeoutError:
            raise SpeechError(self._address, f"did not answer within {self._timeout_s:g} s") from None
        except (EOFError, OSError) as error:
            raise SpeechError(self._address, f"ended the connection ({type(error).__name__})") from None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SpeechError(self._address, f"answered something else than Wyoming ({error})") from None
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(1), suppress(OSError):
                await client.disconnect()

    async def _events(self, client: AsyncClient) -> AsyncGenerator[Event, None]:
        """Yield what the program sends; its error and its end are a SpeechError."""
        while True:
            event = await client.read_event()
            if event is None:
                raise SpeechError(self._address, "ended the connection before its answer")
            if event.type == "error":
                if event.data.get("code") == NO_TRANSLATION:
                    raise NoTranslationError(self._address, "does not translate (of its kind only Whisper does)")
                reason = str(event.data.get("text") or event.data.get("code") or "nothing more")
                raise SpeechError(self._address, f"failed: {shorten(reason, _REASON_CHARS)}")
            yield event

    @asynccontextmanager
    async def transcribe(
        self, sound: Sound, language: str = "", prompt: str = "", *, into_english: bool = False
    ) -> AsyncGenerator[AsyncGenerator[SpokenText, None], None]:
        if into_english and self._process is None:
            raise NoTranslationError(self._address, "does not translate (Wyoming has no request for it)")
        wishes: dict[str, Any] = {"language": language} if language else {}
        if into_english:
            wishes["task"] = "translate"
        if prompt:
            wishes["transcript_terms"] = [prompt]
        form = {"rate": RATE, "width": 2, "channels": 1}
        async with self._connected() as client:
            await _send(client, "transcribe", wishes)
            await _send(client, "audio-start", form)
            for block in blocks_of(sound):
                await _send(client, "audio-chunk", form, block)
            await _send(client, "audio-stop", {})
            yield self._pieces(client)

    async def _pieces(self, client: AsyncClient) -> AsyncGenerator[SpokenText, None]:
        is_streamed = False
        async for event in self._events(client):
            if event.type == "transcript-chunk":
                is_streamed = True
                # The process of a model has the times, too.
                end_s = event.data.get("end_s")
                times = (0.0, None) if end_s is None else (float(event.data["start_s"]), float(end_s))
                yield SpokenText(str(event.data["text"]), *times)
            elif event.type == "transcript-stop":
                return
            elif event.type == "transcript" and not is_streamed:
                yield SpokenText(str(event.data["text"]))
                return

    async def languages(self) -> tuple[str, ...]:
        """See ``Recogniser.languages``."""
        programs = await self._described("asr")
        models = [as_mapping(model) for program in programs for model in as_list(program.get("models"))]
        return tuple(dict.fromkeys(str(code) for model in models for code in as_list(model.get("languages"))))

    async def speak(self, text: str, voice: str = "", speed: float = 1.0) -> Sound:
        """See ``Speaker.speak``; Wyoming has no speed, which only the process of a model takes."""
        name = voice or self._voice
        wishes: dict[str, Any] = {"text": text, "voice": {"name": name}} if name else {"text": text}
        if self._process is not None:
            wishes["speed"] = speed
        samples, rate = bytearray(), 0
        async with self._connected() as client:
            await _send(client, "synthesize", wishes)
            async for event in self._events(client):
                if event.type == "audio-start" or (event.type == "audio-chunk" and not rate):
                    rate, width, channels = (int(event.data[name]) for name in ("rate", "width", "channels"))
                    if not (width == 2 and channels == 1 and 4_000 <= rate <= 192_000):
                        raise ValueError(f"sound of {channels} channels with {width} bytes at {rate} a second")
                if event.type == "audio-chunk":
                    samples += event.payload or b""
                    if len(samples) > _MOST_SOUND_BYTES:
                        raise SpeechError(self._address, "sends sound without an end")
                elif event.type == "audio-stop":
                    break
        return Sound(bytes(samples[: len(samples) // 2 * 2]), rate or RATE)

    async def voices(self) -> tuple[NamedVoice, ...]:
        """See ``Speaker.voices``."""
        voices = [
            as_mapping(each) for program in await self._described("tts") for each in as_list(program.get("voices"))
        ]
        return tuple(
            NamedVoice(str(voice["name"]), tuple(map(str, as_list(voice.get("languages")))))
            for voice in voices
            if voice.get("name")
        )

    async def _described(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the programs of a kind that the server names."""
        async with self._connected() as client:
            await _send(client, "describe", {})
            async for event in self._events(client):
                if event.type == "info":
                    return [as_mapping(program) for program in as_list(event.data.get(kind))]
        return []


async def _send(client: AsyncClient, kind: str, data: dict[str, Any], payload: bytes | None = None) -> None:
    # Not the classes of wyoming.audio, which import a module that Python 3.13 no longer has.
    from wyoming.event import Event

    await client.write_event(Event(kind, data, payload))


class _OpenAI:
    """A service with OpenAI's API for audio, such as speaches or a server of whisper.cpp."""

    def __init__(self, address: str, section: SpeechSection) -> None:
        base, _, model = address.partition("#")
        self._address, self._model, self._section = base.rstrip("/"), model, section

    @asynccontextmanager
    async def _request(self, path: str, **content: Any) -> AsyncGenerator[httpx2.Response, None]:
        key = self._section.api_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        timeout = httpx2.Timeout(self._section.timeout_s, connect=_CONNECT_S)
        method, address = "POST" if content else "GET", f"{self._address}{path}"
        try:
            with anyio.fail_after(self._section.timeout_s):
                client = httpx2.AsyncClient(headers=headers, timeout=timeout, trust_env=False)
                async with client, client.stream(method, address, **content) as response:
                    if response.is_error:
                        answer = await _body(response, _MOST_SOUND_BYTES)
                        # The message of an error of OpenAI's API, or the beginning of the body.
                        body: Any = {}
                        with suppress(ValueError):
                            body = json.loads(answer)
                        message = as_mapping(as_mapping(body).get("error")).get("message")
                        words = " ".join(str(message or answer.decode("utf-8", "replace")).split())
                        reason = shorten(words, _REASON_CHARS) or "nothing more"
                        is_unknown = path == _TRANSLATIONS and response.status_code in (404, 405, 501)
                        failure = NoTranslationError if is_unknown else SpeechError
                        raise failure(self._address, f"answered {response.status_code}: {reason}")
                    yield response
        except TimeoutError:
            raise SpeechError(self._address, f"did not answer within {self._section.timeout_s:g} s") from None
        except httpx2.HTTPError as error:
            raise SpeechError(self._address, f"cannot be asked ({error or type(error).__name__})") from None

    @asynccontextmanager
    async def transcribe(
        self, sound: Sound, language: str = "", prompt: str = "", *, into_english: bool = False
    ) -> AsyncGenerator[AsyncGenerator[SpokenText, None], None]:
        # A translation has no field for the language that is spoken.
        fields = {"language": "" if into_english else language, "prompt": prompt, "response_format": "verbose_json"}
        data = {"model": self._model or "whisper-1", **{name: value for name, value in fields.items() if value}}
        files = {"file": ("speech.wav", wav_of(sound.rate, sound.samples), "audio/wav")}
        path = _TRANSLATIONS if into_english else "/audio/transcriptions"
        async with self._request(path, data=data, files=files) as response:
            yield self._pieces(response)

    async def _pieces(self, response: httpx2.Response) -> AsyncGenerator[SpokenText, None]:
        try:
            body = as_mapping(json.loads(await _body(response, _MOST_SOUND_BYTES)))
            segments = [as_mapping(segment) for segment in as_list(body.get("segments"))]
            if any(str(segment.get("text", "")).strip() for segment in segments):
                for segment in segments:
                    yield SpokenText(str(segment["text"]), float(segment["start"]), float(segment["end"]))
                return
            yield SpokenText(str(body["text"]))
        except (KeyError, TypeError, ValueError) as error:
            raise SpeechError(self._address, f"answered something else than a transcription ({error})") from None

    async def languages(self) -> tuple[str, ...]:
        """See ``Recogniser.languages``; OpenAI's API names none."""
        return ()

    async def speak(self, text: str, voice: str = "", speed: float = 1.0) -> Sound:
        """See ``Speaker.speak``."""
        body: dict[str, Any] = {"model": self._model or "tts-1", "input": text, "response_format": "wav"}
        body["voice"] = voice or self._section.voice or "alloy"
        if speed != 1.0:
            body["speed"] = speed
        async with self._request("/audio/speech", json=body) as response:
            content = await _body(response, _MOST_SOUND_BYTES)
        try:
            return await read_recording(content)
        except SoundError as error:
            raise SpeechError(self._address, f"sent no sound ({error})") from None

    async def voices(self) -> tuple[NamedVoice, ...]:
        """See ``Speaker.voices``; OpenAI's API has no list, so other servers' is asked for."""
        try:
            async with self._request("/audio/voices") as response:
                body: Any = json.loads(await _body(response, 1_000_000))
        except (SpeechError, ValueError):
            body = {}
        entries = as_list(as_mapping(body).get("voices") or body)
        names = [
            str(as_mapping(entry).get("name") or as_mapping(entry).get("id") or "") or str(entry) for entry in entries
        ]
        return tuple(map(NamedVoice, names or ([self._section.voice] if self._section.voice else [])))


async def _body(response: httpx2.Response, most: int) -> bytes:
    content = bytearray()
    async for part in response.aiter_bytes():
        content += part
        if len(content) > most:
            raise httpx2.HTTPError("the answer has no end")
    return bytes(content)
