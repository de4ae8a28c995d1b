"""The tokens of a day: kept, added to by several processes, and begun anew with another day."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_mcp.store import open_store

pytestmark = pytest.mark.anyio


async def test_two_that_share_a_file_count_together_and_another_day_begins_at_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with open_store(path=path) as one, open_store(path=path) as other:
        assert await one.tally.add("2026-11-22") == 0
        assert [await one.tally.add("2026-11-22", 5), await other.tally.add("2026-11-22", 7)] == [5, 12]
        assert await one.tally.add("2026-11-22") == 12
    async with open_store(path=path) as later:
        assert await later.tally.add("2026-11-22") == 12
        assert await later.tally.add("2026-11-23", 1) == 1


async def test_a_clock_that_is_set_to_other_days_and_back_makes_no_tokens_available_again(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with open_store(path=path) as store:
        await store.tally.add("2026-11-22", 5)
        assert await store.tally.add("2099-01-01", 3) == 3
        assert await store.tally.add("1970-01-01", 2) == 2
    async with open_store(path=path) as store:
        days = ("2026-11-22", "2099-01-01", "1970-01-01")
        assert [await store.tally.add(day, 1) for day in days] == [6, 4, 3]
        for day in range(1, 31):
            await store.tally.add(f"2026-12-{day:02}", 1)
        assert await store.tally.add("2026-12-30") == 1


async def test_counts_of_earlier_releases_are_continued(tmp_path: Path) -> None:
    async with open_store(path=tmp_path / "state.db") as memory:
        (await memory.texts("daily tokens")).write("spent", "2026-11-22 40")
        assert await memory.tally.add("2026-11-22", 2) == 42
