"""Approval of tool calls and sampling: what needs one, who is asked, how long it holds; switches of tools."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from weakref import WeakValueDictionary

from rkllm_mcp.catalogue import read_catalogue, translate
from rkllm_mcp.config.servers import BuiltinServer, MCPServerConfig, ServerConfig, matches_any, target_of
from rkllm_mcp.events import Approval
from rkllm_mcp.messages import ApprovalOutcome, ToolCall, ToolSpec
from rkllm_mcp.protocols import CallContext, Decision, FixedApprover, SamplingRequest
from rkllm_mcp.records import StoredApproval, Switch
from rkllm_mcp.text import Language
from rkllm_mcp.toolcalls.repeated_calls import repeats_call
from rkllm_mcp.toolcalls.untrusted_text import on_one_line
from rkllm_mcp.tools.risk import Risk, is_known_to_read, risk_of

if TYPE_CHECKING:
    from rkllm_mcp.store.tables import ApprovalTable

Concern: TypeAlias = Risk | Literal["unknown", "asked", "repeated", "unreadable"]
# Key of the stored approval of sampling, next to those of tools; not a valid tool name.
_SAMPLING = ToolSpec("sampling/createMessage")


# A service runs for months and does not notice the end of a conversation; a dropped approval is asked again.
_MAX_GRANTS = 4096


# Conversation, server, wire name of the tool, fingerprint.
_Key: TypeAlias = tuple[str, str, str, str]


@dataclass(eq=False)
class ConversationGrants:
    """Approvals per conversation; the oldest are dropped first."""

    _allowed: dict[_Key, None] = field(default_factory=dict[_Key, None])

    def allows(self, conversation: str, server: str, tool: str, fingerprint: str) -> bool:
        """Return True if this tool with this fingerprint is approved in the conversation."""
        return (conversation, server, tool, fingerprint) in self._allowed

    def keep(self, conversation: str, server: str, tool: str, fingerprint: str) -> None:
        """Store an approval; without a conversation id nothing is stored."""
        if not conversation:
            return
        self._allowed[conversation, server, tool, fingerprint] = None
        while len(self._allowed) > _MAX_GRANTS:
            del self._allowed[next(iter(self._allowed))]

    def of(self, conversation: str) -> list[tuple[str, str]]:
        """Return server and tool of every approval of a conversation."""
        return sorted({(server, tool) for owner, server, tool, _ in self._allowed if owner == conversation})

    def forget(self, conversation: str, server: str, tool: str) -> None:
        """Revoke the approvals of a tool in a conversation."""
        revoked = (conversation, server, tool)
        self._allowed = {key: None for key in self._allowed if key[:3] != revoked}


class Switches:
    """Switches of a toolbox; ``keep`` stores changes and must not block or raise."""

    def __init__(
        self, remembered: Iterable[Switch] = (), keep: Callable[[Sequence[Switch]], None] | None = None
    ) -> None:
        self._states: dict[tuple[str, str], bool] = {}
        self._keep = keep
        self.replace(remembered)

    def replace(self, remembered: Iterable[Switch]) -> None:
        """Replace all switches by stored ones, which another process may have changed."""
        self._states = {(switch.server, switch.tool): bool(switch.is_on) for switch in remembered}

    def is_on(self, server: str, tool: str = "") -> bool:
        """Return True if a tool is enabled, given its wire name; without a name the server's own switch counts."""
        return self._states.get((server, tool), self._states.get((server, ""), True))

    def turn(self, server: str, tool: str = "", *, is_on: bool) -> None:
        """Enable or disable one tool; without a name, a server with all its present and future tools."""
        if tool:
            # A tool switch equal to the server's is dropped, so that the tool follows later changes of that one.
            changes = [Switch(server, tool, None if is_on == self.is_on(server) else is_on)]
        else:
            changes = [Switch(name, other, None) for name, other in self._states if name == server and other]
            changes.append(Switch(server, "", None if is_on else False))
        for change in changes:
            if change.is_on is None:
                self._states.pop((change.server, change.tool), None)
            else:
                self._states[change.server, change.tool] = change.is_on
        if self._keep is not None:
            self._keep(changes)


@dataclass(frozen=True)
class ApprovalVerdict:
    """Decision about a call; ``refusal`` is empty if it may run, else the text for the model, ``notice`` for people."""

    ruling: ApprovalOutcome
    refusal: str = ""
    notice: str = ""


@dataclass(frozen=True)
class _Question:
    """Approval request for a call, and the key under which a decision is stored."""

    concern: Concern
    key: _Key
    has_changed: bool = False  # the tool was allowed before under another definition

    def text(self, language: Language) -> str:
        """Return the words of the request."""
        _, server, tool, _ = self.key
        texts = read_catalogue(language)
        question = texts.table("approval.reasons")[self.concern].format(server=server, tool=on_one_line(tool))
        return f"{question}{texts.sentence('approval.changed')}" if self.has_changed else question


