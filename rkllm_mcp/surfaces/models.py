"""The models on this machine: ``rkllm-mcp models``."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from rkllm_mcp.surfaces.session import EXIT_DONE, Session
from rkllm_mcp.surfaces.table import table

if TYPE_CHECKING:
    from rkllm_mcp.config.models import ModelFolder


def list_all(session: Session, *, as_json: bool) -> int:
    """Print every model there is a card for, and whether its files are here."""
    from rkllm_mcp.config.models import list_models, model_directories

    folders = list_models()
    if as_json:
        sys.stdout.write(f"{json.dumps([_as_dict(folder) for folder in folders], ensure_ascii=False, indent=2)}\n")
        return EXIT_DONE
    rows = [(folder.name, _state(folder), folder.card.description) for folder in folders]
    sys.stdout.write(table(("NAME", "STATE", "DESCRIPTION"), rows))
    if not rows:
        session.status(f"No models in {', '.join(str(place) for place in model_directories())}.")
    return EXIT_DONE


def show(session: Session, name: str, *, as_json: bool) -> int:
    """Print one model's card and files.

    Raises:
        ModelNotFoundError: there is none of that name, or it lacks a file.
    """
    del session
    from rkllm_mcp.config.models import load_model

    values = _as_dict(load_model(name))
    if as_json:
        sys.stdout.write(f"{json.dumps(values, ensure_ascii=False, indent=2)}\n")
    else:
        rows = [
            (key, json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else str(value))
            for key, value in values.items()
            if value is not None
        ]
        sys.stdout.write(table((), rows))
    return EXIT_DONE


def _state(folder: ModelFolder) -> str:
    if folder.missing:
        return "not here"
    return "emulated" if folder.card.emulated else "here"


def _as_dict(folder: ModelFolder) -> dict[str, Any]:
    values = folder.card.model_dump(mode="json")
    return {
        **values,
        "state": _state(folder),
        "file": str(folder.file),
        "tokenizer": str(folder.tokenizer),
        "missing": [str(path) for path in folder.missing],
    }
