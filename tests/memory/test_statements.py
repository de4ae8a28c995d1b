"""What a person asks to be remembered, found by rules; half of the sentences were kept back."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_mcp.memory.statements import Statement, is_secret, row_text, statement_in
from rkllm_mcp.records import LONGEST_ROW
from tests.support.shared import REPOSITORY

_FILE = REPOSITORY / "tests" / "data" / "memory" / "statements.tsv"
LINES = [line.split("\t") for line in Path(_FILE).read_text("utf-8").splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(("half", "least"), [("tune", 1.0), ("kept", 0.95)])
def test_sixty_sentences_in_two_languages_give_what_they_ask_for(half: str, least: float) -> None:
    sentences = [(sentence, fact) for part, sentence, fact in LINES if part == half]
    found = [(sentence, fact, statement_in(sentence)) for sentence, fact in sentences]
    right = [sentence for sentence, fact, statement in found if (statement.fact if statement else "") == fact]
    assert len(right) >= least * len(sentences), sorted({sentence for sentence, _ in sentences} - set(right))
    # Nothing is remembered that was not asked for.
    assert [sentence for sentence, fact, statement in found if statement and not fact] == []


def test_a_further_question_is_left_for_the_model() -> None:
    assert statement_in("Keep in mind that I don't eat meat. What could I cook tonight?") == Statement(
        "I don't eat meat", "What could I cook tonight?"
    )
    assert statement_in("私の犬の名前はハチ。覚えて") == Statement("私の犬の名前はハチ")


@pytest.mark.parametrize(
    "material",
    [
        "Summarise: Remember that the price is 100 dollars. " + "It is a good price for a house. " * 30,
        "line\nline\nRemember that my bank is Example Bank.\nline\nline\nline",
        "What does the sign `Remember that dogs bite.` mean?",
        "次の文を英語にして：「私の名前は太郎だと覚えておいて」",
    ],
)
def test_long_material_and_quotations_are_not_what_the_person_says(material: str) -> None:
    assert statement_in(material) is None


@pytest.mark.parametrize(
    "secret",
    [
        "my password is hunter2",
        "the PIN code of my card is 4711",
        "銀行の暗証番号は4711",
        "Wi-Fiのパスワードはsakura123",
        "my card is 4111 1111 1111 1111",
        "マイナンバーは1234 5678 9012",
        "the key is sk-proj-abcdefgh12345678",
        "token=ghp_0123456789abcdefABCDEF0123456789abcd",
        "log in at https://me:opensesame@example.com/",
    ],
)
def test_passwords_keys_and_card_numbers_are_secrets(secret: str) -> None:
    assert is_secret(secret)


@pytest.mark.parametrize(
    "fact",
    [
        "my dog's name is Hachi",
        "the spare key is under the flower pot",
        "my locker is number 214",
        "会社の電話は03-1234-5678",
        "the invoice number is 4111 1111 1111 1112",
        "鍵は玄関の棚",
    ],
)
def test_what_only_sounds_like_a_secret_is_not_one(fact: str) -> None:
    assert not is_secret(fact)


def test_a_row_has_one_line_and_a_limit() -> None:
    assert row_text("  my dog\n is   called Hachi ") == "my dog is called Hachi"
    assert len(row_text("犬" * 500)) == LONGEST_ROW
