"""What every route may use: the tenants, the queue, open conversations, quotas, and whether the service is ready.

``service_of(request)`` and ``tenant_of(request)`` are how a handler gets there; the gate has put the caller's tenant
and key into ``request.state`` before. The configuration is looked up anew for each request, since it may be exchanged
while the service runs.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import anyio
from starlette.requests import Request

from rkllm_mcp.completions.conversation_cache import ConversationCache, evict_fairly
from rkllm_mcp.completions.structured_output import SchemaCheck
from rkllm_mcp.errors import PromptTooLongError, QueueFullError, SchedulerClosedError, StoreError
from rkllm_mcp.messages import Conversation
from rkllm_mcp.surfaces.boards import ModelT, models_of, named_boards
from rkllm_mcp.surfaces.http.admission import Admission, HeldBody
from rkllm_mcp.surfaces.http.errors import RETRY_AFTER_S, HTTPError, problem_of
from rkllm_mcp.surfaces.http.metrics import Metrics, Traces
from rkllm_mcp.surfaces.http.open_keys import OpenKeys
from rkllm_mcp.surfaces.http.running_answers import RunningAnswers
from rkllm_mcp.surfaces.invitations import Invitations

if TYPE_CHECKING:
    from rkllm_mcp.app.assistant import App
    from rkllm_mcp.app.environment import ModelHost
    from rkllm_mcp.app.tenants import Tenant, Tenants
    from rkllm_mcp.config.sections import Config
    from rkllm_mcp.events import Usage

MEBIBYTE = 2**20
OWNER = ""
# Where in its scope the server's ``send`` stands: its wrappers look at the start of an answer alone, so the parts of a
# stream go past them.
SERVER_SEND = "rkllm_mcp.send"
# Where in its scope the room stands that a request's body takes, until the request is over.
HELD_BODY = "rkllm_mcp.held_body"
# A second of the processor costs as many tokens of a quota as the NPU would write in it.
TOKENS_PER_CPU_S = 10
# The header in which a proxy tells the board its name (rkllm-mcp boards haproxy).
_BOARD = "X-Board"
_BOARD_NAME = re.compile(r"[A-Za-z0-9-]{1,32}")
_MOST_TESTS = 2
_MOST_SPEECH = 2
_SOUND = "sound:"
# The model keeps the token ids of each (providers.rkllm); one more conversation costs some kilobytes, unless its texts
# are longer than all are together.
KEPT = 64
CHARACTERS_KEPT = 8_000_000

T = TypeVar("T")


@dataclass(eq=False)
class OpenConversations:
    """The open conversations of a service by tenant and id, with a limit on their number.

    One in memory has the generated token ids, so its next question prefills only new text; a restored one is read from
    its messages. If too many are open, the tenant with the most loses the one used longest ago that no answer runs in.
    """

    most_open: int = KEPT
    _open: OrderedDict[tuple[str, str], tuple[App, Conversation]] = field(
        default_factory=OrderedDict[tuple[str, str], "tuple[App, Conversation]"], init=False
    )

    def __len__(self) -> int:
        return len(self._open)

    async def find(self, app: App, conversation_id: str) -> Conversation | None:
        """Return an open or stored conversation; None if this tenant has none with this id.

        A StoreError while another board may still have to save it.
        """
        # One id asked for by two requests at once must come to one conversation, so it is looked for again.
        if (opened := self.get_open(app, conversation_id)) is not None:
            is_resting = opened.draft is None and not opened.unkept and not app.answers.is_making(opened.id)
            is_current = True
            if app.store.is_shared and is_resting and opened.kept_turns:
                # It may have gone on at another board meanwhile.
                with suppress(StoreError):
                    is_current = await app.store.conversations.is_current(app.tenant, opened)
            if is_current:
                return opened
        stored = await app.store.conversations.get(app.tenant, conversation_id)
        if stored is None and opened is None and (error := app.store.shared.catching_up) is not None:
            raise error
        if stored is None:
            return opened
        if opened is not None and self.get_open(app, conversation_id) is opened:
            self.drop(app, conversation_id)
        return self.get_open(app, conversation_id) or self.put(app, app.resume(stored))

    def put(self, app: App, conversation: Conversation) -> Conversation:
        """Keep a conversation open, the latest of all; what is too many or too long then is dropped."""
        self._open[app.tenant, conversation.id] = (app, conversation)
        self._open.move_to_end((app.tenant, conversation.id))
        while True:
            opened = list(self._open.values())
            are_too_many = len(opened) > self.most_open
            sizes: list[int] = []
            for _, each in opened:
                size = 0
                for message in each.messages:
                    size += len(message.text) + len(message.thinking) + len(message.context)
                    size += sum(len(result.text) for result in message.results)
                    # A byte of a picture takes as much memory as a character.
                    size += sum(len(picture.data) for picture in message.all_pictures)
                sizes.append(1 if are_too_many else size)
            if not are_too_many and (len(opened) < 2 or sum(sizes) <= CHARACTERS_KEPT):
                return conversation
            candidates = [(owner, each, size) for (owner, each), size in zip(opened, sizes, strict=True)]
            # A draft is that of an answer that waits or runs.
            resting = [
                candidate
                for candidate in candidates
                if candidate[1].draft is None and not candidate[0].answers.is_making(candidate[1].id)
            ] or candidates
            owner, given_up, _ = resting[evict_fairly([(owner.tenant, size) for owner, _, size in resting])]
            # The latest one stays, however long it is.
            if not are_too_many and given_up.id == conversation.id:
                return conversation
            self.drop(owner, given_up.id)

    def ids_of(self, app: App) -> list[str]:
        """Return the ids of a tenant's open conversations."""
        return [opened for tenant, opened in self._open if tenant == app.tenant]

    def drop(self, app: App, conversation_id: str) -> bool:
        """Forget a conversation; False when it was not open."""
        if self._open.pop((app.tenant, conversation_id), None) is None:
            return False
        app.model_host.chat_model.forget(conversation_id)
        return True

    def get_open(self, app: App, conversation_id: str) -> Conversation | None:
        """Return an open conversation, if there is one of this id; it counts as used."""
        entry = self._open.get((app.tenant, conversation_id))
        if entry is None:
            return None
        self._open.move_to_end((app.tenant, conversation_id))
        return entry[1]


