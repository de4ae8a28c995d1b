"""Held answers with real weights: what is valid at the first attempt, and what corrections cost, held and free.

    .venv/bin/python -m bench.held MODEL [--free] [--first N] [--tool-calls]

Each task is a schema and a text; the model is asked as ``response_format`` asks it, at temperature 0, once. Corrections
have no limit of time, because there is no NPU here; eight of them are the limit as in the product.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rkllm_mcp.app.model_form import model_form
from rkllm_mcp.app.settings import engine_settings
from rkllm_mcp.completions.completion import with_note
from rkllm_mcp.completions.structured_output import FormatMismatchError, ResponseFormat
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.events import Event, Text, ToolCallDetected, Usage
from rkllm_mcp.generation import HeldLimits, ModelOptions
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


@dataclass
class Tally:
    """What came of the tasks."""

    tasks: int = 0
    valid: int = 0  # valid as written
    usable: int = 0  # after the repairs that are made of every answer
    fell_back: list[str] = field(default_factory=list[str])
    corrections: int = 0
    corrected_tasks: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def line(self, name: str) -> str:
        """Return the figures in one line."""
        return (
            f"{name}: {self.valid} of {self.tasks} valid as written, {self.usable} usable; "
            f"{self.corrections} corrections in {self.corrected_tasks} answers "
            f"({self.corrections / max(1, self.tasks):.2f} each); "
            f"{self.tokens} tokens, {self.seconds:.0f} s"
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


def tasks(first: int | None) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield name, schema and text of each task, the first text of every schema first."""
    every = [(name, schema, texts[index]) for index in range(3) for name, (schema, texts) in SCHEMAS.items()]
    yield from every[:first]


async def measure(model: RkllmModel, first: int | None, *, is_free: bool, is_shown: bool) -> Tally:
    """Ask every task once."""
    tally = Tally()
    for name, schema, text in tasks(first):
        form = ResponseFormat(schema)
        conversation, sink = Conversation(), Collector()
        conversation.messages += with_note(Message("user", text), form.instruction())
        grammar = None if is_free else form.grammar
        options = ModelOptions(220, SamplingOverrides(temperature=0), grammar=grammar, thinking=False)
        started = time.monotonic()
        await model.respond(conversation, (), options, sink)
        tally.seconds += time.monotonic() - started
        answer = "".join(event.text for event in sink.events if isinstance(event, Text))
        (usage,) = (event for event in sink.events if isinstance(event, Usage))
        tally.tasks += 1
        tally.tokens += usage.generated_tokens
        tally.corrections += usage.corrections
        tally.corrected_tasks += usage.corrections > 0
        is_valid = is_usable = False
        try:
            is_valid = first_violation(json.loads(answer), schema) is None
        except ValueError:
            is_valid = False
        try:
            form.read(answer)
            is_usable = True
        except FormatMismatchError as error:
            tally.fell_back.append(f"{name}: {error} [{usage.corrections} corrections] {answer[-60:]!r}")
        tally.valid += is_valid
        tally.usable += is_usable
        if is_shown:
            print(f"{name:10} {'valid' if is_valid else 'INVALID'} {usage.corrections} {answer[:160]!r}", flush=True)
    return tally


LIGHT = ToolSpec("switch_light", "Switch the light of a room.", SCHEMAS["light"][0])
ORDER = ToolSpec("add_order", "Add an order of a customer.", SCHEMAS["order"][0])
EVENT = ToolSpec("add_event", "Add an event to the calendar.", SCHEMAS["date"][0])
CALLS = [
    *(("switch_light", text) for text in SCHEMAS["light"][1]),
    *(("add_order", text) for text in SCHEMAS["order"][1]),
    *(("add_event", f"Put it into my calendar: {text}") for text in SCHEMAS["date"][1]),
    ("switch_light", "Turn on the kitchen light."),
]


async def measure_calls(model: RkllmModel) -> str:
    """Ask for a call of each kind, and count those that are right as written."""
    counts = dict.fromkeys(("called", "named", "valid", "corrections"), 0)
    for expected, text in CALLS:
        conversation, sink = Conversation(), Collector()
        conversation.messages.append(Message("user", text))
        await model.respond(
            conversation, [LIGHT, ORDER, EVENT], ModelOptions(220, SamplingOverrides(temperature=0)), sink
        )
        calls = [event for event in sink.events if isinstance(event, ToolCallDetected)]
        (usage,) = (event for event in sink.events if isinstance(event, Usage))
        counts["corrections"] += usage.corrections
        counts["called"] += bool(calls)
        counts["named"] += any(call.name == expected for call in calls)
        schemas = {tool.name: tool.input_schema for tool in (LIGHT, ORDER, EVENT)}
        counts["valid"] += any(
            call.name in schemas and first_violation(dict(call.arguments), schemas[call.name]) is None
            for call in calls[:1]
        )
    return f"{len(CALLS)} questions: {json.dumps(counts)}"


async def main() -> None:
    """Run the bench and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--first", type=int, default=None)
    parser.add_argument("--free", action="store_true", help="nothing is held, to compare with")
    parser.add_argument("--tool-calls", action="store_true", help="calls of three tools in place of the schemas")
    parser.add_argument("--quiet", action="store_true")
    arguments = parser.parse_args()
    config = load_config(env={**os.environ, "RKLLM_MCP_MODEL__NAME": arguments.model})
    folder = choose_model(config.model, emulated=False)
    async with open_engine(engine_settings(config, folder)) as engine:
        await engine.ready()
        held = None if arguments.free else HeldLimits(seconds=math.inf)
        model = RkllmModel(engine, model_form(config, folder), held=held)
        name = "free" if arguments.free else "held"
        if arguments.tool_calls:
            print(name, await measure_calls(model))
            return
        tally = await measure(model, arguments.first, is_free=arguments.free, is_shown=not arguments.quiet)
        print(*tally.fell_back, tally.line(name), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
