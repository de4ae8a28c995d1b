"""What the commands of a conversation answer, in English and Japanese: one table for each.

What a command is for is in ``chat_help``; what is said around answers and questions in ``phrases``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rkllm_mcp.records import Ending
from rkllm_mcp.surfaces.conversations_export import ENDINGS
from rkllm_mcp.surfaces.phrases import Language


@dataclass(frozen=True)
class ChatPhrases:
    """A sentence for everything that may come of a command; the English ones say when.

    Args:
        need: by the command's name: what has to stand behind it.
        stats: by the name of a figure in ``Stats``: what it counts, and its value.
        model: by the name of a row of ``/model``: its label.
        cut_short: how a kept turn ended that was not simply over.
    """

    greeting: str
    none_kept_yet: str
    going_on: str
    cut_short: Mapping[Ending, str]
    farewell: str
    no_command: str
    no_tools: str
    no_tool: str
    no_servers: str
    tool_count: str
    switched_off: str
    no_resources: str
    no_prompts: str
    none_kept: str
    no_calls: str
    nothing_said: str
    did_you_mean: str
    no_hint: str
    tools_lists: str
    new_conversation: str
    saved: str
    exists: str
    not_written: str
    cut: str
    attached: str
    already_here: str
    not_kept_yet: str
    renamed: str
    server_on: str
    server_off: str
    tool_on: str
    tool_off: str
    forgotten: str
    forgotten_here: str
    need: Mapping[str, str]
    stats: Mapping[str, tuple[str, str]]
    model: Mapping[str, str]
    tokens: str


ENGLISH = ChatPhrases(
    greeting="rkllm-mcp {version}, model {model}. /help shows the commands, Ctrl-D leaves.",
    none_kept_yet="No conversation is kept yet; a new one begins.",
    going_on="Going on with {id} '{title}', {count} messages, the last of {moment}.",
    cut_short=ENDINGS,
    farewell="Go on with this conversation: {command}",
    no_command="There is no {name}{hint} The commands are {commands}",
    no_tools="No tools; /servers says why.",
    no_tool="There is no tool '{name}'{hint}",
    no_servers="No servers are configured.",
    tool_count="{count} tools",
    switched_off="switched off; /enable {name}",
    no_resources="No resources; /servers shows the servers.",
    no_prompts="No prompts; /servers shows the servers.",
    none_kept="No conversation is kept.",
    no_calls="No calls in this conversation; 'rkllm-mcp tools history' has all.",
    nothing_said="Nothing is allowed or refused for good or for this conversation; a call that needs a yes asks.",
    did_you_mean="; did you mean {name}?",
    no_hint=".",
    tools_lists="; /tools lists them",
    new_conversation="A new conversation begins.",
    saved="Saved to {path}",
    exists="{path} exists; choose another name",
    not_written="{path} cannot be written ({reason}); choose another name",
    cut="It was cut to {count} characters (resource_chars in [agent]).",
    attached="It goes with your next question.",
    already_here="This is that conversation; ask on",
    not_kept_yet="This conversation is not kept yet; ask something first",
    renamed="Renamed.",
    server_on="Server '{server}' is switched on.",
    server_off="Server '{server}' is switched off.",
    tool_on="Tool '{tool}' of server '{server}' is switched on.",
    tool_off="Tool '{tool}' of server '{server}' is switched off.",
    forgotten="Forgotten: '{tool}' of server '{server}'; it is asked again.",
    forgotten_here="Forgotten: '{tool}' of server '{server}' for this conversation; it is asked again.",
    need={
        "/enable": "/enable needs a tool or a server: /enable get_weather; /tools and /servers list them",
        "/disable": "/disable needs a tool or a server: /disable get_weather; /tools and /servers list them",
        "/approve": "/approve shows what is remembered, /approve forget NAME takes it back",
        "/resource": "/resource needs an address: /resource notes:memo://monday; /resources lists them",
        "/prompt": "/prompt needs a name: /prompt code_review language=python; /prompts lists them",
        "/resume": "/resume needs an id, or the beginning of one; /conversations lists them",
        "/rename": "/rename needs a title: /rename The trip to Kyoto",
        "/save": "/save needs a file: /save answer.md",
    },
    stats={
        "questions": ("questions", "{questions}"),
        "rounds": ("rounds of the model", "{rounds}"),
        "calls": ("tool calls", "{tool_calls}, {failed_calls} of them failed"),
        "prompt": ("prompt tokens", "{prompt_tokens}, {prefilled_tokens} of them prefilled"),
        "generated": ("generated tokens", "{generated_tokens}"),
        "prefill": ("prefill", "{prefill_speed}"),
        "decode": ("decode", "{decode_speed}"),
    },
    model={
        "name": "name",
        "description": "description",
        "file": "file",
        "template": "template",
        "context": "context",
        "kind": "kind",
    },
    tokens="{count} tokens",
)

JAPANESE = ChatPhrases(
    greeting="rkllm-mcp {version}、モデル {model}。/help でコマンドの一覧、Ctrl-D で終了します。",
    none_kept_yet="保存された会話はまだありません。新しい会話を始めます。",
    going_on="{id}「{title}」を続けます。メッセージ {count} 件、最後は {moment}。",
    cut_short={
        "round_limit": "ツールを使う回数の上限に達した",
        "token_limit": "長さの上限で切れた",
        "cancelled": "途中で中止した",
        "failed": "途中で失敗した",
    },
    farewell="この会話を続けるには: {command}",
    no_command="{name} というコマンドはありません{hint}コマンドの一覧: {commands}",
    no_tools="ツールはありません。理由は /servers で分かります。",
    no_tool="「{name}」というツールはありません{hint}",
    no_servers="サーバーが設定されていません。",
    tool_count="ツール {count} 個",
    switched_off="無効。/enable {name} で有効に戻せます",
    no_resources="リソースはありません。サーバーは /servers で分かります。",
    no_prompts="用意された質問はありません。サーバーは /servers で分かります。",
    none_kept="保存された会話はありません。",
    no_calls="この会話での呼び出しはありません。すべての記録は 'rkllm-mcp tools history' にあります。",
    nothing_said="今後も、またはこの会話の間、許可や拒否をしたものはありません。確認が必要な呼び出しはその都度尋ねます。",
    did_you_mean="。{name} のことですか？",
    no_hint="。",
    tools_lists="。一覧は /tools",
    new_conversation="新しい会話を始めます。",
    saved="{path} に保存しました",
    exists="{path} はすでにあります。別の名前にしてください",
    not_written="{path} に書けません ({reason})。別の名前にしてください",
    cut="{count} 文字に切り詰めました ([agent] の resource_chars)。",
    attached="次の質問に添えられます。",
    already_here="今の会話です。そのまま質問してください",
    not_kept_yet="この会話はまだ保存されていません。先に質問をしてください",
    renamed="題名を変えました。",
    server_on="サーバー「{server}」を有効にしました。",
    server_off="サーバー「{server}」を無効にしました。",
    tool_on="サーバー「{server}」のツール「{tool}」を有効にしました。",
    tool_off="サーバー「{server}」のツール「{tool}」を無効にしました。",
    forgotten="取り消しました: サーバー「{server}」の「{tool}」。次からまた尋ねます。",
    forgotten_here="取り消しました: この会話でのサーバー「{server}」の「{tool}」。次からまた尋ねます。",
    need={
        "/enable": "/enable にはツールかサーバーの名前が必要です: /enable get_weather。一覧は /tools と /servers",
        "/disable": "/disable にはツールかサーバーの名前が必要です: /disable get_weather。一覧は /tools と /servers",
        "/approve": "/approve で一覧、/approve forget 名前 で取り消し",
        "/resource": "/resource にはアドレスが必要です: /resource notes:memo://monday。一覧は /resources",
        "/prompt": "/prompt には名前が必要です: /prompt code_review language=python。一覧は /prompts",
        "/resume": "/resume には ID か、その先頭が必要です。一覧は /conversations",
        "/rename": "/rename には題名が必要です: /rename 京都旅行",
        "/save": "/save にはファイルが必要です: /save answer.md",
    },
    stats={
        "questions": ("質問", "{questions}"),
        "rounds": ("モデルの実行", "{rounds} 回"),
        "calls": ("ツールの呼び出し", "{tool_calls} 回、うち失敗 {failed_calls} 回"),
        "prompt": ("プロンプトのトークン", "{prompt_tokens}、うち読み込んだもの {prefilled_tokens}"),
        "generated": ("生成したトークン", "{generated_tokens}"),
        "prefill": ("読み込み", "{prefill_speed}"),
        "decode": ("生成", "{decode_speed}"),
    },
    model={
        "name": "名前",
        "description": "説明",
        "file": "ファイル",
        "template": "テンプレート",
        "context": "コンテキスト",
        "kind": "種類",
    },
    tokens="{count} トークン",
)

CHAT_PHRASES: Mapping[Language, ChatPhrases] = {"en": ENGLISH, "ja": JAPANESE}
