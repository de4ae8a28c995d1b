"""Approval of tool calls and sampling: what needs one, who is asked, how long it holds; switches of tools."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias
from weakref import WeakValueDictionary

from rkllm_mcp.config.servers import MCPServerConfig, ServerConfig, target_of
from rkllm_mcp.events import Approval
from rkllm_mcp.generation import Language
from rkllm_mcp.messages import ApprovalOutcome, ToolCall, ToolSpec
from rkllm_mcp.protocols import CallContext, Decision, FixedApprover, SamplingRequest
from rkllm_mcp.records import ApprovalStore, StoredApproval, Switch
from rkllm_mcp.toolcalls.untrusted_text import on_one_line, repeats_call
from rkllm_mcp.tools.risk import Risk, is_known_to_read, risk_of

Concern: TypeAlias = Risk | Literal["unknown", "asked", "repeated"]
_REASONS: Mapping[Language, Mapping[Concern, str]] = {
    "en": {
        "delete": "Warning: '{tool}' of server '{server}' deletes or overwrites something. This may be irreversible.",
        "execute": "Warning: '{tool}' of server '{server}' runs a program or a command, with all permissions of that "
        "server on its machine.",
        "send": "'{tool}' of server '{server}' sends, publishes or orders something. This cannot be undone.",
        "change": "'{tool}' of server '{server}' changes something.",
        "unknown": "'{tool}' of server '{server}' may change something: it is not known to be read-only.",
        "asked": "The configuration requires approval for '{tool}' of server '{server}'.",
        "repeated": "Warning: this call of '{tool}' of server '{server}' stands word for word in a text from outside "
        "(a tool result, a resource or a server's prompt). Allow it only if you want it yourself.",
    },
    "ja": {
        "delete": "警告: サーバー「{server}」の「{tool}」は削除や上書きを行います。元に戻せないことがあります。",
        "execute": "警告: サーバー「{server}」の「{tool}」は、そのサーバーの権限でプログラムやコマンドを実行します。",
        "send": "サーバー「{server}」の「{tool}」は送信・公開・注文などを行います。取り消せません。",
        "change": "サーバー「{server}」の「{tool}」はデータや設定などを変更します。",
        "unknown": "サーバー「{server}」の「{tool}」は何かを変更する可能性があります（読み取り専用と確認できません）。",
        "asked": "設定により、サーバー「{server}」の「{tool}」の呼び出しには承認が必要です。",
        "repeated": "警告: サーバー「{server}」の「{tool}」のこの呼び出しは、外部の文章（ツールの結果、リソース、"
        "サーバーのプロンプト）にそのまま書かれていたものです。ご自身が望む場合だけ許可してください。",
    },
}
_CHANGED: Mapping[Language, str] = {
    "en": " The server has changed the definition of this tool since you allowed it.",
    "ja": "前回の許可のあと、サーバーがこのツールの定義を変更しました。",
}
_EFFECTS: Mapping[Concern, str] = {
    "delete": "it deletes or overwrites something",
    "execute": "it runs a program or a command",
    "send": "it sends, publishes or orders something",
    "change": "it changes something",
    "unknown": "it is not known to be read-only",
    "asked": "the configuration requires approval for it",
    "repeated": "the same call stands in a text from outside, such as a tool result",
}


# Key of the stored approval of sampling, next to those of tools; not a valid tool name.
_SAMPLING = ToolSpec("sampling/createMessage")
_SAMPLING_REASONS: Mapping[Language, str] = {
    "en": "Server '{server}' wants to ask the model this, and gets its answer.",
    "ja": "サーバー「{server}」が、モデルに次のことを尋ね、その答えを受け取ろうとしています。",
}


def question_of(concern: Concern, server: str, tool: str, language: Language, *, has_changed: bool) -> str:
    """Return the text of an approval request.

    ``tool`` is the wire name; ``has_changed`` adds that the tool was allowed before under another definition.
    """
    question = _REASONS[language][concern].format(server=server, tool=on_one_line(tool))
    return f"{question}{_CHANGED[language]}" if has_changed else question


# Why a call was not run -> the sentence for people, and what is added to the English one for the model.
_REFUSALS: Mapping[str, tuple[str, str, str]] = {
    "never": (
        "'{name}' was not run: the user has blocked it.",
        "「{name}」はブロックされているため、実行されませんでした。",
        " Do not try it again; answer without it.",
    ),
    "deny": (
        "'{name}' was not run: the user denied it.",
        "「{name}」は許可されなかったため、実行されませんでした。",
        " Do not try it again; continue without it, or ask the user.",
    ),
    "refused": (
        "'{name}' was not run: {effect}, and no user could approve it.",
        "「{name}」には承認が必要ですが、承認できる人がいないため、実行されませんでした。",
        " Tell the user.",
    ),
    "late": (
        "'{name}' was not run: {effect}, and it was not approved in time.",
        "「{name}」は時間内に承認されなかったため、実行されませんでした。",
        " Tell the user, who can ask for it again.",
    ),
}


def refusal(
    ruling: ApprovalOutcome, why: str, name: str, language: Language, concern: Concern = "asked", advice: str = ""
) -> ApprovalVerdict:
    """Return the verdict on a call that is not run; ``advice`` is the remedy for the owner."""
    english, japanese, for_model = _REFUSALS[why]
    fact = english.format(name=name, effect=_EFFECTS[concern])
    remedy = f" {advice}" if advice else ""
    shown = japanese.format(name=name) if language == "ja" else fact
    return ApprovalVerdict(ruling, f"{fact}{for_model}{remedy}", f"{shown}{remedy}")


# A service runs for months and does not notice the end of a conversation; a dropped approval is asked again.
_MAX_GRANTS = 4096


class ConversationGrants:
    """Approvals per conversation; the oldest are dropped first."""

    def __init__(self) -> None:
        # Conversation, server, wire name of the tool, fingerprint.
        self._allowed: dict[tuple[str, str, str, str], None] = {}

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

    def is_on(self, server: str, tool: str) -> bool:
        """Return True if a tool is enabled, given its wire name."""
        return self._states.get((server, tool), self._states.get((server, ""), True))

    def is_server_on(self, server: str) -> bool:
        """Return True if the server's own switch is on; single tools may differ."""
        return self._states.get((server, ""), True)

    def turn(self, server: str, tool: str, *, is_on: bool) -> None:
        """Enable or disable one tool."""
        # A tool switch equal to the server's is dropped, so that the tool follows later changes of the server's switch.
        state = None if is_on == self.is_server_on(server) else is_on
        self._change([Switch(server, tool, state)])

    def turn_server(self, server: str, *, is_on: bool) -> None:
        """Enable or disable a server with all its present and future tools."""
        own = [Switch(name, tool, None) for name, tool in self._states if name == server and tool]
        self._change([*own, Switch(server, "", None if is_on else False)])

    def _change(self, changes: Sequence[Switch]) -> None:
        for change in changes:
            if change.is_on is None:
                self._states.pop((change.server, change.tool), None)
            else:
                self._states[change.server, change.tool] = change.is_on
        if self._keep is not None:
            self._keep(changes)


