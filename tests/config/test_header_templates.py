"""Templates are filled with the tokens of one request, and tokens do not come back."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rkllm_mcp.config.header_templates import (
    MissingTokenError,
    UnusableTokenError,
    fill,
    placeholders,
    redact,
    secrets_of,
)

TEMPLATE = {"Authorization": "Bearer ${servicenow}", "X-API-Key": "${ api_key }", "Accept": "text/plain"}


def test_placeholders_become_the_tokens_of_the_request() -> None:
    tokens = {"servicenow": "eyJhbGc", "api_key": " sk-1234 ", "other": "x"}
    assert fill(TEMPLATE, tokens) == {
        "Authorization": "Bearer eyJhbGc",
        "X-API-Key": "sk-1234",
        "Accept": "text/plain",
    }
    assert placeholders("${a} ${b} ${a} $c {d}") == ("a", "b")


def test_what_a_token_contains_is_never_a_placeholder() -> None:
    assert fill({"A": "${a}"}, {"a": "${b}", "b": "secret"}) == {"A": "${b}"}


@pytest.mark.parametrize("tokens", [{}, {"servicenow": ""}, {"servicenow": "  "}])
def test_a_missing_token_is_named_with_its_header(tokens: dict[str, str]) -> None:
    with pytest.raises(MissingTokenError) as caught:
        fill(TEMPLATE, tokens)
    assert (caught.value.token, caught.value.header) == ("servicenow", "Authorization")
    assert "No token 'servicenow' was given for the header Authorization" in str(caught.value)


@pytest.mark.parametrize("token", ["a\r\nHost: b", "a\0b", "鍵"])
def test_a_token_that_no_header_can_carry_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(UnusableTokenError) as caught:
        fill({"A": "${t}"}, {"t": token})
    assert token not in str(caught.value)
    assert token not in repr(caught.value)


def test_secrets_are_the_tokens_and_the_keys_that_the_template_spells_out() -> None:
    template = {**TEMPLATE, "Cookie": "Session abc-def", "X-Version": "2"}
    assert set(secrets_of(template, {"t": "tok"})) == {"tok", "Session abc-def", "abc-def"}


@given(
    st.text(alphabet="abcXYZ019-_./+=\"'\\äé鍵 ", min_size=6, max_size=30).filter(lambda text: len(text.strip()) > 5)
)
def test_a_secret_is_found_in_every_spelling_that_an_echo_has(secret: str) -> None:
    secret = secret.strip()
    echoes = [
        secret,
        quote(secret),
        quote(secret, safe=""),
        json.dumps(secret),
        base64.b64encode(secret.encode()).decode(),
    ]
    for echo in echoes:
        assert redact(f"<{echo}>", [secret]).strip('<">') == "[REDACTED]"


def test_a_secret_within_another_does_not_leave_the_rest_of_it() -> None:
    assert redact("abc abcdef", ["abc", "abcdef"]) == "[REDACTED] [REDACTED]"
    assert redact("nothing", []) == "nothing"
    assert redact("nothing", ["", " "]) == "nothing"
