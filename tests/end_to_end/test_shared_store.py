"""Three boards with one PostgreSQL behind a real HAProxy: any board goes on, whichever of them dies."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2
import psycopg
import pytest
from psycopg import sql

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
from tests.support.demo_app import make_demo
from tests.support.http_app import in_house
from tests.support.postgres import PostgresServer, postgres_server

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return slow_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which all boards may write."""
    return tmp_path_factory.mktemp("notes")


@pytest.fixture(scope="module")
def database() -> Generator[PostgresServer, None, None]:
    """A server that a test may end, and begins again."""
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="module")
def several(
    tmp_path_factory: pytest.TempPathFactory, model: Path, notes: Path, database: PostgresServer
) -> Generator[Boards, None, None]:
    """Three boards with one database, each of which a test may end."""
    files = f'[service]\napi_keys = ["owner"]\n[[servers]]\nname = "files"\nfolder = "{notes}"\nwrite = true\n'
    with boards(tmp_path_factory.mktemp("several"), model, extra=files, store=database.new_database()) as them:
        yield them


@pytest.fixture
def them(several: Boards) -> Boards:
    """All of them up."""
    several.restore()
    return several


@asynccontextmanager
async def owner_of(them: Boards) -> AsyncGenerator[httpx2.AsyncClient, None]:
    """A client with the owner's key."""
    async with client_of(them) as client:
        client.headers["Authorization"] = "Bearer owner"
        yield client


async def turns_at(client: httpx2.AsyncClient, board: str, conversation: str) -> list[tuple[str, str]]:
    """What one board, asked directly, says of a conversation: the ending and the text of each turn."""
    answer = await client.get(f"http://{board}/v1/conversations/{conversation}")
    turns: list[Json] = answer.raise_for_status().json()["messages"]
    return [(turn["ending"], turn["text"]) for turn in turns]


async def test_a_conversation_goes_on_at_a_free_board_and_its_first_board_reads_what_was_said_there(
    them: Boards,
) -> None:
    async with owner_of(them) as client:
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
                    await until(lambda name=answer.headers["x-board"]: them.statistics(name)["scur"] == "0")
            assert them.statistics(own)["scur"] == "1"
            elsewhere = await ask(client, message="I saw a pelican today", headers=named)
            assert elsewhere.headers["x-board"] != own
        # Its first board has the conversation open, as it was before.
        address = them.boards[own].address
        body = {"message": "which bird?", "stream": False, "conversation": named["X-Conversation-Id"]}
        again = await client.post(f"http://{address}/v1/execute", json=body)
        assert again.json()["text"] == BIRD
        texts = ["echo one", echoed("one"), "I saw a pelican today", "I see.", "which bird?", BIRD]
        for board in them.boards.values():
            told = await turns_at(client, board.address, named["X-Conversation-Id"])
            assert [text for _, text in told] == texts


async def test_a_board_that_dies_in_an_answer_leaves_it_to_the_others(them: Boards) -> None:
    async with owner_of(them) as client:
        first = await ask(client, message="I saw a pelican today")
        conversation = first.headers["x-conversation-id"]
        named = {"X-Conversation-Id": conversation}
        body = {"message": "at length", "conversation": conversation}
        own, written, others = "", "", list[str]()
        with pytest.raises(httpx2.RemoteProtocolError):
            async with client.stream("POST", "/v1/execute", json=body) as answer:
                own = answer.headers["x-board"]
                others += [board.address for name, board in them.boards.items() if name != own]
                async for _ in answer.aiter_lines():
                    if not written:
                        # Once a second what is there so far is stored.
                        written = (await turns_at(client, others[0], conversation))[-1][1]
                        if written:
                            them.kill(own)
        for address in others:
            told = await turns_at(client, address, conversation)
            # Until its lease expires, no board knows that this one is dead.
            while told[3][0] == "running":
                told = await turns_at(client, address, conversation)
            assert told[2] == ("", "at length")
            assert told[3][0] == "interrupted"
            assert LONG.startswith(told[3][1])
        # Through the proxy, without its history, as soon as the lease of the dead board has expired.
        again = await ask(client, again=True, headers=named)
        while again.status_code == 409:
            again = await ask(client, again=True, headers=named)
        assert (again.headers["x-board"] != own, again.json()["text"]) == (True, LONG)
        bird = await ask(client, message="which bird?", headers=named)
        assert bird.json()["text"] == BIRD
        told = await turns_at(client, others[1], conversation)
        texts = ["I saw a pelican today", "I see.", "at length", LONG, "which bird?", BIRD]
        assert [text for _, text in told] == texts


