"""Exports of other programs as conversations: ChatGPT, Claude, Open WebUI, LibreChat, llama.cpp's page and others.

Most of them store a tree of messages; what is read is the branch that was open. Files differ from release to release:
what is missing or of another type costs itself, and a message without text is left out.

    mapping, current_node                       ChatGPT, seconds
    chat_messages, current_leaf_message_uuid    Claude, ISO 8601
    chat.history, currentId                     Open WebUI, seconds
    messagesTree of children, or messages       LibreChat, ISO 8601
    conv, messages, currNode                    llama.cpp, milliseconds
    messages with role and content              others, one after another
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from itertools import groupby
from typing import Any, Literal, TypeAlias, cast

from rkllm_mcp.messages import StoredTurn, as_list, as_mapping
from rkllm_mcp.records import StoredConversation

_Role: TypeAlias = Literal["system", "user", "assistant"]
_ROLES: Mapping[object, _Role] = {"system": "system", "user": "user", "human": "user", "assistant": "assistant"}
# What Open WebUI writes into an answer for what it shows folded: thoughts and calls.
_FOLDED = re.compile(r"<details type=\"(reasoning|tool_calls|code_interpreter)\".*?</details>\s*", re.DOTALL)
# What ChatGPT writes where its page shows a source, and around words that it marks.
_CITED = re.compile(r"\s?\ue200[^\ue200\ue201]*\ue201|[\ue200-\ue20f]")

# Parts of a message in Claude's export; the others are thoughts and calls.
_SAID = ("text", "voice_note")


@dataclass(frozen=True)
class _Node:
    parent: str
    role: _Role | None = None  # None: not a message
    text: str = ""
    at: float = 0.0
    thinking: str = ""


@dataclass(frozen=True)
class _Tree:
    title: str
    created: float
    updated: float
    current: str
    nodes: Mapping[str, _Node] = field(default_factory=dict[str, _Node])


def foreign_conversations(read: Any) -> list[StoredConversation] | None:
    """Return the conversations of another program's export, without ids; None if it is not one that is known.

    One without a message is left out.
    """
    # Some have their conversations below a name.
    below = next(
        (each for name in ("conversations", "history") if (each := as_list(as_mapping(read).get(name)))), [read]
    )
    trees: list[_Tree | None] = []
    for entry in map(as_mapping, cast("list[Any]", read) if isinstance(read, list) else below):
        chat = as_mapping(entry.get("chat"))
        if isinstance(entry.get("mapping"), dict):
            trees.append(_chatgpt(entry))
        elif isinstance(chat.get("history"), dict):
            trees.append(_open_webui(entry, chat))
        elif isinstance(entry.get("conv"), dict) and isinstance(entry.get("messages"), list):
            trees.append(_llama_cpp(entry))
        elif isinstance(entry.get("chat_messages"), list):
            trees.append(_claude(entry))
        elif isinstance(entry.get("messagesTree"), list) or isinstance(entry.get("messages"), list):
            trees.append(_list(entry))
    known = [tree for tree in trees if tree is not None]
    conversations: list[StoredConversation] = []
    for tree in known:
        # The open branch from its root; of a tree that does not say which, the one of its last node.
        key = tree.current if tree.current in tree.nodes else next(reversed(list(tree.nodes)), "")
        # Each node once, because a broken tree may have a circle.
        upwards: dict[str, _Node] = {}
        while key in tree.nodes and key not in upwards:
            upwards[key] = tree.nodes[key]
            key = upwards[key].parent
        branch = list(upwards.values())[::-1]
        system = next((text for node in branch if node.role == "system" and (text := node.text.strip())), "")
        # One after another of the same speaker is one turn here.
        spoken = (node for node in branch if node.role in ("user", "assistant") and node.text.strip())
        turns: list[StoredTurn] = []
        for role, group in groupby(spoken, lambda node: node.role):
            if role == "user" or role == "assistant":
                nodes = list(group)
                joined = "\n\n".join(node.text.strip() for node in nodes)
                thinking = "\n\n".join(filter(None, (node.thinking.strip() for node in nodes)))
                at = next((node.at for node in reversed(nodes) if node.at), 0.0)
                turns.append(StoredTurn(role, joined, thinking, at=at))
        if not turns:
            continue
        times = [at for at in (tree.created, tree.updated, *(turn.at for turn in turns)) if at] or [time.time()]
        first, last = min(times), max(times)
        # A message without its own time has that of the one before.
        timed: list[StoredTurn] = []
        for turn in turns:
            timed.append(replace(turn, at=turn.at or (timed[-1].at if timed else first)))
        title = tree.title.strip() or next((turn.text for turn in turns if turn.role == "user"), "")
        conversations.append(StoredConversation("", title, first, last, tuple(timed), system or None))
    return conversations if known else None


def _chatgpt(entry: Mapping[str, Any]) -> _Tree:
    nodes: dict[str, _Node] = {}
    for key, value in as_mapping(entry["mapping"]).items():
        node = as_mapping(value)
        message = as_mapping(node.get("message"))
        content, metadata = as_mapping(message.get("content")), as_mapping(message.get("metadata"))
        is_text = _text(content.get("content_type")) in {"text", "multimodal_text"}
        is_said = is_text and _text(message.get("recipient")) in {"", "all"}
        role = _ROLES.get(_text(as_mapping(message.get("author")).get("role")))
        if not is_said or metadata.get("is_visually_hidden_from_conversation"):
            role = None
        text = _CITED.sub("", _text_of_parts(content.get("parts")))
        nodes[key] = _Node(_text(node.get("parent")), role, text, _seconds(message.get("create_time")))
    created, updated = _seconds(entry.get("create_time")), _seconds(entry.get("update_time"))
    return _Tree(_text(entry.get("title")), created, updated, _text(entry.get("current_node")), nodes)


def _open_webui(entry: Mapping[str, Any], chat: Mapping[str, Any]) -> _Tree:
    history = as_mapping(chat["history"])
    nodes: dict[str, _Node] = {}
    for key, value in as_mapping(history.get("messages")).items():
        message = as_mapping(value)
        content = message.get("content")
        text = content if isinstance(content, str) else _text_of_parts(content)
        # From a beginning without an end the whole rest would be read, from each of them.
        folded, end, remainder = text.rpartition("</details>")
        text = _FOLDED.sub("", folded + end) + remainder
        role = _ROLES.get(_text(message.get("role")))
        nodes[key] = _Node(_text(message.get("parentId")), role, text, _seconds(message.get("timestamp")))
    title = _text(entry.get("title")) or _text(chat.get("title"))
    created, updated = _seconds(entry.get("created_at")), _seconds(entry.get("updated_at"))
    return _Tree(title, created, updated, _text(history.get("currentId")), nodes)


def _text_of_parts(parts: object) -> str:
    # What was spoken is in an object; pictures have no text.
    texts: list[str] = []
    for part in as_list(parts):
        fields = as_mapping(part)
        text = fields.get("text", fields.get("transcript", part))
        texts.append(_text(as_mapping(text).get("value", text)))
    return "\n".join(filter(None, texts))


def _llama_cpp(entry: Mapping[str, Any]) -> _Tree:
    conversation = as_mapping(entry["conv"])
    nodes: dict[str, _Node] = {}
    for value in as_list(entry["messages"]):
        message = as_mapping(value)
        role = None if message.get("type") == "root" else _ROLES.get(_text(message.get("role")))
        at, thinking = _seconds(message.get("timestamp")), _text(message.get("reasoningContent"))
        text = _text(message.get("content"))
        nodes[_text(message.get("id"))] = _Node(_text(message.get("parent")), role, text, at, thinking)
    updated = _seconds(conversation.get("lastModified"))
    return _Tree(_text(conversation.get("name")), 0.0, updated, _text(conversation.get("currNode")), nodes)


def _claude(entry: Mapping[str, Any]) -> _Tree:
    nodes: dict[str, _Node] = {}
    for message in map(as_mapping, as_list(entry["chat_messages"])):
        # Older ones are no tree.
        parent = _text(message.get("parent_message_uuid")) or next(reversed(nodes), "")
        spoken = (block for block in as_list(message.get("content")) if as_mapping(block).get("type") in _SAID)
        text = _text_of_parts(list(spoken)) or _text(message.get("text"))
        role, at = _ROLES.get(_text(message.get("sender"))), _seconds(message.get("created_at"))
        nodes[_text(message.get("uuid")) or str(len(nodes))] = _Node(parent, role, text, at)
    created, updated = _seconds(entry.get("created_at")), _seconds(entry.get("updated_at"))
    return _Tree(_text(entry.get("name")), created, updated, _text(entry.get("current_leaf_message_uuid")), nodes)


def _list(entry: Mapping[str, Any]) -> _Tree | None:
    """Return messages one after another, or as LibreChat nests them; None if they are something else."""
    nodes: dict[str, _Node] = {}
    waiting = [as_mapping(value) for value in as_list(entry.get("messagesTree") or entry.get("messages"))][::-1]
    while waiting:
        message = waiting.pop()
        waiting += map(as_mapping, as_list(message.get("children"))[::-1])
        role = _ROLES.get(_text(message.get("role")) or _text(message.get("sender")).lower())
        if isinstance(is_user := message.get("isCreatedByUser"), bool):
            role = "user" if is_user else "assistant"
        content = message.get("content")
        text = content if isinstance(content, str) else _text_of_parts(content) or _text(message.get("text"))
        parent = _text(message.get("parentMessageId")) or next(reversed(nodes), "")
        at = _seconds(message.get("createdAt") or message.get("timestamp"))
        nodes[_text(message.get("messageId")) or str(len(nodes))] = _Node(parent, role, text, at)
    if "format" in entry or not any(node.role for node in nodes.values()):
        return None
    return _Tree(_text(entry.get("title")) or _text(entry.get("name")), 0.0, 0.0, "", nodes)


# Later than any date in seconds.
_LEAST_MILLISECONDS = 1e11


def _seconds(value: Any) -> float:
    """Return a time in seconds since 1970, which may be in milliseconds or as ISO 8601 writes it; 0 for none."""
    if isinstance(value, str):
        try:
            read = datetime.fromisoformat(value.replace("Z", "+00:00"))
        except ValueError:
            return 0.0
        value = (read if read.tzinfo else read.replace(tzinfo=timezone.utc)).timestamp()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        return 0.0
    seconds = value / 1000 if value >= _LEAST_MILLISECONDS else value
    return float(seconds) if seconds < _LEAST_MILLISECONDS else 0.0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
