"""Three boards with one PostgreSQL behind a real HAProxy: any board goes on, whichever of them dies."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest

from tests.end_to_end.test_several_boards import (
    BIRD,
    LONG,
    Json,
    Stream,
    ask,
    chat,
    client_of,
    echoed,
    slow_model,
    until,
)
from tests.support.boards import Boards, boards
from tests.support.postgres import PostgresServer, postgres_server

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return slow_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def database() -> Generator[PostgresServer, None, None]:
    """A server that the test may end."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def sharing(tmp_path: Path, model: Path, database: PostgresServer) -> Generator[Boards, None, None]:
    """Three boards with one database."""
    with boards(tmp_path, model, store=database.new_database()) as several:
        yield several


async def turns_at(client: httpx2.AsyncClient, board: str, conversation: str) -> list[tuple[str, str]]:
    """What one board, asked directly, says of a conversation: the ending and the text of each turn."""
    answer = await client.get(f"http://{board}/v1/conversations/{conversation}")
    turns: list[Json] = answer.raise_for_status().json()["messages"]
    return [(turn["ending"], turn["text"]) for turn in turns]


async def test_a_conversation_goes_on_at_a_free_board_and_its_first_board_reads_what_was_said_there(
    sharing: Boards,
) -> None:
    async with client_of(sharing) as client:
        first = await ask(client, message="echo one")
        own, named = first.headers["x-board"], {"X-Conversation-Id": first.headers["x-conversation-id"]}
        async with AsyncExitStack() as busy:
            # One long answer on each board; those of the others are left.
            for number in range(3):
                leaving = await busy.enter_async_context(AsyncExitStack())
                long = client.stream("POST", "/v1/chat/completions", json=chat(f"{number} for ever", stream=True))
                answer = await leaving.enter_async_context(long)
                if answer.headers["x-board"] != own:
                    await leaving.aclose()
                    await until(lambda name=answer.headers["x-board"]: sharing.statistics(name)["scur"] == "0")
            assert sharing.statistics(own)["scur"] == "1"
            elsewhere = await ask(client, message="I saw a pelican today", headers=named)
            assert elsewhere.headers["x-board"] != own
        # Its first board has the conversation open, as it was before.
        address = sharing.boards[own].address
        body = {"message": "which bird?", "stream": False, "conversation": named["X-Conversation-Id"]}
        again = await client.post(f"http://{address}/v1/execute", json=body)
        assert again.json()["text"] == BIRD
        texts = ["echo one", echoed("one"), "I saw a pelican today", "I see.", "which bird?", BIRD]
        for board in sharing.boards.values():
            told = await turns_at(client, board.address, named["X-Conversation-Id"])
            assert [text for _, text in told] == texts


async def test_a_board_that_dies_in_an_answer_leaves_it_to_the_others(sharing: Boards) -> None:
    async with client_of(sharing) as client:
        first = await ask(client, message="I saw a pelican today")
        conversation = first.headers["x-conversation-id"]
        named = {"X-Conversation-Id": conversation}
        body = {"message": "at length", "conversation": conversation}
        own, written, others = "", "", list[str]()
        with pytest.raises(httpx2.RemoteProtocolError):
            async with client.stream("POST", "/v1/execute", json=body) as answer:
                own = answer.headers["x-board"]
                others += [board.address for name, board in sharing.boards.items() if name != own]
                async for _ in answer.aiter_lines():
                    if not written:
                        # Once a second what is there so far is stored.
                        written = (await turns_at(client, others[0], conversation))[-1][1]
                        if written:
                            sharing.kill(own)
        for address in others:
            told = await turns_at(client, address, conversation)
            assert told[2] == ("", "at length")
            assert told[3][0] == "interrupted"
            assert LONG.startswith(told[3][1])
        # Through the proxy, without its history.
        again = await ask(client, again=True, headers=named)
        assert (again.headers["x-board"] != own, again.json()["text"]) == (True, LONG)
        bird = await ask(client, message="which bird?", headers=named)
        assert bird.json()["text"] == BIRD
        told = await turns_at(client, others[1], conversation)
        texts = ["I saw a pelican today", "I see.", "at length", LONG, "which bird?", BIRD]
        assert [text for _, text in told] == texts


async def test_boards_answer_while_the_database_is_away_and_catch_up(sharing: Boards, database: PostgresServer) -> None:
    async with client_of(sharing) as client:
        first = await ask(client, message="I saw a pelican today")
        named = {"X-Conversation-Id": first.headers["x-conversation-id"]}
        database.kill()
        away = await ask(client, message="which bird?", headers=named)
        assert (away.json()["text"], away.headers["x-board"]) == (BIRD, first.headers["x-board"])
        address = sharing.boards[first.headers["x-board"]].address
        ready = await client.get(f"http://{address}/readyz")
        assert (ready.status_code, "PostgreSQL" in ready.json()["storage"]) == (200, True)
        stream = Stream()
        await stream.run(client, "at length")
        assert stream.text == LONG
        database.start()
        # The board tries again at most every two seconds.
        said = 2
        async with client_of(sharing) as other:
            while len(await _told(other, sharing, named["X-Conversation-Id"])) < 2 * said:
                back = await ask(client, message=f"echo n{said}", headers=named)
                assert back.json()["text"] == echoed(f"n{said}")
                said += 1
                assert said < 40
        ready = await client.get(f"http://{address}/readyz")
        assert ready.json() == {"status": "ok"}


async def _told(client: httpx2.AsyncClient, sharing: Boards, conversation: str) -> list[tuple[str, str]]:
    """What a board says of a conversation; nothing while the database is away."""
    try:
        return await turns_at(client, sharing.boards["board3"].address, conversation)
    except httpx2.HTTPStatusError:
        return []
