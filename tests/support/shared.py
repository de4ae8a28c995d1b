"""Other people's test inputs, in the folder ``shared`` beside the project: read there, skipped by name where absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def shared_path(*parts: str) -> Path:
    """A path under the shared folder; skips the calling test, by name, when it is not there."""
    path = Path(os.environ.get("RKLLM_MCP_SHARED", REPOSITORY.parent / "shared")).joinpath(*parts)
    if not path.exists():
        pytest.skip(f"shared/{'/'.join(parts)} is not here")
    return path
