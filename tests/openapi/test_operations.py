"""A specification becomes tools: names, arguments, what is required, descriptions, and nothing lost."""

from __future__ import annotations

import json
import lzma
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rkllm_mcp.messages import as_mapping
from rkllm_mcp.openapi.document import DocumentError, parse_document
from rkllm_mcp.openapi.operations import describe, operation_name, shorten_to_sentence
from rkllm_mcp.openapi.source import SCHEMA_CHARS, convert
from tests.support.api_calls import specification
from tests.support.shared import shared_path

TEXT = {"type": "string"}


def schema_of(schema: Any, **components: Any) -> Any:
    """What a model is shown of a schema of one parameter."""
    operation = {"operationId": "f", "parameters": [{"name": "v", "in": "query", "schema": schema}]}
    document = specification({"/": {"get": operation}}, components={"schemas": components})
    return convert(document).operations[0].input_schema["properties"]["v"]


def body_of(schema: Any, *, method: str = "post", **body: Any) -> dict[str, Any]:
    """What a model is shown of a JSON body."""
    operation = {"operationId": "f", "requestBody": {"content": {"application/json": {"schema": schema}}, **body}}
    return dict(convert(specification({"/": {method: operation}})).operations[0].input_schema)


# Operations and characters of tools: what other converters make of the same files is 158, 327 and 6 thousand.
REAL = [("discord.json.xz", 242, 110_000), ("twilio.json.xz", 197, 190_000), ("petstore.yaml", 19, 7_000)]


@pytest.mark.parametrize(("name", "count", "most_chars"), REAL, ids=[name for name, *_ in REAL])
def test_a_real_specification_converts_whole_and_compact(name: str, count: int, most_chars: int) -> None:
    data = shared_path("cases", "openapi", name).read_bytes()
    document = parse_document(lzma.decompress(data) if name.endswith(".xz") else data)
    conversion = convert(document)
    assert (len(conversion.operations), conversion.notes) == (count, ())
    assert len({operation.name for operation in conversion.operations}) == count
    assert all(operation.address and operation.description for operation in conversion.operations)
    tools = [[one.name, one.description, one.input_schema] for one in conversion.operations]
    assert len(json.dumps(tools, ensure_ascii=False, separators=(",", ":"))) < most_chars


def test_operations_without_an_id_are_named_by_method_and_path() -> None:
    assert operation_name("", "GET", "/users/list", ()) == "get_users_list"
    assert operation_name("", "post", "/incidents", ()) == "post_incidents"
    assert operation_name("", "get", "/users/{user-id}/items.json", ()) == "get_users_user-id_items_json"
    assert operation_name("", "get", "/", ()) == "get_root"


def test_names_are_safe_and_no_two_are_the_same() -> None:
    long = "x" * 90
    paths: dict[str, Any] = {
        "/a": {"get": {"operationId": "repos/list for org"}, "post": {"operationId": "same"}},
        "/b": {"get": {"operationId": "same"}, "post": {"operationId": long}, "put": {"operationId": 5}},
        "/c": {"get": {"operationId": "get_b"}},
        "/天気": {"get": {}},
        "/空": {"get": {}},
    }
    names = [operation.name for operation in convert(specification(paths)).operations]
    assert names[:5] == ["repos_list_for_org", "same", "get_b", names[3], "5"]
    assert len(names[3]) == 64
    assert names[5:] == ["get_c", "get_root", "get_root_2"]


def test_the_arguments_are_those_of_path_query_header_cookie_and_body_with_the_required_ones() -> None:
    shared = [{"name": "id", "in": "path", "required": True, "schema": TEXT}, {"$ref": "#/components/parameters/Page"}]
    operation = {
        "summary": "Change a thing",
        "parameters": [
            {"name": "X-Trace", "in": "header", "schema": TEXT},
            {"name": "page", "in": "query", "schema": {"type": "integer"}, "required": True},
            {"name": "theme", "in": "cookie", "schema": TEXT},
            {"name": "Accept", "in": "header", "schema": TEXT},
            {"name": "strange", "in": "nowhere"},
            "nonsense",
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/xml": {"schema": TEXT},
                "application/json": {
                    "schema": {"required": ["name"], "properties": {"name": TEXT, "id": {"type": "integer"}}}
                },
            },
        },
    }
    components = {"parameters": {"Page": {"name": "page", "in": "query", "description": "the path's own"}}}
    document = specification(
        {"/things/{id}/{undeclared}": {"parameters": shared, "patch": operation}}, components=components
    )
    assert convert(document).operations[0].input_schema == {
        "type": "object",
        "properties": {
            "id": TEXT,
            "undeclared": TEXT,
            "page": {"type": "integer"},
            "X-Trace": TEXT,
            "theme": TEXT,
            "name": TEXT,
            "id_body": {"type": "integer"},
        },
        "required": ["id", "undeclared", "page", "name"],
    }


