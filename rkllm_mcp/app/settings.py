"""What a configuration may ask for and does not get: named in a line, never ignored in silence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from rkllm_mcp.agent.instructions import TurnPreparation, TurnTools
from rkllm_mcp.agent.tool_set import SelectionSettings, ToolSelection
from rkllm_mcp.board.machine import Machine
from rkllm_mcp.board.npu import describe_load, npu_clocks, npu_node
from rkllm_mcp.board.system import gib, hottest, memory_bytes
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import ModelNotFoundError
from rkllm_mcp.generation import Sampling
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.models.cards import CARD_NAME, ModelFolder, choose_model
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.prompt.template import ChatTemplate
from rkllm_mcp.prompt.tokenizer import ModelTokenizer
from rkllm_mcp.prompt.tool_list import ToolCosts
from rkllm_mcp.providers.rkllm import ModelForm
from rkllm_mcp.records import PastCalls
from rkllm_mcp.runtime.profile import find_profile
from rkllm_mcp.runtime.settings import EngineSettings
from rkllm_mcp.toolcalls.detector import ThinkingMode
from rkllm_mcp.tools.search import Embedder, ToolSearch

EMULATOR = "emulator"
# The list of tools may take this part of the context window; question, results and answer need the rest.
TOOL_SHARE = 3
# Without their token these would be spelled out letter by letter, and the model would not see a turn begin.
_CONTROL = re.compile(r"<[^<>\s]+>")
_Value = TypeVar("_Value")


def chosen_model(config: Config) -> ModelFolder:
    """Return the configured model; the emulated runtime can only load scripts.

    Raises:
        ModelNotFoundError: the model does not exist or lacks a file.
    """
    return choose_model(config.model, emulated=config.runtime.library == EMULATOR)


def engine_settings(config: Config, model: ModelFolder) -> EngineSettings:
    """Return the settings of the engine.

    Raises:
        LibraryNotFoundError: the runtime does not exist, or the emulated one cannot be built here.
    """
    section = config.runtime
    library = EMULATOR if section.library == "auto" and model.card.emulated else section.library
    return EngineSettings(
        library=library,
        abi=section.abi,
        model_path=model.file,
        context_tokens=config.model.context_tokens or model.card.context_tokens,
        max_new_tokens=config.model.max_new_tokens,
        sampling=sampling_of(config, model),
        skip_special_token=model.card.skip_special_token,
        cpus=section.cpus,
        log_level=section.log_level,
        start_timeout_s=section.start_timeout_s,
        worker=section.worker,
        check_memory=section.check_memory,
        profile=find_profile(str(library), model.file),
    )


def sampling_of(config: Config, model: ModelFolder) -> Sampling:
    """Return the sampling: the owner's settings, else the model's, else None for the runtime's defaults."""
    chosen, card, default = config.model, model.card.sampling, Sampling()
    temperature = _first(chosen.temperature, card.temperature, default.temperature)
    top_k = _first(chosen.top_k, card.top_k, default.top_k)
    return Sampling(
        temperature=temperature,
        # Temperature 0 means the likeliest token; what the runtime does with a zero is not known.
        top_k=1 if temperature == 0 else top_k,
        top_p=_first(chosen.top_p, card.top_p, default.top_p),
        repeat_penalty=_first(chosen.repeat_penalty, card.repeat_penalty, default.repeat_penalty),
        frequency_penalty=_first(card.frequency_penalty, default.frequency_penalty),
        presence_penalty=_first(card.presence_penalty, default.presence_penalty),
    )


def model_form(config: Config, model: ModelFolder) -> ModelForm:
    """Return the template, tokenizer and syntaxes of a model.

    Raises:
        ModelNotFoundError: its tokenizer cannot be read, or lacks a token of the template.
    """
    card = model.card
    base = TEMPLATES[card.template]
    form = base.tool_form.listed_as(config.agent.tool_listing)
    template = replace(base, stop=(*base.stop, *card.stop), tool_form=form)
    thinking = config.model.thinking or card.thinking
    return ModelForm(
        vocabulary=_vocabulary(model, template),
        template=template,
        syntaxes=card.syntaxes or template.tool_form.syntaxes,
        thinking=_thinking_mode(thinking, template),
        think=thinking != "off",
        sampling=sampling_of(config, model),
        max_new_tokens=config.model.max_new_tokens,
    )


