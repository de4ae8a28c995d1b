"""Where a specification comes from, and what happens when it does not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from rkllm_mcp.config.servers import OpenAPIServer
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.messages import ToolCall
from rkllm_mcp.openapi.request import address_of
from rkllm_mcp.openapi.source import convert, tool_of
from rkllm_mcp.tools.approvals import fingerprint_of
from rkllm_mcp.tools.tool_servers import open_toolbox
from tests.support.api_calls import PATIENCE_S, call, opened, specification
from tests.support.local_api import open_api
from tests.support.outside import hostile_server

pytestmark = pytest.mark.anyio

ECHO = specification({"/echo": {"get": {"operationId": "ask"}}})
YAML = (
    "openapi: 3.0.3\npaths:\n  /echo:\n    get:\n      operationId: ask\n      responses: {200: {description: yes}}\n"
)


async def test_it_is_read_from_a_file_a_text_or_an_address(tmp_path: Path) -> None:
    (tmp_path / "api.yaml").write_text(YAML, encoding="utf-8")
    (tmp_path / "api.json").write_bytes(json.dumps(ECHO).encode("utf-16"))
    async with open_api() as api:
        api.documents["api"] = ECHO
        api.documents["raw"] = YAML.encode()
        places = [
            ECHO,
            json.dumps(ECHO),
            YAML,
            str(tmp_path / "api.yaml"),
            str(tmp_path / "api.json"),
            (tmp_path / "api.yaml").as_uri(),
            f"{api.url}/documents/api",
            f"{api.url}/documents/raw",
        ]
        for place in places:
            async with opened(place, api.url) as source:
                assert [tool.name for tool in source.tools] == ["ask"], source.explanation()
                assert '"method":"GET"' in await call(source, "ask")


ADDRESSES: list[tuple[Any, str, str]] = [
    ([[]], "http://h/docs/api.json", "http://h"),
    ([None, [{"url": "/v1"}]], "https://h:8/docs/api.json", "https://h:8/v1"),
    ([[{"url": "../v2/"}]], "http://h/docs/api.json", "http://h/v2"),
    ([[{"url": "http://{host}/"}, {"url": "/second"}]], "http://h/api", "http://h/second"),
    ([[{"url": "ftp://h"}], [{"url": "//other/x?y#z"}]], "https://h/api", "https://other/x"),
    ([[{"url": "http://[broken"}], "nonsense"], "", ""),
    ([[{"url": "/v1"}]], "", ""),
]


@pytest.mark.parametrize(("levels", "spec_url", "address"), ADDRESSES)
def test_an_address_is_the_nearest_that_can_be_used_made_whole(levels: Any, spec_url: str, address: str) -> None:
    assert address_of(levels, spec_url) == address


async def test_without_servers_an_api_is_where_its_specification_is() -> None:
    async with open_api() as api:
        api.documents["api"] = ECHO
        async with opened(f"{api.url}/documents/api", "") as source:
            assert '"path":"/echo"' in await call(source, "ask")


async def test_variables_of_an_address_take_their_defaults_and_the_nearest_address_counts() -> None:
    async with open_api() as api:
        port = api.url.rpartition(":")[2]
        variables = {"port": {"default": port}, "base": {"enum": ["echo", "x"]}}
        near = [{"url": "http://127.0.0.1:{port}/{base}", "variables": variables}]
        document = specification(
            {"/near": {"get": {"operationId": "ask"}, "servers": near}}, servers=[{"url": "http://127.0.0.1:1"}]
        )
        async with opened(document, "") as source:
            assert '"path":"/echo/near"' in await call(source, "ask")
        async with opened(document, f"{api.url}/echo/ours/") as source:
            assert '"path":"/echo/ours/near"' in await call(source, "ask")


PROBLEMS: list[tuple[Any, str]] = [
    ("/no/such/file.json", "its openapi_spec /no/such/file.json cannot be read: No such file or directory"),
    ("{broken", "its openapi_spec cannot be read: it is not valid JSON"),
    ("a: [\nb", "its openapi_spec cannot be read: it is not valid YAML"),
    ("- a\n- b\n", "its openapi_spec cannot be read: it is not an OpenAPI document"),
    ({"a": 1}, "its openapi_spec is not an OpenAPI document: it has no 'paths'"),
    (
        "http://127.0.0.1:1/api",
        "its openapi_spec could not be fetched. The API at http://127.0.0.1:1 cannot be reached",
    ),
]


@pytest.mark.parametrize(("place", "reason"), PROBLEMS)
async def test_what_cannot_be_read_is_a_reason_of_one_sentence(place: Any, reason: str) -> None:
    async with opened(place, "http://127.0.0.1:1") as source:
        assert source.state == "failed"
        assert source.explanation().startswith(reason)
        with pytest.raises(ServerUnavailableError):
            await source.available()


async def test_a_specification_without_an_address_asks_for_one() -> None:
    async with opened(ECHO, "") as source:
        assert source.explanation() == "its openapi_spec names no address of the API; set openapi_base_url"


async def test_one_that_could_not_be_fetched_is_fetched_at_the_next_use() -> None:
    async with open_api() as api, opened(f"{api.url}/documents/api", api.url) as source:
        assert source.explanation() == "its openapi_spec could not be fetched: 404 Not Found; correct the address"
        api.documents["api"] = ECHO
        assert '"method":"GET"' in await call(source, "ask")
        assert source.state == "ready"


async def test_one_that_does_not_come_in_time_fails_and_leaves_the_others_alone() -> None:
    async with open_api() as api:
        slow = OpenAPIServer(name="slow", openapi_spec=f"{api.url}/silence", connect_timeout_s=0.1)
        good = OpenAPIServer(name="good", openapi_spec=ECHO, openapi_base_url=api.url)
        lines: list[str] = []
        with anyio.fail_after(PATIENCE_S):
            async with open_toolbox([slow, good], on_status=lines.append) as toolbox:
                await toolbox.wait_until_connected()
                assert [state.state for state in toolbox.servers()] == ["failed", "ready"]
                result = await toolbox.call(ToolCall("1", "mcp__good__ask", {}))
        assert not result.is_error
        assert (
            "[MCP: Server 'slow' is left out: it was not loaded within 0.1 s; "
            "raise connect_timeout_s if it only needs longer]"
        ) in lines


async def test_keys_go_to_a_specification_only_at_the_address_that_the_owner_named() -> None:
    headers = {"Authorization": "Bearer abc", "X-Other": "${later}"}
    async with open_api() as api, open_api() as other:
        for one in (api, other):
            one.documents["api"] = ECHO
            async with opened(f"{one.url}/documents/api", api.url, headers_template=headers) as source:
                assert source.state == "ready"
        assert (api.keys, other.keys) == (["Bearer abc"], [None])


async def test_a_document_from_an_address_names_none_further_inside() -> None:
    paths = {
        "/inside": {"get": {"operationId": "inside"}},
        "/here": {"get": {"operationId": "here"}, "servers": [{"url": "/echo"}]},
    }
    inside = specification(paths, servers=[{"url": "http://169.254.169.254/latest"}])
    async with open_api() as api:
        api.documents["some"] = inside
        async with opened(f"{api.url}/documents/some", "") as source:
            reason = await call(source, "inside")
            assert reason.startswith(
                "error: The address of the API is refused: http://169.254.169.254:80 is a link-local"
            )
            assert "set openapi_base_url" in reason
            assert '"path":"/echo/here"' in await call(source, "here")
        api.documents["all"] = specification({"/inside": paths["/inside"]}, servers=inside["servers"])
        async with opened(f"{api.url}/documents/all", "") as source:
            assert source.state == "failed"
            assert "169.254.169.254:80 is a link-local or metadata address" in source.explanation()
        async with opened(f"{api.url}/documents/all", f"{api.url}/echo") as source:
            assert '"path":"/echo/inside"' in await call(source, "inside")


async def test_an_approval_is_valid_for_the_method_and_address_of_an_operation() -> None:
    server = OpenAPIServer.model_validate({"name": "api", "openapi_spec": "https://api.example/openapi.json"})

    def fingerprint(method: str, address: str) -> str:
        document = specification(
            {"/x": {method: {"operationId": "ask", "summary": "Asks"}}}, servers=[{"url": address}]
        )
        (operation,) = convert(document).operations
        return fingerprint_of(server, replace(tool_of(operation), read_only=None))

    one = fingerprint("post", "https://api.example")
    assert one == fingerprint("post", "https://api.example/")
    assert len({one, fingerprint("put", "https://api.example"), fingerprint("post", "https://other.example")}) == 3


async def test_include_and_exclude_choose_by_name_id_tag_path_and_method() -> None:
    document = specification(
        {
            "/users": {"get": {"operationId": "users/list", "tags": ["people"]}, "post": {"tags": ["people", "admin"]}},
            "/users/{id}": {"delete": {"operationId": "removeUser"}},
            "/pets": {"get": {}},
        }
    )
    chosen: list[list[str]] = []
    for settings in (
        {},
        {"include": ("people",)},
        {"include": ("/users*",)},
        {"include": ("GET *",), "exclude": ("get_pets",)},
        {"include": ("users/list", "remove*")},
        {"exclude": ("admin", "DELETE *")},
        {"allowed_tools": ("users_list", "get_*")},
        {"include": ()},
    ):
        async with opened(document, "http://127.0.0.1:1", **settings) as source:
            chosen.append([tool.name for tool in source.tools])
    everything = ["users_list", "post_users", "removeUser", "get_pets"]
    assert chosen == [
        everything,
        ["users_list", "post_users"],
        ["users_list", "post_users", "removeUser"],
        ["users_list"],
        ["users_list", "removeUser"],
        ["users_list", "get_pets"],
        ["users_list", "get_pets"],
        [],
    ]


async def test_reading_is_marked_read_only_and_deleting_destructive() -> None:
    operations = {method: {"operationId": method} for method in ("get", "head", "post", "put", "patch", "delete")}
    async with opened(specification({"/x": operations}), "http://127.0.0.1:1") as source:
        marks = {tool.name: (tool.read_only, tool.destructive) for tool in source.tools}
    assert marks == {
        "get": (True, False),
        "head": (True, False),
        "post": (False, False),
        "put": (False, False),
        "patch": (False, False),
        "delete": (False, True),
    }


async def test_notes_name_the_omitted_parts() -> None:
    document = specification(
        {"/x": {"get": {"parameters": [{"$ref": "other.yaml#/p"}]}, "post": {"parameters": [{"$ref": "#/nowhere"}]}}}
    )
    async with opened(document, "http://127.0.0.1:1") as source:
        assert [tool.name for tool in source.tools] == ["get_x", "post_x"]
        assert source.notes.shown() == (
            "($ref 'other.yaml#/p' refers to another document and is not followed)",
            "($ref '#/nowhere' has no target)",
        )


@pytest.mark.parametrize(
    ("way", "part"),
    [
        ("endless", "more than 67108864 bytes"),
        ("dripping", "was not complete after 0.6 s"),
        ("deep", "it is not valid YAML"),
        ("many", "has more than 1,000,000 values"),
        ("compressed", "it is not an OpenAPI document"),
        ("a list", "it is not an OpenAPI document"),
    ],
)
async def test_a_specification_from_a_hostile_address_fails_with_its_reason(way: str, part: str) -> None:
    with hostile_server() as outside:
        outside.way = way
        entry = {
            "name": "api",
            "openapi_spec": f"{outside.url}/api.json",
            "timeout_s": 0.3 if way == "dripping" else 20,
        }
        with anyio.fail_after(PATIENCE_S):
            async with open_toolbox([OpenAPIServer.model_validate(entry)]) as toolbox:
                await toolbox.wait_until_connected()
                [shown] = toolbox.servers()
        assert (shown.state, part in shown.reason) == ("failed", True), shown.reason
        assert outside.sent < 200_000_000


def _posting(path: str, schema: Any) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}}
    return {path: {"post": {"operationId": f"post{path}", "requestBody": {"content": content}}}}


def test_ten_thousand_operations_with_recursive_schemas_are_converted() -> None:
    node = {"$ref": "#/components/schemas/Node"}
    schemas = {
        "Node": {"type": "object", "properties": {f"p{number}": node for number in range(50)}},
        "Loop": {"$ref": "#/components/schemas/Loop"},
        **{f"A{n}": {"allOf": [{"$ref": f"#/components/schemas/A{n + 1}"}] * 10} for n in range(12)},
        "A12": {"type": "object"},
    }
    paths: dict[str, Any] = {"/a": {"$ref": "#/paths/~1b"}, "/b": {"$ref": "#/paths/~1a"}}
    for name in ("Node", "Loop", "A0"):
        paths |= _posting(f"/{name}", {"$ref": f"#/components/schemas/{name}"})
    for number in range(10_000):
        paths |= _posting(f"/{number}", {"type": "object", "properties": {"a": {"type": "string"}}})
    conversion = convert(specification(paths, components={"schemas": schemas}), base_url="http://127.0.0.1")
    assert len(conversion.operations) == 10_003
    assert max(len(json.dumps(operation.input_schema)) for operation in conversion.operations) <= 2000