SCHEMAS: list[tuple[Any, Any]] = [
    (
        {
            "type": "string",
            "title": "T",
            "example": "e",
            "x-y": 1,
            "maxLength": 9,
            "description": "A <b>bold</b> [link](http://x).",
        },
        {"type": "string", "description": "A bold link."},
    ),
    ({"type": ["string", "null"], "format": "date-time"}, {"type": ["string", "null"], "format": "date-time"}),
    (
        {"type": "integer", "format": "int64", "nullable": True, "minimum": 1, "default": 5},
        {"type": ["integer", "null"], "minimum": 1, "default": 5},
    ),
    ({"anyOf": [TEXT, {"type": "null"}]}, {"type": ["string", "null"]}),
    ({"oneOf": [TEXT, {"type": "integer"}]}, {"type": ["string", "integer"]}),
    ({"oneOf": [{"const": 1, "title": "ONE"}, {"const": 2}]}, {"enum": [1, 2]}),
    ({"oneOf": [{"type": "array", "items": TEXT}, TEXT]}, {"anyOf": [{"type": "array", "items": TEXT}, TEXT]}),
    ({"anyOf": [TEXT, True]}, {}),
    (
        {"allOf": [{"$ref": "#/components/schemas/Base"}, {"properties": {"b": TEXT}, "required": ["b"]}]},
        {"type": "object", "properties": {"a": TEXT, "b": TEXT}, "required": ["a", "b"]},
    ),
    (
        {"type": "object", "properties": {"id": {"readOnly": True}, "n": TEXT}, "required": ["id", "n"]},
        {"type": "object", "properties": {"n": TEXT}, "required": ["n"]},
    ),
    ({"additionalProperties": {"type": "integer"}}, {"type": "object", "additionalProperties": {"type": "integer"}}),
    ({"enum": list(range(100))}, {"description": "one of 100: 0, 1, 2, 3, 4, 5, …"}),
    ({"enum": []}, {}),
    ({"type": "any"}, {}),
    ({"type": "file"}, TEXT),
    (True, {}),
    (None, {}),
    ("nonsense", {}),
    (
        {"$ref": "#/components/schemas/Tree"},
        {"type": "object", "properties": {"kids": {"type": "array", "items": {"type": "object"}}}},
    ),
    ({"$ref": "#/components/schemas/Self"}, {}),
    ({"$ref": "#/components/schemas/None"}, {}),
    ({"$ref": "http://h/s.json"}, {}),
]
COMPONENTS = {
    "Base": {"type": "object", "properties": {"a": TEXT}, "required": ["a"]},
    "Tree": {
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}},
    },
    "Self": {"$ref": "#/components/schemas/Self"},
}


@pytest.mark.parametrize(("schema", "shown"), SCHEMAS)
def test_a_model_is_shown_the_necessary_parts_of_a_schema(schema: Any, shown: Any) -> None:
    assert schema_of(schema, **COMPONENTS) == shown


def test_fields_of_a_union_of_objects_become_arguments_and_only_what_all_of_them_want_is_required() -> None:
    one = {"type": "object", "properties": {"kind": TEXT, "a": TEXT}, "required": ["kind", "a"]}
    two = {"type": "object", "properties": {"kind": TEXT, "b": TEXT}, "required": ["kind"]}
    assert body_of({"oneOf": [one, two]}, required=True) == {
        "type": "object",
        "properties": {"kind": TEXT, "b": TEXT, "a": TEXT},
        "required": ["kind"],
    }