# Conversation, server, wire name of the tool, fingerprint.
_Key: TypeAlias = tuple[str, str, str, str]


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
    reason: str
    key: _Key


class RecentApprovals:
    """A ``Grants`` in memory, until the process ends."""

    def __init__(self) -> None:
        self._grants: dict[tuple[str, str], StoredApproval] = {}

    async def find(self, server: str, tool: str) -> StoredApproval | None:
        """Return the stored decision about a tool."""
        return self._grants.get((server, tool))

    def keep(self, server: str, tool: str, grant: StoredApproval) -> None:
        """Store a decision about a tool, replacing the previous one."""
        self._grants[server, tool] = grant


class Approvals:
    """Decides about calls and asks the user where necessary.

    ``grants`` stores permanent decisions, ``conversations`` those for one conversation; ``language`` is the user's.
    """

    def __init__(self, grants: ApprovalStore | None = None, language: Language = "en") -> None:
        self.grants: ApprovalStore = grants or RecentApprovals()
        self.language: Language = language
        self.conversations = ConversationGrants()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def rule(self, spec: ServerConfig, tool: ToolSpec, call: ToolCall, context: CallContext) -> ApprovalVerdict:
        """Decide about a call; time spent waiting for the user is paused in ``context``."""
        known = await self._known(spec, tool, call, context)
        if isinstance(known, ApprovalVerdict):
            return known
        with context.pause():
            return await self._ask(spec, tool, call, context)

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
        decision = await context.asker.approve(sampling_question(request, context.language or self.language))
        self._note(decision, key)
        return decision not in (None, "deny", "never")

    async def _ask(self, spec: ServerConfig, tool: ToolSpec, call: ToolCall, context: CallContext) -> ApprovalVerdict:
        async with self._turn(context.conversation_id):
            # The decision about a call that was ahead in the queue may apply to this one.
            known = await self._known(spec, tool, call, context)
            if isinstance(known, ApprovalVerdict):
                return known
            decision = await context.asker.approve(Approval(call.id, call.name, call.arguments, known.reason))
            # An approval of a repeated call is one of this call only.
            if known.concern != "repeated" or decision == "never":
                self._note(decision, known.key)
        return _verdict(decision, call.name, known.concern, context, context.language or self.language)

    async def _known(
        self, spec: ServerConfig, tool: ToolSpec, call: ToolCall, context: CallContext
    ) -> ApprovalVerdict | _Question:
        """Return the decision if it is known, else the question to ask."""
        name, fingerprint = tool.wire_name or tool.name, fingerprint_of(spec, tool)
        language = context.language or self.language
        grant = await self.grants.find(spec.name, name)
        if grant is not None and grant.kind == "never":
            return refusal("never", "never", call.name, language)
        key = (context.conversation_id, spec.name, name, fingerprint)
        if repeats_call(call, tool, context.untrusted_texts()):
            reason = question_of("repeated", spec.name, name, language, has_changed=False)
            return _Question("repeated", reason, key)
        has_changed = grant is not None and grant.fingerprint != fingerprint
        must_ask = _matches(name, spec.always_ask)
        is_named = _matches(name, spec.always_allow) and not must_ask
        if is_named and grant is None:
            self.grants.keep(spec.name, name, StoredApproval("configured", fingerprint))
        concern = _concern(spec, tool, call.arguments, is_unasked=is_named and not has_changed)
        if concern is None:
            return ApprovalVerdict("free")
        if grant is not None and grant.kind == "always" and not has_changed and not must_ask:
            return ApprovalVerdict("remembered")
        if self.conversations.allows(*key):
            return ApprovalVerdict("conversation")
        reason = question_of(concern, spec.name, name, language, has_changed=has_changed)
        return _Question(concern, reason, key)

    def _note(self, decision: Decision | None, key: _Key) -> None:
        _, server, tool, fingerprint = key
        if decision in ("always", "never"):
            self.grants.keep(server, tool, StoredApproval("always" if decision == "always" else "never", fingerprint))
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


