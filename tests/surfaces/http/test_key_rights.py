"""Keys for certain purposes, and tenants that may not approve their own calls."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from typing import Any

import httpx2
import pytest

from tests.support.demo_app import NO_VARIABLES, PythonServer
from tests.support.served import Served, scripted_model, served

Json = dict[str, Any]
NOTES: PythonServer = ("notes", ("-m", "tests.support.mcp_servers.notebook"), NO_VARIABLES)
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


def text_of(service: Served, key: str, **body: Any) -> str:
    answer = ask(service, key, "POST", "/v1/execute", {"message": "write a.txt", "stream": False, **body})
    return answer.raise_for_status().json()["text"]


@pytest.mark.parametrize(
    ("method", "path", "body", "right"),
    [
        ("POST", "/v1/execute", {"message": "Hi", "stream": False}, "chat"),
        ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}, "chat"),
        ("POST", "/api/chat", {"model": "parrot", "messages": [{"role": "user", "content": "Hi"}]}, "chat"),
        ("GET", "/v1/conversations", None, "chat"),
        ("GET", "/v1/tools", None, "tools"),
        ("POST", "/v1/tools/list_directory:call", {}, "tools"),
        ("GET", "/v1/servers", None, "tools"),
        ("GET", "/v1/prompts", None, "tools"),
        ("GET", "/v1/resources", None, "tools"),
        ("GET", "/v1/models", None, None),
        ("GET", "/v1/questions", None, None),
    ],
)
def test_a_key_may_do_what_it_is_for_and_nothing_else(
    service: Served, method: str, path: str, body: Json | None, right: str | None
) -> None:
    for key, allow in RIGHTS.items():
        response = ask(service, key, method, path, body)
        may = allow is None or right is None or right in allow
        assert response.status_code == (200 if may else 403), (key, response.text)
        assert ("this key is for" in response.text) != may


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
    assert text_of(service, key, approvals=approvals) == f"The tool said: Error: {REFUSED}"
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
    body = {"message": "write a.txt", "approvals": "ask"}
    client = httpx2.Client(base_url=service.url, headers=headers, timeout=120)
    with client, client.stream("POST", "/v1/execute", json=body) as response:
        events = (json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: "))
        question = next(event for event in events if event["kind"] == "approval")
        waiting = ask(service, "approve-key-of-owner", "GET", "/v1/questions").json()["questions"]
        assert [each["id"] for each in waiting] == [question["id"]]
        path = f"/v1/approvals/{question['id']}"
        assert ask(service, "tools-key-of-owner", "POST", path, {"decision": "once"}).status_code == 403
        assert ask(service, "approve-key-of-owner", "POST", path, {"decision": "once"}).status_code == 200
        text = "".join(event["text"] for event in events if event["kind"] == "text")
    assert text.startswith("The tool said: wrote ")


@pytest.mark.parametrize("key", ["key-of-the-trusted", "key-of-the-old-one", "all-of-the-owner"])
def test_with_the_right_a_caller_approves_its_own_calls(service: Served, key: str) -> None:
    assert text_of(service, key, approvals="grant").startswith("The tool said: wrote ")
