"""Every entry of the catalogue can be used, says where its figures come from, and writes calls that it reads back."""

from __future__ import annotations

import re

import pytest

from rkllm_mcp.app.settings import loaded_sampling, picture_tags, sampling_by_purpose
from rkllm_mcp.config.sections import Config
from rkllm_mcp.messages import ToolCall, ToolSpec
from rkllm_mcp.models.cards import ModelFolder, how_to_convert, list_models
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.toolcalls.detector import Detector
from tests.support.shared import REPOSITORY

# The models that people run on an RK3588, of the list.
ENTRIES = [model for model in list_models([REPOSITORY / "models"]) if not model.card.emulated]
CATALOGUE = [model for model in ENTRIES if model.card.task == "chat"]
TOOL = ToolSpec(
    "get_weather",
    "Weather",
    {
        "type": "object",
        "properties": {
            "place": {"type": "string"},
            "days": {"type": "integer"},
            "hourly": {"type": "boolean"},
            "names": {"type": "array", "items": {"type": "string"}},
            "area": {"type": "object", "properties": {"radius": {"type": "number"}}},
        },
        "required": ["place"],
    },
)

every_entry = pytest.mark.parametrize("model", CATALOGUE, ids=[model.name for model in CATALOGUE])


def test_every_template_has_a_model_in_the_catalogue() -> None:
    assert {model.card.template for model in CATALOGUE} == TEMPLATES.keys()


def test_the_models_of_the_search_are_not_chat_models() -> None:
    assert {model.name: model.card.task for model in ENTRIES if model not in CATALOGUE} == {
        "qwen3-embedding-0.6b": "embed",
        "qwen3-reranker-0.6b": "rerank",
    }


def test_published_shares_of_right_calls_name_their_source() -> None:
    told = [model for model in CATALOGUE if model.card.tool_calls is not None]
    assert len(told) == 12
    assert all("BFCL V4" in model.card.tool_calls.source for model in told if model.card.tool_calls)


def test_every_model_can_be_pulled_or_says_in_one_sentence_how_it_is_made() -> None:
    for model in ENTRIES:
        if not model.can_be_pulled:
            assert model.card.source is not None
            sentence = how_to_convert(model.name, model.card.source)
            assert f"hf download {model.card.source.tokenizer_repository} --local-dir {model.name} && " in sentence
            assert f"rkllm-mcp models convert {model.name}'" in sentence
    assert sum(model.can_be_pulled for model in ENTRIES) == 25


@every_entry
def test_an_entry_is_complete_and_has_no_weights(model: ModelFolder) -> None:
    card = model.card
    assert (card.name, bool(card.description), model.missing) == (
        model.folder.name,
        True,
        (model.file, model.tokenizer),
    )
    assert card.source is not None
    assert card.source.tokenizer_repository is not None
    assert (card.source.file is None) or card.source.repository is not None


def test_a_model_that_sees_has_tags_for_pictures_and_an_encoder_to_fetch() -> None:
    seeing = {model.name: model.card for model in CATALOGUE if model.encoder is not None}
    assert sorted(seeing) == [
        "internvl3.5-2b",
        "minicpm-v-2.6",
        "qwen2.5-vl-3b",
        "qwen3-vl-2b",
        "qwen3-vl-4b",
        "qwen3.5-0.8b",
        "qwen3.5-4b",
        "smolvlm2-2.2b",
        "smolvlm2-256m",
    ]
    for card in seeing.values():
        assert picture_tags(card) is not None
        assert card.source is not None
        assert card.source.repository is not None


def test_a_model_that_is_new_has_a_card_or_a_written_reason() -> None:
    """New in the runtime's list since 1.3.0, or asked for by issue 60."""
    page = (REPOSITORY / "docs" / "models.md").read_text("utf-8")
    reasons = page.partition("### Models without a card")[2].partition("\n### ")[0]
    for model in ("qwen3.5-2b", "gemma4-e2b", "lfm2.5-1.2b", "lfm2.5-vl-450m", "smollm3-3b", "rwkv7-1.5b"):
        assert model in {entry.name for entry in CATALOGUE}
    for model in ("Spark-X2.5", "Granite 4 nano", "DeepSeek-OCR", "ChatGLM3"):
        assert f"| {model}" in reasons


@every_entry
def test_figures_name_their_source(model: ModelFolder) -> None:
    published = model.card.published
    if published is not None:
        assert published.source
        assert published.decode_tokens_per_second is not None


