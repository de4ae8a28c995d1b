"""What a request brings: everything that is not JSON, or not what the route takes, is refused by name."""

from __future__ import annotations

import gzip
import itertools
import json
import threading
import zlib
from collections.abc import AsyncGenerator, Callable
from types import SimpleNamespace
from typing import Annotated, Any, cast

import anyio
import pytest
from backports import zstd
from pydantic import AfterValidator, Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rkllm_base import answers
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.admission import Admission
from rkllm_mcp.surfaces.http.errors import HTTPError
from rkllm_mcp.surfaces.http.route import Route
from tests.support.http_app import Desk, config_with, desk

pytestmark = pytest.mark.anyio

ONE_MEGABYTE = config_with(service={"body_mb": 1})
LIMIT = 2**20
JSON_TYPE = {"Content-Type": "application/json"}
SCOPE: dict[str, Any] = {
    "type": "http",
    "headers": [(b"content-type", b"application/json")],
    "state": {"tenant": "", "key": ""},
}


class Part(bodies.RequestBody):
    """A part."""

    text: str
    weight: float = 1.0


class Wish(bodies.RequestBody):
    """What the test's route takes."""

    name: Annotated[str, Field(min_length=1)]
    parts: tuple[str | Part, ...] = ()
    count: int | None = None
    extra: Any = None


class Search(bodies.RequestBody):
    """What the test's address takes."""

    limit: Annotated[int, Field(ge=1)] = 20
    errors: bool = False


async def echo(request: Request) -> Response:
    return JSONResponse((await bodies.read(request, Wish)).model_dump())


async def search(request: Request) -> Response:
    return JSONResponse(bodies.query(request, Search).model_dump())


ROUTES = (
    Route("POST", "/echo", body=Wish, handler=echo),
    Route("POST", "/api/echo", body=Wish, handler=echo),
    Route("GET", "/search", query=Search, handler=search),
)


async def refused(
    desk: Desk, content: bytes, headers: dict[str, str] = JSON_TYPE, path: str = "/echo"
) -> tuple[int, str, str | None]:
    answer = await desk.send("POST", path, headers, content)
    error = answer.json()["error"]
    return answer.status_code, error["message"], error["param"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "the body is empty; send JSON, with its Content-Length"),
        (b" \n", "the body is empty; send JSON, with its Content-Length"),
        (b"{", "the body is not JSON: EOF while parsing an object at line 1 column 1"),
        (b'{"name": "a"} x', "the body is not JSON: trailing characters at line 1 column 15"),
        (b'{"name": NaN}', "the body is not JSON: expected value at line 1 column 10"),
        (b'{"name": -Infinity}', "the body is not JSON: invalid number at line 1 column 11"),
        (b'{"name": "a", "extra": 1e999}', "the body is not JSON: a number is too large"),
        (b'{"name": "a", "extra": [{"x": -1e999}]}', "the body is not JSON: a number is too large"),
        (b'{"name": "\\ud80"}', "the body is not JSON: invalid escape at line 1 column 16"),
        (b'{"extra": ' + b"[" * 400 + b"]" * 400 + b"}", "the body is not JSON: recursion limit exceeded"),
        (b'{"name": "\xff"}', "the body is not UTF-8 at byte 10; send JSON as UTF-8"),
        ('{"name": "日本"}'.encode("shift-jis"), "the body is not UTF-8 at byte 10; send JSON as UTF-8"),
        ('{"name": "a"}'.encode("utf-16"), "the body is not UTF-8 at byte 0; send JSON as UTF-8"),
    ],
)
async def test_a_body_that_is_not_a_json_is_a_400_with_the_position(content: bytes, sentence: str) -> None:
    async with desk(routes=ROUTES) as it:
        status, message, param = await refused(it, content)
    assert (status, param) == (400, None)
    assert message.startswith(sentence)


WRONG: list[tuple[Any, str | None, str]] = [
    ({}, "name", "name: Field required"),
    ([], None, "the body: "),
    (None, None, "the body: "),
    ({"name": 3}, "name", "name: Input should be a valid string"),
    ({"name": ""}, "name", "name: String should have at least 1 character"),
    ({"name": "a", "count": "3"}, "count", "count: Input should be a valid integer"),
    ({"name": "a", "count": True}, "count", "count: Input should be a valid integer"),
    ({"name": "a", "colour": "red"}, "colour", "colour: Extra inputs are not permitted"),
    ({"name": "a", "parts": ["x", 3]}, "parts[1]", "parts[1]: Input should be a valid string"),
    ({"name": "a", "parts": [{"text": 3}]}, "parts[0].text", "parts[0].text: Input should be a valid string"),
    ({"name": "a", "parts": [{}]}, "parts[0].text", "parts[0].text: Field required"),
    ({"name": "a", "parts": [{"text": "x", "weight": "heavy"}]}, "parts[0].weight", "parts[0].weight: "),
]


