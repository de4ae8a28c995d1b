"""``rkllm-mcp boards``: several boards behind one address, from ``[[boards]]`` of the configuration.

``haproxy`` writes the proxy's configuration from ``haproxy.cfg.txt``, ``status`` asks each board how it is, ``invite``
and ``join`` give a new board what all share. Boards that answer with the same models are one backend with one queue; a
board is in each backend for which it is named.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import anyio
import httpx2
import typer
from anyio import to_thread

from rkllm_base.addresses import is_loopback
from rkllm_base.answers import AnswerLimits, AnswerRefusedError, fetch, read_json
from rkllm_base.installation import installed_extras
from rkllm_mcp.app.settings import EMULATOR
from rkllm_mcp.config import editing
from rkllm_mcp.config.loading import read_file
from rkllm_mcp.config.secrets import is_hashed, redacted_text
from rkllm_mcp.config.sections import BoardSection, Config, reached_host, web_address
from rkllm_mcp.errors import ConfigError, RuntimeUnusableError, UsageError
from rkllm_mcp.messages import as_mapping
from rkllm_mcp.models.cards import ModelFolder, choose_model, model_directories
from rkllm_mcp.surfaces.boards import (
    board_statuses,
    differences,
    listed_boards,
    named_boards,
    send_boards,
)
from rkllm_mcp.surfaces.cli.files import filled_template, write_whole
from rkllm_mcp.surfaces.cli.options import AsJson, argument, command, exit_on_interrupt, option
from rkllm_mcp.surfaces.cli.service import SYSTEM_STATE
from rkllm_mcp.surfaces.invitations import NONCE_BYTES, JoinKeys, WrongCodeError, join_message, split_code
from rkllm_mcp.surfaces.invocation import EXIT_ANSWER_FAILED, EXIT_DONE, Session
from rkllm_mcp.surfaces.running_service import running_services, service_for

app = typer.Typer(no_args_is_help=True)
# Text of a request with an image, by API: OpenAI's chat and responses, Anthropic's, Ollama's.
_IMAGES = """'"image_url"' '"input_image"' '"image"' '"images"' '"pictures"'"""
_AGENT = "agent-check agent-port {} agent-inter 500ms"
_CHECK = "check inter 1s fastinter 300ms downinter 1s fall 2 rise 1 observe layer4 error-limit 1 on-error mark-down"
# A request of more bytes for each token of a window is longer than it, as English and Japanese are counted.
_BYTES_PER_TOKEN = 4
# The board that had a chat or a conversation last, by its number.
_THREAD = "var(txn.thread),table_server_id(threads)"
_CONVERSATION = "var(txn.conversation),table_server_id(conversations)"
_READABLE, _PRIVATE = 0o644, 0o600
_POSTGRES_PORT = 5432
_JOIN_LIMITS = AnswerLimits(total_s=20.0, size_bytes=256 * 1024)
# A login by ssh runs no profile, which would have the folder of the user's programs.
_UPDATE = 'PATH="$HOME/.local/bin:$PATH" rkllm-mcp update --restart'
# From the start of its service until a board is asked in vain.
_BACK_S, _LOOK_S = 60.0, 0.5
KEY_VARIABLE = "RKLLM_MCP_KEY"


@dataclass(frozen=True)
class _Backend:
    """Boards that share a queue, by name, and the models that requests for them name."""

    name: str
    says: str
    boards: Mapping[str, BoardSection]
    models: tuple[str, ...] = ()
    fallback: str | None = None  # the model that answers in place of its models
    sees: bool = False  # it gets the requests with images
    embeds: bool = False  # it gets the requests for embeddings


@command(app, "haproxy")
def haproxy_command(
    session: Session,
    output: Annotated[Path | None, option("File to write; standard output when not given.", "FILE", "--output")] = None,
    certificate: Annotated[
        str | None, option("Certificate and key for HTTPS, one PEM file on the proxy's machine.", "PEM")
    ] = None,
) -> None:
    """Print the configuration of HAProxy for the boards of the configuration."""
    text = haproxy_configuration(session.config(), certificate)
    if output is None:
        sys.stdout.write(text)
    else:
        write_whole(output, text, "; name another file with --output", _READABLE)
        session.status(f"Written: {output}. Check it with: haproxy -c -f {output}")


@command(app, "status")
async def status_command(session: Session, as_json: AsJson = False) -> int:
    """Show each board, its model, queue and health, and what differs; exit code 1 unless all take questions.

    Models and queues need a key: that of the board's entry or, for https:// and this machine, a key of the owner, in
    RKLLM_MCP_KEY or in plain text in the configuration.
    """
    config = session.config()
    keys = [os.environ.get(KEY_VARIABLE, ""), *(key for key in config.service.api_keys if not is_hashed(key))]
    key = next(filter(None, keys), "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    boards = named_boards(config)
    statuses = await board_statuses(boards, headers, config.service.boards_secret)
    word = session.terminal.word
    rows = [
        (
            status.name,
            status.address,
            word(status.state),
            status.model or word("unknown"),
            word("unknown")
            if status.running is None
            else f"{status.running} {word('running')}, {status.waiting} {word('waiting')}",
            word("unknown") if status.temperature_c is None else f"{status.temperature_c:.0f} °C",
        )
        for status in statuses
    ]
    heading = ("NAME", "ADDRESS", "STATE", "MODEL", "QUEUE", "TEMPERATURE")
    text = session.terminal.table(heading, rows)
    if different := differences(statuses):
        text += f"\n{session.terminal.table(('DIFFERENT', 'VALUE', 'BOARDS'), different)}"
    session.show([asdict(status) for status in statuses], text, as_json=as_json)
    if any(status.is_ready and status.model is None and boards[status.name].is_private for status in statuses):
        session.status(f"Models and queues need a key of the owner: set {KEY_VARIABLE}")
    return EXIT_DONE if all(status.is_ready for status in statuses) else EXIT_ANSWER_FAILED


@command(app, "invite")
async def invite_command(session: Session) -> None:
    """Show a code by which a new board gets what the boards share: one board, ten minutes, five tries.

    The service of this board must be running; the new board asks it with 'rkllm-mcp boards join ADDRESS'.
    """
    config = session.config()
    service = service_for(config)
    if service is None:
        # It may be one that the system's systemd runs, if this account may ask it.
        with suppress(PermissionError):
            service = next((record for record in running_services(SYSTEM_STATE) if record.is_for(config)), None)
    if service is None:
        raise UsageError("the service of this configuration is not running here; 'rkllm-mcp service start' starts it")
    headers = {"Authorization": f"Bearer {service.key}"}
    client = httpx2.AsyncClient(headers=headers, trust_env=False)
    async with client:
        answer = await fetch(client, "POST", f"{service.address}/v1/boards:invite", _JOIN_LIMITS)
    answer_fields = as_mapping(read_json(answer.content))
    if not answer.is_success:
        raise UsageError(str(as_mapping(answer_fields.get("error")).get("message")))
    sys.stdout.write(f"{answer_fields['code']}\n")
    port = urlsplit(service.address).port or config.service.port
    if is_loopback(config.service.host):
        address = f"127.0.0.1:{port}"
        session.status('Only this machine reaches this board: host = "0.0.0.0" in its [service] opens it to others')
    else:
        address = web_address(reached_host(config.service.host), port).removeprefix("http://")
    session.status(f"On the new board, within ten minutes: rkllm-mcp boards join {address}")


@command(app, "join")
async def join_command(
    session: Session,
    address: Annotated[str, argument("A board that is there, such as 192.168.1.11:8080.", "ADDRESS")],
    code: Annotated[str | None, option("The code of 'boards invite'; asked for when not given.", "CODE")] = None,
    model: Annotated[
        str, option("The model that this board answers with, if not its own.", "NAME", "--model-name")
    ] = "",
    port: Annotated[
        int | None, option("Port of the service of this board, if not that of its configuration.", "PORT")
    ] = None,
) -> None:
    """Get what the boards share from one of them, and write it into the configuration of this board."""
    target = session.target_file()
    before = read_file(target) if target.exists() else {}
    config = session.config()
    if present := [name for name in ("store", "boards") if name in before]:
        raise UsageError(f"{target} has [{present[0]}] already; take it out, or write the new board into it by hand")
    own: ModelFolder | None = None
    if not model:
        if config.provider.kind != "rkllm":
            raise UsageError("a remote service answers here, by no model's name; give one with --model-name")
        try:
            own = choose_model(config.model, model_directories(), emulated=config.runtime.library == EMULATOR)
        except (RuntimeUnusableError, ConfigError) as error:
            raise UsageError(f"{error}; or give the name of its model with --model-name") from None
    sees = own is not None and own.encoder is not None
    model = own.name if own is not None else model
    port = port or config.service.port
    with exit_on_interrupt():
        number, secret = split_code(code if code is not None else typer.prompt("Code", err=True))
    nonce = secrets.token_bytes(NONCE_BYTES)
    keys = JoinKeys.derive(secret, nonce)
    proof = keys.proof_of(join_message(number, nonce, ("", port, model, sees)))
    answer_fields = {"port": port, "model": model, "vision": sees}
    body = {"invitation": number, "nonce": nonce.hex(), **answer_fields, "proof": proof.hex()}
    url = address if "://" in address else f"http://{address}"
    try:
        client = httpx2.AsyncClient(trust_env=False, timeout=_JOIN_LIMITS.total_s)
        async with client:
            answer = await client.post(f"{url}/v1/boards:join", json=body)
        given = as_mapping(read_json(answer.content))
    except (httpx2.HTTPError, AnswerRefusedError) as error:
        raise UsageError(f"no board answers at {url} ({error}); give the host and port of one") from None
    if not answer.is_success:
        raise UsageError(str(as_mapping(given.get("error")).get("message") or f"{url} does not let boards join"))
    try:
        shared = keys.open(bytes.fromhex(str(given.get("box", ""))))
    except (WrongCodeError, ValueError):
        raise UsageError(f"what {url} answered was not made with this code; make another one there") from None
    host, store = urlsplit(url).hostname or "", urlsplit(shared["store"] or "")
    if store.hostname and is_loopback(store.hostname) and not is_loopback(host):
        # The database is on the machine of the board that was asked.
        login, at, _ = store.netloc.rpartition("@")
        there = web_address(host, store.port or _POSTGRES_PORT).removeprefix("http://")
        shared["store"] = store._replace(netloc=f"{login}{at}{there}").geturl()
    _write_joined(session, target, shared, port if port != config.service.port else None)


def _write_joined(session: Session, target: Path, shared: Mapping[str, Any], port: int | None) -> None:
    """Write what a board has got into its configuration, and say what that is."""
    if not target.exists():
        write_whole(target, "")
    # Another address than its own is what the owner chose for this board.
    service: dict[str, Any] = {"api_keys": shared["api_keys"], "boards_secret": shared["boards_secret"]}
    if is_loopback(session.config().service.host):
        service["host"] = "0.0.0.0"  # noqa: S104  (the proxy and the other boards ask it)
    if port is not None:
        service["port"] = port
    for key, setting in service.items():
        editing.set_value(target, "service", key, setting)
    if shared["store"]:
        editing.set_value(target, "store", "url", shared["store"])
    editing.set_boards(target, shared["boards"])
    target.chmod(_PRIVATE)
    names = ", ".join(board["name"] for board in shared["boards"])
    session.status(f"Written to {target}, for this account alone: this board is {shared['name']}.")
    session.status(f"  [service] {', '.join(service)}")
    session.status(f"  [store] url, {redacted_text(shared['store'])}" if shared["store"] else "  no shared database")
    session.status(f"  [[boards]]: {names}")
    _say_missed(session, shared["missed"])
    if shared["store"] and "postgres" not in installed_extras():
        session.status("The database needs the library for it on this board: rkllm-mcp install postgres")
    session.status("Now start this board's service, and write HAProxy's file again: rkllm-mcp boards haproxy.")


def _say_missed(session: Session, missed: Mapping[str, str]) -> None:
    for name, problem in missed.items():
        session.status(f"{name} has not got the list ({problem}); when it is back: rkllm-mcp boards share")


@command(app, "share")
async def share_command(session: Session) -> int:
    """Give all boards the list of this one, after it was changed by hand; exit code 1 unless all took it."""
    config = session.config()
    secret = config.service.boards_secret
    if secret is None:
        raise UsageError("this board has no boards_secret, by which the others know it; 'boards invite' makes one")
    boards = named_boards(config)
    missed = await send_boards(boards, secret, listed_boards(config))
    if taken := [name for name in boards if name not in missed]:
        session.status(f"Their list is this one now: {', '.join(taken)}")
    _say_missed(session, missed)
    return EXIT_ANSWER_FAILED if missed else EXIT_DONE


@command(app, "update")
async def update_command(
    session: Session,
    names: Annotated[list[str] | None, argument("The boards to update. Default: all.", "NAME")] = None,
) -> None:
    """Update the program on one board after the other, by ssh; the first that fails is the last.

    On each: its service finishes its answers and stops, 'rkllm-mcp update' runs, the service starts, and the board must
    take questions again. It needs a login by ssh at each board and, there, sudo for systemctl.
    """
    config = session.config()
    boards = named_boards(config)
    if unknown := [name for name in names or () if name not in boards]:
        raise UsageError(f"there is no board {unknown[0]!r}; there are {', '.join(boards)}")
    chosen = [name for name in boards if name in (names or boards)]
    # This machine last: this program imports what it needs of itself until its end.
    chosen.sort(key=lambda name: _is_here(boards[name]))
    secret = config.service.boards_secret
    statuses = {status.name: status for status in await board_statuses(boards, {}, secret)}
    if not names and (away := [status for status in statuses.values() if not status.is_ready]):
        others = " ".join(name for name in chosen if statuses[name].is_ready)
        advice = f"mend it first, or leave it out: rkllm-mcp boards update {others}" if others else "mend it first"
        raise UsageError(f"{away[0].name} takes no questions ({away[0].state}); {advice}")
    for number, name in enumerate(chosen):
        session.status(f"{name}: updating …")
        problem = ""
        words = ["sh", "-c", _UPDATE]
        if not _is_here(boards[name]):
            if shutil.which("ssh") is None:
                raise UsageError("ssh is not installed; run 'rkllm-mcp update --restart' on each board in turn")
            host = boards[name].ssh or urlsplit(f"//{boards[name].address}").hostname or ""
            # With a terminal, sudo there can ask for a password; a host's name is never read as an option.
            words = ["ssh", *(["-t"] if sys.stdin.isatty() else []), "--", host, _UPDATE]
        run = partial(subprocess.run, words, check=False, stdout=sys.stderr)
        if code := (await to_thread.run_sync(run)).returncode:
            problem = f"'rkllm-mcp update --restart' ended with exit code {code}"
        until = anyio.current_time() + _BACK_S
        while True:
            [after] = await board_statuses({name: boards[name]}, {}, secret)
            if after.is_ready or anyio.current_time() > until:
                break
            await anyio.sleep(_LOOK_S)
        if not after.is_ready:
            problem = " and ".join(filter(None, [problem, f"it takes no questions ({after.state})"]))
        if problem:
            remaining = ", ".join(chosen[number + 1 :]) or "none"
            raise UsageError(f"{name}: {problem}; mend it there, then go on. Not updated: {remaining}")
        compared = [status.compared or {} for status in (statuses[name], after)]
        earlier, now = (board.get("version") or "an unknown release" for board in compared)
        session.status(f"{name}: {earlier} → {now}, takes questions")


def _is_here(board: BoardSection) -> bool:
    """Return True if a board is this machine, where no ssh is needed."""
    if board.ssh is not None:
        return False
    host = urlsplit(f"//{board.address}").hostname or ""
    with suppress(OSError), socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        # Only an address of this machine can be bound.
        probe.bind((host, 0))
        return True
    return False


def haproxy_configuration(config: Config, certificate: str | None = None) -> str:
    """Return the configuration of HAProxy for ``[[boards]]``; a UsageError if none exist."""
    boards = named_boards(config)
    backends = _backends(boards)
    numbers = {name: number for number, name in enumerate(boards, 1)}
    tls = ["# bind :443 ssl crt /etc/haproxy/certs/boards.pem alpn h2,http/1.1  # written with --certificate"]
    if certificate is not None:
        tls = [
            f"bind :443 ssl crt {certificate} alpn h2,http/1.1",
            "http-request redirect scheme https unless { ssl_fc }",
        ]
    # With a database that all share, an answer may come from any board; what is under way is on one all the same.
    is_shared = config.store.url is not None
    stored = " !answers" if is_shared else ""
    homes = [
        f"http-request set-var(txn.home) str({name}) if {{ {_CONVERSATION} eq {numbers[name]} }}{stored}"
        for name in boards
    ]
    mcp = config.service.mcp or any(tenant.mcp for tenant in config.tenants)
    checked = {name: backend.name for backend in reversed(backends) for name in backend.boards}
    filled: list[str] = []
    for backend in backends:
        servers: list[str] = []
        # The boards of the model that answers while this backend has no board.
        instead = {
            name: board
            for name, board in boards.items()
            if backend.models and backend.fallback in board.models and name not in backend.boards
        }
        for name, board in {**backend.boards, **instead}.items():
            # The NPU makes one answer at a time; a second one may go on while the first waits for a person.
            at_once = board.parallel or (1 if board.agent_port is None else config.service.parallel)
            looks = _CHECK if checked[name] == backend.name else f"track {checked[name]}/{name}"
            agent = "" if board.agent_port is None else f" {_AGENT.format(board.agent_port)}"
            use = " backup" if name in instead else ""
            servers.append(f"server {name} {board.address} id {numbers[name]} maxconn {at_once} {looks}{agent}{use}")
        fallback = [
            f"# While none of them is there, {backend.fallback} answers, as the boards with it are told.",
            "option allbackups",
            f"http-request set-header X-Fallback-Model {backend.fallback} if !{{ req.hdr(X-Fallback-Model) -m found }}",
        ]
        values = {
            "NAME": backend.name,
            "SAYS": backend.says,
            "MCP": " Tools run for every chat request ([service] or [[tenants]] mcp)." if mcp else "",
            "TOOLS": "!executes" if mcp else "{ var(txn.mcp) -m bool }",
            "OWN": _lines(_own(backend, backends, numbers, (_THREAD, _CONVERSATION) if is_shared else (_THREAD,))),
            "FALLBACK": _lines(fallback) if instead else "",
            "SERVERS": _lines(servers),
        }
        filled.append(filled_template("haproxy_backend.cfg", values))
    # What the proxy answers to the question how many wait before it.
    queue = [f"http-request set-var(txn.waiting) queue({backends[0].name}) if {{ path /v1/queue }}"]
    for backend in backends[1:]:
        if backend.models:
            condition = f"{{ path /v1/queue }} {{ url_param(model) -m str {_with_tags(backend.models)} }}"
            queue.append(f"http-request set-var(txn.waiting) queue({backend.name}) if {condition}")
    answering = {name: board for name, board in boards.items() if not board.is_embedding_only} or boards
    tracked = [
        f"server {name} {board.address} id {numbers[name]} track {checked[name]}/{name}"
        for name, board in answering.items()
    ]
    values = {
        "TLS": _lines(tls),
        "ONE_BOARD": "an answer under way, an open question"
        if is_shared
        else "a conversation, a response, an open question",
        "STORED": stored,
        "HOMES": _lines(homes),
        "QUEUE": _lines(queue),
        "CHOICE": _lines(_choice(backends)),
        "BACKENDS": "".join(filled),
        "SERVERS": _lines(tracked),
    }
    return filled_template("haproxy.cfg", values)


def _backends(boards: Mapping[str, BoardSection]) -> list[_Backend]:
    """Return the backends; the first one answers requests that name no model of another."""
    answering = {name: board for name, board in boards.items() if not board.is_embedding_only} or dict(boards)
    # Models that the same boards have share a backend, and so a queue.
    models_of: dict[tuple[str, ...], list[str]] = {}
    for model in dict.fromkeys(model for board in answering.values() for model in board.models):
        names = tuple(name for name, board in answering.items() if model in board.models)
        models_of.setdefault(names, []).append(model)
    first = next(iter(answering))
    groups = sorted(models_of.items(), key=lambda group: first not in group[0])
    if unlisted := tuple(name for name, board in answering.items() if not board.models):
        groups.insert(0 if first in unlisted else len(groups), (unlisted, []))
    parts = [
        (
            f"answers{number}" if number > 1 else "answers",
            f"What a model has to work for{': ' if models else ''}{', '.join(models)}.",
            {name: boards[name] for name in names},
            tuple(models),
        )
        for number, (names, models) in enumerate(groups, 1)
    ]
    seeing = {name: board for name, board in boards.items() if board.vision and not board.is_embedding_only}
    embedding = {name: board for name, board in boards.items() if board.embeddings}
    for name, says, chosen in (
        ("images", "Requests with images.", seeing),
        ("embeddings", "Embeddings and ranking.", embedding),
    ):
        if chosen and chosen not in [part[2] for part in parts]:
            parts.append((name, says, chosen, ()))
    backends: list[_Backend] = []
    for part in parts:
        fallback = next(filter(None, (board.fallback for board in part[2].values())), None)
        backends.append(_Backend(*part, fallback, sees=part[2] == seeing, embeds=part[2] == embedding))
    return backends


def _with_tags(models: Sequence[str]) -> str:
    return " ".join(f"{model} {model}:latest" for model in models)


def _choice(backends: Sequence[_Backend]) -> Iterator[str]:
    """Yield the rules that choose a backend; a request whose answer needs what one board has goes there."""
    first, *further = backends
    if further:
        yield "# The model that is asked for; a long image before its name hides it, so a header may have it, too."
        yield "http-request set-var(txn.model) req.body,json_query('$.model') if answers"
        yield "http-request set-var(txn.model) req.hdr(X-Model) if { req.hdr(X-Model) -m len gt 0 }"
        long: list[str] = []
        for backend in backends:
            windows = [board.context_tokens for board in backend.boards.values() if board.context_tokens is not None]
            other = next((other for other in backends if backend.fallback and backend.fallback in other.models), None)
            if windows and other is not None and other is not backend:
                if not long:
                    yield "# Longer than the window of the model, which another one has."
                long.append(other.name)
                condition = f"{{ var(txn.model) -m str {_with_tags(backend.models)} }}"
                if backend is first:
                    names = [model for backend_with_models in further for model in backend_with_models.models]
                    condition = f"!{{ var(txn.model) -m str {_with_tags(names)} }}"
                is_long = f"{{ req.body_size gt {min(windows) * _BYTES_PER_TOKEN} }} !{{ req.body -m sub {_IMAGES} }}"
                is_free = f"!{{ var(txn.home) -m found }} {{ nbsrv({other.name}) gt 0 }}"
                condition = f"METH_POST answers {condition} {is_long} {is_free}"
                yield f"http-request set-var(txn.long) str({other.name}) if {condition}"
                is_chosen = f"{{ var(txn.long) -m str {other.name} }}"
                yield f"http-request set-header X-Fallback-Model {backend.fallback} if {is_chosen}"
        if embedding := next((backend for backend in backends if backend.embeds), None):
            yield f"use_backend {embedding.name} if METH_POST embeds"
        reached: set[str] = set()
        for backend in backends:
            if names := [name for name in backend.boards if name not in reached]:
                reached.update(names)
                yield f"use_backend {backend.name} if METH_POST answers {{ var(txn.home) -m str {' '.join(names)} }}"
        for name in long:
            yield f"use_backend {name} if {{ var(txn.long) -m str {name} }}"
        for backend in backends:
            if backend.models:
                asks = f"{{ var(txn.model) -m str {_with_tags(backend.models)} }}"
                yield f"use_backend {backend.name} if METH_POST answers {asks}"
        if seeing := next((backend for backend in backends if backend.sees), None):
            yield f"use_backend {seeing.name} if METH_POST answers {{ req.body -m sub {_IMAGES} }}"
    yield f"use_backend {first.name} if METH_POST answers"


def _own(
    backend: _Backend, backends: Sequence[_Backend], numbers: Mapping[str, int], known: Sequence[str]
) -> Iterator[str]:
    """Yield rules for each board: it gets the chat that it has read, if nothing is under way there."""
    for name in backend.boards:
        free = " ".join(
            f"{{ srv_conn({other_backend.name}/{name}) eq 0 }}"
            for other_backend in backends
            if name in other_backend.boards
        )
        for entry in known:
            yield f"use-server {name} if {{ {entry} eq {numbers[name]} }} {free}"


def _lines(lines: Sequence[str] | Iterator[str]) -> str:
    """Return the lines as they are in a section of the file."""
    return re.sub("^", "    ", "\n".join(lines), flags=re.MULTILINE)
