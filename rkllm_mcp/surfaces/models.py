"""The models on this machine and in the catalogue: ``rkllm-mcp models list`` and ``show``."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rkllm_mcp.surfaces.session import EXIT_DONE, Session
from rkllm_mcp.surfaces.table import table

if TYPE_CHECKING:
    from rkllm_mcp.acquisition.stock import Stock
    from rkllm_mcp.config.models import ModelFolder

_HEADING = ("NAME", "STATE", "SPEED", "MEMORY", "FITS", "DESCRIPTION")


def list_all(session: Session, *, as_json: bool) -> int:
    """Print every model there is a card for: whether it is here, how fast it is, and whether it fits this board."""
    from rkllm_mcp.acquisition.stock import Stock

    stock = Stock()
    folders = stock.models()
    if as_json:
        values = [_as_dict(stock, folder) for folder in folders]
        sys.stdout.write(f"{json.dumps(values, ensure_ascii=False, indent=2)}\n")
        return EXIT_DONE
    # What is here first: the catalogue is longer than what a person has.
    folders.sort(key=lambda folder: bool(folder.missing))
    sys.stdout.write(table(_HEADING, [_row(stock, folder) for folder in folders], session.terminal.columns))
    if not folders:
        session.status(f"No models in {', '.join(str(place) for place in stock.directories)}.")
    elif any(folder.missing for folder in folders):
        session.status("SPEED and MEMORY are what others measured. 'rkllm-mcp models pull NAME' fetches a model.")
    return EXIT_DONE


def show(session: Session, name: str, *, as_json: bool) -> int:
    """Print one model's card and files, also when its files are not here.

    Raises:
        ModelNotFoundError: there is none of that name, or there is no such path.
    """
    from rkllm_mcp.acquisition.stock import Stock
    from rkllm_mcp.config.models import load_model

    stock = Stock()
    known = next((folder for folder in stock.models() if folder.folder.name == name), None)
    values = _as_dict(stock, known or load_model(name))
    if as_json:
        sys.stdout.write(f"{json.dumps(values, ensure_ascii=False, indent=2)}\n")
    else:
        rows = [
            (key, json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else str(value))
            for key, value in values.items()
            if value is not None
        ]
        sys.stdout.write(table((), rows, session.terminal.columns))
    return EXIT_DONE


def _row(stock: Stock, folder: ModelFolder) -> tuple[str, ...]:
    published = folder.card.published
    speed = published.decode_tokens_per_second if published else None
    memory = published.memory_mb if published else None
    fits = stock.fitness_of(folder)
    return (
        folder.name,
        _state(folder),
        f"{speed:g} tok/s" if speed else "",
        f"{memory} MB" if memory else "",
        f"{fits.verdict}: {fits.reason}" if fits.reason else fits.verdict,
        folder.card.description,
    )


def _state(folder: ModelFolder) -> str:
    if folder.missing:
        return "not here"
    return "emulated" if folder.card.emulated else "here"


def _as_dict(stock: Stock, folder: ModelFolder) -> dict[str, Any]:
    values = folder.card.model_dump(mode="json")
    return {
        **values,
        "state": _state(folder),
        "fits": asdict(stock.fitness_of(folder)),
        "file": str(folder.file),
        "tokenizer": str(folder.tokenizer),
        "missing": [str(path) for path in folder.missing],
    }
