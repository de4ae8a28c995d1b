"""A static model: a matrix with a row for each token, without another runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mcp_servers.knowledge.embedding.static import StaticEmbedder, static_folder
from mcp_servers.knowledge.errors import BadArgumentError, EngineUnreachableError
from mcp_servers.knowledge.library import LibrarySettings, open_library
from mcp_servers.knowledge.service import embedder_from
from mcp_servers.knowledge.types import SearchRequest
from tests.support.knowledge import document
from tests.support.onnx_models import write_embedder, write_static_embedder

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("below", ["0_StaticEmbedding", "."])
@pytest.mark.parametrize("kind", ["F32", "F16"])
async def test_a_question_in_other_words_finds_its_passage(tmp_path: Path, below: str, kind: str) -> None:
    embedder = embedder_from(f"cpu:{write_static_embedder(tmp_path / 'static', below=below, kind=kind)}")
    assert isinstance(embedder, StaticEmbedder)
    assert embedder.name.startswith("static@")
    async with open_library(tmp_path / "data", LibrarySettings(embedder)) as library:
        base = await library.create("base")
        for text in ("海", "山", "川"):
            await library.add(base.id, document(text))
        await library.indexer.wait_idle()
        assert (await library.search(SearchRequest("peak", base.id))).hits[0].content == "山"


async def test_the_vector_of_a_text_is_the_mean_of_its_tokens(tmp_path: Path) -> None:
    embedder = embedder_from(f"cpu:{write_static_embedder(tmp_path)}")
    assert embedder
    vectors = await embedder.embed(["sea mountain", "sea", "mountain", "", "sea " * 5_000])
    mean = vectors[1] + vectors[2]
    assert np.allclose(vectors[0], mean / np.linalg.norm(mean), atol=1e-6)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0)
    assert np.allclose(vectors[4], vectors[1], atol=1e-5)


def test_a_folder_with_a_network_is_not_a_static_model(tmp_path: Path) -> None:
    write_static_embedder(write_embedder(tmp_path), below=".")
    assert static_folder(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("made", "reason"),
    [({"matrices": 2}, "model.safetensors has 2 matrices"), ({"kind": "BF16"}, "numbers of the type BF16 are not")],
)
def test_another_safetensors_file_is_refused_with_the_reason(
    tmp_path: Path, made: dict[str, object], reason: str
) -> None:
    write_static_embedder(tmp_path, **made)  # pyright: ignore[reportArgumentType]
    with pytest.raises(BadArgumentError, match=reason):
        embedder_from(f"cpu:{tmp_path}")


async def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    folder = write_static_embedder(tmp_path) / "0_StaticEmbedding"
    (folder / "tokenizer.json").write_text("{")
    embedder = embedder_from(f"cpu:{tmp_path}")
    assert embedder
    with pytest.raises(EngineUnreachableError, match="cannot be used"):
        await embedder.embed(["sea"], are_queries=True)
    (folder / "model.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(BadArgumentError, match=r"the header of model\.safetensors is damaged"):
        embedder_from(f"cpu:{tmp_path}")
