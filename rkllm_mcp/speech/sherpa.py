"""The process that recognises and speaks with a model of sherpa-onnx, on the processor.

``python -m rkllm_mcp.speech.sherpa FOLDER SOCKET LANGUAGE IDLE_S`` loads the model of a folder, which its files tell:

    *encoder*.onnx, *decoder*.onnx, *tokens.txt   Whisper
    model*.onnx, voices.bin, tokens.txt           Kokoro
    *.onnx, lexicon.txt, tokens.txt               VITS
    LANGUAGE-*.onnx, tokens.txt                   VITS of Piper, whose sounds the program espeak-ng writes
    model*.onnx, tokens.txt                       SenseVoice

It prints ``ready``, serves Wyoming on the socket, and ends with its standard input or after IDLE_S without a client.
Its priority is low, so that the answer of a language model goes first.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rkllm_base.memory import available_bytes
from rkllm_mcp.errors import UsageError
from rkllm_mcp.speech.audio import RATE, Sound
from rkllm_mcp.speech.engines import NamedVoice, NoTranslationError, Recogniser, Speaker, SpokenText
from rkllm_mcp.speech.process import READY
from rkllm_mcp.speech.server import SpeechServer, listen

_np: Any = np
# The four fast cores of an RK3588; the others serve the rest of the board.
_THREADS = min(4, os.cpu_count() or 1)
_NICENESS = 10
# Whisper hears 30 s at once; longer recordings are cut where it is quiet.
_MOST_SEGMENT_S = 28
_LEAST_SEGMENT_S = 18
_FRAME = RATE // 10
# The loudest 100 ms of a segment in which there is no speech, of 32,767.
_SILENT = 30.0
# Resident memory for each byte of a model's files, and the program's own with the longest sentence: 717 MB were seen of
# Whisper base (158 MB, 8 bits) and 373 MB of a voice of Piper (63 MB).
_MEMORY_FACTOR = 3
_PROGRAM_BYTES = 200_000_000
# Allocated and resident memory differ by less than this factor: 956 MB and 475 MB of those two.
_LIMIT_FACTOR = 2
_PHONEMES_S = 10
_SENSE_VOICE_LANGUAGES = ("zh", "en", "ja", "ko", "yue")
_WHISPER_LANGUAGES = ("en", "ja", "zh", "ko", "de", "es", "fr", "it", "pt", "ru")
# Up to a mark that is not inside of 3.5 or 10:30.
_CLAUSE = re.compile(r"(.+?)([,.;:!?]+(?=\s|$)|$)", re.DOTALL)
_PIPER_NAME = re.compile(r"[a-z]{2,3}_[A-Z]{2}-")


class UnknownModelError(Exception):
    """A folder without a model that this program knows, or with one that it cannot load; the message says why."""


@dataclass(frozen=True)
class ModelFiles:
    """The files of a model.

    Args:
        kind: ``whisper``, ``sense-voice``, ``kokoro``, ``vits`` or ``piper``.
        networks: the network, or encoder and decoder; with 8 bits where the folder has them.
    """

    kind: str
    networks: tuple[Path, ...]
    tokens: Path
    lexicons: tuple[Path, ...] = ()

    @property
    def memory_bytes(self) -> int:
        """The memory that the process needs, roughly."""
        return sum(path.stat().st_size for path in self.networks) * _MEMORY_FACTOR + _PROGRAM_BYTES


def find_model(folder: Path) -> ModelFiles:
    """Return the model of a folder.

    Raises:
        UnknownModelError: there is none, or not one that is known.
    """
    if not folder.is_dir():
        raise UnknownModelError(f"there is no folder {folder}")
    # A short name first: model.int8.onnx rather than model-steps-3.int8.onnx; 8 bits before others.
    networks = sorted(folder.glob("*.onnx"), key=lambda path: ("int8" not in path.name, len(path.name)))
    tokens = next(iter(sorted(folder.glob("*tokens.txt"))), None)
    encoder = next((path for path in networks if "encoder" in path.name), None)
    decoder = next((path for path in networks if "decoder" in path.name), None)
    if tokens is None or not networks:
        raise UnknownModelError(f"{folder} has no model of sherpa-onnx: a network (*.onnx) and tokens.txt")
    if encoder is not None and decoder is not None:
        return ModelFiles("whisper", (encoder, decoder), tokens)
    lexicons = tuple(sorted(folder.glob("lexicon*.txt")))
    if (folder / "voices.bin").is_file():
        return ModelFiles("kokoro", (networks[0],), tokens, lexicons)
    if lexicons:
        return ModelFiles("vits", (networks[0],), tokens, lexicons)
    if _PIPER_NAME.match(networks[0].name) or (folder / "espeak-ng-data").is_dir():
        return ModelFiles("piper", (networks[0],), tokens)
    if networks[0].name.startswith("model"):
        return ModelFiles("sense-voice", (networks[0],), tokens)
    raise UnknownModelError(f"{folder} has {networks[0].name}, which is no SenseVoice, Whisper, VITS, Kokoro or Piper")


def load_model(files: ModelFiles, language: str = "") -> Recogniser | Speaker:
    """Load a model; this takes seconds.

    Raises:
        UnknownModelError: sherpa-onnx is missing, or the memory is too short, or the model is damaged.
    """
    try:
        import sherpa_onnx  # an extra
    except ImportError:
        raise UnknownModelError("the library sherpa-onnx is missing; run 'rkllm-mcp install speech'") from None
    available = available_bytes()
    if available is not None and files.memory_bytes > available:
        needed, remaining = files.memory_bytes // 10**6, available // 10**6
        raise UnknownModelError(f"it needs about {needed} MB of memory, and {remaining} MB are left; free some")
    library: Any = sherpa_onnx
    try:
        if files.kind in ("whisper", "sense-voice"):
            return SherpaRecogniser(library, files, language)
        return SherpaSpeaker(library, files)
    except (RuntimeError, ValueError) as error:
        raise UnknownModelError(f"{files.networks[0]} cannot be loaded ({error})") from None


class SherpaRecogniser:
    """Whisper or SenseVoice."""

    def __init__(self, library: Any, files: ModelFiles, language: str) -> None:
        self._kind, self._language = files.kind, language
        self._lock = asyncio.Lock()
        networks, tokens = list(map(str, files.networks)), str(files.tokens)
        make = library.OfflineRecognizer
        self._recogniser: Any = (
            make.from_whisper(*networks, tokens, language=language, num_threads=_THREADS)
            if files.kind == "whisper"
            else make.from_sense_voice(*networks, tokens, language=language, num_threads=_THREADS, use_itn=True)
        )

    async def languages(self) -> tuple[str, ...]:
        """See ``Recogniser.languages``."""
        return _WHISPER_LANGUAGES if self._kind == "whisper" else _SENSE_VOICE_LANGUAGES

    @asynccontextmanager
    async def transcribe(
        self,
        sound: Sound,
        language: str = "",
        prompt: str = "",  # noqa: ARG002
        *,
        into_english: bool = False,
    ) -> AsyncGenerator[AsyncGenerator[SpokenText, None], None]:
        """See ``Recogniser.transcribe``; SenseVoice finds the language by itself."""
        if into_english and self._kind != "whisper":
            raise NoTranslationError(self._kind, "does not translate")
        task = "translate" if into_english else "transcribe"
        yield self._pieces(sound.at(RATE), language, task)

    async def _pieces(self, sound: Sound, language: str, task: str) -> AsyncGenerator[SpokenText, None]:
        samples = _np.frombuffer(sound.samples, "<i2")
        before = ""
        for start, end in segments(samples):
            async with self._lock:
                text = await asyncio.to_thread(self._recognise, samples[start:end], language, task)
            if text:
                # Japanese has no spaces between sentences.
                space = " " if before.isascii() and text[0].isascii() and before else ""
                before = text[-1]
                yield SpokenText(space + text, start / RATE, end / RATE)

    def _recognise(self, samples: Any, language: str, task: str) -> str:
        if self._kind == "whisper":
            config = self._recogniser.config
            whisper = config.model_config.whisper
            wanted = ((language or self._language).partition("-")[0].lower(), task)
            if (whisper.language, whisper.task) != wanted:
                whisper.language, whisper.task = wanted
                self._recogniser.recognizer.set_config(config)
        stream = self._recogniser.create_stream()
        stream.accept_waveform(RATE, samples.astype(_np.float32) / 32_768)
        self._recogniser.decode_stream(stream)
        return str(stream.result.text).strip()


def segments(samples: Any) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the parts of a recording that a model hears at once; silent ones are left out."""
    start, count = 0, len(samples)
    while start < count:
        end = min(count, start + _MOST_SEGMENT_S * RATE)
        if end < count:
            first = start + _LEAST_SEGMENT_S * RATE
            loudness = _loudness(samples[first:end])
            end = first + (int(loudness.argmin()) * 2 + 1) * _FRAME // 2
        if _loudness(samples[start:end]).max(initial=0.0) >= _SILENT:
            yield start, end
        start = end


