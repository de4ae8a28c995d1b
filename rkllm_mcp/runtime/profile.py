"""RuntimeProfile: measurements of one runtime library with one model, stored between starts.

A profile belongs to the exact bytes of the library and to one model file. The program works without one: an absent,
unreadable or invalid file gives None. ``probe`` makes profiles, and its ``facts.json`` describes each fact.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from rkllm_base.folders import user_folder
from rkllm_mcp.errors import RuntimeUnusableError
from rkllm_mcp.runtime.library import EMULATOR, find_library, fingerprint

FORMAT = 1

# Models are identified by their size and both ends: header and last weights.
_END_BYTES = 1 << 20
_ID_CHARS = 16
# A second attempt reads the question again and writes 30 to 60 tokens, 3 to 6 seconds; beyond half of that a correction
# is not worth its while.
_DEAREST_CORRECTION_MS = 1500


@dataclass(frozen=True)
class RuntimeProfile:
    """Measurements of a library with a model."""

    library: str  # Git blob id of the library
    model: str  # ``model_identity`` of the model
    version: str
    abi: str  # interface in use
    emulated: bool
    measured_at: str  # ISO 8601
    # By the names in the probe's ``facts.json``; undetermined facts are absent.
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    unsettled: Mapping[str, str] = field(default_factory=dict[str, str])  # experiment -> reason why it was inconclusive

    @property
    def reuses_prefix(self) -> bool | None:
        """True if a run finds the tokens of the previous run in the KV cache; None if unknown."""
        return self.facts.get("reuses_prefix")

    @property
    def against_corrections(self) -> str:
        """Why correcting an answer costs more than asking again; empty if it does not, or if that is unknown."""
        if self.reuses_prefix is False:
            return "its runs do not reuse the KV cache"
        # Time from the abort of a run to the first token of one that goes on with its tokens.
        restart_ms = self.facts.get("restart_ms")
        if isinstance(restart_ms, (int, float)) and restart_ms > _DEAREST_CORRECTION_MS:
            return f"a correction takes {restart_ms / 1000:.1f} s"
        return ""

    def prefill_s(self, tokens: int) -> float | None:
        """Return the prefill time of this many tokens, seconds; None if unknown.

        Interpolated between two measured lengths. Beyond the longest, the time per token grows as between the last two,
        because attention makes long prompts slower per token.
        """
        points = [(0.0, 0.0), *_points(self.facts.get("prefill_ms"))]
        if len(points) == 1:
            return None
        for (low, low_ms), (high, high_ms) in itertools.pairwise(points):
            if tokens <= high:
                return (low_ms + (high_ms - low_ms) * (tokens - low) / (high - low)) / 1000
        (before, before_ms), (last, last_ms) = points[-2:]
        per_token = last_ms / last
        growth = max(0.0, per_token - before_ms / before) / (last - before) if before else 0.0
        return tokens * (per_token + growth * (tokens - last)) / 1000


def model_identity(path: Path) -> str:
    """Return an id of a model file, read only in part; a RuntimeUnusableError if it cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            digest.update(b"%d\0" % size)
            digest.update(file.read(_END_BYTES))
            file.seek(max(0, size - _END_BYTES))
            digest.update(file.read(_END_BYTES))
    except OSError as error:
        raise RuntimeUnusableError(f"{path} cannot be read: {error.strerror}.", "Check the path.") from None
    return digest.hexdigest()


def profile_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of profiles: ``$XDG_STATE_HOME/rkllm-mcp/profiles``."""
    return user_folder("state", environment) / "profiles"


def profile_path(library_blob: str, model: str, folder: Path | None = None) -> Path:
    """Return the profile's file of a library and a model."""
    return (folder or profile_folder()) / f"{library_blob[:_ID_CHARS]}-{model[:_ID_CHARS]}.json"


def find_profile(library: str, model: Path, folder: Path | None = None) -> RuntimeProfile | None:
    """Return the profile for a library (path, ``auto`` or ``emulator``) with a model; None without a usable one."""
    stored_in = folder or profile_folder()
    # Avoid hashing a library without profiles.
    if library == EMULATOR or next(stored_in.glob("*.json"), None) is None:
        return None
    try:
        blob, identity = fingerprint(find_library(library)).git_blob, model_identity(model)
        content: Any = json.loads(profile_path(blob, identity, stored_in).read_text("utf-8"))
        if content.pop("format") != FORMAT:
            return None
        profile = RuntimeProfile(**content)
        # The file may have been written by another program: the facts that are used must have their types.
        facts: object = profile.facts
        if not isinstance(facts, dict) or not isinstance(profile.unsettled, dict):
            return None
        table = cast("dict[str, object]", facts)
        prefill, pauses = table.get("prefill_ms", []), table.get("pause_left_by", [])
        if not isinstance(prefill, list) or not isinstance(pauses, list):
            return None
        points = cast("list[object]", prefill)
        is_sound = table.get("reuses_prefix") in {None, True, False} and len(_points(points)) == len(points)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeUnusableError):
        return None
    return profile if (profile.library, profile.model) == (blob, identity) and is_sound else None


def save_profile(profile: RuntimeProfile, folder: Path | None = None) -> Path:
    """Store a profile in place of an earlier one, return its file; a RuntimeUnusableError if it cannot be written."""
    path = profile_path(profile.library, profile.model, folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"format": FORMAT, **asdict(profile)})
    except OSError as error:
        remedy = "Make room, or set XDG_STATE_HOME to a folder that may be written."
        raise RuntimeUnusableError(f"The profile cannot be written to {path}: {error.strerror}.", remedy) from None
    return path


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Replace a file in one step: after a power cut it is the old one or the new one."""
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(f"{json.dumps(content, indent=2)}\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _points(value: Sequence[object] | None) -> list[tuple[float, float]]:
    """Return the measured points, ascending, without invalid entries."""
    points: list[tuple[float, float]] = []
    for entry in value or ():
        match entry:
            case [int() | float() as x, int() | float() as y] if x > (points[-1][0] if points else 0) and y >= 0:
                points.append((float(x), float(y)))
            case _:
                continue
    return points
