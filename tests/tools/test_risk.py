"""What a call may do, by its name, its hints and its arguments."""

from __future__ import annotations

from typing import Any

import pytest

from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.tools.risk import is_known_to_read, risk_of, risk_of_name

NAMES = {
    None: (
        "get_weather list_directory read_text_file directory_tree search_files convert_time git_status echo add "
        "git_diff_unstaged fetch sequentialthinking read_graph open_nodes get-sum get-env describe_table list_commands "
        "listDeleted get_run_status find_send_targets format_date run_time runId "
        "last_run_status workflow-run-logs longRunningOperation trunk trigger_info triggerList order_status run_check "
        "runSearch next_run latest_order command_help script-names 天気取得 ファイル一覧 削除済み一覧 予約確認"
    ),
    "delete": (
        "delete_file deleteFile git_reset clear_cache rm drop_table files.remove user-purge DROP_ALL "
        "get_and_delete_message ファイル削除 一時ファイルを消去 設定の初期化"
    ),
    "execute": "run_command exec runTests bash shell_exec execute_python invoke-script run "
    "trigger_dag_run trigger_deploy run_workflow run_time_and_run run_script run_next run_query "
    "rerun_failed_jobs コマンド実行 サービス起動",
    "send": "send_message sendEmail post_status order_pizza post_tweet publish_article git_push_and_share buy_item "
    "メール送信 商品購入 送金",
    "change": (
        "write_file edit_file create_directory move_file git_commit git_add git_checkout append_insight update_user "
        "add_observations find_and_replace setVolume browser_click "
        "trigger-long-running-operation trigger-sampling-request trigger trigger_build ファイル更新 予定登録"
    ),
}


@pytest.mark.parametrize(
    ("name", "danger"), [(name, danger) for danger, names in NAMES.items() for name in names.split()]
)
def test_a_name_tells_what_a_tool_may_do(name: str, danger: str | None) -> None:
    assert risk_of_name(name) == danger


@pytest.mark.parametrize(
    ("tool", "trusted", "danger"),
    [
        (ToolSpec("look", read_only=True), True, None),
        (ToolSpec("delete_file", read_only=True), True, None),
        (ToolSpec("delete_file", read_only=True), False, "delete"),
        (ToolSpec("look", destructive=True), True, "delete"),
        (ToolSpec("look", destructive=True), False, "delete"),
        (ToolSpec("look", read_only=True, destructive=True), True, None),
        (ToolSpec("look", read_only=True, destructive=True), False, None),
        (ToolSpec("switch", read_only=True, destructive=True), False, "change"),
        (ToolSpec("look", read_only=False), True, "change"),
        (ToolSpec("look", read_only=False, destructive=False), False, "change"),
        (ToolSpec("run", read_only=False), False, "execute"),
        (ToolSpec("look", destructive=False), False, None),
        (ToolSpec("delete_file", destructive=False), True, "delete"),
        (ToolSpec("shown", wire_name="delete_file"), False, "delete"),
    ],
)
def test_a_hint_of_a_stranger_only_adds_caution(tool: ToolSpec, trusted: bool, danger: str | None) -> None:
    assert risk_of(tool, {}, trusted=trusted) == danger


@pytest.mark.parametrize(
    ("arguments", "danger"),
    [
        ({"sql": "SELECT * FROM deleted"}, None),
        ({"sql": "DROP TABLE users"}, "delete"),
        ({"query": "with old as (select 1) delete from users"}, "delete"),
        ({"query": "select 1; /* */ Insert Into users values (1)"}, "change"),
        ({"statement": "UPDATE users SET a = 1"}, "change"),
        ({"query": "how do I delete a file"}, None),
        ({"text": "DROP TABLE users"}, None),
        ({"query": {"delete from": 1}}, None),
    ],
)
def test_sql_is_judged_by_its_statements(arguments: dict[str, Any], danger: str | None) -> None:
    assert risk_of(ToolSpec("query", read_only=True), arguments, trusted=True) == danger


READS = (
    "get_weather list_directory read_text_file convert_time getTime list-commits get_pull_request search_files fetch "
    "is_open get_current_time find_tools read_graph describe_table list_commands get/weather calculate "
    "天気取得 予定を検索 天気を取得する 検索する 検索_文書 ファイル一覧 注文一覧 予約確認 残高照会 get_天気"
)
MAY_CHANGE = (
    "charge_card refund_customer open_garage format_disk email_customer 解約 電源を切る echo add "
    "sequentialthinking open_nodes list_and_delete get_or_create_user listAndDelete list&close find_and_replace "
    "read_write_file get_send check_in "
    "check_out log_workout watch_repository load_program status_light git_status delete_file run_check "
    "更新して表示 取得して送信 一覧と解約 投稿を非表示 確認済みにする 取得予約"
)


@pytest.mark.parametrize(
    ("name", "reads"), [*((name, True) for name in READS.split()), *((name, False) for name in MAY_CHANGE.split())]
)
def test_a_call_is_known_to_read_only_by_a_leading_reading_verb_without_a_second_action(name: str, reads: bool) -> None:
    assert is_known_to_read(ToolSpec("shown", wire_name=name), {}, trusted=False) == reads


@pytest.mark.parametrize(
    ("tool", "arguments", "trusted", "reads"),
    [
        (ToolSpec("zip", read_only=True), {}, True, True),
        (ToolSpec("zip", read_only=True), {}, False, False),
        (ToolSpec("zip"), {}, True, False),
        (ToolSpec("get_it", read_only=False), {}, False, False),
        (ToolSpec("get_it", destructive=True), {}, True, False),
        (ToolSpec("query", read_only=True), {"sql": "DROP TABLE users"}, True, False),
        (ToolSpec("query"), {"sql": "SELECT 1"}, False, True),
    ],
)
def test_a_hint_of_a_trusted_server_makes_a_call_known_to_read(
    tool: ToolSpec, arguments: dict[str, Any], trusted: bool, reads: bool
) -> None:
    assert is_known_to_read(tool, arguments, trusted=trusted) == reads
