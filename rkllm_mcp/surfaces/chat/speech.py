"""Speech in the chat: a question from the board's microphone, and answers on its loudspeaker."""

from __future__ import annotations

import math
from collections.abc import Callable

import anyio

from rkllm_mcp.config.sections import SpeechSection
from rkllm_mcp.errors import UsageError
from rkllm_mcp.events import Event, Text
from rkllm_mcp.speech.device import play, record
from rkllm_mcp.speech.engines import Speaker, recogniser_of
from rkllm_mcp.speech.sentences import sentences_of, whole_sentences


async def listen(section: SpeechSection, on_begin: Callable[[], None]) -> str:
    """Return the text of the speech that the microphone records; empty if there is none.

    Raises:
        UsageError: nothing is configured that recognises, or there is no microphone.
        SpeechError: the program or model fails.
    """
    recogniser = recogniser_of(section)
    if recogniser is None:
        raise UsageError("nothing is configured that recognises speech; set stt under [speech] in the configuration")
    sound = await record(on_begin)
    if sound is None:
        return ""
    async with recogniser.transcribe(sound) as pieces:
        return "".join([piece.text async for piece in pieces]).strip()


class SpokenAnswer:
    """An answer that is read aloud while it is written: ``note`` its events, and run ``play`` next to it."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self._text = ""
        self._sentences, self._spoken = anyio.create_memory_object_stream[str](math.inf)

    def note(self, event: Event) -> None:
        """Take a piece of the answer."""
        if not isinstance(event, Text):
            return
        self._text += event.text
        whole = whole_sentences(self._text)
        self._text = self._text[len(whole) :]
        for sentence in sentences_of(whole):
            self._sentences.send_nowait(sentence)

    def finish(self) -> None:
        """The answer has ended."""
        for sentence in sentences_of(self._text):
            self._sentences.send_nowait(sentence)
        self._sentences.close()

    async def play(self) -> None:
        """Speak the sentences as they come, until the last."""
        async with self._spoken:
            async for sentence in self._spoken:
                await play(await self._speaker.speak(sentence))
