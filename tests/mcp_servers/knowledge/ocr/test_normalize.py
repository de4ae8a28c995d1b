"""What normalize_ocr_text answers, with a language model and without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from mcp_servers.knowledge.errors import ModelServiceUnavailableError, TextTooLongError
from mcp_servers.knowledge.ocr.normalize import INSTRUCTIONS, NormalizedText, excerpts, normalize, parse_answer
from mcp_servers.knowledge.ocr.rules import correct_long_marks

pytestmark = pytest.mark.anyio

MISSION = "マイナビキャリ-では、キャリアコンサルティングを提供しています。"
UNSURE = "ユーザ-IDの一覧"
WITHOUT_EVIDENCE = "マイナビキャリ-では、職業の相談を提供しています。"


@dataclass
class ScriptedJudge:
    """Says what it is told to say, and remembers what it was asked."""

    say: Callable[[str], str]
    asked: list[str] = field(default_factory=list[str])

    async def answer(self, instructions: str, text: str) -> str:
        assert instructions == INSTRUCTIONS
        self.asked.append(text)
        return self.say(text)


def out_of_order(_: str) -> str:
    raise ModelServiceUnavailableError("no route")


@pytest.mark.parametrize(
    ("text", "corrected"),
    [
        ("マネ-ジャ-", "マネージャー"),
        ("ユ-ザ-", "ユーザー"),
        ("self-service", "self-service"),
        ("e-mail", "e-mail"),
        ("サ-ビス（service）のガイドライン", "サービス（service）のガイドライン"),
        # The text has the word with the letter that was misread.
        (MISSION, "マイナビキャリアでは、キャリアコンサルティングを提供しています。"),
        ("", ""),
    ],
)
async def test_the_missions_examples_are_answered_without_a_model(text: str, corrected: str) -> None:
    result = await normalize(text)
    assert (result.original_text, result.normalized_text, result.status) == (text, corrected, "success")
    assert correct_long_marks(text) == corrected


async def test_a_model_is_not_asked_where_the_rules_are_sure() -> None:
    judge = ScriptedJudge(out_of_order)
    assert (await normalize("コンピュ-タ-とロンドン-パリ", judge.answer)).status == "success"
    assert judge.asked == []


async def test_a_model_decides_where_they_are_not_and_sees_the_mark_as_it_was_read() -> None:
    judge = ScriptedJudge(lambda text: text)
    text = f"サ-ビスの{UNSURE}"
    assert await normalize(text, judge.answer) == NormalizedText(text, "サービスのユーザ-IDの一覧")
    assert judge.asked == ["サービスのユーザ-IDの一覧"]
    assert (await normalize(text)).normalized_text == "サービスのユーザーIDの一覧"
    assert (await normalize(text)).unsure == (8,)


async def test_a_model_decides_the_letter_where_the_text_has_no_evidence_and_it_stays_unsure_without_one() -> None:
    corrected = WITHOUT_EVIDENCE.replace("-", "ア")
    judge = ScriptedJudge(lambda text: text.replace("キャリ-", "キャリア"))
    assert await normalize(WITHOUT_EVIDENCE, judge.answer) == NormalizedText(WITHOUT_EVIDENCE, corrected)
    alone = await normalize(WITHOUT_EVIDENCE)
    assert alone.status == "success"
    assert (alone.normalized_text, alone.unsure) == (WITHOUT_EVIDENCE.replace("-", "ー"), (7,))


@pytest.mark.parametrize(
    "answer",
    ["申し訳ありませんが、できません。", "ユーザーIDの表", "ユーザーidの一覧", "ユーザ!IDの一覧", "ユーザIDの一覧", ""],
    ids=["refusal", "another word", "another case", "no mark", "shorter", "nothing"],
)
async def test_an_answer_that_changes_other_text_is_discarded_with_a_report(answer: str) -> None:
    result = await normalize(UNSURE, ScriptedJudge(lambda _: answer).answer)
    assert result.normalized_text == "ユーザーIDの一覧"
    assert result.status == "success"
    assert result.unsure == (3,)


async def test_a_dash_left_as_it_was_is_not_an_answer_to_which_letter_it_is() -> None:
    result = await normalize(WITHOUT_EVIDENCE, ScriptedJudge(lambda text: text).answer)
    assert result.normalized_text == WITHOUT_EVIDENCE.replace("-", "ー")
    assert (result.status, result.unsure) == ("success", (7,))


async def test_without_the_models_service_the_rules_answer_and_the_status_says_so() -> None:
    result = await normalize(UNSURE, ScriptedJudge(out_of_order).answer)
    assert result.normalized_text == "ユーザーIDの一覧"
    assert result.status == "LLM service unavailable: no route; decided by rules alone"


async def test_ten_thousand_characters_are_taken_and_no_more() -> None:
    assert len((await normalize("サ-ビス。" * 2000)).normalized_text) == 10_000
    with pytest.raises(TextTooLongError, match=r"Text too long \(max 10000 chars\)"):
        await normalize("ア" * 10_001)


async def test_a_model_is_asked_about_a_bounded_number_of_places() -> None:
    judge = ScriptedJudge(lambda text: text)
    result = await normalize("\n".join([UNSURE] * 60), judge.answer)
    assert judge.asked[0].splitlines() == [UNSURE] * 40
    assert result.normalized_text.splitlines() == [UNSURE] * 40 + ["ユーザーIDの一覧"] * 20
    assert (result.status, len(result.unsure)) == ("success", 20)


def test_excerpts_are_short_stay_in_their_line_and_share_one_when_they_are_near() -> None:
    text = "一行目\n" + "あ" * 50 + "ア-B、イ-C" + "い" * 50 + "\n三行目"
    (excerpt,) = excerpts(text, [text.index("ア-") + 1, text.index("イ-") + 1])
    assert excerpt.text == "あ" * 29 + "ア-B、イ-C" + "い" * 29
    assert len(excerpts("\n".join(["ア-B"] * 3), [1, 5, 9])) == 3


@pytest.mark.parametrize(
    "answer", ["ユーザーID", "1. ユーザーID", "「ユーザーID」", "  ユーザーID  ", "直しました:\nユーザーID\r\n"]
)
def test_what_models_put_around_a_line_does_not_matter(answer: str) -> None:
    assert parse_answer(excerpts("ユーザ-ID", [3]), answer) == {3: "ー"}


def test_lines_that_read_the_same_are_judged_in_their_order() -> None:
    asked = excerpts("ユーザ-ID\nユーザ-ID", [3, 10])
    assert parse_answer(asked, "ユーザ-ID\nユーザーID") == {3: "-", 10: "ー"}


def test_a_verdict_takes_the_width_of_its_place_and_any_dash_is_the_one_that_was_there() -> None:
    assert parse_answer(excerpts("ﾕｰｻﾞ-ID", [4]), "ﾕｰｻﾞーID") == {4: "ｰ"}
    assert parse_answer(excerpts("ユーザ−ID", [3]), "ユーザ-ID") == {3: "−"}