@dataclass(eq=False)
class Quota:
    """Daily quotas of all tenants: tokens, and seconds of sound."""

    # By tenant and day: tokens counted in this process; of sound, its seconds, where the day begins with _SOUND.
    _spent_of_day: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]], init=False)
    # By tenant: parts of a token that its work has cost.
    _fractions: defaultdict[str, float] = field(default_factory=lambda: defaultdict[str, float](float), init=False)

    def limit(self, tenant: Tenant) -> int | None:
        """Return a tenant's tokens per day; None without a limit."""
        return tenant.section.daily_tokens if tenant.section else None

    async def check(self, tenant: Tenant, *, with_sound: bool = False) -> None:
        """Refuse a tenant that has no tokens left today, with 429 and the time until midnight.

        ``with_sound``: also one that has no seconds of sound left.
        """
        limit, message, code = self.limit(tenant), "", ""
        most_s = tenant.section.daily_audio_s if with_sound and tenant.section else None
        if limit is not None and await self._add(tenant) >= limit:
            message = f"the {limit} tokens of today are used up; ask again tomorrow, or have daily_tokens raised"
            code = "daily_tokens_exceeded"
        elif most_s is not None and await self._add(tenant, is_sound=True) >= most_s:
            message = f"the {most_s} s of sound of today are used up; ask again tomorrow, or have daily_audio_s raised"
            code = "daily_audio_exceeded"
        if message:
            now = datetime.now().astimezone()
            midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
            raise HTTPError(429, message, code=code, retry_after_s=(midnight - now).total_seconds())

    async def spend_sound(self, tenant: Tenant, seconds: float) -> None:
        """A recording or an answer that is spoken has so many seconds; parts of one count as a whole."""
        if tenant.section and tenant.section.daily_audio_s is not None:
            await self._add(tenant, math.ceil(seconds), is_sound=True)

    async def spend(self, tenant: Tenant, tokens: int) -> None:
        """An answer has cost so many tokens."""
        if self.limit(tenant) is not None:
            await self._add(tenant, tokens)

    async def spend_time(self, tenant: Tenant, seconds: float) -> None:
        """Work for a tenant has taken so many seconds of the processor."""
        if self.limit(tenant) is None:
            return
        tokens, self._fractions[tenant.name] = divmod(self._fractions[tenant.name] + seconds * TOKENS_PER_CPU_S, 1.0)
        if tokens:
            await self._add(tenant, int(tokens))

    async def _add(self, tenant: Tenant, count: int = 0, *, is_sound: bool = False) -> int:
        day = f"{_SOUND if is_sound else ''}{datetime.now().date().isoformat()}"
        key = (tenant.name, day)
        self._spent_of_day[key] += count
        # Where nothing can be remembered the owner has been told so, and what is known here has to do.
        with suppress(StoreError):
            total = await tenant.app.store.tally.add(day, count)
            self._spent_of_day[key] = max(self._spent_of_day[key], total)
        return self._spent_of_day[key]


