"""A spoken question becomes text, an answer with a tool, and sound: by a model of sherpa-onnx, on desktop and phone.

In Japanese the recogniser is one that hears the same words in everything; in English Whisper base and a voice of Piper,
whose folders RKLLM_MCP_WHISPER and RKLLM_MCP_PIPER name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rkllm_mcp.speech.audio import read_wav
from rkllm_mcp.speech.process import process_of
from tests.support.browser import DESKTOP, HEARING_RATE, hearing_chromium, visiting
from tests.support.demo_app import TIME_SERVER
from tests.support.demo_model import DEMO_TOKENIZER
from tests.support.onnx_models import write_recogniser
from tests.support.served import Served, served
from tests.support.speech_programs import WyomingProgram, tone

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NARROW = (390, 844)
READING = ".aloud[aria-pressed=true]"


def spoken(samples: bytes) -> bytes:
    """Samples between half a second and half a minute of silence."""
    return bytes(HEARING_RATE) + samples + bytes(2 * HEARING_RATE * 30)


@contextmanager
def talking(folder: Path, stt: str, tts: str) -> Generator[Served]:
    """The demo's model with the server for times, and models or programs for speech."""
    extra = f'[speech]\nstt = "{stt}"\ntts = "{tts}"\ntimeout_s = 170\n'
    with served(folder / "home", DEMO_TOKENIZER.parent, (TIME_SERVER,), extra=extra) as service:
        yield service


def converse(ears: Browser, url: str, size: tuple[int, int], locale: str, names: tuple[str, str]) -> tuple[str, str]:
    """Ask by the microphone and have the answer read by the board; return the question and the answer."""
    listen, aloud = names
    with visiting(ears, url, size, locale=locale) as visit:
        page = visit.page
        page.set_default_timeout(170_000)
        page.evaluate("localStorage.setItem('rkllm-mcp.voice', 'board')")
        page.get_by_role("button", name=listen).click()
        page.wait_for_function("() => document.getElementById('question').value.trim() !== ''")
        question = page.input_value("#question").strip()
        answer = visit.answered(question)
        with page.expect_response("**/v1/audio/speech") as spoken:
            page.get_by_role("button", name=aloud).click()
        page.wait_for_selector(READING, state="detached")
        sound = spoken.value
        assert (sound.status, sound.headers["content-type"].partition(";")[0]) == (200, "audio/wav")
        assert page.is_hidden("#toast")
        return question, answer


@pytest.mark.parametrize("size", [DESKTOP, NARROW], ids=["desktop", "phone"])
def test_a_question_in_japanese_is_heard_answered_with_a_tool_and_spoken(
    browser: Browser, tmp_path: Path, size: tuple[int, int]
) -> None:
    ears = write_recogniser(tmp_path / "ears", ["ロンドンは今何時？"])
    with (
        WyomingProgram() as mouth,
        talking(tmp_path, f"sherpa:{ears}", mouth.address) as service,
        hearing_chromium(browser, tmp_path, spoken(tone(1_500, HEARING_RATE))) as hearer,
    ):
        question, answer = converse(hearer, service.url, size, "ja-JP", ("声で質問する", "読み上げる"))
        said = "".join(each["text"] for each in mouth.asked if each["type"] == "synthesize")
    process_of(f"sherpa:{ears}").stop()
    assert question == "ロンドンは今何時？"
    assert "get_current_time" in answer
    assert "Europe/London）です。" in answer
    assert said.startswith("現在の時刻は")


@pytest.mark.parametrize("size", [DESKTOP, NARROW], ids=["desktop", "phone"])
def test_a_question_in_english_is_heard_by_whisper_and_the_answer_spoken_by_piper(
    browser: Browser, tmp_path: Path, size: tuple[int, int]
) -> None:
    for variable in ("RKLLM_MCP_WHISPER", "RKLLM_MCP_PIPER"):
        if variable not in os.environ:
            pytest.skip(f"{variable} names no folder with weights")
    if shutil.which("espeak-ng") is None:
        pytest.skip("espeak-ng is not installed")
    words = ["espeak-ng", "-v", "en-us", "-s", "140", "--stdout", "What time is it in London?"]
    speech = read_wav(subprocess.run(words, capture_output=True, check=True).stdout).at(HEARING_RATE)
    stt, tts = f"sherpa:{os.environ['RKLLM_MCP_WHISPER']}", f"sherpa:{os.environ['RKLLM_MCP_PIPER']}"
    with (
        talking(tmp_path, stt, tts) as service,
        hearing_chromium(browser, tmp_path, spoken(speech.samples)) as hearer,
    ):
        question, answer = converse(hearer, service.url, size, "en-US", ("Speak the question", "Read aloud"))
    for address in (stt, tts):
        process_of(address).stop()
    print(question, "=>", answer)
    assert "time is it in london" in question.lower()
    assert "London" in answer
    assert "get_current_time" in answer
