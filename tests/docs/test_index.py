"""The index of the documentation, in both languages: every page is in it, ten questions are answered in two clicks."""

from __future__ import annotations

import re

import pytest

from tests.support.documents import sections
from tests.support.shared import REPOSITORY

DOCS = REPOSITORY / "docs"
INDEXES = {"en": "index.md", "ja": "index.ja.md"}
_LINK = re.compile(r"\[([^\]]+)\]\(([\w./-]+\.md)?((?:#[\w-]+)?)\)")
# A question; the words by which a reader knows the link, and what is where it leads, or where a link there leads.
QUESTIONS = {
    "a tool server of my own": ("own tool server|自分のツールサーバー", "servers new"),
    "the phone": ("phone|スマートフォン", "service link"),
    "Python": ("Python", "from rkllm_mcp import Assistant"),
    "n8n": ("n8n", "n8n | Credentials"),
    "Home Assistant": ("Home Assistant", "config add-key"),
    "Claude Code": ("Claude Code", "ANTHROPIC_BASE_URL"),
    "a model of my own": ("Getting the runtime|モデルの入手", "models add"),
    "why it is slow": ("does not work|動かないとき", "rkllm-mcp bench"),
    "a backup": ("back up|バックアップ", "rkllm-mcp backup"),
    "an update": ("[Uu]pdate|更新", "rkllm-mcp update"),
}


def text_of(place: str) -> str:
    """The text of a page, or of its section that an anchor names."""
    page, _, anchor = place.partition("#")
    return sections(f"docs/{page}")[anchor] if anchor else (DOCS / page).read_text("utf-8")


def links_of(place: str) -> list[tuple[str, str]]:
    """The labels of the links to other pages, and where they lead."""
    return [(label, page + anchor) for label, page, anchor in _LINK.findall(text_of(place)) if page]


@pytest.mark.parametrize("language", INDEXES)
def test_every_page_is_in_the_index(language: str) -> None:
    linked = {place.partition("#")[0] for _, place in links_of(INDEXES[language])}
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    translated = {page.replace(".ja.md", ".md") for page in pages if page.endswith(".ja.md")}
    others = {
        page
        for page in pages
        if page not in INDEXES.values()
        and (not page.endswith(".ja.md") if language == "en" else page.endswith(".ja.md") or page not in translated)
    }
    assert others - linked == set()


@pytest.mark.parametrize("language", INDEXES)
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_in_two_clicks(language: str, question: str) -> None:
    words, answer = QUESTIONS[question]
    first = [place for label, place in links_of(INDEXES[language]) if re.search(words, label)]
    assert first, f"no link of {INDEXES[language]} names it"
    near = [place for place in first if answer in text_of(place)]
    next_to = [place for each in first for _, place in links_of(each) if answer in text_of(place)]
    assert near or next_to, f"{answer!r} is not on {first}, nor where a link there leads"
    pages = [place.partition("#")[0] for place in near]
    if language == "ja" and (translation := [page.replace(".md", ".ja.md") for page in pages if ".ja." not in page]):
        assert not [page for page in translation if (DOCS / page).exists()], "the Japanese page is not linked"


def test_the_two_indexes_lead_to_each_other() -> None:
    assert dict(links_of("index.md"))["日本語"] == "index.ja.md"
    assert dict(links_of("index.ja.md"))["English"] == "index.md"


def test_a_japanese_page_links_to_japanese_pages_where_there_are_some() -> None:
    """A label that names English or the English page says where it leads."""
    pages = [REPOSITORY / "README.ja.md", *DOCS.rglob("*.ja.md")]
    wrong = [
        (page.name, label, target)
        for page in pages
        for label, target in re.findall(r"\[([^\]]+)\]\(([\w./-]+\.md)(?:#[\w-]+)?\)", page.read_text("utf-8"))
        if not target.endswith(".ja.md")
        and (page.parent / target).with_suffix(".ja.md").exists()
        and label not in ("English", "英語のページ")
    ]
    assert wrong == []
