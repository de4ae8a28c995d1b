"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON.")]
Host = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address to listen on. Default: [service] host.")]
Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, metavar="N", help="Port, 0 for any free one. Default: [service] port."),
]
