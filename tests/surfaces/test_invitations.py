"""A new board gets what the boards share: with a code of one of them, once, in ten minutes and five tries."""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from rkllm_mcp.config.loading import load_config
from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.invitations import (
    FRESH_S,
    MOST_TRIES,
    NONCE_BYTES,
    VALID_S,
    Invitations,
    JoinKeys,
    WrongCodeError,
    board_header,
    is_board,
    split_code,
)
from tests.support.boards import until_line
from tests.support.demo_app import Demo, make_demo
from tests.support.served import scripted_model

NONCE, MESSAGE = bytes(NONCE_BYTES), b"a request"


def proof_of(code: str) -> tuple[str, bytes]:
    number, secret = split_code(code)
    return number, JoinKeys.derive(secret, NONCE).proof_of(MESSAGE)


def test_a_code_opens_what_was_sealed_with_it_once() -> None:
    invitations = Invitations()
    code = invitations.invite()
    number, proof = proof_of(code.lower().replace("-", " "))
    box = invitations.accept(number, NONCE, MESSAGE, proof).seal({"store": "postgresql://me:secret@db/x" * 9})
    assert b"secret" not in box
    keys = JoinKeys.derive(split_code(code)[1], NONCE)
    assert keys.open(box) == {"store": "postgresql://me:secret@db/x" * 9}
    for changed in (box[:-1] + bytes([box[-1] ^ 1]), bytes([box[0] ^ 1]) + box[1:], box[:40], b""):
        with pytest.raises(WrongCodeError):
            keys.open(changed)
    with pytest.raises(WrongCodeError):
        invitations.accept(number, NONCE, MESSAGE, proof)


def test_a_code_ends_after_ten_minutes_and_after_five_tries() -> None:
    now = 0.0
    invitations = Invitations(lambda: now)
    late, tried = invitations.invite(), invitations.invite()
    number, proof = proof_of(tried)
    for _ in range(MOST_TRIES):
        with pytest.raises(WrongCodeError):
            invitations.accept(number, NONCE, b"another request", proof)
    with pytest.raises(WrongCodeError):
        invitations.accept(number, NONCE, MESSAGE, proof)
    now = VALID_S + 1
    with pytest.raises(WrongCodeError):
        invitations.accept(*(proof_of(late)[0], NONCE, MESSAGE, proof_of(late)[1]))
    for bad in ("", "ABCD", "0OIL-0OIL-0OIL-0OIL-0OIL"):
        with pytest.raises(UsageError, match="five groups of four letters"):
            split_code(bad)


@contextmanager
def running(demo: Demo, port: str) -> Generator[str, None, None]:
    """A board's service; its host and port."""
    with demo.started("serve", "--port", port) as process:
        url = until_line(process, "Serving at ").split()[2]
        until_line(process, "Ready")
        yield url.removeprefix("http://")


def a_free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


OWNER = '[service]\napi_keys = ["the-key-of-the-owner"]\n'


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return scripted_model(tmp_path / "model", "rule\n  say Hello.\n")


