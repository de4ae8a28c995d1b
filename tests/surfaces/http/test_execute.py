"""The assistant over HTTP: questions as event streams, conversations, tools, approvals, forms, resources, the board.

One service for all, on a socket, with real servers behind it and a model that plays a script.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.execute import Json, answer_of, asking, of_kind, text_of
from tests.support.feature_demo import NOTES, OLD_DESK
from tests.support.served import Served, scripted_model, served

RULES = """
rule
  user Who am I
  results 0
  call ask_owner {}

rule
  user [Ww]rite ([a-z.]+)
  results 0
  call write_file {"path":"FOLDER/$1","content":"x"}

rule
  user second opinion
  results 0
  call ask_model {"question":"Name a bird"}

rule
  user Name a bird
  say A parrot.

rule
  results 1+
  result ^(.*)$
  say The tool said: %1

rule
  user Review this ([a-z]+) code
  say The $1 code is fine.

rule
  user What is to be done
  prompt Buy milk
  say You should buy milk.

rule
  user again
  prompt Hello
  say As I said: hello.

rule
  user count
  say one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen

rule
  say Hello there.
"""
TENANTS = """
[security]
approve = "dangerous"

[service]
parallel = 1
api_keys = ["the-owners-key"]

[[tenants]]
name = "ann"
api_key = "the-key-of-ann"
servers = []
daily_tokens = 60
"""
OWNER = {"Authorization": "Bearer the-owners-key"}
ANN = {"Authorization": "Bearer the-key-of-ann"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("service")
    with served(
        folder, scripted_model(folder / "model", RULES.replace("FOLDER", str(folder))), (OLD_DESK, NOTES), extra=TENANTS
    ) as it:
        yield it


@pytest.fixture
def owner(service: Served) -> Generator[httpx2.Client, None, None]:
    client = httpx2.Client(base_url=service.url, headers=OWNER, timeout=120)
    with client:
        yield client


@pytest.fixture
def ann(service: Served) -> Generator[httpx2.Client, None, None]:
    client = httpx2.Client(base_url=service.url, headers=ANN, timeout=120)
    with client:
        yield client


def error_of(response: httpx2.Response, status: int) -> Json:
    assert response.status_code == status, response.text
    return response.json()["error"]


# --- execute ---------------------------------------------------------------------------------------------------------


def test_a_question_is_answered_event_by_event_and_names_its_conversation(owner: httpx2.Client) -> None:
    with asking(owner, message="Hi") as (conversation, stream):
        events = list(stream)
    assert text_of(events) == "Hello there."
    assert [event["kind"] for event in events[-2:]] == ["usage", "end"]
    assert events[-1] == {"kind": "end", "reason": "answered", "error": None}
    assert owner.get(f"/v1/conversations/{conversation}").json()["title"] == "Hi"


def test_a_conversation_goes_on_and_prefills_only_its_new_tokens(owner: httpx2.Client) -> None:
    first = answer_of(owner, "Hi")
    second = answer_of(owner, "Say it again", conversation=first["conversation"])
    assert second["text"] == "As I said: hello."
    (usage,) = of_kind(second["events"], "usage")
    assert usage["prefilled_tokens"] < usage["prompt_tokens"] / 2
    assert usage["cached_tokens"] > 0


def test_a_header_names_the_conversation_where_the_body_does_not(owner: httpx2.Client) -> None:
    first, other = (answer_of(owner, text)["conversation"] for text in ("Hi", "Hi again"))
    asked = {"message": "Say it again", "stream": False}
    by_header = owner.post("/v1/execute", json=asked, headers={"X-Conversation-Id": first})
    assert by_header.json()["conversation"] == by_header.headers["x-conversation-id"] == first
    both = owner.post("/v1/execute", json={**asked, "conversation": other}, headers={"X-Conversation-Id": first})
    assert both.json()["conversation"] == other
    unknown = error_of(owner.post("/v1/execute", json=asked, headers={"X-Conversation-Id": "nowhere"}), 404)
    assert "'nowhere'" in unknown["message"]


def test_a_conversation_that_this_board_does_not_know_goes_on_from_its_history(owner: httpx2.Client) -> None:
    assert error_of(owner.post("/v1/execute", json={"message": "x", "conversation": "nowhere"}), 404)["param"]
    told = [{"role": "user", "text": "Hi"}, {"role": "assistant", "text": "Hello there."}]
    answer = answer_of(owner, "Say it again", conversation="nowhere", history=told)
    assert answer["text"] == "As I said: hello."
    assert answer["conversation"] != "nowhere"


def test_a_call_that_needs_a_yes_waits_for_it_on_the_stream(owner: httpx2.Client) -> None:
    for decision, is_error in (("deny", True), ("once", False)):
        with asking(owner, message="Please write one.txt") as (_, stream):
            events: list[Json] = []
            for event in stream:
                events.append(event)
                if event["kind"] == "approval":
                    waiting = owner.get("/v1/questions").json()["questions"]
                    (same,) = [question for question in waiting if question["id"] == event["id"]]
                    assert same["seconds_left"] <= event["seconds_left"]
                    assert same | {"seconds_left": event["seconds_left"]} == event
                    decided = owner.post(f"/v1/approvals/{event['id']}", json={"decision": decision})
                    assert decided.json() == {"id": event["id"], "decision": decision}
        (result,) = of_kind(events, "tool_result")
        assert result["is_error"] is is_error
    assert error_of(owner.post("/v1/approvals/question_0", json={"decision": "once"}), 404)
    assert error_of(owner.post("/v1/approvals/question_0", json={"decision": "maybe"}), 422)["param"] == "decision"


def test_of_many_decisions_at_once_one_counts_and_a_repeated_or_foreign_one_is_refused(
    owner: httpx2.Client, ann: httpx2.Client
) -> None:
    def decide(path: str, decision: str) -> httpx2.Response:
        return owner.post(path, json={"decision": decision})

    path, counted = "", ""
    with asking(owner, message="Please write two.txt") as (_, stream):
        events: list[Json] = []
        for event in stream:
            events.append(event)
            if event["kind"] == "approval":
                path = f"/v1/approvals/{event['id']}"
                assert ann.post(path, json={"decision": "once"}).status_code == 404
                decisions = ["deny", "once"] * 6
                with ThreadPoolExecutor(len(decisions)) as threads:
                    replies = list(threads.map(decide, [path] * len(decisions), decisions))
                assert sorted(reply.status_code for reply in replies) == [200] + [404] * 11
                (counted,) = [reply.json()["decision"] for reply in replies if reply.status_code == 200]
    (result,) = of_kind(events, "tool_result")
    assert result["is_error"] is (counted == "deny")
    assert decide(path, "once").status_code == 404


def test_leaving_while_a_question_waits_withdraws_it_and_frees_the_place(owner: httpx2.Client) -> None:
    with asking(owner, message="Please write three.txt") as (_, stream):
        assert next(event for event in stream if event["kind"] == "approval")
    # One answer at a time: this one begins when the other is over.
    assert answer_of(owner, "Hi")["text"] == "Hello there."
    assert owner.get("/v1/questions").json()["questions"] == []


def test_an_answer_that_comes_whole_asks_no_questions(owner: httpx2.Client) -> None:
    refused = answer_of(owner, "Please write one.txt")
    assert [event["is_error"] for event in refused["events"] if event["kind"] == "tool_result"] == [True]
    granted = answer_of(owner, "Please write one.txt", approvals="grant")
    assert [event["is_error"] for event in granted["events"] if event["kind"] == "tool_result"] == [False]


def test_a_servers_form_is_filled_and_what_does_not_fit_names_its_field(owner: httpx2.Client) -> None:
    with asking(owner, message="Who am I?") as (_, stream):
        for event in stream:
            if event["kind"] == "approval":
                owner.post(f"/v1/approvals/{event['id']}", json={"decision": "once"})
            if event["kind"] == "elicitation":
                path = f"/v1/elicitations/{event['id']}"
                wrong = owner.post(path, json={"action": "accept", "content": {"name": "Ann", "size": "huge"}})
                assert error_of(wrong, 422)["param"] == "content.size"
                missing = owner.post(path, json={"action": "accept", "content": {"size": "s"}})
                assert error_of(missing, 422)["param"] == "content.name"
                done = owner.post(path, json={"action": "accept", "content": {"name": "Ann", "size": "Small"}})
                assert done.json() == {"id": event["id"], "action": "accept"}
            if event["kind"] == "tool_result":
                assert "Ann" in event["text"]
                assert not event["is_error"]
    assert error_of(owner.post("/v1/elicitations/question_0", json={"action": "cancel"}), 404)


def test_a_prepared_question_and_a_named_resource_are_answered(owner: httpx2.Client) -> None:
    prompt = {"name": "desk:code_review", "arguments": {"language": "rust"}}
    with asking(owner, prompt=prompt) as (_, stream):
        assert text_of(stream) == "The rust code is fine."
    answer = answer_of(owner, "What is to be done? @desk:memo://monday")
    assert answer["text"] == "You should buy milk."
    assert {"kind": "resource", "uri": "memo://monday"} in answer["events"]


def test_an_answer_is_stopped_from_elsewhere_and_the_next_question_works(owner: httpx2.Client) -> None:
    with asking(owner, message="count") as (conversation, stream):
        again = owner.post("/v1/execute", json={"message": "x", "conversation": conversation})
        if again.status_code != 200:
            assert error_of(again, 409)["code"] == "answer_under_way"
        stopped = owner.post(f"/v1/conversations/{conversation}/cancel").json()["cancelled"]
        events = list(stream)
    assert events[-1]["reason"] == ("cancelled" if stopped else "answered")
    assert answer_of(owner, "Hi", conversation=conversation)["events"][-1]["reason"] == "answered"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, None),
        ({"message": ""}, "message"),
        ({"message": 1}, "message"),
        ({"message": "a", "prompt": {"name": "b"}}, None),
        ({"message": "a", "allowed_tools": [1]}, "allowed_tools[0]"),
        ({"message": "a", "history": [{"role": "tool", "text": ""}]}, "history[0].role"),
        ({"message": "a", "surprise": 1}, "surprise"),
    ],
)
def test_a_question_that_is_not_one_is_refused_by_its_field(
    owner: httpx2.Client, body: Json, param: str | None
) -> None:
    assert error_of(owner.post("/v1/execute", json=body), 422)["param"] == param


def test_a_question_that_does_not_fit_says_by_how_much(owner: httpx2.Client) -> None:
    error = error_of(owner.post("/v1/execute", json={"message": "word " * 9000, "stream": False}), 400)
    assert error["code"] == "context_length_exceeded"
    assert "more than the" in error["message"]
    with asking(owner, message="word " * 9000) as (_, stream):
        *_, last = stream
    assert last["reason"] == "failed"
    assert "more than the" in last["error"]


def test_a_tool_that_is_not_allowed_is_not_called(owner: httpx2.Client) -> None:
    answer = answer_of(owner, "Please write one.txt", allowed_tools=[], approvals="grant")
    assert not of_kind(answer["events"], "tool_result")
    forced = answer_of(owner, "x", force_tool="delete_file", allowed_tools=[])
    assert forced["events"][-1]["reason"] == "failed"


# --- conversations ---------------------------------------------------------------------------------------------------


def test_conversations_are_listed_searched_renamed_exported_and_deleted(owner: httpx2.Client) -> None:
    made = answer_of(owner, "Hi from the pelican")["conversation"]
    found = owner.get("/v1/conversations", params={"search": "pelican"}).json()
    assert [each["id"] for each in found["conversations"]] == [made]
    assert found["count"] == 1
    renamed = owner.patch(f"/v1/conversations/{made}", json={"title": "Birds"}).json()
    assert renamed["title"] == "Birds"
    assert [(turn["role"], turn["text"]) for turn in renamed["messages"]] == [
        ("user", "Hi from the pelican"),
        ("assistant", "Hello there."),
    ]
    exported = owner.get(f"/v1/conversations/{made}/export")
    assert exported.headers["content-type"] == "text/markdown; charset=utf-8"
    assert "Hi from the pelican" in exported.text
    assert json.loads(owner.get(f"/v1/conversations/{made}/export", params={"format": "json"}).text)
    assert owner.delete(f"/v1/conversations/{made}").status_code == 204
    for response in (owner.get(f"/v1/conversations/{made}"), owner.delete(f"/v1/conversations/{made}")):
        assert error_of(response, 404)


def test_a_tenant_sees_no_conversations_tools_or_questions_of_another(owner: httpx2.Client, ann: httpx2.Client) -> None:
    made = answer_of(owner, "Hi from the owner")["conversation"]
    assert error_of(ann.get(f"/v1/conversations/{made}"), 404)
    assert error_of(ann.post("/v1/execute", json={"message": "x", "conversation": made}), 404)
    assert error_of(ann.delete(f"/v1/conversations/{made}"), 404)
    assert not ann.get("/v1/conversations", params={"search": "owner"}).json()["conversations"]
    assert ann.get("/v1/tools").json()["tools"] == []
    assert ann.get("/v1/servers").json()["servers"] == []
    assert ann.get("/v1/tools/history").json()["calls"] == []
    assert error_of(ann.post("/v1/tools/delete_file:call", json={}), 404)
    assert ann.get("/v1/me").json()["tenant"] == "ann"
    assert owner.get("/v1/me").json()["tenant"] == ""


def test_the_tokens_of_a_day_are_counted_and_then_refused(ann: httpx2.Client) -> None:
    answers = (ann.post("/v1/execute", json={"message": "count", "stream": False}) for _ in range(40))
    response = next(answer for answer in answers if answer.status_code != 200)
    error = error_of(response, 429)
    assert error["code"] == "daily_tokens_exceeded"
    assert 0 < int(response.headers["retry-after"]) <= 25 * 3600


# --- tools and servers -----------------------------------------------------------------------------------------------


def test_tools_are_listed_with_their_cost_and_switched(owner: httpx2.Client) -> None:
    listed = owner.get("/v1/tools").json()
    tools = {tool["name"]: tool for tool in listed["tools"]}
    assert tools["delete_file"]["server"] == "notes"
    assert tools["delete_file"]["tokens"] > 0
    assert owner.post("/v1/tools/delete_file:disable").json() == {"name": "delete_file", "enabled": False}
    after = owner.get("/v1/tools").json()
    assert listed["tokens"] - after["tokens"] == tools["delete_file"]["tokens"]
    assert not {tool["name"]: tool for tool in after["tools"]}["delete_file"]["enabled"]
    assert owner.post("/v1/tools/mcp__notes__delete_file:enable").json()["enabled"]
    assert "delete_file" in error_of(owner.post("/v1/tools/delete_fil:enable"), 404)["message"]


def test_a_server_is_switched_as_a_whole(owner: httpx2.Client) -> None:
    assert not owner.post("/v1/servers/notes:disable").json()["enabled"]
    servers = {server["name"]: server for server in owner.get("/v1/servers").json()["servers"]}
    assert not servers["notes"]["enabled"]
    assert servers["desk"]["enabled"]
    assert servers["desk"]["state"] == "ready"
    assert servers["desk"]["transport"] == "stdio"
    assert owner.post("/v1/servers/notes:enable").json()["enabled"]
    assert error_of(owner.post("/v1/servers/nobody:enable"), 404)


def test_a_tool_is_called_by_hand_and_recorded(owner: httpx2.Client, tmp_path: Path) -> None:
    path, arguments = "/v1/tools/write_file:call", {"path": str(tmp_path / "a"), "content": "x"}
    assert error_of(owner.post(path, json={"arguments": arguments}), 403)["code"] == "needs_approval"
    called = owner.post(path, json={"arguments": arguments, "approve": True}).json()
    assert not called["is_error"]
    latest, before = owner.get("/v1/tools/history", params={"limit": 2}).json()["calls"]
    assert (latest["name"], latest["server"], latest["is_error"]) == ("write_file", "notes", False)
    assert before["ruling"] == "refused"
    failed = owner.get("/v1/tools/history", params={"errors": "true", "server": "notes"}).json()["calls"]
    assert all(call["is_error"] for call in failed)
    assert error_of(owner.get("/v1/tools/history", params={"limit": "many"}), 422)["param"] == "limit"


# --- what else servers offer, and the board --------------------------------------------------------------------------


def test_resources_and_prompts_are_listed_and_read(owner: httpx2.Client) -> None:
    found = owner.get("/v1/resources").json()
    assert "memo://monday" in [resource["uri"] for resource in found["resources"]]
    assert [template["server"] for template in found["templates"]] == ["desk"]
    read = owner.get("/v1/resources/read", params={"server": "desk", "uri": "memo://monday"}).json()
    assert read["contents"][0]["text"] == "Buy milk."
    counted = owner.post("/v1/tokens", json={"texts": ["Buy milk."]})
    assert read["tokens"] == counted.json()["tokens"] > 1
    assert error_of(owner.get("/v1/resources/read", params={"server": "desk", "uri": "memo://none"}), 502)
    for unknown in ({"uri": "memos://none"}, {"server": "nobody", "uri": "memo://monday"}):
        assert "there is no resource" in error_of(owner.get("/v1/resources/read", params=unknown), 404)["message"]
    prompts = {prompt["name"]: prompt for prompt in owner.get("/v1/prompts").json()["prompts"]}
    assert prompts["code_review"]["arguments"][0] == {
        "name": "language",
        "description": "The language.",
        "required": True,
    }


def test_the_board_tells_how_it_is(owner: httpx2.Client) -> None:
    before = owner.get("/v1/board").json()
    answer_of(owner, "Hi")
    after = owner.get("/v1/board").json()
    assert after["model"] == "parrot"
    assert after["emulated"]
    assert after["generated_tokens"] > before["generated_tokens"]
    assert after["queue"] == {"waiting": 0, "running": 0}
    assert after["memory"]["total_mb"] > 0


def test_without_a_key_nothing_is_revealed(service: Served) -> None:
    for path in ("/v1/board", "/v1/me", "/v1/conversations", "/v1/tools", "/v1/questions", "/v1/tools/history"):
        assert error_of(httpx2.get(f"{service.url}{path}", timeout=120), 401)


def test_metrics_count_the_work_and_are_the_owners_alone(owner: httpx2.Client, ann: httpx2.Client) -> None:
    answer_of(owner, "Please write one.txt", approvals="grant")
    families = {family.name: family for family in text_string_to_metric_families(owner.get("/metrics").text)}

    def value(family: str, suffix: str = "", **labels: str) -> float:
        name = family + suffix
        return sum(
            sample.value
            for sample in families[family].samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    assert value("rkllm_mcp_generated_tokens", "_total") > 0
    assert value("rkllm_mcp_reused_tokens", "_total") > 0
    assert value("rkllm_mcp_answers", "_total", reason="answered") > 0
    assert value("rkllm_mcp_tool_calls", "_total", tool="write_file", outcome="ok") > 0
    assert value("rkllm_mcp_tool_seconds", "_count", tool="write_file") > 0
    assert value("rkllm_mcp_http_requests", "_total", method="POST", route="/v1/execute", status="200") > 0
    assert value("rkllm_mcp_worker_restarts", "_total") == 0
    assert value("rkllm_mcp_info", model="parrot", emulated="true") == 1
    assert value("rkllm_mcp_ready") == 1
    owner.request("PROPFIND", "/v1/me")
    open_metrics = owner.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert open_metrics.text.endswith("# EOF\n")
    assert 'method="_OTHER"' in open_metrics.text
    assert "PROPFIND" not in open_metrics.text
    assert error_of(ann.get("/metrics"), 403)


def test_a_server_samples_within_a_tool_call_while_one_answer_has_the_only_slot(owner: httpx2.Client) -> None:
    answer = owner.post(
        "/v1/execute", json={"message": "Get a second opinion", "approvals": "grant", "stream": False}
    ).json()
    assert answer["text"] == "The tool said: parrot says A parrot. (endTurn)"
    assert answer["events"][-1] == {"kind": "end", "reason": "answered", "error": None}
    assert owner.get("/v1/board").json()["queue"] == {"waiting": 0, "running": 0}
