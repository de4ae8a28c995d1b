"""Sampling: how the next token is chosen, and the table of the options that people and programs set.

    field of SamplingOverrides ─▶ OPTIONS ─▶ settings, model cards, bodies of the APIs, /set, the page, docs/openai.md

A new option is a line in ``SamplingOverrides``; everything that reads or shows options is made from the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

# ``openai``: OpenAI's own names; ``compatible``: those of other servers with OpenAI's interface, read as well.
Api: TypeAlias = Literal["openai", "compatible", "anthropic", "ollama"]


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters of the runtime; ``top_k=1`` is greedy."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.9
    repeat_penalty: float = 1.1
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1


@dataclass(frozen=True)
class SamplingByPurpose:
    """A model's sampling for answers, for answers with thinking, and for rounds that may call a tool."""

    answer: Sampling
    thinking: Sampling
    tools: Sampling


@dataclass(frozen=True)
class SamplingOption:
    """An option: its range, its effect, and its names in the APIs.

    Args:
        least: the least value.
        most: the greatest value.
        help: the effect, a sentence for the documentation; the page's text is ``conversation.NAME`` of its phrases.
        names: by API, the fields of a body that have the option; the first that is given counts.
        since: the oldest release of the runtime that takes it for one run; an older one takes it with the model.
    """

    least: float
    most: float
    help: str
    names: Mapping[Api, tuple[str, ...]]
    since: str = "1.3.0"
    is_whole: bool = False  # its values are whole numbers


def _option(least: float, most: float, help_: str, **names: str) -> Any:
    """Return the field of an option; ``names`` are one or several, with spaces between, by API."""
    by_api: dict[Any, tuple[str, ...]] = {api: tuple(names_of_api.split()) for api, names_of_api in names.items()}
    return field(
        default=None, metadata={"option": SamplingOption(least, most, help_, by_api, is_whole=isinstance(least, int))}
    )


@dataclass(frozen=True)
class SamplingOverrides:
    """Sampling parameters of one request, a card or the settings; None leaves the value of what is below."""

    temperature: float | None = _option(
        0.0,
        2.0,
        "0 always takes the most probable token.",
        openai="temperature",
        anthropic="temperature",
        ollama="temperature",
    )
    top_k: int | None = _option(
        1,
        1000,
        "Sample from this many most probable tokens.",
        compatible="top_k",
        anthropic="top_k",
        ollama="top_k",
    )
    top_p: float | None = _option(
        0.0,
        1.0,
        "Sample from the most probable tokens with this total probability.",
        openai="top_p",
        anthropic="top_p",
        ollama="top_p",
    )
    repeat_penalty: float | None = _option(
        0.1,
        10.0,
        "Above 1 makes repetitions less probable.",
        # vLLM's name, and llama.cpp's, which Open WebUI sends to every server.
        compatible="repetition_penalty repeat_penalty",
        ollama="repeat_penalty",
    )
    frequency_penalty: float | None = _option(
        -2.0,
        2.0,
        "Above 0 makes a token less probable each time it occurs.",
        openai="frequency_penalty",
        ollama="frequency_penalty",
    )
    presence_penalty: float | None = _option(
        -2.0,
        2.0,
        "Above 0 makes a token that has occurred less probable.",
        openai="presence_penalty",
        ollama="presence_penalty",
    )

    def values_by_option(self) -> dict[str, float]:
        """Return the values that are set, by option."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def on(self, below: SamplingOverrides) -> SamplingOverrides:
        """Return the values of ``below``, replaced by those that are set here."""
        return replace(below, **self.values_by_option())

    def over(self, base: Sampling) -> Sampling:
        """Return ``base`` with these values; ``base`` itself without any."""
        overrides = self.values_by_option()
        if not overrides:
            return base
        sampling = replace(base, **overrides)
        if sampling.top_p == 0:
            # The most probable token alone; the runtime's behaviour with 0 is undocumented, as is that below.
            return replace(sampling, top_k=1, top_p=base.top_p or Sampling.top_p)
        if sampling.temperature == 0:
            return replace(sampling, top_k=1)
        if base.temperature == 0 and self.top_k is None:
            # The base is greedy, this is not.
            return replace(sampling, top_k=Sampling.top_k)
        return sampling


OPTIONS: Mapping[str, SamplingOption] = {
    option_field.name: option_field.metadata["option"] for option_field in fields(SamplingOverrides)
}


def names_in(api: Api) -> dict[str, str]:
    """Return the options of an API by their names there."""
    return {name: option for option, details in OPTIONS.items() for name in details.names.get(api, ())}


def overrides_of(source: object, apis: Iterable[Api] = ()) -> SamplingOverrides:
    """Return the options among the attributes of a body of the APIs; without any, of settings or a card."""
    values: dict[str, Any] = {}
    for option, details in OPTIONS.items():
        names = [name for api in apis for name in details.names.get(api, ())] if apis else [option]
        candidates = (getattr(source, name, None) for name in names)
        values[option] = next((value for value in candidates if value is not None), None)
    return SamplingOverrides(**values)
