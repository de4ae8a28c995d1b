"""A soak of the engine: runs side by side that are read, left, limited, stopped and killed at random.

Every request names itself, and the emulated model says nothing but that name, over and over. So each answer is known in
advance, and one character of another answer in it is seen.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing, suppress
from pathlib import Path

import anyio
import anyio.lowlevel

from bench.soak_tally import Budget, Tally, resident_mb
from rkllm_mcp.errors import GenerationError, RunRejectedError, WorkerDiedError
from rkllm_mcp.generation import GenerationOptions, RunStats
from rkllm_mcp.runtime.emulator import emulator_library
from rkllm_mcp.runtime.engine import Engine, open_engine
from rkllm_mcp.runtime.settings import EngineSettings, SilenceLimits

IM_START, IM_END = 257, 258
END = "<|im_end|>"
REPEATS = 12
CONVERSATIONS = 4
_AFTER = (0, 1, 9, 40)
# What a rule does to a run, what becomes of it, and how often it is chosen.
_FAULTS = {
    "none": ("", 60),
    "error": ("error after {}", 10),
    "crash": ("crash SIGSEGV after {}", 8),
    "kill": ("crash SIGKILL after {}", 4),
    "hang": ("hang after {}", 2),
    "deaf": ("hang after {} ignoring-abort", 2),
    "null": ("null-text at {}", 10),
    "nofinish": ("after-abort nothing", 20),
    "late": ("abort-late {}", 15),
    "eos": ("ignore-eos", 10),
    "stall": ("stall after {} 0.02", 5),
}
_HEAD = """RKLLM-EMULATOR 1
vocabulary bytes
control <|endoftext|> <|im_start|> <|im_end|>
eos <|im_end|>
context 4096
speed prefill 400000 decode 12000
"""
_WAYS = ("read", "read", "read", "leave", "leave", "cancel", "limit", "stop string", "history")


def script() -> str:
    """A model that says each request's name, with a rule for every fault at every place."""
    rules = [
        f"rule\nuser ^{name}-{after} ([a-z0-9.]+)\nsay {' '.join(['$1'] * REPEATS)}"
        + (f"\nfault {words.format(max(after, 1) if name == 'null' else after)}" if words else "")
        for name, (words, _) in _FAULTS.items()
        for after in _AFTER
    ]
    return _HEAD + "\n".join(rules) + "\n"


def settings(folder: Path, version: str) -> EngineSettings:
    """An engine that is impatient enough for hangs to be worth playing."""
    model = folder / f"soak-{version}.rkllm"
    model.write_text(script(), encoding="utf-8")
    return EngineSettings(
        model,
        emulator_library(version),
        max_new_tokens=400,
        reload_pauses_s=(0.0, 0.01, 0.05),
        silence=SilenceLimits(prefill_base_s=0.8, prefill_tokens_per_s=2000.0, decode_s=0.5, call_s=20.0),
        decode_abort_timeout_s=0.3,
    )


