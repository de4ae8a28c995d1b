"""The open conversations: nobody loses one to another tenant's busy day."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest

from rkllm_mcp.app.assistant import App
from rkllm_mcp.errors import StoreAwayError
from rkllm_mcp.messages import Conversation, Message
from rkllm_mcp.store.database import SQLiteDatabase
from rkllm_mcp.surfaces.http.state import CHARACTERS_KEPT, OpenConversations
from tests.support.demo_app import make_demo
from tests.support.http_app import in_house

pytestmark = pytest.mark.anyio
TENANTS = "".join(f'[[tenants]]\nname = "{name}"\napi_key = "key-of-{name}"\n' for name in ("ann", "bob", "eve"))


def opened(conversations_open: OpenConversations, app: App, count: int = 1) -> list[Conversation]:
    return [conversations_open.put(app, app.new_conversation()) for _ in range(count)]


def held(conversations_open: OpenConversations, app: App, conversations: list[Conversation]) -> list[bool]:
    return [conversations_open.get_open(app, conversation.id) is not None for conversation in conversations]


async def test_the_owner_of_most_conversations_gives_one_up_and_never_one_being_answered(tmp_path: Path) -> None:
    # At the speed of a board, so that the answer is under way for a while.
    demo = make_demo(tmp_path, [], extra=TENANTS, speed="")
    async with in_house(demo) as (tenants, _):
        ann, bob, eve = (tenants.tenant(name).app for name in ("ann", "bob", "eve"))
        alone = OpenConversations(most_open=4)
        assert held(alone, ann, opened(alone, ann, 6)) == [False] * 2 + [True] * 4
        conversations_open = OpenConversations(most_open=4)
        bobs, anns = opened(conversations_open, bob), opened(conversations_open, ann, 3)
        async with aclosing(ann.reply(anns[0], "Hello")) as events:
            await anext(events)
            more = opened(conversations_open, ann, 2)
            assert held(conversations_open, ann, anns + more) == [True, False, False, True, True]
        # Texts have a limit too, and the tenant with most of them loses the conversations used longest ago.
        long = OpenConversations()
        few, (bobs_own,) = opened(long, ann, 3), opened(long, bob)
        few[1].add(Message("user", "x" * (CHARACTERS_KEPT - 10_000)))
        (latest,) = opened(long, ann)
        assert len(long) == 5
        latest.add(Message("user", "y" * 20_000))
        long.put(ann, latest)
        assert held(long, ann, [*few, latest]) == [False, False, True, True]
        assert held(long, bob, [bobs_own]) == [True]
        # Who comes later gets a share as well, and not of those that have less.
        eves = opened(conversations_open, eve, 2)
        assert (held(conversations_open, bob, bobs), held(conversations_open, eve, eves)) == ([True], [True, True])
        assert held(conversations_open, ann, anns + more) == [False, False, False, False, True]


async def test_a_conversation_that_another_board_may_still_have_to_save_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with in_house(make_demo(tmp_path, [])) as (_, client):
        name = "0123456789abcdef0123456789abcdef"
        for status in (404, 503):
            read = await client.get(f"/v1/conversations/{name}")
            asked = await client.post("/v1/execute", json={"message": "Hello", "conversation": name})
            assert (read.status_code, asked.status_code) == (status, status)
            monkeypatch.setattr(SQLiteDatabase, "catching_up", StoreAwayError("postgresql://", "it is back", "wait"))
        assert (asked.json()["error"]["code"], "Retry-After" in asked.headers) == ("storage", True)
