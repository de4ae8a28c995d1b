from __future__ import annotations

import os
from pathlib import Path

import pytest

from rkllm_mcp.errors import ModelFileError, UsageError
from rkllm_mcp.models.folder import ModelFolderStore, place_file


@pytest.fixture
def folders(tmp_path: Path) -> ModelFolderStore:
    return ModelFolderStore(tmp_path / "models", free_bytes=lambda _: 2_000_000_000)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_appears_when_all_of_it_is_ready(folders: ModelFolderStore) -> None:
    with folders.workspace("m") as space:
        (space.ready / "model.rkllm").write_text("w")
        (space.ready / "model.toml").write_text("")
        assert not folders.has("m")
        assert list(folders.root.glob("*/model.toml")) == []
        assert folders.publish("m", space) == folders.root / "m"
    assert names(folders.root) == ["m"]
    assert names(folders.root / "m") == ["model.rkllm", "model.toml"]


def test_a_failure_leaves_only_the_parts_of_files(folders: ModelFolderStore) -> None:
    with pytest.raises(RuntimeError), folders.workspace("m") as space:
        (space.ready / "tokenizer.json").write_text("{}")
        raise RuntimeError
    assert names(folders.root) == []
    with pytest.raises(RuntimeError), folders.workspace("m") as space:
        (space.place / "abc.incomplete").write_text("half")
        (space.ready / "tokenizer.json").write_text("{}")
        raise RuntimeError
    assert names(folders.root) == [".m.part"]
    assert names(folders.root / ".m.part") == ["abc.incomplete", "lock"]


def test_two_at_a_time_are_refused(folders: ModelFolderStore) -> None:
    with folders.workspace("m"):
        sentence = r"Another rkllm-mcp process is using 'm'\. Wait for it, or end it\."
        with pytest.raises(ModelFileError, match=sentence), folders.workspace("m"):
            pass
        with folders.workspace("other"):
            pass
        assert (folders.root / ".m.part" / "ready").is_dir(), "the second one tidies nothing of the first"


def test_a_disk_without_room_is_refused_beforehand(tmp_path: Path) -> None:
    folders = ModelFolderStore(tmp_path, free_bytes=lambda _: 1_600_000_000)
    folders.check_room(1_500_000_000)
    with pytest.raises(ModelFileError) as caught:
        folders.check_room(1_600_000_000)
    assert str(caught.value) == (
        f"Not enough disk space: 1 600 MB needed in {tmp_path}, 1 600 MB free. "
        "Remove a model, or set XDG_DATA_HOME to a larger disk."
    )


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", ".hidden", "a b", "a\n", "x" * 101])
def test_a_name_cannot_lead_out_of_the_folder(folders: ModelFolderStore, name: str) -> None:
    for use in (folders.folder, folders.remove):
        with pytest.raises(UsageError, match="is not a valid model name"):
            use(name)
    with pytest.raises(UsageError, match="is not a valid model name"), folders.workspace(name):
        pass
    assert not folders.has(name)


def test_a_removed_folder_tells_what_became_free(folders: ModelFolderStore, tmp_path: Path) -> None:
    folder = folders.root / "m"
    folder.mkdir(parents=True)
    (tmp_path / "mine.rkllm").write_bytes(bytes(5000))
    os.link(tmp_path / "mine.rkllm", folder / "model.rkllm")
    (folder / "tokenizer.json").write_bytes(bytes(70))
    assert folders.remove("m") == 70
    assert names(folders.root) == []
    assert (tmp_path / "mine.rkllm").exists()


def test_removing_a_link_leaves_its_target(folders: ModelFolderStore, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "model.rkllm").write_bytes(bytes(5000))
    folders.root.mkdir()
    (folders.root / "m").symlink_to(tmp_path / "elsewhere")
    assert folders.remove("m") == 0
    assert names(tmp_path / "elsewhere") == ["model.rkllm"]


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file")
    with pytest.raises(ModelFileError) as caught, ModelFolderStore(tmp_path / "models").workspace("m"):
        pass
    assert str(caught.value) == (
        f"{tmp_path}/models/.m.part cannot be written (Not a directory). Set XDG_DATA_HOME to a folder of yours."
    )


def test_a_file_is_linked_and_only_copied_when_asked(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("weights")
    (tmp_path / "via").symlink_to(source)
    assert place_file(tmp_path / "via", tmp_path / "hard") == "hard link"
    assert (tmp_path / "hard").stat().st_ino == source.stat().st_ino
    assert place_file(source, tmp_path / "copied", copy=True) == "copy"
    assert (tmp_path / "copied").stat().st_ino != source.stat().st_ino
    # A second hard link of the same name is refused like one over two file systems is.
    shared = Path("/dev/shm")
    if shared.is_dir() and shared.stat().st_dev != tmp_path.stat().st_dev:
        target = shared / f"rkllm-mcp-test-{os.getpid()}"
        try:
            assert place_file(source, target) == "link"
            assert target.readlink() == source
        finally:
            target.unlink(missing_ok=True)


def test_what_a_killed_process_left_is_not_in_the_next_folder(folders: ModelFolderStore, tmp_path: Path) -> None:
    file = tmp_path / "model.rkllm"
    file.write_text("weights")
    # The folder as SIGKILL leaves it: a link to a file, a file of another name, a partial download.
    killed = folders.root / ".m.part"
    (killed / "ready").mkdir(parents=True)
    for path in (
        killed / "lock",
        killed / "ready" / "model.rkllm",
        killed / "ready" / "other",
        killed / "a.incomplete",
    ):
        path.write_text("left")
    with folders.workspace("m") as space:
        assert (space.place / "a.incomplete").read_text() == "left"
        place_file(file, space.ready / "model.rkllm")
        published = folders.publish("m", space)
    assert {path.name: path.read_text() for path in published.iterdir()} == {"model.rkllm": "weights"}
    assert [path.name for path in folders.root.iterdir()] == ["m"]
