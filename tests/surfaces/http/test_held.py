"""Held answers as programs see them: every API's form of an answer, and OpenAI's client, with a model that errs."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any, Literal

import httpx2
import openai
import pytest
from pydantic import BaseModel

from tests.support.served import Served, scripted_model, served

pytest.importorskip("llguidance")

RIGHT = '{"city": "大阪", "sky": "sunny", "days": 12}'
# The places of the text at which the wrong tokens come, each in a rule of its own.
PLACES = 16
WRONG = ('\\"}', "<|im_end|>", "Sure", "\\n", "'", "true")


class Trip(BaseModel):
    """A form of an answer."""

    city: str
    sky: Literal["sunny", "cloudy", "rain"]
    days: int


SCHEMA: dict[str, Any] = {**Trip.model_json_schema(), "additionalProperties": False}


def rules() -> str:
    wrong = "".join(
        f'rule\nuser trip {index}\\.{place}($|[^0-9])\nsay {RIGHT}\nfault wrong-token "{text}" after {place}\n'
        f"fault abort-late {place % 4}\n"
        for index, text in enumerate(WRONG)
        for place in range(PLACES)
    )
    phone = "rule\nuser phone\nsay 090-1234-5678\nfault wrong-token Sure after 4\n"
    return f"{wrong}{phone}rule\nuser yes or no\nsay Yes, of course.\nrule\nsay Hello.\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("held")
    with served(folder / "home", scripted_model(folder / "model", rules(), is_held=True)) as it:
        yield it


def test_a_hundred_structured_outputs_of_openais_client_are_valid(service: Served) -> None:
    client = openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0)
    questions = [f"trip {index}.{place}" for index in range(len(WRONG)) for place in range(PLACES)]
    corrections = 0
    for question in [*questions, *questions[:4]]:
        answer = client.chat.completions.parse(
            model="parrot", messages=[{"role": "user", "content": question}], response_format=Trip
        )
        assert isinstance(answer.choices[0].message.parsed, Trip), question
        assert answer.usage is not None
        details: Any = answer.usage.completion_tokens_details
        corrections += getattr(details, "corrections", None) or 0
    assert len(questions) + 4 == 100
    assert corrections > 50


FORMS: dict[str, tuple[str, Callable[[str], dict[str, Any]], Callable[[Any], str]]] = {
    "chat completions": (
        "/v1/chat/completions",
        lambda text: {
            "messages": [{"role": "user", "content": text}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA}},
        },
        lambda body: body["choices"][0]["message"]["content"],
    ),
    "responses": (
        "/v1/responses",
        lambda text: {"input": text, "text": {"format": {"type": "json_schema", "name": "trip", "schema": SCHEMA}}},
        lambda body: body["output"][-1]["content"][0]["text"],
    ),
    "messages": (
        "/v1/messages",
        lambda text: {
            "max_tokens": 200,
            "messages": [{"role": "user", "content": text}],
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        },
        lambda body: body["content"][0]["text"],
    ),
    "ollama": (
        "/api/chat",
        lambda text: {"messages": [{"role": "user", "content": text}], "format": SCHEMA, "stream": False},
        lambda body: body["message"]["content"],
    ),
}


def ask(service: Served, route: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = httpx2.post(f"{service.url}{route}", json={"model": "parrot", **body}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("api", FORMS)
def test_every_api_gets_the_form_that_it_asked_for(service: Served, api: str) -> None:
    route, body_of, text_of = FORMS[api]
    for place in (2, 6, 9, 13):
        text = text_of(ask(service, route, body_of(f"trip 2.{place}")))
        assert Trip.model_validate(json.loads(text)), text


@pytest.mark.parametrize(
    ("fields", "question", "expected"),
    [
        ({"guided_regex": "0[0-9]{2}-[0-9]{4}-[0-9]{4}"}, "phone", "090-1234-5678"),
        ({"guided_choice": ["yes", "no"]}, "yes or no", "yes"),
        ({"structured_outputs": {"choice": ["Yes", "No"]}}, "yes or no", "Yes"),
        ({"grammar": 'root ::= "Yes" | "No"'}, "yes or no", "Yes"),
        ({"guided_grammar": 'start: "Yes" | "No"'}, "yes or no", "Yes"),
        ({"guided_json": SCHEMA}, "trip 2.9", None),
    ],
)
def test_the_forms_of_vllm_and_llama_server_mean_what_they_mean_there(
    service: Served, fields: dict[str, Any], question: str, expected: str | None
) -> None:
    body = {"messages": [{"role": "user", "content": question}], **fields}
    text = ask(service, "/v1/chat/completions", body)["choices"][0]["message"]["content"]
    assert text == expected or (expected is None and Trip.model_validate(json.loads(text)))


def test_a_form_that_cannot_be_read_is_refused_by_name(service: Served) -> None:
    for name, value in (
        ("guided_regex", "("),
        ("grammar", "root ::= missing"),
        ("guided_regex", "((a{1,99}){1,99}){1,99}"),
    ):
        body = {"model": "parrot", "messages": [{"role": "user", "content": "hi"}], name: value}
        answer = httpx2.post(f"{service.url}/v1/chat/completions", json=body, timeout=60)
        assert answer.status_code == 400, (name, value, answer.text)
        assert answer.json()["error"]["param"] == name
