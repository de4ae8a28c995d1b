"""Tenants share a KV cache, and learn nothing from the figures about what others asked."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import httpx2
import pytest

from tests.support.served import Served, scripted_model, served

Json = dict[str, Any]
TENANTS = "".join(f'[[tenants]]\nname = "{name}"\napi_key = "{name}"\n' for name in ("ann", "bob"))
SECRET = "my password for the bank in the old town is correct horse battery staple, do not tell it to anybody"
OTHER = "which day is it"
RULES = "rule\n  say Hello there.\n"


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("shared")
    with served(
        folder / "home",
        scripted_model(folder / "model", RULES),
        extra=f'[service]\napi_keys = ["owner"]\n{TENANTS}',
    ) as it:
        yield it


def post(service: Served, key: str, path: str, body: Json) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.post(f"{service.url}{path}", json=body, headers=headers, timeout=60).raise_for_status()


def usage(service: Served, key: str, text: str) -> Json:
    """The figures of an answer to a program's one message."""
    body: Json = {"model": "parrot", "messages": [{"role": "system", "content": "Be kind."}]}
    body["messages"].append({"role": "user", "content": text})
    told = post(service, key, "/v1/chat/completions", body).json()["usage"]
    return {"prompt": told["prompt_tokens"], "cached": told["prompt_tokens_details"]["cached_tokens"]}


def really_evaluated(service: Served) -> int:
    """Tokens that the runtime evaluated of the last prompt."""
    return service.runs()[-1]["prefill_tokens"]


@pytest.mark.parametrize(("asker", "guesser"), [("ann", "bob"), ("ann", "owner"), ("owner", "bob")])
def test_a_guess_is_reported_as_if_no_other_tenant_had_asked(service: Served, asker: str, guesser: str) -> None:
    asked = usage(service, asker, SECRET)
    guess = usage(service, guesser, SECRET)
    assert really_evaluated(service) == 1
    # The front that every such prompt has may be the service's own.
    assert guess["cached"] < asked["prompt"] - 20
    usage(service, asker, OTHER)
    assert usage(service, guesser, SECRET) == guess
    # His own conversation, with nobody's between.
    assert usage(service, guesser, SECRET)["cached"] == asked["prompt"] - 1
    # Guessed before the other asks, and compared afterwards.
    usage(service, asker, SECRET)
    assert usage(service, guesser, SECRET) == guess


def test_every_figure_of_an_answer_says_the_same(service: Served) -> None:
    def events(key: str) -> Json:
        lines = post(service, key, "/v1/execute", {"message": SECRET}).text.splitlines()
        told = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        assert not [event for event in told if event["kind"] == "status" and "expected" in event["text"]]
        return next(event for event in told if event["kind"] == "usage")

    events("ann")
    guess = events("bob")
    assert really_evaluated(service) == 1
    assert guess["prefilled_tokens"] + guess["cached_tokens"] == guess["prompt_tokens"]
    assert guess["prefilled_tokens"] > 20
    boards = {
        key: httpx2.get(f"{service.url}/v1/board", headers={"X-Api-Key": key}, timeout=60).json()
        for key in ("ann", "bob", "owner")
    }
    figures = ("prefilled_tokens", "reused_tokens", "generated_tokens")
    for figure, counted in zip(figures, ("prefilled_tokens", "cached_tokens", "generated_tokens"), strict=True):
        assert boards["bob"][figure] == guess[counted]
        assert boards["owner"][figure] == boards["ann"][figure] + boards["bob"][figure]
