"""The whole assistant with a service in the NPU's place: the real command, a real MCP server, real HTTP."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.chat_service import ChatService, Reply, openai_call, openai_reply, openai_stream
from tests.support.demo_app import TIME_SERVER, Demo, events_of, make_demo, text_of
from tests.support.remote_models import KEY

PROVIDER = (
    '[provider]\nkind = "openai"\nbase_url = "{url}/v1"\nmodel = "model-x"\napi_key = "${{A_KEY}}"\nretries = 0\n'
)


def test_a_service_answers_with_tools_and_nothing_is_loaded_on_the_npu(tmp_path: Path) -> None:
    arguments = {"timezone": "Europe/London"}
    call = openai_stream(openai_call("get_current_time", json.dumps(arguments)), finish="tool_calls")
    with ChatService(Reply(pieces=call), openai_reply("It is noon.")) as service:
        demo = make_demo(tmp_path, [TIME_SERVER], extra=PROVIDER.format(url=service.url))
        # A model that does not exist: nobody looks for it.
        demo.config.write_text(demo.config.read_text("utf-8").replace('name = "demo"', 'name = "none"', 1), "utf-8")
        demo = Demo(demo.folder, {**demo.environment, "A_KEY": KEY})
        result = demo.run_here("--model", "other", "run", "--json", "--max-tokens", "77", "What time is it in London?")
    assert result.returncode == 0, result.stderr
    events = events_of(result.stdout)
    kinds = [event["kind"] for event in events if event["kind"] not in {"text", "status"}]
    assert kinds == ["tool_call", "usage", "tool_result", "usage", "end"]
    (called,) = [event for event in events if event["kind"] == "tool_call"]
    assert (called["server"], called["arguments"]) == ("time", arguments)
    (finished,) = [event for event in events if event["kind"] == "tool_result"]
    assert not finished["is_error"]
    assert text_of(events) == "It is noon."
    assert (
        f"questions, conversations, tool lists and tool results go to {service.host} (model 'other')" in result.stderr
    )
    assert KEY not in result.stdout + result.stderr
    first, second = service.bodies
    assert (first["model"], first["max_tokens"]) == ("other", 77)
    assert second["messages"][-1]["content"] == finished["text"]
