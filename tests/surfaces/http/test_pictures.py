"""Pictures through the APIs of programs, with their vendors' clients."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import httpx2
import ollama
import openai
import pytest

from tests.support.picture_apis import APIS, Talk, ollama_client
from tests.support.pictures import BLUE_ABOVE_RED, GREEN_ABOVE_WHITE, RED_ABOVE_BLUE, bomb_png
from tests.support.seeing_model import seeing_model, without_eyes
from tests.support.served import Served, served

RED, BLUE, GREEN = (base64.b64encode(data).decode() for data in (RED_ABOVE_BLUE, BLUE_ABOVE_RED, GREEN_ABOVE_WHITE))
FIRST: Talk = [("What is it?", RED)]
SECOND: Talk = [("What is it?", RED), ("It is red above, blue below.", None), ("And this?", BLUE)]
LATER: Talk = [("What is it?", RED), ("It is red above, blue below.", None), ("still?", None)]
SVG = base64.b64encode(b"<svg xmlns='http://www.w3.org/2000/svg'/>").decode()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service whose model sees."""
    folder = tmp_path_factory.mktemp("pictures")
    with served(folder, seeing_model(folder)) as it:
        yield it


@pytest.mark.parametrize("ask", APIS)
@pytest.mark.parametrize(
    ("talk", "answer"),
    [
        (FIRST, "It is red above, blue below."),
        (SECOND, "It is blue above, red below."),
        (LATER, "Still red above, blue below."),
    ],
    ids=["first", "second", "after a text"],
)
def test_a_picture_is_described(service: Served, ask: Callable[[str, Talk], str], talk: Talk, answer: str) -> None:
    assert ask(service.url, talk).strip() == answer


def test_ollamas_generate_takes_pictures(service: Served) -> None:
    with ollama_client(service.url) as client:
        answer = client.generate("seeing", "both?", images=[GREEN, BLUE]).response
    assert answer.strip() == "The first is green above, white below, the second is blue above, red below."


@pytest.mark.parametrize("ask", APIS)
def test_a_drawing_is_refused_in_a_sentence(service: Served, ask: Callable[[str, Talk], str]) -> None:
    with pytest.raises((openai.BadRequestError, anthropic.BadRequestError, ollama.ResponseError), match="SVG"):
        ask(service.url, [("What is it?", SVG)])


def _post(service: Served, path: str, body: dict[str, Any]) -> tuple[int, str]:
    response = httpx2.post(f"{service.url}{path}", json={"model": "seeing", **body}, timeout=60)
    return response.status_code, response.text


@pytest.mark.parametrize(
    "link", ["http://127.0.0.1:1/cat.png", "file:///etc/passwd", "/etc/passwd", "data:,x", "data:image/png;base64,*"]
)
def test_addresses_and_paths_are_not_opened(service: Served, link: str) -> None:
    image, source = {"type": "image_url", "image_url": {"url": link}}, {"type": "url", "url": link}
    user = {"role": "user"}
    for path, body in (
        ("/v1/chat/completions", {"messages": [{**user, "content": [image]}]}),
        ("/v1/responses", {"input": [{**user, "content": [{"type": "input_image", "image_url": link}]}]}),
        ("/v1/messages", {"max_tokens": 9, "messages": [{**user, "content": [{"type": "image", "source": source}]}]}),
        ("/api/chat", {"messages": [{**user, "content": "x", "images": [link]}], "stream": False}),
    ):
        status, text = _post(service, path, body)
        assert (status, "send the picture itself, as base64" in text) == (400, True), (path, text)


