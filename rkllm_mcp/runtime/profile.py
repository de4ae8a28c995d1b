"""RuntimeProfile: measurements of one runtime library with one model, stored between starts.

A profile belongs to the exact bytes of the library and to one model file. The program works without one: an absent,
unreadable or invalid file gives None. ``probe`` makes profiles; ``FACTS`` describes each fact.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from rkllm_mcp.errors import RuntimeUnusableError
from rkllm_mcp.runtime.library import find_library, fingerprint

FORMAT = 1
_EMULATOR = "emulator"

# Models are identified by their size and both ends: header and last weights.
_END_BYTES = 1 << 20
_ID_CHARS = 16

# Label of each fact on screen. The values are JSON; those in braces are the possible ones.
FACTS: Mapping[str, str] = {
    "load_ms": "loading the model, ms",
    "complaints": "error lines that it printed without being provoked",
    "log_streams": "where the runtime prints {stdout, stderr, both, nowhere}",
    "defaults": "defaults of rkllm_createDefaultParam",
    "prefill_ms": "prefill, tokens → ms",
    "decode_ms": "one token more behind a prompt, tokens → ms",
    "callback_thread": "who calls back {calling, library}",
    "callback_thread_is_kept": "the same thread in every run",
    "finish_text": "text that comes with FINISH {empty, null, some}",
    "first_tokens": "the first tokens of an answer, id → text",
    "ends_at_stop_token": "ends by itself at the model's stop token",
    "skipped_token": "what is heard of a hidden special token {silent, null, empty}",
    "is_running_while_idle": "rkllm_is_running while nothing runs",
    "is_running_while_running": "the same during a run",
    "reuses_prefix": "a run without history leaves its tokens for the next",
    "reuses_prefix_after_history": "a run with history leaves its tokens for the next",
    "history_continues": "a run with history goes on behind the one before",
    "full_match_evaluates": "of a prompt that is in the cache whole, evaluated again {none, last, all}",
    "caches_last_token": "the last token of an answer is in the cache",
    "keeps_leading_tokens": "n_keep tokens stay when a run leaves nothing else",
    "hidden_rows": "rows of hidden states {all, last}",
    "hidden_size": "floats in a row of hidden states",
    "hidden_callbacks": "callbacks of a run for hidden states",
    "hidden_needs_clear": "hidden states are wrong unless the cache was cleared",
    "logits_rows": "rows of logits {all, last}",
    "logits_size": "floats in a row of logits",
    "prompt_cache_prefills": "tokens evaluated behind a prompt cache, and without one",
    "prompt_cache_speed_up": "prefill without a prompt cache, times as long",
    "prompt_cache_bytes": "bytes of a prompt cache, and its tokens",
    "abort_idle_status": "rkllm_abort with nothing to abort",
    "abort_status": "rkllm_run after an abort",
    "abort_ends_with": "last callback after an abort {finish, error, nothing}",
    "abort_in_decode": "an abort between tokens {honoured, forgotten}",
    "abort_in_decode_tokens": "tokens that came after it",
    "abort_in_decode_ms": "until the run returned, ms",
    "abort_in_prefill": "an abort during prefill {cuts, waits, forgotten}",
    "abort_in_prefill_ms": "until the run returned, and the whole prefill, ms",
    "pause_returns": "a pause returns without FINISH",
    "pause_left_by": "what ends a pause, beside resuming {clear, abort, run}",
    "busy_run_status": "rkllm_run during a run, from another thread",
    "null_role": "an input without a role {works, refused, crash}",
    "odd_context": "a context length that is no multiple of 32 {accepted, refused, crash}",
    "run_async": "rkllm_run_async {works, silent, refused, hangs, crash}",
    "over_long": "a prompt longer than the context {return, callback, runs, crash, hangs}",
}


@dataclass(frozen=True)
class RuntimeProfile:
    """Measurements of a library with a model."""

    # Git blob id of the library.
    library: str
    # ``model_identity`` of the model.
    model: str
    version: str
    # Interface in use.
    abi: str
    emulated: bool
    # ISO 8601.
    measured_at: str
    # By the names of ``FACTS``; undetermined facts are absent.
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # Experiment -> reason why it was inconclusive.
    unsettled: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def reuses_prefix(self) -> bool | None:
        """True if a run finds the tokens of the previous run in the KV cache; None if unknown."""
        return self.facts.get("reuses_prefix")

    def prefill_s(self, tokens: int) -> float | None:
        """Return the prefill time of so many tokens, seconds; None if unknown.

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
    """Return an id of a model file, without reading all of it.

    Raises:
        RuntimeUnusableError: the file cannot be read.
    """
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
    home = environment.get("XDG_STATE_HOME") or Path(environment.get("HOME") or Path.home()) / ".local" / "state"
    return Path(home) / "rkllm-mcp" / "profiles"


def profile_path(library_blob: str, model: str, folder: Path | None = None) -> Path:
    """Return the profile's file of a library and a model."""
    return (folder or profile_folder()) / f"{library_blob[:_ID_CHARS]}-{model[:_ID_CHARS]}.json"


def load_profile(library: Path, model: Path, folder: Path | None = None) -> RuntimeProfile | None:
    """Return the profile of a library with a model; None without a usable one."""
    try:
        blob, identity = fingerprint(library).git_blob, model_identity(model)
        content: Any = json.loads(profile_path(blob, identity, folder).read_text("utf-8"))
        if content.pop("format") != FORMAT:
            return None
        profile = RuntimeProfile(**content)
        is_sound = _is_sound(profile)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeUnusableError):
        return None
    return profile if (profile.library, profile.model) == (blob, identity) and is_sound else None


def find_profile(library: str, model: Path, folder: Path | None = None) -> RuntimeProfile | None:
    """Return the profile for an engine's settings; None for the emulated runtime.

    ``library`` is a path, ``auto`` or ``emulator``.
    """
    stored_in = folder or profile_folder()
    # Avoid hashing a library if there are no profiles.
    if library == _EMULATOR or next(stored_in.glob("*.json"), None) is None:
        return None
    try:
        return load_profile(find_library(library), model, stored_in)
    except RuntimeUnusableError:
        return None  # the engine reports the library's fault


def save_profile(profile: RuntimeProfile, folder: Path | None = None) -> Path:
    """Store a profile in place of an earlier one of the same library and model; return its file.

    Raises:
        RuntimeUnusableError: it cannot be written.
    """
    path = profile_path(profile.library, profile.model, folder)
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(f"{json.dumps({'format': FORMAT, **asdict(profile)}, indent=2)}\n", "utf-8")
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        remedy = "Make room, or set XDG_STATE_HOME to a folder that may be written."
        raise RuntimeUnusableError(f"The profile cannot be written to {path}: {error.strerror}.", remedy) from None
    return path


def _is_sound(profile: RuntimeProfile) -> bool:
    """True if the facts that are used have their types; the file may have been written by another program."""
    facts: object = profile.facts
    if not isinstance(facts, dict) or not isinstance(profile.unsettled, dict):
        return False
    known = cast("dict[str, object]", facts)
    prefill = known.get("prefill_ms", [])
    return (
        known.get("reuses_prefix") in {None, True, False}
        and isinstance(known.get("pause_left_by", []), list)
        and isinstance(prefill, list)
        and len(_points(cast("list[object]", prefill))) == len(cast("list[object]", prefill))
    )


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