@every_entry
def test_sampling_suits_calls_and_no_marker_is_left_out(model: ModelFolder) -> None:
    card = model.card
    sampling = sampling_by_purpose(Config(), model)
    assert sampling.tools.repeat_penalty == 1.0
    assert sampling.tools.presence_penalty == 0.0
    assert sampling.tools.temperature <= (0.2 if card.thinking == "off" else 0.6)
    assert loaded_sampling(Config(), model) == (sampling.tools if card.thinking == "off" else sampling.thinking)
    # Figures that are not the low ones for calls name their source.
    assert sampling.answer == sampling.tools or card.sampling.source or card.emulated
    assert not card.skip_special_token


@every_entry
@pytest.mark.parametrize(
    "arguments",
    [
        {"place": "東京"},
        {
            "place": 'a "quoted" \\ one\nor two',
            "days": 3,
            "hourly": True,
            "names": ["a", "b,"],
            "area": {"radius": 1.5},
        },
        {"place": "</tool_call> [END_TOOL_CALL] }", "hourly": False},
        {"place": ""},
    ],
    ids=["one argument", "every type", "markers in a string", "an empty string"],
)
def test_a_call_that_the_family_writes_is_one_that_the_entry_reads(
    model: ModelFolder, arguments: dict[str, object]
) -> None:
    form = TEMPLATES[model.card.template].tool_form
    written = "".join(segment.text for segment in form.calls([ToolCall("call_1", TOOL.name, arguments)]))
    for chunks in ([written], list(written)):
        detector = Detector([TOOL], model.card.syntaxes)
        events = [event for chunk in chunks for event in detector.feed(chunk)] + detector.finish()
        assert [(event.kind, getattr(event, "arguments", event)) for event in events] == [("tool_call", arguments)]


@every_entry
def test_two_calls_are_read_back_as_two(model: ModelFolder) -> None:
    form = TEMPLATES[model.card.template].tool_form
    calls = [ToolCall("call_1", TOOL.name, {"place": "A"}), ToolCall("call_2", TOOL.name, {"place": "B"})]
    detector = Detector([TOOL], model.card.syntaxes)
    events = detector.feed("".join(segment.text for segment in form.calls(calls))) + detector.finish()
    assert [getattr(event, "arguments", event) for event in events] == [{"place": "A"}, {"place": "B"}]


@every_entry
def test_a_forced_call_is_read_when_the_model_has_completed_it(model: ModelFolder) -> None:
    form = TEMPLATES[model.card.template].tool_form
    whole = "".join(segment.text for segment in form.calls([ToolCall("call_1", TOOL.name, {"place": "A"})]))
    begun = "".join(segment.text for segment in form.call_beginning(TOOL.name))
    detector = Detector([TOOL], model.card.syntaxes)
    events = detector.feed(begun) + detector.feed(whole.removeprefix(begun)) + detector.finish()
    assert [getattr(event, "arguments", event) for event in events] == [{"place": "A"}]


@pytest.mark.parametrize(
    ("name", "answer", "thinking"),
    [
        ("qwen3-0.6b", (0.7, 0.8, 20, 1.0), (0.6, 0.95, 20, 1.0)),
        ("gemma3-1b", (1.0, 0.95, 64, 1.0), (1.0, 0.95, 64, 1.0)),
        ("qwen2.5-3b", (0.7, 0.8, 20, 1.05), (0.7, 0.8, 20, 1.05)),
        ("llama3.2-1b", (0.6, 0.9, 40, 1.0), (0.6, 0.9, 40, 1.0)),
    ],
)
def test_answers_and_thinking_are_sampled_as_the_publisher_says(
    name: str, answer: tuple[float, ...], thinking: tuple[float, ...]
) -> None:
    (model,) = [each for each in list_models([REPOSITORY / "models"]) if each.name == name]
    sampling = sampling_by_purpose(Config(), model)
    figures = [
        (each.temperature, each.top_p, each.top_k, each.repeat_penalty) for each in (sampling.answer, sampling.thinking)
    ]
    assert figures == [answer, thinking]
    chosen = sampling_by_purpose(Config.model_validate({"model": {"temperature": 0.4}}), model)
    assert {each.temperature for each in (chosen.answer, chosen.thinking, chosen.tools)} == {0.4}


def test_what_was_reported_of_a_model_names_board_and_release_or_toolkit() -> None:
    reported = {model.name: model.card.reported for model in CATALOGUE if model.card.reported}
    assert "repeat_penalty 1.0, and not with 1.1" in reported["qwen3.5-2b"][0]
    lines = [line for lines in reported.values() for line in lines]
    assert [line for line in lines if not re.search(r"RK3588, 1\.\d\.\d|toolkit 1\.\d\.\d", line)] == []