def _loudness(samples: Any) -> Any:
    """Return the root of the mean square of each 100 ms."""
    frames = samples[: max(1, len(samples) // _FRAME) * _FRAME]
    frames = frames.reshape(-1, _FRAME) if len(frames) >= _FRAME else frames[None, :]
    return _np.sqrt((frames.astype(_np.float32) ** 2).mean(axis=1)) if frames.size else _np.zeros(0)


class SherpaSpeaker:
    """A voice of VITS, Piper or Kokoro."""

    def __init__(self, library: Any, files: ModelFiles) -> None:
        self._library, self._kind = library, files.kind
        self._lock = asyncio.Lock()
        network, tokens = str(files.networks[0]), str(files.tokens)
        lexicon = ",".join(map(str, files.lexicons))
        model: Any = library.OfflineTtsModelConfig(num_threads=_THREADS)
        if files.kind == "kokoro":
            voices = str(files.tokens.with_name("voices.bin"))
            model.kokoro = library.OfflineTtsKokoroModelConfig(network, voices, tokens, lexicon=lexicon)
        else:
            model.vits = library.OfflineTtsVitsModelConfig(network, lexicon=lexicon, tokens=tokens)
        config = library.OfflineTtsConfig(model=model)
        if not config.validate():
            raise ValueError("files are missing or damaged")
        self._tts: Any = library.OfflineTts(config)
        name = files.networks[0].stem
        self._name = files.networks[0].parent.name if name.startswith("model") else name
        # Of Piper, metadata of the network: en-us.
        self._language = str(self._tts.lang or "en-us").lower()
        if files.kind == "piper" and shutil.which("espeak-ng") is None:
            raise ValueError("a voice of Piper needs the program espeak-ng: sudo apt install espeak-ng")

    async def voices(self) -> tuple[NamedVoice, ...]:
        """Return the model's name, or its speakers by their numbers."""
        count = self._tts.num_speakers
        names = [self._name] if count <= 1 else map(str, range(count))
        return tuple(NamedVoice(name, (self._language.partition("-")[0],)) for name in names)

    async def speak(self, text: str, voice: str = "", speed: float = 1.0) -> Sound:
        """See ``Speaker.speak``; a voice that the model does not have is its first."""
        number = int(voice) if voice.isdecimal() and int(voice) < self._tts.num_speakers else 0
        async with self._lock:
            return await asyncio.to_thread(self._generate, text, number, speed)

    def _generate(self, text: str, number: int, speed: float) -> Sound:
        wishes = self._library.GenerationConfig()
        wishes.sid, wishes.speed = number, speed
        if self._kind == "piper":
            wishes.phoneme_codepoints = [[ord(sound) for sound in phonemes_of(text, self._language)]]
        audio = self._tts.generate(text, wishes)
        if len(audio.samples) == 0:
            raise UsageError("this voice has no sounds for the text; choose one of the text's language")
        samples = _np.clip(_np.asarray(audio.samples, _np.float32) * 32_767, -32_768, 32_767)
        return Sound(samples.astype("<i2").tobytes(), int(audio.sample_rate) or RATE)


def phonemes_of(text: str, language: str) -> str:
    """Return the sounds of a sentence as espeak-ng writes them, with its marks, as voices of Piper have learnt them."""
    written: list[str] = []
    for words, marks in _CLAUSE.findall(text):
        command = ["espeak-ng", "-q", "--ipa", "-v", language, "--stdin"]
        done = subprocess.run(command, input=words.encode(), capture_output=True, timeout=_PHONEMES_S, check=False)
        if done.returncode:
            reason = done.stderr.decode("utf-8", "replace").strip() or f"status {done.returncode}"
            raise UsageError(f"espeak-ng has no sounds for the text ({reason}); try it: espeak-ng -v {language} Hello")
        # A word of another language is marked (en)…(ja).
        sounds = re.sub(r"\([a-z-]+\)", "", done.stdout.decode("utf-8", "replace"))
        written.append(" ".join(sounds.split()) + marks[:1])
    return " ".join(written)


async def _serve(loaded: Recogniser | Speaker, socket: str, idle_s: float) -> None:
    server = SpeechServer(
        recogniser=loaded if isinstance(loaded, SherpaRecogniser) else None,
        speaker=loaded if isinstance(loaded, SherpaSpeaker) else None,
    )
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    parent = asyncio.create_task(reader.read())
    async with await listen(server, socket):
        sys.stdout.buffer.write(READY)
        sys.stdout.buffer.flush()
        # The library reports on standard error for ever; a file of it would grow.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        used = loop.time()
        while not parent.done() and loop.time() - used < idle_s:
            await asyncio.wait([parent], timeout=min(1.0, idle_s))
            used = loop.time() if server.connections else used
    # A thread that computes would be waited for.
    shutil.rmtree(Path(socket).parent, ignore_errors=True)
    os._exit(0)


def main() -> int:
    """Load the model of the command line and serve it; return 1 after a reason on standard error."""
    folder, socket, language, idle_s = sys.argv[1:]
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The kernel ends this process first if the machine has no memory left.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
    try:
        model = find_model(Path(folder))
        most_bytes = _LIMIT_FACTOR * model.memory_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
        loaded = load_model(model, language)
    except UnknownModelError as error:
        sys.stderr.write(f"\n{error}\n")
        return 1
    asyncio.run(_serve(loaded, socket, float(idle_s)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