async def test_a_dead_boards_answer_is_continued_elsewhere(them: Boards) -> None:
    async with owner_of(them) as client:
        conversation, own, written = "", "", ""
        with pytest.raises(httpx2.RemoteProtocolError):
            async with client.stream("POST", "/v1/execute", json={"message": "at length"}) as answer:
                own, conversation = answer.headers["x-board"], answer.headers["x-conversation-id"]
                [other, *_] = [board.address for name, board in them.boards.items() if name != own]
                async for _ in answer.aiter_lines():
                    if not written and (written := (await turns_at(client, other, conversation))[-1][1]):
                        them.kill(own)
        body = {"continue": True, "conversation": conversation, "stream": False}
        goes_on = await client.post("/v1/execute", json=body)
        while goes_on.status_code == 409:
            goes_on = await client.post("/v1/execute", json=body)
        assert (goes_on.headers["x-board"] != own, goes_on.json()["text"]) == (True, LONG)


async def test_a_question_whose_head_was_lost_is_asked_again_at_another_board_and_stored_once(them: Boards) -> None:
    async with owner_of(them) as client:
        first = await ask(client, message="I saw a pelican today")
        conversation, own = first.headers["x-conversation-id"], first.headers["x-board"]
        [other, third] = [board.address for name, board in them.boards.items() if name != own]
        body = {"message": "at length", "conversation": conversation, "detached": True}
        once = {"Idempotency-Key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}
        async with client.stream("POST", f"http://{them.boards[own].address}/v1/execute", json=body, headers=once):
            pass  # the connection breaks before its client has read anything
        again = await client.post(f"http://{other}/v1/execute", json=body, headers=once)
        while again.status_code == 409:
            again = await client.post(f"http://{other}/v1/execute", json=body, headers=once)
        events = [json.loads(line[6:]) for line in again.text.splitlines() if line.startswith("data: {")]
        assert again.headers["idempotent-replayed"] == "true"
        assert "".join(event["text"] for event in events if event["kind"] == "text") == LONG
        # Over, it is read from the store at the third board, and a board that answers with another body refuses.
        whole = {**body, "stream": False, "detached": False}
        stored = await client.post(f"http://{third}/v1/execute", json=whole, headers=once)
        assert (stored.json()["text"], stored.headers["idempotent-replayed"]) == (LONG, "true")
        refused = await client.post(f"http://{third}/v1/execute", json={**whole, "message": "x"}, headers=once)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "idempotency_key_reused")
        for board in them.boards.values():
            told = await turns_at(client, board.address, conversation)
            assert [text for _, text in told] == ["I saw a pelican today", "I see.", "at length", LONG]


async def test_a_question_whose_board_dies_is_asked_again_with_its_key_and_stored_once(them: Boards) -> None:
    async with owner_of(them) as client:
        once = {"Idempotency-Key": "6b1f0c1e-0000-4000-8000-000000000001"}
        body, own, conversation = {"message": "at length", "detached": True}, "", ""
        with pytest.raises(httpx2.RemoteProtocolError):
            async with client.stream("POST", "/v1/execute", json=body, headers=once) as answer:
                own, conversation = answer.headers["x-board"], answer.headers["x-conversation-id"]
                them.kill(own)
                async for _ in answer.aiter_lines():
                    pass
        again = await client.post("/v1/execute", json=body, headers=once)
        while again.status_code in (409, 502, 503) or '"board_lost"' in again.text:
            again = await client.post("/v1/execute", json=body, headers=once)
        assert (again.headers["x-conversation-id"], again.headers["x-board"] != own) == (conversation, True)
        [other, *_] = [board.address for name, board in them.boards.items() if name != own]
        told = await turns_at(client, other, conversation)
        assert told == [("", "at length"), ("answered", LONG)]


