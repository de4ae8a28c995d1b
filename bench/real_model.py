"""What a model makes of questions through the whole product, with real servers: calls, answers, leaks, tokens.

    python -m bench.real_model MODEL [--set six|own] [--tuning | --kept-back | --fresh N] [--language en|ja] [--every N]
    python -m bench.real_model MODEL --beside http://127.0.0.1:8080/v1

MODEL is a model of ``rkllm-mcp models list``, on a board or, with weights behind the emulated NPU, on the CPU. ``six``
are 60 questions with six tools of fixed results. ``own`` are 360 with the configuration that ``setup`` writes, the
knowledge server of the gallery, made-up weather and a made-up board: for each of seven kinds of tools 20 in English and
20 in Japanese, 40 that need no tool, and eight conversations of five turns. ``own/tuning.txt`` may be looked at while
something is built; ``own/kept_back.txt`` was kept back until its tasks set weights. ``--fresh N`` asks one of the sets
that were committed before their first run; docs/development/answers.md says who wrote each and what was read since.
``--every N`` asks each Nth task; ``--out FILE`` keeps a line for each answer, and goes on with a file that is there.
``--beside`` asks a service with OpenAI's API (llama-server, rkllm-mcp serve) the ``six`` in the product's place, and
runs their tools here.

A line of ``own`` is a question, a pattern of a right answer (``-``: no tool is needed) and, where an answer could be
guessed, a pattern of the result that it has to come from. An answer is useful if it matches, shows neither a call nor
an internal text, and the call that it needs was made; a right number or passage is right without one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import tempfile
import time
import zoneinfo
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

import anyio
import httpx2

from mcp_servers.knowledge.importing.folders import import_folder
from mcp_servers.knowledge.importing.reader import open_reader
from mcp_servers.knowledge.ingest import DocumentWriter
from mcp_servers.knowledge.library import open_library
from rkllm_mcp.app.root import open_app
from rkllm_mcp.board.machine import ROOT_VARIABLE
from rkllm_mcp.config.editing import add_servers
from rkllm_mcp.config.gallery import server_table
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.sections import Config
from rkllm_mcp.diagnostics.trial import (
    ZONE,
    TrialOutcome,
    TrialProgress,
    TrialTask,
    TrialTurn,
    ask,
    ask_with_six_tools,
    figures,
    judge,
    read_six,
)
from rkllm_mcp.surfaces.cli.config import NewConfiguration
from tests.support.board_trees import RK3588, plant
from tests.support.fake_jma import FakeAgency

OWN = Path(__file__).with_name("own")
TUNING, KEPT_BACK = OWN / "tuning.txt", OWN / "kept_back.txt"
FRESH = (
    OWN / "fresh.txt",
    OWN / "fresh2.txt",
    OWN / "fresh3.txt",
    OWN / "fresh4.txt",
    OWN / "fresh5.txt",
    OWN / "fresh6.txt",
    OWN / "fresh7.txt",
)
DIALOGUE = "dialogue"
_NO_TOOL = "-"
_SIX_CONFIG = """
[model]
name = {model}
[runtime]
library = {library}
[agent]
max_rounds = 4
wait_for_servers_s = 60
[security]
approve = "never"
[[servers]]
name = "six"
command = "${{PYTHON}}"
args = ["-m", "rkllm_mcp.diagnostics.six_tools"]
"""


def read_tasks(files: Iterable[Path] = (TUNING, KEPT_BACK)) -> dict[str, TrialTask]:
    """Return the tasks of ``six`` and of these files of ``own`` by their keys."""
    tasks = read_six()
    for file in files:
        for section in file.read_text("utf-8").split("\n## ")[1:]:
            title, _, body = section.partition("\n")
            kind, language = title.split()
            blocks = body.strip().split("\n\n") if kind == DIALOGUE else body.strip().splitlines()
            for number, block in enumerate(blocks):
                turns = tuple(map(_turn, block.splitlines()))
                key = f"{file.stem} {kind} {language} {number}"
                tasks[key] = TrialTask("own", kind, language, turns, kept_back=file != TUNING)
    return tasks


def _turn(line: str) -> TrialTurn:
    question, answer, *result = line.split(" => ")
    if answer == _NO_TOOL:
        return TrialTurn(question, needs_tool=False)
    return TrialTurn(question, answer=answer, result=result[0] if result else "")


async def configuration(folder: Path, model: str, library: str, name: str, agency: FakeAgency) -> Config:
    """Write the configuration of a set, with its files, documents, weather and board, and return it."""
    file = folder / "mcp_config.toml"
    if name == "six":
        file.write_text(_SIX_CONFIG.format(model=json.dumps(model), library=json.dumps(library)), "utf-8")
        return load_config(str(file))
    shutil.copytree(OWN / "files", folder / "files")
    async with open_library(folder / "knowledge") as documents, open_reader() as reader:
        base = await documents.create("documents")
        await import_folder(OWN / "documents", DocumentWriter(documents, base.id), reader)
        await documents.indexer.wait_idle()
    plant(folder / "board", RK3588)
    text = NewConfiguration(model, library, folder=folder / "files").text()
    weather = ", ".join(f"{name} = {json.dumps(value)}" for name, value in agency.environment(folder / "cache").items())
    file.write_text(re.sub(r"inherit_env = .*", f"env = {{ {weather} }}", text, count=1), "utf-8")
    knowledge = server_table("knowledge", None)
    add_servers(file, [{**knowledge, "args": [*knowledge["args"], "--folder", str(folder / "knowledge")]}])
    return load_config(str(file))


def agency_of_today() -> FakeAgency:
    """Return an agency whose newest forecast is of today."""
    return FakeAgency(now=datetime.now(zoneinfo.ZoneInfo(ZONE)).replace(hour=12, minute=30))


@asynccontextmanager
async def _board_of(root: Path) -> AsyncGenerator[None]:
    """Let the readings of the board come from ``root`` for the duration of the block."""
    before = os.environ.get(ROOT_VARIABLE)
    os.environ[ROOT_VARIABLE] = str(root)
    try:
        yield
    finally:
        del os.environ[ROOT_VARIABLE]
        if before is not None:
            os.environ[ROOT_VARIABLE] = before


@dataclass
class Measurement:
    """What is asked of whom, and the outcomes so far."""

    model: str
    library: str = "auto"
    beside: str = ""  # a service in the product's place
    out: Path | None = None
    shows: bool = False
    outcomes: list[TrialOutcome] = field(default_factory=list[TrialOutcome])

    def read(self) -> None:
        """Read the outcomes of earlier runs."""
        if self.out is not None and self.out.exists():
            self.outcomes = [TrialOutcome(**json.loads(line)) for line in self.out.read_text("utf-8").splitlines()]

    async def run(self, tasks: Mapping[str, TrialTask]) -> None:
        """Ask the tasks."""
        if self.beside:
            client = httpx2.AsyncClient(base_url=f"{self.beside.rstrip('/')}/", timeout=600)
            async with client:
                for key, task in tasks.items():
                    self._add([await ask_service(client, self.model, task)], key)
            return
        for name in dict.fromkeys(task.set for task in tasks.values()):
            with tempfile.TemporaryDirectory() as folder, agency_of_today() as agency:
                config = await configuration(Path(folder), self.model, self.library, name, agency)
                async with _board_of(Path(folder) / "board"), open_app(config) as app:
                    await app.ready()
                    await app.toolbox.wait_until_started()
                    for key, task in tasks.items():
                        if task.set == name:
                            conversation, progress = app.new_conversation(), TrialProgress()
                            turns = range(len(task.turns))
                            self._add([await ask(app, conversation, task, turn, progress) for turn in turns], key)

    def _add(self, outcomes: Sequence[TrialOutcome], key: str) -> None:
        for number, outcome in enumerate(outcomes):
            outcome.key = f"{key} {number}"
        self.outcomes += outcomes
        if self.out is not None:
            with self.out.open("a", encoding="utf-8") as file:
                file.writelines(f"{json.dumps(asdict(outcome), ensure_ascii=False)}\n" for outcome in outcomes)
        for outcome in outcomes if self.shows else ():
            state = "ok" if outcome.useful and not outcome.spurious else "--"
            calls = [(name, arguments) for name, arguments, *_ in outcome.calls]
            print(f"{state} {outcome.seconds:5.0f} s  {outcome.question}  {calls}  {outcome.text!r:.160}", flush=True)


async def ask_service(client: httpx2.AsyncClient, model: str, task: TrialTask) -> TrialOutcome:
    """Ask a service with OpenAI's API the question of a task."""
    began = datetime.now().astimezone()
    answer = await ask_with_six_tools(client, model, [], task.turns[0].question)
    outcome = judge(task, 0, answer.calls, answer.text, answer.text, began)
    outcome.rounds, outcome.seconds = answer.rounds, round(answer.seconds, 1)
    outcome.prefilled = answer.prompt_tokens - (answer.cached_tokens or 0)
    return outcome