def _words_of_writing(spec: ServerConfig, tool: ToolSpec, call: ToolCall, language: Language) -> str:
    """Return the request for a file of our own folder: where it is, and if one is replaced; else an empty text."""
    path = call.arguments.get("path")
    if not (
        isinstance(spec, BuiltinServer) and spec.folder and tool.wire_name == "write_file" and isinstance(path, str)
    ):
        return ""
    is_there = os.path.lexists(spec.folder / path)
    texts = read_catalogue(language).table("approval.writing")
    return texts["replaces" if is_there else "new"].format(path=on_one_line(path), folder=spec.folder)


@dataclass(eq=False)
class RecentApprovals:
    """The decisions of an ``ApprovalTable`` in memory, until the process ends."""

    is_readable = True
    _grants: dict[tuple[str, str], StoredApproval] = field(default_factory=dict[tuple[str, str], StoredApproval])

    async def find(self, server: str, tool: str) -> StoredApproval | None:
        """Return the stored decision about a tool."""
        return self._grants.get((server, tool))

    def keep(self, server: str, tool: str, grant: StoredApproval) -> None:
        """Store a decision about a tool, replacing the previous one."""
        self._grants[server, tool] = grant


@dataclass(eq=False)
class Approvals:
    """Decides about calls and asks the user where necessary.

    ``grants`` stores permanent decisions, ``conversations`` those for one conversation; ``language`` is the user's.
    """

    grants: ApprovalTable | RecentApprovals = field(default_factory=RecentApprovals)
    language: Language = "en"
    conversations: ConversationGrants = field(default_factory=ConversationGrants)
    _turns: WeakValueDictionary[str, asyncio.Lock] = field(
        default_factory=WeakValueDictionary[str, "asyncio.Lock"], init=False
    )

    async def rule(self, spec: ServerConfig, tool: ToolSpec, call: ToolCall, context: CallContext) -> ApprovalVerdict:
        """Decide about a call; time spent waiting for the user is paused in ``context``."""
        if context.is_unattended:
            # What was allowed before counts for calls of people only.
            grant = await self.grants.find(spec.name, tool.original_name)
            if grant is not None and grant.kind == "never":
                return self._refuse("never", "never", call.name, "asked", context)
            concern = _concern(spec.model_copy(update={"approve": "writes"}), tool, call.arguments, is_unasked=False)
            if not self.grants.is_readable:
                concern = concern or "unreadable"
            if repeats_call(call, tool, context.untrusted_texts()):
                concern = "repeated"
            if concern is None:
                return ApprovalVerdict("free")
            key = (context.conversation_id, spec.name, tool.original_name, "")
            text = _Question(concern, key).text(context.language or self.language)
            decision = await context.asker.approve(Approval(call.id, call.name, call.arguments, text))
            return self._verdict(decision, call.name, concern, context)
        outcome = await self._rule_without_asking(spec, tool, call, context)
        if isinstance(outcome, ApprovalVerdict):
            return outcome
        with context.pause():
            language = context.language or self.language
            # Questions of one conversation wait for each other; calls without a conversation do not.
            conversation = context.conversation_id
            turn = (self._turns.get(conversation) if conversation else None) or asyncio.Lock()
            self._turns[conversation] = turn
            async with turn:
                # The decision about a call that was ahead in the queue may apply to this one.
                outcome = await self._rule_without_asking(spec, tool, call, context)
                if isinstance(outcome, ApprovalVerdict):
                    return outcome
                is_usual = outcome.concern == "delete" and not outcome.has_changed
                words = _words_of_writing(spec, tool, call, language) if is_usual else ""
                question = Approval(call.id, call.name, call.arguments, words or outcome.text(language))
                decision = await context.asker.approve(question)
                # An approval of a repeated call is one of this call only.
                if outcome.concern != "repeated" or decision == "never":
                    self._store_decision(decision, outcome.key)
            return self._verdict(decision, call.name, outcome.concern, context)

    async def approve_sampling(self, spec: MCPServerConfig, request: SamplingRequest, context: CallContext) -> bool:
        """Return True if a server may ask the model during a call; stored decisions survive the server's restart."""
        if spec.sampling == "allow":
            return True
        fingerprint = fingerprint_of(spec, _SAMPLING)
        key = (context.conversation_id, spec.name, _SAMPLING.name, fingerprint)
        grant = await self.grants.find(spec.name, _SAMPLING.name)
        if grant is not None and grant.kind == "never":
            return False
        if (grant is not None and grant.fingerprint == fingerprint) or self.conversations.allows(*key):
            return True
        decision = await context.asker.approve(
            Approval(
                id="",
                name=f"sampling:{request.server}",
                arguments={
                    **({"system": request.system} if request.system else {}),
                    "messages": [
                        {"role": message.role, "text": message.text}
                        | ({"pictures": len(message.pictures)} if message.pictures else {})
                        for message in request.messages
                    ],
                    "max_tokens": request.max_tokens,
                },
                reason=translate("approval.sampling", (context.language or self.language), server=request.server),
            )
        )
        self._store_decision(decision, key)
        return decision not in (None, "deny", "never")

    async def _rule_without_asking(
        self, spec: ServerConfig, tool: ToolSpec, call: ToolCall, context: CallContext
    ) -> ApprovalVerdict | _Question:
        """Return the decision if it is known, else the question to ask."""
        name, fingerprint = tool.original_name, fingerprint_of(spec, tool)
        grant = await self.grants.find(spec.name, name)
        if grant is not None and grant.kind == "never":
            return self._refuse("never", "never", call.name, "asked", context)
        key = (context.conversation_id, spec.name, name, fingerprint)
        if repeats_call(call, tool, context.untrusted_texts()):
            return _Question("repeated", key)
        has_changed = grant is not None and grant.fingerprint != fingerprint
        must_ask = matches_any(name, spec.always_ask)
        is_named = matches_any(name, spec.always_allow) and not must_ask
        if is_named and grant is None:
            self.grants.keep(spec.name, name, StoredApproval("configured", fingerprint))
        concern = _concern(spec, tool, call.arguments, is_unasked=is_named and not has_changed)
        if not self.grants.is_readable:
            # A refusal of this tool may be among the decisions that are lost.
            concern = concern or "unreadable"
        if concern is None:
            return ApprovalVerdict("free")
        if grant is not None and grant.kind == "always" and not has_changed and not must_ask:
            return ApprovalVerdict("remembered")
        if self.conversations.allows(*key):
            return ApprovalVerdict("conversation")
        return _Question(concern, key, has_changed)

    def _verdict(self, decision: Decision | None, name: str, concern: Concern, context: CallContext) -> ApprovalVerdict:
        if decision is None:
            return self._refuse("refused", "late", name, concern, context)
        approver = context.asker if isinstance(context.asker, FixedApprover) else None
        if decision in ("deny", "never") and approver:
            return self._refuse("refused", "refused", name, concern, context, approver.advice)
        if decision in ("deny", "never"):
            return self._refuse(decision, "deny", name, concern, context)
        return ApprovalVerdict("granted" if approver else decision)

    def _refuse(
        self, ruling: ApprovalOutcome, why: str, name: str, concern: Concern, context: CallContext, advice: str = ""
    ) -> ApprovalVerdict:
        """Return the verdict on a call that is not run; ``advice`` is the remedy for the owner.

        The model reads it in the language of the configuration, as it does other instructions.
        """
        remedy = f" {advice}" if advice else ""
        fact, message = (
            texts.table("approval.refusals")[why].format(name=name, effect=texts.table("approval.effects")[concern])
            for texts in map(read_catalogue, (self.language, context.language or self.language))
        )
        instruction = read_catalogue(self.language).table("model.refusals")[why]
        return ApprovalVerdict(ruling, f"{fact}{instruction}{remedy}", f"{message}{remedy}")

    def _store_decision(self, decision: Decision | None, key: _Key) -> None:
        _, server, tool, fingerprint = key
        if decision in ("always", "never"):
            self.grants.keep(server, tool, StoredApproval("always" if decision == "always" else "never", fingerprint))
        elif decision == "conversation":
            self.conversations.keep(*key)


