"""What ``/help`` says of each command of a conversation, in English and Japanese: one table for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rkllm_mcp.surfaces.phrases import Language


@dataclass(frozen=True)
class Help:
    """What ``/help`` says.

    Args:
        commands: by the command's name: how it is written, and what it does.
        keys: what else can be typed.
    """

    commands: Mapping[str, tuple[str, str]]
    keys: str


ENGLISH = Help(
    {
        "/help": ("/help", "this list"),
        "/tools": ("/tools [NAME]", "the tools, or one of them"),
        "/servers": ("/servers", "the servers and how they are"),
        "/resources": ("/resources [SERVER]", "what servers let you read"),
        "/resource": ("/resource URI", "show a resource; it goes with your next question"),
        "/prompts": ("/prompts [SERVER]", "the questions that servers have prepared"),
        "/prompt": ("/prompt NAME [K=V]...", "ask one of them"),
        "/enable": ("/enable NAME", "switch a tool or a server on again, also for later"),
        "/disable": ("/disable NAME", "switch a tool or a server off, also for later"),
        "/approve": ("/approve [forget NAME]", "what may run unasked or never; take it back"),
        "/history": ("/history", "the calls of this conversation"),
        "/conversations": ("/conversations [TEXT]", "the kept conversations, or those with this text"),
        "/resume": ("/resume ID", "go on with another conversation"),
        "/rename": ("/rename TITLE", "give this conversation another title"),
        "/stats": ("/stats", "tokens and speed of this conversation"),
        "/model": ("/model", "the model"),
        "/clear": ("/clear", "begin a new conversation"),
        "/save": ("/save FILE", "write the conversation to a new file, as Markdown"),
        "/quit": ("/quit", "leave"),
    },
    "@server:uri in a question puts a resource into it. Alt-Enter begins a new line, Tab completes, "
    "Ctrl-C stops an answer, Ctrl-D leaves.",
)

JAPANESE = Help(
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
        "/stats": ("/stats", "この会話のトークン数と速さ"),
        "/model": ("/model", "モデル"),
        "/clear": ("/clear", "新しい会話を始める"),
        "/save": ("/save ファイル", "会話を Markdown で新しいファイルに書く"),
        "/quit": ("/quit", "終了"),
    },
    "質問の中の @server:uri はそのリソースを添えます。Alt-Enter で改行、Tab で補完、"
    "Ctrl-C で回答を中止、Ctrl-D で終了します。",
)

HELP: Mapping[Language, Help] = {"en": ENGLISH, "ja": JAPANESE}
