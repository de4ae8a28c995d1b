"""The program as others start it: a process, its signals, and what is left behind."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client, StdioServerParameters

from mcp_servers.knowledge.__main__ import main
from mcp_servers.knowledge.library import Library, open_library
from tests.support.demo_app import descendants, is_alive
from tests.support.knowledge_server import RULES, said
from tests.support.shared import REPOSITORY


def environment(home: Path) -> dict[str, str]:
    warnings = "error::ResourceWarning"
    return {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(REPOSITORY), "PYTHONWARNINGS": warnings}


@contextmanager
def started(home: Path, words: Sequence[str]) -> Generator[subprocess.Popen[str], None, None]:
    with subprocess.Popen(
        [sys.executable, "-m", "mcp_servers.knowledge", *words],
        env=environment(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.anyio
async def test_it_serves_standard_input_and_output_and_stores_added_documents(tmp_path: Path) -> None:
    process = StdioServerParameters(
        command=sys.executable, args=["-m", "mcp_servers.knowledge"], env=environment(tmp_path), cwd=tmp_path
    )
    with anyio.fail_after(60):
        async with Client(process) as client:
            made = said(await client.call_tool("create_knowledge_base", {"name": "規程"}))
            arguments = {"knowledge_base_id": made.facts["knowledge_base_id"], "text": RULES}
            assert not said(await client.call_tool("add_document", arguments)).is_error
        folder = tmp_path / ".local" / "share" / "rkllm-mcp" / "knowledge"
        assert folder.stat().st_mode & 0o777 == 0o700
        async with open_library(folder) as library:
            (base,) = await library.bases()
            assert (await library.summary(base.id)).total_chunks == 2


def test_an_interrupt_ends_it_while_it_waits_for_a_client(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "rules.md").write_text(RULES, "utf-8")
    with started(tmp_path, ["--log-level", "DEBUG", "--watch", f"{folder}=x"]) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"{folder}: 1 imported.\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


@pytest.mark.anyio
async def test_terminated_during_an_import_it_leaves_whole_documents_and_no_process(tmp_path: Path) -> None:
    texts, folder = tmp_path / "texts", tmp_path / "kept"
    texts.mkdir()
    for number in range(300):
        lines = "\n\n".join(f"第{line}条 案内{number}の手続き{line}について定める。" for line in range(40))
        (texts / f"{number:03}.md").write_text(f"# 文書{number}\n\n{lines}", "utf-8")
    with anyio.fail_after(60), started(tmp_path, ["--folder", str(folder), "--watch", f"{texts}=規程"]) as process:
        async with open_library(folder) as library:
            base_id, found = await _some_documents(library)
            below = descendants(process.pid)
            process.terminate()
            assert await anyio.to_thread.run_sync(process.wait) == 0
            assert [pid for pid in below if is_alive(pid)] == []
            kept = await library.documents(base_id)
    assert 0 < found <= len(kept) < 300
    # Whole ones: a document that was cut off would have fewer chunks than the others.
    assert len({document.chunks for document in kept}) == 1


async def _some_documents(library: Library) -> tuple[str, int]:
    """The base that is being filled, and how many documents it has, as soon as it has some."""
    while True:
        for base in await library.bases():
            found = (await library.summary(base.id)).total_documents
            if found:
                return base.id, found


def test_settings_and_folders_that_cannot_be_used_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "file").write_text("", "utf-8")
    for words, sentence in (
        (["--watch", "folder"], "watch is 'folder': give FOLDER=KB, the knowledge base by its id or name.\n"),
        (
            ["--folder", str(tmp_path / "file")],
            f"The knowledge file cannot be used ({tmp_path}/file/knowledge.sqlite3: ",
        ),
        (
            ["--embedder", "magic"],
            "embedder is 'magic', which is not a model. give none, hashing, universal-sent",
        ),
        (["--jwks", "/none", "--http"], "jwks /none cannot be read (No such file or directory): check the path.\n"),
    ):
        code = main(words)
        logging.getLogger("mcp_servers").setLevel(logging.NOTSET)
        out, err = capsys.readouterr()
        assert (code, out, err[: len(sentence)]) == (2, "", sentence)
        assert err.count("\n") == 1


@pytest.mark.anyio
async def test_a_damaged_file_is_reported_and_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    (folder / "knowledge.sqlite3").write_bytes(b"no database at all" * 100)
    with started(tmp_path, ["--folder", str(folder)]) as process:
        _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert err.startswith(f"The knowledge file is damaged ({folder}/knowledge.sqlite3: ")
    assert (folder / "knowledge.sqlite3").read_bytes() == b"no database at all" * 100


def _asked(address: str) -> httpx2.Response:
    return httpx2.post(address, json={}, headers={"Authorization": "Bearer my.own.token"}, trust_env=False, timeout=60)


@pytest.mark.anyio
async def test_it_ends_when_terminated_and_has_written_no_secret_anywhere(tmp_path: Path) -> None:
    secret = "a secret of more than thirty-two bytes"
    words = ["--http", "--port", "0", "--log-level", "DEBUG", "--folder", str(tmp_path / "kept")]
    (tmp_path / "secret").write_text(secret, "utf-8")
    with started(tmp_path, [*words, "--jwt-secret-file", str(tmp_path / "secret")]) as process:
        assert process.stderr is not None
        address = (await anyio.to_thread.run_sync(process.stderr.readline)).strip().rpartition("at ")[2]
        answer = await anyio.to_thread.run_sync(_asked, address)
        process.terminate()
        assert process.wait(60) == 0
        assert process.stderr.read() == ""
    assert answer.status_code == 401
    assert secret not in answer.text
    assert "my.own.token" not in answer.text


@pytest.mark.parametrize(("own", "threads"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "4"}, "4")])
def test_numpy_is_loaded_with_one_thread_unless_the_environment_has_a_number(
    tmp_path: Path, own: dict[str, str], threads: str
) -> None:
    program = (
        "import os, sys\n"
        "from mcp_servers.knowledge.__main__ import main\n"
        "assert 'numpy' not in sys.modules\n"
        "main(['--port', '-1'])\n"
        "print(os.environ['OPENBLAS_NUM_THREADS'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment(tmp_path), **own},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == [threads], done.stderr