# A rate is told of so many rounds, and of none that was shorter than this: those are mostly fixed cost.
ROUNDS = 8
TELLING_TOKENS = 8


@dataclass
class UsageTotals:
    """The sums of what the runtime reported, and the rates of the latest rounds that had work enough to tell."""

    prefilled_tokens: int = 0  # evaluated
    reused_tokens: int = 0  # found in the KV cache
    generated_tokens: int = 0  # written
    prefill_tps: float | None = None  # prefilled tokens per second; None before the first round
    decode_tps: float | None = None  # generated tokens per second; None before the first round
    _prefills: deque[tuple[int, float]] = field(default_factory=lambda: deque[tuple[int, float]](maxlen=ROUNDS))
    _decodes: deque[tuple[int, float]] = field(default_factory=lambda: deque[tuple[int, float]](maxlen=ROUNDS))

    def take(self, usage: Usage) -> None:
        """A round has ended."""
        self.prefilled_tokens += usage.prefilled_tokens
        self.reused_tokens += usage.cached_tokens
        self.generated_tokens += usage.generated_tokens
        if usage.prefilled_tokens >= TELLING_TOKENS and usage.prefill_ms > 0:
            self._prefills.append((usage.prefilled_tokens, usage.prefill_ms))
            self.prefill_tps = _rate(self._prefills)
        if usage.generated_tokens >= TELLING_TOKENS and usage.decode_ms > 0:
            self._decodes.append((usage.generated_tokens, usage.decode_ms))
            self.decode_tps = _rate(self._decodes)


def _rate(rounds: deque[tuple[int, float]]) -> float:
    milliseconds = sum(duration for _, duration in rounds)
    return round(sum(tokens for tokens, _ in rounds) / milliseconds * 1000, 2)


@dataclass
class ServiceState:
    """A running service."""

    tenants: Tenants  # the model, all assistants and the queue before the NPU
    is_draining: bool = False  # no new answers; the service ends after the running ones
    terminal_key: str = ""  # key of the owner for commands of this machine; empty for none
    config_file: Path | None = None  # the file that servers are added to; None if none exists
    reload: Callable[[], Awaitable[object]] | None = None  # puts the configuration as it is now in force
    # Servers that are added, one by one, and that are tested at once, each of which may be a program.
    adding: anyio.Lock = field(default_factory=anyio.Lock)
    testing: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(_MOST_TESTS))
    # Programs for speech compute on the same processor as the answer; further requests wait for their turn.
    speech: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(_MOST_SPEECH))
    started: float = field(default_factory=time.monotonic)  # start on the monotonic clock, seconds
    started_unix: float = field(default_factory=time.time)  # start as Unix time, seconds
    # conversations of clients that send the whole conversation with each request
    conversation_cache: ConversationCache = field(default_factory=ConversationCache)
    schemas: SchemaCheck = field(default_factory=SchemaCheck)  # valid schemas of response_format
    open_conversations: OpenConversations = field(default_factory=OpenConversations)  # open conversations
    answers: RunningAnswers = field(default_factory=RunningAnswers)  # running answers of conversations
    # usage of answers since the start: of each tenant, and of all for the owner
    usage: dict[str, UsageTotals] = field(default_factory=lambda: defaultdict(UsageTotals))
    quota: Quota = field(default_factory=Quota)  # daily quotas
    admission: Admission = field(default_factory=Admission)  # memory and processor time of requests
    invitations: Invitations = field(default_factory=Invitations)  # of boards that join
    boards_listed_at: float = 0.0  # when the latest list of boards was made that another board sent, Unix time
    open_keys: OpenKeys = field(default_factory=OpenKeys)  # keys of open requests
    metrics: Metrics = field(default_factory=Metrics)  # counters for Prometheus
    traces: Traces = field(default_factory=Traces)  # spans for OpenTelemetry

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.tenants.config

    @property
    def model_host(self) -> ModelHost:
        """The model that answers; see ``Tenants.model_host``."""
        return self.tenants.model_host

    @property
    def body_limit(self) -> int:
        """The longest body of a request, bytes."""
        return self.config.service.body_mb * MEBIBYTE

    def check_ready(self, *, may_load: bool = False) -> None:
        """Refuse an answer that cannot begin now, with 503; with ``may_load`` a loading model is not a reason."""
        if self.is_draining:
            raise problem_of(SchedulerClosedError())
        if (failure := self.tenants.failure) is not None:
            raise problem_of(failure)
        if not (may_load or self.tenants.is_ready):
            raise HTTPError(503, "the model is being loaded; ask again in a moment", retry_after_s=RETRY_AFTER_S)


