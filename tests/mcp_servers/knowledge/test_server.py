from __future__ import annotations

import base64
import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_types import CreateMessageResult, ErrorData, TextContent

from mcp_servers.knowledge.settings import ModelSettings, Settings
from mcp_servers.knowledge.types import UNRESTRICTED, Access
from mcp_servers.knowledge.validation import BASE
from mcp_servers.program import TUNING
from tests.support.knowledge_server import RULES, Mode, open_tools

pytestmark = pytest.mark.anyio

UNSURE = "マイナビキャリ-では、職業の相談を提供しています。"
NO_ID = "00000000-0000-4000-8000-000000000000"
SCORES = ("sparse_score", "dense_score", "rrf_score", "bm25_score", "cross_encoder_score")
PROMISED = {"chunk_id", "document_id", "chunk_index", "collection_id", *SCORES}
CLOSED = ModelSettings(embedder="http://127.0.0.1:9/v1#m", reranker="http://127.0.0.1:9/v1#r")
PROBLEMS: list[tuple[str, dict[str, Any], str]] = [
    ("search_documents", {"query": "手当", "threshold": 1.1}, "threshold out of range (0.0-1.0)"),
    ("search_documents", {"query": "手当", "threshold": -0.1}, "threshold out of range (0.0-1.0)"),
    ("search_documents", {"query": "手当", "threshold": "high"}, "threshold is a text. Give a number."),
    ("search_documents", {"query": "手当", "max_results": 51}, "max_results exceeds limit (50)"),
    ("search_documents", {"query": "手当", "max_results": 10**400}, "max_results exceeds limit (50)"),
    ("search_documents", {"query": "手当", "max_results": 0}, "max_results is below 1"),
    ("search_documents", {"query": "手当", "max_results": 2.5}, "max_results is no whole number"),
    ("search_documents", {"query": "  "}, "query is empty"),
    ("search_documents", {}, "query is missing. Give a query."),
    ("search_documents", {"query": "量子力学"}, "No results found"),
    ("search_documents", {"query": "量子力学", "threshold": 0}, "No results found. Use other words."),
    ("search_documents", {"query": "手当", "knowledge_base_id": NO_ID}, "Knowledge base not found"),
    ("search_documents", {"query": "手当", "knowledge_base_id": "somewhere"}, "Knowledge base not found"),
    ("search_documents", {"query": "手当", "knowledge_base_id": None}, "knowledge_base_id is missing"),
    ("get_knowledge_base_summary", {"knowledge_base_id": NO_ID}, "Knowledge base not found"),
    ("normalize_ocr_text", {"text": "ア" * 10_001}, "Text too long (max 10000 chars)"),
    ("remove_document", {"document_id": NO_ID}, "Document not found"),
    ("add_document", {}, "the document is missing, or given more than once"),
    ("add_document", {"text": "x", "url": "http://x"}, "the document is missing, or given more than once"),
    ("add_document", {"path": "/none.pdf"}, "/none.pdf cannot be opened"),
    ("add_document", {"url": "http://127.0.0.1/"}, "http://127.0.0.1/ is not fetched"),
    ("create_knowledge_base", {"name": ""}, "name is empty"),
    ("no_such_tool", {}, "There is no tool 'no_such_tool'"),
]