def test_a_body_that_is_not_always_an_object_is_one_argument() -> None:
    one = {"type": "object", "properties": {"a": TEXT}}
    assert list(body_of({"oneOf": [one, {"type": "array"}]})["properties"]) == ["body"]


@pytest.mark.parametrize(
    ("method", "body", "required"),
    [
        ("post", {}, ["a"]),
        ("post", {"required": False}, None),
        ("post", {"required": True}, ["a"]),
        ("delete", {}, None),
    ],
)
def test_what_a_body_requires_counts_unless_the_body_itself_may_be_left_out(
    method: str, body: dict[str, Any], required: list[str] | None
) -> None:
    schema = {"type": "object", "properties": {"a": TEXT}, "required": ["a"]}
    assert body_of(schema, method=method, **body).get("required") == required


def test_an_operation_with_many_arguments_keeps_every_name_and_loses_words() -> None:
    deep = {"type": "object", "properties": {f"p{n}": {**TEXT, "description": "words " * 20} for n in range(30)}}
    fields = {f"field_{n}": deep for n in range(30)}
    schema = body_of({"type": "object", "properties": fields, "required": ["field_7"]})
    assert list(schema["properties"]) == list(fields)
    assert schema["required"] == ["field_7"]
    assert len(json.dumps(schema)) < SCHEMA_CHARS


def test_one_operation_that_cannot_be_read_costs_only_itself() -> None:
    class Odd(dict[str, Any]):
        """What no parser makes, in place of what nobody has thought of."""

        def items(self) -> Any:
            raise KeyError("odd")

    body = {"content": Odd({"application/json": {}})}
    conversion = convert(specification({"/a": {"get": {}, "post": {"requestBody": body}}, "/b": {"get": {}}}))
    assert [operation.name for operation in conversion.operations] == ["get_a", "get_b"]
    assert conversion.notes == ("(POST /a is left out: it cannot be read, KeyError: 'odd')",)


def test_descriptions_are_short_lines_without_markup() -> None:
    assert describe("List pets", "List pets.\n\nReturns **all** of them.", 100) == "List pets. Returns all of them."
    assert describe("天気を返す。", "地域の名前で", 100) == "天気を返す。地域の名前で"
    assert describe("", "", 100) == ""
    assert shorten_to_sentence("One sentence. Another one that is longer", 20) == "One sentence."
    assert shorten_to_sentence("word " * 20, 12) == "word word w…"


def test_yaml_is_read_as_its_authors_mean_it() -> None:
    text = """
base: &base {a: 1, b: [x, y]}
merged:
  <<: *base
  a: 2
codes: {200: ok, "404": no}
values: [no, off, 2026-11-21, 0123, 1.5, 0x10, ~, true, "5", !!str 7, 1e3]
alias: *base
loop: &loop [*loop]
"""
    assert parse_document(text) == {
        "base": {"a": 1, "b": ["x", "y"]},
        "merged": {"a": 2, "b": ["x", "y"]},
        "codes": {"200": "ok", "404": "no"},
        "values": ["no", "off", "2026-11-21", "0123", 1.5, 16, None, True, "5", "7", 1000.0],
        "alias": {"a": 1, "b": ["x", "y"]},
        "loop": [None],
    }


@pytest.mark.parametrize(
    "text", ["", "[1]", "a: b: c", "{", "\t", "- x", b"\xff\xfe\x00", b"\x80abc", '{"a":' * 100_000]
)
def test_a_file_that_is_not_a_document_gives_a_reason(text: str | bytes) -> None:
    with pytest.raises(DocumentError):
        parse_document(text)


