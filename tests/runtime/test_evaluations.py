"""Embeddings, logits and scores are those of the prompt alone, whatever was in the cache, and come whole."""

from __future__ import annotations

import math
from array import array

import anyio
import pytest

from rkllm_mcp.errors import InputRefusedError, PromptTooLongError
from rkllm_mcp.generation import OutputRows, RunStats
from rkllm_mcp.runtime.engine import Engine, open_engine, probability, unit_vector
from tests.support.emulator import ENDOFTEXT, IM_END, Emulator, prompt_of

pytestmark = pytest.mark.anyio

HEAD = "speed flat\ncontext 4096\nhidden {}\npiece yes no"
FAULTY = HEAD.format(8) + "\nfault {}"
YES, NO = 259, 260
RULES = """rule
user <Query>:(.*)<Document>:(.*)
rank yes no
rule
user (.+)
say $1"""


def ids_of(text: str) -> list[int]:
    return [*text.encode(), ENDOFTEXT]


def dot(left: array[float], right: array[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


async def hidden(engine: Engine, text: str) -> array[float]:
    with anyio.fail_after(60):
        return (await engine.evaluate(ids_of(text), "hidden")).row()


@pytest.mark.parametrize(
    "fault", ["hidden-rows all", "hidden-rows last", "hidden-callbacks one", "hidden-needs-clear", "reuse off"]
)
async def test_an_embedding_is_the_last_tokens_row_in_any_delivery_of_the_runtime(
    emulator: Emulator, fault: str
) -> None:
    async with open_engine(emulator.settings(RULES, FAULTY.format("log-noise"))) as engine:
        wanted = await hidden(engine, "the cat sat")
    async with open_engine(emulator.settings(RULES, FAULTY.format(fault))) as engine:
        await hidden(engine, "the cat")
        first, again = [await hidden(engine, "the cat sat") for _ in range(2)]
    assert (first, again) == (wanted, wanted)


async def test_embeddings_have_length_one_and_those_of_like_texts_are_closer(emulator: Emulator) -> None:
    texts = ["the cat sat on the mat", "a cat on a mat", "interest rates rise again"]
    async with open_engine(emulator.settings(RULES, HEAD.format(64))) as engine:
        with anyio.fail_after(60):
            cat, other_cat, rates = await engine.embed([ids_of(text) for text in texts])
            (raw,) = await engine.embed([ids_of(texts[0])], normalise=False)
            (short,) = await engine.embed([ids_of(texts[0])], dimensions=16)
            for wrong in (0, 65):
                with pytest.raises(InputRefusedError, match=f"have 64 dimensions, not {wrong}"):
                    await engine.embed([ids_of(texts[0])], dimensions=wrong)
    assert [round(dot(vector, vector), 5) for vector in (cat, other_cat, rates, short)] == [1.0] * 4
    assert dot(cat, other_cat) > dot(cat, rates)
    assert cat == unit_vector(raw)
    assert short == unit_vector(raw[:16])


async def test_all_rows_come_on_request_and_one_where_the_runtime_gives_one(newest: Emulator) -> None:
    prompt = ids_of("hello")
    for fault, given in (("hidden-rows all", len(prompt)), ("hidden-rows last", 1)):
        async with open_engine(newest.settings(RULES, FAULTY.format(fault))) as engine:
            with anyio.fail_after(60):
                await engine.evaluate(prompt, "hidden")  # nothing of it may be reused
                rows = await engine.evaluate(prompt, "hidden", rows="all")
                last = await engine.evaluate(prompt, "hidden", rows="last")
                two = await engine.evaluate(prompt, "hidden", rows="all", columns=(5, 2))
        assert (rows.width, rows.given, len(rows.values)) == (8, given, 8 * given)
        assert rows.row() == last.row()
        assert list(two.row(0)) == [rows.row(0)[5], rows.row(0)[2]]
        assert rows.stats.prefilled_tokens == len(prompt)


@pytest.mark.parametrize("fault", ["logits-rows all", "logits-rows last"])
async def test_logits_are_those_of_the_next_token_and_nothing_is_generated(
    emulator: Emulator, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RKLLM_EMULATOR_LOG", str(emulator.log))
    async with open_engine(emulator.settings(RULES, FAULTY.format(fault))) as engine:
        with anyio.fail_after(60):
            logits = await engine.logits(prompt_of("zebra"))
    assert len(logits) == 261
    assert max(range(len(logits)), key=logits.__getitem__) == ord("z")
    called = [call["call"] for call in emulator.calls()]
    assert called[-4:] == ["rkllm_clear_kv_cache", "rkllm_run", "rkllm_clear_kv_cache", "rkllm_destroy"]


async def test_a_reranker_gives_the_probability_of_yes(emulator: Emulator) -> None:
    def pair(document: str) -> list[int]:
        return prompt_of(f"<Query>:yellow apples<Document>:{document}")

    async with open_engine(emulator.settings(RULES, FAULTY.format("logits-rows all"))) as engine:
        with anyio.fail_after(60):
            scores = await engine.rerank([pair("some yellow apples"), pair("green apples"), pair("a dog")], YES, NO)
            with pytest.raises(InputRefusedError, match="logits have 261 columns, so none is 999; ask for one from 0"):
                await engine.rerank([pair("x")], 999, NO)
            again = await engine.rerank([pair("some yellow apples")], YES, NO)
    assert [round(score, 2) for score in scores] == [0.98, 0.5, 0.02]
    assert again == scores[:1]


async def test_a_generation_after_an_evaluation_begins_cold_and_is_whole(emulator: Emulator) -> None:
    async with open_engine(emulator.settings(RULES, FAULTY.format("hidden-needs-clear"))) as engine:
        with anyio.fail_after(60):
            for _ in range(2):
                said = [item async for item in engine.generate(prompt_of("hey"))]
                stats = said[-1]
                assert isinstance(stats, RunStats)
                assert (stats.cold, [getattr(item, "id", None) for item in said[:-1]]) == (True, [*b"hey", IM_END])
                await engine.embed([ids_of("hey")])


async def test_an_evaluation_that_is_left_is_aborted_and_the_next_one_is_whole(newest: Emulator) -> None:
    slow = newest.settings(RULES, f"{HEAD.format(8)}\nspeed prefill 400 decode 100", leave_timeout_s=10)
    async with open_engine(slow) as engine:
        await engine.ready()
        with anyio.fail_after(60):
            with anyio.move_on_after(0.01):
                await hidden(engine, "x" * 80)
            assert len(await hidden(engine, "y")) == 8
        assert engine.supervisor.restarts == 0


async def test_a_large_result_crosses_the_processes_whole(newest: Emulator) -> None:
    settings = newest.settings(RULES, HEAD.format(4096))
    async with open_engine(settings) as engine:
        with anyio.fail_after(60):
            rows = await engine.evaluate(ids_of("x" * 300), "hidden", rows="all")
            assert rows.row() == (await engine.evaluate(ids_of("x" * 300), "hidden")).row()
    assert len(rows.values) == 301 * 4096


async def test_what_cannot_be_evaluated_is_refused_before_the_npu_sees_it(newest: Emulator) -> None:
    async with open_engine(newest.settings(RULES, context_tokens=64)) as engine:
        with pytest.raises(PromptTooLongError):
            await engine.evaluate([1] * 64, "hidden")
        with pytest.raises(InputRefusedError, match="no column -1"):
            await engine.evaluate([1], "logits", columns=(-1,))
        with pytest.raises(InputRefusedError, match="no column 'yes'"):
            await engine.evaluate([1], "logits", columns=("yes",))  # pyright: ignore[reportArgumentType]
        with pytest.raises(InputRefusedError, match="no LoRA adapter 'legal' is loaded"):
            await engine.embed([[1]], lora="legal")


def test_pooling_is_exact_at_its_edges() -> None:
    zeros = array("f", [0.0, 0.0])
    assert unit_vector(zeros) == zeros
    assert probability(3.0, 3.0) == 0.5
    assert math.isclose(probability(2.0, 0.0), 1 / (1 + math.exp(-2)))
    assert (probability(1e4, -1e4), probability(-1e4, 1e4)) == (1.0, 0.0)


def test_rows_are_taken_from_either_end() -> None:
    stats = RunStats("stop", 2, 1.0, 0.0, 0, 1.0)
    rows = OutputRows(array("f", [1, 2, 3, 4]), 2, 2, stats)
    assert (list(rows.row()), list(rows.row(0)), list(rows.row(-2))) == ([3, 4], [1, 2], [1, 2])