async def test_the_schemas_are_the_promised_ones(tmp_path: Path) -> None:
    async with open_tools(tmp_path) as tools:
        listed = {tool.name: tool for tool in (await tools.client.list_tools()).tools}
    base_id = {"type": "string", "format": "uuid", "description": "対象ナレッジベースのUUID"}
    assert listed["search_documents"].input_schema == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "検索クエリ（日本語・英語対応）"},
            "knowledge_base_id": base_id,
            "threshold": {
                "type": "number",
                "minimum": 0.0,
                "maximum": 1.0,
                "default": 0.6,
                "description": "類似度閾値（0.0〜1.0、推奨: 0.6〜0.8）",
            },
            "max_results": {
                "type": "integer",
                "minimum": 1,
                "maximum": 50,
                "default": 10,
                "description": "最大返却件数（1〜50）",
            },
        },
        "required": ["query", "knowledge_base_id"],
    }
    assert listed["get_knowledge_base_summary"].input_schema == {
        "type": "object",
        "properties": {"knowledge_base_id": base_id},
        "required": ["knowledge_base_id"],
    }
    assert listed["normalize_ocr_text"].input_schema == {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "正規化対象のOCRテキスト"}},
        "required": ["text"],
    }
    hints = {n: (a.read_only_hint, a.destructive_hint) for n, t in listed.items() if (a := t.annotations)}
    assert hints == {
        "search_documents": (True, False),
        "get_knowledge_base_summary": (True, False),
        "normalize_ocr_text": (True, False),
        "list_knowledge_bases": (True, False),
        "create_knowledge_base": (False, False),
        "add_document": (False, False),
        "remove_document": (False, True),
        "reindex": (False, False),
    }
    assert all(tool.output_schema and tool.description for tool in listed.values())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_search_has_the_promised_shape_and_names_the_place_of_each_passage(tmp_path: Path, mode: Mode) -> None:
    steps: list[tuple[float, float | None, str | None]] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total, message))

    async with open_tools(tmp_path, mode=mode) as tools:
        base_id = await tools.base()
        await tools.client.call_tool(
            "add_document", {"knowledge_base_id": base_id, "text": RULES}, progress_callback=tell
        )
        found = await tools.call(
            "search_documents",
            query="リモートワーク手当の金額は？",
            knowledge_base_id=base_id,
            threshold=0.5,
            max_results=5,
        )
    assert steps == [(0, 2, "reading"), (1, 2, "indexing"), (2, 2, "done")]
    assert list(found.facts) == ["query", "knowledge_base_id", "threshold", "results", "count"]
    assert found.facts | {"results": []} == {
        "query": "リモートワーク手当の金額は？",
        "knowledge_base_id": base_id,
        "threshold": 0.5,
        "results": [],
        "count": 1,
    }
    (passage,) = found.facts["results"]
    assert passage["content"] == "リモートワーク手当は月額5,000円を支給する。"
    assert 0.5 <= passage["score"] <= 1
    metadata = passage["metadata"]
    assert metadata.keys() >= PROMISED
    for name in ("chunk_id", "document_id", "collection_id"):
        assert str(uuid.UUID(metadata[name])) == metadata[name]
    assert (metadata["dense_score"], metadata["cross_encoder_score"], metadata["chunk_index"]) == (None, None, 0)
    assert (metadata["title"], metadata["headings"], metadata["page"]) == ("就業規則", ["就業規則", "手当"], None)
    assert json.loads(found.text) == found.facts
    assert found.texts[1] == "Sources: (就業規則, 手当)"


async def test_prose_puts_each_source_before_its_passage(tmp_path: Path) -> None:
    async with open_tools(tmp_path, Settings(tmp_path, text="passages")) as tools:
        base_id = await tools.base(text=RULES)
        found = await tools.call("search_documents", query="リモートワーク手当", knowledge_base_id=base_id)
    assert found.texts == ["[1] (就業規則, 手当)\nリモートワーク手当は月額5,000円を支給する。"]


async def test_a_summary_counts_and_names_empty_bases(tmp_path: Path) -> None:
    async with open_tools(tmp_path) as tools:
        base_id = (await tools.call("create_knowledge_base", name="規程", description="社内の規程")).facts[
            "knowledge_base_id"
        ]
        empty = await tools.call("get_knowledge_base_summary", knowledge_base_id=base_id)
        added = await tools.call("add_document", knowledge_base_id=base_id, text=RULES)
        summary = await tools.call("get_knowledge_base_summary", knowledge_base_id=base_id)
        await tools.call("remove_document", document_id=added.facts["documents"][0]["document_id"])
        emptied = await tools.call("get_knowledge_base_summary", knowledge_base_id=base_id)
    assert empty.is_error
    assert empty.text == "No collections found. Add a document with add_document."
    assert summary.facts.keys() == {"knowledge_base_id", "summary", "statistics", "generated_at"}
    assert summary.facts["summary"] == "規程: 社内の規程"
    assert summary.facts["statistics"] == {"total_documents": 1, "total_collections": 1, "total_chunks": 2}
    assert not emptied.is_error
    assert emptied.facts["warning"] == "No documents found. Add a document with add_document."


