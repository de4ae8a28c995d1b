"""What a person reads where no tool could answer."""

from __future__ import annotations

import pytest

from rkllm_mcp.agent.handlers import has_failed
from rkllm_mcp.agent.loop import failure_sentence
from rkllm_mcp.catalogue import translate
from rkllm_mcp.messages import ApprovalOutcome, ToolResult, ToolSpec
from rkllm_mcp.text import Language

READ = ToolSpec("read_file", title="Read", texts={"ja": {"title": "ファイルを読む", "parameters": {}}}, server="files")


def failed(text: str, ruling: ApprovalOutcome = "free") -> ToolResult:
    return ToolResult("call_1", "read_file", text, is_error=True, ruling=ruling)


@pytest.mark.parametrize(
    "reason", ["ENOENT: no such file", "[Errno 2] No such file", "FileNotFoundError", "TypeError: f() got x", ""]
)
def test_nothing_of_a_program_reaches_a_person(reason: str) -> None:
    titles: dict[Language, str] = {"en": "Read", "ja": "ファイルを読む"}
    for language, title in titles.items():
        unknown = translate("answer.unknown_reason", language)
        expected = translate("answer.could_not", language, tool=title, reason=unknown)
        assert failure_sentence([failed(reason)], lambda _: READ, language) == expected


def test_a_servers_own_sentence_is_the_reason() -> None:
    expected = translate("answer.could_not", tool="Read", reason="There is no plan.txt; there is plan.md")
    assert failure_sentence([failed("There is no plan.txt; there is plan.md.")], lambda _: READ, "en") == expected


def test_a_call_of_no_tool_has_its_own_sentence() -> None:
    nothing = translate("answer.no_call")
    assert failure_sentence([failed("There is no tool 'x'")], lambda _: None, "en") == nothing
    assert failure_sentence([ToolResult("", "tool_call", "unreadable", is_error=True)], lambda _: READ, "en") == nothing


def test_what_a_person_has_decided_is_not_a_failure() -> None:
    assert has_failed(failed("broke"))
    assert not any(has_failed(failed("refused", ruling)) for ruling in ("deny", "never", "refused", "off"))
