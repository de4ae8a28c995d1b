"""``voice`` asks the programs of ``[speech]``, and names the line of the configuration that is missing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import wave
from pathlib import Path

import pytest
from wyoming.client import AsyncTcpClient
from wyoming.info import Describe, Info

from tests.support.outcome import Command, run_here
from tests.support.speech_programs import WyomingProgram, wav


def voice(folder: Path, speech: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``voice`` with keys of ``[speech]``."""
    config = folder / "config.toml"
    config.write_text(f"[speech]\n{speech}\n", "utf-8")
    return run_here(os.environ, "--config", str(config), "voice", *words)


def both(program: WyomingProgram) -> str:
    return f'stt = "{program.address}"\ntts = "{program.address}"'


def test_a_recording_is_printed_and_a_text_becomes_a_file(tmp_path: Path, command: Command) -> None:
    del command  # the empty home
    recording, spoken = tmp_path / "question.wav", tmp_path / "tomorrow.wav"
    recording.write_bytes(wav(500))
    with WyomingProgram() as program:
        assert voice(tmp_path, both(program), "transcribe", str(recording)).stdout == "heard 500 ms\n"
        text = "明日は晴れです。傘は要りません。"
        assert voice(tmp_path, both(program), "say", text, "--output", str(spoken)).returncode == 0
        listed = voice(tmp_path, both(program), "list")
    assert (listed.returncode, listed.stdout.split()) == (0, ["NAME", "LANGUAGES", "amy", "en", "haru", "ja"])
    with wave.open(str(spoken)) as file:
        assert file.getnframes() / file.getframerate() == pytest.approx(0.16, abs=0.01)


def test_without_a_program_or_a_recording_the_remedy_is_named(tmp_path: Path, command: Command) -> None:
    del command
    for words, problem in {
        ("say", "Hello."): "no program for this is configured",
        ("transcribe", str(tmp_path / "none.wav")): "cannot be read (No such file or directory)",
        ("transcribe", str(tmp_path / "config.toml")): "the recording cannot be read",
    }.items():
        assert problem in voice(tmp_path, 'stt = "wyoming://127.0.0.1:9"', *words).stderr


@pytest.mark.anyio
async def test_home_assistant_is_served_on_this_machine_until_a_signal(tmp_path: Path, command: Command) -> None:
    del command
    config = tmp_path / "config.toml"
    with WyomingProgram() as program:
        config.write_text(f'[speech]\nstt = "{program.address}"\n', "utf-8")
        words = ["--config", str(config), "voice", "serve", "--wyoming", "--port", "0"]
        with subprocess.Popen(  # noqa: ASYNC220  # it is read as it starts
            [sys.executable, "-m", "rkllm_mcp", *words], stderr=subprocess.PIPE, text=True
        ) as served:
            assert served.stderr is not None
            line = served.stderr.readline()
            found = re.fullmatch(r"Home Assistant may connect to 127\.0\.0\.1, port (\d+)\n", line)
            assert found, line
            # It has been asked, and a client of Home Assistant waits for a second.
            program.behaviour = "hangs"
            async with AsyncTcpClient("127.0.0.1", int(found[1]), read_timeout=60) as client:
                await client.write_event(Describe().event())
                event = await client.read_event()
            served.terminate()
            assert (served.wait(), served.stderr.read()) == (143, "")
    assert event is not None
    info = Info.from_event(event)
    assert (len(info.asr), len(info.tts)) == (1, 0)


def test_there_is_nothing_to_serve_without_a_program(tmp_path: Path, command: Command) -> None:
    del command
    done = voice(tmp_path, "", "serve", "--wyoming")
    assert (done.returncode, "under [speech] in the configuration" in done.stderr) == (2, True)


def test_the_models_are_listed_with_their_licence_size_and_published_speed(command: Command) -> None:
    listed = command("voice", "install", "--json")
    assert listed.code == 0, listed.err
    rows = {row["name"]: row for row in json.loads(listed.out)}
    assert rows["sense-voice"]["licence"] == "FunASR Model License 1.1"
    assert (rows["sense-voice"]["download_mb"], rows["sense-voice"]["downloaded"]) == (240, False)
    assert "0.11 on an RK3588" in command("voice", "install").out


def test_speech_is_measured_with_what_it_costs_an_answer(tmp_path: Path, command: Command) -> None:
    del command
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.wav").write_bytes(wav(500))
    (tmp_path / "set" / "a.txt").write_text("Heard five hundred Ms!", "utf-8")
    (tmp_path / "set" / "b.wav").write_bytes(wav(500))
    with WyomingProgram() as program:
        done = voice(tmp_path, both(program), "bench", "--json")
        compared = voice(tmp_path, both(program), "bench", "--set", str(tmp_path / "set"), "--json")
    figures = json.loads(done.stdout)
    assert figures["recognition"]["text"] == "heard 819 ms"
    assert figures["speaking"]["sound_s"] == pytest.approx(0.82, abs=0.01)
    # In this home there is no model.
    assert (figures["answer"], len(figures["notes"])) == (None, 1)
    assert {
        name: json.loads(compared.stdout)[name] for name in ("recordings", "errors", "characters", "error_rate")
    } == {
        "recordings": 1,
        "errors": 0,
        "characters": 10,
        "error_rate": 0.0,
    }
