"""A red and a blue field: what the model sees of it in the terminal and through the APIs of programs."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.end_to_end.test_chat import ask, leave, started
from tests.support.demo_app import Demo
from tests.support.emulator import NEWEST, VERSIONS
from tests.support.picture_apis import APIS, Talk
from tests.support.pictures import BLUE_ABOVE_RED, RED_ABOVE_BLUE
from tests.support.seeing_page import seeing_board
from tests.support.tour_board import serving

# After a text, without a new picture, and as the second one.
TURNS = (
    ("hello", None, "You said hello"),
    ("What is it?", RED_ABOVE_BLUE, "It is red above, blue below."),
    ("still?", None, "Still red above, blue below."),
    ("And this?", BLUE_ABOVE_RED, "It is blue above, red below."),
)


@pytest.mark.parametrize("version", [*VERSIONS, NEWEST])
def test_a_red_and_a_blue_field_is_described_in_the_terminal_and_by_four_apis(tmp_path: Path, version: str) -> None:
    # Four outputs, and a runtime on which a new picture is noise until the cache is cleared.
    board = seeing_board(tmp_path, version, outputs=4, faults="fault stale-pictures")
    in_the_terminal(board)
    with serving(board) as (address, _):
        for api in APIS:
            talk: Talk = []
            for words, picture, answer in TURNS:
                talk.append((words, base64.b64encode(picture).decode() if picture else None))
                assert (api.__name__, words, api(address, talk).strip()) == (api.__name__, words, answer)
                talk.append((answer, None))


def in_the_terminal(board: Demo) -> None:
    with started(board, "chat") as terminal:
        for number, (words, picture, answer) in enumerate(TURNS):
            if picture:
                (board.folder / f"{number}.png").write_bytes(picture)
                ask(terminal, f"/file {number}.png")
            ask(terminal, words)
            terminal.expect_exact(answer)
        assert leave(terminal) == 0
