"""Four hundred tools: all of them are listed for whoever manages them, and a question still has room for its answer."""

from __future__ import annotations

from pathlib import Path

import httpx2

from tests.support.demo_app import NO_VARIABLES, PythonServer
from tests.support.execute import answer_of, of_kind
from tests.support.served import scripted_model, served

COUNT = 400
SERVER = f"""
from tests.support.mcp_servers.tiny import TinyServer, tool
about = "Does the thing number {{}}, with care and with all that belongs to it, for whoever asks."
tools = [tool(f"tool_{{n}}", about.format(n), path="string", count="integer") for n in range({COUNT})]
TinyServer(tools, {{each["name"]: lambda *_: "done" for each in tools}}).run()
"""
MANY: PythonServer = ("many", ("-c", SERVER), NO_VARIABLES)
RULES = """
rule
  user use tool_321
  results 0
  call tool_321 {"path":"a","count":1}

rule
  results 1+
  say It is done.

rule
  say Hello there.
"""


def test_all_are_listed_and_switched_and_any_of_them_can_be_called(tmp_path: Path) -> None:
    with served(tmp_path / "home", scripted_model(tmp_path / "model", RULES), (MANY,)) as it:
        client = httpx2.Client(base_url=it.url, timeout=120)
        with client:
            answer = answer_of(client, "Please use tool_321", approvals="grant")
            assert answer["text"] == "It is done."
            assert [event["text"] for event in of_kind(answer["events"], "tool_result")] == ["done"]
            # What does not fit the window is found when it is asked for, not listed.
            (first, *_) = of_kind(answer["events"], "usage")
            listed = client.get("/v1/tools").json()
            assert first["prompt_tokens"] < 4096 < listed["tokens"]
            assert [tool["name"] for tool in listed["tools"]] == [f"tool_{number}" for number in range(COUNT)]
            assert all(tool["enabled"] and tool["tokens"] > 0 for tool in listed["tools"])
            client.post("/v1/tools/tool_7:disable").raise_for_status()
            after = client.get("/v1/tools").json()
            assert [tool["name"] for tool in after["tools"] if not tool["enabled"]] == ["tool_7"]
            assert listed["tokens"] - after["tokens"] == listed["tools"][7]["tokens"]
            (server,) = client.get("/v1/servers").json()["servers"]
            assert server["tools"] == COUNT
