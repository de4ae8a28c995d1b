"""A request for one round, independent of the service's format."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from rkllm_mcp.generation import SamplingWish
from rkllm_mcp.messages import Message, ToolSpec
from rkllm_mcp.providers import ResponseOptions
from rkllm_mcp.providers.service import Service
from rkllm_mcp.providers.turns import Turn, WireNames, system_of, turns_of


@dataclass(frozen=True)
class Round:
    """A request for one round; the options are those of ``AnswerOptions`` with the configured defaults."""

    system: str
    turns: tuple[Turn, ...]
    tools: tuple[ToolSpec, ...]  # empty for a model that cannot call tools
    names: WireNames
    sampling: SamplingWish
    max_new_tokens: int | None = None
    forced_tool: str | None = None
    any_tool: bool = False
    single_call: bool = False
    no_calls: bool = False
    stop: tuple[str, ...] = ()


def declared_tools(
    tools: Sequence[ToolSpec], described: Collection[str], options: ResponseOptions
) -> tuple[ToolSpec, ...]:
    """Return the tools to declare: a service accepts calls of declared tools only.

    ``described`` names tools that the conversation introduced later; they are declared in addition to the listed ones.
    """
    declared = {tool.name: tool for tool in tools}
    known = {*described, options.forced_tool}
    declared.update({tool.name: tool for tool in options.others if tool.name in known})
    return tuple(declared.values())


def round_of(
    service: Service, messages: Sequence[Message], declared: tuple[ToolSpec, ...], options: ResponseOptions
) -> Round:
    """Build the request for one round; ``declared`` is empty for a model that cannot call tools."""
    sampling = options.sampling or SamplingWish()
    if sampling.temperature is None:
        sampling = replace(sampling, temperature=service.temperature)
    if sampling.top_p is None:
        sampling = replace(sampling, top_p=service.top_p)
    return Round(
        system=system_of(messages),
        turns=tuple(turns_of(messages, with_calls=bool(declared))),
        tools=declared,
        names=WireNames((*declared, *options.others)),
        max_new_tokens=options.max_new_tokens,
        forced_tool=options.forced_tool if declared else None,
        any_tool=options.any_tool and bool(declared),
        single_call=options.single_call,
        no_calls=options.no_calls,
        stop=options.stop,
        sampling=sampling,
    )
