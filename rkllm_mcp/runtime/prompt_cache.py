"""Prompt caches on disk: files, manifests, limits, and the warm-up that fills them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import anyio
from anyio import to_thread

from rkllm_mcp.errors import InputRefusedError, RunRejectedError, RuntimeUnusableError, WorkerDiedError
from rkllm_mcp.generation import GenerationOptions, RunStats
from rkllm_mcp.runtime.engine import Engine
from rkllm_mcp.runtime.library import fingerprint
from rkllm_mcp.runtime.profile import model_identity

FORMAT = 1
_DATA, _MANIFEST, _REFUSALS = "prompt.bin", "manifest.json", "refusals.json"
_KEY_CHARS = 32
_MB = 1 << 20
# What a disk must still have when a file was written, or the file may have lost its end.
_MARGIN_BYTES = 16 * _MB
_REFUSALS_KEPT = 64


@dataclass(frozen=True)
class CacheSubject:
    """What an evaluated prompt belongs to.

    Args:
        model_path: the model's file.
        model: what tells its bytes from others (``profile.model_identity``).
        model_mtime_ns: when it was written; of the bytes, only both ends are looked at.
        library: git's id of the library's bytes.
        version: the runtime's release.
        context_tokens: the context window that the model is loaded with.
        lora: the adapter's name; empty for the model itself.
    """

    model_path: str
    model: str
    model_mtime_ns: int
    library: str
    version: str
    context_tokens: int
    lora: str = ""

    def difference(self, saved: Mapping[str, object]) -> str:
        """Why what was saved for another subject is of no use for this one; empty when it is."""
        if (saved.get("model"), saved.get("model_mtime_ns")) != (self.model, self.model_mtime_ns):
            return "the model file is another one now"
        if saved.get("library") != self.library or saved.get("version") != self.version:
            return f"the runtime is another one now ({self.version}, it was {saved.get('version')})"
        if saved.get("context_tokens") != self.context_tokens:
            return f"the context window is {self.context_tokens} tokens now, it was {saved.get('context_tokens')}"
        return "" if saved.get("lora") == self.lora else "it was made with another LoRA adapter"


def subject_of(model: Path, library: Path, version: str, context_tokens: int, lora: str = "") -> CacheSubject:
    """What an engine's prompts belong to; reads both ends of the model and all of the library.

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
class KeptPrompt:
    """An evaluated prompt that is there.

    Args:
        file: what the runtime wrote.
        size_bytes: its size.
        prefill_ms: what evaluating it took when it was saved.
        is_proven: loading it was seen to save time.
    """

    file: Path
    size_bytes: int
    prefill_ms: float
    is_proven: bool


@dataclass(frozen=True)
class Dropped:
    """An evaluated prompt that was there and could not be used, and why."""

    reason: str


def prompts_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where evaluated prompts are kept: ``$XDG_CACHE_HOME/rkllm-mcp/prompts``."""
    home = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or Path.home()) / ".cache"
    return Path(home) / "rkllm-mcp" / "prompts"


class PromptFiles:
    """The evaluated prompts in a folder, which is made when the first is saved.

    Args:
        folder: where they are.
        limit_mb: what all of them together may take, megabytes.
    """

    def __init__(self, folder: Path, limit_mb: int) -> None:
        self.folder = folder
        self._limit_bytes = limit_mb * _MB

    def find(self, subject: CacheSubject, ids: Sequence[int]) -> KeptPrompt | Dropped | None:
        """What was saved for a prefix; what cannot be used is removed. Reads the whole file for its checksum."""
        entry = self._entry(subject, ids)
        if not entry.is_dir():
            return None
        try:
            manifest = _read_json(entry / _MANIFEST)
            reason = _fault(entry / _DATA, manifest, ids) or subject.difference(manifest)
            if not reason:
                # What was used last is removed last.
                os.utime(entry)
                size, took_ms, proven = manifest["bytes"], float(manifest["prefill_ms"]), manifest["is_proven"] is True
                return KeptPrompt(entry / _DATA, size, took_ms, proven)
        except (OSError, ValueError, TypeError, KeyError):
            reason = "its manifest cannot be read"
        _remove(entry)
        return Dropped(reason)

    def draft(self, subject: CacheSubject, ids: Sequence[int]) -> Path:
        """A path for the runtime to write to; then call ``keep``, and ``discard`` whatever happens.

        Raises:
            OSError: the folder cannot be made.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._sweep()
        aside = self._entry(subject, ids).with_suffix(f".{os.getpid()}")
        _remove(aside)
        aside.mkdir(mode=0o700)
        return aside / _DATA

    def keep(self, draft: Path, subject: CacheSubject, ids: Sequence[int], prefill_ms: float) -> KeptPrompt | Dropped:
        """Make what the runtime wrote to ``draft`` the entry of a prefix, and remove what the limit leaves no room for.

        Raises:
            OSError: it cannot be kept.
        """
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
        _write_json(draft.with_name(_MANIFEST), manifest)
        entry = self._entry(subject, ids)
        _remove(entry)
        draft.parent.rename(entry)
        self._trim(spare=entry)
        return KeptPrompt(entry / _DATA, size, prefill_ms, is_proven=False)

    def prove(self, kept: KeptPrompt) -> None:
        """Note that loading it was seen to save time."""
        path = kept.file.with_name(_MANIFEST)
        with suppress(OSError, ValueError, TypeError):
            _write_json(path, {**_read_json(path), "is_proven": True})

    def discard(self, file: Path) -> None:
        """Remove an entry, or a draft that did not become one."""
        _remove(file.parent)

    def refusal(self, subject: CacheSubject) -> str:
        """Why nothing is tried with this model and runtime; empty when it may be."""
        return self._refusals().get(_pair(subject), "")

    def refuse(self, subject: CacheSubject, reason: str) -> None:
        """Try nothing with this model and runtime from now on."""
        refusals = {**self._refusals(), _pair(subject): reason}
        latest = dict(list(refusals.items())[-_REFUSALS_KEPT:])
        with suppress(OSError):  # then it is tried again, which costs time only
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write_json(self.folder / _REFUSALS, latest)

    def _entry(self, subject: CacheSubject, ids: Sequence[int]) -> Path:
        name = f"{subject.model_path}\0{subject.lora}\0{_ids_digest(ids)}"
        return self.folder / hashlib.sha256(name.encode()).hexdigest()[:_KEY_CHARS]

    def _entries(self) -> Iterator[Path]:
        return (path for path in self.folder.iterdir() if path.is_dir())

    def _sweep(self) -> None:
        """Remove what processes that are gone have left unfinished."""
        for path in self.folder.iterdir():
            if not path.suffix[1:].isdigit() or Path(f"/proc/{path.suffix[1:]}").exists():
                continue
            if path.is_dir():
                _remove(path)
            else:
                path.unlink(missing_ok=True)

    def _trim(self, spare: Path) -> None:
        entries = sorted((path for path in self._entries() if not path.suffix), key=_used_ns)
        total = sum(map(_size, entries))
        for entry in entries:
            if total > self._limit_bytes and entry != spare:
                total -= _size(entry)
                _remove(entry)

    def _refusals(self) -> dict[str, str]:
        try:
            known = _read_json(self.folder / _REFUSALS)
        except (OSError, ValueError, TypeError):
            return {}
        return {pair: reason for pair, reason in known.items() if isinstance(reason, str)}


def _fault(data: Path, manifest: Mapping[str, Any], ids: Sequence[int]) -> str:
    """What is wrong with an entry in itself; empty when nothing is."""
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
            # The manifest must not outlive a power cut that its data does not.
            os.fsync(file.fileno())
    return digest.hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    content: object = json.loads(path.read_text("utf-8"))
    if not isinstance(content, dict):
        raise TypeError("no object")
    return cast("dict[str, Any]", content)


