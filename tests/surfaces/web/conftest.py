from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser


# Not for the session: Playwright's loop runs in this thread as long as the browser does, and no other may then.
@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    """One browser for a file's tests of the page; each visits with a profile of its own."""
    with chromium() as found:
        yield found
