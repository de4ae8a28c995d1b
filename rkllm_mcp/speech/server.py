"""A Wyoming server: what Home Assistant asks is answered by a recogniser and a speaker.

    audio-start, audio-chunk …, audio-stop ─▶ transcript-start, transcript-chunk …, transcript, transcript-stop
    synthesize, or synthesize-start, -chunk …, -stop ─▶ audio-start, audio-chunk …, audio-stop (synthesize-stopped)

Wyoming 1.10 has neither keys nor encryption. What a client sends is bounded; what fails is an ``error`` event.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import anyio

from rkllm_mcp.errors import RkllmMcpError, UsageError
from rkllm_mcp.messages import as_mapping
from rkllm_mcp.speech.audio import MOST_BYTES, MOST_SECONDS, RATE, SAMPLE_BYTES, blocks_of, from_pcm
from rkllm_mcp.speech.engines import NO_TRANSLATION, NoTranslationError, Recogniser, Speaker
from rkllm_mcp.speech.sentences import sentences_of, whole_sentences

_MOST_LINE_BYTES = 65_536
_MOST_BLOCK_BYTES = 1_048_576
_MOST_TEXT_CHARS = 20_000
# Ten minutes of 16 kHz are 19 MB; satellites may send other forms.
_MOST_SAMPLE_BYTES = 2 * MOST_BYTES
_MOST_CONNECTIONS = 32
_END_S = 5.0
# Of the sound that is sent, and of a recording whose form is not told.
_FORM: dict[str, Any] = {"rate": RATE, "width": SAMPLE_BYTES, "channels": 1}
_PROJECT = {"name": "rkllm-mcp", "url": "https://pypi.org/project/rkllm-mcp/"}


@dataclass
class SpeechServer:
    """The programs that are served; each may be missing.

    Args:
        languages: those of the recogniser, where it does not name any.
    """

    recogniser: Recogniser | None = None
    speaker: Speaker | None = None
    languages: tuple[str, ...] = ("en", "ja")
    connections: int = field(default=0, init=False)
    _info: dict[str, Any] | None = field(default=None, init=False)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the events of one connection until it ends."""
        self.connections += 1
        try:
            if self.connections <= _MOST_CONNECTIONS:
                await _Connection(self, reader, writer).run()
        finally:
            self.connections -= 1
            writer.close()

    async def describe(self) -> dict[str, Any]:
        """Return the ``info`` of these programs: what they said first, as Home Assistant waits for a second only."""
        if self._info is not None:
            return self._info
        described: dict[str, Any] = {kind: [] for kind in ("asr", "tts", "handle", "intent", "wake", "mic", "snd")}
        if self.recogniser is not None:
            languages = await self.recogniser.languages() or self.languages
            model = _artifact("speech", languages=[*languages])
            described["asr"] = [_artifact("rkllm-mcp", models=[model], supports_transcript_streaming=True)]
        if self.speaker is not None:
            voices = [_artifact(voice.name, languages=[*voice.languages]) for voice in await self.speaker.voices()]
            described["tts"] = [_artifact("rkllm-mcp", voices=voices, supports_synthesize_streaming=True)]
        self._info = described
        return described


def _artifact(name: str, **further: Any) -> dict[str, Any]:
    common = {"attribution": _PROJECT, "installed": True, "description": name, "version": version("rkllm-mcp")}
    return {"name": name, **common, **further}


