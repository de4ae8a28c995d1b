"""Every command and group of the command line, by the words that a person types."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from rkllm_mcp.surfaces.cli.main import COMMANDS, app


@cache
def all_commands() -> dict[tuple[str, ...], Any]:
    """Return each command and group by its path; that of the program itself is empty."""
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    context = root.make_context("rkllm-mcp", [], resilient_parsing=True)
    found: dict[tuple[str, ...], Any] = {(): root}
    for name in COMMANDS:
        found.update(_below((name,), root.resolve_command(context, [name])[1]))
    return found


def _below(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _below((*path, name), inner)


def options_of(path: tuple[str, ...]) -> frozenset[str]:
    """Return the options that may follow a command: its own, and those of the program."""
    commands = (all_commands()[path], all_commands()[()])
    spelled = (
        option
        for command in commands
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    )
    return frozenset({*(option for option in spelled if option.startswith("-")), "--help"})
