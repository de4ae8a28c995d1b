"""docs/development/mission.md names files, tests, commands and keys; each of them is there."""

from __future__ import annotations

import re

import pytest

from tests.support.shared import REPOSITORY, shared_path

PAGE = (REPOSITORY / "docs" / "development" / "mission.md").read_text("utf-8")
CODE = re.findall(r"`([^`\n]+)`", PAGE)
TESTS = sorted({code for code in CODE if "::" in code})
FILES = sorted({code for code in CODE if re.fullmatch(r"[\w./-]+\.py", code)})
SCRIPTS = sorted({code.split(" ")[0] for code in CODE if re.match(r"scripts/\w+( |$)", code)})
COMMANDS = sorted({code for code in CODE if code.startswith("rkllm-mcp ")})
KEYS = sorted(set(re.findall(r"\bkey `([\w.]+)`", PAGE)))


def defined(path: str) -> set[str]:
    """The tests of a file below ``tests``."""
    file = REPOSITORY / "tests" / path
    return set(re.findall(r"^(?:async )?def (test_\w+)\(", file.read_text("utf-8"), re.MULTILINE))


def test_the_page_names_a_good_part_of_the_suite() -> None:
    assert len(TESTS) > 80
    assert len(FILES) > 40


@pytest.mark.parametrize("path", sorted({test.partition("::")[0] for test in TESTS}))
def test_every_test_that_is_named_exists(path: str) -> None:
    named = {test.partition("::")[2] for test in TESTS if test.startswith(f"{path}::")}
    assert named - defined(path) == set()


def test_every_file_that_is_named_exists() -> None:
    known = (REPOSITORY / "rkllm_mcp", REPOSITORY / "tests", REPOSITORY)
    missing = [name for name in FILES if not any((folder / name).is_file() for folder in known)]
    assert missing == []
    assert [name for name in SCRIPTS if not (REPOSITORY / name).is_file()] == []


# By test: the document whose example it runs, and words of the example; those without words read it from the document.
EXAMPLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "test_001_the_client_lists_and_calls_as_sections_3_1_to_3_3_show": (
        "001",
        ("The weather in Tokyo is sunny, 25°C.",),
    ),
    "test_002_the_tool_resource_and_prompt_of_the_document_are_offered": ("002", ("file:///path/to/document.txt",)),
    "test_002_the_prompt_of_section_4_2_is_used_as_it_is_typed": ("002", ("Rust コードのレビューを開始します...",)),
    "test_the_example_of_a_resource_that_the_question_needs": (
        "002",
        ("データベースから最新のユーザー情報を取得して要約して", "[MCP: Loaded 150 records]"),
    ),
    "test_the_configuration_file_is_read": ("002", ()),
    "test_a_call_is_found_in_the_missions_two_styles": ("002", ()),
    "test_example_1_the_weather": ("002", ("東京の天気を教えて", "[MCP: Detected 1 tool call]")),
    "test_example_4_two_tools": ("002", ("東京の天気を取得して、その結果をファイル weather_report.txt に保存して",)),
    "test_003_the_headers_of_the_example_reach_the_api_with_its_tokens_and_its_tool_has_the_long_name": (
        "003",
        ("Bearer ${servicenow}", "mcp__servicenow__get_incidents"),
    ),
    "test_003_the_servers_of_the_types_stdio_and_builtin_are_read_as_the_document_has_them": (
        "003",
        ("@anthropic-ai/mcp-server-filesystem",),
    ),
    "test_operations_without_an_id_are_named_by_method_and_path": ("003", ("get_users_list", "post_incidents")),
    "test_004_the_requests_of_the_document_get_its_responses": ("004", ("マイナビのアルムナイサービスについて教えて",)),
    "test_the_missions_examples_are_answered_without_a_model": (
        "004",
        ("サ-ビス（service）のガイドライン", "マネ-ジャ-"),
    ),
    "test_the_missions_five_requests_and_thirty_more_find_their_tool_first": (
        "004",
        ("リモートワーク手当は？", "マネ-ジャ-"),
    ),
    "test_004_a_forced_tool_skips_the_choice": ("004", ("マイナビのサービスは？",)),
}


def test_a_row_that_says_works_names_a_test_that_runs_the_documents_own_example() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and "*works*" in line]
    assert len(rows) > 15
    unproved = [row for row in rows if not set(re.findall(r"::(test_\w+)`", row)) & set(EXAMPLES)]
    assert unproved == []
    for name, (number, words) in EXAMPLES.items():
        (path,) = {test.partition("::")[0] for test in TESTS if test.endswith(f"::{name}")}
        source = (REPOSITORY / "tests" / path).read_text("utf-8")
        assert [word for word in words if word not in source] == [], name
        assert words or "block(" in source
        (document,) = shared_path("mission").glob(f"{number}_*.txt")
        text = document.read_text("utf-8")
        assert [word for word in words if word not in text] == [], name


def test_every_command_that_is_named_exists() -> None:
    # A test compares that page with the program.
    reference = (REPOSITORY / "docs" / "cli.md").read_text("utf-8")
    known = re.findall(r"^### `(rkllm-mcp [^`]+)`$", reference, re.MULTILINE)
    groups = {other.rpartition(" ")[0] for other in known}
    whole = [name for name in known if name not in groups]
    words = [command.replace(" --model NAME", "") for command in COMMANDS]
    assert [word for word in words if not any(f"{word} ".startswith(f"{name} ") for name in whole)] == []


def test_every_key_that_is_named_exists() -> None:
    reference = (REPOSITORY / "docs" / "configuration.md").read_text("utf-8")
    assert [key for key in KEYS if key.rpartition(".")[2] not in reference] == []


def test_every_edge_case_of_the_mission_has_its_row() -> None:
    (document,) = shared_path("mission").glob("000_*.txt")
    table = document.read_text("utf-8").partition("## エッジケース")[2].partition("\n## ")[0]
    cases = re.findall(r"^\| ([^|-][^|]*) \| [^|]+ \|$", table, re.MULTILINE)[1:]
    assert len(cases) == 6
    rows = set(re.findall(r"^\| (\S[^|]*) \| `[\w/.]+::test_\w+` \|$", PAGE, re.MULTILINE))
    assert [case for case in cases if case not in rows] == []