class EngineSoak:
    """One engine under random use.

    Args:
        version: the emulated release.
        seed: of the randomness.
        budget: how long it goes on.
    """

    def __init__(self, version: str, seed: int, budget: Budget) -> None:
        self.tally = Tally(f"engine {version}")
        self._version = version
        self._random = random.Random(f"{seed}-{version}")
        self._budget = budget
        self._names = 0

    async def run(self, folder: Path) -> Tally:
        """Soak until it is enough."""
        async with open_engine(settings(folder, self._version)) as engine:
            await engine.ready()
            async with anyio.create_task_group() as tasks:
                for _ in range(CONVERSATIONS):
                    tasks.start_soon(self._converse, engine)
            # Whatever happened, the engine answers.
            await self._last_word(engine)
            self.tally.restarts = engine.restarts
            self.tally.worker_mb = round(resident_mb(engine.worker_pid), 1)
        self.tally.end()
        return self.tally

    async def _converse(self, engine: Engine) -> None:
        history: list[int] = []
        while self.tally.begin(self._budget):
            name = self._name()
            fault = self._random.choices(list(_FAULTS), [weight for _, weight in _FAULTS.values()])[0]
            after, way = self._random.choice(_AFTER), self._random.choice(_WAYS)
            if (fault, way) == ("null", "stop string"):
                way = "read"  # the text that is missing may be that string
            case = f"{fault}-{after} {way} {name}"
            ids = [IM_START, *f"user\n{fault}-{after} {name}".encode(), IM_END, *b"\n", IM_START, *b"assistant\n"]
            prompt = [*history, *ids] if way == "history" else ids
            await self._meddle(engine)
            try:
                answered = await self._ask(engine, prompt, case, name, way)
            except (RunRejectedError, WorkerDiedError) as error:
                self._judge(case, fault, error)
                history = []
                continue
            history = [*prompt, *answered, *b"\n"] if way == "history" and len(prompt) < 2500 else []

    async def _meddle(self, engine: Engine) -> None:
        """Now and then, something else is asked of the model; the worker may die before it answers."""
        call = self._random.choices(("nothing", "clear", "size"), (90, 5, 5))[0]
        with suppress(WorkerDiedError):
            if call == "clear":
                await engine.clear_cache()
            elif call == "size":
                await engine.kv_cache_size()

    def _name(self) -> str:
        self._names += 1
        return f"{self._names}.{self._random.randrange(16**6):06x}"

    async def _ask(self, engine: Engine, prompt: list[int], case: str, name: str, way: str) -> list[int]:
        """One run, read in one of the ways; the ids that came."""
        expected = " ".join([name] * REPEATS) + END
        limit = self._random.choice((1, 5, 30)) if way == "limit" else 400
        stop = (name,) if way == "stop string" else ()
        enough = self._random.choice((0, 1, 10, 60)) if way == "leave" else 10_000
        options = GenerationOptions(limit, frozenset({IM_END}), stop_strings=stop)
        pieces: list[str] = []
        ids: list[int] = []
        stats: RunStats | None = None
        with anyio.CancelScope() as scope:
            if way == "cancel":
                asyncio.get_running_loop().call_later(self._random.random() * 0.02, scope.cancel)
            try:
                async with aclosing(engine.generate(prompt, options)) as run:
                    async for item in run:
                        if isinstance(item, RunStats):
                            stats = item
                            break
                        pieces.append(item.text)
                        ids.append(item.id)
                        if len(pieces) > enough:
                            break
            finally:
                text = "".join(pieces)
                if case.startswith("null-"):
                    # One token of this answer came without its text; its id came.
                    text = bytes(token for token in ids if token < 256).decode() + (END if IM_END in ids else "")
                wanted = expected[:limit] if way == "limit" else expected
                if stop:
                    # What was held back, because it may be the beginning, is let go when the run fails.
                    wanted = "" if stats else name[:-1]
                self.tally.compare(case, text, wanted, complete=stats is not None)
        self.tally.outcomes["complete" if stats else "left"] += 1
        if stats is not None and way == "limit" and stats.finish != "length":
            self.tally.find(f"{case}: it ended as {stats.finish}")
        return ids

    def _judge(self, case: str, fault: str, error: GenerationError) -> None:
        """Whether a run may fail like this."""
        is_death = isinstance(error, WorkerDiedError)
        is_silence = "did not come within" in str(error) or "did not stop within" in str(error)
        allowed = {"error": not is_death, "crash": is_death, "kill": is_death, "hang": is_silence, "deaf": is_silence}
        # The machine may be busy enough for a silence of its own.
        if not (allowed.get(fault, False) or is_silence):
            self.tally.find(f"{case}: {error}")
        self.tally.outcomes["died" if is_death else "silent" if is_silence else "failed"] += 1

    async def _last_word(self, engine: Engine) -> None:
        name = self._name()
        ids = [IM_START, *f"user\nnone-0 {name}".encode(), IM_END, *b"\n", IM_START, *b"assistant\n"]
        await anyio.lowlevel.checkpoint()
        await self._ask(engine, ids, f"none-0 last {name}", name, "read")