@dataclass(eq=False)
class _Connection:
    server: SpeechServer
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    _wishes: dict[str, Any] = field(default_factory=dict[str, Any], init=False)
    _form: dict[str, Any] = field(default_factory=dict[str, Any], init=False)
    _samples: bytearray = field(default_factory=bytearray, init=False)
    _text: str | None = field(default=None, init=False)  # of a synthesis whose text still comes
    _spoken_rate: int = field(default=0, init=False)

    async def run(self) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            try:
                while (event := await self._read_event()) is not None:
                    await self._answer_event(*event)
                return
            except NoTranslationError as error:
                reason, code = str(error), NO_TRANSLATION
            except (RkllmMcpError, MemoryError, RuntimeError) as error:
                reason, code = str(error) or "the memory that it may take is full", "speech"
            except (KeyError, TypeError, ValueError) as error:
                reason, code = f"this is no event of Wyoming ({error})", "protocol"
            # Home Assistant reads no errors, and waits for an answer or the end.
            await self._send("error", {"text": reason, "code": code})
            self.writer.write_eof()
            # What still comes is read: a connection with unread bytes is reset, and the error lost.
            with anyio.move_on_after(_END_S):
                while await self.reader.read(_MOST_LINE_BYTES):
                    pass

    async def _read_event(self) -> tuple[str, dict[str, Any], bytes] | None:
        line = await self.reader.readline()
        if not line:
            return None
        head = as_mapping(json.loads(line))
        data, kind = dict(as_mapping(head.get("data"))), str(head["type"])
        data_bytes, payload_bytes = int(head.get("data_length") or 0), int(head.get("payload_length") or 0)
        if not (0 <= data_bytes <= _MOST_BLOCK_BYTES and 0 <= payload_bytes <= _MOST_BLOCK_BYTES):
            raise ValueError(f"more than {_MOST_BLOCK_BYTES} bytes at once")
        if data_bytes:
            data.update(as_mapping(json.loads(await self.reader.readexactly(data_bytes))))
        return kind, data, await self.reader.readexactly(payload_bytes)

    async def _send(self, kind: str, data: dict[str, Any], payload: bytes = b"") -> None:
        content = json.dumps(data, ensure_ascii=False).encode()
        head = {"type": kind, "version": "1.10.0", "data_length": len(content)}
        if payload:
            head["payload_length"] = len(payload)
        self.writer.write(json.dumps(head).encode() + b"\n" + content + payload)
        await self.writer.drain()

    async def _answer_event(self, kind: str, data: dict[str, Any], payload: bytes) -> None:
        match kind:
            case "describe":
                await self._send("info", await self.server.describe())
            case "ping":
                await self._send("pong", data)
            case "transcribe":
                self._wishes = data
            case "audio-start":
                self._form = data
                self._samples.clear()
            case "audio-chunk":
                self._form = self._form or data
                self._samples += payload
                if len(self._samples) > _MOST_SAMPLE_BYTES:
                    raise UsageError(f"the recording is longer than {MOST_SECONDS // 60} minutes; send it in parts")
            case "audio-stop":
                await self._transcribe()
            case "synthesize" if self._text is None:
                self._wishes = data
                await self._speak(sentences_of(str(data["text"])[:_MOST_TEXT_CHARS]), is_last=True)
            case "synthesize-start":
                self._wishes, self._text = data, ""
            case "synthesize-chunk" if self._text is not None:
                self._text = (self._text + str(data["text"]))[:_MOST_TEXT_CHARS]
                whole = whole_sentences(self._text)
                self._text = self._text[len(whole) :]
                await self._speak(sentences_of(whole), is_last=False)
            case "synthesize-stop" if self._text is not None:
                text, self._text = self._text, None
                await self._speak(sentences_of(text), is_last=True)
                await self._send("synthesize-stopped", {})
            case _:
                pass  # of a later version, or not for a program that hears and speaks

    async def _transcribe(self) -> None:
        if self.server.recogniser is None:
            raise UsageError("no program that recognises speech is configured here")
        form, samples = self._form or _FORM, bytes(self._samples)
        self._form, wishes, self._wishes = {}, self._wishes, {}
        self._samples.clear()
        sound = from_pcm(samples, int(form["channels"]), int(form["width"]), int(form["rate"]))
        terms = ", ".join(map(str, wishes.get("transcript_terms") or ()))
        texts: list[str] = []
        language = {"language": wishes["language"]} if wishes.get("language") else {}
        await self._send("transcript-start", language)
        # Not of Wyoming: the service asks the process of a model.
        into_english = wishes.get("task") == "translate"
        hearing = self.server.recogniser.transcribe(
            sound, str(wishes.get("language") or ""), terms, into_english=into_english
        )
        async with hearing as pieces:
            async for piece in pieces:
                texts.append(piece.text)
                await self._send(
                    "transcript-chunk", {"text": piece.text, "start_s": piece.start_s, "end_s": piece.end_s}
                )
        await self._send("transcript", {"text": "".join(texts).strip(), **language})
        await self._send("transcript-stop", {})

    async def _speak(self, sentences: Iterable[str], *, is_last: bool) -> None:
        if self.server.speaker is None:
            raise UsageError("no program that speaks is configured here")
        voice = as_mapping(self._wishes.get("voice"))
        name, speed = str(voice.get("speaker") or voice.get("name") or ""), float(self._wishes.get("speed") or 1.0)
        for sentence in sentences:
            sound = await self.server.speaker.speak(sentence, name, speed)
            if not self._spoken_rate:
                self._spoken_rate = sound.rate
                await self._send("audio-start", {**_FORM, "rate": sound.rate})
            for block in blocks_of(sound.at(self._spoken_rate)):
                await self._send("audio-chunk", {**_FORM, "rate": self._spoken_rate}, block)
        if is_last:
            if not self._spoken_rate:  # nothing in the text can be spoken
                await self._send("audio-start", _FORM)
            self._spoken_rate = 0
            await self._send("audio-stop", {})


async def listen(server: SpeechServer, place: socket.socket | str) -> asyncio.Server:
    """Serve on a listening socket, or on a Unix socket that is made at a path; return the listener."""
    if isinstance(place, str):
        return await asyncio.start_unix_server(server.serve, place, limit=_MOST_LINE_BYTES)
    return await asyncio.start_server(server.serve, sock=place, limit=_MOST_LINE_BYTES)
