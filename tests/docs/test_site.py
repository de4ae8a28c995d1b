"""The navigation of the documentation's site; ``scripts/check`` builds the site and checks its links."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from tests.support.documents import anchored_links, links, sections
from tests.support.shared import REPOSITORY

DOCS = REPOSITORY / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))
DEVELOPMENT = sorted(f"development/{path.name}" for path in (DOCS / "development").glob("*.md"))


def pages(entries: list[Any]) -> Iterator[str]:
    """The pages of a part of the navigation."""
    for entry in entries:
        targets: list[Any] = [entry] if isinstance(entry, str) else list(entry.values())
        for target in targets:
            yield from [target] if isinstance(target, str) else pages(target)


def test_every_page_is_in_the_navigation_once() -> None:
    site = tomllib.loads((REPOSITORY / "zensical.toml").read_text("utf-8"))["project"]
    assert sorted(pages(site["nav"])) == PAGES


def test_a_page_for_development_is_linked_from_the_index() -> None:
    linked = {str(target.relative_to(DOCS)) for target in links("docs/index.md")}
    assert len(DEVELOPMENT) == 7
    assert set(DEVELOPMENT) - linked == set()


def test_a_page_links_to_nothing_outside_of_the_site() -> None:
    outside = [
        f"{page}: {target}"
        for page in [*PAGES, *DEVELOPMENT]
        for target in links(f"docs/{page}")
        if not target.resolve().is_relative_to(DOCS)
    ]
    assert outside == []


def test_an_anchor_in_a_link_is_a_heading_of_the_page() -> None:
    """Those of the READMEs too, which are no part of the site."""
    pages = [path.relative_to(REPOSITORY) for path in [*REPOSITORY.glob("*.md"), *DOCS.rglob("*.md")]]
    headings = {(REPOSITORY / page).resolve(): sections(str(page)) for page in pages}
    asked = [(page, path.resolve(), anchor) for page in pages for path, anchor in anchored_links(str(page)) if anchor]
    assert len(asked) > 200
    assert [f"{page}: {path.name}#{anchor}" for page, path, anchor in asked if anchor not in headings[path]] == []
