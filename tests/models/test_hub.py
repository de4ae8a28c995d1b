from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub.utils import close_session

from rkllm_base.answers import AnswerLimits
from rkllm_mcp.errors import ModelDownloadError
from rkllm_mcp.models.hub import Hub, RemoteFile
from tests.support.fake_hub import COMMIT, FakeHub, running
from tests.support.outside import WITHOUT_END, hostile_server

WEIGHTS = bytes(range(256)) * 400
# huggingface_hub writes pieces of ten mebibytes; what breaks off inside a piece is fetched again.
PIECE = 10 * 2**20
LARGE = bytes(range(256)) * (PIECE // 128)
CUT = PIECE + 70_000
FILE = RemoteFile("owner/model", "model.rkllm")
LARGE_FILE = RemoteFile("owner/model", "large.rkllm")


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    with running(FakeHub({"owner/model": {"model.rkllm": WEIGHTS, "large.rkllm": LARGE, "small.json": b"{}"}})) as hub:
        yield hub
    close_session()


@pytest.fixture
def hub(fake: FakeHub, tmp_path: Path) -> Hub:
    return Hub(fake.url, tmp_path / "cache")


class Reported:
    """What was told of a file's growth."""

    def __init__(self) -> None:
        self.last: tuple[str, int, int | None] = ("", 0, None)
        self.first: int | None = None

    def __call__(self, name: str, done: int, total: int | None) -> None:
        self.first = done if self.first is None else self.first
        self.last = (name, done, total)


def fetch(hub: Hub, file: RemoteFile, folder: Path) -> tuple[Path, Reported]:
    report = Reported()
    target = folder / "ready"
    hub.fetch(hub.find(file), folder, target, report)
    return target, report


def parts(folder: Path) -> list[Path]:
    return list(folder.glob("*.incomplete"))


def test_a_file_is_found_without_being_fetched(fake: FakeHub, hub: Hub) -> None:
    found = hub.find(FILE)
    assert (found.etag, found.commit, found.size, found.cached) == (
        hashlib.sha256(WEIGHTS).hexdigest(),
        COMMIT,
        len(WEIGHTS),
        None,
    )
    assert [method for method, _, _ in fake.requests] == ["HEAD"]


def test_a_file_arrives_whole_and_leaves_nothing_else(hub: Hub, tmp_path: Path) -> None:
    target, report = fetch(hub, FILE, tmp_path)
    assert target.read_bytes() == WEIGHTS
    assert report.last == ("model.rkllm", len(WEIGHTS), len(WEIGHTS))
    assert [path.name for path in tmp_path.iterdir()] == ["ready"]
    assert fetch(hub, RemoteFile("owner/model", "small.json"), tmp_path)[0].read_bytes() == b"{}"


def test_a_connection_that_breaks_is_taken_up_where_it_broke(fake: FakeHub, hub: Hub, tmp_path: Path) -> None:
    fake.cuts = [CUT]
    target, report = fetch(hub, LARGE_FILE, tmp_path)
    assert target.read_bytes() == LARGE
    assert fake.bodies() == ["", f"bytes={PIECE}-"]
    assert report.last == ("large.rkllm", len(LARGE), len(LARGE))


def test_what_arrived_in_part_is_continued_in_the_next_run(fake: FakeHub, hub: Hub, tmp_path: Path) -> None:
    fake.cuts, fake.statuses = [CUT], [None, 503]
    with pytest.raises(ModelDownloadError) as caught:
        fetch(hub, LARGE_FILE, tmp_path)
    assert str(caught.value) == f"{fake.url} answered 503 for large.rkllm. Try again later; the download will resume."
    assert [path.stat().st_size for path in parts(tmp_path)] == [PIECE]
    assert not (tmp_path / "ready").exists()
    target, report = fetch(hub, LARGE_FILE, tmp_path)
    assert (target.read_bytes(), report.first, fake.bodies()[-1]) == (LARGE, PIECE, f"bytes={PIECE}-")


def test_a_mirror_that_knows_no_ranges_sends_it_all_again(fake: FakeHub, hub: Hub, tmp_path: Path) -> None:
    fake.cuts, fake.ranges = [CUT], False
    target, report = fetch(hub, LARGE_FILE, tmp_path)
    assert target.read_bytes() == LARGE
    assert report.last == ("large.rkllm", len(LARGE), len(LARGE))


def test_another_version_does_not_continue_the_parts_of_the_first(fake: FakeHub, hub: Hub, tmp_path: Path) -> None:
    fake.cuts, fake.statuses = [CUT], [None, 503]
    with pytest.raises(ModelDownloadError):
        fetch(hub, LARGE_FILE, tmp_path)
    fake.files["owner/model"]["large.rkllm"] = LARGE[::-1]
    assert fetch(hub, LARGE_FILE, tmp_path)[0].read_bytes() == LARGE[::-1]


@pytest.mark.parametrize("by", ["catalogue", "hub"])
def test_a_wrong_checksum_leaves_no_file(fake: FakeHub, hub: Hub, tmp_path: Path, by: str) -> None:
    wrong = hashlib.sha256(b"another").hexdigest()
    file = FILE
    if by == "hub":
        fake.announce["model.rkllm"] = wrong
    else:
        file = RemoteFile("owner/model", "model.rkllm", sha256=wrong)
    with pytest.raises(ModelDownloadError) as caught:
        fetch(hub, file, tmp_path)
    assert str(caught.value).startswith("model.rkllm from owner/model has a wrong checksum. Download")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        (
            RemoteFile("owner/none", "model.rkllm"),
            (
                "The repository owner/none does not exist or is private. Name another with --repository and --file; "
                "for a private one set HF_TOKEN."
            ),
        ),
        (
            RemoteFile("owner/model", "other.rkllm"),
            "owner/model has no file 'other.rkllm'. Look at URL/owner/model/tree/main and name it with --file.",
        ),
        (
            RemoteFile("owner/model", "model.rkllm", "v9"),
            "owner/model has no revision 'v9'. Correct 'revision' in [source].",
        ),
        (
            RemoteFile("owner/gated", "model.rkllm"),
            "owner/gated is gated. Accept its terms at URL/owner/gated, make a token there, and set HF_TOKEN to it.",
        ),
    ],
)
def test_what_cannot_be_had_is_one_sentence(fake: FakeHub, hub: Hub, file: RemoteFile, sentence: str) -> None:
    fake.files["owner/gated"] = {}
    fake.gated.add("owner/gated")
    with pytest.raises(ModelDownloadError) as caught:
        hub.find(file)
    assert str(caught.value) == sentence.replace("URL", fake.url)


