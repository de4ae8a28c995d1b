"""Schedules over HTTP: made, shown, run in the one queue, delivered, exported, and what a run may do."""

from __future__ import annotations

import hmac
import json
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from rkllm_mcp.schedules.webhooks import SIGNATURE, TIMESTAMP
from tests.support.feature_demo import NOTES
from tests.support.served import Served, scripted_model, served

RULES = """
rule
  user [Ww]rite it
  results 0
  call write_file {"path":"FOLDER/written.txt","content":"x"}

rule
  results 1+
  result ^(.*)$
  say The tool said: %1

rule
  user anything new
  say NOTHING

rule
  user weather
  prompt asked by a schedule
  say Sunny, 20 degrees.

rule
  say Hello there.
"""
KEYS = """[service]
api_keys = ["key-of-the-owner-0001"]
timezone = "Asia/Tokyo"
[[service.keys]]
key = "key-of-a-program-0001"
allow = ["chat"]
[[tenants]]
name = "garden"
api_key = "key-of-the-garden-001"
"""
OWNER, PROGRAM, GARDEN = "key-of-the-owner-0001", "key-of-a-program-0001", "key-of-the-garden-001"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("schedules")
    model = scripted_model(folder / "model", RULES.replace("FOLDER", str(folder)))
    with served(folder / "home", model, (NOTES,), extra=KEYS, is_for_the_session=True) as it:
        yield it


def send(
    service: Served, method: str, path: str, body: Any = None, key: str = OWNER, language: str = "en"
) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {key}", "Accept-Language": language}
    return httpx2.request(method, f"{service.url}{path}", json=body, headers=headers, timeout=60)


def make(service: Served, key: str = OWNER, **body: Any) -> dict[str, Any]:
    answer = send(service, "POST", "/v1/schedules", {"prompt": "the weather", "rule": "weekdays 07:30", **body}, key)
    assert answer.status_code == 201, answer.text
    return answer.json()


def run_now(service: Served, schedule: str, key: str = OWNER, language: str = "en") -> dict[str, Any]:
    """Run a schedule and return its notice."""
    before = send(service, "GET", "/v1/schedules/runs", key=key).json()["now"]
    assert send(service, "POST", f"/v1/schedules/{schedule}/run", key=key).status_code == 202
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        path = f"/v1/schedules/runs?schedule={schedule}&after={before}"
        runs = send(service, "GET", path, key=key, language=language).json()["runs"]
        if runs and (runs[0]["delivery"] or "webhook" not in runs[0]["title"]):
            return runs[0]
    raise TimeoutError(schedule)


@dataclass
class Receiver:
    """Another program that takes POSTs: what came, and with which status it answers."""

    url: str = ""
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list[tuple[dict[str, str], bytes]])
    statuses: list[int] = field(default_factory=list[int])


