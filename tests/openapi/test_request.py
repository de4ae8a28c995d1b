"""Arguments of a call arrive at a real API as its specification says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.api_calls import call, echo, opened, specification
from tests.support.local_api import open_api

pytestmark = pytest.mark.anyio

LIST = ["a b", "c&d"]
OBJECT = {"R": 100, "G": "x y"}


def nested(levels: int) -> Any:
    return {"a": nested(levels - 1)} if levels else "x"


# Location, style, explode, value -> what the API saw there.
STYLES: list[tuple[str, str | None, bool | None, Any, str]] = [
    ("path", None, None, "a/b c", "a%2Fb%20c"),
    ("path", None, None, LIST, "a%20b,c%26d"),
    ("path", "simple", True, LIST, "a%20b,c%26d"),
    ("path", "simple", False, OBJECT, "R,100,G,x%20y"),
    ("path", "simple", True, OBJECT, "R=100,G=x%20y"),
    ("path", "label", False, LIST, ".a%20b,c%26d"),
    ("path", "label", True, LIST, ".a%20b.c%26d"),
    ("path", "label", False, OBJECT, ".R,100,G,x%20y"),
    ("path", "label", True, OBJECT, ".R=100.G=x%20y"),
    ("path", "label", False, 5, ".5"),
    ("path", "matrix", False, LIST, ";v=a%20b,c%26d"),
    ("path", "matrix", True, LIST, ";v=a%20b;v=c%26d"),
    ("path", "matrix", False, OBJECT, ";v=R,100,G,x%20y"),
    ("path", "matrix", True, OBJECT, ";R=100;G=x%20y"),
    ("path", "matrix", False, True, ";v=true"),
    ("query", None, None, "東京 駅", "v=%E6%9D%B1%E4%BA%AC%20%E9%A7%85"),
    ("query", None, None, 2.0, "v=2"),
    ("query", None, None, 123456789.0, "v=123456789"),
    ("query", None, None, ["a", None], "v=a"),
    ("query", None, None, "", "v="),
    ("query", None, None, None, ""),
    ("query", None, None, [], ""),
    ("query", None, None, LIST, "v=a%20b&v=c%26d"),
    ("query", "form", False, LIST, "v=a%20b,c%26d"),
    ("query", "form", True, OBJECT, "R=100&G=x%20y"),
    ("query", "form", False, OBJECT, "v=R,100,G,x%20y"),
    ("query", "spaceDelimited", False, LIST, "v=a%20b%20c%26d"),
    ("query", "spaceDelimited", True, LIST, "v=a%20b&v=c%26d"),
    ("query", "spaceDelimited", False, OBJECT, "v=R%20100%20G%20x%20y"),
    ("query", "pipeDelimited", False, LIST, "v=a%20b%7Cc%26d"),
    ("query", "pipeDelimited", True, LIST, "v=a%20b&v=c%26d"),
    ("query", "pipeDelimited", False, OBJECT, "v=R%7C100%7CG%7Cx%20y"),
    ("query", "deepObject", True, OBJECT, "v%5BR%5D=100&v%5BG%5D=x%20y"),
    ("query", "deepObject", True, {"a": {"b": [1, 2]}}, "v%5Ba%5D%5Bb%5D=1&v%5Ba%5D%5Bb%5D=2"),
    ("query", "deepObject", True, "x", "v=x"),
    # An object is taken apart down to eight levels; what is deeper is its JSON.
    ("query", "deepObject", True, nested(8), f"v{'%5Ba%5D' * 8}=x"),
    ("query", "deepObject", True, nested(9), f"v{'%5Ba%5D' * 8}=%7B%22a%22%3A%22x%22%7D"),
    ("query", "nonsense", None, "x", "v=x"),
    ("header", None, None, LIST, "a b,c&d"),
    ("header", "simple", False, OBJECT, "R,100,G,x y"),
    ("header", "simple", True, OBJECT, "R=100,G=x y"),
    ("header", None, None, 5, "5"),
    ("cookie", None, None, "a b", "v=a%20b"),
    ("cookie", "form", False, LIST, "v=a%20b%2Cc%26d"),
    ("cookie", "form", True, LIST, "v=a%20b; v=c%26d"),
    ("cookie", "form", True, OBJECT, "R=100; G=x%20y"),
]


async def test_every_style_of_every_place_arrives_as_the_tables_of_openapi_say() -> None:
    paths: dict[str, Any] = {}
    for number, (place, style, explode, _, _) in enumerate(STYLES):
        parameter = {"name": "v", "in": place, "style": style, "explode": explode}
        path = f"/echo/{number}/{{v}}" if place == "path" else f"/echo/{number}/"
        paths[path] = {"get": {"operationId": f"case_{number}", "parameters": [parameter]}}
    seen: list[str] = []
    async with open_api() as api, opened(specification(paths), api.url) as source:
        for number, (place, _, _, value, _) in enumerate(STYLES):
            told = await echo(source, f"case_{number}", v=value)
            found = {
                "path": told["path"].removeprefix(f"/echo/{number}/"),
                "query": told["query"],
                "header": told["headers"].get("v", ""),
                "cookie": told["headers"].get("cookie", ""),
            }
            seen.append(found[place])
    assert seen == [wanted for *_, wanted in STYLES]


# Media type, schema of the body, encoding, arguments -> its type, and its text or the parts of a form.
TEXT = {"type": "string"}
FILE = {"type": "string", "format": "binary"}
THING = {"type": "object", "properties": {"a": TEXT, "n": {"type": "integer"}, "o": {"type": "object"}, "f": FILE}}
DATA = "data:image/png;base64,iVBO"
JSON, BYTES = "application/json", "application/octet-stream"
FORM, PARTS = "application/x-www-form-urlencoded", "multipart/form-data"
BODIES: list[tuple[str, Any, Any, dict[str, Any], str, Any]] = [
    (JSON, THING, {}, {"a": "東京", "n": "3", "o": {"x": None}}, JSON, '{"a":"東京","n":3,"o":{"x":null}}'),
    (JSON, {"type": "array", "items": TEXT}, {}, {"body": ["a"]}, JSON, '["a"]'),
    (JSON, {"type": "string"}, {}, {"body": "a"}, JSON, '"a"'),
    (JSON, {"additionalProperties": TEXT}, {}, {"body": {"k": "v"}}, JSON, '{"k":"v"}'),
    (JSON, {"properties": {"a": TEXT}, "additionalProperties": True}, {}, {"a": "1", "b": 2}, JSON, '{"a":"1","b":2}'),
    (JSON, {"properties": {"a": {"type": ["string", "null"]}}}, {}, {"a": None}, JSON, '{"a":null}'),
    ("application/merge-patch+json", THING, {}, {"a": "x"}, "application/merge-patch+json", '{"a":"x"}'),
    ("*/*", THING, {}, {"a": "x"}, JSON, '{"a":"x"}'),
    (FORM, THING, {}, {"a": "x y&z", "n": 1, "o": {"k": [1]}}, FORM, [["a", "x y&z"], ["n", "1"], ["o", '{"k":[1]}']]),
    (FORM, {"properties": {"l": {"type": "array"}}}, {}, {"l": ["a", "b"]}, FORM, [["l", "a"], ["l", "b"]]),
    (
        FORM,
        {"properties": {"l": {"type": "array"}}},
        {"l": {"explode": False}},
        {"l": ["a", "b"]},
        FORM,
        [["l", "a,b"]],
    ),
    (
        FORM,
        {"properties": {"o": {"type": "object"}}},
        {"o": {"style": "deepObject"}},
        {"o": {"k": 1}},
        FORM,
        [["o[k]", "1"]],
    ),
    (
        PARTS,
        THING,
        {},
        {"a": "x", "o": {"k": 1}, "f": "hello"},
        PARTS,
        [["a", "x"], ["o", '{"k":1}'], ["f", "f", BYTES, "hello"]],
    ),
    (
        PARTS,
        THING,
        {"f": {"contentType": "image/png, image/jpeg"}},
        {"f": DATA},
        PARTS,
        [["f", "f", "image/png", "\x89PN"]],
    ),
    (
        PARTS,
        {"properties": {"f": {"type": "array", "items": FILE}}},
        {},
        {"f": ["1", "2"]},
        PARTS,
        [["f", "f", BYTES, "1"], ["f", "f", BYTES, "2"]],
    ),
    ("text/plain", TEXT, {}, {"body": "二行\n目"}, "text/plain", "二行\n目"),
    ("application/xml", THING, {}, {"body": "<a/>"}, "application/xml", "<a/>"),
    (BYTES, FILE, {}, {"body": "data:;base64,aGk="}, BYTES, "hi"),
    (BYTES, FILE, {}, {"body": "data:,a%20b"}, BYTES, "a b"),
    (BYTES, FILE, {}, {"body": "data: no address"}, BYTES, "data: no address"),
    (JSON, THING, {}, {}, "", ""),
]


async def test_every_type_of_body_arrives_as_it_was_meant() -> None:
    paths: dict[str, Any] = {}
    for number, (media_type, schema, encoding, *_) in enumerate(BODIES):
        content = {media_type: {"schema": schema, "encoding": encoding}}
        paths[f"/echo/{number}"] = {"post": {"operationId": f"case_{number}", "requestBody": {"content": content}}}
    seen: list[Any] = []
    async with open_api() as api, opened(specification(paths), api.url) as source:
        for number, (*_, arguments, _, _) in enumerate(BODIES):
            told = await echo(source, f"case_{number}", **arguments)
            seen.append((told["type"], told["parts"] or told["body"]))
    assert seen == [(kind, wanted) for *_, kind, wanted in BODIES]


async def test_unsendable_arguments_are_reported_before_anything_is_sent() -> None:
    paths = {
        "/echo/{id}": {
            "delete": {
                "operationId": "remove",
                "parameters": [
                    {"name": "id", "in": "path", "required": True},
                    {"name": "limit", "in": "query", "schema": {"type": "integer"}},
                    {"name": "X-Note", "in": "header", "schema": {"type": "string"}},
                ],
            }
        }
    }
    async with open_api() as api, opened(specification(paths), api.url) as source:
        header: dict[str, Any] = {"X-Note": "a\r\nHost: b"}
        said = [
            await call(source, "remove"),
            await call(source, "remove", id=""),
            await call(source, "remove", id=[]),
            await call(source, "remove", id=".."),
            await call(source, "remove", id="1", limit="many"),
            await call(source, "remove", id="1", nonsense=1),
            await call(source, "remove", id="1", **header),
        ]
        assert said == [
            "error: The argument 'id' is missing.",
            "error: The argument 'id' must not be empty.",
            "error: The argument 'id' must not be empty.",
            "error: A part of the path must not be '.' or '..'.",
            "error: The argument 'limit' must be integer, not \"many\".",
            "error: Unknown argument 'nonsense'; the arguments are: id, limit, X-Note.",
            "error: The argument 'X-Note' must be one line.",
        ]
        assert api.asked == []


async def test_the_apis_own_names_of_arguments_are_understood_as_well() -> None:
    parameters = [{"name": "filter[name]", "in": "query", "schema": {"type": "string"}}]
    document = specification({"/echo": {"get": {"parameters": parameters}}})
    async with open_api() as api, opened(document, api.url) as source:
        assert list(source.tools[0].input_schema["properties"]) == ["filter_name"]
        assert (await echo(source, "get_echo", filter_name="x"))["query"] == "filter%5Bname%5D=x"
        assert (await echo(source, "get_echo", **{"filter[name]": "x"}))["query"] == "filter%5Bname%5D=x"


async def test_equal_names_in_path_query_and_body_all_reach_their_place() -> None:
    operation = {
        "operationId": "put_thing",
        "parameters": [{"name": "id", "in": "path"}, {"name": "id", "in": "query"}],
        "requestBody": {"content": {"application/json": {"schema": {"properties": {"id": {"type": "integer"}}}}}},
    }
    async with open_api() as api, opened(specification({"/echo/{id}": {"put": operation}}), api.url) as source:
        assert list(source.tools[0].input_schema["properties"]) == ["id", "id_query", "id_body"]
        told = await echo(source, "put_thing", id="1", id_query="2", id_body="3")
        assert (told["path"], told["query"], told["body"]) == ("/echo/1", "id=2", '{"id":3}')


# Path of the specification, its parameters, arguments -> path and query that the API saw. Shapes of published files:
# Box and AWS tell operations of one path apart by a fragment, Spring appends its query, gateways take several segments.
PATHS: list[tuple[str, list[Any], dict[str, str], str]] = [
    ("/echo/{id}#add_link", [{"name": "fields", "in": "query"}], {"id": "1", "fields": "a"}, "/echo/1?fields=a"),
    ("/echo/token#refresh", [], {}, "/echo/token"),
    ("/echo/#Action=List{Things}", [{"name": "Action", "in": "query"}], {"Action": "List"}, "/echo/?Action=List"),
    ("/echo/all?mode=short#x", [{"name": "page", "in": "query"}], {"page": "2"}, "/echo/all?mode=short&page=2"),
    ("/echo/find?q={q}", [{"name": "q", "in": "query"}], {"q": "a&b"}, "/echo/find?q=a%26b"),
    ("/echo/list{?page,size}", [{"name": "page", "in": "query"}], {"page": "2"}, "/echo/list?page=2"),
    ("/echo/{proxy+}", [{"name": "proxy", "in": "path"}], {"proxy": "a/b c?d"}, "/echo/a/b%20c%3Fd"),
    ("/echo/{+name}", [{"name": "name", "in": "path"}], {"name": "projects/p"}, "/echo/projects/p"),
    ("/echo/{name=projects/*}", [], {"name": "projects/p"}, "/echo/projects/p"),
]


async def test_of_a_path_only_what_belongs_to_the_request_is_sent() -> None:
    paths = {
        path: {"get": {"operationId": f"case_{number}", "parameters": parameters}}
        for number, (path, parameters, _, _) in enumerate(PATHS)
    }
    seen: list[str] = []
    async with open_api() as api, opened(specification(paths), api.url) as source:
        for number, (*_, arguments, _) in enumerate(PATHS):
            assert set(source.tools[number].input_schema["properties"]) == set(arguments)
            told = await echo(source, f"case_{number}", **arguments)
            seen.append(f"{told['path']}?{told['query']}".removesuffix("?"))
        assert (await call(source, "case_6", proxy="a/../b")).endswith("must not be '.' or '..'.")
    assert seen == [wanted for *_, wanted in PATHS]


async def test_a_parameter_that_carries_a_document_is_sent_as_json() -> None:
    parameter = {"name": "q", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}}
    document = specification({"/echo": {"get": {"operationId": "f", "parameters": [parameter]}}})
    async with open_api() as api, opened(document, api.url) as source:
        assert (await echo(source, "f", q={"a": [1]}))["query"] == "q=%7B%22a%22%3A%5B1%5D%7D"


async def test_reserved_characters_stay_where_the_parameter_allows_them() -> None:
    parameter = {"name": "q", "in": "query", "allowReserved": True, "schema": {"type": "string"}}
    document = specification({"/echo": {"get": {"operationId": "f", "parameters": [parameter]}}})
    async with open_api() as api, opened(document, api.url) as source:
        assert (await echo(source, "f", q="a/b:c&d"))["query"] == "q=a/b:c%26d"
