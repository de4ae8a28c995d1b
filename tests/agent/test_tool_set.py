"""Which tools a conversation is shown, and how it learns of the others without its front being changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from rkllm_mcp.agent.tool_set import MOST_CHOSEN, SelectionSettings, ToolSelection, find_tools_spec
from rkllm_mcp.events import Text, ToolCallDetected
from rkllm_mcp.messages import Conversation, ToolSpec
from rkllm_mcp.protocols import ToolEvidence
from tests.support.asked import TOKENS_EACH, Desk, statuses
from tests.support.scripted_toolbox import ScriptedToolbox, takes

pytestmark = pytest.mark.anyio
WEATHER = takes("get_weather", "Weather of a place.", "sky", location="string")
MAIL = takes("send_mail", "Send an e-mail to somebody.", "post", to="string", text="string")
FILES = takes("read_file", "Read a file.", "disk", path="string")
THINGS = ("lamp", "door", "oven", "fan", "pump", "bell", "clock", "radio", "window", "heater")
SWITCHES = [takes(f"switch_{thing}", f"Switch the {thing} on or off.", "home", on="boolean") for thing in THINGS]
MANY = [WEATHER, MAIL, FILES, *SWITCHES]


def desk(tools: list[ToolSpec] | None = None, budget: int = 5 * TOKENS_EACH, auto_select: bool | str = "auto") -> Desk:
    specs = MANY if tools is None else tools
    toolbox = ScriptedToolbox(specs=specs, texts={tool.name: f"{tool.name} ran" for tool in specs})
    settings = SelectionSettings(budget, auto_select)  # pyright: ignore[reportArgumentType]
    return Desk(toolbox, settings)


async def test_tools_that_fit_the_budget_are_all_listed() -> None:
    at = desk(budget=13 * TOKENS_EACH)
    await at.ask("Hello", [Text("Hi.")])
    assert at.listed == [tuple(tool.name for tool in MANY)]


async def test_of_too_many_tools_those_that_fit_the_question_are_listed_in_their_order() -> None:
    at = desk()
    await at.ask("東京の天気をメールで送って", [Text("Hi.")])
    assert at.listed == [("find_tools", "get_weather", "send_mail")]


@pytest.mark.parametrize("budget", [1, 2, 3, 5, 12])
async def test_the_list_costs_no_more_than_its_budget_and_is_a_handful_at_most(budget: int) -> None:
    at = desk(budget=budget * TOKENS_EACH)
    await at.ask("Switch everything on or off", [Text("Hi.")])
    assert len(at.listed[0]) == min(budget, 1 + MOST_CHOSEN)


async def test_a_question_about_nothing_in_particular_gets_find_tools_alone() -> None:
    at = desk()
    await at.ask("こんにちは", [Text("Hi.")])
    assert at.listed == [("find_tools",)]


@pytest.mark.parametrize(
    ("auto_select", "budget", "expected"),
    [
        (True, 100 * TOKENS_EACH, ("find_tools", "get_weather")),
        (False, TOKENS_EACH, tuple(tool.name for tool in MANY)),
    ],
)
async def test_the_owner_may_always_or_never_have_tools_chosen(
    auto_select: bool, budget: int, expected: tuple[str, ...]
) -> None:
    at = desk(auto_select=auto_select, budget=budget)
    await at.ask("Weather?", [Text("Sunny.")])
    assert at.listed == [expected]


async def test_a_tool_on_demand_is_found_and_never_listed_unless_it_is_forced_or_nothing_is_chosen() -> None:
    rare = replace(FILES, on_demand=True)
    at = desk([WEATHER, rare, MAIL])
    search = [ToolCallDetected("find_tools", {"query": "read a file"})]
    await at.ask("Read the file a", search, [ToolCallDetected("read_file", {"path": "a"})], [Text("It says a.")])
    assert at.listed == [("find_tools", "get_weather", "send_mail")] * 3
    assert [call.name for call in at.toolbox.calls] == ["read_file"]
    forced = desk([WEATHER, rare, MAIL])
    await forced.ask("Hello", [Text("Hi.")], forced="read_file")
    assert forced.listed == [("get_weather", "read_file", "send_mail")]
    never = desk([WEATHER, rare, MAIL], auto_select=False)
    await never.ask("Hello", [Text("Hi.")])
    assert never.listed == [("get_weather", "read_file", "send_mail")]


async def test_a_server_that_connects_later_is_announced_without_its_tools_on_demand() -> None:
    at = desk([WEATHER])
    await at.ask("Hello", [Text("Hi.")])
    at.toolbox.specs = [WEATHER, MAIL, replace(FILES, on_demand=True)]
    await at.ask("And now?", [Text("Hi.")])
    await at.ask("And then?", [Text("Hi.")])
    assert "send_mail(" in at.questions[1].context
    assert "find_tools(" in at.questions[1].context
    assert "read_file" not in at.questions[1].context
    assert at.questions[2].context == ""


async def test_a_forced_tool_is_in_the_list_for_every_question_and_budget() -> None:
    at = desk(budget=TOKENS_EACH)
    await at.ask("Weather?", [Text("Rang.")], forced="switch_bell")
    assert at.listed == [("find_tools", "switch_bell")]
    assert at.model.asked[0][2].forced_tool == "switch_bell"


async def test_a_tool_that_is_forced_later_is_announced_in_the_turn() -> None:
    at = desk()
    await at.ask("Weather?", [Text("Sunny.")])
    await at.ask("Now!", [Text("Rang.")], forced="switch_bell")
    assert at.listed[0] == at.listed[1]
    assert "switch_bell(on: boolean)" in at.questions[1].context


# --- find_tools ------------------------------------------------------------------------------------------------------


async def test_find_tools_lists_the_fitting_tools_which_can_be_called_at_once() -> None:
    at = desk()
    rounds = (
        [ToolCallDetected("find_tools", {"query": "read a file"})],
        [ToolCallDetected("read_file", {"path": "a"})],
        [Text("It says a.")],
    )
    events = await at.ask("Weather?", *rounds)
    found = at.conversation.messages[2].results[0]
    assert found.text == "read_file(path: string) — Read a file.\nCall one of these if it helps."
    assert [call.name for call in at.toolbox.calls] == ["read_file"]
    assert at.listed == [("find_tools", "get_weather")] * 3
    assert "read_file" in [tool.name for tool in at.model.asked[1][2].others]
    assert "[MCP: Tool 'find_tools' completed]" in statuses(events)


class FixedScores:
    """A search with the same scores for every request."""

    def __init__(self, *scores: float) -> None:
        self._scores = scores

    async def search(self, request: str, tools: Sequence[ToolSpec]) -> list[tuple[ToolSpec, float]]:
        del request
        return list(zip(tools, self._scores, strict=True))

    async def evidence(
        self, request: str, tools: Sequence[ToolSpec], shares: Mapping[str, float]
    ) -> list[ToolEvidence]:
        del shares
        return [ToolEvidence(tool, score) for tool, score in await self.search(request, tools)]

    def kinds(self, text: str) -> frozenset[str]:
        del text
        return frozenset()

    def is_statement(self, text: str) -> bool:
        del text
        return False

    def continue_question(self, before: str, text: str) -> str:
        del before, text
        return ""

    def continue_value(self, answers: Sequence[str], text: str) -> str:
        del answers, text
        return ""

    def have_common_words(self, text: str, values: str) -> bool:
        del text, values
        return False


@pytest.mark.parametrize(
    ("scores", "names"),
    [((0.5, 0.06), ["a"]), ((0.06, 0.05), ["a", "b"]), ((0.04, 0.01), ["a"]), ((0.03, 0.03), [])],
)
async def test_tools_fit_a_request_by_a_least_score_and_near_the_best(
    scores: tuple[float, ...], names: list[str]
) -> None:
    selection = ToolSelection(lambda: FixedScores(*scores), lambda _: 1, SelectionSettings(100))
    fitting = await selection.fitting("What time is it?", [takes("a"), takes("b")])
    assert [tool.name for tool in fitting] == names


async def test_find_tools_names_alternatives_and_finds_them_by_name() -> None:
    specs = [takes(f"switch_lamp{n}", f"Switches lamp{n}.", "home", on="boolean") for n in range(10, 23)]
    at = desk(specs)
    await at.ask("Hello", [ToolCallDetected("find_tools", {"query": "switch"})], [Text("Hm.")])
    *lines, last = at.conversation.messages[2].results[0].text.splitlines()
    assert [line.partition("(")[0] for line in lines] == [f"switch_lamp{n}" for n in range(10, 15)]
    others = ", ".join(f"switch_lamp{n}" for n in range(15, 20))
    assert last == f"Call one of these if it helps. Others, to be found by name: {others}."
    await at.ask("And?", [ToolCallDetected("find_tools", {"query": "switch_lamp17"})], [Text("Hm.")])
    assert at.conversation.messages[-2].results[0].text.startswith("switch_lamp17(")


async def test_find_tools_reports_an_empty_result() -> None:
    at = desk()
    await at.ask("Weather?", [ToolCallDetected("find_tools", {"query": "ほげ"})], [Text("Sorry.")])
    assert at.conversation.messages[2].results[0].text.startswith("No tool fits 'ほげ'.")


def test_find_tools_describes_its_choice_and_yields_to_a_servers_tool_of_its_name() -> None:
    assert find_tools_spec(MANY).description.endswith("There are 13 tools, of: sky, post, disk, home.")
    taken = [*MANY, takes("find_tools"), takes("find_more_tools")]
    assert find_tools_spec(taken).name == "host_find_tools"


# --- later questions -------------------------------------------------------------------------------------------------


async def test_a_later_question_on_another_subject_announces_its_tools_once() -> None:
    at = desk()
    await at.ask("Weather?", [Text("Sunny.")])
    await at.ask("Send an e-mail to Bob", [Text("Sent.")])
    await at.ask("Send another e-mail to Bob", [Text("Sent.")])
    assert at.listed == [("find_tools", "get_weather")] * 3
    context = "[More tools that you can call:\nsend_mail(to: string, text: string) — Send an e-mail to somebody.]"
    assert [message.context for message in at.questions] == ["", context, ""]


async def test_a_later_question_with_few_words_announces_no_tools() -> None:
    at = desk()
    await at.ask("Weather?", [Text("Sunny.")])
    for words in ("ありがとう", "Thanks!", "もっと詳しく教えて", "Why?"):
        await at.ask(words, [Text("You are welcome.")])
    assert [message.context for message in at.questions] == [""] * 5


async def test_a_server_that_connects_later_is_announced_when_all_tools_still_fit() -> None:
    at = desk([WEATHER, MAIL])
    await at.ask("Hello", [Text("Hi.")])
    at.toolbox.specs = [FILES, WEATHER, MAIL]
    await at.ask("And now?", [Text("Hi.")])
    await at.ask("And then?", [Text("Hi.")])
    assert at.listed == [("get_weather", "send_mail")] * 3
    told = "[More tools that you can call:\nread_file(path: string) — Read a file.]"
    assert [message.context for message in at.questions] == ["", told, ""]


async def test_a_server_with_too_much_to_tell_is_reached_through_find_tools() -> None:
    at = desk([WEATHER, MAIL])
    await at.ask("Hello", [Text("Hi.")])
    at.toolbox.specs = MANY
    await at.ask("Switch the oven off", [Text("Hi.")])
    assert "switch_oven(on: boolean)" in at.questions[1].context
    assert "find_tools(query: string)" in at.questions[1].context
    assert "switch_bell" not in at.questions[1].context


async def test_where_there_were_no_tools_the_first_ones_that_come_are_listed() -> None:
    at = desk([])
    await at.ask("Hello", [Text("Hi.")])
    at.toolbox.specs = [WEATHER]
    await at.ask("Hello", [Text("Hi.")])
    assert at.listed == [(), ("get_weather",)]


async def test_a_changed_tool_is_announced_again_and_called_in_its_new_form() -> None:
    at = desk([WEATHER])
    await at.ask("Hello", [Text("Hi.")])
    changed = takes("get_weather", "Weather of a place.", "sky", city="string")
    at.toolbox.specs = [changed]
    await at.ask("And now?", [Text("Hi.")])
    await at.ask("And then?", [Text("Hi.")])
    assert "get_weather(city: string)" in at.questions[1].context
    assert at.questions[2].context == ""
    assert at.model.asked[2][2].others == (changed,)


async def test_a_resumed_conversation_is_listed_what_its_first_question_needs() -> None:
    at = desk()
    await at.ask("Weather?", [Text("Sunny.")])
    resumed = Desk(at.toolbox, at.selection, conversation=Conversation(messages=list(at.conversation.messages)))
    await resumed.ask("Thanks", [Text("Welcome.")])
    assert resumed.listed == [("find_tools", "get_weather")]
