"""Tokens of the one who types a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.invocation import PREFIX, RefusalLog, read_tokens
from tests.support.outcome import Command

ENV = {"RKLLM_MCP_TOKEN_SERVICE_NOW": "tok-of-the-environment"}


def nobody(name: str) -> str:
    raise AssertionError(name)


def test_a_token_comes_from_the_environment_a_file_or_a_person(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("tok-of-the-file\n", "utf-8")
    words = ["service-now", f"jira=@{tmp_path / 'key'}", "typed"]
    assert read_tokens(words, ENV, lambda prompt: f" tok-of-{prompt} ") == {
        "service-now": "tok-of-the-environment",
        "jira": "tok-of-the-file",
        "typed": "tok-of-Token 'typed' (not shown):",
    }
    assert read_tokens(words[:1], ENV, nobody) == {"service-now": "tok-of-the-environment"}


def test_the_variable_of_a_token_is_not_a_key_of_the_configuration() -> None:
    for name, variable in (("who", "WHO"), ("a__b", "A_B"), ("-x.y-", "X_Y")):
        assert read_tokens([name], {f"{PREFIX}{variable}": "tok"}, nobody) == {name: "tok"}


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        (
            "jira=tok-123",
            "others on this machine could read the token 'jira' on the command line; set RKLLM_MCP_TOKEN_",
        ),
        ("jira=@none", "the token 'jira' cannot be read from none (No such file or directory); correct the path"),
        ("=@none", "--token needs the name of a token; write --token NAME"),
        ("empty", "the token 'empty' is empty; give it in RKLLM_MCP_TOKEN_EMPTY or with --token empty=@FILE"),
    ],
)
def test_a_token_that_cannot_be_had_says_how_to_give_it(word: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_tokens([word], {}, lambda _: " ")
    assert str(caught.value).startswith(sentence)
    assert "tok-123" not in str(caught.value)


def test_a_command_without_its_token_ends_before_anything_is_started(command: Command, tmp_path: Path) -> None:
    (tmp_path / "mcp_config.toml").write_text('[[servers]]\nname = "a"\nurl = "http://127.0.0.1:1/mcp"\n', "utf-8")
    for words in (["tools", "list"], ["run", "hi"], ["chat"], ["servers", "test"], ["prompt", "hi"]):
        outcome = command(*words, "--token", "who")
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err == ("Error: there is no token 'who'; set RKLLM_MCP_TOKEN_WHO, or write --token who=@FILE\n")


def test_refused_requests_are_logged_once_in_a_while_with_their_number() -> None:
    lines: list[str] = []
    now = [0.0]
    log = RefusalLog(lines.append, 60.0, lambda: now[0])
    for at, address in ((0.0, "192.0.2.1"), (1.0, "192.0.2.2"), (59.0, ""), (60.0, ""), (200.0, "192.0.2.3")):
        now[0] = at
        log.note(address, "401 at /v1/models")
    refused = "refused a request that is not allowed (401 at /v1/models) from"
    assert lines == [f"{refused} 192.0.2.1", f"{refused} an unknown address and 2 more before", f"{refused} 192.0.2.3"]