@contextmanager
def receiving() -> Generator[Receiver, None, None]:
    it = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            it.requests.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(it.statuses.pop(0) if it.statuses else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    it.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield it
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_sentence_is_read_before_anything_is_made(service: Served) -> None:
    body = {"sentence": "every weekday at 7:30 tell me the weather", "zone": "Europe/Berlin"}
    read = send(service, "POST", "/v1/schedules:read", body).json()
    assert {name: read[name] for name in ("is_schedule", "prompt", "rule", "reminder", "zone", "words")} == {
        "is_schedule": True,
        "prompt": "tell me the weather",
        "rule": "weekdays 07:30",
        "reminder": False,
        "zone": "Europe/Berlin",
        "words": "every weekday (Monday to Friday) at 7:30",
    }
    assert [time.rpartition(" ")[2] for time in read["times"]] == ["7:30"] * 3
    japanese = send(service, "POST", "/v1/schedules:read", {"sentence": "毎朝7時半に東京の天気"}, language="ja").json()
    assert (japanese["prompt"], japanese["words"], japanese["zone"]) == ("東京の天気", "毎日7:30", "Asia/Tokyo")
    assert not send(service, "POST", "/v1/schedules:read", {"sentence": "What is a cron job?"}).json()["is_schedule"]
    rule = send(service, "POST", "/v1/schedules:read", {"rule": "monthly 31 09:00"}).json()
    assert rule["words"] == "on the last day of every month at 9:00"
    refused = send(service, "POST", "/v1/schedules:read", {"rule": "0 7 * * 1-5"})
    assert refused.status_code == 422
    assert "is no rule of time; write one such as" in refused.json()["error"]["message"]


def test_a_schedule_runs_in_its_own_conversation_and_tells_what_came_of_it(service: Served) -> None:
    schedule = make(service)
    assert (schedule["zone"], schedule["state"], schedule["conversation"]) == ("Asia/Tokyo", "active", None)
    for _ in range(2):
        notice = run_now(service, schedule["id"])
        assert (notice["outcome"], notice["title"], notice["text"]) == ("answered", "the weather", "Sunny, 20 degrees.")
    listed = send(service, "GET", "/v1/schedules").json()["schedules"]
    (own,) = [each for each in listed if each["id"] == schedule["id"]]
    stored = send(service, "GET", f"/v1/conversations/{own['conversation']}").json()
    assert stored["title"] == "the weather"
    assert [(turn["role"], turn["text"]) for turn in stored["messages"]] == [
        *[("user", "the weather"), ("assistant", "Sunny, 20 degrees.")] * 2
    ]
    # The second run has read its question alone, not the first one's answer.
    prompts = [len(run["prompt"]) for run in service.runs()]
    assert abs(prompts[-1] - prompts[-2]) < 5
    # A person goes on in it, and the model knows what was said.
    body = {"message": "Thanks", "conversation": own["conversation"], "stream": False}
    assert send(service, "POST", "/v1/execute", body).json()["text"] == "Hello there."
    assert len(service.runs()[-1]["prompt"]) > prompts[-1] + 20
    assert run_now(service, schedule["id"])["outcome"] == "answered"
    assert len(send(service, "GET", f"/v1/conversations/{own['conversation']}").json()["messages"]) == 8


def test_only_tools_that_read_or_are_named_for_it_run_and_the_rest_needs_a_yes(service: Served, tmp_path: Path) -> None:
    schedule = make(service, prompt="Write it", rule="daily 07:30")
    notice = run_now(service, schedule["id"])
    assert notice["outcome"] == "needs_yes"
    assert notice["text"].startswith("It needs your yes: the model wanted to use write_file.")
    written = Path(service.log).parent.parent / "written.txt"
    assert not written.exists()
    # What was allowed for good before, when a person was there, does not count for a run.
    changed = send(service, "PATCH", f"/v1/schedules/{schedule['id']}", {"tools": ["write_file"]})
    assert changed.json()["tools"] == ["write_file"]
    assert run_now(service, schedule["id"], language="ja")["outcome"] == "answered"
    assert written.exists()


def test_nothing_is_shown_of_a_quiet_run_with_nothing_to_report(service: Served) -> None:
    with receiving() as receiver:
        schedule = make(service, prompt="anything new?", quiet=True, webhook=receiver.url)
        assert run_now(service, schedule["id"])["outcome"] == "quiet"
        assert receiver.requests == []


def is_signed(headers: Mapping[str, str], body: bytes, secret: str) -> bool:
    signed = f"{headers[TIMESTAMP]}.".encode() + body
    return headers[SIGNATURE] == f"sha256={hmac.new(secret.encode(), signed, 'sha256').hexdigest()}"


def test_a_webhook_gets_the_result_signed_and_ntfy_its_headers(service: Served) -> None:
    with receiving() as receiver:
        schedule = make(service, prompt="the weather for my webhook", webhook=receiver.url)
        receiver.statuses = [204]
        assert run_now(service, schedule["id"])["delivery"] == "204"
        headers, body = receiver.requests.pop()
        assert is_signed(headers, body, schedule["secret"])
        sent = json.loads(body)
        assert (sent["schedule"], sent["outcome"], sent["text"]) == (schedule["id"], "answered", "Sunny, 20 degrees.")
        assert sent["due"].endswith("+09:00")
        sends: dict[str, Any] = {"webhook": receiver.url, "webhook_form": "text"}
        ntfy = make(service, prompt="洗濯物 webhook", reminder=True, **sends)
        assert run_now(service, ntfy["id"])["outcome"] == "reminded"
        headers, body = receiver.requests.pop()
        assert (headers["Title"].startswith("=?utf-8?"), body.decode()) == (True, "洗濯物 webhook")


def test_the_address_of_the_results_is_changed_and_another_one_gets_another_secret(service: Served) -> None:
    schedule = make(service, prompt="the laundry webhook", reminder=True)
    path = f"/v1/schedules/{schedule['id']}"
    with receiving() as first, receiving() as second:
        one = send(service, "PATCH", path, {"webhook": first.url}).json()
        assert run_now(service, schedule["id"])["delivery"] == "200"
        headers, body = first.requests.pop()
        assert is_signed(headers, body, one["secret"])
        other = send(service, "PATCH", path, {"webhook": second.url, "webhook_form": "text"}).json()
        assert other["secret"] not in ("", one["secret"])
        assert send(service, "PATCH", path, {"prompt": "washing by webhook"}).json()["secret"] == other["secret"]
        assert run_now(service, schedule["id"])["delivery"] == "200"
        headers, body = second.requests.pop()
        assert is_signed(headers, body, other["secret"])
        assert (body, first.requests) == (b"washing by webhook", [])
        ended = send(service, "PATCH", path, {"webhook": "", "prompt": "the washing"}).json()
        assert (ended["webhook"], ended["secret"], run_now(service, schedule["id"])["delivery"]) == ("", "", "")
        assert second.requests == []
    refused = send(service, "PATCH", path, {"webhook": "ftp://example.org/"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (422, "webhook")


def test_a_tenant_sees_and_runs_its_own_alone_and_its_webhook_leads_to_no_private_address(service: Served) -> None:
    mine, theirs = make(service), make(service, GARDEN, prompt="theirs webhook", webhook="http://127.0.0.1:9/")
    assert [each["id"] for each in send(service, "GET", "/v1/schedules", key=GARDEN).json()["schedules"]] == [
        theirs["id"]
    ]
    for method, path in (("PATCH", ""), ("DELETE", ""), ("POST", "/run")):
        refused = send(service, method, f"/v1/schedules/{mine['id']}{path}", {} if method == "PATCH" else None, GARDEN)
        assert refused.status_code == 404, refused.text
    notice = run_now(service, theirs["id"], GARDEN)
    assert "is on this machine" in notice["delivery"]
    assert "the public network only" in notice["delivery"]


def test_a_key_for_questions_starts_a_run_and_makes_none(service: Served) -> None:
    schedule = make(service, webhook="http://127.0.0.1:9/")
    body = {"prompt": "x", "rule": "daily 07:30"}
    assert send(service, "POST", "/v1/schedules", body, PROGRAM).status_code == 403
    listed = send(service, "GET", "/v1/schedules", key=PROGRAM).json()["schedules"]
    assert {(each["webhook"], each["secret"]) for each in listed} == {("", "")}
    send(service, "PATCH", f"/v1/schedules/{schedule['id']}", {"state": "paused"})
    assert send(service, "POST", f"/v1/schedules/{schedule['id']}/run", key=PROGRAM).status_code == 202


def test_a_schedule_is_changed_paused_resumed_and_removed(service: Served) -> None:
    schedule = make(service)
    path = f"/v1/schedules/{schedule['id']}"
    changed = send(service, "PATCH", path, {"rule": "daily 8:15", "prompt": "the news"})
    assert changed.status_code == 422
    changed = send(
        service, "PATCH", path, {"rule": "daily 08:15", "zone": "Europe/Berlin", "prompt": "the news"}
    ).json()
    assert (changed["words"], changed["zone"], changed["prompt"]) == ("every day at 8:15", "Europe/Berlin", "the news")
    paused = send(service, "PATCH", path, {"state": "paused"}).json()
    assert (paused["state"], paused["next_at"], paused["times"]) == ("paused", None, [])
    assert send(service, "PATCH", path, {"state": "active"}).json()["next_at"] == changed["next_at"]
    assert send(service, "DELETE", path).status_code == 204
    assert send(service, "DELETE", path).status_code == 404


def test_an_export_has_the_schedules_without_secrets_and_deleting_everything_deletes_them(service: Served) -> None:
    make(service, GARDEN, prompt="water the plants", reminder=True, webhook="https://example.org/hook")
    data = send(service, "GET", "/v1/me/data", key=GARDEN).json()
    assert data["schedules"][-1] | {"zone": ""} == {
        "prompt": "water the plants",
        "rule": "weekdays 07:30",
        "zone": "",
        "language": "en",
        "reminder": True,
        "quiet": False,
        "tools": [],
        "webhook": "https://example.org/hook",
        "webhook_form": "json",
        "state": "active",
    }
    assert send(service, "DELETE", "/v1/me/data", key=GARDEN).status_code == 200
    assert send(service, "GET", "/v1/schedules", key=GARDEN).json()["schedules"] == []
    assert send(service, "GET", "/v1/schedules").json()["schedules"] != []
