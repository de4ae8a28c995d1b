"""MCP content to what the model reads."""

from __future__ import annotations

from typing import Any

import pytest

from rkllm_mcp.toolcalls.results import cut, paging_arguments, result_text, sources_of


def text(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in texts]


PRETTY = '{\n  "city": "\\u6771\\u4eac",\n  "days": [\n    1,\n    2\n  ]\n}'
COMPACT = '{"city":"東京","days":[1,2]}'
VALUE = {"city": "東京", "days": [1, 2]}

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "texts are joined": ({"content": text("one", "two")}, "one\ntwo"),
    "indented JSON is written compactly": ({"content": text(PRETTY)}, COMPACT),
    "what only begins like JSON stays": ({"content": text("[note] {x}", "{broken")}, "[note] {x}\n{broken"),
    "numbers and strings stay as they are written": ({"content": text("1.50", '"x"')}, '1.50\n"x"'),
    "structured content alone is shown": ({"content": [], "structuredContent": VALUE}, COMPACT),
    "structured content that the text repeats is shown once": (
        {"content": text(PRETTY), "structuredContent": VALUE},
        COMPACT,
    ),
    "a value wrapped as result is unwrapped": (
        {"content": text("sunny"), "structuredContent": {"result": "sunny"}},
        "sunny",
    ),
    "a list sent as one text per element is shown as a list": (
        {"content": text("1", "2"), "structuredContent": {"result": [1, 2]}},
        "[1,2]",
    ),
    "a text that says it better wins over structured content": (
        {"content": text("It is sunny in 東京."), "structuredContent": VALUE},
        "It is sunny in 東京.",
    ),
    "structured content that the text leaves out follows it": (
        {"content": text("Done."), "structuredContent": VALUE},
        f"Done.\n{COMPACT}",
    ),
    "an image becomes a line": (
        {"content": [{"type": "image", "data": "A" * 4000, "mimeType": "image/png"}]},
        "[image: image/png, 3.0 kB, not shown]",
    ),
    "a sound becomes a line": (
        {"content": [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]},
        "[audio: audio/wav, 3 bytes, not shown]",
    ),
    "an image beside structured content is told of": (
        {
            "content": [*text(PRETTY), {"type": "image", "data": "AAAA", "mimeType": "image/png"}],
            "structuredContent": VALUE,
        },
        f"{COMPACT}\n[image: image/png, 3 bytes, not shown]",
    ),
    "a link becomes a line": (
        {"content": [{"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/plain", "size": 9}]},
        "[resource a: file:///a, text/plain, 9 bytes]",
    ),
    "the text of a resource is shown": (
        {"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": "hello"}}]},
        "[resource file:///a]\nhello",
    ),
    "the bytes of a resource become a line": (
        {"content": [{"type": "resource", "resource": {"uri": "x:y", "blob": "A" * 4_000_000}}]},
        "[resource x:y: unknown type, 3.0 MB, not shown]",
    ),
    "nothing is said to be nothing": ({"content": []}, "(no output)"),
    "an error without words gets some": (
        {"content": text(" "), "isError": True},
        "The tool failed without an error message.",
    ),
    "half a character is replaced": ({"content": text("cut \ud83d")}, "cut ?"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_the_model_reads(name: str) -> None:
    result, read = CASES[name]
    assert result_text(result) == read


def test_deeply_nested_json_is_left_as_it_is() -> None:
    nested = "[" * 100_000
    assert result_text({"content": text(nested)}) == nested


def test_a_long_text_is_cut_with_a_remark() -> None:
    assert cut("12345", 5) == ("12345", False)
    how = "call it again for a smaller part to see them"
    assert cut("1234567", 5) == (f"12345\n… truncated, 2 more characters; {how}", True)


def test_the_remark_names_the_arguments_that_choose_another_part() -> None:
    schema: dict[str, dict[str, dict[str, str]]] = {
        "properties": {"path": {}, "start_index": {}, "head": {}, "lines": {}}
    }
    assert paging_arguments(schema) == ("start_index", "head")
    assert paging_arguments({}) == paging_arguments({"properties": True}) == ()
    assert cut("123", 1, ("start_index", "head"))[0].endswith(
        "call it again with another start_index or head to see them"
    )


PASSAGE = {"document": "就業規則", "page": 2, "passage": "手当は月額5,000円。", "score": 0.82}
SEARCHES: dict[str, tuple[Any, Any]] = {
    "the knowledge server's": (
        {
            "results": [
                {"content": "手当は月額5,000円。", "score": 0.82, "metadata": {"title": "就業規則", "page": 2}}
            ],
            "count": 1,
        },
        (PASSAGE,),
    ),
    "one that says where the passage stands": (
        {
            "results": [
                {
                    "content": "手当は月額5,000円。",
                    "score": 0.82,
                    "metadata": {"title": "就業規則", "page": 2, "document_id": "d1", "chunk_index": 0},
                }
            ]
        },
        ({**PASSAGE, "document_id": "d1", "chunk_index": 0},),
    ),
    "a flat one": (
        {"hits": [{"document": "就業規則", "page": 2, "passage": "手当は月額5,000円。", "score": 0.82}]},
        (PASSAGE,),
    ),
    "a web search, whose passages have addresses": (
        {"result": [{"title": "Rockchip", "url": "https://example.com", "snippet": "An\u200b SoC."}]},
        ({"document": "Rockchip", "page": None, "passage": "An SoC.", "score": None},),
    ),
    "a search that found none": ({"results": [], "count": 0}, ()),
    "a search that failed": ({"results": [], "error": "the index is broken"}, None),
    "a list of tasks": ({"items": [{"title": "Buy tea", "text": "green"}]}, None),
    "what is added": ({"documents": [{"document_id": "1", "title": "規則", "uri": "file:///a"}]}, None),
    "a forecast": (VALUE, None),
    "no object": ([1, 2], None),
}


@pytest.mark.parametrize(("structured", "sources"), SEARCHES.values(), ids=SEARCHES)
def test_the_passages_of_a_search_are_read_from_its_structured_content(structured: Any, sources: Any) -> None:
    assert sources_of({"content": [], "structuredContent": structured}) == sources
