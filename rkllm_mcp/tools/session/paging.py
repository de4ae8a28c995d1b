"""Read all pages of a server's list, up to a limit on pages and items, and without following a repeated cursor.

A server that declares the capability but does not implement the method has an empty list.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

# The largest known servers have some hundreds of tools or resources.
MAX_ITEMS = 2000
MAX_PAGES = 100


class Page(Protocol):
    """One page of a list."""

    @property
    def next_cursor(self) -> str | None:
        """Cursor of the next page; None on the last."""
        ...


_Page = TypeVar("_Page", bound=Page)
_Item = TypeVar("_Item")


async def all_pages(
    fetch: Callable[[str | None], Awaitable[_Page]],
    items_of: Callable[[_Page], Sequence[_Item]],
    note: Callable[[str], None],
    what: str,
) -> list[_Item]:
    """Return the items of all pages; write a line to ``note`` if the list does not end.

    ``fetch`` requests the page at a cursor, ``items_of`` returns the items of a page, ``what`` names them in the note.

    Raises:
        MCPError: the server refused.
        ValidationError: a response is invalid.
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
