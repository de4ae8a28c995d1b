"""Speech on the command line: ``rkllm-mcp voice`` asks the programs and models of ``[speech]``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import anyio
import typer

from rkllm_base.addresses import is_loopback
from rkllm_mcp.config.editing import set_value
from rkllm_mcp.errors import UsageError
from rkllm_mcp.speech.audio import MOST_BYTES, RATE, Sound, read_recording, wav_of
from rkllm_mcp.speech.device import play
from rkllm_mcp.speech.engines import Speaker, SpeechError, recogniser_of, speaker_of
from rkllm_mcp.speech.process import SHERPA
from rkllm_mcp.speech.sentences import sentences_of
from rkllm_mcp.surfaces.cli.attached import Alone
from rkllm_mcp.surfaces.cli.files import write_new
from rkllm_mcp.surfaces.cli.models import download_progress
from rkllm_mcp.surfaces.cli.options import AsJson, argument, command, flag, option
from rkllm_mcp.surfaces.cli.run import hold_chat
from rkllm_mcp.surfaces.invocation import Session, open_socket
from rkllm_mcp.surfaces.terminal import printable

app = typer.Typer(no_args_is_help=True)
_WYOMING_PORT = 10_300
_DOES = {"stt": "recognises", "tts": "speaks"}


def _missing(key: str, port: int) -> UsageError:
    line = f'{key} = "wyoming://127.0.0.1:{port}"'
    return UsageError(
        f"no program for this is configured; 'rkllm-mcp voice install' shows models, or write {line} under [speech] "
        "in the configuration"
    )


def _speaker(session: Session) -> Speaker:
    speaker = speaker_of(session.config().speech)
    if speaker is None:
        raise _missing("tts", 10_200)
    return speaker


def _content_of(file: str) -> bytes:
    try:
        with Path(file).expanduser().open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}); name a recording") from None
    if len(data) > MOST_BYTES:
        raise UsageError(f"{file} is larger than 25 MB; cut it into parts")
    return data


@command(app, "transcribe")
async def transcribe_command(
    session: Session,
    file: Annotated[str, argument("A recording of up to 10 minutes; WAV, and others with the extra speech.", "FILE")],
    language: Annotated[str, option("The language that is spoken, such as ja.", "CODE")] = "",
    as_json: AsJson = False,
) -> None:
    """Print the text of a recording."""
    recogniser = recogniser_of(session.config().speech)
    if recogniser is None:
        raise _missing("stt", _WYOMING_PORT)
    sound = await read_recording(_content_of(file))
    async with recogniser.transcribe(sound, language) as pieces:
        text = "".join([piece.text async for piece in pieces]).strip()
    session.show({"text": text, "seconds": round(sound.seconds, 1)}, f"{printable(text)}\n", as_json=as_json)


@command(app, "say")
async def say_command(
    session: Session,
    text: Annotated[str, argument("The text; code, tables and addresses in it are left out.", "TEXT")],
    voice: Annotated[str, option("One of 'rkllm-mcp voice list'.", "NAME")] = "",
    output: Annotated[str | None, option("Write the sound to a new WAV file instead of playing it.", "FILE")] = None,
) -> None:
    """Speak a text, on the board's loudspeaker or into a file."""
    speaker = _speaker(session)
    sounds = [await speaker.speak(sentence, voice) for sentence in sentences_of(text)]
    if not sounds:
        raise UsageError("there is nothing to say in this text; code, tables and addresses are left out")
    rate = sounds[0].rate
    sound = Sound(b"".join(part.at(rate).samples for part in sounds), rate)
    if output is not None:
        write_new(output, wav_of(sound.rate, sound.samples))
        session.status(f"{sound.seconds:.1f} s written to {output}")
        return
    await play(sound)


@command(app, "chat")
def chat_command(session: Session, alone: Alone = False) -> int:
    """Talk with the assistant by the board's microphone and loudspeaker: Enter listens, a typed line is asked, too."""
    return hold_chat(session, alone=alone, is_spoken=True)


@command(app, "list")
async def list_command(session: Session, as_json: AsJson = False) -> None:
    """List the voices of the program that speaks."""
    voices = await _speaker(session).voices()
    value = [{"name": voice.name, "languages": list(voice.languages)} for voice in voices]
    rows = [(voice.name, ", ".join(voice.languages)) for voice in voices]
    listing = session.terminal.table(("NAME", "LANGUAGES"), rows) if rows else ""
    session.show(value, listing, as_json=as_json, none="The program names no voices; --voice takes any of its own.")


@command(app, "serve")
async def serve_command(
    session: Session,
    wyoming: Annotated[bool, flag("By Wyoming, Home Assistant's protocol; there is no other.", "--wyoming")] = False,
    host: Annotated[
        str, option("Address to listen on; every machine that reaches it may use it.", "ADDRESS")
    ] = "127.0.0.1",
    port: Annotated[int, option("Port to listen on; 0 for a free one.", "PORT", min=0, max=65_535)] = _WYOMING_PORT,
) -> None:
    """Serve what [speech] configures to Home Assistant: ears and a mouth, by Wyoming."""
    del wyoming
    from rkllm_mcp.speech.server import SpeechServer, listen

    section = session.config().speech
    server = SpeechServer(recogniser_of(section), speaker_of(section))
    if server.recogniser is None and server.speaker is None:
        raise _missing("stt", _WYOMING_PORT)
    opened = open_socket(host, port)
    try:
        # Models are loaded before a client asks, which waits for a second only.
        await server.describe()
    except SpeechError as error:
        session.status(str(error))
    async with await listen(server, opened):
        session.status(f"Home Assistant may connect to {host}, port {opened.getsockname()[1]}")
        if not is_loopback(host):
            session.status("Wyoming has neither keys nor encryption: every machine that reaches it may use it")
        await anyio.sleep_forever()


