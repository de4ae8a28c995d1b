"""``rkllm-mcp backup`` and ``restore``, on a store and a knowledge base that are really there."""

from __future__ import annotations

import gzip
import io
import json
import os
import sqlite3
import subprocess
import sys
import tarfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.messages import StoredTurn
from rkllm_mcp.records import StoredConversation
from rkllm_mcp.store import open_store
from tests.support.outcome import Command

TURNS = (StoredTurn("user", "東京は？"), StoredTurn("assistant", "晴れ", ending="answered"))
STORED = StoredConversation("abc123", "東京は？", 1.0, 2.0, TURNS)


@pytest.fixture
def home(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a configuration, a conversation, a knowledge base and a model."""
    del command  # which chooses a home, too
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    config = home / ".config/rkllm-mcp/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[service]\nport = 1\n", "utf-8")
    knowledge = home / ".local/share/rkllm-mcp/knowledge/knowledge.db"
    knowledge.parent.mkdir(parents=True)
    with sqlite3.connect(knowledge) as connection:
        connection.execute("CREATE TABLE documents (text)")
        connection.execute("INSERT INTO documents VALUES ('手当は月額5,000円')")
    connection.close()
    model = home / ".local/share/rkllm-mcp/models/big"
    model.mkdir(parents=True)
    (model / "big.rkllm").write_bytes(b"0" * 5000)
    store(home, STORED)
    return home


def state(home: Path) -> Path:
    return home / ".local/state/rkllm-mcp/state.db"


def store(home: Path, *conversations: StoredConversation) -> None:
    async def add() -> None:
        async with open_store(path=state(home), required=True) as opened:
            for conversation in conversations:
                await opened.conversations.add("", conversation)

    anyio.run(add)


@contextmanager
def in_use(database: Path) -> Generator[None]:
    """A second program that has the database open, with a change in its log only."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("UPDATE conversations SET title = 'changed'")
    yield
    connection.close()


def titles(command: Command) -> list[str]:
    return [each["title"] for each in json.loads(command("conversations", "list", "--json").out)]


def test_a_backup_brings_everything_back_on_another_machine(
    home: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "board.tar.gz"
    with in_use(state(home)):
        saved = command("backup", str(file))
    assert (saved.code, saved.out) == (0, f"{file}\n")
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as archive:
        names = archive.getnames()
    assert names[0] == "manifest.json"
    # A model is fetched again by name, and a log belongs to the database that was copied whole.
    assert {name.partition("/")[0] for name in names[1:]} == {"config", "state", "data"}
    assert not any("big.rkllm" in name or name.endswith(("-wal", "-shm")) for name in names)

    other = tmp_path / "other"
    monkeypatch.setenv("HOME", str(other))
    restored = command("restore", str(file))
    assert restored.code == 0, restored.err
    assert titles(command) == ["changed"]
    assert (other / ".config/rkllm-mcp/config.toml").read_text("utf-8") == "[service]\nport = 1\n"
    with sqlite3.connect(other / ".local/share/rkllm-mcp/knowledge/knowledge.db") as connection:
        assert connection.execute("SELECT text FROM documents").fetchall() == [("手当は月額5,000円",)]
    connection.close()
    assert state(other).stat().st_mode & 0o077 == 0


def test_what_a_restore_replaces_is_backed_up_first(home: Path, tmp_path: Path, command: Command) -> None:
    file = tmp_path / "board.tar.gz"
    command("backup", str(file))
    store(home, replace(STORED, id="later", title="Later"))
    restored = command("restore", str(file), "--yes")
    assert restored.code == 0, restored.err
    assert titles(command) == ["東京は？"]
    former = next(state(home).parent.parent.glob("rkllm-mcp-before-restore-*.tar.gz"))
    assert former.name in restored.err
    assert command("restore", str(former), "--yes").code == 0
    assert sorted(titles(command)) == ["Later", "東京は？"]


def archive_with(file: Path, *entries: tarfile.TarInfo) -> None:
    manifest = json.dumps({"format": 1, "version": "0.1.0", "models": []}).encode()
    first = tarfile.TarInfo("manifest.json")
    first.size = len(manifest)
    with tarfile.open(file, "w:gz") as archive:
        archive.addfile(first, io.BytesIO(manifest))
        for entry in entries:
            archive.addfile(entry, io.BytesIO(b"x" * entry.size))


def entry(name: str, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type = kind
    if kind == tarfile.REGTYPE:
        made.size = 1
    else:
        made.linkname = "/etc/passwd"
    return made


@pytest.mark.parametrize(
    "hostile",
    [
        entry("config/../../../escaped"),
        entry("/etc/escaped"),
        entry("elsewhere/escaped"),
        entry("config"),
        entry("."),
        entry("config/link", tarfile.SYMTYPE),
        entry("state/link", tarfile.LNKTYPE),
        entry("state/device", tarfile.CHRTYPE),
    ],
    ids=lambda made: made.name,
)
def test_an_archive_that_names_another_place_changes_nothing(
    home: Path, tmp_path: Path, command: Command, hostile: tarfile.TarInfo
) -> None:
    file = tmp_path / "hostile.tar.gz"
    archive_with(file, entry("config/config.toml"), hostile)
    refused = command("restore", str(file), "--yes")
    assert (refused.code, hostile.name in refused.err) == (2, True), refused.err
    assert (home / ".config/rkllm-mcp/config.toml").read_text("utf-8") == "[service]\nport = 1\n"
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize(
    ("name", "size", "reason"),
    [
        ("config/long", 2**50, "unpacks to more than"),
        ("x" * (2**20 + 1), 1, "a name in it is too long"),
        ("manifest.json", 2**30, "it has no manifest"),
    ],
)
def test_an_archive_that_would_fill_disk_or_memory_is_refused(
    home: Path, tmp_path: Path, command: Command, name: str, size: int, reason: str
) -> None:
    file, bomb = tmp_path / "bomb.tar.gz", tarfile.TarInfo(name)
    bomb.size = size
    entries = [] if name == "manifest.json" else [archived(b'{"format": 1, "version": "0.1.0", "models": []}')]
    # Its content would follow, compressed a thousandfold.
    file.write_bytes(gzip.compress(b"".join(entries) + bomb.tobuf() + bytes(2**16)))
    refused = command("restore", str(file), "--yes")
    assert (refused.code, reason in refused.err) == (2, True), refused.err
    assert (home / ".config/rkllm-mcp/config.toml").read_text("utf-8") == "[service]\nport = 1\n"
    assert not list((home / ".local/state").glob(".rkllm-mcp-restore*"))


def archived(manifest: bytes) -> bytes:
    """A manifest as the first entry of an archive."""
    first = tarfile.TarInfo("manifest.json")
    first.size = len(manifest)
    return first.tobuf() + manifest + bytes(-len(manifest) % tarfile.BLOCKSIZE)


def test_a_backup_removes_what_a_killed_one_has_left(home: Path, tmp_path: Path, command: Command) -> None:
    with sqlite3.connect(state(home)) as connection:
        connection.execute("CREATE TABLE filler (x)")
        connection.execute("INSERT INTO filler VALUES (randomblob(60000000))")
    connection.close()
    file = tmp_path / "board.tar.gz"
    arguments = [sys.executable, "-m", "rkllm_mcp", "backup", str(file)]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not any(folder.iterdir() for folder in tmp_path.glob(".board.tar.gz.*") if folder.is_dir()):
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    assert not file.exists()
    assert list(tmp_path.glob(".board.tar.gz.*"))
    # That of a backup which is still running stays.
    running = tmp_path / f".board.tar.gz.{os.getppid()}.partial"
    running.touch()
    done = command("backup", str(file))
    assert (done.code, file.exists()) == (0, True), done.err
    assert list(tmp_path.glob(".board.tar.gz.*")) == [running]


def test_a_backup_follows_no_link_and_reads_no_device_and_says_so(home: Path, tmp_path: Path, command: Command) -> None:
    secret, planted = tmp_path / "secret", state(home).parent
    secret.mkdir()
    (secret / "shadow").write_text("root:secret", "utf-8")
    links = [planted / "link.txt", planted / "link.db", planted / "fifo"]
    links[0].symlink_to(secret / "shadow")
    links[1].symlink_to(home / ".local/share/rkllm-mcp/knowledge/knowledge.db")
    os.mkfifo(links[2])
    (planted / "folder").symlink_to(secret)
    file = tmp_path / "board.tar.gz"
    done = command("backup", str(file))
    assert (done.code, [path for path in links if path.name not in done.err]) == (0, []), done.err
    with tarfile.open(file) as archive:
        names = [name for name in archive.getnames() if name.startswith("state/")]
    assert names == ["state/state.db"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_backup_of_root_takes_no_file_of_another_account(home: Path, tmp_path: Path, command: Command) -> None:
    foreign = state(home).parent / "foreign.txt"
    foreign.write_text("x", "utf-8")
    os.chown(foreign, 12345, 12345)
    refused = command("backup", str(tmp_path / "board.tar.gz"))
    assert (refused.code, foreign.name in refused.err, (tmp_path / "board.tar.gz").exists()) == (1, True, False)


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (b'{"format": 1, "version": "0.1.0", "models": 5}', "models"),
        (b'{"format": 1, "version": ["0"], "models": []}', "version"),
        (b'{"format": 1, "version": "0.1.0", "models": [1]}', "models.0"),
        (b"[" * 100_000, "damaged"),
        (b"\xff\xfe", "damaged"),
        (b"5", "damaged"),
    ],
)
def test_a_damaged_manifest_is_named_and_nothing_is_changed(
    home: Path, tmp_path: Path, command: Command, manifest: bytes, problem: str
) -> None:
    file = tmp_path / "board.tar.gz"
    config = entry("config/config.toml")
    file.write_bytes(gzip.compress(archived(manifest) + config.tobuf() + bytes(1024)))
    refused = command("restore", str(file), "--yes")
    assert (refused.code, "manifest" in refused.err, problem in refused.err) == (2, True, True), refused.err
    assert (home / ".config/rkllm-mcp/config.toml").read_text("utf-8") == "[service]\nport = 1\n"


def test_a_damaged_card_of_a_model_is_named_before_a_restore_changes_anything(
    home: Path, tmp_path: Path, command: Command
) -> None:
    file = tmp_path / "board.tar.gz"
    command("backup", str(file))
    config = home / ".config/rkllm-mcp/config.toml"
    config.write_text("[service]\nport = 2\n", "utf-8")
    card = home / ".local/share/rkllm-mcp/models/big/model.toml"
    card.write_bytes(b"\xff = [")
    refused = command("restore", str(file), "--yes")
    assert (refused.code != 0, "models/big/model.toml" in refused.err) == (True, True), refused.err
    assert config.read_text("utf-8") == "[service]\nport = 2\n"


@pytest.mark.parametrize("damage", ["cut", "text", "no manifest", "later version"])
def test_a_file_that_is_not_a_whole_backup_changes_nothing(
    home: Path, tmp_path: Path, command: Command, damage: str
) -> None:
    file = tmp_path / "board.tar.gz"
    command("backup", str(file))
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-200])
    elif damage == "text":
        file.write_bytes(b"not an archive")
    elif damage == "no manifest":
        with tarfile.open(file, "w:gz") as archive:
            archive.add(state(home), "state/state.db")
    else:
        file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()).replace(b'"format": 1', b'"format": 9', 1)))
    before = state(home).read_bytes()
    refused = command("restore", str(file), "--yes")
    assert refused.code == 2
    assert file.name in refused.err
    assert state(home).read_bytes() == before


def test_a_backup_replaces_no_file_and_needs_something_to_store(home: Path, tmp_path: Path, command: Command) -> None:
    file = tmp_path / "board.tar.gz"
    file.write_text("mine", "utf-8")
    assert (command("backup", str(file)).code, file.read_text("utf-8")) == (2, "mine")
    assert command("backup", str(tmp_path / "none" / "board.tar.gz")).code == 2
    for folder in (".config", ".local"):
        (home / folder).rename(home / f"away{folder}")
    nothing = command("backup", str(tmp_path / "new.tar.gz"))
    assert (nothing.code, "nothing to back up" in nothing.err) == (2, True)
    assert [path.name for path in tmp_path.glob("*.tar.gz*")] == ["board.tar.gz"]