async def test_what_a_person_sets_at_one_board_is_the_same_at_all(them: Boards) -> None:
    async with owner_of(them) as client:
        first, *others = [f"http://{board.address}" for board in them.boards.values()]
        about = {"about": "My name is Taro."}
        assert (await client.put(f"{first}/v1/me/about", json=about)).raise_for_status().json() == about
        chosen = {"theme": "dark", "language": "ja"}
        (await client.put(f"{first}/v1/me/settings", json=chosen)).raise_for_status()
        for address in others:
            while (await client.get(f"{address}/v1/me/about")).json() != about:
                pass  # each board looks every two seconds
            assert (await client.get(f"{address}/v1/me")).json()["settings"] == chosen
        (await client.put(f"{others[0]}/v1/me/about", json={"about": ""})).raise_for_status()
        (await client.put(f"{others[0]}/v1/me/settings", json={"theme": ""})).raise_for_status()
        while (await client.get(f"{first}/v1/me/about")).json() != {"about": ""}:
            pass
        assert (await client.get(f"{first}/v1/me")).json()["settings"] == {**chosen, "theme": ""}


async def test_a_detached_answer_is_read_on_and_cancelled_at_another_board(them: Boards) -> None:
    async with owner_of(them) as client:
        first = client.stream("POST", "/v1/execute", json={"message": "at length", "detached": True})
        async with first as answer:
            own, conversation = answer.headers["x-board"], answer.headers["x-conversation-id"]
        [other, *_] = [f"http://{board.address}" for name, board in them.boards.items() if name != own]
        path = f"/v1/conversations/{conversation}"
        texts = {
            address: "".join([event["text"] for event in await events_at(client, address + path) if "text" in event])
            for address in (other, f"http://{them.boards[own].address}")
        }
        assert set(texts.values()) == {LONG}
        # Its board was the first to end it, so no other board may cancel it.
        assert (await client.post(f"{other}{path}/cancel")).json() == {"cancelled": False}
        body = {"message": "for ever", "detached": True, "conversation": conversation}
        async with client.stream("POST", f"http://{them.boards[own].address}/v1/execute", json=body) as answer:
            await anext(answer.aiter_lines())
        refused = await client.post(
            f"{other}/v1/execute", json={"message": "which bird?", "conversation": conversation}
        )
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "answer_under_way")
        assert (await client.post(f"{other}{path}/cancel")).json() == {"cancelled": True}
        events = await events_at(client, other + path)
        assert (events[-1]["kind"], events[-1]["reason"]) == ("end", "cancelled")


async def events_at(client: httpx2.AsyncClient, conversation: str) -> list[Json]:
    """The events of a detached answer, once a board has them."""
    lines = list[str]()
    while not lines:
        async with client.stream("GET", f"{conversation}/stream") as answer:
            if answer.status_code == 200:
                lines = [line async for line in answer.aiter_lines() if line.startswith("data: {")]
    return [json.loads(line[6:]) for line in lines]


async def test_an_approval_asked_at_one_board_is_given_at_another_once(them: Boards, notes: Path) -> None:
    async with owner_of(them) as client:
        body = {"message": "write it to a.txt", "approvals": "ask"}
        async with client.stream("POST", "/v1/execute", json=body) as answer:
            own = answer.headers["x-board"]
            others = [f"http://{board.address}" for name, board in them.boards.items() if name != own]
            questions: list[Json] = []
            while not questions:
                questions = (await client.get(f"{others[0]}/v1/questions")).json()["questions"]
            decided = [
                (await client.post(f"{other}/v1/approvals/{questions[0]['id']}", json={"decision": decision}))
                for other, decision in zip((*others, others[0]), ("once", "deny", "deny"), strict=True)
            ]
            events = [json.loads(line[6:]) async for line in answer.aiter_lines() if line.startswith("data: {")]
        assert [each.status_code for each in decided] == [200, 404, 404]
        assert [event["action"] for event in events if event["kind"] == "answered"] == ["once"]
        assert (notes / "a.txt").read_text("utf-8") == "x"
        assert (await client.get(f"{others[0]}/v1/questions")).json() == {"questions": []}