def _write_json(path: Path, content: Mapping[str, object]) -> None:
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(json.dumps(content, indent=2))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _remove(entry: Path) -> None:
    """Remove an entry; the manifest first, so that a crash in the middle leaves nothing that is believed."""
    with suppress(OSError):
        (entry / _MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(entry, ignore_errors=True)


def _used_ns(entry: Path) -> int:
    try:
        return entry.stat().st_mtime_ns
    except OSError:
        return 0


def _size(entry: Path) -> int:
    try:
        return (entry / _DATA).stat().st_size
    except OSError:
        return 0


# Fewer tokens are evaluated before anybody has typed a letter.
WORTHWHILE_TOKENS = 32
# Shorter prefills say nothing about a file where the runtime does not count tokens (1.2.0).
_TELLING_MS = 200.0


class PromptCaches:
    """The prompts of one engine on disk.

    Args:
        engine: whose KV cache is filled.
        files: where they are kept.
        subject: what they belong to.
        say: is told, one line each, what was loaded, saved or dropped.
        owner: whose prompts they are, as for ``GenerationOptions``.
    """

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
        """Fill the KV cache with what was saved for ``head``; False where that cannot be.

        Raises:
            GenerationError: the run that tries the file failed, for reasons of its own.
            RuntimeUnusableError: the model cannot be loaded.
        """
        found = None if self.is_refused else await to_thread.run_sync(self._files.find, self.subject, head)
        if isinstance(found, Dropped):
            self._say(f"[NPU: the prompt cache is dropped: {found.reason}]")
        if not isinstance(found, KeptPrompt):
            return False
        try:
            await self._engine.load_prompt_cache(found.file, tokens=head, owner=self._owner)
        except (InputRefusedError, RunRejectedError, WorkerDiedError) as error:
            if isinstance(error, WorkerDiedError) or self._engine.is_ready:
                self._give_up(found, str(error))
            return False
        if not found.is_proven and not await self._saves_time(found, head):
            await self._engine.release_prompt_cache()
            self._give_up(found, "loading it saved nothing")
            # The trial has evaluated the head.
            return True
        self._say(f"[NPU: {len(head)} tokens of system text and tools are there from the last start]")
        return True

    async def save(self, head: Sequence[int]) -> None:
        """Evaluate ``head`` and keep what the runtime writes of it.

        Raises:
            GenerationError: the run failed.
            RuntimeUnusableError: the model cannot be loaded.
        """
        try:
            draft = self._files.draft(self.subject, head)
        except OSError as error:
            self._say(f"[NPU: no prompt can be kept in {self._files.folder}: {error.strerror}]")
            return
        try:
            options = GenerationOptions(1, save_prompt_cache=str(draft), owner=self._owner)
            stats = await evaluated(self._engine, head, options)
            if not draft.is_file():
                self._refuse("the runtime wrote no file")
                return
            kept = await to_thread.run_sync(self._files.keep, draft, self.subject, head, stats.prefill_ms)
        except OSError as error:
            self._say(f"[NPU: the prompt cache was not kept: {error.strerror}]")
            return
        finally:
            self._files.discard(draft)
        if isinstance(kept, Dropped):
            self._say(f"[NPU: the prompt cache was not kept: {kept.reason}]")
        else:
            size = f"{kept.size_bytes / _MB:.1f} MB"
            self._say(f"[NPU: {len(head)} tokens of system text and tools are kept for the next start, {size}]")

    async def _saves_time(self, found: KeptPrompt, head: Sequence[int]) -> bool:
        """Try it with one token behind it, because of a prompt that is there whole some evaluate all again."""
        stats = await evaluated(self._engine, [*head, head[-1]], GenerationOptions(1, owner=self._owner))
        if stats.prefilled_tokens is None:
            is_faster = found.prefill_ms < _TELLING_MS or stats.prefill_ms < found.prefill_ms / 2
        else:
            is_faster = stats.prefilled_tokens < len(head) / 2
        if is_faster:
            await to_thread.run_sync(self._files.prove, found)
        return is_faster

    def _give_up(self, found: KeptPrompt, reason: str) -> None:
        self._files.discard(found.file)
        self._refuse(reason)

    def _refuse(self, reason: str) -> None:
        self.is_refused = True
        self._files.refuse(self.subject, reason)
        self._say(f"[NPU: prompt caches are not tried again with this model and runtime: {reason}]")


class CacheWarmUp:
    """Puts the head of all prompts into the KV cache, once.

    Args:
        engine: whose KV cache.
        caches: where it may come from and go to; None where nothing is kept.
        evaluates: evaluate it also where nothing is kept.
    """

    def __init__(self, engine: Engine, caches: PromptCaches | None, *, evaluates: bool = True) -> None:
        self._engine = engine
        self._caches = caches
        self._evaluates = evaluates and engine.may_reuse_prefix
        self._postponable: anyio.CancelScope | None = None
        self._is_awaited = False

    def awaited(self) -> None:
        """Somebody waits for the NPU: what can be done another time is left."""
        self._is_awaited = True
        if self._postponable is not None:
            self._postponable.cancel()

    async def run(self, head: Sequence[int]) -> None:
        """Load the head, or evaluate and save it, or evaluate it.

        Nothing is evaluated only for a question that is there already; it would wait as long for its own prefill. A
        run that saves is worth waiting for: it happens once. But before 1.3.0 it generates until the model ends by
        itself, so it is only made while nobody waits.

        Raises:
            GenerationError: the run failed.
            RuntimeUnusableError: the model cannot be loaded.
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
        if self._is_awaited:
            return
        if caches is not None and not caches.is_refused:
            with anyio.CancelScope() as self._postponable:
                await caches.save(head)
        elif self._evaluates:
            # Only the service's own prompt is evaluated in advance.
            await evaluated(self._engine, head, GenerationOptions(1, owner=None))


async def evaluated(engine: Engine, ids: Sequence[int], options: GenerationOptions) -> RunStats:
    """Run a prompt for its effect on the KV cache, and forget what was generated.

    Raises:
        GenerationError: as for ``Engine.generate``.
    """
    async with aclosing(engine.generate(ids, options)) as run:
        async for item in run:
            if isinstance(item, RunStats):
                return item
    raise RuntimeUnusableError("The runtime ended a run without its figures.", "Please report it.")