SWAGGER: dict[str, Any] = {
    "swagger": "2.0",
    "host": "h",
    "basePath": "/v1",
    "schemes": ["http", "https"],
    "consumes": ["application/json"],
    "definitions": {"Pet": {"type": "object", "required": ["name"], "properties": {"name": TEXT}}},
    "parameters": {"Limit": {"name": "limit", "in": "query", "type": "integer", "maximum": 9}},
    "securityDefinitions": {"me": {"type": "basic"}, "key": {"type": "apiKey", "in": "header", "name": "K"}},
    "security": [{"me": []}],
    "paths": {
        "/pets": {
            "parameters": [{"$ref": "#/parameters/Limit"}],
            "get": {
                "parameters": [
                    {"name": "tags", "in": "query", "type": "array", "items": TEXT, "collectionFormat": "multi"}
                ]
            },
            "post": {
                "parameters": [{"name": "b", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Pet"}}]
            },
            "put": {
                "parameters": [
                    {"name": "f", "in": "formData", "type": "file", "required": True},
                    {"name": "t", "in": "formData", "type": "string"},
                ]
            },
        }
    },
}


def test_swagger_2_is_read_by_its_meaning() -> None:
    get, post, put = convert(SWAGGER).operations
    assert get.address == "https://h/v1"
    assert get.input_schema["properties"] == {
        "limit": {"type": "integer", "maximum": 9},
        "tags": {"type": "array", "items": TEXT},
    }
    assert [(parameter.name, parameter.explode) for parameter in get.parameters] == [("limit", True), ("tags", True)]
    assert post.input_schema["required"] == ["name"]
    assert post.body is not None
    assert put.body is not None
    assert (post.body.media_type, put.body.media_type) == ("application/json", "multipart/form-data")
    assert [(field.name, field.is_file) for field in put.body.fields] == [("f", True), ("t", False)]
    assert [[scheme.kind for scheme in one] for one in get.security] == [["basic"]]


# --- anything at all -------------------------------------------------------------------------------------------------

_WORDS = ["type", "properties", "items", "allOf", "anyOf", "oneOf", "$ref", "required", "enum", "const", "description",
          "nullable", "format", "default", "additionalProperties", "readOnly", "name", "in", "schema", "parameters",
          "requestBody", "content", "application/json", "operationId", "security", "servers", "url", "tags", "style",
          "explode", "get", "post", "/a/{b}", "encoding", "minimum"]  # fmt: skip
_VALUES = ["string", "object", "array", "integer", "null", "query", "path", "header", "#/components/schemas/A",
           "#/components/schemas/B", "#/paths/~1x", "#", "other.json", "", "{x}", "deepObject"]  # fmt: skip
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(_VALUES) | st.text(max_size=5)
_ANYTHING = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=5),
    max_leaves=25,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    item=_ANYTHING,
    schema=_ANYTHING,
    other=_ANYTHING,
    more=st.dictionaries(st.sampled_from(_WORDS), _ANYTHING, max_size=3),
)
def test_no_specification_raises_and_every_operation_of_an_object_becomes_a_tool(
    item: Any, schema: Any, other: Any, more: Any
) -> None:
    operation = {
        "parameters": [{"name": "v", "in": "query", "schema": schema}, schema],
        "requestBody": {"content": {"application/json": {"schema": other}}},
    }
    paths: dict[str, Any] = {"/x": item, "/y": {"get": operation, "post": item if isinstance(item, dict) else {}}}
    document = {**specification(paths), "components": {"schemas": {"A": schema, "B": other}}, **more}
    conversion = convert(document)
    tools = {operation.name: operation for operation in conversion.operations}
    item_node = as_mapping(cast("object", item))
    if "$ref" not in item_node:
        assert len(tools) == 2 + sum(isinstance(item_node.get(method), dict) for method in ("get", "post"))
    for tool in tools.values():
        json.dumps(tool.input_schema)
        assert set(tool.input_schema.get("required", [])) <= set(tool.input_schema["properties"])


@settings(max_examples=80, deadline=None)
@given(st.text(alphabet="ab:-[]{}&*!<,#'\"\n 1.~|>?%@", max_size=60))
def test_no_text_is_more_than_a_reason(text: str) -> None:
    try:
        parse_document(text)
    except DocumentError as error:
        assert str(error)


def test_an_operation_whose_arguments_take_too_much_work_is_left_out() -> None:
    names = [{"name": f"p{number}", "in": "query", "schema": {"type": "string"}} for number in range(3000)]
    document = specification({"/a": {"get": {"parameters": names}}, "/b": {"get": {}}})
    conversion = convert(document)
    assert [operation.path for operation in conversion.operations] == ["/b"]
    assert "(GET /a is left out: the schema of its arguments takes too much work: it leads to" in conversion.notes[0]
