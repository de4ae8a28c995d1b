"""Programs for speech on the loopback interface: one speaks Wyoming, one has OpenAI's API, and both can misbehave.

    with WyomingProgram() as program:
        program.address                  wyoming://127.0.0.1:…
        program.behaviour = "dies"       in the middle of each answer

What they hear is its length in milliseconds; what they say is a tone whose length is that of the text.
"""

from __future__ import annotations

import io
import json
import math
import socketserver
import struct
import threading
import wave
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal

VOICE_RATE = 22_050
MS_PER_CHARACTER = 10
Behaviour = Literal["answers", "streams", "dies", "hangs", "lies", "fails", "transcribes"]


def tone(milliseconds: int, rate: int = VOICE_RATE) -> bytes:
    """Samples of a tone."""
    count = rate * milliseconds // 1000
    return struct.pack(f"<{count}h", *(int(8_000 * math.sin(2 * math.pi * 440 * i / rate)) for i in range(count)))


def wav(milliseconds: int, rate: int = 16_000, channels: int = 1, width: int = 2) -> bytes:
    """A WAV with a tone, in each channel and with any sample width."""
    one = tone(milliseconds, rate)
    samples = [one[i : i + 2] for i in range(0, len(one), 2)]
    padding = b"\0" * (width - 2)
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(b"".join((padding + sample) * channels for sample in samples))
    return written.getvalue()


class _Program:
    """A server in a thread while the block lasts."""

    _server: socketserver.BaseServer

    def __init__(self) -> None:
        self.behaviour: Behaviour = "answers"
        self.asked: list[dict[str, Any]] = []
        self.released = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        self._server.serve_forever(0.01)

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class WyomingProgram(_Program):
    """Recognises and speaks as Home Assistant's programs do."""

    def __init__(self) -> None:
        super().__init__()
        server = socketserver.ThreadingTCPServer(
            ("127.0.0.1", 0), type("Handler", (_WyomingHandler,), {"program": self})
        )
        server.daemon_threads, server.block_on_close = True, False
        self._server = server
        self.address = f"wyoming://127.0.0.1:{server.server_address[1]}"


class _WyomingHandler(socketserver.StreamRequestHandler):
    """One connection; a subclass has the program."""

    program: WyomingProgram

    def handle(self) -> None:
        heard = 0
        while line := self.rfile.readline():
            head = json.loads(line)
            kind: str = head["type"]
            data: dict[str, Any] = head.get("data") or {}
            if head.get("data_length"):
                data |= json.loads(self.rfile.read(head["data_length"]))
            heard += len(self.rfile.read(head.get("payload_length") or 0))
            if kind != "audio-chunk":
                self.program.asked.append({"type": kind, **data})
            if kind in ("audio-stop", "synthesize", "describe") and not self.answer(kind, data, heard):
                return

    def answer(self, kind: str, data: dict[str, Any], heard: int) -> bool:
        """Answer; False where the connection ends."""
        behaviour = self.program.behaviour
        if behaviour == "hangs":
            self.program.released.wait(60)
        elif behaviour == "lies":
            self.wfile.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        elif behaviour == "fails":
            self.send("error", {"text": "no model is loaded"})
        elif kind == "describe":
            voices = [{"name": "amy", "languages": ["en"]}, {"name": "haru", "languages": ["ja"]}]
            self.send("info", {"tts": [{"name": "fake", "voices": voices}], "asr": []})
        elif kind == "audio-stop":
            self.recognise(f"heard {heard // 32} ms")
        else:
            self.speak(tone(MS_PER_CHARACTER * len(data["text"])))
        return behaviour in ("answers", "streams", "fails")

    def recognise(self, words: str) -> None:
        behaviour = self.program.behaviour
        if behaviour == "streams":
            self.send("transcript-start", {})
            for piece in (words[:5], words[5:]):
                self.send("transcript-chunk", {"text": piece})
        if behaviour != "dies":
            self.send("transcript", {"text": words})
        if behaviour == "streams":
            self.send("transcript-stop", {})

    def speak(self, sound: bytes) -> None:
        head = {"rate": VOICE_RATE, "width": 2, "channels": 1}
        middle = len(sound) // 4 * 2
        self.send("audio-start", head)
        self.send("audio-chunk", head, sound[:middle])
        if self.program.behaviour != "dies":
            self.send("audio-chunk", head, sound[middle:])
            self.send("audio-stop", {})

    def send(self, kind: str, data: dict[str, Any], payload: bytes = b"") -> None:
        content = json.dumps(data).encode()
        head = {"type": kind, "data_length": len(content), "payload_length": len(payload)}
        self.wfile.write(json.dumps(head).encode() + b"\n" + content + payload)


class SpeechService(_Program):
    """Recognises and speaks with OpenAI's API."""

    def __init__(self) -> None:
        super().__init__()
        server = ThreadingHTTPServer(("127.0.0.1", 0), _service(self))
        server.daemon_threads, server.block_on_close = True, False
        self._server = server
        self.address = f"http://127.0.0.1:{server.server_address[1]}/v1"


def _service(program: SpeechService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked: dict[str, Any] = {"path": self.path, "authorization": self.headers.get("Authorization", "")}
            match program.behaviour:
                case "hangs":
                    program.released.wait(60)
                    return
                case "lies":
                    self.reply(200, b"<html>Welcome</html>")
                    return
                case "fails":
                    self.reply(400, b'{"error": {"message": "no such model"}}')
                    return
                case "dies":
                    self.send_response(200)
                    self.send_header("Content-Length", "1000")
                    self.end_headers()
                    self.wfile.write(b"{")
                    return
                case _:
                    pass
            if self.path.endswith("/translations") and program.behaviour == "transcribes":
                self.reply(404, b"Not Found")
                return
            if self.path.endswith("/audio/speech"):
                asked |= json.loads(body)
                self.reply(200, wav(MS_PER_CHARACTER * len(asked["input"]), 24_000))
            else:
                asked["body"] = body
                middle = 0.5
                segments = [
                    {"start": 0.0, "end": middle, "text": " Hello"},
                    {"start": middle, "end": 1.25, "text": " there."},
                ]
                self.reply(200, json.dumps({"text": "Hello there.", "segments": segments}).encode())
            program.asked.append(asked)

        def do_GET(self) -> None:
            self.reply(200, json.dumps({"voices": [{"name": "nova"}, "haru"]}).encode())

        def reply(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler
