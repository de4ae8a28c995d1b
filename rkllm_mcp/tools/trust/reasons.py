"""Texts of approval requests, in the user's language, and of refusals for the model, in English."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from rkllm_mcp.tools.trust.danger import Danger
from rkllm_mcp.tools.trust.hidden import on_one_line

Concern: TypeAlias = Danger | Literal["asked"]
Language: TypeAlias = Literal["en", "ja"]

_REASONS: Mapping[Language, Mapping[Concern, str]] = {
    "en": {
        "delete": "Warning: '{tool}' of server '{server}' deletes or overwrites something. This may be irreversible.",
        "execute": "Warning: '{tool}' of server '{server}' runs a program or a command, with all permissions of that "
        "server on its machine.",
        "send": "'{tool}' of server '{server}' sends, publishes or orders something. This cannot be undone.",
        "change": "'{tool}' of server '{server}' changes something.",
        "asked": "The configuration requires approval for '{tool}' of server '{server}'.",
    },
    "ja": {
        "delete": "警告: サーバー「{server}」の「{tool}」は削除や上書きを行います。元に戻せないことがあります。",
        "execute": "警告: サーバー「{server}」の「{tool}」は、そのサーバーの権限でプログラムやコマンドを実行します。",
        "send": "サーバー「{server}」の「{tool}」は送信・公開・注文などを行います。取り消せません。",
        "change": "サーバー「{server}」の「{tool}」はデータや設定などを変更します。",
        "asked": "設定により、サーバー「{server}」の「{tool}」の呼び出しには承認が必要です。",
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
    "asked": "the configuration requires approval for it",
}


def language_of(setting: str | None) -> Language:
    """Return ``ja`` for the settings ``ja``, ``ja-JP``, ``Japanese`` and ``日本語``, else ``en``."""
    named = (setting or "").strip().lower()
    return "ja" if named.startswith(("ja", "日本")) else "en"


def question_of(concern: Concern, server: str, tool: str, language: Language, *, has_changed: bool) -> str:
    """Return the text of an approval request.

    ``tool`` is the wire name; ``has_changed`` adds that the tool was allowed before under another definition.
    """
    question = _REASONS[language][concern].format(server=server, tool=on_one_line(tool))
    return f"{question}{_CHANGED[language]}" if has_changed else question


def refusal_of(name: str, concern: Concern | None, advice: str | None) -> str:
    """Return the refusal for the model.

    ``concern`` None: refused permanently. ``advice`` None: the user refused; otherwise no person could be asked, and
    ``advice`` is the remedy for the owner.
    """
    if concern is None:
        return f"'{name}' was not run: the user has blocked it. Do not try it again; answer without it."
    if advice is None:
        return f"'{name}' was not run: the user denied it. Do not try it again; continue without it, or ask the user."
    remedy = f" {advice}" if advice else ""
    effect = _EFFECTS[concern]
    return f"'{name}' was not run: {effect}, and no user could approve it. Tell the user.{remedy}"


def unanswered(name: str, concern: Concern) -> str:
    """Return the refusal for the model after an approval request timed out."""
    effect = _EFFECTS[concern]
    return f"'{name}' was not run: {effect}, and it was not approved in time. Tell the user, who can ask for it again."
