"""A kept conversation laid out for a terminal: who spoke when, answers with their Markdown shown as what it means."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text

from rkllm_mcp.records import KeptConversation, KeptTurn
from rkllm_mcp.surfaces.conversations_export import ENDINGS, moment
from rkllm_mcp.surfaces.terminal import printable


def layout(kept: KeptConversation) -> RenderableType:
    """The conversation, for a console of any width."""
    head = Text(printable(kept.title or kept.id), style="bold")
    when = Text(f"{kept.id}, {moment(kept.created)} – {moment(kept.updated)}\n", style="dim")
    return Group(head, when, *_turns(kept))


def _turns(kept: KeptConversation) -> list[RenderableType]:
    return [Padding(part, (0, 0, 1, 0)) for turn in kept.turns for part in _parts(turn)]


def _parts(turn: KeptTurn) -> list[RenderableType]:
    when = Text(moment(turn.at), style="dim")
    if turn.role == "user":
        # A person's words are shown as they were typed, whatever they would mean in Markdown.
        return [Group(when, Text(f"❯ {printable(turn.text)}", style="bold"))]
    parts: list[RenderableType] = [when]
    if turn.thinking.strip():
        parts.append(Text(printable(turn.thinking.strip()), style="dim italic"))
    if turn.text.strip():
        # Small models end their lines where they mean to; Markdown would join them.
        parts.append(Markdown(printable(turn.text.strip()).replace("\n", "  \n")))
    if turn.ending in ENDINGS:
        parts.append(Text(f"[{ENDINGS[turn.ending]}]", style="yellow"))
    return [Group(*parts)]
