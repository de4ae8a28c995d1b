"""What is recalled for a question: forty planted facts, and forty questions that none of them answers.

Half of both were kept back while weights and topics were chosen.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_mcp.memory.recall import MOST_RECALLED, recalled_rows
from rkllm_mcp.records import MemoryRow
from tests.support.shared import REPOSITORY

_FOLDER = REPOSITORY / "tests" / "data" / "memory"


def read_lines(name: str) -> list[list[str]]:
    lines = Path(_FOLDER / name).read_text("utf-8").splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


FACTS, OTHERS = read_lines("facts.tsv"), read_lines("others.tsv")
ROWS = [MemoryRow(str(number), text) for number, (_, text, _) in enumerate(FACTS)]


@pytest.mark.parametrize("half", ["tune", "kept"])
def test_the_planted_fact_is_among_the_three_that_are_recalled(half: str) -> None:
    questions = [(question, text) for part, text, question in FACTS if part == half]
    found = {question: [row.text for row in recalled_rows(question, ROWS)] for question, _ in questions}
    hits = [question for question, text in questions if text in found[question]]
    assert len(hits) >= 0.9 * len(questions), [found[question] for question, _ in questions if question not in hits]
    assert max(map(len, found.values())) <= MOST_RECALLED


@pytest.mark.parametrize("half", ["tune", "kept"])
def test_questions_about_other_things_recall_hardly_ever_anything(half: str) -> None:
    questions = [question for part, question in OTHERS if part == half]
    wrong = [question for question in questions if recalled_rows(question, ROWS)]
    assert len(wrong) <= 0.05 * len(questions), wrong


@pytest.mark.parametrize("question", ["", "?", "…", "what is it", "それは？", "a" * 100_000])
def test_a_question_without_own_words_recalls_nothing(question: str) -> None:
    assert recalled_rows(question, ROWS) == []
