"""Models of this machine: what a folder has to hold, and searches with a real embedder and a real cross-encoder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import anyio
import numpy as np
import pytest

from mcp_servers.knowledge.embedding import Embedder, Reranker
from mcp_servers.knowledge.embedding.onnx import read_model_folder
from mcp_servers.knowledge.errors import BadArgumentError, EngineUnreachableError, MissingExtraError
from mcp_servers.knowledge.library import LibrarySettings, open_library
from mcp_servers.knowledge.service import embedder_from, reranker_from
from mcp_servers.knowledge.types import SearchRequest
from tests.support.knowledge import document
from tests.support.onnx_models import write_embedder, write_reranker

pytestmark = pytest.mark.anyio
needs_library = pytest.mark.skipif(find_spec("onnxruntime") is None, reason="onnxruntime is not installed")


def embedder_at(folder: Path) -> Embedder:
    embedder = embedder_from(f"cpu:{folder}")
    assert embedder
    return embedder


def reranker_at(folder: Path) -> Reranker:
    reranker = reranker_from(f"cpu:{folder}")
    assert reranker
    return reranker


def says(folder: Path, file: str, **table: object) -> None:
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(json.dumps(table), "utf-8")


# --- what a folder holds ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["model.onnx", "onnx/model.onnx", "onnx/model_qint8_arm64.onnx"])
def test_the_network_is_found_where_it_is_usually_published(tmp_path: Path, file: str) -> None:
    folder = write_embedder(tmp_path / "minilm", file=file)
    found = read_model_folder("embedder", str(folder))
    assert (found.network, found.tokenizer) == (folder / file, folder / "tokenizer.json")
    assert found.name.partition("@")[0] == "minilm"
    assert read_model_folder("embedder", str(folder / file)) == found


def test_a_folder_says_how_its_model_is_used(tmp_path: Path) -> None:
    folder = write_embedder(tmp_path / "ruri")
    bare = read_model_folder("embedder", str(folder))
    assert (bare.pooling, bare.query_prompt, bare.document_prompt, bare.max_tokens) == ("mean", "", "", 16)
    says(folder, "1_Pooling/config.json", pooling_mode_mean_tokens=False, pooling_mode_cls_token=True)
    says(folder, "config_sentence_transformers.json", prompts={"query": "検索: ", "document": "文書: "})
    says(folder, "tokenizer_config.json", model_max_length=10**30)
    says(folder, "sentence_bert_config.json", max_seq_length=128)
    told = read_model_folder("embedder", str(folder))
    assert (told.pooling, told.query_prompt, told.document_prompt, told.max_tokens) == (
        "first",
        "検索: ",
        "文書: ",
        128,
    )
    assert told.name != bare.name


def test_models_that_are_known_to_want_it_get_their_prompts(tmp_path: Path) -> None:
    found = read_model_folder("embedder", str(write_embedder(tmp_path / "multilingual-e5-small")))
    assert (found.query_prompt, found.document_prompt) == ("query: ", "passage: ")


def test_another_model_in_the_same_place_has_another_name_and_a_copy_the_same(tmp_path: Path) -> None:
    first = read_model_folder("embedder", str(write_embedder(tmp_path / "model")))
    copy = read_model_folder("embedder", str(write_embedder(tmp_path / "card" / "model")))
    other = read_model_folder("embedder", str(write_embedder(tmp_path / "model", turned=True)))
    assert first.network.stat().st_size == copy.network.stat().st_size
    assert (copy.name == first.name, other.name == first.name) == (True, False)


def without_network(folder: Path) -> None:
    (folder / "model.onnx").unlink()


def without_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def with_several(folder: Path) -> None:
    (folder / "model.onnx").rename(folder / "model_O1.onnx")
    (folder / "model_O2.onnx").touch()


def with_damage(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text("{", "utf-8")


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (without_network, "is a folder without an .onnx file"),
        (without_tokenizer, "is a folder without tokenizer.json"),
        (with_several, r"is a folder with several models \(.*model_O1.onnx, model_O2.onnx\). Name one of the files"),
        (with_damage, "cannot be read"),
    ],
)
def test_a_folder_without_a_model_is_reported_at_once(
    tmp_path: Path, harm: Callable[[Path], None], reason: str
) -> None:
    harm(write_embedder(tmp_path))
    for choose, setting in ((embedder_from, "embedder"), (reranker_from, "reranker")):
        with pytest.raises(BadArgumentError, match=rf"^{setting} {reason}"):
            choose(f"cpu:{tmp_path}")


@pytest.mark.parametrize("given", ["/nowhere", "sentence-transformers/minilm", "\0", "~nobody-at-all/x"])
def test_a_path_that_is_not_a_folder_is_reported_at_once(given: str) -> None:
    with pytest.raises(BadArgumentError, match=r"^embedder .*Give cpu:FOLDER"):
        embedder_from(f"cpu:{given}")


def test_without_the_library_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_embedder(tmp_path)
    # What Python notes of a module that is not there.
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for choose in (embedder_from, reranker_from):
        with pytest.raises(MissingExtraError, match="needs onnxruntime, which is not installed"):
            choose(f"cpu:{tmp_path}")


# --- what a model makes ----------------------------------------------------------------------------------------------


@needs_library
async def test_texts_become_unit_vectors_by_their_meaning_also_one_without_a_word(tmp_path: Path) -> None:
    embedder = embedder_at(write_embedder(tmp_path))
    texts = ["ocean", "peak", "stream " * 40, "", *["sea"] * 9]
    vectors = await embedder.embed(texts)
    assert vectors.shape == (len(texts), 4)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0)
    near = vectors @ (await embedder.embed(["海"], are_queries=True))[0]
    assert near[[0, *range(4, 13)]].min() > 0.99
    assert near[[1, 2]].max() < 0.1


@needs_library
@pytest.mark.parametrize(("key", "sign"), [("pooling_mode_cls_token", 1), ("pooling_mode_lasttoken", -1)])
async def test_the_vector_of_one_token_is_taken_where_the_folder_says_so(tmp_path: Path, key: str, sign: int) -> None:
    folder = write_embedder(tmp_path)
    says(folder, "1_Pooling/config.json", **{key: True})
    # The first and the last token are marks around the text; the shorter text is padded.
    for vector in await embedder_at(folder).embed(["sea mountain sea", "sea"]):
        assert sign * vector[-1] > 0.9


@needs_library
async def test_a_passage_is_judged_with_the_question_and_by_itself(tmp_path: Path) -> None:
    reranker = reranker_at(write_reranker(tmp_path))
    passages = [*["mountain"] * 9, "the sea"]
    scores = await reranker.relevance("sea", passages)
    assert all(0 <= score <= 1 for score in scores)
    assert scores[-1] > 0.9 > 0.5 > max(scores[:-1])


@needs_library
async def test_a_damaged_or_unsuitable_model_is_reported(tmp_path: Path) -> None:
    broken = write_embedder(tmp_path / "broken")
    network = broken / "model.onnx"
    network.write_bytes(network.read_bytes()[:-40])
    with pytest.raises(EngineUnreachableError, match=r"^The model broken@.* cannot be used: .*Fetch its files again"):
        await embedder_at(broken).embed(["sea"], are_queries=True)
    with pytest.raises(EngineUnreachableError, match="its output is not a relevance: it is not a cross-encoder"):
        await reranker_at(write_embedder(tmp_path / "embedder")).relevance("sea", ["sea"])
    generates = write_embedder(tmp_path / "generates", asks="past_key")
    with pytest.raises(EngineUnreachableError, match="it requires 'past_key', which is not a text input"):
        await embedder_at(generates).embed(["sea"], are_queries=True)


# --- in a library ----------------------------------------------------------------------------------------------------


@needs_library
async def test_a_search_finds_by_meaning_and_another_model_makes_its_own_vectors(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    kept = tmp_path / "kept"
    with anyio.fail_after(60):
        async with open_library(kept, LibrarySettings(embedder_at(write_embedder(folder)))) as library:
            base = await library.create("base")
            for text in ("the ocean", "the peak", "the stream"):
                await library.add(base.id, document(text))
            await library.indexer.wait_idle()
            before = await library.index_state(base.id)
            (hit, *_) = (await library.search(SearchRequest("山", base.id, threshold=0))).hits
            assert (hit.content, hit.scores.sparse) == ("the peak", None)
        async with open_library(kept, LibrarySettings(embedder_at(write_embedder(folder, turned=True)))) as library:
            await library.indexer.wait_idle()
            after = await library.index_state(base.id)
            (hit, *_) = (await library.search(SearchRequest("山", base.id, threshold=0))).hits
            assert hit.content == "the peak"
    assert (before.done, after.done, after.next_embedding) == (3, 3, "")
    assert before.active_embedder != after.active_embedder


@needs_library
async def test_a_damaged_model_costs_its_stage_and_is_reported(tmp_path: Path) -> None:
    folders = [write_embedder(tmp_path / "embedder"), write_reranker(tmp_path / "reranker")]
    for folder in folders:
        (folder / "model.onnx").write_bytes(b"no network")
    settings = LibrarySettings(embedder_at(folders[0]), reranker_at(folders[1]))
    async with open_library(tmp_path / "kept", settings) as library:
        base = await library.create("base")
        await library.add(base.id, document("the sea"))
        await library.indexer.wait_idle()
        assert "cannot be used" in (await library.index_state(base.id)).problem
        result = await library.search(SearchRequest("sea", base.id))
    assert [hit.content for hit in result.hits] == ["the sea"]
    assert [sentence.partition(": The model ")[0] for sentence in result.left_out] == [
        "the search by vectors was left out",
        "the cross-encoder was left out",
    ]


@needs_library
async def test_the_cross_encoder_of_this_machine_has_the_last_word(tmp_path: Path) -> None:
    settings = LibrarySettings(reranker=reranker_at(write_reranker(tmp_path / "model")))
    async with open_library(tmp_path / "kept", settings) as library:
        base = await library.create("base")
        for text in ("blue blue blue", "a blue sea"):
            await library.add(base.id, document(text))
        hits = (await library.search(SearchRequest("blue", base.id))).hits
    assert [(hit.content, hit.is_weak) for hit in hits] == [("a blue sea", False), ("blue blue blue", True)]
    assert hits[0].score == hits[0].scores.cross_encoder
