"""``execute_call``: every policy of one tool call, in order."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import anyio

from rkllm_base.json_values import is_long
from rkllm_mcp.catalogue import translate
from rkllm_mcp.config import secrets
from rkllm_mcp.config.header_templates import redact
from rkllm_mcp.config.servers import ServerConfig, is_own
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.messages import ANSWER, ERROR, TEXTS, ToolCall, ToolResult, ToolSpec, as_list, as_mapping
from rkllm_mcp.protocols import CallContext, Deadline
from rkllm_mcp.records import CallRecord, CallRecorder
from rkllm_mcp.tasks import run_costly
from rkllm_mcp.text import Language, first_line, shorten
from rkllm_mcp.toolcalls.results import cut, paging_arguments, pictures_of, result_text, sources_of
from rkllm_mcp.toolcalls.untrusted_text import without_invisible
from rkllm_mcp.tools.approvals import Approvals, Switches

RESULT_CHARS = 4000
# Enough to identify a call, without storing whole files that a call wrote.
_ARGUMENT_CHARS = 2000
_ERROR_CHARS = 300
# Of the text for people in an error result.
_NOTICE_CHARS = 2000
_REQUEST_CHARS = 500
_MOST_NAME_CHARS = 80
# The part of a result, in times of what is shown, of which invisible characters are removed before it is cut.
_CLEANED = 10
_STOPPED = "cancelled before it finished"


@dataclass(frozen=True)
class ExecutionPolicies:
    """Policies of all calls of a toolbox."""

    approvals: Approvals | None = None  # None: every call is allowed
    recorder: CallRecorder | None = None  # None: calls are not recorded
    switches: Switches = field(default_factory=Switches)
    result_chars: int = RESULT_CHARS  # longer results are truncated
    escape_description: Callable[[str], str] = str  # escapes call markup in tool descriptions
    language: Language = "en"  # of status lines


class CallableServer(Protocol):
    """The part of a ``ToolServer`` that runs calls."""

    @property
    def spec(self) -> ServerConfig:
        """Settings of the server."""
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any], context: CallContext = ...) -> dict[str, Any]:
        """Call a tool by the server's own name; return the JSON of a ``tools/call`` result.

        Raises:
            ServerUnavailableError: the server is not available, or was lost during the call.
        """
        ...


async def execute_call(
    server: CallableServer,
    tool: ToolSpec,
    call: ToolCall,
    context: CallContext,
    policies: ExecutionPolicies,
    *,
    foreign_tokens: frozenset[str] = frozenset(),
    is_current: Callable[[], bool] = lambda: True,
    clock: Callable[[], float] = time.time,
    now: Callable[[], float] = anyio.current_time,
) -> ToolResult:
    """Run one call; every failure is an error result, only cancellation is raised.

    The server checks the arguments: an MCP server its own way, a server of this process when it is called.
    ``foreign_tokens`` names the tokens of other servers, and ``is_current`` returns False if the tool has changed since
    it was approved.
    """
    watch = Deadline(now=now)
    watched = watch.within(context)
    result = ToolResult(call.id, call.name, _STOPPED, is_error=True, ruling="stopped")
    fact = f"Tool '{call.name}' is switched off"
    off = ToolResult(call.id, call.name, f"{fact}; answer without it.", is_error=True, ruling="off", notice=f"{fact}.")
    try:
        if not policies.switches.is_on(tool.server, tool.wire_name):
            result = off
            return result
        ruling = ""
        if policies.approvals is not None:
            # Before any clock starts: a person may take an hour.
            verdict = await policies.approvals.rule(server.spec, tool, call, watched)
            if verdict.refusal:
                refused = ToolResult(call.id, call.name, verdict.refusal, is_error=True)
                result = replace(refused, ruling=verdict.ruling, notice=verdict.notice)
                return result
            ruling = verdict.ruling
            # A person may have taken an hour.
            if not policies.switches.is_on(tool.server, tool.wire_name):
                result = off
                return result
            if not is_current():
                notice = f"Tool '{call.name}' was changed by its server while you were asked, so it was not called."
                changed = f"Tool '{call.name}' was changed by its server and not called"
                text = f"{changed}; look at its definition and call it again."
                result = ToolResult(call.id, call.name, text, is_error=True, ruling="refused", notice=notice)
                return result
        context.announce()
        call_watch = Deadline(now=now)
        # Without the tokens of other servers: an OpenAPI document could ask for any of them.
        tokens = {name: token for name, token in watched.tokens.items() if name not in foreign_tokens}
        received = await call_within_limit(server, tool, call, replace(call_watch.within(watched), tokens=tokens))
        seconds = call_watch.elapsed_s
        # Cleaning takes time for each character, and a model is shown the beginning.
        beginning = received.text[: _CLEANED * policies.result_chars]
        visible, _ = without_invisible(beginning)
        rest_chars = len(received.text) - len(beginning)
        text, truncated = cut(visible, policies.result_chars, paging_arguments(tool.input_schema), rest_chars)
        result = replace(received, text=text, truncated=truncated, seconds=seconds, ruling=ruling)
        return result
    finally:
        # Also if cancelled: the call may already have had its effect.
        if policies.recorder is not None:
            timed_result = replace(result, seconds=watch.elapsed_s) if result.ruling == "stopped" else result
            policies.recorder(call_record(tool, call, context, timed_result, clock()))


async def call_within_limit(server: CallableServer, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
    """Call the server; cancel the call after the server's ``timeout_s``, the connection stays usable.

    Time spent waiting for a person or for the host's model is not counted. A timeout and a server that is not available
    are error results.
    """
    timeout_s = server.spec.timeout_s
    deadline = Deadline(timeout_s, anyio.current_time)
    with deadline.bind(anyio.CancelScope()):
        try:
            received = await server.call(tool.original_name, call.arguments, deadline.within(context))
        except ServerUnavailableError as error:
            return ToolResult(call.id, call.name, str(error), is_error=True)
        read = partial(_as_result, call, received, context.language or "", is_own=is_own(server.spec))
        return await run_costly(read) if is_long(received) else read()
    text = f"Tool '{call.name}' did not answer within {timeout_s:g} s and was stopped."
    return ToolResult(call.id, call.name, text, is_error=True)


def _as_result(call: ToolCall, received: Mapping[str, Any], language: str, *, is_own: bool) -> ToolResult:
    sources = sources_of(received)
    # Servers report a search without results as an error or not; it has not failed.
    is_error = bool(received.get("isError")) and sources != ()
    meta = as_mapping(received.get("_meta"))
    is_answer = is_own and not is_error and meta.get(ANSWER) is True
    # A sentence for a person is the whole answer; its figures as JSON are for programs.
    text = result_text({"content": received.get("content")} if is_answer else received)
    pictures = pictures_of(received)
    # A person reads the server's text in the own language, if it has one; the model reads the content.
    texts = as_mapping(meta.get(TEXTS))
    line = as_mapping(texts.get(language)).get("text")
    if is_own and is_error and line is None:
        reported = as_mapping(meta.get(ERROR))
        if reported.get("kind") == "not_found":
            names = ", ".join(map(str, as_list(reported.get("suggestions"))))
            key = "answer.other_there" if names else "answer.not_there"
            what = shorten(str(reported.get("what", "")), _MOST_NAME_CHARS)
            line = translate(key, "ja" if language == "ja" else "en", what=what, names=names)
    if is_own and is_error and isinstance(line, str):
        text = line  # in one language
    notice = without_invisible(line[:_NOTICE_CHARS])[0] if is_error and isinstance(line, str) else ""
    return ToolResult(
        call.id, call.name, text, is_error, pictures=pictures, notice=notice, sources=sources, is_answer=is_answer
    )


def call_record(tool: ToolSpec, call: ToolCall, context: CallContext, result: ToolResult, at: float) -> CallRecord:
    """Return the redacted and truncated record of a call that ended ``at`` seconds since 1970."""
    tokens = tuple(context.tokens.values())
    reason = first_line(result.shown) if result.is_error else ""
    public = secrets.redact_config(dict(call.arguments))
    arguments = json.dumps(public, ensure_ascii=False, separators=(",", ":"), default=str)
    return CallRecord(
        at=at,
        server=tool.server,
        tool=tool.original_name,
        arguments=redact(arguments.encode("utf-8", "replace").decode("utf-8"), tokens)[:_ARGUMENT_CHARS],
        ruling=result.ruling or "free",
        is_error=result.is_error,
        error=redact(secrets.redacted_text(reason), tokens)[:_ERROR_CHARS],
        result_chars=len(result.text),
        seconds=round(result.seconds, 3),
        conversation=context.conversation_id,
        request=redact(secrets.redacted_text(context.request), tokens)[:_REQUEST_CHARS],
    )