def sampling_question(request: SamplingRequest, language: Language) -> Approval:
    """Return the approval request for a server that asks the model."""
    return Approval(
        id="",
        name=f"sampling:{request.server}",
        arguments={
            **({"system": request.system} if request.system else {}),
            "messages": [{"role": message.role, "text": message.text} for message in request.messages],
            "max_tokens": request.max_tokens,
        },
        reason=_SAMPLING_REASONS[language].format(server=request.server),
    )


def fingerprint_of(spec: ServerConfig, tool: ToolSpec) -> str:
    """Return a hash of the tool's definition and of the program or URL behind it, for which an approval is valid."""
    definition = [tool.wire_name, tool.description, tool.input_schema, tool.read_only, tool.destructive]
    text = json.dumps([target_of(spec), definition], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _concern(spec: ServerConfig, tool: ToolSpec, arguments: Mapping[str, Any], *, is_unasked: bool) -> Concern | None:
    """Return why a call needs approval; None if it needs none."""
    must_ask = _matches(tool.wire_name or tool.name, spec.always_ask)
    if is_unasked or (spec.approve == "never" and not must_ask):
        return None
    trusted = bool(spec.trusted)
    danger = risk_of(tool, arguments, trusted=trusted)
    if danger is None and (must_ask or spec.approve == "always"):
        return "asked"
    if danger is None and spec.approve != "dangerous" and not is_known_to_read(tool, arguments, trusted=trusted):
        return "unknown"
    return danger


def newly_asked(spec: ServerConfig, tools: Iterable[ToolSpec]) -> list[str]:
    """Return the wire names of tools that need approval under ``"writes"`` but did not under ``"dangerous"``."""
    names = ((tool.wire_name or tool.name, tool) for tool in tools)
    return [
        name
        for name, tool in names
        if _concern(spec, tool, {}, is_unasked=_matches(name, spec.always_allow)) == "unknown"
    ]


def _verdict(
    decision: Decision | None, name: str, concern: Concern, context: CallContext, language: Language
) -> ApprovalVerdict:
    if decision is None:
        return refusal("refused", "late", name, language, concern)
    standing = context.asker if isinstance(context.asker, FixedApprover) else None
    if decision in ("deny", "never") and standing:
        return refusal("refused", "refused", name, language, concern, standing.advice)
    if decision in ("deny", "never"):
        return refusal(decision, "deny", name, language)
    return ApprovalVerdict("granted" if standing else decision)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)
