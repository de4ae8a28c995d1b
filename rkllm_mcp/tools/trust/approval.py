"""Calls that change things wait for a yes: which ones, who is asked, and how long an answer holds.

    never for good ─▶ refused      always_allow, harmless ─▶ run      already allowed ─▶ run      else ─▶ ask

Rules:
* What a tool may do is ``danger``'s business; ``approve`` and the lists of names say which of that needs a yes.
* A yes holds for one definition of a tool on one way to its server: when description, parameters, hints, program or
address change, it is asked again. That also holds for tools that the configuration allows by name.
* A yes or no for good is remembered in the owner's file; one for the conversation, until this process ends.
* In one conversation one question is asked at a time, and an answer counts for the calls that waited behind it.
* Where nobody can be asked, the standing answer counts and the model is told what the owner can do.
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

# Conversation, server, the server's name of the tool, fingerprint.
_Key: TypeAlias = tuple[str, str, str, str]


@dataclass(frozen=True)
class Verdict:
    """Whether a call may be made: ``refusal`` is empty when it may, else what the model is told."""

    ruling: Ruling
    refusal: str = ""


@dataclass(frozen=True)
class _Question:
    """What has to be asked about a call, and what an answer would be about."""

    concern: Concern
    reason: str
    key: _Key


class ShortMemory:
    """Remembers what was said for good until the process ends; a ``Grants``."""

    def __init__(self) -> None:
        self._grants: dict[tuple[str, str], Grant] = {}

    async def find(self, server: str, tool: str) -> Grant | None:
        """What was said about a tool."""
        return self._grants.get((server, tool))

    def keep(self, server: str, tool: str, grant: Grant) -> None:
        """Keep it in place of what was said before."""
        self._grants[server, tool] = grant


class Approvals:
    """Decides about calls, asking where it must.

    Args:
        grants: keeps what is said for good.
        language: in which a person is asked.

    Attributes:
        conversations: keeps what is said for one conversation.
    """

    def __init__(self, grants: Grants | None = None, language: Language = "en") -> None:
        self.grants: Grants = grants or ShortMemory()
        self.language: Language = language
        self.conversations = ConversationGrants()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def rule(self, spec: ServerSpec, tool: ToolSpec, call: ToolCall, context: CallContext) -> Verdict:
        """Decide about a call.

        Args:
            spec: the tool's server.
            tool: what is called.
            call: with which arguments.
            context: whose call it is, and who can be asked.
        """
        known = await self._known(spec, tool, call, context)
        if isinstance(known, Verdict):
            return known
        with context.pause():
            return await self._asked(spec, tool, call, context)

    async def _asked(self, spec: ServerSpec, tool: ToolSpec, call: ToolCall, context: CallContext) -> Verdict:
        async with self._turn(context.conversation_id):
            # What was said while this call waited for its turn may settle it.
            known = await self._known(spec, tool, call, context)
            if isinstance(known, Verdict):
                return known
            decision = await context.asker.approve(Approval(call.id, call.name, call.arguments, known.reason))
            self._note(decision, known.key)
        return _verdict(decision, call.name, known.concern, context)

    async def _known(
        self, spec: ServerSpec, tool: ToolSpec, call: ToolCall, context: CallContext
    ) -> Verdict | _Question:
        """The verdict where it stands already, else what has to be asked."""
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
        """One question of a conversation after the other; calls of none do not wait for each other."""
        lock = self._turns.get(conversation) if conversation else None
        if lock is None:
            lock = asyncio.Lock()
        self._turns[conversation] = lock
        async with lock:
            yield


@dataclass(frozen=True)
class Approved:
    """Lets a call through once it may be made.

    Args:
        inner: the way to the tool.
        spec: the tool's server.
        approvals: who decides.
    """

    inner: Caller
    spec: ServerSpec
    approvals: Approvals

    async def call(self, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
        """The inner result, or why it was not called; how that was decided is its ``ruling``."""
        verdict = await self.approvals.rule(self.spec, tool, call, context)
        if verdict.refusal:
            return ToolResult(call.id, call.name, verdict.refusal, is_error=True, ruling=verdict.ruling)
        return replace(await self.inner.call(tool, call, context), ruling=verdict.ruling)


def fingerprint_of(spec: ServerSpec, tool: ToolSpec) -> str:
    """What a yes was given for: the tool's definition, and the program or address behind it."""
    way = [spec.transport, spec.command, spec.args, spec.cwd, spec.url]
    definition = [tool.wire_name, tool.description, tool.input_schema, tool.read_only, tool.destructive]
    text = json.dumps([way, definition], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _concern(spec: ServerSpec, tool: ToolSpec, arguments: Mapping[str, Any], *, is_unasked: bool) -> Concern | None:
    """What is the matter with a call that a person has to know; None when it needs no yes."""
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
