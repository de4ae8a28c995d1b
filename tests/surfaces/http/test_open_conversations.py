"""The open conversations: nobody loses one to another tenant's busy day."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.app.assistant import Assistant
from rkllm_mcp.app.tenants import open_tenants
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.messages import Conversation
from rkllm_mcp.surfaces.http.open_conversations import OpenConversations
from tests.support.demo_app import make_demo

pytestmark = pytest.mark.anyio
TENANTS = "".join(f'[[tenants]]\nname = "{name}"\napi_key = "key-of-{name}"\n' for name in ("ann", "bob", "eve"))


def opened(desk: OpenConversations, app: Assistant, count: int = 1) -> list[Conversation]:
    return [desk.put(app, desk.begin(app, None)) for _ in range(count)]


def held(desk: OpenConversations, app: Assistant, conversations: list[Conversation]) -> list[bool]:
    return [desk.holds(app, conversation.id) for conversation in conversations]


async def test_whoever_has_most_open_gives_one_up_and_never_one_that_is_being_answered(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, [], extra=TENANTS)
    with pytest.MonkeyPatch.context() as patch, anyio.fail_after(120):
        for name, value in demo.environment.items():
            patch.setenv(name, value)
        async with open_tenants(load_config(demo.config)) as house:
            await house.ready()
            ann, bob, eve = (house.tenant(name).app for name in ("ann", "bob", "eve"))
            alone = OpenConversations(kept=4)
            assert held(alone, ann, opened(alone, ann, 6)) == [False] * 2 + [True] * 4
            desk = OpenConversations(kept=4)
            bobs, anns = opened(desk, bob), opened(desk, ann, 3)
            async with aclosing(ann.reply(anns[0], "Hello")) as events:
                await anext(events)
                more = opened(desk, ann, 2)
                assert held(desk, ann, anns + more) == [True, False, False, True, True]
            # Who comes later gets a share as well, and not of those that have less.
            eves = opened(desk, eve, 2)
            assert (held(desk, bob, bobs), held(desk, eve, eves)) == ([True], [True, True])
            assert held(desk, ann, anns + more) == [False, False, False, False, True]
