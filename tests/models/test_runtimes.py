"""A release of the runtime is put in place whole and verified, or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rkllm_mcp.errors import ConfigError, ModelDownloadError, RuntimeUnusableError, UsageError
from rkllm_mcp.models.runtimes import RuntimeSource, identified_libraries, identify, pull_runtime, pullable_releases
from rkllm_mcp.runtime.abi import WORKING_VERSIONS
from rkllm_mcp.runtime.library import find_library
from tests.support.emulator import libraries
from tests.support.fake_hub import FakeHub, running

PLACE = "rkllm-runtime/Linux/librkllm_api/aarch64/librkllmrt.so"
LICENCE = b"Copyright (c) Rockchip Electronics Co., Ltd.\n"


@pytest.fixture
def library() -> bytes:
    return libraries()["1.3.0"].read_bytes()


@pytest.fixture
def github(library: bytes) -> Iterator[FakeHub]:
    """A stand-in for the repository; the emulated library has the checksum of 1.3.0 in it."""
    from huggingface_hub.utils import close_session

    files = {"release-v1.3.0/LICENSE": LICENCE, f"release-v1.3.0/{PLACE}": library}
    with running(FakeHub(plain=files)) as hub:
        yield hub
    close_session()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, github: FakeHub, library: bytes) -> Path:
    """The folder of the releases, with the stand-in as the mirror of the environment."""
    mirror = tmp_path / "mirror.json"
    sums = {"1.3.0": hashlib.sha256(library).hexdigest()}
    mirror.write_text(json.dumps({"address": github.url, "checksums": sums}))
    for name in ("RKLLM_LIBRARY", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RKLLM_MCP_RUNTIMES", str(mirror))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    return tmp_path / "rkllm-mcp" / "runtimes"


def quietly(name: str, done: int, total: int | None) -> None:
    del name, done, total


def test_a_release_comes_with_its_licence_and_is_what_auto_takes(home: Path, library: bytes) -> None:
    seen: dict[str, tuple[int, int | None]] = {}
    shown: list[str] = []
    path = pull_runtime(
        "1.3.0", progress=lambda name, done, total: seen.update({name: (done, total)}), licence=shown.append
    )
    assert path == home / "1.3.0" / "librkllmrt.so"
    assert (path.read_bytes(), (path.parent / "LICENSE").read_bytes()) == (library, LICENCE)
    assert (shown, seen["librkllmrt.so"]) == ([LICENCE.decode().rstrip()], (len(library), len(library)))
    assert [each.name for each in home.iterdir()] == ["1.3.0"]
    assert find_library() == path.resolve()
    assert [(each.release, each.problem) for each in identified_libraries()] == [("1.3.0", "")]


def test_a_release_that_is_here_is_not_fetched_again(home: Path, github: FakeHub) -> None:
    path, said = pull_runtime("1.3.0", progress=quietly), list[str]()
    github.requests.clear()
    assert pull_runtime("1.3.0", progress=quietly, say=said.append) == path
    assert (said, github.requests) == ([f"RKLLM 1.3.0 is here already: {path}"], [])


def test_a_download_that_breaks_is_continued_by_the_next_command(home: Path, github: FakeHub, library: bytes) -> None:
    github.cuts, github.statuses = [None, 300_000], [None, None, 503]
    with pytest.raises(ModelDownloadError, match=r"answered 503 for librkllmrt\.so of RKLLM 1\.3\.0\. Try again later"):
        pull_runtime("1.3.0", progress=quietly)
    assert not (home / "1.3.0").exists()
    assert pull_runtime("1.3.0", progress=quietly).read_bytes() == library
    ranges = [wanted for _, path, wanted in github.requests if path.endswith(".so") and wanted]
    assert ranges[-1] == f"bytes={1 << 18}-"


def test_another_file_than_the_release_is_not_put_in_place(home: Path, github: FakeHub, library: bytes) -> None:
    github.plain[f"release-v1.3.0/{PLACE}"] = library[:-1] + b"!"
    with pytest.raises(ModelDownloadError, match=r"sent another file than librkllmrt\.so of RKLLM 1\.3\.0 \(SHA-256 "):
        pull_runtime("1.3.0", progress=quietly)
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("version", "kind", "sentence"),
    [
        ("main", UsageError, "no release 'main' with a known checksum; the releases are 1.2.0, 1.2.1, 1.2.2, 1.2.3"),
        ("1.1.4", RuntimeUnusableError, "RKLLM 1.1.4 is not driven by this program: its parameters have another layou"),
    ],
)
def test_only_releases_with_a_checksum_that_can_be_driven_are_fetched(
    home: Path, github: FakeHub, version: str, kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind) as caught:
        pull_runtime(version, progress=quietly)
    assert str(caught.value).startswith(sentence)
    assert github.requests == []


def test_the_token_of_the_model_hub_is_not_sent_to_another_address(home: Path, github: FakeHub) -> None:
    pull_runtime("1.3.0", progress=quietly)
    assert github.authorizations == set()


def test_a_file_is_named_by_its_checksum_and_else_by_its_own_text(home: Path) -> None:
    assert identify(str(libraries()["1.3.0"])).official_release == "1.3.0"
    assert identify(str(libraries()["1.2.3"].parent)).release == "1.2.3 (emulated)"
    assert [*pullable_releases()] == [*reversed(WORKING_VERSIONS)]


@pytest.mark.parametrize("content", ["{", '{"checksums": {}}', '{"address": "http://x", "checksums": {"1": "main"}}'])
def test_a_mirror_that_cannot_be_used_is_a_mistake_of_the_configuration(
    home: Path, tmp_path: Path, content: str
) -> None:
    (tmp_path / "mirror.json").write_text(content)
    with pytest.raises(ConfigError, match=r"mirror\.json"):
        RuntimeSource.from_environment()
