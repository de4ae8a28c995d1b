"""Questions that continue the one before with another value."""

from __future__ import annotations

import pytest

from rkllm_mcp.tools.follow_ups import continued_question, continued_value


@pytest.mark.parametrize(
    ("before", "text", "asked"),
    [
        ("whats 17.5% of 240", "and of 380?", "whats 17.5% of 380"),
        ("whats 17.5% of 240", "and 20%?", "whats 20% of 240"),
        ("98円が12個でいくら", "15個なら？", "98円が15個でいくら"),
        ("4人で17360円、割り勘で一人なんぼ", "5人なら？", "5人で17360円、割り勘で1人なんぼ"),
        ("what time is it in london", "and in sydney?", "what time is it in sydney"),
        ("明日の東京の天気は", "大阪は？", "明日の大阪の天気は"),
        ("東京の天気", "明日は？", "東京の天気 明日"),
        ("5 foot 10 in cm?", "and in inches?", "5 foot 10 in inches?"),
        ("10 kg in pounds", "12.5 kg?", "12.5 kg in pounds"),
        ("10マイル走った。何キロ？", "じゃあ15マイルは？", "15マイル走った。何キロ?"),
    ],
)
def test_a_value_alone_takes_the_place_of_the_one_of_its_kind(before: str, text: str, asked: str) -> None:
    assert continued_question(before, text) == asked


@pytest.mark.parametrize(
    "text",
    [
        "18% of 245?",
        "10 kg in pounds",
        "ok thanks",
        "really?",
        "おやすみなさい",
        "3人兄弟の末っ子です",
        "how hot is it in Paris?",
        "",
        "?",
    ],
)
def test_a_text_with_own_words_does_not_continue_a_question(text: str) -> None:
    assert continued_question("17.5% of 240 kg in pounds for 3 people in london", text) == ""


def test_a_number_does_not_continue_a_question_without_one() -> None:
    assert continued_question("what time is it in london", "and 380?") == ""


@pytest.mark.parametrize(
    ("answer", "text", "asked"),
    [
        ("249*(1-15/100) = 211.65", "now split that by 3", "211.65 now split that by 3"),
        ("2000*(1-30/100) = 1400", "それに消費税10%つけると", "1400 それに消費税10%つけると"),
        ("12.5*4 = 50", "times 3?", "50 times 3?"),
        ("12.5*4 = 50", "what is 12 times 3?", ""),
        ("12.5*4 = 50", "thanks, see you at 3", ""),
        ("72 f = 22.22222 c", "times 3?", ""),
        ("It is 11:35.", "times 3?", ""),
        ("2本です。", "1本238円だと全部でいくら", "2本 1本238円だと全部でいくら"),
        ("In Osaka: high 17 °C, low 9 °C", "whats that in fahrenheit", "17 °C whats that in fahrenheit"),
        ("200 g flour, 300 ml milk", "カップだと何杯?", "300 ml カップだと何杯?"),
        ("今は2026年11月30日です。", "クリスマスまであと何日?", ""),
        ("The meeting is on 3 December.", "how many days till that", "3 December. how many days till that"),
        ("発表会は2027年2月14日です。", "その日まであと何日", "2027年2月14日 その日まであと何日"),
        ("参加費は2,500円です。", "3人だと全部でいくら", "2500 * 3"),
        ("A lesson is 14 dollars.", "what would be the total for 6", "14 * 6"),
        ("1000*6 = 6000", "それの2割は？", "6000の2割は？"),
        ("1000*6 = 6000", "25% of that", "25% of 6000"),
        ("There are 14 lessons.", "what would be the total for 6", ""),
    ],
)
def test_a_question_without_its_first_number_goes_on_with_that_of_the_answer_before(
    answer: str, text: str, asked: str
) -> None:
    assert continued_value(["Good.", answer], text) == asked


def test_two_answers_of_one_number_are_added() -> None:
    assert continued_value(["82000円です。", "The food is 45000 yen."], "足したらいくら") == "82000 + 45000"
    assert continued_value(["Hello.", "The food is 45000 yen."], "足したらいくら") == ""
