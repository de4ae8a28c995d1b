"""Prompt caches on disk: files, manifests, limits, and the warm-up that fills them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import anyio
from anyio import to_thread

from rkllm_mcp.errors import InputRefusedError, RunRejectedError, RuntimeUnusableError, WorkerDiedError
from rkllm_mcp.generation import GenerationOptions
from rkllm_mcp.records import user_folder
from rkllm_mcp.runtime.engine import Engine
from rkllm_mcp.runtime.library import fingerprint
from rkllm_mcp.runtime.profile import model_identity, write_json

FORMAT = 1
_DATA, _MANIFEST, _REFUSALS = "prompt.bin", "manifest.json", "refusals.json"
_KEY_CHARS = 32
_MB = 1 << 20
# Free space required after writing, or the file may be incomplete.
_MARGIN_BYTES = 16 * _MB
_MAX_REFUSALS = 64


@dataclass(frozen=True)
class CacheSubject:
    """Model, runtime and settings that an evaluated prompt belongs to."""

    model_path: str
    model: str  # ``profile.model_identity``, which covers only both ends of the file
    model_mtime_ns: int
    library: str  # Git blob id of the library
    version: str
    context_tokens: int
    lora: str = ""  # name of the adapter; empty for none

    def difference(self, saved: Mapping[str, object]) -> str:
        """Return why a prompt saved for another subject cannot be used here; empty if it can."""
        if (saved.get("model"), saved.get("model_mtime_ns")) != (self.model, self.model_mtime_ns):
            return "the model file is another one now"
        if saved.get("library") != self.library or saved.get("version") != self.version:
            return f"the runtime is another one now ({self.version}, it was {saved.get('version')})"
        if saved.get("context_tokens") != self.context_tokens:
            return f"the context window is {self.context_tokens} tokens now, it was {saved.get('context_tokens')}"
        return "" if saved.get("lora") == self.lora else "it was made with another LoRA adapter"


def subject_of(model: Path, library: Path, version: str, context_tokens: int, lora: str = "") -> CacheSubject:
    """Return the subject of an engine's prompts; reads both ends of the model and all of the library.

    Raises:
        RuntimeUnusableError: one of them cannot be read.
    """
    try:
        written = model.stat().st_mtime_ns
    except OSError as error:
        raise RuntimeUnusableError(f"{model} cannot be read: {error.strerror}.", "Check the path.") from None
    blob = fingerprint(library).git_blob
    return CacheSubject(str(model.absolute()), model_identity(model), written, blob, version, context_tokens, lora)


@dataclass(frozen=True)
class SavedPrompt:
    """An evaluated prompt on disk."""

    file: Path
    size_bytes: int
    prefill_ms: float  # prefill time when it was saved
    is_proven: bool  # True once loading it has saved time


@dataclass(frozen=True)
class Dropped:
    """A saved prompt that was removed, and the reason."""

    reason: str


def prompts_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of evaluated prompts: ``$XDG_CACHE_HOME/rkllm-mcp/prompts``."""
    return user_folder("cache", environment) / "prompts"


