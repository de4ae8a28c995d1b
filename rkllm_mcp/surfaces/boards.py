"""The boards of ``[[boards]]``, asked over HTTP: how each is, and what models they have."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import anyio
import httpx2

from rkllm_mcp.config.sections import BoardSection, Config
from rkllm_mcp.errors import UsageError

# A board that takes longer to say how it is has lost its power or its network.
_STATUS_LIMIT_S, _LIST_LIMIT_S = 5.0, 2.0


@dataclass(frozen=True)
class BoardStatus:
    """State of a board as it answers now; None for figures that it does not tell."""

    name: str
    address: str
    is_ready: bool
    state: str  # ready, or the reason why it takes no questions
    model: str | None = None
    running: int | None = None
    waiting: int | None = None
    temperature_c: float | None = None
    uptime_s: float | None = None


async def board_statuses(boards: Mapping[str, BoardSection], headers: Mapping[str, str]) -> list[BoardStatus]:
    """Return the state of each board, asked at the same time."""
    statuses: dict[str, BoardStatus] = {}

    async def ask(name: str, address: str) -> None:
        statuses[name] = await _board_status(name, address, headers)

    async with anyio.create_task_group() as tasks:
        for name, board in boards.items():
            tasks.start_soon(ask, name, board.address)
    return [statuses[name] for name in boards]


async def _board_status(name: str, address: str, headers: Mapping[str, str]) -> BoardStatus:
    url = f"http://{address}"
    client = httpx2.AsyncClient(headers=headers, timeout=_STATUS_LIMIT_S, trust_env=False)
    try:
        async with client:
            ready, board = await client.get(f"{url}/readyz"), await client.get(f"{url}/v1/board")
        report: dict[str, Any] = ready.json()
        if not ready.is_success:
            return BoardStatus(name, address, False, str(report["error"]["message"]))
        storage, behind = report.get("storage", ""), report.get("behind")
        state = f"ready, but the storage fails: {storage}" if storage else "ready"
        if behind:
            state += f" ({behind['entries']} changes wait for the database, {behind['seconds']:.0f} s)"
        if not board.is_success:
            return BoardStatus(name, address, True, state)
        figures: dict[str, Any] = board.json()
        queue = figures["queue"]
        measured = (figures["model"], queue["running"], queue["waiting"], figures["temperature_c"], figures["uptime_s"])
        return BoardStatus(name, address, True, state, *measured)
    except httpx2.TransportError as error:
        return BoardStatus(name, address, False, f"not reachable ({str(error) or type(error).__name__})")
    except (ValueError, KeyError, TypeError, AttributeError):
        return BoardStatus(name, address, False, "another program answers there")


def named_boards(config: Config) -> dict[str, BoardSection]:
    """Return the boards by name; a UsageError if there are none."""
    if not config.boards:
        raise UsageError('no board is configured; write [[boards]] with address = "192.168.1.11:8080" for each')
    return {config.board_name(index): board for index, board in enumerate(config.boards)}


async def lists_of(boards: Mapping[str, BoardSection], path: str, headers: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return what each board answers to a path, in their order; those that do not answer are left out."""
    answers: dict[str, dict[str, Any]] = {}

    async def ask(name: str, address: str) -> None:
        client = httpx2.AsyncClient(headers=headers, timeout=_LIST_LIMIT_S, trust_env=False)
        with suppress(httpx2.HTTPError, ValueError):
            async with client:
                answers[name] = (await client.get(f"http://{address}{path}")).raise_for_status().json()

    async with anyio.create_task_group() as tasks:
        for name, board in boards.items():
            tasks.start_soon(ask, name, board.address)
    return [answers[name] for name in boards if name in answers]