def fingerprint_of(spec: ServerConfig, tool: ToolSpec) -> str:
    """Return a hash of the tool's definition and of the program or URL after it, for which an approval is valid."""
    definition = [tool.wire_name, tool.description, tool.input_schema, tool.read_only, tool.destructive]
    definition += [tool.texts] if tool.texts else []
    target = [*target_of(spec), *([tool.target] if tool.target else [])]
    text = json.dumps([target, definition], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _concern(spec: ServerConfig, tool: ToolSpec, arguments: Mapping[str, Any], *, is_unasked: bool) -> Concern | None:
    """Return why a call needs approval; None if it needs none."""
    must_ask = matches_any(tool.original_name, spec.always_ask)
    if is_unasked or (spec.approve == "never" and not must_ask):
        return None
    trusted = bool(spec.trusted)
    risk = risk_of(tool, arguments, trusted=trusted)
    if risk is None and (must_ask or spec.approve == "always"):
        return "asked"
    if risk is None and spec.approve != "dangerous" and not is_known_to_read(tool, arguments, trusted=trusted):
        return "unknown"
    return risk


def newly_asked(spec: ServerConfig, tools: Iterable[ToolSpec]) -> list[str]:
    """Return the wire names of tools that need approval under ``"writes"`` but did not under ``"dangerous"``."""
    names = ((tool.original_name, tool) for tool in tools)
    return [
        name
        for name, tool in names
        if _concern(spec, tool, {}, is_unasked=matches_any(name, spec.always_allow)) == "unknown"
    ]