@dataclass(frozen=True)
class PromptListing:
    """Limits and cost of the tool list in a model's prompt.

    Args:
        context_tokens: the context window.
        cost: tokens of one listed tool.
        two_steps: tools are listed by name and described at the first call, unless the owner decides otherwise.
    """

    context_tokens: int
    cost: Callable[[ToolSpec], int]
    two_steps: bool = False


def listing(config: Config, model: ModelFolder, form: ModelForm) -> PromptListing:
    """Return the listing for the model on the NPU."""
    context_tokens = config.model.context_tokens or model.card.context_tokens
    costs = ToolCosts(form.vocabulary, form.template.tool_form)
    return PromptListing(context_tokens, costs.of, model.card.two_step_tools)


def turn_preparation(
    config: Config,
    listing: PromptListing,
    tools: TurnTools,
    past: PastCalls | None = None,
    embedder: Embedder | None = None,
) -> TurnPreparation:
    """Return the preparation of turns: the tools of a conversation and the context of a question.

    Args:
        config: the configuration.
        listing: how the model takes the tools.
        tools: every server's tools.
        past: the calls that served earlier requests, if they are stored.
        embedder: an embedding model, if one is configured.
    """
    agent = config.agent
    settings = SelectionSettings(
        budget_tokens=agent.tool_budget_tokens or listing.context_tokens // TOOL_SHARE,
        auto_select=agent.auto_select,
        two_steps=listing.two_steps if agent.two_step_tools is None else agent.two_step_tools,
    )
    return TurnPreparation(tools, ToolSelection(ToolSearch(past, embedder), listing.cost, settings))


def _first(*values: _Value | None) -> _Value:
    """The first value that is given; the last one always is."""
    return next(value for value in values if value is not None)


def _vocabulary(model: ModelFolder, template: ChatTemplate) -> ModelTokenizer:
    try:
        vocabulary = ModelTokenizer(model.tokenizer.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelNotFoundError(
            f"The tokenizer {model.tokenizer} cannot be read: {error}.",
            "Put the tokenizer.json of the original model there.",
        ) from None
    beginning = template.head_form.beginning
    turns = (beginning, template.system_opening, template.user_opening, template.assistant_opening)
    needed = (template.end_of_turn, *_CONTROL.findall("".join(turns)))
    missing = next((name for name in needed if name and vocabulary.control_id(name) is None), None)
    if missing is not None:
        raise ModelNotFoundError(
            f"The tokenizer {model.tokenizer} has no token {missing}, which the model's template needs.",
            f"Choose another template in {model.folder / CARD_NAME}, or the tokenizer that belongs to the model.",
        )
    return vocabulary


def _thinking_mode(setting: str, template: ChatTemplate) -> ThinkingMode:
    """Return how thinking is recognised; a family that can think may do so unasked."""
    if setting != "off" and template.open_thinking:
        return "open"
    can_think = bool(template.no_thinking or template.open_thinking)
    return "auto" if can_think or setting != "off" else "off"


def device_state() -> list[tuple[str, str]]:
    """Return the board's current readings by name, for the ``device`` tool and ``board_status``."""
    machine = Machine()
    load = describe_load(machine) or ("not readable" if npu_node(machine) else "")
    zone, available = hottest(machine), memory_bytes(machine, "MemAvailable")
    unreadable = "/proc/meminfo does not report the available memory"
    return [
        *([("npu load", load)] if load else []),
        *(("npu clock", str(clock)) for clock in npu_clocks(machine)),
        *([("temperature", f"{zone[1]:.0f} °C ({zone[0]})")] if zone else []),
        ("memory", unreadable if available is None else f"{gib(available)} available"),
    ]


def unsupported_settings(config: Config) -> list[str]:
    """Return one line for every setting that has no effect, by itself or together with others."""
    return [*config.remarks, *_without_effect(config)]


def unset_rights(config: Config) -> list[str]:
    """Return a line for every tenant without ``may_approve``, whose default will change."""
    return [
        f"tenant '{tenant.name}' may approve its own calls, because may_approve is not set; the next release refuses "
        "them: set may_approve to true or false"
        for tenant in config.tenants
        if tenant.may_approve is None
    ]


def _without_effect(config: Config) -> Iterator[str]:
    provider = config.provider
    if provider.kind != "rkllm" and config.agent.embedding_model is not None:
        yield f"agent.embedding_model has no effect: with provider.kind = '{provider.kind}' no model runs on the NPU"
    if provider.fallback is not None and not provider.fallback.when:
        yield "provider.fallback has no effect while its 'when' is empty; list the occasions on which it takes over"