class PromptFiles:
    """Evaluated prompts in a folder, limited to ``limit_mb`` megabytes; the folder is made on first use."""

    def __init__(self, folder: Path, limit_mb: int) -> None:
        self.folder = folder
        self._limit_bytes = limit_mb * _MB

    def find(self, subject: CacheSubject, ids: Sequence[int]) -> SavedPrompt | Dropped | None:
        """Return the saved prompt of a prefix; remove an unusable one. Reads the whole file for its checksum."""
        entry = self._entry(subject, ids)
        if not entry.is_dir():
            return None
        try:
            manifest = _read_json(entry / _MANIFEST)
            reason = _fault(entry / _DATA, manifest, ids) or subject.difference(manifest)
            if not reason:
                # The order of removal is by last use.
                os.utime(entry)
                size, took_ms, proven = manifest["bytes"], float(manifest["prefill_ms"]), manifest["is_proven"] is True
                return SavedPrompt(entry / _DATA, size, took_ms, proven)
        except (OSError, ValueError, TypeError, KeyError):
            reason = "its manifest cannot be read"
        _remove(entry)
        return Dropped(reason)

    def draft(self, subject: CacheSubject, ids: Sequence[int]) -> Path:
        """Return a path to write to, or raise an OSError; call ``keep`` on success, and ``discard`` always."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._sweep()
        aside = self._entry(subject, ids).with_suffix(f".{os.getpid()}")
        _remove(aside)
        aside.mkdir(mode=0o700)
        return aside / _DATA

    def keep(self, draft: Path, subject: CacheSubject, ids: Sequence[int], prefill_ms: float) -> SavedPrompt | Dropped:
        """Make ``draft`` the entry of a prefix, delete the oldest above the limit; an OSError if it is not stored."""
        size = draft.stat().st_size
        if size > self._limit_bytes:
            return Dropped(f"{size / _MB:.0f} MB are more than prompt_cache_mb allows")
        if shutil.disk_usage(self.folder).free < _MARGIN_BYTES:
            return Dropped("the disk is full")
        manifest = {
            "format": FORMAT,
            **asdict(subject),
            "tokens": len(ids),
            "ids": _ids_digest(ids),
            "bytes": size,
            "sha256": _file_digest(draft, sync=True),
            "prefill_ms": prefill_ms,
            "is_proven": False,
        }
        write_json(draft.with_name(_MANIFEST), manifest)
        entry = self._entry(subject, ids)
        _remove(entry)
        draft.parent.rename(entry)
        self._trim(spare=entry)
        return SavedPrompt(entry / _DATA, size, prefill_ms, is_proven=False)

    def prove(self, saved: SavedPrompt) -> None:
        """Record that loading the prompt saved time."""
        path = saved.file.with_name(_MANIFEST)
        with suppress(OSError, ValueError, TypeError):
            write_json(path, {**_read_json(path), "is_proven": True})

    def discard(self, file: Path) -> None:
        """Remove an entry, or a draft that did not become one."""
        _remove(file.parent)

    def refusal(self, subject: CacheSubject) -> str:
        """Return why prompt caches are disabled for this model and runtime; empty if they are not."""
        return self._refusals().get(_pair(subject), "")

    def refuse(self, subject: CacheSubject, reason: str) -> None:
        """Disable prompt caches for this model and runtime."""
        refusals = {**self._refusals(), _pair(subject): reason}
        latest = dict(list(refusals.items())[-_MAX_REFUSALS:])
        with suppress(OSError):  # it is tried again at the next start
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_json(self.folder / _REFUSALS, latest)

    def _entry(self, subject: CacheSubject, ids: Sequence[int]) -> Path:
        name = f"{subject.model_path}\0{subject.lora}\0{_ids_digest(ids)}"
        return self.folder / hashlib.sha256(name.encode()).hexdigest()[:_KEY_CHARS]

    def _sweep(self) -> None:
        """Remove unfinished files of processes that no longer run."""
        for path in self.folder.iterdir():
            if not path.suffix[1:].isdigit() or Path(f"/proc/{path.suffix[1:]}").exists():
                continue
            if path.is_dir():
                _remove(path)
            else:
                path.unlink(missing_ok=True)

    def _trim(self, spare: Path) -> None:
        folders = [path for path in self.folder.iterdir() if path.is_dir() and not path.suffix]
        entries = sorted(folders, key=lambda entry: _figure(entry, "st_mtime_ns"))
        total = sum(map(_size, entries))
        for entry in entries:
            if total > self._limit_bytes and entry != spare:
                total -= _size(entry)
                _remove(entry)

    def _refusals(self) -> dict[str, str]:
        try:
            refusals = _read_json(self.folder / _REFUSALS)
        except (OSError, ValueError, TypeError):
            return {}
        return {pair: reason for pair, reason in refusals.items() if isinstance(reason, str)}


def _fault(data: Path, manifest: Mapping[str, Any], ids: Sequence[int]) -> str:
    """Return the fault of an entry; empty without one."""
    if manifest["format"] != FORMAT:
        return "it was saved by another version of this program"
    if (manifest["tokens"], manifest["ids"]) != (len(ids), _ids_digest(ids)):
        return "it holds another prefix"
    size = data.stat().st_size if data.is_file() else 0
    if size != manifest["bytes"]:
        return f"its file has {size} bytes instead of {manifest['bytes']}"
    return "" if _file_digest(data) == manifest["sha256"] else "its file is damaged"


def _pair(subject: CacheSubject) -> str:
    return hashlib.sha256(f"{subject.model}\0{subject.library}".encode()).hexdigest()[:_KEY_CHARS]


def _ids_digest(ids: Sequence[int]) -> str:
    return hashlib.sha256(array("i", ids).tobytes()).hexdigest()


def _file_digest(path: Path, *, sync: bool = False) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_MB):
            digest.update(chunk)
        if sync:
            # After a power cut the manifest must not exist without its data.
            os.fsync(file.fileno())
    return digest.hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    content: object = json.loads(path.read_text("utf-8"))
    if not isinstance(content, dict):
        raise TypeError("no object")
    return cast("dict[str, Any]", content)


def _remove(entry: Path) -> None:
    """Remove an entry; the manifest first, so that a crash leaves no valid entry."""
    with suppress(OSError):
        (entry / _MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(entry, ignore_errors=True)


def _size(entry: Path) -> int:
    return _figure(entry / _DATA, "st_size")


def _figure(path: Path, name: str) -> int:
    try:
        return getattr(path.stat(), name)
    except OSError:
        return 0


# Shorter prefixes are evaluated faster than a question is typed.
WORTHWHILE_TOKENS = 32
# Shorter prefills prove nothing on runtimes that do not count tokens (1.2.0).
_TELLING_MS = 200.0


class PromptCaches:
    """Saved prompts of one engine; ``say`` gets one line for each that is loaded, saved or dropped."""

    def __init__(
        self,
        engine: Engine,
        files: PromptFiles,
        subject: CacheSubject,
        say: Callable[[str], None],
        owner: str | None = None,
    ) -> None:
        self._engine = engine
        self._files = files
        self.subject = subject
        self._say = say
        self._owner = owner
        self.is_refused = bool(files.refusal(subject))

    async def load(self, head: Sequence[int]) -> bool:
        """Fill the KV cache with the saved prompt ``head``; return False without a usable one."""
        saved = None if self.is_refused else await to_thread.run_sync(self._files.find, self.subject, head)
        if isinstance(saved, Dropped):
            self._say(f"[NPU: the prompt cache is dropped: {saved.reason}]")
        if not isinstance(saved, SavedPrompt):
            return False
        try:
            await self._engine.load_prompt_cache(saved.file, tokens=head, owner=self._owner)
        except (InputRefusedError, RunRejectedError, WorkerDiedError) as error:
            if isinstance(error, WorkerDiedError) or self._engine.is_ready:
                self._give_up(saved, str(error))
            return False
        if not saved.is_proven and not await self._saves_time(saved, head):
            await self._engine.release_prompt_cache()
            self._give_up(saved, "loading it saved nothing")
            # The trial has evaluated the head.
            return True
        self._say(f"[NPU: {len(head)} tokens of system text and tools are there from the last start]")
        return True

    async def save(self, head: Sequence[int]) -> None:
        """Evaluate ``head`` and store the file that the runtime writes."""
        try:
            draft = self._files.draft(self.subject, head)
        except OSError as error:
            self._say(f"[NPU: no prompt can be kept in {self._files.folder}: {error.strerror}]")
            return
        try:
            options = GenerationOptions(1, save_prompt_cache=str(draft), owner=self._owner)
            stats = await self._engine.prefill(head, options)
            if not draft.is_file():
                self._refuse("the runtime wrote no file")
                return
            saved = await to_thread.run_sync(self._files.keep, draft, self.subject, head, stats.prefill_ms)
        except OSError as error:
            self._say(f"[NPU: the prompt cache was not kept: {error.strerror}]")
            return
        finally:
            self._files.discard(draft)
        if isinstance(saved, Dropped):
            self._say(f"[NPU: the prompt cache was not kept: {saved.reason}]")
        else:
            size = f"{saved.size_bytes / _MB:.1f} MB"
            self._say(f"[NPU: {len(head)} tokens of system text and tools are kept for the next start, {size}]")

    async def _saves_time(self, saved: SavedPrompt, head: Sequence[int]) -> bool:
        """Run the prompt with one more token, because some releases evaluate a fully cached prompt again."""
        stats = await self._engine.prefill([*head, head[-1]], GenerationOptions(1, owner=self._owner))
        if stats.prefilled_tokens is None:
            is_faster = saved.prefill_ms < _TELLING_MS or stats.prefill_ms < saved.prefill_ms / 2
        else:
            is_faster = stats.prefilled_tokens < len(head) / 2
        if is_faster:
            await to_thread.run_sync(self._files.prove, saved)
        return is_faster

    def _give_up(self, saved: SavedPrompt, reason: str) -> None:
        self._files.discard(saved.file)
        self._refuse(reason)

    def _refuse(self, reason: str) -> None:
        self.is_refused = True
        self._files.refuse(self.subject, reason)
        self._say(f"[NPU: prompt caches are not tried again with this model and runtime: {reason}]")


class CacheWarmUp:
    """Put the common prefix of all prompts into the KV cache, once.

    Without ``caches`` it is evaluated only if ``evaluates`` is True.
    """

    def __init__(self, engine: Engine, caches: PromptCaches | None, *, evaluates: bool = True) -> None:
        self._engine = engine
        self._caches = caches
        self._evaluates = evaluates and engine.may_reuse_prefix
        self._postponable: anyio.CancelScope | None = None
        self._is_interrupted = False

    def awaited(self) -> None:
        """Give up the part of the warm-up that can be done later, because a run waits for the NPU."""
        self._is_interrupted = True
        if self._postponable is not None:
            self._postponable.cancel()

    async def run(self, head: Sequence[int]) -> None:
        """Load the head, or evaluate and save it, or evaluate it; fails with the errors of ``Engine.prefill``.

        It is not only evaluated while a question waits, whose own prefill takes as long. A run that saves is made
        anyway, because it happens once; but before 1.3.0 it generates until the model ends by itself, so it is made
        only while no run waits.
        """
        if len(head) < WORTHWHILE_TOKENS:
            return
        caches = self._caches
        if caches is not None:
            if await caches.load(head):
                return
            if not caches.is_refused and self._engine.limits_each_run:
                await caches.save(head)
                return
        if self._is_interrupted:
            return
        if caches is not None and not caches.is_refused:
            with anyio.CancelScope() as self._postponable:
                await caches.save(head)
        elif self._evaluates:
            # Only the service's own prompt is evaluated in advance.
            await self._engine.prefill(head, GenerationOptions(1, owner=None))