def groups(outcomes: Sequence[TrialOutcome]) -> dict[str, list[TrialOutcome]]:
    """Return the outcomes of each kind and language, of each language, and all."""
    titled = [
        (title, outcome)
        for outcome in sorted(outcomes, key=lambda outcome: (outcome.kind, outcome.language))
        for title in (f"{outcome.kind} {outcome.language}", f"all {outcome.language}", "all")
    ]
    titles = sorted(dict.fromkeys(title for title, _ in titled), key=lambda title: title.startswith("all"))
    return {title: [outcome for other, outcome in titled if other == title] for title in titles}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a name of 'models list'; with --beside, the name in the request")
    parser.add_argument("--runtime", default="auto", help="the runtime library, as in [runtime] library")
    parser.add_argument("--set", choices=["six", "own"], help="one set; without it both")
    parser.add_argument("--kind", help="one kind of tasks of own")
    parser.add_argument("--language", choices=["en", "ja"])
    half = parser.add_mutually_exclusive_group()
    half.add_argument("--tuning", action="store_true", help="without the tasks that are kept back")
    half.add_argument("--kept-back", action="store_true", help="only those")
    half.add_argument(
        "--fresh", type=int, choices=range(1, len(FRESH) + 1), help="only the tasks of a set that nothing was tuned to"
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth task")
    parser.add_argument("--most", type=int, default=None, metavar="N", help="ask N tasks now; --out goes on later")
    parser.add_argument("--beside", default="", metavar="URL", help="a service with OpenAI's API")
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep a line for each answer")
    parser.add_argument("--show", action="store_true", help="print each answer")
    options = parser.parse_args()
    os.environ["TZ"] = ZONE
    time.tzset()
    measurement = Measurement(options.model, options.runtime, options.beside, options.out, options.show)
    measurement.read()
    name = "six" if options.beside else options.set
    number: int | None = options.fresh
    wanted = {
        key: task
        for key, task in read_tasks([FRESH[number - 1]] if number else [TUNING, KEPT_BACK]).items()
        if name in {None, task.set}
        and options.kind in {None, task.kind}
        and options.language in {None, task.language}
        and not (options.tuning and task.kept_back)
        and not ((options.kept_back or number) and not task.kept_back)
    }
    known = {outcome.key.rpartition(" ")[0] for outcome in measurement.outcomes}
    keys = [key for key in [*wanted][:: options.every] if key not in known]
    anyio.run(measurement.run, {key: wanted[key] for key in keys[: options.most]})
    rows = {title: figures(group) for title, group in groups(measurement.outcomes).items()}
    for row, counts in rows.items():
        print(row)
        print("   ", ", ".join(f"{title} {value}" for title, value in counts.items()))


if __name__ == "__main__":
    main()
