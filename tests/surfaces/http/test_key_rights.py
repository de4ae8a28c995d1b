"""Keys for certain purposes, and tenants that may not approve their own calls."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping
from typing import Any

import httpx2
import pytest

from rkllm_mcp.config.sections import RIGHTS as ALL_RIGHTS
from rkllm_mcp.surfaces.http.app import ROUTES
from rkllm_mcp.surfaces.http.errors import HTTPError
from rkllm_mcp.surfaces.http.rights import TABLE, check_rights
from tests.support.execute import asking, text_of
from tests.support.feature_demo import NOTES
from tests.support.served import Served, scripted_model, served
from tests.support.shared import REPOSITORY

RULES = """
rule
  user [Ww]rite ([a-z.]+)
  results 0
  call write_file {"path":"FOLDER/$1","content":"x"}

rule
  results 1+
  result ^(.*)$
  say The tool said: %1

rule
  say Hello there.
"""
RIGHTS = {
    "all-of-the-owner": None,
    "chat-key-of-owner": ["chat"],
    "tools-key-of-owner": ["chat", "tools"],
    "approve-key-of-owner": ["approve"],
    "write-key-of-owner": ["write"],
    "only-tools-of-owner": ["tools"],
}
EXTRA = "".join(
    (
        '[service]\napi_keys = ["all-of-the-owner"]\n',
        *(f'[[service.keys]]\nkey = "{key}"\nallow = {json.dumps(allow)}\n' for key, allow in RIGHTS.items() if allow),
        '[[tenants]]\nname = "barred"\napi_key = "key-of-the-barred"\nmay_approve = false\n',
        '[[tenants]]\nname = "trusted"\napi_key = "key-of-the-trusted"\nmay_approve = true\n',
        '[[tenants]]\nname = "old"\napi_key = "key-of-the-old-one"\n',
    )
)
REFUSED = (
    "'write_file' was not run: it changes something, and no user could approve it. Tell the user. This key may not "
    "approve calls; the owner of the service can allow the tool with always_allow."
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("service")
    model = scripted_model(folder / "model", RULES.replace("FOLDER", str(folder)))
    with served(folder, model, (NOTES,), extra=EXTRA) as it:
        yield it


def ask(service: Served, key: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> httpx2.Response:
    client = httpx2.Client(base_url=service.url, headers={"Authorization": f"Bearer {key}"}, timeout=120)
    with client:
        return client.request(method, path, json=body)


def text_written(service: Served, key: str, **body: Any) -> str:
    answer = ask(service, key, "POST", "/v1/execute", {"message": "write a.txt", "stream": False, **body})
    return answer.raise_for_status().json()["text"]


def written_table() -> dict[tuple[str, str], set[str] | None]:
    """Return the rights that docs/service.md writes for each method and path; None where no key is needed."""
    table: dict[tuple[str, str], set[str] | None] = {}
    text = (REPOSITORY / "docs" / "service.md").read_text(encoding="utf-8")
    rows = text.partition("| right | routes |")[2].partition("\n\n")[0].splitlines()[2:]
    for row in rows:
        heading, routes = row.strip("| ").split(" | ")
        named = set(re.findall(r"`(chat|tools|approve|write)`", heading.partition(":")[0]))
        rights = None if heading.startswith("no key") else named or set(ALL_RIGHTS)
        for method, path in re.findall(r"`([A-Z]+) (/[^`]*)`", routes):
            assert (method, path) not in table, f"{method} {path} has two rows"
            table[method, path] = rights
    return table


def test_the_documented_table_names_every_route_and_no_other() -> None:
    table = written_table()
    assert set(table) == {(route.method, route.path) for route in ROUTES}
    assert {place for place, rights in table.items() if rights is None} == {
        (route.method, route.path) for route in ROUTES if route.is_open
    }


def test_each_route_takes_the_keys_that_the_documented_table_says(service: Served) -> None:
    keys = {**RIGHTS, "key-of-the-barred": ["chat", "tools"], "key-of-the-trusted": ["chat", "tools", "approve"]}
    wrong: list[str] = []
    client = httpx2.Client(base_url=service.url, timeout=120)
    with client:
        for (method, path), rights in written_table().items():
            for key, allow in (keys if rights is not None else {"unknown-key": ()}).items():
                address = re.sub(r"\{[^}]*\}", "nothing", path)
                headers = {"Authorization": f"Bearer {key}"}
                response = client.request(method, address, headers=headers, json={} if method != "GET" else None)
                is_refused = response.status_code == 403 and "this key is for" in response.text
                may = rights is None or not rights.isdisjoint(ALL_RIGHTS if allow is None else allow)
                # 501: no program for speech is configured.
                if is_refused == may or response.status_code not in {*range(500), 501}:
                    wrong.append(f"{method} {path} with {key}: {response.status_code} {response.text[:80]}")
    assert wrong == []


def test_a_route_without_a_row_is_refused_to_the_owner_too() -> None:
    with pytest.raises(HTTPError, match="has no row in the table of rights"):
        check_rights(TABLE, "GET", "/v1/a-new-route", ALL_RIGHTS)


def test_an_approval_takes_a_key_for_approvals(service: Served) -> None:
    for key, status in (("tools-key-of-owner", 403), ("approve-key-of-owner", 404), ("all-of-the-owner", 404)):
        assert ask(service, key, "POST", "/v1/approvals/question_99", {"decision": "once"}).status_code == status


def test_a_chat_key_gets_no_tools_no_prompts_and_no_resources(service: Served) -> None:
    key = "chat-key-of-owner"
    # The model writes the call all the same; no tool is there to run it.
    events = ask(service, key, "POST", "/v1/execute", {"message": "write a.txt", "stream": False}).json()["events"]
    assert [event for event in events if event["kind"] == "tool_result"] == []
    for wanted in ({"prompt": {"name": "x"}}, {"message": "Hi", "force_tool": "list_directory"}):
        assert ask(service, key, "POST", "/v1/execute", wanted).status_code == 403
    asked = {"messages": [{"role": "user", "content": "Hi"}], "mcp": True}
    refused = ask(service, key, "POST", "/v1/chat/completions", asked)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "key_purpose")
    mention = {"message": "Hi @notes:file:///etc/passwd", "stream": False}
    assert ask(service, key, "POST", "/v1/execute", mention).json()["text"] == "Hello there."
    assert ask(service, "all-of-the-owner", "POST", "/v1/execute", mention).json()["text"] == ""


@pytest.mark.parametrize("key", ["tools-key-of-owner", "key-of-the-barred"])
@pytest.mark.parametrize("approvals", ["grant", "refuse", None])
def test_without_the_right_a_call_that_needs_a_yes_is_refused_with_a_sentence(
    service: Served, key: str, approvals: str | None
) -> None:
    assert text_written(service, key, approvals=approvals) == f"The tool said: Error: {REFUSED}"
    call = {"arguments": {"path": "a", "content": "b"}, "approve": True}
    refused = ask(service, key, "POST", "/v1/tools/write_file:call", call)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "needs_approval")
    assert "the owner of the service can allow the tool" in refused.text


def test_a_tenant_without_the_right_is_not_asked_on_its_stream_either(service: Served) -> None:
    body = {"message": "write a.txt", "approvals": "ask"}
    streamed = ask(service, "key-of-the-barred", "POST", "/v1/execute", body).text
    assert '"kind":"approval"' not in streamed.replace(" ", "")
    assert "This key may not approve calls" in streamed
    decision = ask(service, "key-of-the-barred", "POST", "/v1/approvals/question_1", {"decision": "once"})
    assert decision.status_code == 403


def test_another_key_of_the_owner_approves_what_a_key_without_the_right_asks(service: Served) -> None:
    headers = {"Authorization": "Bearer tools-key-of-owner"}
    client = httpx2.Client(base_url=service.url, headers=headers, timeout=120)
    with client, asking(client, message="write a.txt", approvals="ask") as (_, events):
        question = next(event for event in events if event["kind"] == "approval")
        waiting = ask(service, "approve-key-of-owner", "GET", "/v1/questions").json()["questions"]
        assert [each["id"] for each in waiting] == [question["id"]]
        path = f"/v1/approvals/{question['id']}"
        assert ask(service, "tools-key-of-owner", "POST", path, {"decision": "once"}).status_code == 403
        assert ask(service, "approve-key-of-owner", "POST", path, {"decision": "once"}).status_code == 200
        assert text_of(events).startswith("The tool said: wrote ")


@pytest.mark.parametrize("key", ["key-of-the-trusted", "key-of-the-old-one", "all-of-the-owner"])
def test_with_the_right_a_caller_approves_its_own_calls(service: Served, key: str) -> None:
    assert text_written(service, key, approvals="grant").startswith("The tool said: wrote ")