@pytest.mark.parametrize(("value", "param", "sentence"), WRONG)
async def test_a_value_the_route_does_not_take_is_a_422_that_names_the_field(
    value: Any, param: str | None, sentence: str
) -> None:
    async with desk(routes=ROUTES) as it:
        status, message, named = await refused(it, json.dumps(value).encode())
    assert (status, named) == (422, param)
    assert message.startswith(sentence)


async def test_a_body_that_is_too_large_is_a_413_with_or_without_a_length() -> None:
    large = json.dumps({"name": "x" * LIMIT}).encode()

    async def pieces() -> AsyncGenerator[bytes, None]:
        for start in range(0, len(large), 1000):
            yield large[start : start + 1000]

    async with desk(ONE_MEGABYTE, ROUTES) as it:
        status, message, _ = await refused(it, large)
        assert (status, message[:28]) == (413, "the body is larger than 1 MB")
        assert "raise body_mb in [service]" in message
        unknown = await it.client.post("/echo", headers=JSON_TYPE, content=pieces())
        assert unknown.status_code == 413
        endless = await it.client.post("/echo", headers=JSON_TYPE, content=large * 5)
        assert endless.status_code == 413
        exact = json.dumps({"name": "x" * (LIMIT - len('{"name": ""}'))}).encode()
        assert len(exact) == LIMIT
        assert (await it.send("POST", "/echo", JSON_TYPE, exact)).status_code == 200


async def test_a_body_that_stops_coming_is_given_up() -> None:
    async def receive() -> Any:
        if sent:
            await anyio.sleep_forever()
        sent.append(True)
        return {"type": "http.request", "body": b'{"name": ', "more_body": True}

    sent: list[bool] = []
    app = Starlette()
    app.state.service = SimpleNamespace(body_limit=10 * LIMIT, admission=Admission())
    request = Request({**SCOPE, "app": app}, receive)
    with anyio.fail_after(60), pytest.raises(HTTPError, match=r"the body stopped coming for 0\.01 seconds") as problem:
        await bodies.read(request, Wish, silence_s=0.01)
    assert problem.value.status == 408


def values_in(text: str) -> int:
    """Count values as the service does, but in one go and by the parsed JSON."""

    def count(value: Any) -> int:
        if isinstance(value, dict):
            members = list(cast("dict[str, Any]", value).values())
            return 1 + sum(1 + count(each) for each in members) + max(0, len(members) - 1)
        if isinstance(value, list):
            items = cast("list[Any]", value)
            return 1 + sum(map(count, items)) + max(0, len(items) - 1)
        return 0

    return 1 + count(json.loads(text))


@pytest.mark.parametrize("escape", ["", "\\", '"', "\\\\", '\\"'])
def test_values_are_counted_outside_of_texts_wherever_the_body_is_cut(
    monkeypatch: pytest.MonkeyPatch, escape: str
) -> None:
    value: dict[str, Any] = {"a": ["x, [y]: {z}" + escape * 3, {"b": [1, 2, []], "c": {}}, escape], "d": escape}
    text = json.dumps([value] * 5)
    for part_bytes in (*range(1, 30), 2 * len(text)):
        monkeypatch.setattr(answers, "COUNTED_BYTES", part_bytes)
        assert answers.count_values(text.encode()) == values_in(text), part_bytes


async def test_more_values_than_the_parser_takes_quickly_are_refused_and_long_text_is_not() -> None:
    many = json.dumps({"name": "a", "extra": [[]] * bodies.MOST_VALUES}).encode()
    text = json.dumps({"name": '[{"a": 1, "b": [2, 3]}], ' * 200_000}).encode()
    wish = Wish.model_validate_json(await _read(text))
    assert wish.name.count("[") == 400_000
    with pytest.raises(HTTPError, match="the body has more than 120,000 values; send fewer at once") as problem:
        await _read(many)
    assert problem.value.status == 413


async def test_a_body_with_very_many_errors_is_refused_without_a_list_of_them() -> None:
    body = {"name": "a", **{f"field{number}": 0 for number in range(30_000)}}
    with pytest.raises(HTTPError, match="the body is wrong in 30,000 places; send a part of it") as problem:
        await _read(json.dumps(body).encode())
    assert problem.value.status == 422


