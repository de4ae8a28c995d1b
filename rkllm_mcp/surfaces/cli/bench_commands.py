"""``rkllm-mcp bench``."""

from __future__ import annotations

from typing import Annotated

import typer


def bench(
    context: typer.Context,
    part: Annotated[
        str | None, typer.Argument(metavar="[prefill|decode|delivery|prompt]", help="What to measure; all of it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="The figures as JSON.")] = False,
    plot: Annotated[str | None, typer.Option("--plot", metavar="FILE", help="Write a plot of the speeds, SVG.")] = None,
) -> None:
    """Measure loading, prefill, decode, delivery and prompts, on the board or on the emulated NPU."""
    from rkllm_mcp.surfaces.cli.bench import bench as command

    raise typer.Exit(command(context.obj, part, as_json=as_json, plot_file=plot))
