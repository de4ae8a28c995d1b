"""What one round asks of a service, whichever it is: the conversation and the wishes, ready to be spelled."""

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
    """One round.

    Args:
        system: what the model is told first.
        turns: what was said.
        tools: the tools that are declared; none for a model that cannot call them.
        names: how they are named to the service.
        sampling: the request's wishes, over the owner's.
        max_new_tokens: the longest answer; None for the service's.
        forced_tool: the answer is a call of this tool.
        any_tool: the answer is a call.
        single_call: of one tool.
        no_calls: nothing is to be called.
        stop: texts that end the answer.
    """

    system: str
    turns: tuple[Turn, ...]
    tools: tuple[ToolSpec, ...]
    names: WireNames
    sampling: SamplingWish
    max_new_tokens: int | None = None
    forced_tool: str | None = None
    any_tool: bool = False
    single_call: bool = False
    no_calls: bool = False
    stop: tuple[str, ...] = ()


def declared_tools(tools: Sequence[ToolSpec], told: Collection[str], options: ResponseOptions) -> tuple[ToolSpec, ...]:
    """The tools that a service is told of: it has calls made of these alone, whatever the model heard of others.

    Args:
        tools: the listed ones.
        told: names of those that the conversation told of later, or told more of.
        options: the wishes.
    """
    declared = {tool.name: tool for tool in tools}
    known = {*told, options.forced_tool}
    declared.update({tool.name: tool for tool in options.others if tool.name in known})
    return tuple(declared.values())


def round_of(
    service: Service, messages: Sequence[Message], declared: tuple[ToolSpec, ...], options: ResponseOptions
) -> Round:
    """The round that is asked for.

    Args:
        service: who is asked.
        messages: the conversation, as far as it fits.
        declared: the tools; none for a model that cannot call any.
        options: the wishes.
    """
    wish = options.sampling or SamplingWish()
    if wish.temperature is None:
        wish = replace(wish, temperature=service.temperature)
    if wish.top_p is None:
        wish = replace(wish, top_p=service.top_p)
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
        sampling=wish,
    )
