"""Prompts of servers of both eras: listed, checked, filled, completed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from rkllm_mcp.config.servers import StdioServer
from rkllm_mcp.errors import ToolboxError
from rkllm_mcp.mcp_client.resources import ResourceHub
from rkllm_mcp.messages import Message, PromptArgument, PromptTemplate
from rkllm_mcp.tools.tool_servers import open_toolbox
from tests.support.mcp_servers.specs import PATIENCE_S, asking, hostile, tiny

pytestmark = pytest.mark.anyio
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])
REVIEW = PromptTemplate(
    "development",
    "code_review",
    "Reviews code.",
    (PromptArgument("language", "The language.", required=True), PromptArgument("style", "How to say it.")),
)


@asynccontextmanager
async def offerings_of(*specs: StdioServer) -> AsyncGenerator[ResourceHub]:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox(specs) as toolbox:
            await toolbox.wait_until_connected()
            yield toolbox.offerings


@ERAS
async def test_prompts_are_listed_with_their_arguments(era: str) -> None:
    async with offerings_of(tiny(), asking("development", era)) as offerings:
        first, *others = await offerings.prompts()
    assert first == REVIEW
    assert first.reference == "development:code_review"
    assert [(prompt.name, prompt.arguments) for prompt in others] == [("begun", ()), ("empty", ())]


@ERAS
async def test_a_filled_prompt_consists_of_turns_and_its_other_content_is_readable(era: str) -> None:
    async with offerings_of(asking("development", era)) as offerings:
        filled = await offerings.fill_prompt("code_review", {"language": "rust"})
        assert filled.template == REVIEW
        assert filled.messages == (
            Message("user", "Here are the rules.\n\n[resource memo://rules]\nNo globals."),
            Message("assistant", "I have read them."),
            Message("user", "Review this rust code."),
        )
        styled = await offerings.fill_prompt("development:code_review", {"language": "rust", "style": " kindly."})
        assert styled.messages[-1].text == "Review this rust code kindly."


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("code_review", {}, r"^prompt 'code_review' needs language; add language=…$"),
        ("code_review", {"language": ""}, r"^prompt 'code_review' needs language; "),
        ("code_review", {"lang": "x"}, r"^prompt 'code_review' has no argument 'lang'; did you mean 'language'\?$"),
        ("code_review", {"q": "x"}, r"^prompt 'code_review' has no argument 'q'; choose one of language, style$"),
        ("begun", {"q": "x"}, r"^prompt 'begun' has no argument 'q'; it takes none$"),
        ("code_reveiw", {}, r"^there is no prompt 'code_reveiw'; did you mean 'code_review'\?$"),
        ("development:x", {}, r"^there is no prompt 'development:x'; "),
        ("empty", {}, r"^prompt 'development:empty' is empty; ask in words of your own$"),
    ],
)
async def test_what_cannot_be_filled_says_what_to_mend(name: str, arguments: dict[str, str], sentence: str) -> None:
    async with offerings_of(asking("development")) as offerings:
        with pytest.raises(ToolboxError, match=sentence):
            await offerings.fill_prompt(name, arguments)


async def test_a_name_that_two_servers_have_needs_the_servers() -> None:
    async with offerings_of(asking("one"), asking("two")) as offerings:
        with pytest.raises(
            ToolboxError, match=r"^several servers have a prompt 'begun'; name one of one:begun, two:begun"
        ):
            await offerings.fill_prompt("begun", {})
        assert (await offerings.fill_prompt("two:begun", {})).template.server == "two"


@ERAS
async def test_arguments_are_completed_by_the_server(era: str) -> None:
    async with offerings_of(asking("development", era)) as offerings:
        assert await offerings.complete_prompt("code_review", "language", "p") == ("python", "pascal")
        assert await offerings.complete_prompt("code_review", "language", "p", {"style": "x"}) == ("python", "pascal")
        assert await offerings.complete_resource("development", "memo://day/{date}", "date", "2026") == (
            "2026-11-21",
            "2026-11-22",
        )


async def test_pressing_tab_gives_no_completion_rather_than_an_error() -> None:
    specs = [tiny(), asking("advertising", "advertising"), hostile("exits")]
    async with offerings_of(*specs) as offerings:
        assert await offerings.complete_prompt("no_such_prompt", "a", "b") == ()
        for server in ("tiny", "advertising", "exits", "no_such_server"):
            assert await offerings.complete_resource(server, "memo://{a}", "a", "b") == ()
