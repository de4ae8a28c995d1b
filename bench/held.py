"""Held answers with real weights: what is valid at the first attempt, and what corrections cost, held and free.

    .venv/bin/python -m bench.held MODEL [--free | --sampler FILE] [--every N] [--out FILE] [--tool-calls | --questions]

Each task is a schema and a text; the model is asked as ``response_format`` asks it, at temperature 0, once. Corrections
have no limit of time, because there is no NPU here; eight of them are the limit as in the product.

``--sampler`` is the upper limit: libllama's own sampler masks the logits by a grammar of each schema, which is written
to the file that ``$RKLLM_EMULATOR_GRAMMAR`` names to the emulated runtime.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import re
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from anyio import to_thread

from rkllm_mcp.app.model_form import model_form
from rkllm_mcp.app.settings import engine_settings
from rkllm_mcp.completions.completion import with_note
from rkllm_mcp.completions.structured_output import FormatMismatchError, ResponseFormat
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.events import Event, Text, ToolCallDetected, Usage
from rkllm_mcp.generation import Generation, GenerationOptions, Generator, HeldLimits, Input, ModelOptions, RunStats
from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.models.cards import choose_model
from rkllm_mcp.providers.rkllm import RkllmModel
from rkllm_mcp.runtime.engine import open_engine
from rkllm_mcp.sampling import SamplingOverrides
from rkllm_mcp.toolcalls.schemas import first_violation


def table(required: str = "", **properties: Any) -> dict[str, Any]:
    """Return the schema of an object, all of whose keys are required unless some are named."""
    names = required.split() or list(properties)
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


WORD, WHOLE, FLAG, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"type": "number"}


def rows(item: Any, **limits: int) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "items": item, **limits}


def matching(pattern: str) -> dict[str, Any]:
    """Return the schema of a text of a pattern."""
    return {"type": "string", "pattern": f"^{pattern}$"}


SCHEMAS: Mapping[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "contact": (
        table(name=WORD, email={"type": "string", "format": "email"}, age={"type": "integer", "minimum": 0}),
        (
            "Anna Berg, 34, can be reached at anna.berg@example.org.",
            "Write to jo@example.com, that is Jo Park, who turns 51.",
            "田中花子さん（28歳）の連絡先は hanako@example.jp です。",
        ),
    ),
    "order": (
        table(customer=WORD, items=rows(table(product=WORD, count=WHOLE), minItems=1, maxItems=4), paid=FLAG),
        (
            "Mr Lee ordered two lamps and one chair and has paid.",
            "Order of Mia: 3 notebooks. Not paid yet.",
            "佐藤さんがコーヒー豆を2袋とフィルターを1箱注文しました。未払いです。",
        ),
    ),
    "light": (
        table(room={"enum": ["kitchen", "living room", "bath"]}, state={"enum": ["on", "off"]}),
        ("Please switch the light in the bath off.", "It is dark in the living room.", "台所の明かりをつけて。"),
    ),
    "weather": (
        table(city=WORD, celsius=NUMBER, sky={"enum": ["sunny", "cloudy", "rain", "snow"]}, wind_kmh=WHOLE),
        (
            "Oslo has 2.5 degrees and snow, with wind of 20 km/h.",
            "In Rome the sun shines at 31 degrees, hardly 5 km/h of wind.",
            "札幌は雪、気温はマイナス3度、風は時速15キロです。",
        ),
    ),
    "date": (
        table(title=WORD, day={"type": "string", "format": "date"}, time=matching("[0-2][0-9]:[0-5][0-9]")),
        (
            "The dentist is on 3 March 2027 at half past nine in the morning.",
            "Team lunch on 2026-12-24, 12:15.",
            "会議は2027年1月10日の15時です。",
        ),
    ),
    "union": (
        table(
            answer={
                "anyOf": [table(kind={"const": "number"}, value=NUMBER), table(kind={"const": "text"}, value=WORD)],
            }
        ),
        ("How many legs has a spider?", "Who wrote Faust?", "日本の首都は？"),
    ),
    "nested": (
        table(person=table(name=WORD, address=table(street=WORD, city=WORD, zip=matching("[0-9]{5}")))),
        (
            "Carla lives at Hauptstrasse 5 in 10115 Berlin.",
            "Send it to Tom Reed, 12 Oak Road, Springfield 62704.",
            "山田太郎さんの住所はさくら通り3、緑市、郵便番号12345です。",
        ),
    ),
    "tags": (
        table(summary={"type": "string", "maxLength": 80}, tags=rows(WORD, minItems=2, maxItems=3)),
        (
            "The new bridge over the river was opened by the mayor, with music and fireworks.",
            "Scientists found that the reef recovers faster than was thought.",
            "新しい図書館が駅前に開館し、多くの人が訪れました。",
        ),
    ),
    "matrix": (
        table(points=rows(rows(NUMBER, minItems=2, maxItems=2), minItems=3, maxItems=3)),
        ("The corners are (0,0), (4,0) and (0,3).", "A triangle at 1/1, 5/2 and 3/7.", "点は(1,2)、(3,4)、(5,6)です。"),
    ),
    "optional": (
        table(
            "name",
            name=WORD,
            nickname=WORD,
            phone={"type": ["string", "null"]},
            level={"type": "integer", "minimum": 1, "maximum": 5},
        ),
        ("Sam is called Sammy, level 3.", "Just Ines.", "健太（けんちゃん）、レベル5、電話なし。"),
    ),
    "rating": (
        table(
            stars={"type": "integer", "minimum": 1, "maximum": 5}, mood={"enum": ["good", "bad", "mixed"]}, reason=WORD
        ),
        (
            "The food was great but we waited an hour.",
            "Worst hotel ever, dirty and loud.",
            "とても美味しくて、店員さんも親切でした。",
        ),
    ),
    "japanese": (
        table(種類={"enum": ["質問", "苦情", "感謝"]}, 要約=WORD, 緊急={"type": "boolean"}),
        (
            "商品が壊れていました。すぐに交換してください。",
            "いつもありがとうございます。",
            "営業時間は何時までですか。",
        ),
    ),
    "recipe": (
        table(dish=WORD, minutes=WHOLE, ingredients=rows(table(name=WORD, grams=NUMBER), minItems=1, maxItems=3)),
        (
            "Pancakes take 20 minutes: 200 g flour, 300 g milk.",
            "Tomato soup, half an hour, with 500 g of tomatoes.",
            "おにぎりは10分、米150グラムと塩2グラム。",
        ),
    ),
    "route": (
        table(start=WORD, goal=WORD, by={"enum": ["train", "car", "foot", "bike"]}, stops=rows(WORD, maxItems=2)),
        (
            "We go from Bern to Milan by train via Brig.",
            "I walk from the station to the museum.",
            "東京から大阪まで新幹線で、名古屋で止まります。",
        ),
    ),
    "money": (
        table(amount={"type": "number", "minimum": 0}, currency=matching("[A-Z]{3}"), refund=FLAG),
        ("Please refund 12.50 euros.", "I paid 300 dollars.", "3000円を支払いました。"),
    ),
    "version": (
        table(package=WORD, version=matching(r"[0-9]+\.[0-9]+\.[0-9]+"), breaking=FLAG),
        (
            "httpx 1.0.2 only fixes bugs.",
            "Release 3.0.0 of parser drops the old interface.",
            "anyio 4.7.1 は互換性のある更新です。",
        ),
    ),
    "quiz": (
        table(
            question=WORD,
            choices=rows(WORD, minItems=3, maxItems=3),
            right={"type": "integer", "minimum": 0, "maximum": 2},
        ),
        ("Make a quiz about the moon.", "A quiz about rivers of Europe.", "日本の山についてのクイズを作って。"),
    ),
    "person_ref": (
        {
            "type": "object",
            "properties": {"parent": {"$ref": "#/$defs/person"}, "child": {"$ref": "#/$defs/person"}},
            "required": ["parent", "child"],
            "$defs": {"person": table(name=WORD, age=WHOLE)},
        },
        (
            "Lena, 40, has a son Max, who is 9.",
            "Old Karl (71) is the father of Eva (45).",
            "母は恵子、52歳。娘は結衣、20歳。",
        ),
    ),
    "log": (
        table(level={"enum": ["debug", "info", "warning", "error"]}, code={"type": ["integer", "null"]}, message=WORD),
        (
            'Error 502 at the gateway: "upstream closed".',
            "Everything is fine, the backup is done.",
            "警告: ディスクの残りが10%です。",
        ),
    ),
    "object": ({"type": "object"}, ("Describe a cat.", "Give the colours of the French flag.", "富士山について。")),
}


Row = dict[str, Any]


class Rows:
    """What came of each task, a line of a file each: a run that was ended goes on where it was."""

    def __init__(self, file: Path | None, *, is_shown: bool) -> None:
        lines = file.read_text("utf-8").splitlines() if file is not None and file.exists() else ()
        self.of_task: dict[str, Row] = {row["task"]: row for row in map(json.loads, lines)}
        self._file = file
        self._is_shown = is_shown

    def add(self, row: Row) -> None:
        """Keep a row."""
        self.of_task[row["task"]] = row
        line = json.dumps(row, ensure_ascii=False)
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                print(line, file=file)
        if self._is_shown:
            print(line[:240], flush=True)

    def line(self, name: str, *counts: str) -> str:
        """Return the number of rows, those for which each of ``counts`` is true, and the cost, in one line."""
        rows = list(self.of_task.values())
        corrections = [row["corrections"] for row in rows]
        counted = ", ".join(f"{sum(row[count] for row in rows)} {count}" for count in counts)
        return (
            f"{name}, {len(rows)} tasks: {counted}; "
            f"{sum(corrections)} corrections in {sum(map(bool, corrections))} answers "
            f"({sum(corrections) / max(1, len(rows)):.2f} each), "
            f"{sum(row['prefilled'] for row in rows)} tokens prefilled for them; "
            f"{sum(row['tokens'] for row in rows)} tokens, {sum(row['seconds'] for row in rows):.0f} s"
        )


class Collector:
    """An ``EventSink`` that keeps the events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def feed(self, batch: Any) -> None:
        """Keep the events."""
        self.events += batch

    async def drain(self) -> None:
        """Return at once."""


