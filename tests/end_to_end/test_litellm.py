"""LiteLLM against ``rkllm-mcp serve``, once as a client of OpenAI's API and once as a client of Ollama's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.chat_script import RULES
from tests.support.clients import client, run_python, scripted_demo, serving
from tests.support.served import ranking_model, scripted_model
from tests.support.shared import REPOSITORY

Json = dict[str, Any]
PROGRAM = REPOSITORY / "tests" / "support" / "litellm_client.py"
KEY = "the-key"
PROVIDERS = ("openai", "ollama_chat")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """What the program says of everything: to import LiteLLM takes longer than all that it asks."""
    client("python")
    folder = tmp_path_factory.mktemp("litellm")
    model = scripted_model(folder / "model", RULES, template="qwen3")
    ranking = ranking_model(folder / "judge")
    demo = scripted_demo(
        folder / "home", model, extra=f'[service]\napi_keys = ["{KEY}"]\nranking_model = "{ranking}"\n'
    )
    with serving(demo) as service:
        return run_python(PROGRAM, service.url, KEY)


@pytest.fixture(params=PROVIDERS)
def said(found: Json, request: pytest.FixtureRequest) -> Json:
    """What it says of a provider."""
    return found[request.param]


def test_an_answer_comes_whole_and_in_pieces_and_is_counted(said: Json) -> None:
    hello = {"text": "Hello, oslo. こんにちは 👋", "finish": "stop", "counted": True}
    assert said["whole"] == hello
    pieces = said["streamed"].pop("in pieces")
    assert said["streamed"] == hello
    assert pieces > 3
    assert said["cut"] == {"text": "one two three", "finish": "length", "counted": True}
    assert [text.split(".")[0] for text in said["at once"]] == ["Hello, oslo", "Hello, rome", "Hello, bonn"]


def test_tools_are_called_and_their_results_are_read(said: Json) -> None:
    calls = [["get_weather", {"city": "Oslo"}], ["get_weather", {"city": "Rome"}]]
    assert said["streamed tools"] == {"finish": "tool_calls", "calls": calls, "ids": 2}
    assert said["tools"] == {"finish": "tool_calls", "calls": calls, "ids": 2, "answer": "It says warm, this time."}


def test_an_answer_has_the_form_that_was_asked_for_and_thinking_apart(said: Json) -> None:
    assert said["form"] == '{"city": "Oslo", "days": 3}'
    assert said["thinking"].strip() == "Hm, let me see."


def test_an_error_is_the_kind_that_its_users_handle(found: Json, said: Json) -> None:
    kinds = {
        "another model": ("NotFoundError", 404),
        "another key": ("AuthenticationError", 401),
        # It looks for these words in the errors of some services only, and Ollama is not one of them.
        "too long": ("BadRequestError" if said is found["ollama_chat"] else "ContextWindowExceededError", 400),
        "broken": ("InternalServerError", 500),
    }
    assert {name: (said[name]["kind"], said[name]["status"]) for name in kinds} == kinds
    assert "parrot" in said["another model"]["text"]
    assert "the prompt has 5" in said["too long"]["text"]
    # After the first words there is no status any more.
    assert "rkllm_run" in said["broken later"]["text"], said["broken later"]


def test_texts_become_vectors_and_documents_are_ranked(found: Json) -> None:
    assert found["vectors"] == [256, 256]
    assert found["ranked"] == [0, 1]
