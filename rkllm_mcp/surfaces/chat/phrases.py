"""Texts of the terminal in English and Japanese: around answers, of commands, and ``/help``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rkllm_mcp.elicitation import ENGLISH as ENGLISH_MISTAKES
from rkllm_mcp.elicitation import FieldKind, Wording
from rkllm_mcp.events import EndReason
from rkllm_mcp.messages import ENDINGS, Ending
from rkllm_mcp.protocols import Decision

Language: TypeAlias = Literal["en", "ja"]


@dataclass(frozen=True)
class Phrases:
    """Texts around an answer."""

    reading: str  # {tokens} to prefill, with the {share} of about
    about: str  # expected {seconds} of the prefill
    queued: str  # {position} in the queue
    sources: str  # {places} in documents
    page: str  # behind the name of a document
    endings: Mapping[EndReason, str]  # by end reason, for answers that did not end normally
    failed: str  # an {error}
    nameless: str  # an error without a message
    unreadable: str  # a call that could not be parsed, with the {reason}
    repaired: str  # suffix of a call that was repaired
    waiting: str  # a call that waits for approval elsewhere: {name} and {reason}
    asks: str  # heading of a server's request: {server}, {message}
    decisions: Mapping[Decision, tuple[str, str]]  # decisions about a call: key and meaning
    run_it: str  # prompt for one of the keys
    asks_model: str  # heading of a sampling request
    required: str  # suffix of a required field
    default: str  # meaning of Enter, with {value}
    kinds: Mapping[FieldKind, str]  # valid input, by kind of field
    how: str  # instructions for a form
    send: str  # question before a form is sent
    send_keys: Mapping[str, str]  # answers to it: yes, no, fill in again
    open_page: str  # instruction for an address, with {host}
    is_done: str  # question after it
    more: str  # note that a value was cut, with {count}
    mistakes: Wording  # errors of a form's values
    too_late: str  # the request was withdrawn
    again: str  # the input was not one of the keys


ENGLISH = Phrases(
    reading="[NPU: reading {tokens} tokens{share} …]",
    about=", about {seconds} s",
    queued="[Queue: {position} requests ahead]",
    sources="  [Sources: {places}]",
    page=", p. {}",
    endings={
        "round_limit": "[The limit of tool rounds was reached]",
        "token_limit": "[The answer was cut at the token limit]",
        "cancelled": "[Stopped]",
    },
    failed="Error: {error}",
    nameless="the answer failed",
    unreadable="[MCP: Unreadable tool call: {reason}]",
    repaired=" (repaired)",
    waiting="[MCP: Waiting for approval of '{name}': {reason}]",
    asks="[MCP: Server '{server}' asks: {message}]",
    decisions={
        "once": ("y", "yes, this once"),
        "conversation": ("c", "yes, for the rest of this conversation"),
        "always": ("a", "yes, always"),
        "deny": ("n", "no (Enter)"),
        "never": ("x", "no, and never ask again"),
    },
    run_it="Run it? [y/c/a/N/x] ",
    asks_model="Allow it? [y/c/a/N/x] ",
    required="required",
    default="Enter: {value}",
    kinds={
        "text": "",
        "number": "a number",
        "integer": "a whole number",
        "boolean": "yes or no",
        "choice": "one of these, or its number",
        "choices": "some of these or their numbers, with commas",
        "json": "text or JSON",
    },
    how="Enter keeps a field as it is; /no declines, /skip cancels the form, Ctrl-C stops the whole answer.",
    send="Send this? [Y = yes, e = fill in again, n = no] ",
    send_keys={"": "y", "y": "y", "yes": "y", "e": "e", "n": "n", "no": "n", "/no": "n", "/skip": "s"},
    open_page="Open this address in a browser if you trust {host}; it is not opened for you:",
    is_done="Done? [y = yes, n = no, Enter = no answer] ",
    more="… ({count} more characters)",
    mistakes=ENGLISH_MISTAKES,
    too_late="[MCP: The request was withdrawn]",
    again="Answer with one of {keys}.",
)

JAPANESE = Phrases(
    reading="[NPU: {tokens} トークンを読み込み中{share} …]",
    about="、約 {seconds} 秒",
    queued="[待ち順: この質問の前に {position} 件]",
    sources="  [出典: {places}]",
    page=" {}ページ",
    endings={
        "round_limit": "[ツールを使う回数の上限に達しました]",
        "token_limit": "[回答がトークン数の上限で切れました]",
        "cancelled": "[中止しました]",
    },
    failed="エラー: {error}",
    nameless="回答できませんでした",
    unreadable="[MCP: ツールの呼び出しを読み取れません: {reason}]",
    repaired=" (修復済み)",
    waiting="[MCP: 「{name}」の承認待ち: {reason}]",
    asks="[MCP: サーバー「{server}」からの質問: {message}]",
    decisions={
        "once": ("y", "はい、今回だけ"),
        "conversation": ("c", "はい、この会話の間"),
        "always": ("a", "はい、今後ずっと"),
        "deny": ("n", "いいえ (Enter)"),
        "never": ("x", "いいえ、今後は尋ねずに断る"),
    },
    run_it="実行しますか？ [y/c/a/N/x] ",
    asks_model="許可しますか？ [y/c/a/N/x] ",
    required="必須",
    default="Enter: {value}",
    kinds={
        "text": "",
        "number": "数値",
        "integer": "整数",
        "boolean": "はい / いいえ",
        "choice": "次のどれか、またはその番号",
        "choices": "次のいくつか、またはその番号 (「、」区切り)",
        "json": "文字列または JSON",
    },
    how="Enter でその項目はそのまま。/no で断る、/skip で答えない、Ctrl-C で回答全体を中止。",
    send="この内容を送りますか？ [Y = はい、e = 入力し直す、n = いいえ] ",
    send_keys={
        "": "y",
        "y": "y",
        "yes": "y",
        "はい": "y",
        "e": "e",
        "n": "n",
        "no": "n",
        "いいえ": "n",
        "/no": "n",
        "/skip": "s",
    },
    open_page="{host} を信頼できる場合に、次のアドレスをブラウザーで開いてください (自動では開きません):",
    is_done="済みましたか？ [y = はい、n = いいえ、Enter = 答えない] ",
    more="… (残り {count} 文字)",
    mistakes={
        "required": "入力が必要です",
        "no field": "この項目はフォームにありません",
        "text": "文字列を入力してください",
        "shorter": "{value} 文字以上で入力してください",
        "longer": "{value} 文字以内で入力してください",
        "email": "メールアドレスを入力してください",
        "uri": "URI を入力してください (例: https://example.com)",
        "date": "日付を入力してください (例: 2026-11-21)",
        "date-time": "日時を入力してください (例: 2026-11-21T09:30:00Z)",
        "not a number": "{value} は数値ではありません",
        "not an integer": "{value} は整数ではありません",
        "number": "数値を入力してください",
        "integer": "整数を入力してください",
        "least": "{value} 以上にしてください",
        "most": "{value} 以下にしてください",
        "yes or no": "「はい」か「いいえ」で答えてください",
        "boolean": "true か false にしてください",
        "choice": "次のどれかを選んでください: {value}",
        "list": "一覧で入力してください",
        "fewer": "{value} 個以上選んでください",
        "more": "{value} 個以下で選んでください",
    },
    too_late="[MCP: この質問は取り下げられました]",
    again="{keys} のどれかで答えてください。",
)

PHRASES: Mapping[Language, Phrases] = {"en": ENGLISH, "ja": JAPANESE}

# Words people type as well, in either language.
SPELLINGS: Mapping[str, Decision] = {
    "": "deny",
    "yes": "once",
    "once": "once",
    "1": "once",
    "はい": "once",
    "conversation": "conversation",
    "2": "conversation",
    "always": "always",
    "3": "always",
    "no": "deny",
    "4": "deny",
    "いいえ": "deny",
    "deny": "deny",
    "never": "never",
    "5": "never",
}


@dataclass(frozen=True)
class ChatPhrases:
    """Texts of the chat's commands; the English values show when each is used."""

    greeting: str
    none_kept_yet: str
    going_on: str
    cut_short: Mapping[Ending, str]  # by end reason, for stored turns that did not end normally
    broken_off: str
    not_broken_off: str
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
    need: Mapping[str, str]  # by command: its missing argument
    stats: Mapping[str, tuple[str, str]]  # by field of Stats: label and value
    model: Mapping[str, str]  # by row of /model: label
    tokens: str


CHAT_ENGLISH = ChatPhrases(
    greeting="rkllm-mcp {version}, model {model}. /help lists the commands, Ctrl-D exits.",
    none_kept_yet="There is no saved conversation yet; starting a new one.",
    going_on="Continuing {id} '{title}': {count} messages, the last from {moment}.",
    cut_short=ENDINGS,
    broken_off="The last answer was broken off; /again asks its question again.",
    not_broken_off="No answer was broken off here; type the question again",
    farewell="Continue this conversation with: {command}",
    no_command="Unknown command {name}{hint} Commands: {commands}",
    no_tools="There are no tools; /servers shows why.",
    no_tool="There is no tool '{name}'{hint}",
    no_servers="No servers are configured.",
    tool_count="{count} tools",
    switched_off="disabled; /enable {name}",
    no_resources="No resources; /servers shows the servers.",
    no_prompts="No prompts; /servers shows the servers.",
    none_kept="There are no saved conversations.",
    no_calls="No tool was called in this conversation; 'rkllm-mcp tools history' lists all calls.",
    nothing_said="No approvals or refusals are stored; every call that needs approval asks.",
    did_you_mean="; did you mean {name}?",
    no_hint=".",
    tools_lists="; /tools lists them",
    new_conversation="Started a new conversation.",
    saved="Saved to {path}",
    exists="{path} exists; choose another name",
    not_written="{path} cannot be written ({reason}); choose another name",
    cut="It was truncated to {count} characters (resource_chars in [agent]).",
    attached="It will be added to your next question.",
    already_here="This conversation is already open",
    not_kept_yet="This conversation is not saved yet; ask a question first",
    renamed="Renamed.",
    server_on="Server '{server}' is enabled.",
    server_off="Server '{server}' is disabled.",
    tool_on="Tool '{tool}' of server '{server}' is enabled.",
    tool_off="Tool '{tool}' of server '{server}' is disabled.",
    forgotten="Removed the decision about '{tool}' of server '{server}'; it asks again.",
    forgotten_here="Removed the decision about '{tool}' of server '{server}' in this conversation; it asks again.",
    need={
        "/enable": "/enable needs a tool or a server: /enable get_weather; /tools and /servers list them",
        "/disable": "/disable needs a tool or a server: /disable get_weather; /tools and /servers list them",
        "/approve": "/approve lists stored decisions, /approve forget NAME removes one",
        "/resource": "/resource needs an address: /resource notes:memo://monday; /resources lists them",
        "/prompt": "/prompt needs a name: /prompt code_review language=python; /prompts lists them",
        "/resume": "/resume needs an id or its first characters; /conversations lists them",
        "/rename": "/rename needs a title: /rename The trip to Kyoto",
        "/save": "/save needs a file: /save answer.md",
    },
    stats={
        "questions": ("questions", "{questions}"),
        "rounds": ("model rounds", "{rounds}"),
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

CHAT_JAPANESE = ChatPhrases(
    greeting="rkllm-mcp {version}、モデル {model}。/help でコマンドの一覧、Ctrl-D で終了します。",
    none_kept_yet="保存された会話はまだありません。新しい会話を始めます。",
    going_on="{id}「{title}」を続けます。メッセージ {count} 件、最後は {moment}。",
    cut_short={
        "round_limit": "ツールを使う回数の上限に達した",
        "token_limit": "長さの上限で切れた",
        "cancelled": "途中で中止した",
        "failed": "途中で失敗した",
        "interrupted": "途中で途切れた",
    },
    broken_off="最後の回答は途中で途切れました。/again で同じ質問をもう一度できます。",
    not_broken_off="途切れた回答はありません。質問をもう一度入力してください",
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

CHAT_PHRASES: Mapping[Language, ChatPhrases] = {"en": CHAT_ENGLISH, "ja": CHAT_JAPANESE}


@dataclass(frozen=True)
class Help:
    """Texts of ``/help``."""

    commands: Mapping[str, tuple[str, str]]  # by command: syntax and effect
    keys: str  # keys of the chat


HELP_ENGLISH = Help(
    {
        "/help": ("/help", "this list"),
        "/tools": ("/tools [NAME]", "the tools, or one of them"),
        "/servers": ("/servers", "the servers and their state"),
        "/resources": ("/resources [SERVER]", "resources of the servers"),
        "/resource": ("/resource URI", "show a resource and add it to the next question"),
        "/prompts": ("/prompts [SERVER]", "prompts of the servers"),
        "/prompt": ("/prompt NAME [K=V]...", "use a prompt"),
        "/enable": ("/enable NAME", "enable a tool or a server permanently"),
        "/disable": ("/disable NAME", "disable a tool or a server permanently"),
        "/approve": ("/approve [forget NAME]", "list or remove stored approvals and refusals"),
        "/history": ("/history", "tool calls of this conversation"),
        "/conversations": ("/conversations [TEXT]", "saved conversations, or those that contain this text"),
        "/resume": ("/resume ID", "continue another conversation"),
        "/rename": ("/rename TITLE", "rename this conversation"),
        "/again": ("/again", "ask the question again whose answer was broken off"),
        "/stats": ("/stats", "tokens and speed of this conversation"),
        "/model": ("/model", "the model"),
        "/clear": ("/clear", "start a new conversation"),
        "/save": ("/save FILE", "save the conversation to a new Markdown file"),
        "/quit": ("/quit", "leave"),
    },
    "@server:uri in a question adds a resource. Alt-Enter starts a new line, Tab completes, "
    "Ctrl-C stops an answer, Ctrl-D exits.",
)

HELP_JAPANESE = Help(
    {
        "/help": ("/help", "この一覧"),
        "/tools": ("/tools [名前]", "ツールの一覧、またはその 1 つ"),
        "/servers": ("/servers", "サーバーとその状態"),
        "/resources": ("/resources [サーバー]", "サーバーが公開しているリソース"),
        "/resource": ("/resource URI", "リソースを表示し、次の質問に添える"),
        "/prompts": ("/prompts [サーバー]", "サーバーが用意した質問"),
        "/prompt": ("/prompt 名前 [K=V]...", "用意された質問をする"),
        "/enable": ("/enable 名前", "ツールやサーバーを有効に戻す (今後も)"),
        "/disable": ("/disable 名前", "ツールやサーバーを無効にする (今後も)"),
        "/approve": ("/approve [forget 名前]", "確認なしで実行する・実行しないもの。取り消しもできる"),
        "/history": ("/history", "この会話でのツールの呼び出し"),
        "/conversations": ("/conversations [文字列]", "保存された会話、またはその文字列を含むもの"),
        "/resume": ("/resume ID", "別の会話を続ける"),
        "/rename": ("/rename 題名", "この会話の題名を変える"),
        "/again": ("/again", "回答が途切れた質問をもう一度する"),
        "/stats": ("/stats", "この会話のトークン数と速さ"),
        "/model": ("/model", "モデル"),
        "/clear": ("/clear", "新しい会話を始める"),
        "/save": ("/save ファイル", "会話を Markdown で新しいファイルに書く"),
        "/quit": ("/quit", "終了"),
    },
    "質問の中の @server:uri はそのリソースを添えます。Alt-Enter で改行、Tab で補完、"
    "Ctrl-C で回答を中止、Ctrl-D で終了します。",
)


def switched_line(phrases: ChatPhrases, server: str, tool: str | None, *, is_on: bool) -> str:
    """Return the line that confirms a switch of a tool, or of a whole server."""
    if tool is None:
        return (phrases.server_on if is_on else phrases.server_off).format(server=server)
    return (phrases.tool_on if is_on else phrases.tool_off).format(tool=tool, server=server)


HELP: Mapping[Language, Help] = {"en": HELP_ENGLISH, "ja": HELP_JAPANESE}
