"""Measurements of speech: how fast it is recognised and spoken, and what that costs an answer written meanwhile.

The character error rate of an owner's own recordings compares texts without marks, spaces and case, and with numbers in
digits: 二十三 and 23 are the same.
"""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import anyio

from rkllm_base.numbers import with_digits
from rkllm_mcp.app.assistant import App
from rkllm_mcp.catalogue import translate
from rkllm_mcp.config.sections import Config
from rkllm_mcp.diagnostics.dialogue import open_trial
from rkllm_mcp.diagnostics.trial import GREEDY
from rkllm_mcp.errors import RuntimeUnusableError, UsageError
from rkllm_mcp.events import Usage
from rkllm_mcp.speech.audio import MOST_BYTES, Sound, read_recording
from rkllm_mcp.speech.engines import Recogniser, process_memory_mb, recogniser_of, speaker_of
from rkllm_mcp.speech.sentences import sentences_of
from rkllm_mcp.tasks import open_task_group

_RUNS = 3
_QUESTION = "Tell me a long story about a ship and an island."
_SOUNDS = (".wav", ".mp3", ".webm", ".ogg", ".opus", ".flac", ".m4a", ".aac")
T = TypeVar("T")


@dataclass(frozen=True)
class RecognitionFigures:
    """A recording that became text; times are the median of three runs, with the model loaded."""

    recording_s: float
    text_s: float  # from the end of speech to the text
    text: str
    memory_mb: float | None  # of the model's process; None of a program


@dataclass(frozen=True)
class SpeakingFigures:
    """A text that was spoken."""

    first_sound_s: float  # from the text to the sound of its first sentence
    sound_s: float
    spoken_s: float  # until the last sentence was made
    memory_mb: float | None


@dataclass(frozen=True)
class AnswerFigures:
    """The tokens per second of an answer, alone and while recordings are recognised."""

    alone_tps: float
    beside_tps: float
    recordings: int  # recognised meanwhile


@dataclass(frozen=True)
class SetFigures:
    """Recordings of a folder against the texts next to them."""

    recordings: int
    characters: int
    errors: int
    worst: str  # the recording with the most errors
    seconds: float
    text_s: float
    error_rate: float  # characters that are wrong, missing or too many, of those that were said


@dataclass(frozen=True)
class VoiceFigures:
    """What was measured; None for what is not configured."""

    recognition: RecognitionFigures | None = None
    speaking: SpeakingFigures | None = None
    answer: AnswerFigures | None = None
    notes: tuple[str, ...] = ()  # why something was not measured


