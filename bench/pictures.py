"""Pictures in a conversation: what ten turns cost, and minutes of questions with faults.

    python -m bench.pictures              ten turns with two pictures, kept and per request, in one run
    python -m bench.pictures --minutes 10 conversations of texts and pictures; the encoder's process is killed, pictures
                                          are damaged, answers are left

Counts are those of the emulated libraries' logs. ``per request`` is what other hosts of this NPU do: each request loads
the encoder, encodes every picture of the conversation and prefills it whole.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio

from rkllm_mcp.app.assistant import App
from rkllm_mcp.app.root import open_app
from rkllm_mcp.config.sections import Config
from rkllm_mcp.events import End, Text
from rkllm_mcp.generation import AnswerOptions
from rkllm_mcp.messages import Conversation, Picture
from tests.support.pictures import BLUE, BLUE_ABOVE_RED, GREEN, RED, RED_ABOVE_BLUE, WHITE, stripes
from tests.support.seeing_model import seeing_model

# Rockchip, benchmark.md of rknn-llm 1.3.0: Qwen3.5-0.8B on an RK3588; the load is Radxa's figure for Qwen2-VL.
ENCODE_S, LOAD_S = 0.69, 2.36
TURNS: Sequence[tuple[str, bytes | None]] = (
    ("hello", None),
    ("what is it?", RED_ABOVE_BLUE),
    ("still?", None),
    ("and now", None),
    ("and this?", BLUE_ABOVE_RED),
    *((f"question {number}", None) for number in range(5)),
)
COLOURS = {"red": RED, "blue": BLUE, "green": GREEN, "white": WHITE}
_SHORTEST_LEAVE_S, _LONGEST_LEAVE_S = 0.001, 0.05


@asynccontextmanager
async def opened(model: Path) -> AsyncGenerator[App, None]:
    """Open an assistant with the model."""
    config = Config.model_validate({"model": {"path": str(model)}, "runtime": {"library": "emulator"}})
    async with open_app(config) as app:
        await app.ready()
        yield app


async def ask(app: App, conversation: Conversation, words: str, *pictures: bytes) -> tuple[str, End]:
    """Return the words of an answer and its end."""
    texts: list[str] = []
    end = End("failed")
    options = AnswerOptions(pictures=tuple(map(Picture.of, pictures)))
    async with aclosing(app.reply(conversation, words, options)) as events:
        async for event in events:
            if isinstance(event, Text):
                texts.append(event.text)
            elif isinstance(event, End):
                end = event
    return "".join(texts).strip(), end


def logged(path: Path) -> list[dict[str, Any]]:
    """Return the calls in a log of an emulated library."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


async def ten_turns(folder: Path, *, keeps: bool) -> dict[str, float]:
    """Have the conversation of ``TURNS``; with ``keeps`` in one process, else anew for each request."""
    model = seeing_model(folder)
    logs = {"RKLLM_EMULATOR_LOG": folder / "rkllm.jsonl", "RKNN_EMULATOR_LOG": folder / "rknn.jsonl"}
    os.environ.update({name: str(path) for name, path in logs.items()})
    if keeps:
        async with opened(model) as app:
            conversation = app.new_conversation()
            for words, picture in TURNS:
                await ask(app, conversation, words, *([picture] if picture else []))
    else:
        messages: list[Any] = []
        for words, picture in TURNS:
            async with opened(model) as app:
                conversation = app.new_conversation()
                conversation.messages[:] = messages or conversation.messages
                await ask(app, conversation, words, *([picture] if picture else []))
                messages = list(conversation.messages)
    encoder, language = logged(logs["RKNN_EMULATOR_LOG"]), logged(logs["RKLLM_EMULATOR_LOG"])
    names = Counter(call["call"] for call in encoder)
    runs = [call["run"] for call in language if call["call"] == "rkllm_run"]
    return {
        "encoder loads": names["rknn_init"],
        "encoder runs": names["rknn_run"],
        "prefilled tokens": sum(run["prefill_tokens"] for run in runs),
        "encoder seconds, published": round(names["rknn_init"] * LOAD_S + names["rknn_run"] * ENCODE_S, 1),
    }


def resident_mb(process: int | str = "self") -> int:
    """Return the resident memory of a process in MB; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{process}/status").read_text("utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS")), 0)


async def with_faults(folder: Path, minutes: float, seed: int) -> dict[str, Any]:
    """Ask at random for some minutes; return what was asked, what went wrong by a fault, and what was wrong."""
    choice = random.Random(seed)
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    end_at = time.monotonic() + 60 * minutes
    async with opened(seeing_model(folder)) as app:
        vision = app.model_host.board.vision
        assert vision is not None
        conversation, before = app.new_conversation(), 0
        while time.monotonic() < end_at:
            if choice.random() < 0.1:
                conversation = app.new_conversation()
            above, below = choice.sample(sorted(COLOURS), 2)
            side = choice.randrange(64, 400)
            picture = stripes((COLOURS[above], COLOURS[below]), (side, side))
            kind = choice.choice(["text", "text", "picture", "picture", "cut", "drawing", "killed encoder", "left"])
            counts[kind] += 1
            if kind == "text":
                said, end = await ask(app, conversation, "hello")
                right = said == "You said hello"
            elif kind in ("cut", "drawing"):
                said, end = await ask(app, conversation, "x", picture[:60] if kind == "cut" else b"<svg/>")
                right = end.reason == "failed"
            elif kind == "left":
                with anyio.move_on_after(choice.uniform(_SHORTEST_LEAVE_S, _LONGEST_LEAVE_S)):
                    await ask(app, conversation, "what is it?", picture)
                said, end, right = "", End("cancelled"), True
            else:
                if kind == "killed encoder" and (worker := vision.encoder.worker) is not None:
                    # The one of the time before may be gone already.
                    with suppress(ProcessLookupError):
                        os.kill(worker.pid, signal.SIGKILL)
                said, end = await ask(app, conversation, "what is it?", picture)
                expected = f"It is {above} above, {below} below."
                # A picture that meets a dying process costs one answer, with a reason.
                right = said == expected or (kind == "killed encoder" and end.reason == "failed" and bool(end.error))
                counts["answers lost to a killed encoder"] += kind == "killed encoder" and said != expected
            if not right:
                wrong.append(f"{kind}: {said!r} {end.reason} {end.error or ''}")
            before = before or (resident_mb() if sum(counts.values()) > 50 else 0)
        encoder_mb = resident_mb(vision.encoder.worker.pid if vision.encoder.worker else 0)
        memory = {"host MB after 50": before, "host MB at the end": resident_mb(), "encoder MB": encoder_mb}
    return {**counts, "wrong": len(wrong), "first wrong": wrong[:3], **memory}


async def main() -> None:
    """Print the table of ten turns, or the counts of some minutes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ.update({"RKLLM_MCP_STATE": f"{name}/state", "XDG_CACHE_HOME": f"{name}/cache"})
        if arguments.minutes:
            counts = await with_faults(Path(name), arguments.minutes, arguments.seed)
            lines = [f"{what:34} {count}" for what, count in counts.items()]
            print(json.dumps(counts) if arguments.json else "\n".join(lines))
            return
        ours = await ten_turns(Path(name) / "kept", keeps=True)
        theirs = await ten_turns(Path(name) / "anew", keeps=False)
    if arguments.json:
        print(json.dumps({"kept": ours, "per request": theirs}))
        return
    print(f"{'ten turns, two pictures':30} {'kept':>8} {'per request':>12}")
    for what, value in ours.items():
        print(f"{what:30} {value:>8} {theirs[what]:>12}")


if __name__ == "__main__":
    anyio.run(main)
