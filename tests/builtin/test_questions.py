"""Tools that find their values in the user's own words: sums, quantities, times and days, files."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pytest

from rkllm_base.days import days_in
from rkllm_base.numbers import with_digits
from rkllm_mcp.builtin.calculator import calculate
from rkllm_mcp.builtin.clock import clock_question
from rkllm_mcp.builtin.files import list_of_question, read_of_question, search_of_question
from rkllm_mcp.builtin.function import QUESTION, LocalToolError
from rkllm_mcp.builtin.server import open_builtin
from rkllm_mcp.builtin.units import convert_question
from rkllm_mcp.builtin.worded_sums import expression_of
from rkllm_mcp.config.servers import BuiltinServer, BuiltinTool
from rkllm_mcp.mcp_client.wire_log import LastLines
from rkllm_mcp.messages import ANSWER
from rkllm_mcp.protocols import NO_CONTEXT

pytestmark = pytest.mark.anyio
HERE = timezone(timedelta(hours=9), "JST")
NOW = datetime(2026, 11, 29, 11, 35, tzinfo=HERE)


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("二千三百足す四千八百", "2300足す4800"),
        ("100万円", "1000000円"),
        ("3万5千", "35000"),
        ("三億", "300000000"),
        ("twenty five", "25"),
        ("three hundred and two", "302"),
        ("two thousand", "2000"),
        ("1,450 a week", "1450 a week"),
        ("３週間", "3週間"),
        ("十", "10"),
    ],
)
def test_numbers_in_words_become_digits(text: str, digits: str) -> None:
    assert with_digits(text) == digits


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("tomorrow and the day after tomorrow", ["2026-11-30", "2026-12-01"]),
        ("あさって", ["2026-12-01"]),
        ("in 2 weeks", ["2026-12-13"]),
        ("a month from now", ["2026-12-29"]),
        ("a year ago", ["2025-11-29"]),
        ("how many days in a year", []),
        ("10 days ago", ["2026-11-19"]),
        ("3か月後", ["2027-02-28"]),
        ("4 July 1999", ["1999-07-04"]),
        ("Dec. 3rd", ["2026-12-03"]),
        ("1985年3月14日", ["1985-03-14"]),
        ("3月14日", ["2027-03-14"]),
        ("next friday", ["2026-12-04"]),
        ("来週の水曜", ["2026-12-02"]),
        ("クリスマスまで", ["2026-12-25"]),
        ("new year's day 2028", ["2028-01-01"]),
        ("31 February", []),
        ("the last 3 days", []),
    ],
)
def test_days_in_words_become_dates(text: str, days: list[str]) -> None:
    assert [day.isoformat() for day in days_in(text, date(2026, 11, 29))] == days


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("what is 12 percent of 50?", "50*12/100"),
        ("a coat for 120, 25% off", "120*(1-25/100)"),
        ("2980円の2割引", "2980*(1-20/100)"),
        ("1割5分引きで2000円", "2000*(1-15/100)"),
        ("税込みで1100円、税率10%、税抜きは？", "1100/(1+10/100)"),
        ("800円に消費税8%", "800*(1+8/100)"),
        ("9 is what percent of 60", "9/60*100"),
        ("60人のうち9人は何%", "9/60*100"),
        ("share 45 between 6 people", "45/6"),
        ("mean of 3, 4 and 8", "(3+4+8)/3"),
        ("350円のパンを4個と90円の卵が2つ、合計いくら", "350*4+90*2"),
        ("1袋180円のお茶を5袋でいくら", "180*5"),
        ("2 adults at 14.50 each plus a kid for 7, how much", "14.50*2+7"),
        ("5 mugs, $6.40 each", "6.40*5"),
        ("500円玉で120円のを3本買ったおつりは", ""),
        ("9千円を3人で割り勘", "9000/3"),
        ("4人で飲んで17360円やった。割り勘で一人なんぼ", "17360/4"),
        ("6 of us split 90 dollars", "90/6"),
        ("2 calls at 10 and 3 at 4", ""),
        ("三足す五", "3+5"),
        ("7かける8", "7*8"),
        ("the root of 81", "sqrt(81)"),
        ("3の4乗", "(3**4)"),
        ("15 squared plus 8 squared", "(15**2)+(8**2)"),
        ("税抜1280円 消費税10%入れたら", "1280*(1+10/100)"),
        ("1408円は税抜だと、10%", "1408/(1+10/100)"),
        ("月3980円だと年間いくら", "3980*12"),
        ("9.99 a month, how much is that a year", "9.99*12"),
        ("wages 14.20 an hour and I worked 6 hours", "14.20*6"),
        ("時給1300円で7時間半", "1300*7.5"),
        ("毎月1200円を3年", "1200*12*3"),
        ("日給9000円で4日間", "9000*4"),
        ("週3回で2年", ""),
        ("200 250 how many percent", ""),
        ("税込880円から税10%を抜いたら", "880/(1+10/100)"),
        ("12本入りを6箱", "12*6"),
        ("4000円を5日で割ると1日いくら", "4000/5"),
        ("来月の3日から1年", ""),
        ("980 1", ""),
        ("I was born in 1984", ""),
        ("3 boxes of 24 and one of 18", ""),
        ("from 9 to 5", ""),
        ("on 2026-11-29", ""),
    ],
)
def test_a_sum_in_words_is_read_as_a_whole_or_not_at_all(text: str, expression: str) -> None:
    assert expression_of(text) == expression


def test_the_calculator_takes_words_and_percents_of_a_sum() -> None:
    assert calculate("5600 + 10%") == "6160"
    assert calculate("2980円の2割引") == "2980*(1-20/100) = 2384"


@pytest.mark.parametrize(
    ("question", "line"),
    [
        ("72 f in c", "72 f = 22.22222 c"),
        ("tin says 3 us gallons of paint how many litres is that", "3 gallons = 11.35624 litres"),
        ("2 imperial pints in ml", "2 imperialpints = 1136.523 ml"),
        ("6 fl oz in ml", "6 floz = 177.4412 ml"),
        ("マイナス10℃は華氏でなんぼ", "-10 °c = 14 華氏"),
        ("what is minus 40 c in f", "-40 c = -40 f"),
        ("体温98.6Fって何度", "98.6 f = 37 °C"),
        ("how many grams is a pound?", "1 pound = 453.5924 grams"),
        ("half a mile in m", "0.5 mile = 804.672 m"),
        ("minutes in a quarter of an hour", "0.25 hour = 15 minutes"),
        ("6 foot 2 in in cm", "6 foot 2 in = 187.96 cm"),
        ("華氏50度は摂氏何度", "50 華氏 = 10 摂氏"),
        ("時速50マイルは時速何キロ", "50 mph = 80.4672 km/h"),
        ("小さじ2杯は何ml", "2 小さじ = 10 ml"),
        ("10坪は何平米？", "10 坪 = 33.05785 平米"),
        ("300 K in celsius", "300 k = 26.85 celsius"),
        ("9畳を坪で", "9 畳 = 4.41045 坪"),
    ],
)
def test_a_quantity_in_a_question_is_converted(question: str, line: str) -> None:
    assert convert_question(question) == line


@pytest.mark.parametrize(
    "question",
    [
        "and 25?",
        "how tall are you",
        "5 km",
        "3 kg in litres and pounds",
        "2年で合計いくら",
        "miles of a 10k",
        "85 every week for 52 weeks",
    ],
)
def test_a_question_without_quantity_or_wanted_unit_is_not_converted(question: str) -> None:
    with pytest.raises(LocalToolError):
        convert_question(question)


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("what time is it", "It is 11:35 (11:35 am) on Sunday, 29 November 2026."),
        ("今何時", "今は2026年(令和8年)11月29日(日曜日)午前11時35分(11:35)です。"),
        ("and in Sydney?", "In Sydney it is 13:35 (1:35 pm) on Sunday, 29 November 2026."),
        (
            "3pm Berlin time, when is that here?",
            "15:00 (3:00 pm) in Berlin is 23:00 (11:00 pm) in your place, on Sunday, 29 November 2026.",
        ),
        ("whats the time in nyc", "In nyc it is 21:35 (9:35 pm) on Saturday, 28 November 2026."),
        ("NYCは何時", "NYCは今、2026年(令和8年)11月28日(土曜日)午後9時35分(21:35)です。"),
        (
            "she calls at 9 in the evening UK time, when is that here",
            "21:00 (9:00 pm) in UK is 06:00 (6:00 am) in your place, on Monday, 30 November 2026.",
        ),
        ("いまロスは何時", "ロスは今、2026年(令和8年)11月28日(土曜日)午後6時35分(18:35)です。"),
        ("フードロスのクロスワード、今何時", "今は2026年(令和8年)11月29日(日曜日)午前11時35分(11:35)です。"),
        ("time in LA?", "In LA it is 18:35 (6:35 pm) on Saturday, 28 November 2026."),
        (
            "call w/ LA at 10am their time, when is that for me",
            "10:00 (10:00 am) in LA is 03:00 (3:00 am) in your place, on Sunday, 29 November 2026.",
        ),
        (
            "こちらの夜8時はロンドンでは？",
            "こちらの午後8時00分(20:00)は、ロンドンでは2026年(令和8年)11月29日(日曜日)午前11時00分(11:00)です。",
        ),
        (
            "how many days until 9 December",
            "In 10 days it is Wednesday, 9 December 2026 (today is Sunday, 29 November 2026).",
        ),
        (
            "how many days to christmas",
            "In 26 days it is Friday, 25 December 2026 (today is Sunday, 29 November 2026).",
        ),
        ("おととい", "2日前は2026年(令和8年)11月27日(金曜日)です（今日は2026年(令和8年)11月29日(日曜日)）。"),
    ],
)
def test_the_clock_answers_a_question_in_a_sentence_of_its_language(question: str, sentence: str) -> None:
    assert clock_question(lambda: NOW, question) == sentence


@pytest.mark.parametrize("question", ["how many days till my trip", "あと何日で遠足？"])
def test_the_time_here_is_not_an_answer_about_a_day_that_is_not_known(question: str) -> None:
    with pytest.raises(LocalToolError, match=r"does not name a day|どの日"):
        clock_question(lambda: NOW, question)


@pytest.mark.parametrize("question", ["what time is it in Narnia", "time in kushiro"])
def test_the_time_here_is_not_an_answer_about_a_place_that_is_not_known(question: str) -> None:
    with pytest.raises(LocalToolError, match="does not name two places"):
        clock_question(lambda: NOW, question)


def test_a_time_is_not_converted_where_no_other_place_is_known() -> None:
    with pytest.raises(LocalToolError, match="does not name two places"):
        clock_question(lambda: NOW, "the meeting is at 10am in Gotham, when is that for me?")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "files"
    (place / "songs").mkdir(parents=True)
    (place / "plan.md").write_text("- Monday: swimming\n- Friday: choir\n", "utf-8")
    (place / "songs" / "evening.txt").write_text("The moon has risen\n", "utf-8")
    (place / "やること.txt").write_text("玉ねぎを植える\n", "utf-8")
    return place


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("what's on my plan?", "plan.md:\n- Monday: swimming\n- Friday: choir\n"),
        ("show me plan.txt", "plan.md:\n- Monday: swimming\n- Friday: choir\n"),
        ("when is choir?", "plan.md:\n- Monday: swimming\n- Friday: choir"),
        ("玉ねぎはどこに書いた？", "やること.txt:\n玉ねぎを植える"),
    ],
)
def test_a_file_is_found_by_its_name_or_content_in_words(folder: Path, question: str, text: str) -> None:
    assert read_of_question(folder, question) == text


def test_a_folder_is_found_by_its_name_and_what_is_missing_is_said(folder: Path) -> None:
    assert list_of_question(folder, "what is in the songs folder") == "evening.txt (19 bytes)"
    assert list_of_question(folder, "my files?").splitlines()[0] == "songs/"
    nothing = "No file has any of these words in its name or content. The files are: {}."
    (folder / "nothing").mkdir()
    assert search_of_question(folder / "nothing", "請求書は?") == "フォルダにファイルはありません。"
    assert search_of_question(folder, "invoices?") == nothing.format("plan.md, やること.txt, songs/evening.txt")


async def test_a_built_in_tool_takes_the_question_and_an_error_has_its_suggestions(folder: Path) -> None:
    spec = BuiltinServer(
        name="b", folder=folder, tools=(BuiltinTool(name="calculator"), BuiltinTool(name="device_status"))
    )
    async with open_builtin(spec, LastLines().add) as tools:
        assert {tool.name: tool.question_argument for tool in tools.tools} == {
            **dict.fromkeys(
                ("list_directory", "read_text_file", "search_files", "calculator", "device_status"), QUESTION
            )
        }
        answered = await tools.call("calculator", {QUESTION: "18% of 50"}, NO_CONTEXT)
        missing = await tools.call("read_text_file", {"path": "plans.txt"}, NO_CONTEXT)
        unclear = await tools.call("calculator", {QUESTION: "how old is she?"}, NO_CONTEXT)
    assert answered["content"][0]["text"] == "50*18/100 = 9"
    assert missing["content"][0]["text"] == "There is no plans.txt; there is plan.md."
    assert missing["_meta"]["rkllm-mcp/error"] == {"kind": "not_found", "what": "plans.txt", "suggestions": ["plan.md"]}
    assert (unclear["isError"], unclear["_meta"]["rkllm-mcp/error"]["kind"]) == (True, "unclear")


async def test_a_question_is_about_the_files_that_have_its_words_and_a_sentence_is_marked_as_an_answer(
    folder: Path,
) -> None:
    (folder / "trip.txt").write_text("Hotel: booking number KM-3381")
    spec = BuiltinServer(name="b", folder=folder, tools=(BuiltinTool(name="calculator"),))
    async with open_builtin(spec, LastLines().add) as tools:
        about = await tools.shares_in_data("what's my booking number for the hotel")
        named = await tools.shares_in_data("what's in my plan?")
        other = await tools.shares_in_data("who painted the mona lisa")
        (folder / "trip.txt").write_text("The Mona Lisa was painted by Leonardo, it says.")
        changed = await tools.shares_in_data("who painted the mona lisa")
        answered = await tools.call("calculator", {QUESTION: "18% of 50"}, NO_CONTEXT)
        calculated = await tools.call("calculator", {"expression": "18*50"}, NO_CONTEXT)
    assert about["search_files"] == 1
    assert named["read_text_file"] == 1
    assert (other["search_files"], changed["search_files"]) == (0, 1)
    assert (answered.get("_meta"), calculated.get("_meta")) == ({ANSWER: True}, None)
