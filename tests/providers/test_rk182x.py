"""The preset ``rk182x``: a service that behaves as RKClawServer is documented to do."""

from __future__ import annotations

import socket
import threading
from typing import Any

import anyio
import pytest

from rkllm_mcp.config.sections import ModelSection, ProviderSection
from rkllm_mcp.errors import ServiceError
from rkllm_mcp.events import Status, Text, Thinking
from rkllm_mcp.generation import ModelOptions
from rkllm_mcp.providers.remote_settings import PRESETS, service_of
from rkllm_mcp.sampling import SamplingOverrides
from tests.support.chat_service import ChatService, Reply, openai_reply, openai_stream, refusal
from tests.support.remote_models import asked, question, round_of, without_usage

pytestmark = pytest.mark.anyio
RK182X = PRESETS["rk182x"]
WAITS = "is starting or busy; waiting for it]"


async def test_no_sampling_is_sent_thinking_is_switched_and_heartbeats_are_nothing() -> None:
    heartbeat: dict[str, Any] = {"role": "assistant", "content": ""}
    stream = openai_stream(
        heartbeat, {}, {"reasoning_content": "Hm."}, {"content": ""}, {"content": "Sunny."}, {"content": None}
    )
    options = ModelOptions(thinking=True, sampling=SamplingOverrides(temperature=0.3, top_p=0.5))
    with ChatService(Reply(pieces=stream), openai_reply("x")) as service, anyio.fail_after(60):
        settings: dict[str, Any] = {"sampling": SamplingOverrides(temperature=0.9), "thinking": False}
        async with asked(service, preset=RK182X, **settings) as model:
            events = await round_of(model, question(), (), options)
            await round_of(model, question())
    assert without_usage(events) == [Thinking("Hm."), Text("Sunny.")]
    assert {"temperature", "top_p"} & {*service.bodies[0], *service.bodies[1]} == set()
    assert [body["chat_template_kwargs"] for body in service.bodies] == [
        {"enable_thinking": True},
        {"enable_thinking": False},
    ]


async def test_a_service_that_reloads_or_is_full_is_waited_for() -> None:
    reloading = refusal(503, "the model is being reloaded", code="service_reloading")
    with ChatService(reloading, refusal(429, "the queue is full"), openai_reply("Hello")) as service:
        with anyio.fail_after(60):
            async with asked(service, preset=RK182X) as model:
                events = await round_of(model, question())
    assert without_usage(events) == [Status(f"[Model: {service.host} {WAITS}"), Text("Hello")]
    assert len(service.requests) == 3


async def test_a_service_that_does_not_listen_yet_is_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    started: list[ChatService] = []

    def start() -> None:
        started.append(ChatService(openai_reply("Hello"), port=port).__enter__())

    later = threading.Timer(1.0, start)
    with ChatService() as unused, anyio.fail_after(60):
        async with asked(unused, preset=RK182X, base_url=f"http://127.0.0.1:{port}/v1") as model:
            later.start()
            events = await round_of(model, question())
    later.join()
    started[0].__exit__(None, None, None)
    assert [type(event) for event in without_usage(events)] == [Status, Text]


async def test_any_other_service_is_not_waited_for_and_other_errors_end_at_once() -> None:
    for preset, reply in ((PRESETS["rk182x"], refusal(400, "no")), (None, refusal(503, "busy"))):
        with ChatService(reply) as service, anyio.fail_after(60):
            changes: dict[str, Any] = {} if preset is None else {"preset": preset}
            async with asked(service, **changes) as model:
                with pytest.raises(ServiceError):
                    await round_of(model, question())
        assert len(service.requests) == 1


def test_a_configuration_names_the_preset_with_an_address() -> None:
    section = ProviderSection(kind="openai", base_url="http://card:8080/v1", model="m", preset="rk182x")
    settings = service_of("openai", section, ModelSection(thinking="off"))
    assert (settings.preset, settings.thinking) == (RK182X, False)
    for fields in ({"kind": "anthropic", "base_url": "http://card"}, {"kind": "openai", "api_key": "k"}, {}):
        with pytest.raises(ValueError, match="base_url"):
            ProviderSection.model_validate({"model": "m", "preset": "rk182x", **fields})