async def measure_voice(
    config: Config, recording: Sound | None, language: str, *, on_step: Callable[[str], None] = lambda _: None
) -> VoiceFigures:
    """Measure the programs or models of ``[speech]``.

    ``recording`` is recognised, or what the configured voice says; ``language`` is the one that is spoken in it, or
    empty to let the model find it.
    """
    recogniser, speaker = recogniser_of(config.speech), speaker_of(config.speech)
    notes: list[str] = []
    speaking = recognition = answer = None
    if speaker is not None:
        on_step("speaking")
        voices = await speaker.voices()
        languages = voices[0].languages if voices else ()
        is_japanese = languages and all(code.startswith("ja") for code in languages)
        # Two sentences: the first is heard before the second is made.
        first, *others = sentences_of(translate("voice.trial", "ja" if is_japanese else "en"))
        await speaker.speak(first)
        runs = sorted([(await _timed(partial(speaker.speak, first)))[0] for _ in range(_RUNS)])
        first_s, sound = await _timed(partial(speaker.speak, first))
        remainder = [await _timed(partial(speaker.speak, sentence)) for sentence in others]
        said = Sound(sound.samples + b"".join(part.samples for _, part in remainder), sound.rate)
        spoken_s = first_s + sum(seconds for seconds, _ in remainder)
        memory_mb = process_memory_mb(config.speech.tts or "")
        speaking = SpeakingFigures(runs[_RUNS // 2], said.seconds, spoken_s, memory_mb)
        recording = recording or said.at(16_000)
    if recogniser is not None and recording is not None:
        on_step("recognising")
        work = partial(_recognise, recogniser, recording, language)
        await work()  # the model is loaded
        text_s, text = sorted([await _timed(work) for _ in range(_RUNS)])[_RUNS // 2]
        memory_mb = process_memory_mb(config.speech.stt or "")
        recognition = RecognitionFigures(recording.seconds, text_s, text, memory_mb)
        on_step("an answer, alone and with recognition beside it")
        try:
            answer = await _measure_answer(config, work)
        except RuntimeUnusableError as error:
            notes.append(f"the answer was not measured: {error}")
    elif recogniser is not None:
        notes.append("nothing was recognised: name a --recording, or set tts")
    return VoiceFigures(recognition, speaking, answer, tuple(notes))


async def _timed(work: Callable[[], Awaitable[T]]) -> tuple[float, T]:
    began = time.monotonic()
    done = await work()
    return time.monotonic() - began, done


async def _recognise(recogniser: Recogniser, recording: Sound, language: str) -> str:
    async with recogniser.transcribe(recording, language) as pieces:
        return "".join([piece.text async for piece in pieces]).strip()


async def _measure_answer(config: Config, recognise: Callable[[], Awaitable[str]]) -> AnswerFigures:
    recordings = 0

    async def recognise_meanwhile() -> None:
        nonlocal recordings
        while True:
            await recognise()
            recordings += 1

    async with open_trial(config) as app:
        await _answer_tps(app)  # what is read once is read
        alone = await _answer_tps(app)
        async with open_task_group(cancel_at_end=True) as tasks:
            tasks.start_soon(recognise_meanwhile)
            beside = await _answer_tps(app)
    return AnswerFigures(alone, beside, recordings)


async def _answer_tps(app: App) -> float:
    tokens, milliseconds = 0, 0.0
    async with aclosing(app.reply(app.new_conversation(), _QUESTION, GREEDY)) as events:
        async for event in events:
            if isinstance(event, Usage):
                tokens += event.generated_tokens
                milliseconds += event.decode_ms
    return tokens / milliseconds * 1000 if milliseconds else 0.0


async def measure_set(
    config: Config, folder: str, language: str, *, on_step: Callable[[str], None] = lambda _: None
) -> SetFigures:
    """Recognise the recordings of a folder, and compare each with the text of the same name (``a.wav``, ``a.txt``).

    Raises:
        UsageError: no recogniser is configured, or the folder has no such pair.
    """
    recogniser = recogniser_of(config.speech)
    if recogniser is None:
        raise UsageError("nothing is configured that recognises speech; set stt under [speech] in the configuration")
    files = (await anyio.Path(folder).expanduser()).glob("*")
    paths = sorted([path async for path in files if path.suffix.lower() in _SOUNDS])
    pairs = [(path, path.with_suffix(".txt")) for path in paths if await path.with_suffix(".txt").is_file()]
    if not pairs:
        raise UsageError(f"{folder} has no recording with a text of the same name, such as a.wav and a.txt")
    errors, characters, seconds, spent_s, worst = 0, 0, 0.0, 0.0, (-1, "")
    for number, (path, text) in enumerate(pairs, 1):
        on_step(f"recording {number} of {len(pairs)}")
        content = await path.read_bytes()
        recording = await read_recording(content[: MOST_BYTES + 1])
        text_s, heard = await _timed(partial(_recognise, recogniser, recording, language))
        said = comparable(await text.read_text("utf-8-sig"))
        wrong = edit_distance(said, comparable(heard))
        errors, characters = errors + wrong, characters + len(said)
        seconds, spent_s, worst = seconds + recording.seconds, spent_s + text_s, max(worst, (wrong, path.name))
    return SetFigures(len(pairs), characters, errors, worst[1], seconds, spent_s, errors / max(1, characters))


def comparable(text: str) -> str:
    """Return a text as it is compared: numbers in digits, no case, marks and spaces."""
    plain = unicodedata.normalize("NFKC", with_digits(text)).casefold()
    return "".join(character for character in plain if character.isalnum() or character == "ー")


def edit_distance(said: Sequence[str], heard: Sequence[str]) -> int:
    """Return how many letters, or words, are to be changed, left out or added to make one of the other."""
    row = list(range(len(heard) + 1))
    for number, one in enumerate(said, 1):
        before, row[0] = row[0], number
        for place, other in enumerate(heard, 1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (one != other))
    return row[-1]
