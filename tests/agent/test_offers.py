"""The tools that a question is shown with, and the call that the host begins."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from rkllm_mcp.agent.loop import LoopSettings
from rkllm_mcp.agent.offers import card_of, offer_of, offer_of_all
from rkllm_mcp.agent.tool_set import SelectionSettings
from rkllm_mcp.catalogue import translate
from rkllm_mcp.events import Event, ModelEvent, Source, Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.messages import Message, ToolCall, ToolResult, ToolSpec
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.protocols import NO_CONTEXT, CallContext, ToolEvidence
from rkllm_mcp.tools.search import ToolSearch
from tests.support.asked import Desk, statuses
from tests.support.scripted_model import Round
from tests.support.scripted_toolbox import ScriptedToolbox, takes

pytestmark = pytest.mark.anyio

WEATHER = takes("get_weather", "The weather at a place: rain, wind.", "jma", read_only=True, location="string")
CALCULATOR = takes("calculate", "Calculates an expression.", "board", read_only=True, expression="string")
READ = takes("read_file", "Reads a text file of the folder.", "files", read_only=True, path="string")
FIND = takes("search_files", "Finds files of the folder by their words.", "files", read_only=True, text="string")
WRITE = takes("write_file", "Writes a text file.", "files", path="string", content="string")
TOOLS = (WEATHER, CALCULATOR, READ, FIND, WRITE)


def call(name: str, **arguments: str) -> list[ModelEvent]:
    return [ToolCallDetected(name, arguments)]


def text(words: str) -> list[ModelEvent]:
    return [Text(words)]


@dataclass
class Table(Desk):
    """A desk whose questions are shown with their tools, and whose model answers from facts."""

    toolbox: ScriptedToolbox = field(
        default_factory=lambda: ScriptedToolbox({"get_weather": "rain", "calculate": "391"}, specs=TOOLS)
    )
    selection: SelectionSettings = field(default_factory=lambda: SelectionSettings(10_000, with_question=True))

    @property
    def cards(self) -> list[tuple[str, ...]]:
        """The tools that each round read with the last question, and the call that was begun."""
        found: list[tuple[str, ...]] = []
        for messages, _, options in self.model.asked:
            question = next(message for message in reversed(messages) if message.role == "user")
            found.append((*(tool.name for tool in question.cards), f"-> {options.forced_tool}"))
        return found


def said(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


@pytest.mark.parametrize(
    ("question", "shown"),
    [
        ("Will it rain in Osaka or in Kyoto?", ("get_weather", "-> get_weather")),
        ("Will it rain in Osaka?", ("get_weather", "-> None")),
        ("17 * 23", ("calculate", "-> None")),
        ("Read my file about the plan.", ("search_files", "-> search_files")),
        ("Thanks for today.", ("-> None",)),
        ("Tell me a joke.", ("-> None",)),
    ],
)
async def test_a_question_is_shown_with_the_tool_that_it_needs_and_others_with_none(
    question: str, shown: tuple[str, ...]
) -> None:
    table = Table()
    await table.ask(question, text("Hm."))
    assert table.cards == [shown]
    assert table.listed == [()]


async def test_the_host_makes_a_call_whose_one_required_value_the_question_has() -> None:
    table = Table()
    for question in (
        "Will it rain in Osaka?",
        "大阪の天気は？ weather",
        "How much is 12% of 50?",
        "Read plan.txt.",
        "17 and 4 rain",
    ):
        await table.ask(question, text("Hm."), text("Hm."))
    assert [(made.name, made.arguments) for made in table.toolbox.calls] == [
        ("get_weather", {"location": "Osaka"}),
        ("get_weather", {"location": "大阪"}),
        ("calculate", {"expression": "50*12/100"}),
        ("read_file", {"path": "plan.txt"}),
    ]


async def test_a_tool_that_only_prepares_calls_of_others_is_offered_no_question() -> None:
    finder = takes("find_place", "Finds places by name.", "jma", read_only=True, place="string")
    for is_helper, names in ((False, ["find_place"]), (True, [])):
        specs = (replace(finder, is_helper=is_helper),)
        table = Table(toolbox=ScriptedToolbox({"find_place": "Osaka"}, specs=specs))
        await table.ask("Find the place Osaka", text("Hm."), text("Hm."))
        assert [made.name for made in table.toolbox.calls] == names


async def test_two_tools_of_a_server_that_read_the_same_words_do_not_take_the_call_from_each_other() -> None:
    today = replace(WEATHER, question_argument="location")
    days = replace(today, name="get_forecast", description="The weather of the next days at a place.")
    other = replace(days, server="other")
    for tools, begins in (((today, days), True), ((today, other), False)):
        evidence = [ToolEvidence(tool, 0.25, frozenset({"place"})) for tool in tools]
        assert bool(offer_of([*evidence, ToolEvidence(CALCULATOR, 0.45)]).begins) is begins


async def test_a_call_that_the_host_has_begun_and_the_limit_cuts_is_answered_with_a_sentence() -> None:
    table = Table(toolbox=ScriptedToolbox(specs=TOOLS))
    events = await table.ask("Will it rain in Osaka?", Round([], cut=True))
    assert said(events) == translate("answer.no_call", "en")


@dataclass
class Documents(ScriptedToolbox):
    """A toolbox whose search finds a passage for questions about the guests of a gym, and for no others."""

    async def call(self, call: ToolCall, context: CallContext = NO_CONTEXT) -> ToolResult:
        made = await super().call(call, context)
        found = "gym" in str(call.arguments)
        return replace(
            made, sources=(Source(document="gym.md", page=None, passage=made.text, score=0.9),) if found else ()
        )


async def test_a_question_after_one_that_was_answered_from_passages_is_searched_with_it_too() -> None:
    search = takes("search_documents", "Searches the documents.", "docs", read_only=True, query="string")
    toolbox = Documents({"search_documents": "A guest pays 12 euros."}, specs=(search,), automatic=["search_documents"])
    table = Table(toolbox=toolbox)
    for question in (
        "What does a guest pay at the gym?",
        "so what would 3 visits cost",
        "you are very helpful",
        "Hm, noon?",
    ):
        await table.ask(question, text("Hm."))
    asked = [made.arguments["query"] for made in toolbox.calls]
    assert asked[:3] == [
        "What does a guest pay at the gym?",
        "so what would 3 visits cost",
        "What does a guest pay at the gym?\nso what would 3 visits cost",
    ]
    assert ["12 euros" in question.context for question in table.questions] == [True, True, False, False]
    assert "you are very helpful" in asked and not any("\nyou are very helpful" in query for query in asked)


async def test_a_follow_up_is_shown_with_the_tool_of_the_question_before_and_thanks_with_none() -> None:
    table = Table()
    await table.ask("Will it rain in Osaka?", text("Yes."))
    await table.ask("And in Kyoto?", text("Yes."))
    await table.ask("Thank you, that helps.", text("Fine."))
    assert table.cards == [("get_weather", "-> None"), ("get_weather", "-> None"), ("-> None",)]
    assert [made.arguments for made in table.toolbox.calls] == [{"location": "Osaka"}, {"location": "Kyoto"}]


async def test_a_question_that_only_looks_like_a_follow_up_is_shown_with_the_tool_of_its_words() -> None:
    clock = takes("clock", "What time it is now at a place.", "board", read_only=True, timezone="string")
    table = Table(toolbox=ScriptedToolbox({"calculate": "391", "clock": "noon"}, specs=(*TOOLS, clock)))
    await table.ask("17 * 23", text("391."))
    await table.ask("What time is it in Toronto?", text("Noon."))
    assert [made.name for made in table.toolbox.calls] == ["calculate", "clock"]


@pytest.mark.parametrize("question", ["What can you do?", "And what else?", "How about you?"])
async def test_a_question_that_has_no_own_word_does_not_continue_the_tool_of_the_question_before(
    question: str,
) -> None:
    table = Table()
    await table.ask("Will it rain in Osaka?", text("Yes."))
    await table.ask(question, text("Hm."))
    assert table.cards[1] == ("-> None",)


async def test_a_guess_is_taken_back_where_the_model_does_not_write_the_call() -> None:
    table = Table()
    unreadable = [ToolCallFailed("{", "It cannot be read.")]
    events = await table.ask("Will it rain in Osaka or in Kyoto?", unreadable, unreadable, text("I do not know."))
    assert (said(events), table.toolbox.calls) == ("I do not know.", [])


async def test_a_tool_that_may_change_something_is_never_begun_by_the_host() -> None:
    evidence = await ToolSearch().evidence("Write a text file plan.txt", [WRITE], {})
    offer = offer_of(evidence)
    assert ([guess.tool.name for guess in offer.guesses], offer.begins) == (["write_file"], "")


async def test_what_the_host_does_is_an_event_with_its_probability_and_reasons() -> None:
    offer = offer_of(await ToolSearch().evidence("What does plan.txt say?", TOOLS, {}))
    events = await Table().ask("What does plan.txt say?", text("Hm."))
    assert statuses(events)[0] == offer.line("en")
    # In the person's language, whatever the question's is.
    events = await Table(language="ja").ask("What does plan.txt say?", text("Hm."))
    assert statuses(events)[0] == offer.line("ja")
    assert offer.guesses[0].reasons == ("words", "file")
    assert 0.5 < offer.guesses[0].probability < 1


async def test_a_call_whose_arguments_the_question_gives_is_made_before_the_model_reads_anything() -> None:
    search = takes("search_documents", "Search documents for passages.", "knowledge", read_only=True, query="string")
    table = Table(toolbox=ScriptedToolbox({"read_file": "Tuesday", "search_documents": "9"}, specs=(*TOOLS, search)))
    table.settings = LoopSettings(answers_from="facts")
    for question in ("What does plan.txt say?", "Search the documents for hotels."):
        await table.ask(question, text("It says something."))
    assert [(made.name, dict(made.arguments)) for made in table.toolbox.calls] == [
        ("read_file", {"path": "plan.txt"}),
        ("search_documents", {"query": "Search the documents for hotels."}),
    ]
    assert table.cards == [("-> None",)] * 2


@pytest.mark.parametrize(
    ("question", "shown"),
    [("What is the present time?", ("-> None",)), ("What is the present time in Paris?", ("clock", "-> clock"))],
)
async def test_a_tool_that_requires_nothing_is_called_without_values_unless_the_question_has_one(
    question: str, shown: tuple[str, ...]
) -> None:
    schema = {"type": "object", "properties": {"timezone": {"type": "string"}}}
    clock = ToolSpec("clock", "The present time and date.", schema, "board", "clock", read_only=True)
    table = Table(toolbox=ScriptedToolbox({"clock": "12:00"}, specs=(clock, *TOOLS)))
    table.settings = LoopSettings(answers_from="facts")
    await table.ask(
        question, *([] if shown == ("-> None",) else [call("clock", timezone="Paris")]), text("It is 12:00.")
    )
    assert table.cards[0] == shown
    assert [dict(made.arguments) for made in table.toolbox.calls] == (
        [{}] if shown == ("-> None",) else [{"timezone": "Paris"}]
    )


async def test_a_forced_tool_is_shown_and_begun_as_it_was_asked_for() -> None:
    table = Table()
    await table.ask("Tell me a joke.", call("calculate", expression="1"), text("One."), forced="calculate")
    assert table.cards[0] == ("calculate", "-> calculate")


async def test_a_call_of_a_tool_that_was_not_shown_is_answered_in_words() -> None:
    table = Table()
    events = await table.ask("Tell me a joke.", call("get_weather", location="X"), text("Knock, knock."))
    assert table.toolbox.calls == []
    assert said(events) == "Knock, knock."


async def test_after_a_failed_call_it_is_begun_once_more_and_then_a_sentence_says_why() -> None:
    table = Table(toolbox=ScriptedToolbox({}, specs=(READ, WEATHER, CALCULATOR)))
    events = await table.ask(
        "What is 17 * 23?", call("calculate", expression="17"), call("calculate", expression="17 * 23"), text("Milk!")
    )
    assert table.cards == [("calculate", "-> calculate")] * 2
    assert said(events) == translate("answer.could_not", tool="calculate", reason="it broke")
    question, answer = table.conversation.messages[0], table.conversation.messages[-1]
    assert (question.facts, question.cards, answer.text) == ("", (), said(events))


async def test_a_tool_that_takes_the_users_words_is_called_with_them_and_the_model_only_answers() -> None:
    weather = replace(WEATHER, question_argument="location")
    table = Table(toolbox=ScriptedToolbox({"get_weather": "rain"}, specs=(weather, CALCULATOR)))
    table.settings = type(table.settings)(answers_from="facts")
    question = "Will it rain in Osaka?"
    events = await table.ask(question, text("Yes, rain."))
    assert [(event.name, event.arguments) for event in events if isinstance(event, ToolCallDetected)] == [
        ("get_weather", {"location": question})
    ]
    assert (said(events), table.cards) == ("Yes, rain.", [("-> None",)])


async def test_a_sentence_of_an_own_tool_is_the_answer_and_a_value_alone_asks_the_same_of_something_else() -> None:
    weather = replace(WEATHER, question_argument="location")
    toolbox = ScriptedToolbox({"get_weather": "It rains."}, specs=(weather, CALCULATOR), answering={"get_weather"})
    table = Table(toolbox=toolbox, settings=LoopSettings(answers_from="sentences"))
    events = [*await table.ask("Will it rain in Osaka?"), *await table.ask("and in Paris?")]
    asked = [event.arguments["location"] for event in events if isinstance(event, ToolCallDetected)]
    assert asked == ["Will it rain in Osaka?", "Will it rain in Paris?"]
    assert (said(events), table.model.asked) == ("It rains.It rains.", [])
    assert [
        message.text for message in table.conversation.messages if message.role == "assistant" and message.text
    ] == [
        "It rains.",
        "It rains.",
    ]


async def test_a_sentence_is_not_an_answer_where_the_server_has_an_instruction_for_it() -> None:
    weather = replace(WEATHER, question_argument="location", server="weather")
    after = {"weather": "Say it kindly."}
    toolbox = ScriptedToolbox({"get_weather": "It rains."}, specs=(weather,), after=after, answering={"get_weather"})
    table = Table(toolbox=toolbox, settings=LoopSettings(answers_from="sentences"))
    assert said(await table.ask("Will it rain in Osaka?", text("Sadly, rain."))).startswith("Sadly, rain.")


async def test_where_a_tool_cannot_read_the_users_words_the_model_writes_the_arguments() -> None:
    calculator = replace(CALCULATOR, question_argument="question")
    table = Table(toolbox=ScriptedToolbox({}, specs=(calculator, WEATHER)))
    await table.ask("17 * 23", call("calculate", expression="17*23"), call("calculate", expression="17 * 23"))
    assert table.cards[0] == ("calculate", "-> calculate")
    first = table.model.asked[0][0]
    assert [message.role for message in first if message.role != "system"] == ["user"]


async def test_a_model_that_answers_from_facts_reads_them_with_the_question_from_then_on() -> None:
    table = Table()
    table.settings = LoopSettings(answers_from="facts")
    await table.ask("Will it rain in Osaka?", text("Yes, rain."))
    await table.ask("Tell me a joke.", text("Knock, knock."))
    facts = translate("model.answer_from_facts", facts="rain")
    handed_over = [Message("user", "Will it rain in Osaka?", facts=facts)]
    read = [
        [message for message in messages if not (message.calls or message.results)]
        for messages, *_ in table.model.asked
    ]
    assert read[0] == handed_over
    assert read[1] == [*handed_over, Message("assistant", "Yes, rain."), Message("user", "Tell me a joke.")]


async def test_the_card_is_in_the_language_of_the_question() -> None:
    words = {"description": "場所の天気を返します。", "parameters": {"location": "場所"}}
    weather = replace(WEATHER, texts={"ja": words})
    table = Table(toolbox=ScriptedToolbox({}, specs=(weather, CALCULATOR)))
    await table.ask("大阪の天気は？ weather in Osaka", text("雨です。"))
    (card,) = table.model.asked[0][0][-1].cards
    assert (card.description, card.input_schema["properties"]["location"]["description"]) == (
        words["description"],
        "場所",
    )


async def test_a_search_that_finds_nothing_is_no_fact_and_leaves_no_trace() -> None:
    search = takes("search_documents", "Search documents for passages.", "knowledge", read_only=True, query="string")
    toolbox = ScriptedToolbox({"search_documents": 'No results found.\n{"results":[]}'}, specs=(search, *TOOLS))
    toolbox.sources["search_documents"] = ()
    table = Table(toolbox=toolbox, settings=LoopSettings(answers_from="facts"))
    events = await table.ask("Search the documents for passages about trains.", text("I do not know."))
    assert [made.name for made in toolbox.calls] == ["search_documents"]
    assert said(events) == "I do not know."
    assert all(not message.calls for message in table.model.asked[0][0])


async def test_a_short_passage_is_shown_after_the_answer_from_it() -> None:
    search = takes("search_documents", "Search documents for passages.", "knowledge", read_only=True, query="string")
    passage = "A hotel may cost 9,000 yen."
    toolbox = ScriptedToolbox({"search_documents": passage}, specs=(search, *TOOLS))
    toolbox.sources["search_documents"] = (Source(document="rules.md", page=None, passage=passage, score=0.9),)
    table = Table(toolbox=toolbox, settings=LoopSettings(answers_from="facts"))
    events = await table.ask("Search the documents for hotels.", text("A hotel may cost 9,000 yen."))
    assert said(events) == f"A hotel may cost 9,000 yen.{translate('answer.result', facts=passage)}"


async def test_passages_given_with_a_question_are_not_searched_for_again() -> None:
    search = takes("search_documents", "Search documents for passages.", "knowledge", read_only=True, query="string")
    toolbox = ScriptedToolbox(
        {"search_documents": "A hotel: 9,000 yen."}, specs=(search,), automatic=["search_documents"]
    )
    table = Table(toolbox=toolbox)
    await table.ask("Search the documents: what may a hotel cost?", text("9,000 yen."))
    assert table.cards == [("-> None",)]
    assert "9,000 yen" in table.questions[0].context


async def test_the_best_passage_given_with_a_question_is_shown_after_the_answer() -> None:
    search = takes("search_documents", "Search documents for passages.", "knowledge", read_only=True, query="string")
    passage = "A hotel: 9,000 yen."
    toolbox = ScriptedToolbox({"search_documents": passage}, specs=(search,), automatic=["search_documents"])
    toolbox.sources["search_documents"] = (Source(document="rules.md", page=None, passage=passage, score=0.9),)
    table = Table(toolbox=toolbox, settings=LoopSettings(answers_from="sentences"))
    events = await table.ask("what may a hotel cost?", text("8,000 yen."))
    assert said(events) == f"8,000 yen.{translate('answer.result', facts=passage)}"
    assert table.conversation.messages[-1].text == "8,000 yen."


def test_a_card_has_the_required_parameters_or_the_first_one_and_no_values_to_copy() -> None:
    schema = {
        "type": "object",
        "properties": {
            "location": {"type": "string", "examples": ["Tokyo"]},
            "days": {"type": "integer", "default": 7},
        },
        "required": ["location"],
    }
    plain = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}
    assert card_of(ToolSpec("get_weather", "Weather", schema)).input_schema == plain
    optional = {**schema, "required": []}
    assert card_of(ToolSpec("get_weather", "Weather", optional)).input_schema == {**plain, "required": []}


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_in_every_family_the_cards_are_before_the_words_as_the_list_is_written(name: str) -> None:
    template = TEMPLATES[name]
    segments = template.turn(Message("user", "Rain?", cards=(WEATHER,)))
    whole = "".join(segment.text for segment in segments)
    listing = "".join(segment.text for segment in template.tool_form.listing([WEATHER])).strip("\n")
    assert listing in whole
    assert whole.index("get_weather") < whole.index("Rain?")


def test_at_most_three_cards_are_shown() -> None:
    offer = offer_of_all([takes(f"tool_{number}", "", "x") for number in range(9)])
    assert [tool.name for tool in offer.cards] == ["tool_0", "tool_1", "tool_2"]
