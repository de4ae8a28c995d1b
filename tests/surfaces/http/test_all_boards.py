"""What a board says of the others of ``[[boards]]``: their models in its lists, and how each is."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from rkllm_mcp.config.sections import BoardSection, Config
from rkllm_mcp.diagnostics.doctor import config_warnings
from rkllm_mcp.surfaces.boards import board_statuses
from tests.support.outside import BODIES, WITHOUT_END, HostileServer, hostile_server
from tests.support.served import Served, scripted_model, served

RULES = "\nrule\n  say I see.\n"
# Nothing listens there.
_CLOSED = "127.0.0.1:9"
THROUGH_PROXY = {"X-Board": "near", "Authorization": "Bearer owner"}
DIRECTLY = {"Authorization": "Bearer owner"}


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    """A board with another that has another model, and one that is gone."""
    folder = tmp_path_factory.mktemp("boards")
    keys = '[service]\napi_keys = ["owner"]\n[[tenants]]\nname = "ann"\napi_key = "ann"\nservers = []\n'
    with ExitStack() as stack:
        heron = scripted_model(folder / "heron", RULES, name="heron")
        far = stack.enter_context(served(folder / "far", heron, extra=keys))
        parrot = scripted_model(folder / "parrot", RULES)
        entries = (
            f'[[boards]]\nname = "gone"\naddress = "{_CLOSED}"\nembeddings = true\n'
            f'[[boards]]\nname = "near"\naddress = "{_CLOSED}"\nmodels = ["pelican", "parrot"]\n'
            f'[[boards]]\nname = "far"\naddress = "{far.url.removeprefix("http://")}"\n'
        )
        yield stack.enter_context(served(folder / "near", parrot, extra=keys + entries))


def names(near: Served, path: str, headers: dict[str, str]) -> list[str]:
    answer = httpx2.get(f"{near.url}{path}", headers=headers).raise_for_status().json()
    return [model.get("id") or model["name"] for model in answer.get("data") or answer["models"]]


def test_the_lists_of_models_have_those_of_all_boards_through_the_proxy(near: Served) -> None:
    own = names(near, "/v1/models", DIRECTLY)
    assert own[0] == "parrot"
    assert "heron" not in own
    assert names(near, "/v1/models", THROUGH_PROXY) == [*own, "heron"]
    assert names(near, "/api/tags", THROUGH_PROXY)[-1] == "heron:latest"
    shown = httpx2.get(f"{near.url}/v1/models/heron", headers=THROUGH_PROXY)
    assert (shown.status_code, shown.json()["loaded"]) == (200, True)


def test_a_board_shows_all_boards_to_the_owner_alone(near: Served) -> None:
    refused = httpx2.get(f"{near.url}/v1/boards", headers={"Authorization": "Bearer ann"})
    assert refused.status_code == 403
    boards = httpx2.get(f"{near.url}/v1/boards", headers=DIRECTLY).raise_for_status().json()["boards"]
    assert [(board["name"], board["is_ready"], board["model"]) for board in boards] == [
        ("gone", False, None),
        ("near", False, None),
        ("far", True, "heron"),
    ]


def test_a_board_says_which_model_the_proxy_asks_where_none_is_named(near: Served, beside: Beside) -> None:
    """That of the first board that answers questions."""
    for service, model in ((near, "pelican"), (beside.service, "")):
        asked = httpx2.get(f"{service.url}/v1/me", headers=DIRECTLY).raise_for_status().json()
        assert asked["first_model"] == model


@dataclass(frozen=True)
class Beside:
    """A service with a board that another program answers for, and one that it asks with its own key."""

    service: Served
    odd: HostileServer
    keyed: HostileServer
    plain: HostileServer  # in the network, without TLS and without a key


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Generator[Beside, None, None]:
    folder = tmp_path_factory.mktemp("odd")
    with hostile_server() as odd, hostile_server() as keyed, hostile_server() as plain:
        entries = [
            f'[service]\napi_keys = ["owner"]\n[[boards]]\nname = "near"\naddress = "{_CLOSED}"',
            f'[[boards]]\nname = "odd"\naddress = "{odd.url.removeprefix("http://")}"',
            f'[[boards]]\nname = "keyed"\naddress = "{_CLOSED}"\nurl = "{keyed.url}"\nkey = "of-boards"\n',
            # An address of this machine that is not written as one, as those of the network are not.
            f'[[boards]]\nname = "plain"\naddress = "0.0.0.0:{plain.server_address[1]}"\n',
        ]
        parrot = scripted_model(folder / "parrot", RULES)
        with served(folder / "near", parrot, extra="\n".join(entries)) as service:
            yield Beside(service, odd, keyed, plain)


@pytest.mark.parametrize("way", [*BODIES, *WITHOUT_END, "compressed"])
def test_an_odd_board_is_left_out_of_lists_and_shown_as_unreadable(beside: Beside, way: str) -> None:
    beside.odd.way, beside.odd.sent = way, 0
    assert names(beside.service, "/v1/models", THROUGH_PROXY) == names(beside.service, "/v1/models", DIRECTLY)
    assert names(beside.service, "/api/tags", THROUGH_PROXY) == names(beside.service, "/api/tags", DIRECTLY)
    shown = httpx2.get(f"{beside.service.url}/v1/boards", headers=DIRECTLY, timeout=30).raise_for_status().json()
    odd = next(board for board in shown["boards"] if board["name"] == "odd")
    assert (odd["is_ready"], odd["state"].startswith("unreadable: "), odd["model"]) == (False, True, None), odd
    # Each of the three requests reads 4 MB at most, and the buffers of the network hold some more.
    assert beside.odd.sent < 100_000_000


ENTRIES: list[Any] = [
    1,
    [1, 2],
    {"data": 5, "models": 5},
    {"data": [5], "models": [5]},
    {"data": [{"id": 7}], "models": [{"name": 7}]},
    {"data": [{"id": "x" * 300}], "models": [{"name": ""}]},
    {"data": [{"id": "a"}] * 2000, "models": [{"name": "a"}] * 2000},
]


@pytest.mark.parametrize("body", ENTRIES, ids=str)
def test_odd_entries_of_a_board_leave_the_lists_as_they_are(beside: Beside, body: object) -> None:
    beside.odd.way, beside.odd.body = "given", body
    assert names(beside.service, "/v1/models", THROUGH_PROXY) == names(beside.service, "/v1/models", DIRECTLY)
    assert names(beside.service, "/api/tags", THROUGH_PROXY) == names(beside.service, "/api/tags", DIRECTLY)


def test_a_board_with_its_own_key_does_not_learn_that_of_the_caller(beside: Beside) -> None:
    beside.keyed.seen.clear()
    names(beside.service, "/v1/models", THROUGH_PROXY)
    httpx2.get(f"{beside.service.url}/v1/boards", headers={"x-api-key": "owner"}, timeout=30).raise_for_status()
    assert {request["authorization"] for request in beside.keyed.seen} == {"Bearer of-boards"}
    assert not any("x-api-key" in request for request in beside.keyed.seen)


def test_no_key_goes_over_plain_http_to_a_board_without_its_own(beside: Beside) -> None:
    beside.plain.way, beside.plain.body = "given", {"storage": ""}
    beside.plain.seen.clear()
    names(beside.service, "/v1/models", THROUGH_PROXY)
    for headers in (DIRECTLY, {"x-api-key": "owner"}):
        httpx2.get(f"{beside.service.url}/v1/boards", headers=headers, timeout=30).raise_for_status()
    assert len(beside.plain.seen) >= 3
    assert not any({"authorization", "x-api-key"} & request.keys() for request in beside.plain.seen)


@pytest.mark.anyio
async def test_a_board_that_is_asked_without_a_key_says_what_to_write(near: Served) -> None:
    address = near.url.removeprefix("http://")
    boards = {
        "here": BoardSection(address=address),
        "plain": BoardSection(address=address.replace("127.0.0.1", "0.0.0.0")),
    }
    here, plain = await board_statuses(boards, DIRECTLY)
    assert (here.is_ready, here.model) == (plain.is_ready, "parrot") == (True, "parrot")
    assert (plain.model, "set key" in plain.state, "set key" in here.state) == (None, True, False)
    config = Config.model_validate({"boards": [{"address": "127.0.0.1:80"}, {"address": "192.0.2.1:80"}]})
    [warning] = [line for line in config_warnings(config) if line.startswith("boards: ")]
    assert "board2" in warning
    assert "board1" not in warning


def test_a_board_that_replaces_another_model_answers_and_says_so(near: Served) -> None:
    headers = {**DIRECTLY, "X-Fallback-Model": "parrot"}
    chat = {"model": "heron", "messages": [{"role": "user", "content": "Hi"}]}
    refused = httpx2.post(f"{near.url}/v1/chat/completions", json=chat, headers=DIRECTLY)
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
    answered = httpx2.post(f"{near.url}/v1/chat/completions", json=chat, headers=headers).raise_for_status()
    assert (answered.json()["model"], answered.headers["x-model"]) == ("parrot", "parrot")
    asked = {"model": "heron", "message": "Hi", "stream": False}
    events = httpx2.post(f"{near.url}/v1/execute", json=asked, headers=headers).raise_for_status().json()["events"]
    said = "[Model: 'heron' is away, or too small for this question; 'parrot' answers]"
    assert {"kind": "status", "text": said} in [{key: event.get(key) for key in ("kind", "text")} for event in events]
    # One that is there is not replaced, and one that is nowhere is refused.
    own = httpx2.post(f"{near.url}/v1/execute", json={**asked, "model": "parrot"}, headers=headers)
    assert not [event for event in own.json()["events"] if event["kind"] == "status"]
    nowhere = httpx2.post(f"{near.url}/v1/execute", json=asked, headers={**headers, "X-Fallback-Model": "none"})
    assert nowhere.status_code == 404
    assert httpx2.get(f"{near.url}/v1/queue", headers=DIRECTLY).json() == {"waiting": 0}
