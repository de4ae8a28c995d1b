"""Blocks of every published kind have a text, or one line that says what is not shown."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from rkllm_mcp.completions.content import content_text, is_unreadable, without_media
from rkllm_mcp.messages import Picture

PLAIN = base64.b64encode("こんにちは".encode()).decode()
TEXT = {"type": "text", "text": "12 degrees"}


BLOCKS: list[tuple[Any, str]] = [
    (None, ""),
    ("words", "words"),
    (["words", TEXT, 5], "words\n12 degrees"),
    (TEXT, "12 degrees"),
    ([{"type": "refusal", "refusal": "No."}], "No."),
    ([{"type": "text", "text": None}], ""),
    ([{"type": "image", "source": {"type": "base64", "data": "iVBORw0KGgo="}}], "[image, not shown]"),
    ([{"type": "image_url", "image_url": {"url": "x"}}, TEXT], "[image, not shown]\n12 degrees"),
    ([{"type": "input_image", "file_id": "f"}], "[image, not shown]"),
    ([{"type": "input_audio", "input_audio": {"data": "x"}}], "[audio, not shown]"),
    ([{"type": "document", "source": {"type": "text", "data": "a text"}, "title": "T"}], "T\na text"),
    ([{"type": "document", "source": {"type": "content", "content": [TEXT]}}], "12 degrees"),
    (
        [{"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": PLAIN}}],
        "こんにちは",
    ),
    (
        [{"type": "document", "title": "a.pdf", "source": {"type": "base64", "media_type": "application/pdf"}}],
        "[document a.pdf, not shown]",
    ),
    (
        [{"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": "%"}}],
        "[document, not shown]",
    ),
    (
        [{"type": "search_result", "source": "https://a.example", "title": "T", "content": [TEXT]}],
        "T\nhttps://a.example\n12 degrees",
    ),
    (
        [{"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}}],
        "[file a.pdf, not shown]",
    ),
    (
        [{"type": "input_file", "filename": "a.txt", "file_data": f"data:text/plain;base64,{PLAIN}"}],
        "a.txt\nこんにちは",
    ),
    ([{"type": "resource", "resource": {"uri": "x:", "text": "inside"}}], "inside"),
    ([{"type": "tool_reference", "tool_name": "get_weather"}], "[tool get_weather]"),
    ([{"type": "thinking", "thinking": "hm"}, {"type": "redacted_thinking", "data": "x"}], ""),
    ([{"type": "server_tool_use", "name": "web_search", "input": {}}], ""),
    ([{"type": "web_search_tool_result", "content": {"type": "web_search_tool_result_error"}}], ""),
    ([{"type": "hologram", "data": "x"}], "[hologram, not shown]"),
    ([{"type": "hologram", "content": [TEXT]}], "12 degrees"),
]


@pytest.mark.parametrize(("content", "text"), BLOCKS)
def test_a_block_has_a_text_or_a_line_about_it(content: Any, text: str) -> None:
    assert content_text(content) == text


def test_blocks_in_blocks_end() -> None:
    block: dict[str, Any] = TEXT
    for _ in range(1000):
        block = {"type": "hologram", "content": [block]}
    assert content_text(block) == "[hologram, not shown]"


def test_only_what_cannot_be_read_is_unreadable() -> None:
    assert is_unreadable({"type": "image"})
    assert not is_unreadable({"type": "text", "text": ""})
    assert not is_unreadable({"type": "thinking"})
    assert not is_unreadable({"type": "document", "source": {"type": "text", "data": "x"}})


PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
IMAGE = {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}
LINK = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE['data']}"}}
SOUND = {"type": "audio", "data": "A" * 40, "mimeType": "audio/wav"}
FILE = {"type": "resource", "resource": {"uri": "a:b", "blob": "A" * 40}}


@pytest.mark.parametrize(
    ("value", "left", "images"),
    [
        ({"data": {"content": [TEXT, IMAGE]}}, {"data": {"content": [TEXT, "[image, not shown]"]}}, 1),
        (
            [LINK, SOUND, FILE],
            [
                "[image, not shown]",
                "[audio, not shown]",
                {**FILE, "resource": {"uri": "a:b", "blob": "[file, not shown]"}},
            ],
            1,
        ),
    ],
)
def test_media_in_the_json_of_a_result_are_lines_about_them(value: Any, left: Any, images: int) -> None:
    text, seen = without_media(json.dumps(value))
    assert json.loads(text) == left
    assert seen == [Picture.of(PNG)] * images


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1, 2",
        json.dumps({"data": "A" * 40, "url": "https://example.org/a/long/address/of/a/picture"}, indent=1),
        json.dumps({"type": "image", "data": "not in base64, so it is a text about one"}),
        f"A picture: {json.dumps(IMAGE)}",
    ],
)
def test_other_texts_of_results_stay_as_they_are(text: str) -> None:
    assert without_media(text) == (text, [])
