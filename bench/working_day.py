"""One day of one household with its board: twelve conversations in order, as values.

A ``Turn`` is a question, the calls that the model makes before it answers, with what the tools say, and the answer.
``Edit`` takes the last question of its conversation back and asks it in other words. ``RESTARTS_BEFORE`` names the
conversations before which the board was switched off. All of it is written for this project.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rkllm_mcp.messages import ToolSpec

SYSTEM = (
    "You are the assistant of a small household, running on a board in the living room. Answer in the language of the "
    "question, briefly and in plain words. Use a tool when the answer depends on the world; never invent a result."
)


@dataclass(frozen=True)
class Call:
    """A call and what came back."""

    tool: str
    arguments: dict[str, Any]
    result: str


@dataclass(frozen=True)
class Turn:
    """A question and all that follows until its answer; each entry of ``rounds`` is one round of calls."""

    question: str
    answer: str
    rounds: tuple[tuple[Call, ...], ...] = ()
    thought: str = ""


@dataclass(frozen=True)
class Edit:
    """The question before is taken back, answer and all, and asked like this."""

    turn: Turn


Step: TypeAlias = Turn | Edit


def _tool(name: str, description: str, required: str = "", **properties: str) -> ToolSpec:
    """A tool whose parameters are given as ``name="type: description"``."""
    schema = {
        key: {"type": text.split(": ")[0], "description": text.split(": ", 1)[1]} for key, text in properties.items()
    }
    return ToolSpec(name, description, {"type": "object", "properties": schema, "required": required.split()})


TOOLS: Sequence[ToolSpec] = (
    _tool(
        "get_weather",
        "Weather forecast for a place in Japan: today, tomorrow and the week.",
        "location",
        location="string: A city, town or prefecture, in Japanese or English",
        days="integer: How many days, 1 to 7",
    ),
    _tool("get_current_time", "Current time in a time zone.", "timezone", timezone="string: IANA time zone name"),
    _tool(
        "convert_time",
        "Convert a time between two time zones.",
        "source_timezone time target_timezone",
        source_timezone="string: IANA time zone name",
        time="string: 24-hour HH:MM",
        target_timezone="string: IANA time zone name",
    ),
    _tool(
        "read_text_file",
        "Read the complete contents of a text file inside the shared folder.",
        "path",
        path="string: The file",
        head="integer: Only the first lines",
    ),
    _tool(
        "write_file",
        "Create a new file or completely overwrite an existing one inside the shared folder.",
        "path content",
        path="string: The file",
        content="string: Its new contents",
    ),
    _tool("list_directory", "Files and folders of a folder.", "path", path="string: The folder"),
    _tool(
        "search_files",
        "Find files and folders whose name matches a pattern, recursively.",
        "path pattern",
        path="string: Where to begin",
        pattern="string: A glob such as *.txt",
    ),
    _tool("move_file", "Move or rename a file.", "source destination", source="string: From", destination="string: To"),
    _tool(
        "query_database",
        "Run a read-only SQL query on the household database and return its rows.",
        "query",
        query="string: A SELECT statement",
    ),
    _tool("list_tables", "Tables of the household database and their columns."),
    _tool(
        "search_documents",
        "Find passages in the household's documents: manuals, contracts, letters.",
        "query",
        query="string: What to look for",
        max_results="integer: At most this many",
    ),
    _tool("fetch_page", "Fetch a web page and return it as Markdown.", "url", url="string: The address"),
    _tool(
        "set_light",
        "Switch a light on or off, or dim it.",
        "room state",
        room="string: kitchen, bedroom, office or hall",
        state="string: on or off",
        brightness="number: 0 to 100",
    ),
    _tool(
        "set_heating",
        "Set the temperature of a room.",
        "room celsius",
        room="string: The room",
        celsius="number: Wanted temperature",
    ),
    _tool("get_sensors", "Temperature, humidity and CO2 of every room."),
    _tool(
        "add_event",
        "Put an event into the family calendar.",
        "title start",
        title="string: What",
        start="string: ISO 8601 date and time",
        minutes="integer: How long",
    ),
    _tool("list_events", "Events of the family calendar on a day.", "day", day="string: ISO 8601 date"),
    _tool("add_to_list", "Put things on the shopping list.", "items", items="string: Things, separated by commas"),
    _tool("calculate", "Evaluate an arithmetic expression.", "expression", expression="string: Such as 3*(4+5)"),
    _tool("device_status", "NPU load, temperature and memory of the board."),
)


def _rows(*rows: dict[str, Any]) -> str:
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"))


_FORECAST = json.dumps(
    {
        "location": "東京地方",
        "published": "2026-11-21T05:00+09:00",
        "days": [
            {"date": "2026-11-21", "weather": "晴れ 昼過ぎ から くもり", "low": 8, "high": 16, "rain": [0, 10, 20, 20]},
            {"date": "2026-11-22", "weather": "くもり 夕方 一時 雨", "low": 9, "high": 14, "rain": [20, 40, 60, 50]},
        ],
    },
    ensure_ascii=False,
    separators=(",", ":"),
)
_SENSORS = json.dumps(
    {"kitchen": {"c": 19.5, "rh": 48, "co2": 640}, "office": {"c": 17.8, "rh": 44, "co2": 1210}, "bedroom": {"c": 18.9}}
)
_WARRANTY = (
    "[washing-machine.pdf, page 31] The warranty covers parts and labour for two years from the date of purchase. The "
    "motor is covered for ten years. Filters, hoses and damage by freezing are excluded. Keep the receipt."
)
_RENT = (
    "[賃貸借契約書.pdf, 4 ページ] 第十二条 借主は、本契約を解約しようとするときは、解約日の一か月前までに書面により"
    "貸主に通知しなければならない。通知が遅れた場合は、一か月分の賃料に相当する額を支払う。"
)

DAY: Sequence[Sequence[Step]] = (
    (
        Turn(
            "おはよう。今日の東京の天気は？",
            "おはようございます。今日の東京は晴れ、昼過ぎからくもりで、最高気温は16度です。",
            ((Call("get_weather", {"location": "東京"}, _FORECAST),),),
        ),
        Turn("傘はいる？", "今日は降水確率が20%までなので、なくても大丈夫そうです。明日は夕方に雨の予報です。"),
        Turn(
            "今日の予定は？",
            "10時に歯医者、15時半に保護者会があります。",
            ((Call("list_events", {"day": "2026-11-21"}, _rows({"10:00": "歯医者"}, {"15:30": "保護者会"})),),),
        ),
        Turn("ありがとう。", "行ってらっしゃい。"),
    ),
    (
        Turn(
            "How warm is it in the office, and is the air all right?",
            "17.8 °C, and the CO2 is at 1210 ppm: open a window for a few minutes.",
            ((Call("get_sensors", {}, _SENSORS),),),
        ),
        Turn(
            "Make it 20 degrees there and switch the light on.",
            "The office is set to 20 °C and its light is on.",
            (
                (
                    Call("set_heating", {"room": "office", "celsius": 20}, '{"ok":true,"from":17.8}'),
                    Call("set_light", {"room": "office", "state": "on"}, '{"ok":true}'),
                ),
            ),
        ),
        Edit(
            Turn(
                "Make it 19 degrees there, and the light at half.",
                "The office is set to 19 °C and its light is at 50 %.",
                (
                    (
                        Call("set_heating", {"room": "office", "celsius": 19}, '{"ok":true,"from":17.9}'),
                        Call("set_light", {"room": "office", "state": "on", "brightness": 50}, '{"ok":true}'),
                    ),
                ),
            )
        ),
        Turn("Thanks.", "You're welcome."),
    ),
    (
        Turn(
            "Is the motor of our washing machine still under warranty? We bought it in 2021.",
            "Yes: the motor is covered for ten years, so until 2031. Parts and labour ended in 2023 (manual, page 31).",
            ((Call("search_documents", {"query": "washing machine warranty motor"}, _WARRANTY),),),
            thought="The manual should say how long the motor is covered; I will look it up before I compute the year.",
        ),
        Turn("What is excluded?", "Filters, hoses and damage by freezing."),
        Turn("Does that include the drain pump?", "The passage does not say; a pump is a part, so two years apply."),
    ),
    (
        Turn(
            "先月の電気代はいくらだった？その前の月と比べて。",
            "10月は8,420円、9月は11,960円でした。3,540円下がっています。",
            (
                (Call("list_tables", {}, _rows({"table": "bills", "columns": ["month", "kind", "yen"]})),),
                (
                    Call(
                        "query_database",
                        {"query": "SELECT month, yen FROM bills WHERE kind = 'power' ORDER BY month DESC LIMIT 2"},
                        _rows({"month": "2026-10", "yen": 8420}, {"month": "2026-09", "yen": 11960}),
                    ),
                ),
                (Call("calculate", {"expression": "11960-8420"}, "3540"),),
            ),
            thought="まず表の名前を確かめてから、電気の行を二か月分読む。差は計算機に任せる。",
        ),
        Turn("なぜ下がったと思う？", "9月はまだ冷房を使っていた時期なので、その分だと考えられます。"),
        Turn(
            "ガス代も見て。",
            "ガスは10月が4,310円、9月が3,080円で、こちらは上がっています。",
            (
                (
                    Call(
                        "query_database",
                        {"query": "SELECT month, yen FROM bills WHERE kind = 'gas' ORDER BY month DESC LIMIT 2"},
                        _rows({"month": "2026-10", "yen": 4310}, {"month": "2026-09", "yen": 3080}),
                    ),
                ),
            ),
        ),
    ),
    (
        Turn("What is a good way to keep basil alive in winter?", "Light, warmth above 15 °C, and little water."),
        Turn("Which window?", "South, away from cold glass at night."),
        Edit(Turn("Which window, and how often water?", "South; water when the top of the soil is dry.")),
        Turn(
            "Put a plant lamp on the shopping list.",
            "It is on the list.",
            ((Call("add_to_list", {"items": "plant lamp"}, '{"ok":true,"items":7}'),),),
        ),
    ),
    (
        Turn(
            "When it is nine in the evening here, what time is it for Anna in Lisbon?",
            "Twelve noon in Lisbon.",
            (
                (
                    Call(
                        "convert_time",
                        {"source_timezone": "Asia/Tokyo", "time": "21:00", "target_timezone": "Europe/Lisbon"},
                        '{"target":{"datetime":"2026-11-21T12:00:00+00:00"},"time_difference":"-9.0h"}',
                    ),
                ),
            ),
        ),
        Turn(
            "Then put a call with her at that time tomorrow into the calendar, half an hour.",
            "“Call with Anna” is in the calendar: tomorrow 21:00, 30 minutes.",
            (
                (
                    Call(
                        "add_event",
                        {"title": "Call with Anna", "start": "2026-11-22T21:00:00+09:00", "minutes": 30},
                        '{"ok":true,"id":"e193"}',
                    ),
                ),
            ),
        ),
    ),
    (
        Turn(
            "共有フォルダに入っている今月のメモを要約して。",
            "11月のメモは、七五三の準備、タイヤ交換の予約、年賀状の枚数についてです。",
            (
                (
                    Call(
                        "search_files",
                        {"path": "/shared", "pattern": "*2026-11*"},
                        "/shared/memo/2026-11.md\n/shared/photo/2026-11-03.jpg",
                    ),
                ),
                (
                    Call(
                        "read_text_file",
                        {"path": "/shared/memo/2026-11.md"},
                        "# 11月\n- 七五三: 15日、写真館 10時、着物は先に送る\n- タイヤ交換: 28日に予約、保管料を確認\n"
                        "- 年賀状: 42枚、住所録を直す(佐藤さん引っ越し)\n- ストーブの点検を頼む",
                    ),
                ),
            ),
            thought="フォルダの中の今月の名前のファイルを探し、見つかったメモを読んでから要約する。",
        ),
        Turn(
            "佐藤さんの件を todo.txt に書いておいて。",
            "todo.txt に「佐藤さんの住所を住所録で直す」と書きました。",
            (
                (
                    Call(
                        "write_file",
                        {"path": "/shared/todo.txt", "content": "佐藤さんの住所を住所録で直す\n"},
                        "Successfully wrote to /shared/todo.txt",
                    ),
                ),
            ),
        ),
        Turn("助かる。", "どういたしまして。"),
    ),
    (
        Turn(
            "解約の予告はいつまでに必要？契約書で確認して。",
            "解約日の一か月前までに書面で通知が必要です(契約書4ページ、第十二条)。",
            ((Call("search_documents", {"query": "解約 予告 期間"}, _RENT),),),
        ),
        Turn("遅れたら？", "一か月分の賃料に相当する額を支払うことになります。"),
        Edit(Turn("遅れたらいくら？", "一か月分の賃料と同じ額です。金額は契約書のこの条にはありません。")),
    ),
    (
        Turn("Tell me a short story about a lighthouse and a crow.", "The crow kept the lamp company. " * 14),
        Turn("A bit longer, with a storm.", "The night the storm came, the crow did not leave the rail. " * 14),
        Turn("And a happy end.", "In the morning the keeper left two fish on the rail, one for the crow. " * 8),
    ),
    (
        Turn(
            "How is the board doing?",
            "NPU at 34 %, 51 °C, 2.9 of 7.7 GB of memory in use.",
            ((Call("device_status", {}, '{"npu":[34,31,36],"celsius":51.2,"memory_mb":[2960,7890]}'),),),
        ),
        Turn("Is that hot?", "No. The board slows down at about 85 °C."),
    ),
    (
        Turn(
            "夕飯の買い物リストに、豆腐とねぎと味噌を足して。",
            "豆腐、ねぎ、味噌をリストに足しました。",
            ((Call("add_to_list", {"items": "豆腐, ねぎ, 味噌"}, '{"ok":true,"items":10}'),),),
        ),
        Turn(
            "味噌汁の作り方を簡単に。",
            "だしを温め、豆腐とねぎを入れ、火を止めてから味噌を溶きます。沸かさないのがこつです。",
        ),
        Turn("二人分だと味噌はどれくらい？", "大さじ2杯ほどです。"),
    ),
    (
        Turn(
            "Switch everything off for the night and tell me about tomorrow's weather.",
            "The lights are off. Tomorrow in Tokyo: cloudy, rain in the evening, 9 to 14 °C.",
            (
                (
                    Call("set_light", {"room": "kitchen", "state": "off"}, '{"ok":true}'),
                    Call("set_light", {"room": "office", "state": "off"}, '{"ok":true}'),
                    Call("get_weather", {"location": "東京", "days": 2}, _FORECAST),
                ),
            ),
        ),
        Turn("Good night.", "Good night."),
    ),
)
# The board was restarted for an update before the fifth, and lost its power before the tenth conversation.
RESTARTS_BEFORE = (4, 9)