def done(demo: Demo, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of ``boards`` that does what it is to do."""
    ran = demo.run_here("boards", *words)
    assert ran.returncode == 0, ran.stderr
    return ran


def test_boards_that_join_have_one_list_and_know_each_other_without_a_key_of_the_owner(
    tmp_path: Path, model: Path
) -> None:
    first = make_demo(tmp_path / "first", [], path=model, extra=f'# mine\n{OWNER}timezone = "UTC"\n')
    second = make_demo(tmp_path / "second", [], path=model, extra=f"[service]\nport = {a_free_port()}\n")
    third = make_demo(tmp_path / "third", [], path=model)
    with running(first, "0") as address:
        told = done(second, "join", address, "--code", done(first, "invite").stdout.strip())
        assert "this board is board2" in told.stderr
        config = load_config(second.config)
        assert (config.service.host, config.service.api_keys) == ("0.0.0.0", ("the-key-of-the-owner",))
        assert second.config.stat().st_mode & 0o077 == 0
        own = f"127.0.0.1:{config.service.port}"
        # Its port is that of its configuration, and its model the one that it has.
        names = load_config(first.config).boards[0].models
        assert [(board.name, board.address, board.models) for board in config.boards] == [
            ("board1", address, names),
            ("board2", own, names),
        ]
        with running(second, str(config.service.port)):
            port = a_free_port()
            code = done(first, "invite").stdout.strip()
            told = done(third, "join", address, "--code", code, "--port", port)
            assert ("has not got the list" in told.stderr, load_config(third.config).service.port) == (False, int(port))
            lists = [load_config(board.config).boards for board in (first, second, third)]
            assert [board.name for board in lists[0]] == ["board1", "board2", "board3"]
            assert lists[0] == lists[1] == lists[2]
            assert "# mine" in first.config.read_text("utf-8")
            with running(third, port):
                # Each shows the model and queue of all, and none was given a key for it.
                for board in (first, second, third):
                    shown = json.loads(done(board, "status", "--json").stdout)
                    assert [(each["name"], each["model"], each["running"]) for each in shown] == [
                        (f"board{number}", names[0], 0) for number in (1, 2, 3)
                    ]
                # Each has read its model's file, which it began when it was first asked.
                digest = hashlib.sha256((model / "model.rkllm").read_bytes()).hexdigest()
                read: set[str] = set()
                while read != {digest}:
                    shown = json.loads(done(first, "status", "--json").stdout)
                    read = {each["compared"]["model_digest"] for each in shown}
                    assert read <= {"", digest}
            refused = third.run_here("boards", "join", address, "--code", code)
            assert (refused.returncode, "has [boards] already" in refused.stderr) == (2, True)
            # One that is set up anew keeps its place, and one that is off is named.
            third.config.write_text(make_demo(tmp_path / "anew", [], path=model).config.read_text("utf-8"))
            used = third.run_here("boards", "join", address, "--code", code)
            assert (used.returncode, "the code is wrong, was used" in used.stderr) == (2, True)
            done(third, "join", address, "--code", done(first, "invite").stdout.strip(), "--port", port)
            assert load_config(third.config).boards == load_config(first.config).boards == lists[0]
        # A change by hand reaches those that are there; where this board's owner logs in stays its own.
        text = second.config.read_text("utf-8")
        second.config.write_text(text.replace("[[boards]]", '[[boards]]\nssh = "pi@one"', 1))
        text = first.config.read_text("utf-8")
        first.config.write_text(text.replace('"board3"', '"cellar"').replace("[[boards]]", '[[boards]]\nssh = "x"', 1))
        with running(second, str(config.service.port)):
            shared = first.run_here("boards", "share")
            assert shared.returncode == 1
            assert "board1, board2" in shared.stderr
            assert "cellar has not got the list (not reachable" in shared.stderr
            here = load_config(second.config).boards
            assert [(board.name, board.ssh) for board in here] == [
                ("board1", "pi@one"),
                ("board2", None),
                ("cellar", None),
            ]


@pytest.mark.parametrize(
    ("first", "second", "words", "problem"),
    [
        ("", "", (), "no key of the owner"),
        (OWNER, "", ("--model-name", "two words"), "boards[1].models"),
        (OWNER, '[[boards]]\naddress = "a:80"\n', (), "has [boards] already"),
    ],
)
def test_a_board_that_cannot_join_changes_no_file(
    tmp_path: Path, model: Path, first: str, second: str, words: tuple[str, ...], problem: str
) -> None:
    there = make_demo(tmp_path / "first", [], path=model, extra=first)
    new = make_demo(tmp_path / "second", [], path=model, extra=second)
    with running(there, "0") as address:
        invited = there.run_here("boards", "invite")
        before = there.config.read_text("utf-8"), new.config.read_text("utf-8")
        code = invited.stdout.strip() or "ABCD-ABCD-ABCD-ABCD-ABCD"
        joined = new.run_here("boards", "join", address, "--code", code, *words)
        assert problem in invited.stderr + joined.stderr
        assert joined.returncode == 2
        assert (there.config.read_text("utf-8"), new.config.read_text("utf-8")) == before


@pytest.mark.anyio
async def test_a_list_is_taken_from_a_board_with_the_secret_alone_and_once(tmp_path: Path, model: Path) -> None:
    secret, nonce = "s" * 40, bytes(NONCE_BYTES)
    board = make_demo(tmp_path / "board", [], path=model, extra=f'{OWNER}boards_secret = "{secret}"\n')
    entry = {"name": "board1", "address": "127.0.0.1:8080", "ssh": "-oProxyCommand=x"}

    async def sent(url: str, key: str, at: float) -> tuple[int, str]:
        box = JoinKeys.of_boards(key, nonce).seal({"boards": [entry], "at": at})
        client = httpx2.AsyncClient(base_url=f"http://{url}", timeout=30)
        async with client:
            answer = await client.post("/v1/boards:list", json={"nonce": nonce.hex(), "box": box.hex()})
        return answer.status_code, answer.json().get("error", {}).get("code", "")

    with running(board, "0") as address:
        now = time.time()
        assert await sent(address, "t" * 40, now) == (403, "boards_secret")
        assert await sent(address, secret, now - FRESH_S - 60) == (403, "boards_secret")
        assert load_config(board.config).boards == ()
        assert await sent(address, secret, now) == (200, "")
        assert [(each.name, each.ssh) for each in load_config(board.config).boards] == [("board1", None)]
        # An older one that was recorded brings nothing back.
        assert await sent(address, secret, now - 5) == (403, "boards_secret")


def test_a_proof_is_good_for_its_path_for_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    header = board_header("s" * 40, "/v1/board")
    good = [("s" * 40, "/v1/board"), ("t" * 40, "/v1/board"), ("s" * 40, "/v1/models")]
    assert [is_board(header, *each) for each in good] == [True, False, False]
    for other in ("", "Board", "Board a b c", "Bearer x", header.replace(" ", "  "), f"{header} x", "Board é 1 ü"):
        assert not is_board(other, "s" * 40, "/v1/board")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + FRESH_S + 5)
    assert not is_board(header, "s" * 40, "/v1/board")
