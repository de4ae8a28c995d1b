"""A new board gets what the boards share: with a code of one of them, once, in ten minutes and five tries."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_mcp.config.loading import load_config
from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.invitations import (
    MOST_TRIES,
    NONCE_BYTES,
    VALID_S,
    Invitations,
    JoinKeys,
    WrongCodeError,
    split_code,
)
from tests.support.boards import until_line
from tests.support.demo_app import make_demo
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


def test_a_board_joins_with_the_code_that_another_shows_and_says_what_it_wrote(tmp_path: Path) -> None:
    keys = '[service]\napi_keys = ["the-key-of-the-owner"]\n'
    model = scripted_model(tmp_path / "model", "rule\n  say Hello.\n")
    first = make_demo(tmp_path / "first", [], path=model, extra=keys)
    with first.started("serve", "--port", "0") as process:
        url = until_line(process, "Serving at ").split()[2]
        until_line(process, "Ready")
        invited = first.run_here("boards", "invite")
        assert invited.returncode == 0, invited.stderr
        code, address = invited.stdout.strip(), url.removeprefix("http://")
        second = make_demo(tmp_path / "second", [], path=model)
        second.config.unlink()
        joined = second.run_here("boards", "join", address, "--code", code, "--port", "8081", "--model-name", "parrot")
        assert joined.returncode == 0, joined.stderr
        assert "this board is board2" in joined.stderr
        config = load_config(second.config)
        assert (config.service.host, config.service.api_keys) == ("0.0.0.0", ("the-key-of-the-owner",))
        assert [(board.name, board.address) for board in config.boards] == [
            ("board1", address),
            ("board2", "127.0.0.1:8081"),
        ]
        assert second.config.stat().st_mode & 0o077 == 0
        # Both have the same list, and the code is used up.
        assert load_config(first.config).boards == config.boards
        again = make_demo(tmp_path / "third", [], path=model)
        again.config.unlink()
        refused = again.run_here("boards", "join", address, "--code", code)
        assert (refused.returncode, "the code is wrong, was used" in refused.stderr) == (2, True)
        twice = second.run_here("boards", "join", address, "--code", code)
        assert (twice.returncode, "has [boards] already" in twice.stderr) == (2, True)
