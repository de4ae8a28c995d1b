"""The names tools have."""

from __future__ import annotations

import itertools
import re

from rkllm_mcp.messages import long_name, safe_name, shown_names


def test_a_name_is_short_while_only_one_tool_has_it() -> None:
    tools = [("weather", "get_weather"), ("a", "echo"), ("b", "echo")]
    assert shown_names(tools) == ["get_weather", "mcp__a__echo", "mcp__b__echo"]


def test_names_are_made_safe() -> None:
    assert safe_name("files.read/all") == "files_read_all"
    assert safe_name("天気").startswith("tool_")
    assert len(safe_name("x" * 300)) == 64
    assert long_name("my server", "a.b") == "mcp__my_server__a_b"
    assert len(long_name("s" * 60, "t" * 60)) == 64


def test_no_two_tools_share_a_name_for_any_original_names() -> None:
    words = [
        "echo",
        "a.b",
        "a/b",
        "a_b",
        "天気",
        "予報",
        "",
        "x" * 64,
        "x" * 65,
        "x" * 64 + "y",
        "mcp__s__echo",
        "s__echo",
    ]
    tools = list(itertools.product(["s", "s.t", "s_t", "mcp", "天"], words))
    names = shown_names(tools)
    assert len(set(names)) == len(tools)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)


def test_a_tool_called_like_the_long_name_of_another_does_not_take_its_place() -> None:
    tools = [("files", "delete"), ("evil", "mcp__files__delete")]
    assert shown_names(tools) == ["delete", "mcp__evil__mcp__files__delete"]
    assert shown_names(tools[::-1]) == ["mcp__evil__mcp__files__delete", "delete"]


def test_tools_keep_their_names_when_only_others_leave() -> None:
    tools = [("a", "x.y"), ("a", "x/y"), ("b", "other")]
    assert shown_names(tools)[:2] == shown_names(tools[:2])
    assert sorted(shown_names(tools)) == sorted(shown_names(tools[::-1]))