def service_of(request: Request) -> ServiceState:
    """The service that a request came to."""
    service: ServiceState = request.app.state.service
    return service


def tenant_of(request: Request) -> Tenant:
    """Return the caller's tenant with its assistant and the rights of the key; see ``Tenants.tenant``."""
    return replace(service_of(request).tenants.tenant(request.state.tenant), rights=request.state.rights)


async def hold_body(request: Request, size: int, limit: int) -> HeldBody:
    """Return the room for the body of a request; the middleware gives it back when the request is over.

    Raises:
        HTTPError: 429, none exists.
    """
    admission = service_of(request).admission
    try:
        lease = await admission.hold(request.state.key, size, limit)
    except QueueFullError:
        message = "too many large requests of this key are under way; wait for their answers, or send fewer at once"
        raise HTTPError(429, message, retry_after_s=RETRY_AFTER_S) from None
    request.scope[HELD_BODY] = lease
    return lease


async def run_work(request: Request, function: Callable[..., T], *arguments: Any) -> T:
    """Return the result of ``function``, run in a thread in the turn of the request's key.

    Everything whose cost a client chooses goes this way, in pieces where it may take long: see
    ``surfaces.http.admission``. Its time is counted against the tenant's tokens of the day.
    """
    service = service_of(request)
    is_owners: bool = getattr(request.state, "is_own", False)
    result, seconds = await service.admission.run(request.state.key, partial(function, *arguments), is_owners=is_owners)
    # The owner has no quota, nor has a request without a key where none is needed.
    if request.state.tenant:
        await service.quota.spend_time(tenant_of(request), seconds)
    return result


def check_length(request: Request, text: str, param: str) -> None:
    """Refuse a text that is certainly too long for the model, without counting its tokens.

    Raises:
        HTTPError: 400.
    """
    model_host = service_of(request).model_host
    if model_host.npu is None or chosen_model(request) not in ("", model_host.name):
        return
    least = len(text) // model_host.npu.form.tokenizer.longest_token_chars
    if least > (limit := model_host.listing.context_tokens):
        problem = problem_of(PromptTooLongError(least, limit, is_partial=True))
        raise replace(problem, param=param)


def id_prefix(request: Request) -> str:
    """Return ``NAME.`` for ids by which a proxy finds this board again; empty where no proxy names the board."""
    name = request.headers.get(_BOARD, "")
    return f"{name}." if _BOARD_NAME.fullmatch(name) else ""


def caller_headers(request: Request) -> dict[str, str]:
    """Return the headers by which another board knows the caller of a request."""
    return {name: request.headers[name] for name in ("authorization", "x-api-key") if name in request.headers}


async def lists_elsewhere(request: Request, path: str, field: str, entry: type[ModelT]) -> Mapping[str, list[ModelT]]:
    """Return the entries of the same list at each other board, for a request that came through the proxy."""
    board_name = id_prefix(request).removesuffix(".")
    config = service_of(request).config
    if not board_name or not config.boards:
        return {}
    other_boards = {name: board for name, board in named_boards(config).items() if name != board_name}
    secret = config.service.boards_secret
    return await models_of(other_boards, path, field, entry, caller_headers(request), secret)


def chosen_model(request: Request) -> str:
    """Return the model that a request chose with ``surfaces.http.models.choose_model``; empty for the loaded one."""
    return getattr(request.state, "model", "")


def model_header(request: Request) -> dict[str, str]:
    """Return the header of an answer that names its model; the board is named by its proxy."""
    name = chosen_model(request) or service_of(request).model_host.name
    return {"X-Model": quote(name, safe=" :/@+")}
