"""``rkllm-mcp knowledge`` against a knowledge server that runs elsewhere, and the choice of that server."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Generator
from pathlib import Path
from typing import cast

import anyio
import pytest

from mcp_servers.knowledge.library import open_library
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.sections import Config
from rkllm_mcp.config.servers import StdioServer
from rkllm_mcp.surfaces.cli.knowledge_client import knowledge_server
from tests.support.knowledge import document
from tests.support.knowledge_server import RULES
from tests.support.outcome import Command
from tests.support.shared import REPOSITORY


async def fill(folder: Path) -> None:
    async with open_library(folder) as library:
        for name in ("twins", "twins", "empty", "full"):
            base = await library.create(name)
        await library.add(base.id, document("The first page.", title="A page"))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Generator[str, None, None]:
    """A knowledge server over HTTP: two knowledge bases of one name, an empty one, and one with a document."""
    folder = tmp_path_factory.mktemp("knowledge")
    anyio.run(fill, folder)
    words = [sys.executable, "-m", "mcp_servers.knowledge", "--http", "--port", "0", "--folder", str(folder)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield process.stderr.readline().strip().rpartition("at ")[2]
        finally:
            process.kill()


@pytest.fixture
def kb(command: Command, address: str, tmp_path: Path) -> Command:
    """``rkllm-mcp knowledge`` with that server in the configuration."""
    (tmp_path / "mcp_config.toml").write_text(f'[[servers]]\nname = "knowledge"\nurl = "{address}"\n', "utf-8")

    def run(*words: str) -> object:
        return command("knowledge", *words)

    return cast("Command", run)


def test_the_first_document_makes_its_knowledge_base(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "rules.md").write_text(RULES, "utf-8")
    assert "'rkllm-mcp knowledge add FILE' makes one" in command("knowledge", "list").err
    mistyped = command("knowledge", "add", "ruels.md")
    assert (mistyped.code, mistyped.out, mistyped.err.count("\n")) == (1, "", 1)
    assert "ruels.md cannot be opened: No such file or directory" in mistyped.err
    assert command("knowledge", "add", f"{'long' * 80}.md").err.endswith(
        "cannot be opened: No such file or directory. Check the path and its permissions.\n"
    )
    assert "'rkllm-mcp knowledge add FILE' makes one" in command("knowledge", "list").err
    monkeypatch.setenv("HOME", str(tmp_path))
    first = command("knowledge", "add", "~/rules.md")
    assert (first.code, first.out.partition("  ")[2]) == (0, "added  就業規則\n")
    assert "Created the knowledge base 'documents'." in first.err
    assert first.err.endswith("The assistant does not search it yet: 'rkllm-mcp servers install knowledge'.\n")
    # A name that is mistyped later makes no second one.
    assert command("knowledge", "add", "rules.md", "--base", "document").code == 2
    bases = json.loads(command("knowledge", "list", "--json").out)
    assert [(base["name"], base["total_documents"]) for base in bases] == [("documents", 1)]


def test_documents_go_in_are_found_and_go_out_again(kb: Command, tmp_path: Path) -> None:
    name = uuid.uuid4().hex
    made = kb("create", name, "--description", "就業規則など")
    base_id = made.out.strip()
    assert (made.code, str(uuid.UUID(base_id))) == (0, base_id)

    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "rules.md").write_text(RULES, "utf-8")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 nothing of the kind")
    added = kb("add", "docs", "--base", name, "--collection", "人事")
    assert added.code == 1
    assert added.out.endswith("  added  就業規則\n")
    assert "failed: docs/broken.pdf is damaged" in added.err
    again = kb("add", "docs/rules.md", "--base", base_id, "--collection", "人事")
    assert again.out.endswith("  unchanged  就業規則\n")
    assert "does not search it yet" not in added.err + again.err

    found = kb("search", "リモートワーク手当の金額は？", "-b", name, "--explain")
    score, _, citation = found.out.partition("\n")[0].partition("  ")
    assert 0.6 <= float(score) <= 1
    assert citation == "(就業規則, 手当)"
    assert "リモートワーク手当は月額5,000円を支給する。" in found.out
    assert "dense" in found.err
    assert "left out: this knowledge base has no vectors" in found.err

    assert [line.split()[1:] for line in kb("list").out.splitlines() if base_id in line] == [
        [name, "1", "2", "就業規則など"]
    ]
    listed = kb("list", name)
    assert "就業規則" in listed.out
    assert "人事" in listed.out
    assert kb("list", "-b", base_id).out == listed.out
    removed = kb("remove", "docs/rules.md", "-b", name)
    assert (removed.code, removed.err) == (0, "Removed 就業規則.\n")
    nothing = kb("search", "リモートワーク手当", "-b", base_id)
    assert (nothing.code, nothing.err) == (
        2,
        "Error: there are no documents to search in yet; 'rkllm-mcp knowledge add FILE' adds one\n",
    )
    gone = kb("remove", "-b", name, "--all", "--yes")
    assert gone.err == f"Removed the knowledge base {name}.\n"
    assert name not in kb("list").out


def test_programs_read_json_and_texts_come_from_a_pipe(
    kb: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = uuid.uuid4().hex
    assert json.loads(kb("create", name, "--json").out)["name"] == name
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("経費は月末までに精算する。".encode())))
    added = json.loads(kb("add", "-", "-b", name, "--title", "経費規程", "--json").out)
    (document,) = added[0]["documents"]
    found = json.loads(kb("search", "経費の精算", "--json").out)
    assert found["results"][0]["metadata"]["citation"] == "(経費規程)"
    assert name in [base["name"] for base in json.loads(kb("list", "--json").out)]
    assert kb("remove", document["document_id"]).err == "Removed 経費規程.\n"
    kb("remove", "-b", name, "--all", "-y")


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["list", "-b", "none"], 2, "there is no knowledge base 'none'; 'rkllm-mcp knowledge list' shows them"),
        (["remove"], 2, "name the documents to remove, or a knowledge base with --base and --all"),
        (["remove", "--all"], 2, "--all removes a whole knowledge base; name it with --base"),
        (["remove", "-b", "x", "--all"], 2, "Remove the knowledge base x with all its documents? Say it with --yes"),
        (["list", "x", "-b", "y"], 2, "name one knowledge base: as an argument or with --base"),
        (["search", "x", "-b", "twins"], 2, "several knowledge bases are called 'twins'; give the id of one, "),
        (["search", "x", "-b", "empty"], 2, "there are no documents to search in yet; "),
        (["search", "x", "--threshold", "nan"], 2, "--threshold is no number; give one from 0 to 1"),
        (["search", "x", "--threshold", "2"], 1, "threshold out of range (0.0-1.0). "),
        (["search", "x", "--max-results", "51"], 1, "max_results exceeds limit (50). "),
        (["search", "xyzzy"], 1, "No results found. Use other words, or a threshold below 0.6."),
        (["create", ""], 1, "name is missing. Give a name."),
        (["remove", str(uuid.UUID(int=0))], 1, "Document not found. "),
    ],
)
def test_what_cannot_be_done_is_one_sentence(kb: Command, words: list[str], code: int, sentence: str) -> None:
    failed = kb(*words)
    assert (failed.code, failed.out) == (code, "")
    assert failed.err.startswith(f"Error: {sentence}")
    assert failed.err.count("\n") == 1


def test_a_knowledge_base_is_exported_imported_and_backed_up(kb: Command, tmp_path: Path) -> None:
    name = uuid.uuid4().hex
    kb("create", name)
    (tmp_path / "rules.md").write_text(RULES, "utf-8")
    kb("add", "rules.md", "-b", name)
    assert kb("reindex", "-b", name).err == "Reindexed 2 chunks.\n"

    exported = kb("export", "rules.jsonl.gz", "-b", name)
    assert (exported.code, exported.err.partition("(")[0]) == (0, "Exported rules.jsonl.gz ")
    assert exported.err.endswith("bytes): 1 documents, 2 chunks.\n")
    again = kb("export", "rules.jsonl.gz", "-b", name)
    assert (again.code, again.err.startswith("Error: path rules.jsonl.gz exists. ")) == (1, True)

    copy = f"{name} copy"
    imported = kb("import", "rules.jsonl.gz", "--name", copy)
    assert (imported.code, imported.err.endswith("bytes): 1 documents, 2 chunks.\n")) == (0, True)
    assert imported.out.strip() in kb("list").out
    assert "(就業規則, 手当)" in kb("search", "リモートワーク手当の金額は？", "-b", copy).out
    into = kb("import", "rules.jsonl.gz", "-b", copy)
    assert (into.code, len(json.loads(kb("list", copy, "--json").out))) == (0, 1)

    (tmp_path / "broken.jsonl").write_text("{}\n", "utf-8")
    broken = kb("import", "broken.jsonl")
    assert broken.err.startswith("Error: path broken.jsonl is no exported knowledge base. ")
    backed_up = kb("backup", "copy.sqlite3")
    assert (backed_up.code, backed_up.err.partition("(")[0]) == (0, "Backed up copy.sqlite3 ")
    assert (tmp_path / "copy.sqlite3").stat().st_mode & 0o777 == 0o600
    for each in (name, copy):
        kb("remove", "-b", each, "--all", "-y")


def test_messages_name_the_file(kb: Command, tmp_path: Path) -> None:
    name = uuid.uuid4().hex
    kb("create", name)
    (tmp_path / "empty.md").write_bytes(b"")
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04")
    failed = kb("add", "empty.md", "a.zip", "none.txt", "-b", name)
    assert failed.code == 1
    assert [line.partition(": ")[2].partition(" ")[0] for line in failed.err.splitlines()] == [
        "empty.md",
        "a.zip",
        "none.txt",  # the whole path, of which ``kb`` leaves the folder out
    ]
    kb("remove", "-b", name, "--all", "-y")


def test_an_equal_name_an_empty_folder_and_an_empty_input_are_reported(
    kb: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = uuid.uuid4().hex
    assert kb("create", name).err == ""
    another = kb("create", name.upper())
    assert another.err == "There is another knowledge base of this name; tell them apart by their ids.\n"
    (tmp_path / "folder").mkdir()
    nothing = kb("add", "folder", "-b", another.out.strip())
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "There is nothing to add in folder.\n")
    for piped, sentence in (
        ("テスト".encode("cp932"), "standard input is no UTF-8; save it in a file, of which the encoding is found out"),
        (b" \n", "standard input has no text; pipe a document into it"),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped)))
        failed = kb("add", "-", "-b", "full")
        assert (failed.code, failed.err) == (2, f"Error: {sentence}\n")


def test_a_missing_server_is_reported(command: Command, tmp_path: Path) -> None:
    (tmp_path / "mcp_config.toml").write_text(
        '[[servers]]\nname = "knowledge"\nurl = "http://127.0.0.1:9/mcp"\n', "utf-8"
    )
    failed = command("knowledge", "list")
    assert failed.code == 1
    assert failed.err.startswith("Error: Failed to connect to the knowledge server")


def test_a_server_that_cannot_run_is_quoted(command: Command, tmp_path: Path) -> None:
    (tmp_path / "mcp_config.toml").write_text(
        '[[servers]]\nname = "knowledge"\ncommand = "sh"\nargs = ["-c", "echo numpy is not installed >&2; exit 2"]\n',
        "utf-8",
    )
    failed = command("knowledge", "list")
    assert failed.code == 1
    assert "it exited with code 2" in failed.err
    assert failed.err.endswith(" It said: numpy is not installed\n")


def test_the_first_server_that_is_one_is_spoken_to_and_else_one_of_our_own(tmp_path: Path) -> None:
    def chosen(text: str) -> str:
        file = tmp_path / "mcp_config.toml"
        file.write_text(text, "utf-8")
        return knowledge_server(load_config(file)).name

    other = '[[servers]]\nname = "other"\ncommand = "x"\n'
    by_module = '[[servers]]\nname = "docs"\ncommand = "python"\nargs = ["-m", "mcp_servers.knowledge"]\n'
    by_program = '[[servers]]\nname = "papers"\ncommand = "rkllm-mcp-knowledge"\nenabled = false\n'
    by_name = '[[servers]]\nname = "knowledge"\nurl = "http://127.0.0.1:9/mcp"\n'
    assert chosen(other + by_module + by_program) == "docs"
    assert chosen(other + by_program) == "papers"
    assert chosen(other + by_name) == "knowledge"
    own = knowledge_server(Config())
    assert isinstance(own, StdioServer)
    assert (own.name, own.command, own.args) == ("knowledge", sys.executable, ("-m", "mcp_servers.knowledge"))
