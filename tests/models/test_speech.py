"""A model for speech comes from a hub in one step: resumed after a break, with the right checksum, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rkllm_base.installation import InstallationError
from rkllm_mcp.errors import ModelDownloadError, UsageError
from rkllm_mcp.models import speech
from rkllm_mcp.models.folder import ModelFolderStore
from rkllm_mcp.models.hub import Hub
from rkllm_mcp.models.speech import CATALOGUE, SpeechSources
from tests.support.fake_hub import COMMIT, FakeHub, running

CARD = CATALOGUE["vits-ljs"]
FILES = {"vits-ljs.onnx": b"network " * 100_000, "tokens.txt": b"a 0\n", "lexicon.txt": b"a a\n", "README.md": b"x"}


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    from huggingface_hub.utils import close_session

    with running(FakeHub({CARD.repository: FILES})) as hub:
        yield hub
    close_session()


@pytest.fixture
def sources(fake: FakeHub, tmp_path: Path) -> SpeechSources:
    store = ModelFolderStore(tmp_path / "speech")
    return SpeechSources(store, Hub(fake.url, tmp_path / "cache", "Copy it by hand."), lambda name: None)


def quietly(name: str, done: int, total: int | None) -> None:
    del name, done, total


def test_a_model_arrives_with_its_files_and_is_not_fetched_again(sources: SpeechSources, fake: FakeHub) -> None:
    folder = sources.pull(CARD.name, quietly)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {name: FILES[name] for name in CARD.files}
    fake.requests.clear()
    assert (sources.pull(CARD.name, quietly), fake.requests) == (folder, [])


def test_a_broken_download_goes_on_where_it_broke(sources: SpeechSources, fake: FakeHub) -> None:
    fake.cuts = [400_000]
    folder = sources.pull(CARD.name, quietly)
    assert (folder / "vits-ljs.onnx").read_bytes() == FILES["vits-ljs.onnx"]
    whole, rest = fake.bodies()
    assert (whole, rest.startswith("bytes="), rest != "bytes=0-") == ("", True, True)


def test_a_file_with_another_checksum_is_not_taken(
    sources: SpeechSources, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = replace(CARD, files={**CARD.files, "vits-ljs.onnx": "0" * 64}, revision=COMMIT)
    monkeypatch.setitem(speech.CATALOGUE, CARD.name, pinned)
    with pytest.raises(ModelDownloadError, match=r"vits-ljs\.onnx from csukuangfj/vits-ljs has a wrong checksum"):
        sources.pull(CARD.name, quietly)
    assert not sources.folders.has(CARD.name)
    assert any(f"/resolve/{COMMIT}/" in path for _, path, _ in fake.requests)


def test_what_is_unknown_or_cannot_be_installed_is_named(sources: SpeechSources) -> None:
    with pytest.raises(
        UsageError, match=r"no model for speech 'sense-voise'; there are .*; did you mean 'sense-voice'"
    ):
        sources.pull("sense-voise", quietly)

    def refuse(name: str) -> None:
        raise InstallationError(f"{name} could not be installed")

    with pytest.raises(UsageError, match="speech could not be installed"):
        replace(sources, install=refuse).pull(CARD.name, quietly)


def test_every_known_model_names_its_licence_its_makers_and_where_it_comes_from() -> None:
    for card in CATALOGUE.values():
        assert all((card.licence, card.attribution, card.languages, card.files, card.download_mb)), card.name
        assert card.key in ("stt", "tts")
        assert not any(word in card.licence.lower() for word in ("nc", "non-commercial", "research"))
        assert all(len(sha) in (0, 64) for sha in card.files.values())
