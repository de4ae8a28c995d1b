"""The navigation of the documentation's site; ``scripts/check`` builds the site and checks its links."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from tests.support.documents import links
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
    assert len(DEVELOPMENT) == 5
    assert set(DEVELOPMENT) - linked == set()


def test_a_page_links_to_nothing_outside_of_the_site() -> None:
    outside = [
        f"{page}: {target}"
        for page in [*PAGES, *DEVELOPMENT]
        for target in links(f"docs/{page}")
        if not target.resolve().is_relative_to(DOCS)
    ]
    assert outside == []