@command(app, "install")
async def install_command(
    session: Session,
    name: Annotated[str, argument("Model to download and use; none to list them.", "NAME")] = "",
    as_json: AsJson = False,
) -> None:
    """List the models for speech, or download one, try it, and write it into the configuration."""
    from rkllm_mcp.models.speech import CATALOGUE, SpeechSources

    sources = SpeechSources()
    if not name:
        cards = CATALOGUE.values()
        rows = [{**asdict(card), "downloaded": sources.folders.has(card.name)} for card in cards]
        heads = ("NAME", "DOES", "LANGUAGES", "MB", "LICENCE", "SPEED", "STATE")
        cells = [
            (
                card.name,
                _DOES[card.key],
                ", ".join(card.languages),
                str(card.download_mb),
                card.licence,
                card.speed or "not published",
                "downloaded" if sources.folders.has(card.name) else "",
            )
            for card in cards
        ]
        table = session.terminal.table(heads, [list(map(session.terminal.word, row)) for row in cells])
        session.show(rows, table, as_json=as_json)
        session.status("SPEED is seconds of the processor for a second of sound, as others published it.")
        session.status("For Japanese, no voice that may be used commercially is known here; name a program as tts.")
        return
    with download_progress(session) as report:
        folder = await anyio.to_thread.run_sync(sources.pull, name, report)
    card = CATALOGUE[name]
    session.status(f"licence of {card.name}: {card.licence} ({card.attribution})")
    address = f"{SHERPA}{folder}"
    section = session.config().speech.model_copy(update={card.key: address})
    if card.key == "tts" and (speaker := speaker_of(section)) is not None:
        seconds = (await speaker.speak("This is a trial.")).seconds
        session.status(f"tried: {seconds:.1f} s of sound")
    elif card.key == "stt" and (recogniser := recogniser_of(section)) is not None:
        async with recogniser.transcribe(Sound(bytes(2 * RATE))) as pieces:
            _ = [piece async for piece in pieces]
        session.status("tried: it was loaded, and heard nothing in silence")
    target = session.target_file()
    set_value(target, "speech", card.key, address)
    session.result(f'{card.key} = "{address}" written to {target}; a running service takes it with its next start')


@command(app, "bench")
async def bench_command(
    session: Session,
    recording: Annotated[str, option("Recognise this instead of what the voice says.", "FILE")] = "",
    recordings: Annotated[
        str,
        option("Compare the recordings of a folder with the texts of the same names: a.wav, a.txt.", "FOLDER", "--set"),
    ] = "",
    language: Annotated[str, option("The language that is spoken, such as ja.", "CODE")] = "",
    as_json: AsJson = False,
) -> None:
    """Measure speech: real-time factor, time to the text and to the first sound, memory, its cost for an answer."""
    from rkllm_mcp.diagnostics.voice import measure_set, measure_voice

    config = session.config()
    lines: list[tuple[str, str]] = []
    if recordings:
        found = await measure_set(config, recordings, language, on_step=session.status)
        lines += [
            ("recordings", f"{found.recordings}, {found.seconds:.1f} s"),
            ("character error rate", f"{found.error_rate:.3f} ({found.errors} of {found.characters})"),
            ("most errors", found.worst),
            ("real-time factor", f"{found.text_s / found.seconds:.2f}"),
        ]
        value = asdict(found)
    else:
        if config.speech.stt is None and config.speech.tts is None:
            raise _missing("stt", _WYOMING_PORT)
        sound = await read_recording(_content_of(recording)) if recording else None
        figures = await measure_voice(config, sound, language, on_step=session.status)
        value = asdict(figures)
        if (heard := figures.recognition) is not None:
            memory = "not known" if heard.memory_mb is None else f"{heard.memory_mb:.0f} MB"
            lines += [
                ("recording", f"{heard.recording_s:.1f} s"),
                ("end of speech to text", f"{heard.text_s:.2f} s"),
                # Seconds that one second of speech takes, and below, one of sound.
                ("recognition, real-time factor", f"{heard.text_s / heard.recording_s:.2f}"),
                ("recognition, memory", memory),
                ("text", printable(heard.text)),
            ]
        if (spoken := figures.speaking) is not None:
            memory = "not known" if spoken.memory_mb is None else f"{spoken.memory_mb:.0f} MB"
            lines += [
                ("text to first sound", f"{spoken.first_sound_s:.2f} s"),
                ("speaking, real-time factor", f"{spoken.spoken_s / spoken.sound_s:.2f}"),
                ("speaking, memory", memory),
            ]
        if (answer := figures.answer) is not None:
            lines += [
                ("answer, alone", f"{answer.alone_tps:.1f} tokens/s"),
                ("answer, with recognition beside it", f"{answer.beside_tps:.1f} tokens/s"),
            ]
        for note in figures.notes:
            session.status(note)
    word = session.terminal.word
    session.show(
        value, session.terminal.table(("MEASURED", "FIGURE"), [(word(a), b) for a, b in lines]), as_json=as_json
    )
