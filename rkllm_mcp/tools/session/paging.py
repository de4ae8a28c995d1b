"""All pages of a server's list, bounded: one that pages for ever, or repeats a cursor, is cut off with a note.

A server that advertises a list and does not know the method has an empty one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

# Far more than anybody can be shown; the largest known servers have some hundreds of anything.
MAX_ITEMS = 2000
MAX_PAGES = 100


class Page(Protocol):
    """One page of a list."""

    @property
    def next_cursor(self) -> str | None:
        """Where the next page begins; None on the last."""
        ...


_Page = TypeVar("_Page", bound=Page)
_Item = TypeVar("_Item")


async def all_pages(
    fetch: Callable[[str | None], Awaitable[_Page]],
    items_of: Callable[[_Page], Sequence[_Item]],
    note: Callable[[str], None],
    what: str,
) -> list[_Item]:
    """The items of every page.

    Args:
        fetch: asks for the page at a cursor.
        items_of: the items of a page.
        note: called with a line when the list does not end.
        what: what is listed, for that line.

    Raises:
        MCPError: the server refuses.
        ValidationError: its answer cannot be read.
    """
    from mcp import MCPError
    from mcp_types import METHOD_NOT_FOUND

    items: list[_Item] = []
    cursors: set[str | None] = {None}
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        try:
            page = await fetch(cursor)
        except MCPError as error:
            if error.error.code == METHOD_NOT_FOUND and not items:
                return []
            raise
        items += items_of(page)
        cursor = page.next_cursor
        if cursor is None:
            return items
        if cursor in cursors or len(items) > MAX_ITEMS:
            break
        cursors.add(cursor)
    note(f"(its list of {what} does not end; the first {min(len(items), MAX_ITEMS)} are used)")
    return items[:MAX_ITEMS]