def test_a_picture_in_a_tools_result_is_seen(service: Served) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": RED}
    result = [{"type": "text", "text": "the screen"}, {"type": "image", "source": source}]
    messages: list[Any] = [
        {"role": "user", "content": "Look at the screen"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "screen", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": result}]},
    ]
    tools: list[Any] = [{"name": "screen", "description": "Shows the screen", "input_schema": {"type": "object"}}]
    with anthropic.Anthropic(base_url=service.url, api_key="x", max_retries=0) as client:
        answer = client.messages.create(model="seeing", max_tokens=100, messages=messages, tools=tools)
    assert [block.text.strip() for block in answer.content if block.type == "text"] == [
        "The tool shows red above, blue below."
    ]


def _execute(service: Served, **body: Any) -> dict[str, Any]:
    response = httpx2.post(f"{service.url}/v1/execute", json={"stream": False, **body}, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()


def test_the_assistant_sees_pictures_which_stay_with_their_questions(service: Served) -> None:
    first = _execute(service, message="What is it?", pictures=[RED])
    assert first["text"].strip() == "It is red above, blue below."
    here = {"conversation": first["conversation"]}
    assert _execute(service, message="And these?", pictures=[GREEN, BLUE], **here)["text"].strip() == (
        "The first is green above, white below, the second is blue above, red below."
    )
    url = f"{service.url}/v1/conversations/{first['conversation']}"
    turns = httpx2.get(url).json()["messages"]
    assert [len(turn["pictures"]) for turn in turns] == [1, 0, 2, 0]
    kept = [httpx2.get(f"{url}/pictures/{digest}") for turn in turns for digest in turn["pictures"]]
    assert [base64.b64encode(picture.content).decode() for picture in kept] == [RED, GREEN, BLUE]
    assert {picture.headers["content-type"] for picture in kept} == {"image/png"}
    assert httpx2.get(f"{url}/pictures/{'0' * 64}").status_code == 404
    # Read again from the store, as after a restart, and as a client that has the history itself.
    assert service.service is not None
    service.service.open_conversations.drop(service.service.tenants.by_name[""].app, first["conversation"])
    assert _execute(service, message="still?", replaces=2, **here)["text"].strip() == "Still red above, blue below."
    said = [{"role": "user", "text": "What is it?", "pictures": [RED]}, {"role": "assistant", "text": "Red."}]
    assert _execute(service, message="still?", history=said)["text"].strip() == "Still red above, blue below."


@pytest.mark.parametrize(
    ("pictures", "part"),
    [
        (["http://127.0.0.1:1/cat.png"], "send the picture itself, in base64"),
        ([SVG], "JPEG, PNG, WebP, AVIF, HEIC, GIF or BMP"),
        ([RED] * 9, "at most 8 items"),
        ([7], "pictures[0]: Value error, a picture is a string in base64"),
    ],
)
def test_what_is_not_a_picture_of_a_question_is_refused(service: Served, pictures: list[Any], part: str) -> None:
    status, text = _post_execute(service, {"message": "What is it?", "pictures": pictures})
    assert (status, part in text) == (422, True), text
    status, text = _post_execute(service, {"prompt": {"name": "p"}, "pictures": [RED]})
    assert (status, "pictures need a message" in text) == (422, True), text


def test_a_refused_picture_is_told_in_japanese_where_the_page_is(service: Served) -> None:
    def told(picture: bytes) -> str:
        body = {"message": "What is it?", "pictures": [base64.b64encode(picture).decode()]}
        headers = {"Accept-Language": "ja"}
        response = httpx2.post(f"{service.url}/v1/execute", json=body, headers=headers, timeout=60)
        if response.status_code != 200:
            return response.json()["error"]["message"]
        return json.loads([line for line in response.text.splitlines() if line.startswith("data:")][-1][5:])["error"]

    assert told(b"<svg/>") == (
        "pictures[0]: 読み込める形式の画像ではありません。"
        "JPEG、PNG、WebP、AVIF、HEIC、GIF、BMP のどれかで送ってください"
    )
    assert told(bomb_png(7000, 7000)) == (
        "画像が 7000 x 7000 ピクセルで、上限の 40 メガピクセルを超えています。小さくしてから送ってください"
    )


def _post_execute(service: Served, body: dict[str, Any]) -> tuple[int, str]:
    response = httpx2.post(f"{service.url}/v1/execute", json=body, timeout=60)
    return response.status_code, response.text


@pytest.fixture(scope="module")
def blind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service whose model reads text, next to one that sees; it repeats what it reads of pictures."""
    folder = tmp_path_factory.mktemp("blind")
    seeing_model(folder / "models")
    rules = "rule\n  user (.*)\n  say $1\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RKLLM_MCP_MODELS", str(folder / "models"))
        with served(folder, without_eyes(folder, rules=rules)) as it:
            yield it


BLIND: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}),
    ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}),
    ("/v1/messages", {"max_tokens": 99, "messages": [{"role": "user", "content": [{"type": "image"}]}]}),
    ("/api/chat", {"messages": [{"role": "user", "content": "Look", "images": [RED]}], "stream": False}),
    ("/api/generate", {"prompt": "Look", "images": [RED], "stream": False}),
]


@pytest.mark.parametrize(("path", "body"), BLIND)
def test_a_model_that_reads_text_is_told_of_a_picture_and_of_the_model_that_sees(
    blind: Served, path: str, body: dict[str, Any]
) -> None:
    status, text = _post(blind, path, {**body, "model": "blind"})
    assert status == 200, text
    assert "[image, not shown]" in text
    assert "[this model does not see pictures; seeing does]" in text


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_a_picture_that_no_person_has_sent_is_a_line(service: Served, role: str) -> None:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{RED}", "detail": "original"}}
    hello = {"role": "user", "content": "hello"}
    # A model that sees reads the same as with the line in the picture's place.
    for part in (picture, {"type": "text", "text": "[image, not shown]"}):
        said = {"role": role, "content": [{"type": "text", "text": "Look:"}, part]}
        status, text = _post(service, "/v1/chat/completions", {"messages": [hello, said, hello]})
        assert status == 200, text
    first, second = service.runs()[-2:]
    assert first["prompt"] == second["prompt"]


def test_tokens_are_counted_with_those_of_pictures(service: Served) -> None:
    with anthropic.Anthropic(base_url=service.url, api_key="x", max_retries=0) as client:
        source: Any = {"type": "base64", "media_type": "image/png", "data": RED}
        asked: list[Any] = [
            {"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": "What is it?"}]}
        ]
        counted = client.messages.count_tokens(model="seeing", messages=asked).input_tokens
        used = client.messages.create(model="seeing", max_tokens=50, messages=asked).usage
    assert counted == used.input_tokens + (used.cache_read_input_tokens or 0) + (used.cache_creation_input_tokens or 0)
