"""axe-core, a checker of other people's for what keeps somebody from using a page, inside the page that it checks.

``scripts/axe`` gets it once, pinned, into a folder that git does not see. A test that needs it is skipped by name where
it cannot be had.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.installed import installed

if TYPE_CHECKING:
    from playwright.sync_api import Page

# All that it looks at by itself, and the size of what is pressed: WCAG 2.2, 2.5.8. The policy of the page holds for its
# own scripts; this one comes from outside, as a person's tools do.
_RUN = """
async () => {
  const { violations } = await axe.run(document, {
    resultTypes: ["violations"],
    rules: { "target-size": { enabled: true } },
  });
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${id}: ${target.join(" ")}: ${failureSummary}`));
}
"""


def axe_source() -> str:
    """Its source; empty where it cannot be had."""
    found = installed("axe")
    return Path(found.lines[0]).read_text("utf-8") if found.lines else ""


def need_axe() -> None:
    """Skip the calling test where it cannot be had."""
    found = installed("axe")
    if not found.lines:
        pytest.skip(f"axe-core is not here: {found.reason}")


def violations(page: Page, source: str) -> list[str]:
    """What it finds wrong with what the page shows right now."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(f"{source}; null")
    return page.evaluate(_RUN)
