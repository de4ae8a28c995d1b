"""Approval of tool calls: which calls need it, who is asked, and how long a decision holds.

    stored "never" ─▶ refused      always_allow, harmless ─▶ run      already approved ─▶ run      else ─▶ ask

* ``risk`` classifies a call; ``approve`` and the configured tool names decide which calls need approval.
* An approval is valid for one fingerprint: when description, parameters, hints, program or URL change, the user is
  asked again, also for tools in ``always_allow``.
* "always" and "never" are stored; an approval for the conversation lasts until this process ends.
* Calls of one conversation are asked one at a time; a decision also applies to calls that wait behind it.
* Without a person to ask, a fixed decision applies and the model receives the remedy.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from rkllm_mcp.calling import CallContext, Decision, Standing
from rkllm_mcp.events import Approval
from rkllm_mcp.messages import ToolCall, ToolResult, ToolSpec
from rkllm_mcp.records import Grant, Grants, Ruling
from rkllm_mcp.tools.policy import Caller
from rkllm_mcp.tools.servers import ServerSpec
from rkllm_mcp.tools.trust.conversation_grants import ConversationGrants
from rkllm_mcp.tools.trust.danger import danger_of
from rkllm_mcp.tools.trust.reasons import Concern, Language, question_of, refusal_of, unanswered

# Conversation, server, wire name of the tool, fingerprint.
_Key: TypeAlias = tuple[str, str, str, str]


@dataclass(frozen=True)
class Verdict:
    """Decision about a call; ``refusal`` is empty if it may run, else the text for the model."""

    ruling: Ruling
    refusal: str = ""


@dataclass(frozen=True)
class _Question:
    """Approval request for a call, and the key under which a decision is stored."""

    concern: Concern
    reason: str
    key: _Key


class ShortMemory:
    """A ``Grants`` in memory, until the process ends."""

    def __init__(self) -> None:
        self._grants: dict[tuple[str, str], Grant] = {}

    async def find(self, server: str, tool: str) -> Grant | None:
        """Return the stored decision about a tool."""
        return self._grants.get((server, tool))

    def keep(self, server: str, tool: str, grant: Grant) -> None:
        """Store a decision about a tool, replacing the previous one."""
        self._grants[server, tool] = grant


class Approvals:
    """Decides about calls and asks the user where necessary.

    ``grants`` stores permanent decisions, ``conversations`` those for one conversation; ``language`` is the user's.
    """

    def __init__(self, grants: Grants | None = None, language: Language = "en") -> None:
        self.grants: Grants = grants or ShortMemory()
        self.language: Language = language
        self.conversations = ConversationGrants()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def rule(self, spec: ServerSpec, tool: ToolSpec, call: ToolCall, context: CallContext) -> Verdict:
        """Decide about a call; time spent waiting for the user is paused in ``context``."""
        known = await self._known(spec, tool, call, context)
        if isinstance(known, Verdict):
            return known
        with context.pause():
            return await self._ask(spec, tool, call, context)

    async def _ask(self, spec: ServerSpec, tool: ToolSpec, call: ToolCall, context: CallContext) -> Verdict:
        async with self._turn(context.conversation_id):
            # The decision about a call that was ahead in the queue may apply to this one.
            known = await self._known(spec, tool, call, context)
            if isinstance(known, Verdict):
                return known
            decision = await context.asker.approve(Approval(call.id, call.name, call.arguments, known.reason))
            self._note(decision, known.key)
        return _verdict(decision, call.name, known.concern, context)

    async def _known(
        self, spec: ServerSpec, tool: ToolSpec, call: ToolCall, context: CallContext
    ) -> Verdict | _Question:
        """Return the decision if it is known, else the question to ask."""
        name, fingerprint = tool.wire_name or tool.name, fingerprint_of(spec, tool)
        grant = await self.grants.find(spec.name, name)
        if grant is not None and grant.kind == "never":
            return Verdict("never", refusal_of(call.name, None, None))
        has_changed = grant is not None and grant.fingerprint != fingerprint
        must_ask = _matches(name, spec.always_ask)
        is_named = _matches(name, spec.always_allow) and not must_ask
        if is_named and grant is None:
            self.grants.keep(spec.name, name, Grant("configured", fingerprint))
        concern = _concern(spec, tool, call.arguments, is_unasked=is_named and not has_changed)
        if concern is None:
            return Verdict("free")
        if grant is not None and grant.kind == "always" and not has_changed and not must_ask:
            return Verdict("remembered")
        key = (context.conversation_id, spec.name, name, fingerprint)
        if self.conversations.allows(*key):
            return Verdict("conversation")
        reason = question_of(concern, spec.name, name, self.language, has_changed=has_changed)
        return _Question(concern, reason, key)

    def _note(self, decision: Decision | None, key: _Key) -> None:
        _, server, tool, fingerprint = key
        if decision in ("always", "never"):
            self.grants.keep(server, tool, Grant("always" if decision == "always" else "never", fingerprint))
        elif decision == "conversation":
            self.conversations.keep(*key)

    @asynccontextmanager
    async def _turn(self, conversation: str) -> AsyncGenerator[None, None]:
        """Serialise the questions of one conversation; calls without a conversation do not wait for each other."""
        lock = self._turns.get(conversation) if conversation else None
        if lock is None:
            lock = asyncio.Lock()
        self._turns[conversation] = lock
        async with lock:
            yield


@dataclass(frozen=True)
class Approved:
    """Runs a call once it is approved."""

    inner: Caller
    spec: ServerSpec
    approvals: Approvals

    async def call(self, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
        """Return the inner result, or the refusal; ``ruling`` records the decision."""
        verdict = await self.approvals.rule(self.spec, tool, call, context)
        if verdict.refusal:
            return ToolResult(call.id, call.name, verdict.refusal, is_error=True, ruling=verdict.ruling)
        return replace(await self.inner.call(tool, call, context), ruling=verdict.ruling)


def fingerprint_of(spec: ServerSpec, tool: ToolSpec) -> str:
    """Return a hash of the tool's definition and of the program or URL behind it, for which an approval is valid."""
    target = [spec.transport, spec.command, spec.args, spec.cwd, spec.url]
    definition = [tool.wire_name, tool.description, tool.input_schema, tool.read_only, tool.destructive]
    text = json.dumps([target, definition], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _concern(spec: ServerSpec, tool: ToolSpec, arguments: Mapping[str, Any], *, is_unasked: bool) -> Concern | None:
    """Return why a call needs approval; None if it needs none."""
    must_ask = _matches(tool.wire_name or tool.name, spec.always_ask)
    if is_unasked or (spec.approve == "never" and not must_ask):
        return None
    danger = danger_of(tool, arguments, trusted=spec.trusted)
    if danger is None and (must_ask or spec.approve == "always"):
        return "asked"
    return danger


def _verdict(decision: Decision | None, name: str, concern: Concern, context: CallContext) -> Verdict:
    if decision is None:
        return Verdict("refused", unanswered(name, concern))
    standing = context.asker if isinstance(context.asker, Standing) else None
    if decision in ("deny", "never"):
        ruling: Ruling = "refused" if standing else decision
        return Verdict(ruling, refusal_of(name, concern, standing.advice if standing else None))
    return Verdict("granted" if standing else decision)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)