async def test_a_device_that_is_revoked_at_one_board_is_refused_at_all(them: Boards) -> None:
    first, *others = (f"http://{board.address}" for board in them.boards.values())
    async with owner_of(them) as client:
        linked = (await client.post(f"{first}/v1/devices", json={"name": "phone", "allow": ["chat"]})).json()
        headers = {"Authorization": f"Bearer {linked['key']}"}
        assert [(await client.get(f"{at}/v1/me", headers=headers)).status_code for at in others] == [200, 200]
        assert (await client.delete(f"{first}/v1/devices/{linked['id']}")).status_code == 204
        assert [(await client.get(f"{at}/v1/me", headers=headers)).status_code for at in others] == [401, 401]


async def test_boards_answer_while_the_database_is_away_and_catch_up(them: Boards, database: PostgresServer) -> None:
    async with owner_of(them) as client:
        first = await ask(client, message="I saw a pelican today")
        named = {"X-Conversation-Id": first.headers["x-conversation-id"]}
        database.kill()
        away = await ask(client, message="which bird?", headers=named)
        assert (away.json()["text"], away.headers["x-board"]) == (BIRD, first.headers["x-board"])
        address = them.boards[first.headers["x-board"]].address
        ready = await client.get(f"http://{address}/readyz")
        assert (ready.status_code, "PostgreSQL" in ready.json()["storage"]) == (200, True)
        assert ready.json()["behind"]["entries"] >= 1
        stream = Stream()
        await stream.run(client, "at length")
        assert stream.text == LONG
        # The board is killed and begins again: what it has not handed over is in its file.
        them.kill(first.headers["x-board"])
        them.start(first.headers["x-board"])
        database.start()
        texts = [text for _, text in await _told(client, them, named["X-Conversation-Id"])]
        while len(texts) < 4:
            texts = [text for _, text in await _told(client, them, named["X-Conversation-Id"])]
        assert texts == ["I saw a pelican today", "I see.", "which bird?", BIRD]
        for board in them.boards.values():
            while (await client.get(f"http://{board.address}/readyz")).json() != {"status": "ok"}:
                pass


async def _told(client: httpx2.AsyncClient, them: Boards, conversation: str) -> list[tuple[str, str]]:
    """What a board says of a conversation; nothing while the database is away."""
    try:
        return await turns_at(client, them.boards["board3"].address, conversation)
    except httpx2.HTTPStatusError:
        return []


async def test_a_board_that_starts_in_the_past_waits_for_the_time_before_it_joins(
    database: PostgresServer, tmp_path: Path
) -> None:
    url = database.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        # The database's clock is three days ahead of this machine's.
        connection.execute(
            "CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS "
            "$$SELECT pg_catalog.clock_timestamp() + interval '3 days'$$"
        )
        alter = sql.SQL("ALTER DATABASE {} SET search_path = public, pg_catalog")
        connection.execute(alter.format(sql.Identifier(connection.info.dbname)))
    demo = make_demo(tmp_path, [], extra=f'[store]\nurl = "{url}"\n')
    async with in_house(demo) as (tenants, client):
        leases = tenants.tenant("").app.store.leases
        assert leases is not None
        await leases.renew()
        waits = await client.get("/readyz")
        assert (waits.status_code, waits.json()["error"]["code"]) == (503, "clock_behind")
        assert "the clock of this board is 2 d 23 h behind" in waits.json()["error"]["message"]
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP FUNCTION public.clock_timestamp()")
        await leases.renew()
        assert (await client.get("/readyz")).json() == {"status": "ok"}