async def test_a_problem_is_a_tool_error_with_its_words_and_no_content_that_the_output_schema_lacks(
    tmp_path: Path,
) -> None:
    async with open_tools(tmp_path) as tools:
        base_id = await tools.base(text=RULES)
        for tool, arguments, words in PROBLEMS:
            answer = await tools.call(tool, **{"knowledge_base_id": base_id, **arguments})
            assert (answer.is_error, answer.text[: len(words)]) == (True, words)
            # A search without results has the shape that the schema declares.
            assert not answer.facts or words.startswith("No results found")


async def test_nothing_found_still_has_the_shape_of_a_search(tmp_path: Path) -> None:
    async with open_tools(tmp_path) as tools:
        base_id = await tools.base(text=RULES)
        nothing = await tools.call("search_documents", query="量子力学", knowledge_base_id=base_id)
    assert nothing.is_error
    assert nothing.text == "No results found. Use other words, or a threshold below 0.6."
    assert (nothing.facts["results"], nothing.facts["count"]) == ([], 0)


async def test_what_a_model_plainly_meant_is_taken(tmp_path: Path) -> None:
    async with open_tools(tmp_path) as tools:
        await tools.base("Rules", RULES)
        found = await tools.call(
            "search_documents", query="リモートワーク手当", knowledge_base_id="rules", threshold="0.5", max_results=3.0
        )
    assert found.facts["count"] == 1


async def test_a_default_base_need_not_be_named_and_the_schema_says_so(tmp_path: Path) -> None:
    async with open_tools(tmp_path, Settings(tmp_path, default_base="規程", default_results=3)) as tools:
        (search, summary, *_) = (await tools.client.list_tools()).tools
        base_id = await tools.base("規程", RULES)
        await tools.base("ほか", "リモートワーク手当は廃止された。")
        found = await tools.call("search_documents", query="リモートワーク手当")
    assert search.input_schema["required"] == ["query"]
    assert search.input_schema["properties"]["max_results"]["default"] == 3
    assert "required" not in summary.input_schema
    assert [(tool.meta or {}).get(TUNING) for tool in (search, summary)] == [[BASE, "threshold"], [BASE]]
    assert (found.facts["knowledge_base_id"], found.facts["count"]) == (base_id, 1)


async def test_all_bases_can_be_searched_at_once(tmp_path: Path) -> None:
    async with open_tools(tmp_path, Settings(tmp_path, default_base="*")) as tools:
        await tools.base("規程", RULES)
        alone = await tools.call("get_knowledge_base_summary")
        await tools.base("ほか", "リモートワーク手当は廃止された。")
        found = await tools.call("search_documents", query="リモートワーク手当")
        which = await tools.call("get_knowledge_base_summary")
    assert alone.facts["summary"] == "規程"
    assert (found.facts["knowledge_base_id"], found.facts["count"]) == ("*", 2)
    assert which.text == "knowledge_base_id is missing. Give one of list_knowledge_bases."


async def test_stages_are_explained_to_who_asks(tmp_path: Path) -> None:
    async with open_tools(tmp_path) as tools:
        base_id = await tools.base(text=RULES)
        found = await tools.call(
            "search_documents", query="リモートワーク手当", knowledge_base_id=base_id, explain=True
        )
    stages = {stage["stage"]: stage for stage in found.facts["stages"]}
    assert stages.keys() >= {"base filter", "metadata filter", "sparse", "dense", "fusion", "bm25", "cross-encoder"}
    assert stages["dense"]["left_out"] == "this knowledge base has no vectors"


async def test_documents_are_listed_and_removed_and_an_empty_base_too(tmp_path: Path) -> None:
    async with open_tools(tmp_path) as tools:
        base_id = await tools.base(text=RULES)
        listed = await tools.call("list_knowledge_bases", knowledge_base_id=base_id)
        (document,) = listed.facts["documents"]
        refused = await tools.call("remove_document", knowledge_base_id=base_id)
        removed = await tools.call("remove_document", document_id=document["document_id"])
        gone = await tools.call("remove_document", knowledge_base_id=base_id)
        left = await tools.call("list_knowledge_bases")
    assert (document["title"], document["chunks"], document["version"]) == ("就業規則", 2, 1)
    assert refused.text.startswith("knowledge_base_id still holds documents")
    assert removed.facts == {
        "removed": document["document_id"],
        "title": "就業規則",
        "knowledge_base_id": base_id,
    }
    assert gone.facts["removed"] == base_id
    assert left.facts == {"knowledge_bases": []}


