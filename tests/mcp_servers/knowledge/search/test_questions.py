"""Questions in a person's own words: document 004's examples, other words and spellings, and weak results."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bench.own_words import NO_DOCUMENT, outcomes, read_office
from mcp_servers.knowledge.library import Library, open_library
from mcp_servers.knowledge.results import NO_ANSWER_WARNING, search_output
from mcp_servers.knowledge.search.pipeline import LEAST_RESULTS, WEAK
from mcp_servers.knowledge.search.probability import PassageFigures, is_unanswered
from mcp_servers.knowledge.search.question import is_follow_up, understand
from mcp_servers.knowledge.types import DEFAULT_THRESHOLD, Hit, NewChunk, NewDocument, SearchRequest

pytestmark = pytest.mark.anyio

# The documents that the example queries of document 004 are about, with the words that it names for each.
EXAMPLES = {
    "アルムナイ": "マイナビアルムナイは、退職者と企業をつなぐプラットフォームです。再入社の機会を届けます。",
    "手当": "在宅で勤務する日には、1日200円のリモートワーク手当を支給します。月の上限は4,000円です。",
    "育成": "新入社員と管理職には研修制度があります。キャリアパスを上司と話し合い、スキル開発の講座を選べます。",
    "副業": "副業のルール: 申請方法は人事部への届出です。承認基準は本業に支障がなく、競合にあたらないことです。",
    "昼食": "食堂は11時から14時まで開いています。日替わりの定食とカレーがあります。",
}


@asynccontextmanager
async def library_of(folder: Path, documents: Mapping[str, str]) -> AsyncGenerator[tuple[Library, str], None]:
    """Open a library with one knowledge base of these documents."""
    async with open_library(folder) as library:
        base = await library.create("rules")
        for title, text in documents.items():
            await library.add(base.id, NewDocument(title, (NewChunk(text),), title, uri=title))
        yield library, base.id


async def found(folder: Path, documents: Mapping[str, str], query: str, threshold: float | None = None) -> list[Hit]:
    async with library_of(folder, documents) as (library, base_id):
        return list((await library.search(SearchRequest(query, base_id, threshold))).hits)


@pytest.mark.parametrize(
    ("query", "title", "threshold"),
    [
        ("マイナビのアルムナイサービスについて教えて", "アルムナイ", 0.7),
        ("リモートワーク手当の金額は？", "手当", 0.6),
        ("リモートワーク手当は？", "手当", 0.6),
        ("社員教育について", "育成", 0.6),
        ("副業 許可 条件", "副業", 0.6),
        ("副業の規定を教えて", "副業", 0.6),
        ("副業の申請方法は？", "副業", 0.6),
        ("副業について", "副業", 0.6),
        ("副業", "副業", 0.6),
        ("マイナビのサービスは？", "アルムナイ", 0.6),
    ],
)
async def test_each_example_query_finds_its_document_above_its_threshold(
    tmp_path: Path, query: str, title: str, threshold: float
) -> None:
    hits = await found(tmp_path, EXAMPLES, query, threshold)
    assert hits[0].title == title
    assert hits[0].score >= threshold


async def test_words_that_are_all_over_a_base_answer_with_less_certainty(tmp_path: Path) -> None:
    others = {f"課{at}": f"{at}課の電話は内線{at}番です。" for at in range(30)}
    alone = others | {"予約": "会議室の予約は総務課に電話で申し込みます。"}
    many = {title: f"{text}会議室の予約は総務課に電話で申し込みます。" for title, text in others.items()}
    (tmp_path / "alone").mkdir()
    (tmp_path / "many").mkdir()
    sure, *_ = await found(tmp_path / "alone", alone, "会議室の予約")
    unsure, *_ = await found(tmp_path / "many", many, "会議室の予約")
    assert (sure.title, sure.is_weak) == ("予約", False)
    assert unsure.score < sure.score
    assert unsure.is_weak


async def test_a_verb_finds_the_noun_of_its_kanji(tmp_path: Path) -> None:
    documents = {"枠": "枠の線を描く道具です。", "切断": "切断の位置は枠で決めます。", "色": "色の名前を書きます。"}
    hits = await found(tmp_path, documents, "枠で切る", 0.0)
    assert hits[0].title == "切断"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("ゴミの日", "ごみは月曜日に集めます。"),
        ("ごみの日", "ゴミは月曜日に集めます。"),
        ("らーめんの値段", "ラーメンの値段は700円です。"),
        ("申し込みの窓口", "申込の窓口は2階です。"),
        ("申込の窓口", "申し込みの窓口は2階です。"),
        ("サーバの名前", "サーバーの名称は春です。"),
        ("ヴァイオリンの練習", "バイオリンの稽古は土曜です。"),
        ("有給は何日？", "有給休暇は年に10日です。"),
        ("ホテル代はいくら", "宿泊費の上限は1万円です。"),
        ("マイカーで通勤", "自家用車での通勤には許可が必要です。"),
        ("レシートの提出", "領収書は月末までに出してください。"),
        ("記録を消したいとき", "履歴の削除は設定から行います。"),
        ("壊れた椅子", "破損した椅子は総務に運びます。"),
        ("速くする工夫", "迅速にする工夫を集めます。"),
    ],
)
async def test_one_word_in_other_letters_and_other_words_for_one_thing_meet(
    tmp_path: Path, query: str, text: str
) -> None:
    others = {"別": "来客にはお茶を出します。", "他": "会議は10時に始まります。"}
    hits = await found(tmp_path, {"答え": text, **others}, query)
    assert hits[0].title == "答え"
    assert hits[0].score >= DEFAULT_THRESHOLD


async def test_exact_words_rank_above_synonyms(tmp_path: Path) -> None:
    documents = {
        "同義": "宿泊費は1万円までです。",
        "同語": "ホテル代は1万円までです。",
        "別": "会議は10時に始まります。",
    }
    hits = await found(tmp_path, documents, "ホテル代について教えてください", 0.5)
    assert [hit.title for hit in hits] == ["同語", "同義"]


async def test_the_best_of_nothing_good_are_returned_and_marked_unless_a_threshold_is_given(tmp_path: Path) -> None:
    query = "来月の社内旅行でスキーに行く人の名前と会議の資料"
    async with library_of(tmp_path, EXAMPLES | {"会議": "会議は10時に始まります。"}) as (library, base_id):
        weak = (await library.search(SearchRequest(query, base_id))).hits
        first = (await library.search(SearchRequest(query, base_id, max_results=1))).hits
        strict = (await library.search(SearchRequest(query, base_id, DEFAULT_THRESHOLD))).hits
        nothing = (await library.search(SearchRequest("zebra crossing", base_id))).hits
        strong = (await library.search(SearchRequest("会議", base_id))).hits
    assert weak[0].title == "会議"
    assert first == weak[:1]
    assert 1 < len(weak) <= LEAST_RESULTS
    assert all(hit.is_weak and 0 < hit.score < WEAK for hit in weak)
    assert (strict, nothing) == ((), ())
    assert not strong[0].is_weak


async def test_four_of_five_questions_that_people_ask_find_their_document(tmp_path: Path) -> None:
    documents, questions = read_office()
    asked = [question for question in questions if question.title != NO_DOCUMENT]
    async with open_library(tmp_path) as library:
        found = await outcomes(library, documents, asked)
    assert len(asked) > 150
    assert sum(each.is_right and not each.is_weak for each in found) / len(asked) >= 0.8


def test_request_phrases_are_not_terms_unless_the_question_has_no_others() -> None:
    assert understand("副業について教えてください").analysis.terms == ["副業"]
    assert understand("有給は何日？").analysis.terms == understand("有給は").analysis.terms
    assert understand("教えて").analysis.terms


@pytest.mark.parametrize("word", ["引き出しの鍵", "重たすぎる箱", "見出しの書式", "put the logo on the bill"])
def test_the_end_of_a_word_and_function_words_have_no_synonyms(word: str) -> None:
    alternatives = {"".join(each.terms) for concept in understand(word).concepts for each in concept.alternatives}
    assert not alternatives & {"捨て", "出す", "提出", "加え", "プラス", "足す", "enable", "activate"}


@pytest.mark.parametrize("word", ["有給休暇", "住所変更"])
def test_a_word_at_the_end_of_a_longer_one_is_not_a_separate_concept(word: str) -> None:
    assert understand(word[2:]).concepts
    assert [word in concept.own.terms for concept in understand(word).concepts] == [True]


def test_a_question_as_long_as_a_book_page_has_a_bounded_number_of_concepts() -> None:
    concepts = understand("休みの申請とゴミの日" * 1000).concepts
    assert len(concepts) == 40
    assert max(len(concept.alternatives) for concept in concepts) <= 32


@pytest.mark.parametrize(
    ("query", "is_one"),
    [
        ("それを消すには？", True),
        ("そのコマンドの使い方は？", True),
        ("鍵はどこに置くの", True),
        ("外すには？", True),
        ("And how do I switch it off again?", True),
        ("How do I update it later?", True),
        ("what about part-timers?", True),
        ("色は変えられる？", True),
        ("うるさいから止めたい", True),
        ("もっと大きくできる？", True),
        ("Can I change the colour later?", True),
        ("相手がエクセルしか持っていないので、その形で渡したい", False),
        ("リモートワーク手当の金額と申請の期限は？", False),
        ("For how many years will I get fixes for one version?", False),
        ("How can I be sure that the software I download was not tampered with?", False),
    ],
)
def test_a_follow_up_points_back_or_has_few_own_words(query: str, is_one: bool) -> None:
    assert is_follow_up(query) is is_one


async def test_a_question_that_points_back_is_searched_with_the_one_before(tmp_path: Path) -> None:
    documents = EXAMPLES | {"経費": "経費の申請方法は経理部への届出です。領収書を添えます。"}
    async with library_of(tmp_path, documents) as (library, base_id):
        for previous, title in (("副業はできますか", "副業"), ("経費は何に使えますか", "経費")):
            request = SearchRequest("その申請方法は？", base_id, previous=previous)
            assert (await library.search(request)).hits[0].title == title


async def test_a_question_of_few_words_is_searched_with_the_one_before_and_a_longer_one_alone(
    tmp_path: Path,
) -> None:
    documents = EXAMPLES | {"経費": "経費の上限は部門で異なります。", "献立": "カレーの作り方: 玉ねぎを炒めます。"}
    previous = "リモートワーク手当はありますか"
    async with library_of(tmp_path, documents) as (library, base_id):
        continued = (await library.search(SearchRequest("いつもらえる？", base_id, previous=previous))).hits
        independent = (
            await library.search(SearchRequest("カレーの作り方と玉ねぎの炒め方は？", base_id, previous=previous))
        ).hits
    assert continued[0].title == "手当"
    assert independent[0].title == "献立"


async def test_a_search_says_when_no_passage_is_likely_to_answer(tmp_path: Path) -> None:
    async with library_of(tmp_path, EXAMPLES) as (library, base_id):
        doubtful = await library.search(SearchRequest("海外支店の駐車場で使うスキー用具の置き場と鍵の番号", base_id))
        sure = await library.search(SearchRequest("副業の申請方法は？", base_id))
    assert NO_ANSWER_WARNING in search_output(doubtful, base_id).warnings
    assert NO_ANSWER_WARNING in search_output(doubtful, base_id).passages()
    assert search_output(sure, base_id).warnings == []


def test_a_question_is_said_to_have_no_answer_only_if_the_best_passage_has_little_of_it() -> None:
    weak = PassageFigures(share=0.45, size=7.0)
    strange = replace(weak, share=0.2)
    assert [is_unanswered(figures, 0.05) for figures in (weak, strange)] == [False, True]
