"""Tools found by what somebody wants, in English and Japanese."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files

import pytest

from rkllm_mcp.errors import GenerationError
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.openapi.source import convert, tool_of
from rkllm_mcp.tools.loan_words import LoanWords
from rkllm_mcp.tools.search import Embedder, RankedField, Ranking, ToolSearch
from rkllm_mcp.tools.search_terms import Glossary, own_glossary, root, stem, terms_of, wanted_terms
from tests.support.api_calls import specification
from tests.support.scripted_toolbox import takes

NOTHING = Glossary({}, {})
WEATHER = takes("get_weather", "Weather of a place in Japan.", "sky", location="string")
DELETE = takes("deleteFile", "Deletes a file.", "disk", path="string")
MAIL = takes("send_mail", "Send an e-mail.", "post", to="string")
TOOLS = [WEATHER, DELETE, MAIL]


async def found(request: str, tools: Sequence[ToolSpec] = TOOLS, search: ToolSearch | None = None) -> list[str]:
    return [tool.name for tool, _ in await (search or ToolSearch()).search(request, tools)]


# --- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("list", "lists", "listing", "listed"),
        ("file", "files"),
        ("search", "searches", "searching"),
        ("commit", "commits", "committed", "committing"),
        ("query", "queries"),
        ("create", "creates", "created", "creating"),
        ("modify", "modified", "modifies"),
        ("box", "boxes"),
        ("class", "classes"),
    ],
)
def test_the_forms_of_a_word_have_one_stem(words: tuple[str, ...]) -> None:
    assert len({stem(word) for word in words}) == 1


@pytest.mark.parametrize("word", ["status", "this", "sms", "sing", "red", "123", "größe"])
def test_what_only_looks_like_an_ending_stays(word: str) -> None:
    assert stem(word) == word


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("readTextFile", ["read", "text", "fil"]),
        ("read_text_file", ["read", "text", "fil"]),
        ("HTTPServer-list", ["http", "server", "list"]),
        ("ＲＥＡＤ", ["read"]),
    ],
)
def test_names_are_cut_into_their_words(name: str, terms: list[str]) -> None:
    assert terms_of(name, NOTHING) == terms


def test_japanese_is_cut_into_pairs_and_runs() -> None:
    assert terms_of("天気予報を見る", NOTHING) == ["天気", "気予", "予報", "報を", "を見", "見る", "天気予報"]
    assert terms_of("メールを", NOTHING) == ["メー", "ール", "ルを", "メール"]
    assert terms_of("雨", NOTHING) == ["雨"]


def test_grammar_is_left_out_of_requests_that_say_anything_else() -> None:
    assert list(wanted_terms("東京は？どうですか", NOTHING)) == ["東京", "京は"]
    assert list(wanted_terms("りんご", NOTHING)) == ["りん", "んご"]


@pytest.mark.parametrize(
    ("request_text", "term"),
    [
        ("notes.txt を見せて", "fil"),
        ("予算.xlsxを開いて", "fil"),
        ("open /var/log please", "directory"),
        ("https://example.com/a?b=cを読んで", "url"),
        ("what does example.org say", "url"),
        ("写真 a.png", "media"),
        ("call +81 90 1234 5678", "phon"),
        ("090-1234-5678へ", "phon"),
        ("write to bob@example.com", "email"),
        ("What is 17 * 23?", "arithmetic"),
        ("(3 + 4) ÷ 2 は？", "arithmetic"),
        ("18 + 4", "arithmetic"),
        ("15 % of 80", "arithmetic"),
        ("3の4乗", "arithmetic"),
        ("900円の8%は", "arithmetic"),
    ],
)
def test_names_of_files_addresses_and_numbers_are_recognised_by_their_shape(request_text: str, term: str) -> None:
    assert term in wanted_terms(request_text, NOTHING)


@pytest.mark.parametrize(
    "request_text",
    ["e.g. this", "3.5 km", "What is 2.0?", "終わり。次", "the 2026-11-26", "11/26", "3-4 people", "50 % wool"],
)
def test_what_has_no_shape_is_read_as_words(request_text: str) -> None:
    assert not {"fil", "url", "path", "arithmetic"} & set(wanted_terms(request_text, NOTHING))


# --- the glossary ----------------------------------------------------------------------------------------------------


def test_a_meaning_has_one_name_in_both_languages() -> None:
    glossary = own_glossary()
    assert "@delet" in terms_of("remove it", glossary)
    assert "@delet" in terms_of("それを消して", glossary)
    assert "@delet" in terms_of("削除", glossary)


def test_phrases_are_found_in_addition_to_their_words_and_the_longest_japanese_entry_wins() -> None:
    glossary = Glossary({("hang", "up"): ["end"], ("up",): ["high"]}, {"電話": ["call"], "電話番号": ["number"]})
    assert list(glossary.meanings_of_words(["hang", "up"])) == ["end", "high"]
    assert list(glossary.entries_in("電話番号に電話")) == [("電話番号", ["number"]), ("電話", ["call"])]


def test_in_a_request_a_phrase_is_its_meaning_only_and_me_is_not_who_asks() -> None:
    glossary = Glossary({("log", "in"): ["login"], ("log",): ["history"], ("me",): ["user"]}, {})
    assert wanted_terms("Log in", glossary) == {"~log in": [("@login", 1.0)]}
    assert wanted_terms("the log", glossary) == {"log": [("@history", 1.0)]}
    assert wanted_terms("show me the log", glossary) == {"show": [], "log": [("@history", 1.0)]}
    assert wanted_terms("log about me", glossary) == {"log": [("@history", 1.0)], "~me": [("@user", 0.6)]}


@pytest.mark.parametrize(
    "words",
    [("followers", "follow"), ("reviewer", "reviewed"), ("membership", "member"), ("protection", "protected")],
)
def test_words_that_are_derived_from_each_other_have_one_root(words: tuple[str, str]) -> None:
    assert root(words[0]) == root(words[1])


# --- loan words ------------------------------------------------------------------------------------------------------

ENGLISH = (
    "commit repository issue release review label secret artifact deploy license user star follower fork gist job log "
    "runner token package topic profile event page branch tag project message channel scan reaction milestone "
    "subscription limit rate markdown export security close lock block access archive owner role member type request "
    "pull workflow webhook component comment file folder server database table calendar account customer invoice "
    "template stream device rule group map node volume backup domain image container pipeline build report query "
    "filter self host code space"
)


@pytest.mark.parametrize(
    ("katakana", "english"),
    [
        ("コミット", "commit"),
        ("リポジトリ", "repository"),
        ("イシュー", "issue"),
        ("シークレット", "secret"),
        ("アーティファクト", "artifact"),
        ("ライセンス", "license"),
        ("ユーザー", "user"),
        ("ユーザ", "user"),
        ("フォロワー", "follower"),
        ("ギスト", "gist"),
        ("ジョブ", "job"),
        ("ブランチ", "branch"),
        ("アーカイブ", "archive"),
        ("マイルストーン", "milestone"),
        ("サブスクリプション", "subscription"),
        ("ファイル", "file"),
        ("ウェブフック", "webhook"),
        ("メンバー", "member"),
        ("カレンダー", "calendar"),
        ("デバイス", "device"),
        ("プルリクエスト", "pull request"),
        ("コードスペース", "code space"),
        ("セルフホストランナー", "self host runner"),
        ("こんにちは", ""),
        ("ドラゴン", ""),
        ("ー", ""),
        ("ッァー", ""),
        ("ア" * 5000, ""),
    ],
)
def test_katakana_are_read_as_the_english_words_that_they_spell(katakana: str, english: str) -> None:
    assert " ".join(LoanWords(ENGLISH.split()).english_in(katakana)) == english


def test_english_words_find_the_katakana_that_spell_them() -> None:
    loans = LoanWords(["コミット", "プルリクエスト", "天気"])
    assert list(loans.katakana_of(["list", "pull", "request", "commit"])) == ["プルリクエスト", "コミット"]
    assert list(LoanWords(["commit"]).katakana_of(["commit"])) == []


@pytest.mark.anyio
async def test_a_loan_word_finds_its_tool_in_both_directions() -> None:
    tools = [takes("list_gadgets", "Lists things.", "x"), takes("play_trumpet", "Plays music.", "x")]
    assert await found("トランペットを吹いて", tools) == ["play_trumpet"]
    japanese = [takes("a", "トランペットを吹く", "x"), takes("b", "部品を並べる", "x")]
    assert await found("Blow the trumpet", japanese) == ["a"]


@pytest.mark.anyio
async def test_a_question_finds_what_reads_before_what_changes_and_an_order_the_other_way_round() -> None:
    tools = [
        replace(takes(f"{verb}_invoices", f"{verb.capitalize()}s invoices.", "x"), read_only=verb == "list")
        for verb in ("delete", "update", "list")
    ]
    for request in ("What invoices are there?", "請求書の一覧", "請求書は？"):
        assert (await found(request, tools))[0] == "list_invoices"
    assert (await found("Delete the invoice", tools))[0] == "delete_invoices"
    assert (await found("請求書を直して", tools))[0] == "update_invoices"


@pytest.mark.anyio
async def test_among_many_variants_the_one_without_further_words_comes_first() -> None:
    names = ["list_teams_for_org", "list_teams_legacy", "list_teams", "list_teams_child"]
    tools = [takes(name, "Lists teams.", "x") for name in (*names, *(f"other_{n}" for n in range(400)))]
    assert (await found("Which teams are there?", tools))[0] == "list_teams"


@pytest.mark.anyio
async def test_paths_and_tags_of_an_operation_find_its_tool() -> None:
    operation = {"operationId": "op1", "summary": "Does it", "tags": ["billing"]}
    other = {"operationId": "op2", "summary": "Does it", "tags": ["weather"]}
    document = specification({"/accounts/{id}/receipts": {"get": operation}, "/sky": {"get": other}})
    tools = list(map(tool_of, convert(document).operations))
    assert await found("receipts", tools) == ["op1"]
    assert await found("billing", tools) == ["op1"]


def test_every_line_of_the_glossary_names_a_meaning_in_both_languages() -> None:
    text = files("rkllm_mcp.tools").joinpath("glossary.txt").read_text("utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert len(lines) > 150
    for line in lines:
        english, japanese = ([entry.strip() for entry in part.split(",")] for part in line.split("|"))
        assert all(english), line
        assert all(japanese), line
        assert all(entry.isascii() for entry in english), line
        assert len(set(english)) == len(english), line
        assert len(set(japanese)) == len(japanese), line


# --- ranking ---------------------------------------------------------------------------------------------------------


def test_scores_lie_between_nothing_in_common_and_everything() -> None:
    ranking = Ranking([[RankedField(["a", "b"])], [RankedField(["b"])], [RankedField(["c", "d", "e"])]])
    one, other, nothing = ranking.scores({"a": [], "b": []})
    assert 1 >= one > other > nothing == 0
    assert ranking.scores({"unheard": []}) == ranking.scores({}) == [0, 0, 0]


def test_a_rare_term_a_name_and_a_short_text_count_for_more() -> None:
    rare = Ranking([[RankedField(["a", "x"])], [RankedField(["b", "x"])], [RankedField(["x"])]])
    assert rare.rarity("a") > rare.rarity("x")
    named = Ranking(
        [[RankedField(["a"], 3.0), RankedField(["b"])], [RankedField(["b"], 3.0), RankedField(["a"])]]
    ).scores({"a": []})
    assert named[0] > named[1]
    short = Ranking([[RankedField(["a"])], [RankedField(["a", *"bcdefghij"])]]).scores({"a": []})
    assert short[0] > short[1]


def test_of_a_term_and_those_that_may_replace_it_the_best_counts() -> None:
    ranking = Ranking([[RankedField(["a"])], [RankedField(["b"])], [RankedField(["a", "b"])], [RankedField(["c"])]])
    first, second, both, nothing = ranking.scores({"a": [("b", 0.5)]})
    assert first > second > nothing == 0
    assert both < first + second


def test_a_request_that_says_little_is_not_certain_of_anything() -> None:
    ranking = Ranking([[RankedField(["a", "b", "c"])], *([RankedField([letter])] for letter in "defghijk")])
    assert ranking.scores({"a": []})[0] < ranking.scores({"a": [], "b": [], "c": []})[0]


# --- search ----------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("request_text", "first"),
    [
        ("東京の天気を教えて", "get_weather"),
        ("Is it going to rain?", "get_weather"),
        ("report.txt を消して", "deleteFile"),
        ("get rid of old.log", "deleteFile"),
        ("ボブにメールを送って", "send_mail"),
        ("write to bob@example.com", "send_mail"),
    ],
)
async def test_the_tool_for_a_request_comes_first(request_text: str, first: str) -> None:
    assert (await found(request_text))[0] == first


@pytest.mark.anyio
@pytest.mark.parametrize("request_text", ["", "こんにちは", "ありがとう", "Hello there!", "🙂", "the of and"])
async def test_what_asks_for_nothing_finds_nothing(request_text: str) -> None:
    assert await found(request_text) == []


@dataclass
class Past:
    """What was served before."""

    calls: list[tuple[str, str]]

    async def list_served(self, limit: int) -> Sequence[tuple[str, str]]:
        return self.calls[:limit]


@pytest.mark.anyio
async def test_what_served_a_similar_request_before_counts() -> None:
    lights = [takes(name, "Does something in the house.", "home") for name in ("alpha", "beta", "gamma")]
    request = "Make it cosy in the living room"
    assert await found(request, lights) == []
    past = Past([("Make the living room cosy", "mcp__home__beta"), ("Ring the bell", "mcp__home__gamma")])
    assert await found(request, lights, ToolSearch(past.list_served)) == ["beta"]
    assert await found("居間を居心地よく", lights, ToolSearch(past.list_served)) == []


@pytest.mark.anyio
async def test_earlier_use_does_not_outweigh_the_current_question() -> None:
    past = Past([("天気の話をボブに送って", "mcp__post__send_mail")])
    assert (await found("東京の天気を教えて", search=ToolSearch(past.list_served)))[0] == "get_weather"


@dataclass
class Letters:
    """An embedder that knows which of three things a text is about."""

    asked: list[list[str]] = field(default_factory=list[list[str]])
    fails: bool = False

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        if self.fails:
            raise GenerationError("the NPU is away")
        self.asked.append(list(texts))
        about = (("weather", "umbrella"), ("file",), ("mail",))
        return [[float(any(word in text for word in words)) for words in about] for text in texts]


@pytest.mark.anyio
async def test_nearness_in_meaning_counts_and_tools_are_embedded_once() -> None:
    letters: Embedder = (embedder := Letters())
    search = ToolSearch(embedder=letters)
    assert await found("unseen umbrella-thing", search=search) == ["get_weather"]
    assert await found("unseen umbrella-thing", search=search) == ["get_weather"]
    assert [len(texts) for texts in embedder.asked] == [3, 1, 1]


@pytest.mark.anyio
async def test_an_embedder_that_fails_costs_its_share_and_nothing_else() -> None:
    assert (await found("東京の天気", search=ToolSearch(embedder=Letters(fails=True))))[0] == "get_weather"


@pytest.mark.anyio
async def test_a_tool_with_an_odd_schema_is_searched_all_the_same() -> None:
    odd = [ToolSpec("odd", "Odd.", {"properties": {"a": True, "b": {"description": 3}}}, "x"), ToolSpec("bare", "", {})]
    assert await found("odd", odd) == ["odd"]


@pytest.mark.anyio
async def test_of_a_long_request_the_beginning_and_the_end_are_read() -> None:
    filler = "a" * 1_000_000
    for request in (f"Delete the file {filler}", f"{filler} Delete the file"):
        assert await found(request) == ["deleteFile"]
    assert await found(f"{filler} Delete the file {filler}") == []
