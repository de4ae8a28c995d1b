"""JavaScript clients of OpenAI's and Anthropic's APIs, and LangChain's Responses mode, against ``rkllm-mcp serve``."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Generator
from typing import Any

import pytest

from tests.support.chat_script import RULES
from tests.support.clients import client, run_python, scripted_demo, serving
from tests.support.installed import installed
from tests.support.served import scripted_model
from tests.support.shared import REPOSITORY

Json = dict[str, Any]
SUPPORT = REPOSITORY / "tests" / "support"
KEY = "the-key"
# The AI SDK's provider for Anthropic asks for an object by the only tool of a request.
OBJECT = """
rule an object as a call
  prompt "name": "json", "arguments": $
  say {"city": "Oslo", "days": 3}}
  say </tool_call>
"""
CALLS = [["get_weather", {"city": "Oslo"}], ["get_weather", {"city": "Rome"}]]
HELLO = "Hello, ann. こんにちは 👋"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str, None, None]:
    folder = tmp_path_factory.mktemp("clients")
    model = scripted_model(folder / "model", OBJECT + RULES, template="qwen3")
    with serving(scripted_demo(folder / "home", model, extra=f'[service]\napi_keys = ["{KEY}"]\n')) as service:
        yield service.url


@pytest.fixture(scope="module")
def told(url: str) -> Json:
    """What the JavaScript clients say."""
    found = installed("clients_js")
    if not found.lines or shutil.which("node") is None:
        pytest.skip(f"the clients of .clients-js are not here: {found.reason or 'node is not installed'}")
    command = ["node", SUPPORT / "js_clients.mjs", found.lines[0], url, KEY]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_openais_javascript_client_gets_answers_calls_and_errors_from_responses(told: Json) -> None:
    status, message = told["openai"].pop("model")
    assert told["openai"] == {"whole": HELLO, "calls": CALLS, "answer": "It says warm, this time."}
    assert (status, "there is no model 'nobody' here" in message) == (404, True)


def test_anthropics_javascript_client_gets_answers_calls_thinking_and_errors(told: Json) -> None:
    failures = {name: told["anthropic"].pop(name) for name in ("model", "later")}
    assert told["anthropic"] == {
        "whole": HELLO,
        "calls": CALLS,
        "stop": "tool_use",
        "thinking": ["Hm, let me see.", "I thought."],
    }
    assert failures["model"][0] == 404
    assert "rkllm_run" in failures["later"][1]


@pytest.mark.parametrize("provider", ["ai openai", "ai anthropic"])
def test_the_ai_sdk_works_with_the_api_that_its_provider_asks_by_default(told: Json, provider: str) -> None:
    later = told[provider].pop("later")
    assert told[provider] == {
        "tools": "It says Oslo is warm, this time.",
        "again": "Hello, bob. こんにちは 👋",
        "thinking": ["Hm, let me see.", "I thought."],
        "form": {"city": "Oslo", "days": 3},
    }
    assert "rkllm_run" in later


def test_langchain_works_in_its_responses_mode(url: str) -> None:
    client("python")
    said = run_python(SUPPORT / "langchain_client.py", url, KEY)
    [thought] = said.pop("thinking")
    assert thought["text"].strip() == "Hm, let me see."
    assert "rkllm_run" in said.pop("later")
    assert said == {
        "whole": HELLO,
        "previous": "Hello, bob. こんにちは 👋",
        "calls": CALLS,
        "answer": "It says warm, this time.",
        "form": {"city": "Oslo", "days": 3},
    }