def test_a_hub_out_of_reach_is_one_sentence(tmp_path: Path) -> None:
    with running(FakeHub()) as gone:
        pass
    with pytest.raises(ModelDownloadError) as caught:
        Hub(gone.url, tmp_path).find(FILE)
    assert str(caught.value).startswith(f"{gone.url} cannot be reached (")
    assert str(caught.value).endswith(
        "Check the network and try again (the download will resume). Or set HF_ENDPOINT to a mirror. Or fetch the "
        "files on another machine, copy them here and use 'rkllm-mcp models add PATH'."
    )


def cached(cache: Path) -> Path:
    """The file as huggingface_hub's own download would have left it."""
    folder = cache / "models--owner--model"
    blob = folder / "blobs" / hashlib.sha256(WEIGHTS).hexdigest()
    snapshot = folder / "snapshots" / COMMIT / "model.rkllm"
    for path in (blob, snapshot, folder / "refs" / "main"):
        path.parent.mkdir(parents=True)
    blob.write_bytes(WEIGHTS)
    (folder / "refs" / "main").write_text(COMMIT)
    snapshot.symlink_to(blob)
    return blob


def test_the_files_of_a_repository_are_listed(hub: Hub) -> None:
    assert hub.names("owner/model") == ["model.rkllm", "large.rkllm", "small.json"]
    with pytest.raises(ModelDownloadError, match=r"The repository owner/none does not exist"):
        hub.names("owner/none")


def test_where_the_hub_is_out_of_reach_the_cached_files_are_listed(tmp_path: Path) -> None:
    with running(FakeHub()) as gone:
        pass
    hub = Hub(gone.url, tmp_path / "cache")
    with pytest.raises(ModelDownloadError, match="cannot be reached"):
        hub.names("owner/model")
    cached(tmp_path / "cache")
    assert hub.names("owner/model") == ["model.rkllm"]


def test_what_the_cache_has_is_linked_and_not_fetched(fake: FakeHub, hub: Hub, tmp_path: Path) -> None:
    blob = cached(tmp_path / "cache")
    target, report = fetch(hub, FILE, tmp_path)
    assert (target.read_bytes(), fake.bodies(), report.last[1]) == (WEIGHTS, [], len(WEIGHTS))
    assert target.stat().st_ino == blob.stat().st_ino


def test_where_the_hub_is_out_of_reach_the_cache_is_enough(tmp_path: Path) -> None:
    with running(FakeHub()) as gone:
        pass
    cached(tmp_path / "cache")
    hub = Hub(gone.url, tmp_path / "cache")
    assert hub.find(FILE).commit == COMMIT
    assert fetch(hub, FILE, tmp_path)[0].read_bytes() == WEIGHTS


def test_a_full_disk_says_so_and_keeps_what_arrived(hub: Hub, tmp_path: Path) -> None:
    found = hub.find(FILE)
    part = found.part(tmp_path)
    part.symlink_to("/dev/full")
    if not Path("/dev/full").exists():
        pytest.skip("/dev/full is not here")
    with pytest.raises(ModelDownloadError) as caught:
        hub.fetch(found, tmp_path, tmp_path / "ready", Reported())
    assert os.strerror(errno.ENOSPC)
    assert str(caught.value) == (
        "Not enough disk space for model.rkllm. Free disk space and try again; the download will resume."
    )


def test_a_server_that_is_not_a_hub_is_named(fake: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(ModelDownloadError) as caught:
        Hub(f"{fake.url}/cdn", tmp_path).find(FILE)
    assert "answered 404" in str(caught.value)
    with pytest.raises(ModelDownloadError, match="OWNER/NAME"):
        Hub(fake.url, tmp_path).find(RemoteFile("a/b/c", "f"))


@pytest.mark.parametrize("status", [200, 302, 500])
@pytest.mark.parametrize("way", [*WITHOUT_END, "many", "deep", "compressed", "no JSON"])
def test_a_list_of_a_hub_without_end_or_sense_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, status: int
) -> None:
    monkeypatch.setattr("rkllm_mcp.models.hub._LIMITS", AnswerLimits(total_s=1.0, size_bytes=16 * 2**20))
    with hostile_server() as outside:
        outside.way, outside.status = way, status
        hub = Hub(outside.url, tmp_path / "cache")
        with pytest.raises(ModelDownloadError):
            hub.names("owner/model")
        with pytest.raises(ModelDownloadError):
            hub.search("words", 3)
        with pytest.raises(ModelDownloadError):
            fetch(hub, FILE, tmp_path)
        assert outside.sent < 1_000_000_000  # twenty redirects, each with the buffers of the network
    close_session()