async def test_long_bodies_are_checked_outside_of_the_event_loops_thread() -> None:
    checked_in: list[int] = []

    def note(value: Any) -> Any:
        checked_in.append(threading.get_ident())
        return value

    class Noted(bodies.RequestBody):
        extra: Annotated[Any, AfterValidator(note)]

    for length in (10, 10_000):
        await _read(json.dumps({"extra": "x" * length}).encode(), Noted)
    assert [thread == threading.get_ident() for thread in checked_in] == [True, False]


async def _read(content: bytes, model: type[bodies.RequestBody] = Wish) -> str:
    """The body that a route would get, as JSON."""

    async def receive() -> Any:
        return {"type": "http.request", "body": content, "more_body": False}

    app = Starlette()
    app.state.service = SimpleNamespace(body_limit=10 * LIMIT, admission=Admission())
    request = Request({**SCOPE, "app": app}, receive)
    return (await bodies.read(request, model)).model_dump_json()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 415),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "application/json; charset=shift-jis"}, 415),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, 400),
        ({"Content-Type": "application/json; charset=UTF-8"}, 200),
        ({"Content-Type": "APPLICATION/JSON"}, 200),
        ({"Content-Type": 'application/vnd.x+json; charset="utf-8"'}, 200),
    ],
)
async def test_a_body_says_that_it_is_json(headers: dict[str, str], status: int) -> None:
    async with desk(routes=ROUTES) as it:
        answer = await it.send("POST", "/echo", headers, b'{"name": "a"}')
        assert answer.status_code == status
        if "Content-Encoding" not in headers and "shift" not in headers.get("Content-Type", ""):
            assert (await it.send("POST", "/api/echo", headers, b'{"name": "a"}')).status_code == 200


def deflated_without_header(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
    "Deflate": deflated_without_header,
}


@pytest.mark.parametrize("encoding", PACKED)
async def test_a_compressed_body_is_read_within_the_limit_of_a_plain_one(encoding: str) -> None:
    headers, pack = {"Content-Type": "application/json", "Content-Encoding": encoding}, PACKED[encoding]
    async with desk(ONE_MEGABYTE, ROUTES) as it:
        answer = await it.send("POST", "/echo", headers, pack(b'{"name": "a"}'))
        assert (answer.status_code, answer.json()["name"]) == (200, "a")
        bomb = pack(b'{"name": "' + b"a" * (LIMIT * 40) + b'"}')
        assert (await it.send("POST", "/echo", headers, bomb)).status_code == 413
        assert (await it.send("POST", "/echo", headers, pack(b'{"name": "a"}')[:-6])).status_code == 400


async def test_another_compression_is_refused_with_those_that_are_read() -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "br"}
    async with desk(routes=ROUTES) as it:
        answer = await it.send("POST", "/echo", headers, b"{}")
        assert answer.status_code == 415
        assert "send gzip, deflate, zstd" in answer.json()["error"]["message"]


async def test_a_correct_body_comes_through_unchanged() -> None:
    wish = {
        "name": "日本 👋\u0000",
        "parts": ["x", {"text": "y", "weight": 2.0}],
        "count": 10**30,
        "extra": {"a": [1.5]},
    }
    async with desk(routes=ROUTES) as it:
        for content in (json.dumps(wish).encode(), b"\xef\xbb\xbf" + json.dumps(wish, ensure_ascii=False).encode()):
            assert (await it.send("POST", "/echo", JSON_TYPE, content)).json() == wish


async def test_a_text_cut_at_any_of_its_escapes_is_read_with_a_character_for_each_half() -> None:
    # Pairs, halves, and backslashes with the letters of an escape after them, in every neighbourhood.
    parts = ("😀", "\ud83d", "\ude00", "\\ud83d", "\\", "a")
    texts = ["".join(chosen) for chosen in itertools.product(parts, repeat=4)]
    wishes = {"name": "a", "parts": texts}
    async with desk(routes=ROUTES) as it:
        answer = await it.send("POST", "/echo", JSON_TYPE, json.dumps(wishes).encode())
    whole = [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts]
    assert answer.json()["parts"] == whole


@pytest.mark.parametrize(
    ("address", "status", "found"),
    [
        ("/search", 200, {"limit": 20, "errors": False}),
        ("/search?limit=3&errors=true", 200, {"limit": 3, "errors": True}),
        ("/search?limit=0", 422, "limit"),
        ("/search?limit=many", 422, "limit"),
        ("/search?errors=perhaps", 422, "errors"),
        ("/search?limt=3", 422, "limt"),
        ("/search?limit=%ff", 422, "limit"),
    ],
)
async def test_the_query_of_an_address_is_checked_as_well(address: str, status: int, found: Any) -> None:
    async with desk(routes=ROUTES) as it:
        answer = await it.send("GET", address)
    assert answer.status_code == status
    assert (answer.json() if status == 200 else answer.json()["error"]["param"]) == found
