"""What a board says of the others of ``[[boards]]``: their models in its lists, and how each is."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack

import httpx2
import pytest

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
        addresses = {"near": _CLOSED, "far": far.url.removeprefix("http://"), "gone": _CLOSED}
        entries = "".join(f'[[boards]]\nname = "{name}"\naddress = "{at}"\n' for name, at in addresses.items())
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
        ("near", False, None),
        ("far", True, "heron"),
        ("gone", False, None),
    ]
