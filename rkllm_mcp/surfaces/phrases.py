"""The words around an answer and its questions, in English and Japanese: one table for each.

Lines that the parts below write themselves (``[MCP: Server 'time' is ready: 2 tools]``) and errors are English in every
language: programs read them, too, and whoever helps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rkllm_mcp.calling import Decision
from rkllm_mcp.events import EndReason
from rkllm_mcp.forms import ENGLISH as ENGLISH_MISTAKES
from rkllm_mcp.forms import FieldKind, Wording

Language: TypeAlias = Literal["en", "ja"]


@dataclass(frozen=True)
class Phrases:
    """Everything that is said around an answer.

    Args:
        emulated: what a person must know about answers of the emulated ``{model}``.
        reading: how many ``{tokens}`` the NPU has to read, and ``{share}`` of ``about``.
        about: how many ``{seconds}`` that takes.
        queued: how many questions come first, ``{position}``.
        endings: how an answer ended that was not simply over.
        failed: an error is told; ``{error}`` is a sentence.
        nameless: the sentence where an answer failed without one.
        unreadable: a call could not be read; ``{reason}``.
        repaired: behind a call that could be read after repairs only.
        waiting: a call that nobody here can allow waits for a yes: its ``{name}`` and the ``{reason}``.
        asks: heads the question of a ``{server}``, its ``{message}``.
        decisions: what may be decided about a call: the key to type, and what it means.
        run_it: asks for one of the keys.
        asks_model: heads the question of a server that wants to ask the model.
        required: behind the name of a field that has to be filled.
        default: what Enter means; ``{value}`` is filled in.
        kinds: what may be typed, for each kind of field.
        how: says how a form is filled, and how it is not.
        send: asks whether a filled form may go.
        send_keys: what it takes for an answer: yes, no, fill again.
        open_page: says what to do with an address; ``{host}`` is filled in.
        is_done: asks whether that was done.
        more: says that a value is longer than what is shown; ``{count}`` is filled in.
        mistakes: what is wrong with a value of a form.
        too_late: the question was taken back.
        again: the answer was none of the keys.
    """

    emulated: str
    reading: str
    about: str
    queued: str
    endings: Mapping[EndReason, str]
    failed: str
    nameless: str
    unreadable: str
    repaired: str
    waiting: str
    asks: str
    decisions: Mapping[Decision, tuple[str, str]]
    run_it: str
    asks_model: str
    required: str
    default: str
    kinds: Mapping[FieldKind, str]
    how: str
    send: str
    send_keys: Mapping[str, str]
    open_page: str
    is_done: str
    more: str
    mistakes: Wording
    too_late: str
    again: str


ENGLISH = Phrases(
    emulated="[NPU: emulated; model '{model}' answers from a script, not from a language model]",
    reading="[NPU: reading {tokens} tokens{share} …]",
    about=", about {seconds} s",
    queued="[Queue: {position} before this question]",
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
    asks_model="Let it? [y/c/a/N/x] ",
    required="has to be filled in",
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
    how="Enter leaves a field as it is; /no declines, /skip gives no answer, Ctrl-C stops the whole answer.",
    send="Send this? [Y = yes, e = fill in again, n = no] ",
    send_keys={"": "y", "y": "y", "yes": "y", "e": "e", "n": "n", "no": "n", "/no": "n", "/skip": "s"},
    open_page="Open this address in a browser if you trust {host}; it is not opened for you:",
    is_done="Done? [y = yes, n = no, Enter = no answer] ",
    more="… ({count} more characters)",
    mistakes=ENGLISH_MISTAKES,
    too_late="[MCP: The question is not waited for any more]",
    again="Answer with one of {keys}.",
)

JAPANESE = Phrases(
    emulated="[NPU: エミュレーター。モデル「{model}」の回答は言語モデルではなくスクリプトによるものです]",
    reading="[NPU: {tokens} トークンを読み込み中{share} …]",
    about="、約 {seconds} 秒",
    queued="[待ち順: この質問の前に {position} 件]",
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
    too_late="[MCP: この質問への回答はもう待たれていません]",
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
