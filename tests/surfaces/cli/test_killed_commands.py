"""Commands that are killed with SIGKILL at every one of their changes to files, and then run again."""

from __future__ import annotations

import shutil
import sqlite3
import tarfile
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rkllm_mcp.models.cards import load_model
from rkllm_mcp.surfaces.cli.setup import Journal
from tests.support.fake_hub import FakeHub
from tests.support.killed import Commands
from tests.support.killed import commands as running_commands
from tests.surfaces.cli.test_backup import STORED, state, store
from tests.surfaces.cli.test_models import FILE, PULL, WEIGHTS, environment, fake

__all__ = ["environment", "fake"]
OLD, NEW = "[service]\nport = 1\n", "[service]\nport = 2\n"


def killed_from_one_beginning(home: Path, commands: Commands, *words: str) -> Iterator[int]:
    """Kill a command at each change, and put the home back to what it was before each."""
    saved = home.with_name("saved")
    shutil.copytree(home, saved, symlinks=True)
    for number in commands.killed_at_each_change(*words):
        yield number
        shutil.rmtree(home)
        shutil.copytree(saved, home, symlinks=True)


def leftovers(home: Path) -> list[str]:
    """The hidden files of unfinished work."""
    endings = (".partial", ".part", ".draft", ".undone", ".removed", ".incomplete")
    return [path.name for path in home.rglob("*") if path.name.endswith(endings)]


@pytest.fixture
def home(tmp_path: Path, environment: dict[str, str]) -> Path:
    """The home of the commands, empty."""
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def commands(home: Path, environment: dict[str, str]) -> Generator[Commands]:
    """The commands, in children of one process."""
    with running_commands(home, {**environment, "HOME": str(home)}) as found:
        yield found


def titles(home: Path) -> list[str]:
    connection = sqlite3.connect(state(home))
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    titles = [title for (title,) in connection.execute("SELECT title FROM conversations ORDER BY title")]
    connection.close()
    return titles


def configuration(home: Path) -> Path:
    file = home / ".config/rkllm-mcp/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def test_a_backup_that_is_killed_is_none_and_the_next_one_is_whole(home: Path, commands: Commands) -> None:
    configuration(home).write_text(OLD)
    store(home, STORED)
    target = home / "board.tar.gz"
    kills = 0
    for _ in killed_from_one_beginning(home, commands, "backup", str(target)):
        if not target.exists():
            commands.run("backup", str(target))
        with tarfile.open(target) as archive:
            assert archive.getnames() == ["manifest.json", "config/config.toml", "state/state.db"]
        assert leftovers(home) == []
        kills += 1
    assert kills >= 8


def test_a_restore_that_is_killed_leaves_whole_files_and_is_completed_by_the_next(
    home: Path, commands: Commands
) -> None:
    configuration(home).write_text(NEW)
    store(home, STORED)
    archive = home / "board.tar.gz"
    commands.run("backup", str(archive))
    configuration(home).write_text(OLD)
    store(home, replace(STORED, id="later", title="Later"))
    mixed = 0
    for _ in killed_from_one_beginning(home, commands, "restore", str(archive), "--yes"):
        # Before the first file is replaced, what was here is in its own archive.
        replaced = (configuration(home).read_text() == NEW, titles(home) == [STORED.title])
        if any(replaced):
            (former,) = state(home).parent.parent.glob("rkllm-mcp-before-restore-*.tar.gz")
            with tarfile.open(former) as files:
                assert "state/state.db" in files.getnames()
        mixed += replaced[0] != replaced[1]
        commands.run("restore", str(archive), "--yes")
        assert (configuration(home).read_text(), titles(home), leftovers(home)) == (NEW, [STORED.title], [])
    assert mixed, "it was killed between two files, too"


def test_an_undo_of_setup_that_is_killed_goes_on_and_takes_no_file_that_was_changed_since(
    home: Path, commands: Commands
) -> None:
    models = home / ".local/share/rkllm-mcp/models"
    journal = Journal(home / ".local/state/rkllm-mcp/setup.json")
    for folder in (models / "one", models / "two"):
        journal.begin(folder)
        folder.mkdir(parents=True)
        for name in ("model.toml", "model.rkllm", "tokenizer.json"):
            (folder / name).write_text(name)
        journal.done(folder)
    journal.begin(configuration(home))
    configuration(home).write_text(OLD)
    journal.done(configuration(home))
    kills = 0
    for _ in killed_from_one_beginning(home, commands, "setup", "--undo"):
        kills += 1
        changed = models / "one" / "model.toml"
        if is_changed := changed.exists() and kills % 2 == 0:
            changed.write_text("mine")
        said = commands.run("setup", "--undo")
        assert ("Kept" in said.partition("rkllm-mcp/state")[0] and "changed since" in said) is is_changed, said
        assert [path.name for path in models.glob("*")] == (["one"] if is_changed else [])
        assert (configuration(home).exists(), journal.file.exists()) == (False, is_changed)
        assert leftovers(home) == []
    assert kills >= 12


def test_a_download_of_a_model_that_is_killed_shows_no_model_and_is_completed_by_the_next(
    home: Path, commands: Commands, fake: FakeHub
) -> None:
    place = home / ".local/share/rkllm-mcp/models"
    kills = 0
    for _ in killed_from_one_beginning(home, commands, "models", "pull", *PULL):
        kills += 1
        for folder in place.glob("[!.]*"):
            assert load_model(str(folder)).missing == ()
        if not (place / "qwen2.5-1.5b").exists():
            commands.run("models", "pull", *PULL)
        assert [path.name for path in place.glob("[!.]*")] == ["qwen2.5-1.5b"]
        # Killed after its last step, it leaves an empty file.
        assert [path.name for path in place.glob(".*/*")] in ([], ["lock"])
        assert (place / "qwen2.5-1.5b" / FILE).read_bytes() == WEIGHTS
    assert kills >= 8
    # An empty file instead of a whole one would have been fetched again each time.
    assert len(fake.bodies()) < 3 * kills


def test_a_model_whose_removal_is_killed_is_whole_or_gone(home: Path, commands: Commands) -> None:
    place = home / ".local/share/rkllm-mcp/models"
    commands.run("models", "pull", *PULL)
    kills = 0
    for _ in killed_from_one_beginning(home, commands, "models", "remove", "qwen2.5-1.5b", "--yes"):
        kills += 1
        for folder in place.glob("[!.]*"):
            assert load_model(str(folder)).missing == ()
            commands.run("models", "remove", "qwen2.5-1.5b", "--yes")
        commands.run("models", "pull", *PULL)
        commands.run("models", "remove", "qwen2.5-1.5b", "--yes")
        assert leftovers(home) == []
    assert kills >= 3


def test_no_configuration_is_ever_half_written(home: Path, commands: Commands) -> None:
    configuration(home).write_text(OLD)
    words = ("servers", "add", "notes", "--", "notes-server")
    texts = set[str]()
    for _ in killed_from_one_beginning(home, commands, *words):
        texts.add(configuration(home).read_text())
        if configuration(home).read_text() == OLD:
            commands.run(*words)
        assert 'name = "notes"' in configuration(home).read_text()
    assert OLD in texts
    assert len(texts) <= 2
