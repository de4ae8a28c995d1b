"""The tokenizer of a model is known by the text of the first tokens, and another model's ends the answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_mcp.errors import ModelFileError
from rkllm_mcp.generation import Token
from rkllm_mcp.prompt.tokenizer import ModelTokenizer, PlainText
from rkllm_mcp.providers.rkllm import FOREIGN_TOKENS, PROVEN_TOKENS, TokenComparison
from tests.providers.test_rkllm_options import Asked, question, words
from tests.support.demo_app import make_demo
from tests.support.demo_model import demo_vocabulary, demo_with_wrong_tokenizer, rotated_tokenizer
from tests.support.small_tokenizers import LOSSLESS

pytestmark = pytest.mark.anyio

TEXT = "東京の天気は晴れ、気温は 21 度です。The weather in Tokyo is fine; 👩‍💻 user_name = [1, 2]\n\n  fine"


def spoken(tokenizer: ModelTokenizer, text: str) -> list[Token]:
    """The tokens of a text as the runtime delivers them: a character that spans tokens comes with its last one."""
    tokens: list[Token] = []
    waiting: list[int] = []
    for token_id in tokenizer.encode([PlainText(text)]):
        waiting.append(token_id)
        said = tokenizer.decode(waiting)
        is_whole = not said.endswith("\ufffd")
        tokens.append(Token(token_id, said if is_whole else ""))
        waiting = [] if is_whole else waiting
    return tokens


@pytest.mark.parametrize("name", LOSSLESS)
def test_a_models_own_tokenizer_is_never_doubted(name: str) -> None:
    tokenizer = ModelTokenizer(LOSSLESS[name]().to_str())
    tokens = spoken(tokenizer, TEXT)
    for start in range(len(tokens)):
        compared = TokenComparison(tokenizer, tokenizer.control_ids | tokenizer.special_ids)
        compared.add(tokens[start:])
        compared.finish()


def test_text_of_a_runtime_that_has_none_is_not_evidence() -> None:
    compared = TokenComparison(demo_vocabulary(), demo_vocabulary().special_ids)
    compared.add(Token(token.id, "") for token in spoken(demo_vocabulary(), TEXT))
    compared.finish()
    assert not compared.is_proven


def test_a_few_tokens_prove_a_tokenizer_and_fewer_refute_it() -> None:
    tokens = spoken(demo_vocabulary(), "The weather in Tokyo is fine today and tomorrow as well")
    own = TokenComparison(demo_vocabulary(), frozenset())
    own.add(tokens[: PROVEN_TOKENS - 1])
    assert not own.is_proven
    own.add(tokens[PROVEN_TOKENS - 1 : PROVEN_TOKENS])
    assert own.is_proven
    other = TokenComparison(ModelTokenizer(rotated_tokenizer()), frozenset())
    other.add(tokens[: FOREIGN_TOKENS - 1])
    with pytest.raises(
        ModelFileError, match=r"^tokenizer\.json is not this model's own: token \d+ is 'The' for the run"
    ):
        other.add(tokens[FOREIGN_TOKENS - 1 : FOREIGN_TOKENS])


def test_a_short_answer_is_judged_at_its_end() -> None:
    other = TokenComparison(ModelTokenizer(rotated_tokenizer()), frozenset())
    other.add(spoken(demo_vocabulary(), "No")[:1])
    with pytest.raises(ModelFileError):
        other.finish()


async def test_once_proven_nothing_is_compared_any_more() -> None:
    asked = Asked("The weather in Tokyo is fine today.", "Fine again.")
    assert words(await asked.respond()) == "The weather in Tokyo is fine today."
    asked.engine.vocabulary = ModelTokenizer(rotated_tokenizer())
    assert words(await asked.respond(question("And now?"))) == "Fine again."


async def test_an_answer_with_another_models_tokenizer_ends_and_so_does_the_next() -> None:
    asked = Asked(*["The weather in Tokyo is fine today."] * 2)
    asked.engine.vocabulary = ModelTokenizer(rotated_tokenizer())
    for _ in range(2):
        with pytest.raises(ModelFileError, match="so no prompt says what was meant"):
            await asked.respond(question())
    assert asked.engine.aborted == 2


def test_on_the_runtime_the_answer_ends_with_a_sentence(tmp_path: Path) -> None:
    demo = make_demo(tmp_path / "demo", servers=())
    model = demo_with_wrong_tokenizer(tmp_path / "wrong")
    done = demo.run_here("--model", str(model), "run", "Hello")
    assert done.returncode == 1
    assert "Error: tokenizer.json is not this model's own: token " in done.stderr
    assert "Put the original model's tokenizer.json into the model's folder" in done.stderr
