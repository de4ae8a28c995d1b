"""``models pull --cpu`` against a local imitation of the hub; the real one was never asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rkllm_mcp.errors import ModelDownloadError, ModelFileError, ModelNotFoundError, UsageError
from rkllm_mcp.models.cards import load_model, model_directories
from rkllm_mcp.models.folder import ModelFolderStore
from rkllm_mcp.models.hub import Hub
from rkllm_mcp.models.install import ModelSources, Pull, pull_weights
from tests.models.test_gguf import no_report, write_gguf
from tests.support.fake_hub import FakeHub, running

REPOSITORY, FILE = "Qwen/Qwen2.5-0.5B-Instruct-GGUF", "qwen2.5-0.5b-instruct-q4_k_m.gguf"


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeHub]:
    from huggingface_hub.utils import close_session

    weights = write_gguf(tmp_path / "a.gguf").read_bytes()
    unknown = write_gguf(tmp_path / "b.gguf", {"tokenizer.ggml.pre": "another"}).read_bytes()
    files = {
        REPOSITORY: {FILE: weights},
        "them/Qwen2.5-0.5B-more-GGUF": {"qwen2.5-0.5b-q8_0.gguf": weights, "page.gguf": b"<html>" * 900},
        "them/odd-GGUF": {"qwen2.5-0.5b-odd.gguf": unknown, "nothing-known.gguf": weights},
    }
    with running(FakeHub(files)) as hub:
        yield hub
    close_session()


@pytest.fixture
def sources(fake: FakeHub, tmp_path: Path) -> ModelSources:
    user = tmp_path / "user"
    said: list[str] = []
    folders = ModelFolderStore(user, free_bytes=lambda _: 10**10)
    catalogue = model_directories({})[-2:]
    return ModelSources(folders, Hub(fake.url, tmp_path / "cache"), directories=(user, *catalogue), say=said.append)


def test_a_model_of_the_catalogue_is_fetched_for_the_cpu_next_to_that_for_the_npu(
    sources: ModelSources, fake: FakeHub
) -> None:
    folder = pull_weights(sources, Pull("qwen2.5-0.5b"), no_report)
    assert (folder.name, folder.has_weights, folder.card.template) == ("qwen2.5-0.5b-cpu", True, "qwen2.5")
    assert (folder.card.cpu, folder.card.published, folder.missing) == (None, None, ())
    assert (folder.folder / "model.gguf").read_bytes() == fake.files[REPOSITORY][FILE]
    assert load_model("qwen2.5-0.5b-cpu", sources.directories) == folder
    fake.requests.clear()
    assert pull_weights(sources, Pull("qwen2.5-0.5b"), no_report) == folder
    assert fake.requests == []


def test_any_repository_is_used_like_the_entry_that_its_file_is_of(sources: ModelSources) -> None:
    name = "them/Qwen2.5-0.5B-more-GGUF:qwen2.5-0.5b-q8_0.gguf"
    folder = pull_weights(sources, Pull(name), no_report)
    assert (folder.card.template, folder.card.tools) == ("qwen2.5", "with_question")
    assert folder.name.endswith("-cpu")


REFUSED = {
    "no GGUF of this entry": ("xlam2-1b", UsageError, "no GGUF file of 'xlam2-1b' is known; there are "),
    "no such entry": ("qwen9", ModelNotFoundError, "There is no model 'qwen9'"),
    "no file": ("them/Qwen2.5-0.5B-more-GGUF", UsageError, "OWNER/NAME:FILE.gguf"),
    "no such file": ("them/odd-GGUF:qwen2.5-0.5b.gguf", ModelDownloadError, "qwen2.5-0.5b.gguf"),
    "no GGUF file at all": ("them/Qwen2.5-0.5B-more-GGUF:page.gguf", ModelFileError, "it is no GGUF file"),
    "an unknown template": ("them/odd-GGUF:nothing-known.gguf", UsageError, "models add FILE.gguf --template NAME"),
    "a tokenizer that is nowhere": (
        "them/odd-GGUF:qwen2.5-0.5b-odd.gguf",
        ModelDownloadError,
        "Qwen/Qwen2.5-0.5B-Instruct",
    ),
}


@pytest.mark.parametrize(("name", "kind", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_had_is_refused_and_leaves_no_model(
    name: str, kind: type[Exception], sentence: str, sources: ModelSources, tmp_path: Path
) -> None:
    with pytest.raises(kind) as caught:
        pull_weights(sources, Pull(name), no_report)
    assert sentence in str(caught.value)
    assert not [path for path in (tmp_path / "user").glob("*") if not path.name.startswith(".")]


def test_a_full_disk_is_said_before_the_download(sources: ModelSources, fake: FakeHub, tmp_path: Path) -> None:
    full = replace(sources, folders=ModelFolderStore(tmp_path / "user", free_bytes=lambda _: 100))
    with pytest.raises(ModelFileError, match="Not enough disk space"):
        pull_weights(full, Pull("qwen2.5-0.5b"), no_report)
    assert fake.bodies() == []
