"""Tools that are offered, and the steps of one call."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import anyio
import pytest

from rkllm_mcp.config.servers import BuiltinServer, BuiltinTool, ServerConfig, is_offered
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.events import Approval
from rkllm_mcp.messages import ANSWER, ERROR, ToolCall, ToolResult, ToolSpec
from rkllm_mcp.protocols import NO_CONTEXT, Approver, CallContext, Decision
from rkllm_mcp.text import Language
from rkllm_mcp.tools.approvals import Approvals, Switches
from rkllm_mcp.tools.execution import ExecutionPolicies, call_within_limit, execute_call
from tests.support.mcp_servers.specs import local_server

SERVER = local_server("s")
TOOL = ToolSpec("t", server="s", wire_name="t")
CALL = ToolCall("call_1", "t", {})
HOW = "; call it again for a smaller part to see them"


@dataclass
class Server:
    """Answers each call with ``text``; never, if that is None."""

    text: str | None = "x"
    spec: ServerConfig = SERVER
    error: Exception | None = None
    structured: Mapping[str, Any] | None = None  # without ``meta`` the call then failed, in the words of the server
    meta: Mapping[str, Any] | None = None
    contexts: list[CallContext] = field(default_factory=list[CallContext])

    async def call(self, tool: str, arguments: Mapping[str, Any], context: CallContext = NO_CONTEXT) -> dict[str, Any]:
        self.contexts.append(context)
        if self.error is not None:
            raise self.error
        if self.text is None:
            await anyio.sleep_forever()
        content = {"content": [{"type": "text", "text": self.text}], "isError": self.structured is not None}
        if self.meta is not None:
            content |= {"isError": ERROR in self.meta, "_meta": self.meta}
        return content if self.structured is None else {**content, "structuredContent": self.structured}


async def executed(server: Server, policies: ExecutionPolicies | None = None, tool: ToolSpec = TOOL) -> ToolResult:
    return await execute_call(server, tool, CALL, NO_CONTEXT, policies or ExecutionPolicies())


def test_every_tool_is_offered_unless_the_configuration_says_otherwise() -> None:
    assert is_offered(local_server("s"), "read")
    assert not is_offered(local_server("s", excluded_tools=("read",)), "read")
    assert not is_offered(local_server("s", allowed_tools=("write",)), "read")
    assert is_offered(local_server("s", allowed_tools=("re*",)), "read")
    assert not is_offered(local_server("s", allowed_tools=("read", "write"), excluded_tools=("w*",)), "write")
    assert not is_offered(local_server("s", allowed_tools=()), "read")
    assert is_offered(local_server("s", allowed_tools=("odd[name]",)), "odd[name]")


@pytest.mark.anyio
async def test_a_call_that_takes_too_long_becomes_a_result_that_says_so() -> None:
    result = await call_within_limit(Server(None, local_server("s", timeout_s=0.01)), TOOL, CALL, NO_CONTEXT)
    assert result == ToolResult("call_1", "t", "Tool 't' did not answer within 0.01 s and was stopped.", is_error=True)


@pytest.mark.anyio
async def test_a_server_that_is_not_available_becomes_a_result_that_says_so() -> None:
    gone = Server(error=ServerUnavailableError("Server 's' is down."))
    assert await call_within_limit(gone, TOOL, CALL, NO_CONTEXT) == ToolResult(
        "call_1", "t", "Server 's' is down.", is_error=True
    )


@pytest.mark.anyio
async def test_a_search_that_found_nothing_has_not_failed() -> None:
    nothing = await executed(Server("No results found.", structured={"results": [], "count": 0}))
    broken = await executed(Server("No index.", structured={"results": [], "error": "no index"}))
    assert (nothing.is_error, nothing.sources, nothing.text) == (False, (), "No results found.")
    assert (broken.is_error, broken.sources) == (True, None)


@pytest.mark.anyio
async def test_a_long_result_is_cut_and_marked() -> None:
    cut = await executed(Server("0123456789"), ExecutionPolicies(result_chars=4))
    assert replace(cut, seconds=0) == ToolResult(
        "call_1", "t", f"0123\n… truncated, 6 more characters{HOW}", truncated=True
    )
    assert (await executed(Server("0123"), ExecutionPolicies(result_chars=4))).truncated is False


@pytest.mark.anyio
async def test_invisible_characters_are_removed_before_a_result_is_cut() -> None:
    result = await execute_call(Server("a\u200bb\u200bc<d<"), TOOL, CALL, NO_CONTEXT, ExecutionPolicies(result_chars=4))
    assert result.text == f"abc<\n… truncated, 2 more characters{HOW}"


@pytest.mark.anyio
async def test_a_tool_that_is_switched_off_is_not_called_and_its_owner_not_asked() -> None:
    server, switches = Server(), Switches()
    switches.turn("s", "t", is_on=False)
    result = await executed(server, ExecutionPolicies(Approvals(), switches=switches))
    fact = f"Tool '{CALL.name}' is switched off"
    text, notice = f"{fact}; answer without it.", f"{fact}."
    off = ToolResult(CALL.id, CALL.name, text, is_error=True, ruling="off", notice=notice)
    assert (result, server.contexts) == (off, [])
    assert result.text == "Tool 't' is switched off; answer without it."


@pytest.mark.anyio
async def test_a_call_that_is_not_approved_is_not_made_and_one_that_is_says_how() -> None:
    policies = ExecutionPolicies(Approvals())
    refusing = Server(spec=local_server("s", always_ask=("t",)))
    result = await executed(refusing, policies)
    assert (result.is_error, result.ruling, refusing.contexts) == (True, "refused", [])
    harmless = Server(spec=local_server("s", approve="dangerous"))
    assert (await executed(harmless, policies)).ruling == "free"
    unknown = Server()
    assert ((await executed(unknown, policies)).ruling, unknown.contexts) == ("refused", [])


@pytest.mark.anyio
@pytest.mark.parametrize("change", ["none", "switched off", "another definition", "gone"])
async def test_what_changes_while_a_person_is_asked_counts_when_the_call_would_begin(change: str) -> None:
    server, switches, tools = Server(), Switches(), {"t": TOOL}

    class Person:
        async def approve(self, question: Approval) -> Decision:
            assert question.arguments == CALL.arguments
            if change == "switched off":
                switches.turn("s", "t", is_on=False)
            elif change == "another definition":
                tools["t"] = replace(TOOL, description="Delete everything.")
            elif change == "gone":
                del tools["t"]
            return "once"

    result = await execute_call(
        server,
        TOOL,
        CALL,
        CallContext(asker=cast("Approver", Person())),
        ExecutionPolicies(Approvals(), switches=switches),
        is_current=lambda: tools.get("t") == TOOL,
    )
    rulings = {"none": "once", "switched off": "off", "another definition": "refused", "gone": "refused"}
    assert (result.ruling, len(server.contexts)) == (rulings[change], int(change == "none"))
    assert result.is_error is (change != "none")


@pytest.mark.anyio
async def test_a_server_gets_no_tokens_of_another() -> None:
    server, context = Server(), CallContext(tokens={"mine": "1", "theirs": "2"})
    await execute_call(server, TOOL, CALL, context, ExecutionPolicies(), foreign_tokens=frozenset({"theirs"}))
    assert [received.tokens for received in server.contexts] == [{"mine": "1"}]


@pytest.mark.anyio
async def test_scores_and_ids_of_passages_that_the_text_has_are_not_repeated_as_json() -> None:
    found = {"content": "The bins are emptied on Thursday.", "title": "House rules", "score": 0.8, "chunk_id": "b" * 40}
    structured = {"query": "When are the bins emptied?", "knowledge_base_id": "e" * 36, "results": [found]}
    shown = await executed(Server("The bins are emptied\non Thursday.\nSource: (House rules)", structured=structured))
    assert shown.text == "The bins are emptied\non Thursday.\nSource: (House rules)"
    copy = await executed(Server("A tree.", structured={"content": [{"type": "image", "data": "iVBORw0KGgo="}]}))
    assert copy.text == "A tree."
    left_out = await executed(Server("One passage was found.", structured=structured))
    assert "emptied on Thursday" in left_out.text


@pytest.mark.anyio
@pytest.mark.parametrize(("module", "is_own"), [("mcp_servers.weather", True), ("their.weather", False)])
async def test_a_sentence_of_an_own_server_is_the_whole_text_and_its_figures_are_left_to_programs(
    module: str, is_own: bool
) -> None:
    figures = {"summary": "Rain.", "summary_ja": "雨でしょう。", "high": 18}
    weather = local_server("s", command=sys.executable, args=("-m", module))
    result = await executed(Server("Rain.", weather, structured=figures, meta={ANSWER: True}))
    assert (result.is_answer, result.text == "Rain.") == (is_own, is_own)


@pytest.mark.anyio
async def test_what_is_missing_on_an_own_server_and_what_is_there_is_said_in_the_language_of_the_question() -> None:
    error = {"kind": "not_found", "what": "plans.txt", "suggestions": ["plan.md"]}
    server = Server(
        "There is no plans.txt; there is plan.md.",
        BuiltinServer(name="s", tools=(BuiltinTool(name="clock"),)),
        meta={ERROR: error},
    )
    lines: dict[Language, str] = {
        "en": "There is no plans.txt; there is plan.md.",
        "ja": "plans.txt はありません。あるのは plan.md です。",
    }
    for language, line in lines.items():
        result = await execute_call(server, TOOL, CALL, CallContext(language=language), ExecutionPolicies())
        assert (result.text, result.shown, result.is_error) == (line, line, True)
