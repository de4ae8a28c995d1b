"""The boards of ``[[boards]]``, asked over HTTP: how each is, what models they have, and to take a new list."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from statistics import median
from typing import Annotated, Any, TypeAlias, TypeVar

import anyio
import httpx2
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rkllm_base.answers import Answer, AnswerLimits, AnswerRefusedError, fetch, read_json
from rkllm_mcp.config.sections import BoardSection, Config
from rkllm_mcp.errors import UsageError
from rkllm_mcp.messages import as_list, as_mapping
from rkllm_mcp.surfaces.invitations import FRESH_S, NONCE_BYTES, JoinKeys, board_header

# A board that takes longer to say how it is has lost its power or its network.
_STATUS_LIMITS = AnswerLimits(total_s=5.0, size_bytes=256 * 1024)
_LIST_LIMITS = AnswerLimits(total_s=2.0, size_bytes=4 * 2**20)
# Clocks are asked for over a network.
_SAME_CLOCK_S = 5.0
# Of an entry, what each board has for itself.
_OWN_KEYS = frozenset({"ssh"})
_DIGEST_CHARS = 12
# The most models of a board that are listed; a board has one loaded, and the rest is on its disk.
_MOST_MODELS = 1000


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
    compared: Mapping[str, Any] | None = None  # what boards are compared by, with ``clock_ahead_s`` of its clock


# A text of another board, which a terminal or a page shows.
_Text: TypeAlias = Annotated[str, Field(max_length=1000)]
ModelT = TypeVar("ModelT", bound=BaseModel)


class _FromBoard(BaseModel):
    """A part of what a board answers; what is not named here is not read."""

    model_config = ConfigDict(extra="ignore", strict=True)


class _Behind(_FromBoard):
    entries: int
    seconds: float


class _Problem(_FromBoard):
    message: _Text


class _Readiness(_FromBoard):
    storage: _Text = ""
    behind: _Behind | None = None
    error: _Problem | None = None


class _Queue(_FromBoard):
    running: int
    waiting: int


class _Compared(_FromBoard):
    time: float
    version: _Text
    model_bytes: int
    model_digest: Annotated[str, Field(max_length=64)] = ""
    template: _Text
    servers: Annotated[list[_Text], Field(max_length=100)]
    limits: Annotated[dict[_Text, _Text], Field(max_length=20)]


class _Figures(_FromBoard):
    model: _Text
    queue: _Queue
    temperature_c: float | None
    uptime_s: float
    compared: _Compared | None = None


async def board_statuses(
    boards: Mapping[str, BoardSection], headers: Mapping[str, str], secret: str | None = None
) -> list[BoardStatus]:
    """Return the state of each board, asked at the same time; for ``headers`` and ``secret`` see ``_ask_board``."""
    statuses: dict[str, BoardStatus] = {}

    async def ask(name: str, board: BoardSection) -> None:
        statuses[name] = await _board_status(name, board, headers, secret)

    async with anyio.create_task_group() as tasks:
        for name, board in boards.items():
            tasks.start_soon(ask, name, board)
    return [statuses[name] for name in boards]


async def _board_status(name: str, board: BoardSection, headers: Mapping[str, str], secret: str | None) -> BoardStatus:
    try:
        ready, shown = await _ask_board(board, ("/readyz", "/v1/board"), headers, secret, _STATUS_LIMITS)
        answered_at = time.time()
        readiness = _validate(_Readiness, read_json(ready.content))
        if not ready.is_success:
            if readiness.error is None:
                return BoardStatus(name, board.address, False, "unreadable: it gives no reason")
            return BoardStatus(name, board.address, False, readiness.error.message)
        state = f"ready, but the storage fails: {readiness.storage}" if readiness.storage else "ready"
        if delay := readiness.behind:
            state += f" ({delay.entries} changes wait for the database, {delay.seconds:.0f} s)"
        if not shown.is_success:
            if not board.key and secret is not None:
                # How far its clock is ahead of ours; 0 if it says no time.
                ahead = 0.0
                with suppress(TypeError, ValueError):
                    ahead = parsedate_to_datetime(shown.headers.get("date", "")).timestamp() - answered_at
                reason = "it has another boards_secret; 'rkllm-mcp boards join' there"
                if abs(ahead) > FRESH_S:
                    # Proofs of the secret are good for ten minutes.
                    differs = f"{duration(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} this machine's"
                    reason = f"its clock is {differs}; 'timedatectl' on both shows which is wrong"
                state += f" ({reason})"
            elif not board.key and not board.is_private:
                state += f" (set key in the [[boards]] entry of {name}: the caller's does not go over plain HTTP)"
            return BoardStatus(name, board.address, True, state)
        figures = _validate(_Figures, read_json(shown.content))
        queue = figures.queue
        measured = (figures.model, queue.running, queue.waiting, figures.temperature_c, figures.uptime_s)
        compared: dict[str, Any] | None = None
        if figures.compared is not None:
            compared = figures.compared.model_dump(exclude={"time"})
            compared["clock_ahead_s"] = round(figures.compared.time - answered_at, 1)
        return BoardStatus(name, board.address, True, state, *measured, compared)
    except httpx2.HTTPError as error:
        return BoardStatus(name, board.address, False, f"not reachable ({str(error) or type(error).__name__})")
    except AnswerRefusedError as error:
        return BoardStatus(name, board.address, False, f"unreadable: {error}")


def differences(statuses: Sequence[BoardStatus]) -> list[tuple[str, str, str]]:
    """Return what is not the same at all boards: its name, a value, and the boards that have it.

    File and template are compared between boards with the same model.
    """
    told: list[tuple[BoardStatus, Mapping[str, Any]]]
    told = [(status, status.compared) for status in statuses if status.compared is not None]
    usual = median(compared["clock_ahead_s"] for _, compared in told) if told else 0.0
    values: dict[tuple[str, str], dict[str, list[str]]] = {}
    # A board that is still reading its file is compared by the file's size.
    if not all(compared.get("model_digest") for _, compared in told):
        told = [(status, {**compared, "model_digest": ""}) for status, compared in told]
    for status, compared in told:
        ahead = compared["clock_ahead_s"] - usual
        clock = "" if abs(ahead) < _SAME_CLOCK_S else f"{duration(abs(ahead))} {'ahead' if ahead > 0 else 'behind'}"
        digest = str(compared.get("model_digest") or "")
        file_digest = f", SHA-256 {digest[:_DIGEST_CHARS]}…" if digest else ""
        aspects = {
            ("clock", ""): clock,
            ("version", ""): compared["version"],
            ("model file", status.model or ""): f"{compared['model_bytes']:,} bytes{file_digest}",
            ("template", status.model or ""): compared["template"],
            ("servers", ""): ", ".join(compared["servers"]) or "none",
            **{(name, ""): value for name, value in compared["limits"].items()},
        }
        for aspect, value in aspects.items():
            values.setdefault(aspect, {}).setdefault(value, []).append(status.name)
    return [
        (f"{aspect} {model}".strip(), value or "the same", ", ".join(names))
        for (aspect, model), by_value in values.items()
        if len(by_value) > 1
        for value, names in by_value.items()
    ]


def duration(seconds: float) -> str:
    """Return a time in its two largest units."""
    words: list[str] = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, seconds = divmod(seconds, size)
        if count:
            words.append(f"{count:.0f} {unit}")
    return " ".join(words[:2]) or "0 s"


async def _ask_board(
    board: BoardSection, paths: Sequence[str], headers: Mapping[str, str], secret: str | None, limits: AnswerLimits
) -> list[Answer]:
    """Ask a board for some paths in turn.

    With its key, or a proof of the secret that all boards share, or the caller's key if no one can read that.
    """
    answers: list[Answer] = []
    for path in paths:
        sent = dict(headers) if board.is_private else {}
        if board.key or secret is not None:
            sent = {"Authorization": f"Bearer {board.key}" if board.key else board_header(secret or "", path)}
        is_secure = board.url is not None
        client = httpx2.AsyncClient(headers=sent, timeout=limits.total_s, trust_env=False, verify=is_secure)
        async with client:
            answers.append(await fetch(client, "GET", f"{board.base_url}{path}", limits))
    return answers


def _validate(model: type[ModelT], value: object) -> ModelT:
    """Return a value by its schema; an AnswerRefusedError if it is another program's."""
    try:
        # Written as JSON again, it has exact types: dates are texts there.
        return model.model_validate_json(json.dumps(value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"][:4]))[:100]
        raise AnswerRefusedError(f"{field or 'its answer'}: {first['msg'][:100]}") from None


def named_boards(config: Config) -> dict[str, BoardSection]:
    """Return the boards by name; a UsageError if none exist."""
    if not config.boards:
        raise UsageError('no board is configured; write [[boards]] with address = "192.168.1.11:8080" for each')
    return {config.board_name(index): board for index, board in enumerate(config.boards)}


async def models_of(
    boards: Mapping[str, BoardSection],
    path: str,
    field: str,
    entry: type[ModelT],
    headers: Mapping[str, str],
    secret: str | None = None,
) -> dict[str, list[ModelT]]:
    """Return the entries of each board's list of models, by its name and in the order of boards.

    The boards that do not answer with a list of ``entry`` in ``field`` are left out; ``board_statuses`` shows why.
    """
    lists: dict[str, list[ModelT]] = {}

    async def ask(name: str, board: BoardSection) -> None:
        try:
            [answer] = await _ask_board(board, (path,), headers, secret, _LIST_LIMITS)
            models = as_mapping(read_json(answer.content) if answer.is_success else None)
            if len(entries := as_list(models.get(field))) <= _MOST_MODELS:
                lists[name] = [_validate(entry, value) for value in entries]
        except (httpx2.HTTPError, AnswerRefusedError):
            return

    async with anyio.create_task_group() as tasks:
        for name, board in boards.items():
            tasks.start_soon(ask, name, board)
    return {name: lists[name] for name in boards if name in lists}


def listed_boards(config: Config) -> list[dict[str, Any]]:
    """Return the entries of ``[[boards]]`` as all boards have them: with their names, without what is this board's."""
    boards = enumerate(config.boards)
    return [
        {**board.model_dump(mode="json", exclude_unset=True, exclude=set(_OWN_KEYS)), "name": config.board_name(number)}
        for number, board in boards
    ]


def taken_boards(config: Config, raw: Sequence[Mapping[str, Any]], given: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the entries of a board's file after it got a list; what is in it already is written as it was.

    Args:
        config: the configuration of the board.
        raw: its entries as its file has them, before variables are put in.
        given: the list.
    """
    here = {entry["address"]: (entry, dict(written)) for entry, written in zip(listed_boards(config), raw, strict=True)}
    taken: list[dict[str, Any]] = []
    for entry in given:
        # What decides where this board's owner logs in is never another board's to give.
        new = {name: part for name, part in entry.items() if name not in _OWN_KEYS}
        old, written = here.get(str(entry.get("address")), ({}, {}))
        own = {name: written[name] for name in _OWN_KEYS if name in written}
        taken.append({"name": new.get("name"), **written} if old == new else {**new, **own})
    return taken


async def send_boards(
    boards: Mapping[str, BoardSection], secret: str, listed: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """Give each of these boards the list; return why one did not take it, by its name."""
    problems: dict[str, str] = {}

    async def send(name: str, board: BoardSection) -> None:
        nonce = secrets.token_bytes(NONCE_BYTES)
        box = JoinKeys.of_boards(secret, nonce).seal({"boards": list(listed), "at": time.time()})
        body = {"nonce": nonce.hex(), "box": box.hex()}
        try:
            is_secure = board.url is not None
            client = httpx2.AsyncClient(timeout=_STATUS_LIMITS.total_s, trust_env=False, verify=is_secure)
            async with client:
                answer = await client.post(f"{board.base_url}/v1/boards:list", json=body)
            if not answer.is_success:
                message = as_mapping(as_mapping(read_json(answer.content)).get("error")).get("message")
                problems[name] = str(message or f"HTTP {answer.status_code}")[:200]
        except httpx2.HTTPError as error:
            problems[name] = f"not reachable ({str(error) or type(error).__name__})"
        except AnswerRefusedError as error:
            problems[name] = f"unreadable: {error}"

    async with anyio.create_task_group() as tasks:
        for name, board in boards.items():
            tasks.start_soon(send, name, board)
    return {name: problems[name] for name in boards if name in problems}