class CountedEngine:
    """A ``Generator`` that keeps the statistics of its runs."""

    def __init__(self, engine: Generator) -> None:
        self.runs: list[RunStats] = []
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the engine."""
        return getattr(self._engine, name)

    @asynccontextmanager
    async def generation(
        self, prompt: Input | Sequence[int], /, options: GenerationOptions | None = None
    ) -> AsyncGenerator[Generation, None]:
        """See ``Generator.generation``."""
        async with self._engine.generation(prompt, options) as generation:
            yield generation
            self.runs.append(generation.stats())

    def prefilled_again(self) -> int:
        """Return the tokens that all runs but the first prefilled, and forget the runs."""
        again, self.runs = self.runs[1:], []
        return sum(run.prefilled_tokens or 0 for run in again)


def tasks(first: int | None, every: int) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield name, schema and text of each task, the first text of every schema first."""
    all_tasks = [(name, schema, texts[index]) for index in range(3) for name, (schema, texts) in SCHEMAS.items()]
    yield from all_tasks[:first:every]


SPACE = r'space ::= | " " | "\n"{1,2} [ \t]{0,20}'
GBNF = rf"""{SPACE}
char ::= [^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{{4}})
string ::= "\"" char{{0,400}} "\""
whole ::= "0" | [1-9] [0-9]{{0,15}}
fraction ::= ("." [0-9]{{1,15}})?
value ::= object | array | string | "-"? whole fraction | "true" | "false" | "null"
object ::= "{{" space (string space ":" space value (space "," space string space ":" space value){{0,20}})? space "}}"
array ::= "[" space (value (space "," space value){{0,20}})? space "]"
"""


