"""Every command and group of the command line, by the words that a person types."""

from __future__ import annotations

import re
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


# The first words after the program's name where a sentence speaks of the program, a thread, a format or a version.
PROSE = frozenset({"command", "does", "hints", "is", "on", "process", "shared", "that", "{version}"})


def fault_of(quote: str, words: list[str]) -> str:
    """Return what is wrong with words after the program's name; empty if a command and its options exist."""
    commands, path = all_commands(), ()
    names = list(words)
    takes_value = {name: not parameter.is_flag for parameter in commands[()].params for name in parameter.opts}
    while names and names[0] in takes_value:
        del names[: 1 + takes_value[names[0]]]
    # What a text inserts is not known here; a Japanese sentence goes on after a command.
    while names and re.fullmatch(r"[a-z][a-z-]*\.?", names[0]) and getattr(commands[path], "commands", None):
        name = names.pop(0).rstrip(".")
        if (*path, name) not in commands:
            return "" if not (quote or path) and name in PROSE else f"there is no command {' '.join((*path, name))}"
        path = (*path, name)
    own = words[: words.index("--")] if "--" in words else words
    unknown = [word for word in own if word.startswith("-") and word not in options_of(path)]
    return f"{' '.join(path)} has no {unknown}" if unknown else ""
