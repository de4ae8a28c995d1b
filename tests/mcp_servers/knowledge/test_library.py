"""What a caller of the library meets: documents in and out, versions, access, and what a search answers."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from mcp_servers.knowledge.errors import (
    AccessDeniedError,
    BadArgumentError,
    BaseNotFoundError,
    DocumentNotFoundError,
    KnowledgeError,
    MaxResultsError,
    TextTooLongError,
    ThresholdError,
)
from mcp_servers.knowledge.library import Library, LibrarySettings, open_library
from mcp_servers.knowledge.types import Access, KnowledgeBase, NewChunk, NewDocument, SearchRequest
from tests.support.knowledge import document

pytestmark = pytest.mark.anyio

SALES = Access(tenant="acme", department="sales", clearance=2)
STRANGER = Access(tenant="umbrella", department="sales", clearance=9)


@pytest.fixture
async def library(tmp_path: Path, database_url: str) -> AsyncIterator[Library]:
    async with open_library(tmp_path / "knowledge", LibrarySettings(database_url=database_url)) as library:
        yield library


@pytest.fixture
async def base(library: Library) -> KnowledgeBase:
    return await library.create("社内規程", "人事の規程集")


async def contents(library: Library, base: KnowledgeBase, query: str, access: Access | None = None) -> list[str]:
    request = SearchRequest(query, base.id, threshold=0.3)
    result = await (library.search(request, access) if access else library.search(request))
    return [hit.content for hit in result.hits]


async def test_a_question_finds_the_passage_with_its_place(library: Library, base: KnowledgeBase) -> None:
    chunks = (
        NewChunk("通勤手当は実費です。", ("手当",), 1),
        NewChunk("リモートワーク手当は月額5,000円です。", ("手当", "在宅"), 2),
    )
    added = await library.add(base.id, NewDocument("給与規程", chunks, "c0ffee", uri="file:///a.pdf"))
    hit = (await library.search(SearchRequest("リモートワーク手当の金額は？", base.id))).hits[0]
    assert (hit.content, hit.title, hit.uri, hit.headings, hit.page, hit.chunk_index) == (
        "リモートワーク手当は月額5,000円です。",
        "給与規程",
        "file:///a.pdf",
        ("手当", "在宅"),
        2,
        1,
    )
    assert (hit.document_id, hit.base_id) == (added.document_id, base.id)
    assert uuid.UUID(hit.chunk_id)
    assert 0.6 <= hit.score <= 1
    assert (hit.scores.dense, hit.scores.cross_encoder) == (None, None)
    assert hit.scores.rrf == pytest.approx(1 / 61)


async def test_the_same_document_again_costs_nothing(library: Library, base: KnowledgeBase) -> None:
    first = await library.add(base.id, document("雨が降る", uri="a"))
    again = await library.add(base.id, document("雨が降る", uri="a"))
    assert (first.is_new, first.version) == (True, 1)
    assert again == replace(first, is_new=False)


async def test_a_changed_document_replaces_its_older_version(library: Library, base: KnowledgeBase) -> None:
    first = await library.add(base.id, document("通勤手当は三千円", "退職の手続き", uri="a"))
    second = await library.add(base.id, document("通勤手当は四千円", uri="a"))
    assert (second.document_id, second.version) == (first.document_id, 2)
    assert await contents(library, base, "通勤手当") == ["通勤手当は四千円"]
    assert await contents(library, base, "退職の手続き") == []
    assert (await library.summary(base.id)).total_chunks == 1


async def test_without_a_uri_another_content_is_another_document(library: Library, base: KnowledgeBase) -> None:
    one = await library.add(base.id, document("赤い花", title="メモ"))
    other = await library.add(base.id, document("青い花", title="メモ"))
    assert one.document_id != other.document_id
    assert not (await library.add(base.id, document("赤い花", title="メモ"))).is_new


async def test_an_importer_can_list_the_existing_documents(library: Library, base: KnowledgeBase) -> None:
    await library.add(base.id, document("雨", uri="a", fields={"year": "2026"}))
    (found,) = await library.documents(base.id, uri="a")
    assert (found.content_hash, found.fields) == (document("雨").content_hash, {"year": "2026"})
    assert await library.documents(base.id, uri="b") == ()
    assert await library.documents(base.id) == (found,)


async def test_a_removed_document_is_found_no_more(library: Library, base: KnowledgeBase) -> None:
    added = await library.add(base.id, document("雨が降る"))
    removed = await library.remove(added.document_id)
    assert (removed.id, await contents(library, base, "雨が降る")) == (added.document_id, [])
    with pytest.raises(DocumentNotFoundError):
        await library.remove(added.document_id)


async def test_a_removed_base_leaves_nothing_and_its_neighbour_everything(
    library: Library, base: KnowledgeBase
) -> None:
    other = await library.create("other")
    for one in (base, other):
        await library.add(one.id, document("雨が降る"))
    await library.remove_base(base.id)
    assert await library.bases() == (other,)
    assert await contents(library, other, "雨が降る") == ["雨が降る"]


async def test_a_summary_counts(library: Library, base: KnowledgeBase) -> None:
    await library.add(base.id, document("一", "二", collection="A"))
    await library.add(base.id, document("三", collection="B"))
    summary = await library.summary(base.id.upper())
    assert (summary.summary, summary.total_documents, summary.total_collections, summary.total_chunks) == (
        "社内規程: 人事の規程集",
        2,
        2,
        3,
    )


async def test_a_single_character_finds_the_words_it_begins(library: Library, base: KnowledgeBase) -> None:
    await library.add(base.id, document("雨が降る日", "晴れた日"))
    assert await contents(library, base, "雨") == ["雨が降る日"]


async def test_a_search_can_be_limited_to_a_collection_and_to_fields(library: Library, base: KnowledgeBase) -> None:
    await library.add(base.id, document("雨 one", collection="A", fields={"year": "2025"}))
    await library.add(base.id, document("雨 two", collection="B", fields={"year": "2026", "kind": "memo"}))
    request = SearchRequest("雨", base.id, threshold=0)
    limits = ({"collection": "A"}, {"fields": {"year": "2026", "kind": "memo"}}, {"fields": {"year": "1999"}})
    found = [[hit.content for hit in (await library.search(replace(request, **limit))).hits] for limit in limits]
    assert found == [["雨 one"], ["雨 two"], []]


async def test_a_person_finds_the_permitted_documents_and_no_others(library: Library, base: KnowledgeBase) -> None:
    for text, limits in (
        ("雨 for all", {}),
        ("雨 for acme", {"tenant": "acme"}),
        ("雨 for umbrella", {"tenant": "umbrella"}),
        ("雨 for sales", {"department": "sales"}),
        ("雨 for law", {"department": "law"}),
        ("雨 level 2", {"clearance": 2}),
        ("雨 level 3", {"clearance": 3}),
    ):
        await library.add(base.id, replace(document(text), **limits))
    assert sorted(await contents(library, base, "雨", SALES)) == [
        "雨 for acme",
        "雨 for all",
        "雨 for sales",
        "雨 level 2",
    ]
    assert (await library.summary(base.id, SALES)).total_documents == 4
    assert len(await library.documents(base.id, SALES)) == 4
    assert await contents(library, base, "雨 for law", Access()) == ["雨 for all"]


async def test_what_a_person_may_not_see_takes_nobodys_place(library: Library, base: KnowledgeBase) -> None:
    # Filtered after the search, the 600 better ones would have left nothing of the first 500.
    secrets = document(*("雨が降る" for _ in range(600)), clearance=5)
    await library.add(base.id, secrets)
    await library.add(base.id, document("雨が and a great deal of other words besides"))
    request = SearchRequest("雨が降る", base.id, threshold=0)
    assert [hit.content for hit in (await library.search(request, SALES)).hits] == [
        "雨が and a great deal of other words besides"
    ]


async def test_another_tenants_base_is_refused_in_every_way(library: Library) -> None:
    base = await library.create("acme's", access=SALES)
    added = await library.add(base.id, document("雨"), SALES)
    assert await library.bases(STRANGER) == ()
    assert await library.bases(SALES) == (base,)
    attempts = (
        library.base(base.id, STRANGER),
        library.search(SearchRequest("雨", base.id), STRANGER),
        library.summary(base.id, STRANGER),
        library.documents(base.id, STRANGER),
        library.documents(base.id, STRANGER, uri="a"),
        library.add(base.id, document("雪"), STRANGER),
        library.reindex(base.id, STRANGER),
        library.index_state(base.id, STRANGER),
        library.remove_base(base.id, STRANGER),
    )
    for attempt in attempts:
        with pytest.raises(AccessDeniedError):
            await attempt
    with pytest.raises(DocumentNotFoundError):
        await library.remove(added.document_id, STRANGER)
    assert (await library.search(SearchRequest("雨", threshold=0), STRANGER)).hits == ()


async def test_adding_a_document_above_ones_own_clearance_is_refused(library: Library, base: KnowledgeBase) -> None:
    for limits in ({"tenant": "umbrella"}, {"department": "law"}, {"clearance": 3}):
        with pytest.raises(AccessDeniedError):
            await library.add(base.id, replace(document("雨"), **limits), SALES)
    await library.add(base.id, document("秘密", uri="a", tenant="acme", clearance=9))
    with pytest.raises(AccessDeniedError):
        await library.add(base.id, document("公開", uri="a"), SALES)
    with pytest.raises(AccessDeniedError):
        await library.remove_base(base.id, SALES)


async def test_adding_a_text_does_not_reveal_that_another_person_has_it(library: Library, base: KnowledgeBase) -> None:
    hidden = await library.add(base.id, document("雨", tenant="acme", clearance=9))
    seen = await library.add(base.id, document("雨"), SALES)
    assert seen.is_new
    assert seen.document_id != hidden.document_id
    assert not (await library.add(base.id, document("雨"), SALES)).is_new


async def test_what_a_tenant_adds_belongs_to_it(library: Library, base: KnowledgeBase) -> None:
    await library.add(base.id, document("雨"), SALES)
    assert (await library.documents(base.id))[0].tenant == "acme"
    assert await contents(library, base, "雨", STRANGER) == []


async def test_without_a_base_every_base_a_person_may_see_is_searched(library: Library, base: KnowledgeBase) -> None:
    theirs = await library.create("theirs", access=STRANGER)
    mine = await library.create("mine", access=SALES)
    for one in (base, theirs, mine):
        await library.add(one.id, document(f"雨が降る {one.name}"))
    result = await library.search(SearchRequest("雨が降る", threshold=0), SALES)
    assert {hit.base_id for hit in result.hits} == {base.id, mine.id}


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (SearchRequest("  "), BadArgumentError),
        (SearchRequest("x" * 10_001), TextTooLongError),
        (SearchRequest("x", threshold=1.1), ThresholdError),
        (SearchRequest("x", threshold=float("nan")), ThresholdError),
        (SearchRequest("x", max_results=51), MaxResultsError),
        (SearchRequest("x", max_results=0), MaxResultsError),
        (SearchRequest("x", "no-uuid"), BaseNotFoundError),
        (SearchRequest("x", "\ud800"), BaseNotFoundError),
        (SearchRequest("x", str(uuid.UUID(int=1))), BaseNotFoundError),
    ],
)
async def test_a_request_out_of_range_is_refused(
    library: Library, request_: SearchRequest, kind: type[KnowledgeError]
) -> None:
    with pytest.raises(kind):
        await library.search(request_)


@pytest.mark.parametrize(
    "broken",
    [
        NewDocument("empty", (), "0"),
        document("x", title="t" * 2001),
        document("x", clearance=-1),
        document("x", collection=" "),
        document("x", fields={str(number): "" for number in range(101)}),
    ],
)
async def test_a_document_out_of_range_is_refused(library: Library, base: KnowledgeBase, broken: NewDocument) -> None:
    with pytest.raises(BadArgumentError):
        await library.add(base.id, broken)


@pytest.mark.parametrize(
    "query", ['"', "a OR b", "NEAR(", "雨*", "x' --", "\ud800", "\0", "-1", "( )", "😀", "terms:雨"]
)
async def test_no_query_is_read_as_anything_but_words(library: Library, base: KnowledgeBase, query: str) -> None:
    await library.add(base.id, document("a b 雨 near 1 \ud800 \0 😀"))
    await library.search(SearchRequest(query, base.id, threshold=0))


async def test_explaining_names_every_stage_and_why_one_was_left_out(library: Library, base: KnowledgeBase) -> None:
    await library.add(base.id, document("雨が降る"))
    result = await library.search(SearchRequest("雨が降る", base.id), SALES, explain=True)
    stages = {stage.stage: stage for stage in result.explained}
    assert [stage for stage, explained in stages.items() if explained.left_out] == [
        "base filter",
        "dense",
        "cross-encoder",
    ]
    assert stages["metadata filter"].given == "tenant 'acme', department 'sales', clearance 2"
    assert (stages["metadata filter"].made, stages["fusion"].made) == ("1 documents", "1 candidates")
    assert result.left_out == ()
    assert (await library.search(SearchRequest("雨", base.id))).explained == ()


async def test_a_problem_of_the_caller_arrives_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(BaseNotFoundError):
        async with open_library(tmp_path) as library:
            await library.base(str(uuid.UUID(int=1)))


async def test_searches_and_imports_go_on_side_by_side(library: Library, base: KnowledgeBase) -> None:
    async def add(number: int) -> None:
        await library.add(base.id, document(f"雨が降る {number}", uri=str(number)))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(add, number)
                tasks.start_soon(contents, library, base, "雨が降る")
    assert (await library.summary(base.id)).total_documents == 12