def gbnf(schema: dict[str, Any]) -> str:
    """Return a grammar of llama.cpp for a schema of ``SCHEMAS``."""
    return f"root ::= {_rule(schema, schema)}\n{GBNF}"


def _rule(schema: Any, root: dict[str, Any]) -> str:
    schema = root["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if "const" in schema or "enum" in schema:
        words = schema.get("enum", [schema.get("const")])
        return f"({' | '.join(json.dumps(json.dumps(word, ensure_ascii=False), ensure_ascii=False) for word in words)})"
    if "anyOf" in schema:
        return f"({' | '.join(_rule(inner, root) for inner in schema['anyOf'])})"
    kind: Any = schema.get("type")
    if isinstance(kind, list):
        return f"({' | '.join(_rule({**schema, 'type': one}, root) for one in cast('list[str]', kind))})"
    if kind == "object":
        return _rule_of_object(schema, root) if "properties" in schema else "object"
    if kind == "array":
        item, least, most = _rule(schema["items"], root), schema.get("minItems", 0), schema.get("maxItems", 20)
        rows = f'{item} (space "," space {item}){{{max(0, least - 1)},{most - 1}}}'
        return f'"[" space {rows if least else f"({rows})?"} space "]"'
    if "pattern" in schema:
        parts = re.findall(r"\[[^]]*\](?:\{\d+\}|\+)?|\\.|.", schema["pattern"][1:-1])
        inner = " ".join(part if part.startswith("[") else json.dumps(part[-1]) for part in parts)
        return rf'"\"" {inner} "\""'
    if kind == "string" and "maxLength" in schema:
        return rf'"\"" char{{0,{schema["maxLength"]}}} "\""'
    if kind == "integer" and "maximum" in schema:
        return f"({' | '.join(json.dumps(str(each)) for each in range(schema['minimum'], schema['maximum'] + 1))})"
    sign = "" if schema.get("minimum") == 0 else '"-"? '
    words = {"boolean": '("true" | "false")', "null": '"null"', "string": "string"}
    return words.get(kind) or f"{sign}whole{' fraction' if kind == 'number' else ''}"


def _rule_of_object(schema: Any, root: dict[str, Any]) -> str:
    parts = list[str]()
    for key, inner in schema["properties"].items():
        name = json.dumps(json.dumps(key, ensure_ascii=False), ensure_ascii=False)
        pair = f'{name} space ":" space {_rule(inner, root)}'
        parts.append(pair if not parts else f'(space "," space {pair}){"" if key in schema["required"] else "?"}')
    return f'"{{" space {" ".join(parts)} space "}}"'


@dataclass(frozen=True)
class Bench:
    """A model, and where its answers go."""

    model: RkllmModel
    engine: CountedEngine
    rows: Rows

    async def ask(
        self, task: str, messages: Sequence[Message], options: ModelOptions, tools: Sequence[ToolSpec] = ()
    ) -> tuple[Row, list[Event]]:
        """Return the cost of an answer, and its events."""
        conversation, sink = Conversation(), Collector()
        conversation.messages += messages
        started = time.monotonic()
        await self.model.respond(conversation, tools, options, sink)
        (usage,) = (event for event in sink.events if isinstance(event, Usage))
        cost = {
            "corrections": usage.corrections,
            "prefilled": self.engine.prefilled_again(),
            "tokens": usage.generated_tokens,
            "seconds": round(time.monotonic() - started, 1),
        }
        return {"task": task, **cost}, sink.events

    async def measure(
        self, chosen: Iterator[tuple[str, dict[str, Any], str]], *, is_held: bool, sampler: Path | None
    ) -> None:
        """Ask every task once."""
        for name, schema, text in chosen:
            if (task := f"{name}: {text}") in self.rows.of_task:
                continue
            if sampler is not None:
                await to_thread.run_sync(sampler.write_text, gbnf(schema), "utf-8")
            form = ResponseFormat(schema)
            grammar = form.grammar if is_held else None
            options = ModelOptions(220, SamplingOverrides(temperature=0), grammar=grammar, thinking=False)
            row, events = await self.ask(task, with_note(Message("user", text), form.instruction()), options)
            answer = "".join(event.text for event in events if isinstance(event, Text))
            row |= {"valid": False, "usable": False, "answer": answer, "reason": ""}
            try:
                row["valid"] = first_violation(json.loads(answer), schema) is None
            except ValueError:
                row["reason"] = "no JSON"
            try:
                form.read(answer)
                row["usable"] = True
            except FormatMismatchError as error:
                row["reason"] = str(error)
            self.rows.add(row)

    async def measure_calls(self, asked: Sequence[tuple[str, str]], tools: Sequence[ToolSpec]) -> None:
        """Ask for a call of each kind."""
        schemas = {tool.name: tool.input_schema for tool in tools}
        for expected, text in asked:
            if text in self.rows.of_task:
                continue
            options = ModelOptions(220, SamplingOverrides(temperature=0))
            row, events = await self.ask(text, [Message("user", text)], options, tools)
            calls = [event for event in events if isinstance(event, ToolCallDetected)]
            row["called"] = bool(calls)
            row["named"] = any(call.name == expected for call in calls)
            row["valid"] = any(
                call.name in schemas and first_violation(dict(call.arguments), schemas[call.name]) is None
                for call in calls[:1]
            )
            words = "".join(event.text for event in events if isinstance(event, Text))
            row["answer"] = [[call.name, dict(call.arguments)] for call in calls] or words
            self.rows.add(row)


LIGHT = ToolSpec("switch_light", "Switch the light of a room.", SCHEMAS["light"][0])
ORDER = ToolSpec("add_order", "Add an order of a customer.", SCHEMAS["order"][0])
EVENT = ToolSpec("add_event", "Add an event to the calendar.", SCHEMAS["date"][0])
CALLS = [
    *(("switch_light", text) for text in SCHEMAS["light"][1]),
    *(("add_order", text) for text in SCHEMAS["order"][1]),
    *(("add_event", f"Put it into my calendar: {text}") for text in SCHEMAS["date"][1]),
    ("switch_light", "Turn on the kitchen light."),
]


QUESTIONS = Path(__file__).with_name("held_questions.txt")
TOOLS = (
    ToolSpec("set_timer", "Set a timer that rings after some minutes.", table(minutes=WHOLE)),
    ToolSpec("get_weather", "Get the weather of a city.", table("city", city=WORD, day=WORD)),
    ToolSpec("convert_money", "Convert an amount of money.", table(amount=NUMBER, source=WORD, target=WORD)),
    ToolSpec("add_to_list", "Put something on the shopping list.", table(entry=WORD)),
    ToolSpec("play_music", "Play music.", table(what=WORD)),
    ToolSpec("send_message", "Send a message to a person.", table(person=WORD, text=WORD)),
    ToolSpec("search_files", "Search the user's files.", table(query=WORD)),
    ToolSpec("set_heating", "Set the temperature of a room.", table(room=WORD, celsius=NUMBER)),
)


def questions() -> list[tuple[str, str]]:
    """Return the tool that is meant and the question, of each line of ``held_questions.txt``."""
    lines = [line.split(" => ") for line in QUESTIONS.read_text("utf-8").splitlines() if not line.startswith("#")]
    return [(tool, question) for tool, question in lines]


async def main() -> None:
    """Run the bench and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--first", type=int, default=None)
    parser.add_argument("--every", type=int, default=1, help="each Nth task")
    parser.add_argument("--free", action="store_true", help="nothing is held, to compare with")
    parser.add_argument("--sampler", type=Path, help="libllama's grammar sampler, by this file, in place of holding")
    parser.add_argument("--tool-calls", action="store_true", help="calls of three tools in place of the schemas")
    parser.add_argument("--questions", action="store_true", help="forty questions with eight tools")
    parser.add_argument("--out", type=Path, help="a line for each answer; a file that is there is gone on with")
    parser.add_argument("--quiet", action="store_true")
    arguments = parser.parse_args()
    config = load_config(env={**os.environ, "RKLLM_MCP_MODEL__NAME": arguments.model})
    folder = choose_model(config.model, emulated=False)
    if arguments.sampler is not None:
        arguments.sampler.write_text("")
        os.environ["RKLLM_EMULATOR_GRAMMAR"] = str(arguments.sampler)
    async with open_engine(engine_settings(config, folder)) as opened:
        await opened.ready()
        engine, is_held = CountedEngine(opened), not (arguments.free or arguments.sampler)
        held = HeldLimits(seconds=math.inf) if is_held else None
        model = RkllmModel(cast("Any", engine), model_form(config, folder), held=held)
        rows = Rows(arguments.out, is_shown=not arguments.quiet)
        bench = Bench(model, rows=rows, engine=engine)
        name = "held" if is_held else "sampler" if arguments.sampler else "free"
        if arguments.tool_calls or arguments.questions:
            asked, tools = (CALLS, (LIGHT, ORDER, EVENT)) if arguments.tool_calls else (questions(), TOOLS)
            await bench.measure_calls(asked[:: arguments.every], tools)
            print(rows.line(name, "called", "named", "valid"))
            return
        await bench.measure(tasks(arguments.first, arguments.every), is_held=is_held, sampler=arguments.sampler)
        print(rows.line(name, "valid", "usable"))


if __name__ == "__main__":
    asyncio.run(main())
