"""``store settings``: what the boards of a shared database agree on, shown and changed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.demo_app import Demo, make_demo
from tests.support.postgres import PostgresServer


def test_the_limits_that_boards_agree_on_are_shown_and_changed(postgres: PostgresServer, tmp_path: Path) -> None:
    store = f'[store]\nurl = "{postgres.new_database()}"\n'
    # The first board's are written, and what a configuration does not give is taken from there.
    first = make_demo(tmp_path / "first", [], extra=f"{store}[service]\nkeep_results = true\n")
    second = make_demo(tmp_path / "second", [], extra=f"{store}[service]\nhistory_days = 2\n")

    def settings(board: Demo, *changes: str) -> dict[str, dict[str, str | None]]:
        done = board.run_here("store", "settings", *changes, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert settings(first)["service.keep_results"] == {"database": "true", "board": "true"}
    assert settings(second)["service.history_days"] == {"database": "unlimited", "board": "2.0"}
    assert settings(second, "service.history_days=30")["service.history_days"]["database"] == "30"
    assert settings(first)["service.history_days"] == {"database": "30", "board": None}
    for words in ("history_days=3", "service.history_days=0", "service.keep_results=1", "security.history_calls"):
        done = first.run_here("store", "settings", words)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert words.partition("=")[0] in done.stderr
