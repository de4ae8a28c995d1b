"""The plain words in which a person is asked, and in which the model is told why something was not done.

A person reads the language of ``[agent] language``, Japanese or English. The model is told in English, as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from rkllm_mcp.tools.trust.danger import Danger
from rkllm_mcp.tools.trust.hidden import on_one_line

Concern: TypeAlias = Danger | Literal["asked"]
Language: TypeAlias = Literal["en", "ja"]

_REASONS: Mapping[Language, Mapping[Concern, str]] = {
    "en": {
        "delete": "Warning: '{tool}' of server '{server}' deletes or overwrites something. What is gone may not come "
        "back.",
        "execute": "Warning: '{tool}' of server '{server}' runs a program or a command. It can do whatever that server "
        "may do on its machine.",
        "send": "'{tool}' of server '{server}' sends, publishes or orders something. That cannot be taken back.",
        "change": "'{tool}' of server '{server}' changes something.",
        "asked": "Calls of '{tool}' of server '{server}' wait for a yes, says the configuration.",
    },
    "ja": {
        "delete": "警告: サーバー「{server}」の「{tool}」は削除や上書きを行います。"
        "消えたものは元に戻せないことがあります。",
        "execute": "警告: サーバー「{server}」の「{tool}」はプログラムやコマンドを実行します。"
        "そのサーバーに許されていることは何でもできます。",
        "send": "サーバー「{server}」の「{tool}」は送信・公開・注文などを行います。取り消しはできません。",
        "change": "サーバー「{server}」の「{tool}」は何かを変更します。",
        "asked": "サーバー「{server}」の「{tool}」の呼び出しには、設定により確認が必要です。",
    },
}
_CHANGED: Mapping[Language, str] = {
    "en": " The server has changed the definition of this tool since you allowed it.",
    "ja": "また、以前に許可してから、サーバーがこのツールの定義を変更しました。",
}
_WHAT_IT_DOES: Mapping[Concern, str] = {
    "delete": "it deletes or overwrites something",
    "execute": "it runs a program or a command",
    "send": "it sends, publishes or orders something",
    "change": "it changes something",
    "asked": "the configuration wants a yes for it",
}


def language_of(setting: str | None) -> Language:
    """The language to ask in under ``[agent] language``: Japanese for ``ja``, ``ja-JP``, ``Japanese``, ``日本語``."""
    named = (setting or "").strip().lower()
    return "ja" if named.startswith(("ja", "日本")) else "en"


def question_of(concern: Concern, server: str, tool: str, language: Language, *, has_changed: bool) -> str:
    """What a person is asked about a call.

    Args:
        concern: what is the matter with it.
        server: the configuration's name of the server.
        tool: the server's name of the tool.
        language: of the person.
        has_changed: the tool was allowed before under another definition.
    """
    question = _REASONS[language][concern].format(server=server, tool=on_one_line(tool))
    return f"{question}{_CHANGED[language]}" if has_changed else question


def refusal_of(name: str, concern: Concern | None, advice: str | None) -> str:
    """Why a call was not run, for the model.

    Args:
        name: the tool's name as the model knows it.
        concern: what was the matter with it; None when it is refused for good.
        advice: what the owner can do where nobody could be asked; None when somebody said no.
    """
    if concern is None:
        return f"'{name}' was not run: the user never allows it. Do not try it again; answer without it."
    if advice is None:
        return f"'{name}' was not run: the user said no. Do not try it again; go on without it, or ask what to do."
    remedy = f" {advice}" if advice else ""
    what = _WHAT_IT_DOES[concern]
    return f"'{name}' was not run: {what}, and nobody could be asked for a yes. Tell the user.{remedy}"


def unanswered(name: str, concern: Concern) -> str:
    """Why a call was not run that a person was asked about and said nothing, for the model."""
    what = _WHAT_IT_DOES[concern]
    return f"'{name}' was not run: {what}, and nobody said yes in time. Tell the user, who can ask for it again."