async def test_a_folder_is_added_file_by_file_and_again_at_no_cost(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.md").write_text(RULES, "utf-8")
    (folder / "b.txt").write_text("経費は月末までに精算する。", "utf-8")
    (folder / "c.pdf").write_bytes(b"%PDF-1.7 nothing of the kind")
    async with open_tools(tmp_path) as tools:
        base_id = await tools.base()
        first = await tools.call("add_document", knowledge_base_id=base_id, path=str(folder))
        again = await tools.call("add_document", knowledge_base_id=base_id, path=str(folder))
    assert {document["title"] for document in first.facts["documents"]} == {"就業規則", "b"}
    (failed,) = first.facts["files"]
    assert failed["outcome"] == "failed"
    assert failed["reason"].startswith("c.pdf is damaged")
    assert (again.facts["count"], again.facts["unchanged"]) == (0, 2)


async def test_files_are_read_from_allowed_folders_alone_also_after_a_link(tmp_path: Path) -> None:
    allowed, secret = tmp_path / "allowed", tmp_path / "secret.txt"
    allowed.mkdir()
    secret.write_text("nobody's business", "utf-8")
    (allowed / "link.txt").symlink_to(secret)
    (allowed / "good.txt").write_text("everybody's business", "utf-8")
    async with open_tools(tmp_path, Settings(tmp_path, import_from=(allowed,))) as tools:
        base_id = await tools.base()
        answers = [
            await tools.call("add_document", knowledge_base_id=base_id, path=str(path))
            for path in (secret, allowed / "link.txt", allowed / ".." / "secret.txt", allowed / "good.txt")
        ]
    assert [answer.is_error for answer in answers] == [True, True, True, False]
    assert answers[0].text.startswith(f"The path is not read: files are added from {allowed} only")


async def test_a_missing_part_of_a_stage_is_reported_and_an_error_in_strict_mode(tmp_path: Path) -> None:
    loose, strict = Settings(tmp_path, CLOSED), Settings(tmp_path, replace(CLOSED, strict=True))
    async with open_tools(tmp_path, loose) as tools:
        base_id = await tools.base(text=RULES)
        found = await tools.call("search_documents", query="リモートワーク手当", knowledge_base_id=base_id)
    async with open_tools(tmp_path, strict) as tools:
        refused = await tools.call("search_documents", query="リモートワーク手当", knowledge_base_id=base_id)
    assert found.facts["count"] == 1
    assert any("Failed to connect to http://127.0.0.1:9/v1" in warning for warning in found.facts["warnings"])
    assert refused.is_error
    assert refused.text.startswith("Failed to connect to http://127.0.0.1:9/v1: ")


async def test_another_tenants_base_is_refused_and_a_shared_one_is_not(tmp_path: Path) -> None:
    who = [Access("a")]
    async with open_tools(tmp_path, access_of=lambda _: who[0]) as tools:
        own = await tools.base("a", RULES)
        path = await tools.call("add_document", knowledge_base_id=own, path="/etc/hostname")
        who[0] = Access("b")
        answers = [
            await tools.call(tool, knowledge_base_id=own, query="x", text="x")
            for tool in ("search_documents", "get_knowledge_base_summary", "add_document", "reindex")
        ]
        listed = await tools.call("list_knowledge_bases")
    assert path.text == "The path is not read: it is on the server's machine. Send the text, or a url."
    assert all(answer.is_error for answer in answers)
    assert {answer.text.partition(".")[0] for answer in answers} == {"Access denied to this knowledge base"}
    assert listed.facts == {"knowledge_bases": []}


async def test_documents_shared_by_all_cannot_be_removed_by_one_tenant(tmp_path: Path) -> None:
    who = [UNRESTRICTED]
    async with open_tools(tmp_path, access_of=lambda _: who[0]) as tools:
        base_id = await tools.base(text=RULES)
        who[0] = Access("a")
        own = await tools.call("add_document", knowledge_base_id=base_id, text="経費は月末までに精算する。")
        listed = await tools.call("list_knowledge_bases", knowledge_base_id=base_id)
        ids = {document["title"]: document["document_id"] for document in listed.facts["documents"]}
        refused = [
            await tools.call("remove_document", document_id=ids["就業規則"]),
            await tools.call("reindex", knowledge_base_id=base_id),
        ]
        gone = await tools.call("remove_document", document_id=own.facts["documents"][0]["document_id"])
        found = await tools.call("search_documents", query="リモートワーク手当", knowledge_base_id=base_id)
    assert [answer.text.partition(":")[0] for answer in refused] == ["Access denied to this knowledge base"] * 2
    assert not gone.is_error
    assert found.facts["count"] == 1


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_hosts_model_decides_what_the_rules_are_unsure_of(tmp_path: Path, mode: Mode) -> None:
    asked: list[str] = []

    async def sample(_: Any, params: Any) -> CreateMessageResult:
        (message,) = params.messages
        asked.append(message.content.text)
        text = message.content.text.replace("キャリ-", "キャリア")
        return CreateMessageResult(role="assistant", model="m", content=TextContent(type="text", text=text))

    async with open_tools(tmp_path, mode=mode, sampling_callback=sample) as tools:
        corrected = await tools.call(
            "normalize_ocr_text",
            text=UNSURE,
        )
        sure = await tools.call("normalize_ocr_text", text="マネ-ジャ-のself-service")
    assert corrected.facts == {
        "original_text": UNSURE,
        "normalized_text": "マイナビキャリアでは、職業の相談を提供しています。",
        "status": "success",
    }
    assert sure.facts["normalized_text"] == "マネージャーのself-service"
    assert len(asked) == 1


async def test_a_model_that_is_refused_leaves_it_to_the_rules(tmp_path: Path) -> None:
    async def refuse(_: Any, __: Any) -> ErrorData:
        return ErrorData(code=-1, message="not now")

    async with open_tools(tmp_path, mode="legacy", sampling_callback=refuse) as tools:
        answer = await tools.call("normalize_ocr_text", text=UNSURE)
    assert answer.facts["normalized_text"] == UNSURE.replace("-", "ー")
    assert answer.facts["status"].startswith("LLM service unavailable: not now")


async def test_a_host_is_not_asked_by_who_does_not_want_that(tmp_path: Path) -> None:
    async def sample(_: Any, __: Any) -> ErrorData:
        raise AssertionError

    settings = Settings(tmp_path, ModelSettings(sampling=False, llm="http://127.0.0.1:9/v1#m"))
    async with open_tools(tmp_path, settings, sampling_callback=sample) as tools:
        answer = await tools.call("normalize_ocr_text", text=UNSURE)
    assert answer.facts["status"].startswith("LLM service unavailable: ")


async def test_an_index_is_made_anew_while_searches_go_on(tmp_path: Path) -> None:
    async with open_tools(tmp_path, Settings(tmp_path, ModelSettings(embedder="hashing"))) as tools:
        base_id = await tools.base(text=RULES)
        state = await tools.call("reindex", knowledge_base_id=base_id)
        found = await tools.call("search_documents", query="リモートワーク手当", knowledge_base_id=base_id)
        await tools.service.library.indexer.wait_idle()
        vectors = await tools.call("search_documents", query="リモートワーク手当", knowledge_base_id=base_id)
    assert state.facts["chunks"] == 2
    assert [result.get("weak", False) for result in found.facts["results"]] == [False, True]
    assert vectors.facts["results"][0]["metadata"]["dense_score"] is not None


async def test_searches_and_imports_side_by_side_lose_nothing(tmp_path: Path) -> None:
    texts = [f"# 文書{number}\n\n案内{number}番の内容は手続き{number}である。" for number in range(12)]
    async with open_tools(tmp_path) as tools:
        base_id = await tools.base(text=RULES)

        async def add(text: str) -> None:
            answer = await tools.call("add_document", knowledge_base_id=base_id, text=text)
            assert not answer.is_error

        async def search() -> None:
            for _ in range(5):
                found = await tools.call("search_documents", query="リモートワーク手当", knowledge_base_id=base_id)
                assert found.facts["results"][0]["metadata"]["title"] == "就業規則"

        async with anyio.create_task_group() as tasks:
            for text in texts:
                tasks.start_soon(add, text)
            for _ in range(4):
                tasks.start_soon(search)
        summary = await tools.call("get_knowledge_base_summary", knowledge_base_id=base_id)
    assert summary.facts["statistics"]["total_documents"] == 13


async def test_a_file_comes_in_parts(tmp_path: Path) -> None:
    content = RULES.encode("utf-16")
    parts = [base64.b64encode(content[start : start + 64]).decode() for start in range(0, len(content), 64)]
    async with open_tools(tmp_path) as tools:
        base_id = await tools.base()
        upload_id, documents = "", list[Any]()
        for number, part in enumerate(parts):
            given = {"upload_id": upload_id} if upload_id else {"file_name": "rules.md"}
            more = number + 1 < len(parts)
            said = await tools.call(
                "add_document", knowledge_base_id=base_id, data=part, offset=64 * number, more=more, **given
            )
            assert not said.is_error, said.text
            upload_id, documents = said.facts.get("upload_id", ""), said.facts["documents"]
            assert said.facts.get("received") == (min(64 * number + 64, len(content)) if more else None)
        wrong = await tools.call("add_document", knowledge_base_id=base_id, data=parts[0], upload_id="x")
        begun = await tools.call("add_document", knowledge_base_id=base_id, data="YQ==", file_name="a", more=True)
        skipped = await tools.call(
            "add_document", knowledge_base_id=base_id, data="YQ==", upload_id=begun.facts["upload_id"], offset=7
        )
        garbage = await tools.call("add_document", knowledge_base_id=base_id, data="?", file_name="a")
        nameless = await tools.call("add_document", knowledge_base_id=base_id, data="YQ==")
        found = await tools.call("search_documents", query="副業", knowledge_base_id=base_id)
    assert [document["uri"] for document in documents] == ["upload:///rules.md"]
    assert found.facts["results"][0]["metadata"]["title"] == "就業規則"
    assert wrong.text.startswith("upload_id is not of an open upload. ")
    assert skipped.text == "offset is 7. Send the bytes from 1 on."
    assert garbage.text.startswith("data is not base64. ")
    assert nameless.text.startswith("file_name is missing. ")


async def test_a_passage_is_read_with_its_neighbours_by_those_alone_who_may_see_its_document(tmp_path: Path) -> None:
    who, text = [UNRESTRICTED], RULES.replace("## 手当", "社員に適用する。\n\n## 手当")
    async with open_tools(tmp_path, access_of=lambda _: who[0]) as tools:
        base_id = await tools.base()
        added = await tools.call("add_document", knowledge_base_id=base_id, text=text, clearance=2)
        document_id = added.facts["documents"][0]["document_id"]
        found = await tools.call("search_documents", query="リモートワーク手当", knowledge_base_id=base_id)
        index = found.facts["results"][0]["metadata"]["chunk_index"]
        read = await tools.call("read_passages", document_id=document_id, chunk_index=index - 1, limit=3)
        behind = await tools.call("read_passages", document_id=document_id, chunk_index=90)
        wrong = [
            await tools.call("read_passages", document_id=document_id, **given)
            for given in ({"chunk_index": -1}, {"limit": 0}, {"limit": 51})
        ]
        who[0] = Access("b", clearance=1)
        hidden = await tools.call("read_passages", document_id=document_id)
    names = ("document_id", "knowledge_base_id", "title", "uri", "chunks")
    assert {name: read.facts[name] for name in names} == {
        "document_id": document_id,
        "knowledge_base_id": base_id,
        "title": "就業規則",
        "uri": "",
        "chunks": 3,
    }
    assert [(each["chunk_index"], each["headings"], each["page"]) for each in read.facts["results"]] == [
        (0, ["就業規則"], None),
        (1, ["就業規則", "手当"], None),
        (2, ["就業規則", "副業"], None),
    ]
    assert read.facts["results"][1]["content"] == found.facts["results"][0]["content"]
    assert behind.facts["results"] == []
    assert [each.text.partition(". ")[0] for each in wrong] == [
        "chunk_index is below 0",
        "limit is out of range",
        "limit is out of range",
    ]
    assert hidden.text.startswith("Document not found")
