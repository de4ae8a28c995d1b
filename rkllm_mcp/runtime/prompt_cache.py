"""Prompt caches on disk: files, manifests, limits, and what fills them: the warm-up, and a change of the prompt."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import math
import os
import shutil
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import anyio
from anyio import to_thread

from rkllm_base.folders import user_folder
from rkllm_base.memory import available_bytes
from rkllm_mcp.errors import InputRefusedError, RkllmMcpError, RunRejectedError, RuntimeUnusableError, WorkerDiedError
from rkllm_mcp.generation import GenerationOptions, common_prefix
from rkllm_mcp.runtime.engine import Engine
from rkllm_mcp.runtime.library import find_library, fingerprint
from rkllm_mcp.runtime.profile import model_identity, write_json

logger = logging.getLogger(__name__)

FORMAT = 1
_DATA, _MANIFEST, _REFUSALS = "prompt.bin", "manifest.json", "refusals.json"
_KEY_CHARS = 32
_MB = 1 << 20
# Free space required after writing, or the file may be incomplete.
_MARGIN_BYTES = 16 * _MB
_MAX_REFUSALS = 64
# The size of a token's keys and values in the largest models of the NPU (Qwen3-8B: 36 layers, 8 heads, 128, 16 bits).
_MOST_TOKEN_BYTES = 144 << 10


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
    tenant: str = ""  # no other tenant gets the file, whose use would show that the prompts are equal


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


@dataclass(eq=False)
class PromptFiles:
    """Evaluated prompts in a folder, limited to ``limit_mb`` megabytes; the folder is made on first use."""

    folder: Path
    limit_mb: int
    # Files whose checksum this process has computed, with their time of change.
    _verified: dict[Path, int] = field(default_factory=dict[Path, int])

    def find(self, subject: CacheSubject, ids: Sequence[int]) -> SavedPrompt | Dropped | None:
        """Return the saved prompt of a prefix; remove an unusable one.

        The whole file is read for its checksum, once in a process.
        """
        entry = self.entry(subject, ids)
        if not entry.is_dir():
            return None
        file = entry / _DATA
        try:
            manifest = _read_json(entry / _MANIFEST)
            size, changed = (file.stat().st_size, file.stat().st_mtime_ns) if file.is_file() else (0, 0)
            if manifest["format"] != FORMAT:
                reason = "it was saved by another version of this program"
            elif (manifest["tokens"], manifest["ids"]) != (len(ids), _ids_digest(ids)):
                reason = "it holds another prefix"
            elif size != manifest["bytes"]:
                reason = f"its file has {size} bytes instead of {manifest['bytes']}"
            elif self._verified.get(file) != changed and _file_digest(file) != manifest["sha256"]:
                reason = "its file is damaged"
            elif (manifest["model"], manifest["model_mtime_ns"]) != (subject.model, subject.model_mtime_ns):
                reason = "the model file is another one now"
            elif (manifest["library"], manifest["version"]) != (subject.library, subject.version):
                reason = f"the runtime is another one now ({subject.version}, it was {manifest['version']})"
            elif manifest["context_tokens"] != subject.context_tokens:
                saved_tokens = manifest["context_tokens"]
                reason = f"the context window is {subject.context_tokens} tokens now, it was {saved_tokens}"
            elif manifest["lora"] != subject.lora:
                reason = "it was made with another LoRA adapter"
            else:
                self._verified[file] = changed
                # The order of removal is by last use.
                os.utime(entry)
                return SavedPrompt(file, size, float(manifest["prefill_ms"]), manifest["is_proven"] is True)
        except (OSError, ValueError, TypeError, KeyError):
            reason = "its manifest cannot be read"
        remove_entry(entry)
        return Dropped(reason)

    def draft(self, subject: CacheSubject, ids: Sequence[int]) -> Path:
        """Return a path to write to, or raise an OSError.

        Call ``keep`` on success, and ``remove_entry`` with its folder always.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Unfinished files of processes that no longer run.
        for path in self.folder.iterdir():
            if not path.suffix[1:].isdigit() or Path(f"/proc/{path.suffix[1:]}").exists():
                continue
            if path.is_dir():
                remove_entry(path)
            else:
                path.unlink(missing_ok=True)
        if shutil.disk_usage(self.folder).free < len(ids) * _MOST_TOKEN_BYTES + _MARGIN_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        aside = self.entry(subject, ids).with_suffix(f".{os.getpid()}")
        remove_entry(aside)
        aside.mkdir(mode=0o700)
        return aside / _DATA

    def keep(self, draft: Path, subject: CacheSubject, ids: Sequence[int], prefill_ms: float) -> SavedPrompt | Dropped:
        """Make ``draft`` the entry of a prefix, delete the oldest above the limit; an OSError if it is not stored."""
        size = draft.stat().st_size
        stored_tokens = tokens_in_file(draft)
        # ``PromptCaches.save`` evaluates one token more where the prefix is cached already.
        if stored_tokens is not None and (stored_tokens[: len(ids)] != tuple(ids) or len(stored_tokens) > len(ids) + 1):
            return Dropped("the runtime wrote other tokens into it")
        if size > self.limit_mb * _MB:
            return Dropped(f"{size / _MB:.0f} MB are more than prompt_cache_mb allows")
        if shutil.disk_usage(self.folder).free < _MARGIN_BYTES:
            return Dropped("the disk is full")
        manifest = {
            "format": FORMAT,
            **asdict(subject),
            "tokens": len(ids),
            "ids": _ids_digest(ids),
            "bytes": size,
            "sha256": _file_digest(draft),
            "prefill_ms": prefill_ms,
            # What names its tokens need not be tried with one of them.
            "is_proven": stored_tokens is not None,
        }
        write_json(draft.with_name(_MANIFEST), manifest)
        entry = self.entry(subject, ids)
        remove_entry(entry)
        draft.parent.rename(entry)
        self._verified[entry / _DATA] = (entry / _DATA).stat().st_mtime_ns
        kept: list[tuple[int, int, Path]] = []
        for path in self.folder.iterdir():
            # Another process may remove one meanwhile.
            with suppress(OSError):
                if path.is_dir() and not path.suffix:
                    file = path / _DATA
                    kept.append((path.stat().st_mtime_ns, file.stat().st_size if file.is_file() else 0, path))
        total = sum(file_size for _, file_size, _ in kept)
        for _, file_size, path in sorted(kept):
            if total > self.limit_mb * _MB and path != entry:
                total -= file_size
                remove_entry(path)
        return SavedPrompt(entry / _DATA, size, prefill_ms, is_proven=stored_tokens is not None)

    def prove(self, saved: SavedPrompt) -> None:
        """Record that loading the prompt saved time."""
        path = saved.file.with_name(_MANIFEST)
        with suppress(OSError, ValueError, TypeError):
            write_json(path, {**_read_json(path), "is_proven": True})

    def refusal(self, subject: CacheSubject) -> str:
        """Return why prompt caches are disabled for this model and runtime; empty if they are not."""
        pair, refusals = self._read_refusals(subject)
        return refusals.get(pair, "")

    def refuse(self, subject: CacheSubject, reason: str) -> None:
        """Disable prompt caches for this model and runtime."""
        pair, refusals = self._read_refusals(subject)
        latest = dict(list({**refusals, pair: reason}.items())[-_MAX_REFUSALS:])
        with suppress(OSError):  # it is tried again at the next start
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_json(self.folder / _REFUSALS, latest)

    def _read_refusals(self, subject: CacheSubject) -> tuple[str, dict[str, str]]:
        """Return the key of a model and runtime, and the reasons by such keys."""
        pair = hashlib.sha256(f"{subject.model}\0{subject.library}".encode()).hexdigest()[:_KEY_CHARS]
        try:
            refusals = _read_json(self.folder / _REFUSALS)
        except (OSError, ValueError, TypeError):
            refusals = {}
        return pair, {key: reason for key, reason in refusals.items() if isinstance(reason, str)}

    def entry(self, subject: CacheSubject, ids: Sequence[int]) -> Path:
        """Return the folder of a prefix, which exists if it was saved; ``find`` may still find it to be unusable."""
        name = f"{subject.model_path}\0{subject.lora}\0{subject.tenant}\0{_ids_digest(ids)}"
        return self.folder / hashlib.sha256(name.encode()).hexdigest()[:_KEY_CHARS]


def tokens_in_file(path: Path) -> tuple[int, ...] | None:
    """Return the token ids that a prompt-cache file names in its header; None if it has another layout.

    Reported of 1.2.3 and 1.3.1: the words 0 and 8, the number of tokens, their ids, then the records of the KV cache.
    """
    try:
        with path.open("rb") as file:
            words = array("I", file.read(12))
            if len(words) != 3 or words[0] != 0 or words[1] != 8 or not 0 < words[2] <= path.stat().st_size // 4:
                return None
            ids = array("i", file.read(4 * words[2]))
    except (OSError, ValueError):
        return None
    # Negative ids are pieces of pictures.
    return tuple(ids) if len(ids) == words[2] else None


def _ids_digest(ids: Sequence[int]) -> str:
    return hashlib.sha256(array("i", ids).tobytes()).hexdigest()


def _file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_MB):
            digest.update(chunk)
    return digest.hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    content: object = json.loads(path.read_text("utf-8"))
    if not isinstance(content, dict):
        raise TypeError("no object")
    return cast("dict[str, Any]", content)


def remove_entry(entry: Path) -> None:
    """Remove the folder of an entry or of a draft; the manifest first, so that a crash leaves no valid entry."""
    with suppress(OSError):
        (entry / _MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(entry, ignore_errors=True)


# Shorter prefixes are evaluated faster than a question is typed.
WORTHWHILE_TOKENS = 32
# Shorter prefills prove nothing on runtimes that do not count tokens (1.2.0).
_TELLING_MS = 200.0
# A file from a slow card that takes so much longer to read than its prompt to evaluate is not read again.
_SLOW_BY_MS = 1000.0


class PromptCaches:
    """Saved prompts of one engine; ``say`` gets one line for each that is loaded, saved or dropped.

    With ``refuses_for_good`` a model and runtime that fail are not tried again by later processes either.
    """

    def __init__(
        self,
        engine: Engine,
        files: PromptFiles,
        subject: CacheSubject,
        say: Callable[[str], None],
        owner: str | None = None,
        *,
        refuses_for_good: bool = True,
    ) -> None:
        self._engine = engine
        self._files = files
        self.subject = subject
        self._say = say
        self._owner = owner
        self._refuses_for_good = refuses_for_good
        self.is_refused = bool(files.refusal(subject))

    def has(self, head: Sequence[int]) -> bool:
        """Return True if ``load`` has a file to try."""
        return not self.is_refused and self._files.entry(self.subject, head).is_dir()

    async def load(self, head: Sequence[int]) -> bool:
        """Fill the KV cache with the saved prompt ``head``; return False without a usable one."""
        began = time.monotonic()
        saved = None if self.is_refused else await to_thread.run_sync(self._files.find, self.subject, head)
        if isinstance(saved, Dropped):
            self._say(f"[NPU: the prompt cache is dropped: {saved.reason}]")
        if not isinstance(saved, SavedPrompt):
            return False
        try:
            await self._engine.load_prompt_cache(saved.file, tokens=head, owner=self._owner)
        except (InputRefusedError, RunRejectedError, WorkerDiedError) as error:
            if isinstance(error, WorkerDiedError) or self._engine.is_ready:
                self._give_up(saved.file, str(error))
            return False
        took_ms = (time.monotonic() - began) * 1000
        if not saved.is_proven:
            # One token more, because some releases evaluate a fully cached prompt again.
            stats = await self._engine.prefill([*head, head[-1]], GenerationOptions(1, owner=self._owner))
            if stats.prefilled_tokens is None:
                saves_time = saved.prefill_ms < _TELLING_MS or stats.prefill_ms < saved.prefill_ms / 2
            else:
                saves_time = stats.prefilled_tokens < len(head) / 2
            if not saves_time:
                await self._engine.release_prompt_cache()
                self._give_up(saved.file, "loading it saved nothing")
                # The trial has evaluated the head.
                return True
            await to_thread.run_sync(self._files.prove, saved)
        if took_ms > saved.prefill_ms + _SLOW_BY_MS:
            self._give_up(
                saved.file, f"reading a file took {took_ms / 1000:.1f} s, evaluating {saved.prefill_ms / 1000:.1f} s"
            )
            return True
        self._say(f"[NPU: {len(head)} tokens of system text and tools are loaded from a file]")
        return True

    async def save(self, head: Sequence[int]) -> bool:
        """Evaluate ``head``, or take it from the KV cache, and store the file that the runtime writes.

        Return False if no file exists in the end.
        """
        try:
            draft = self._files.draft(self.subject, head)
        except OSError as error:
            self._say(f"[NPU: no prompt can be kept in {self._files.folder}: {error.strerror}]")
            return False
        is_cached = common_prefix(head, self._engine.cached_tokens) == len(head)
        try:
            options = GenerationOptions(1, save_prompt_cache=str(draft), owner=self._owner)
            # One token more, because some releases evaluate a fully cached prompt again.
            stats = await self._engine.prefill([*head, head[-1]] if is_cached else head, options)
            if not draft.is_file():
                self._give_up(draft, "the runtime wrote no file")
                return False
            saved = await to_thread.run_sync(self._files.keep, draft, self.subject, head, stats.prefill_ms)
        except OSError as error:
            self._say(f"[NPU: the prompt cache was not kept: {error.strerror}]")
            return False
        finally:
            remove_entry(draft.parent)
        if isinstance(saved, Dropped):
            self._say(f"[NPU: the prompt cache was not kept: {saved.reason}]")
            return False
        size = f"{saved.size_bytes / _MB:.1f} MB"
        self._say(f"[NPU: {len(head)} tokens of system text and tools are kept in a file, {size}]")
        return True

    def _give_up(self, file: Path, reason: str) -> None:
        """Remove a file, and try none of this model and runtime again."""
        remove_entry(file.parent)
        self.is_refused = True
        if self._refuses_for_good:
            self._files.refuse(self.subject, reason)
        self._say(f"[NPU: prompt caches are not tried again with this model and runtime: {reason}]")


@dataclass(eq=False)
class CacheWarmUp:
    """Put the common prefix of all prompts into the KV cache, once."""

    _engine: Engine
    caches: PromptCaches | None
    evaluates: bool = True  # without caches, the prefix is evaluated
    _postponable: anyio.CancelScope | None = None
    _is_interrupted: bool = False

    def give_way(self) -> None:
        """Give up the part of the warm-up that can be done later, because a run waits for the NPU."""
        self._is_interrupted = True
        if self._postponable is not None:
            self._postponable.cancel()

    async def renew(self, head: Sequence[int]) -> None:
        """Save another head than that of the start, for the next start; fails with the errors of ``Engine.prefill``."""
        caches = self.caches
        if caches is None or len(head) < WORTHWHILE_TOKENS or caches.is_refused or caches.has(head):
            return
        # Before 1.3.0 the run would generate until the model ends by itself.
        if self._engine.limits_each_run and self._engine.is_idle:
            await caches.save(head)

    async def run(self, head: Sequence[int], *, saves: bool = True) -> None:
        """Load the head, or evaluate and save it, or evaluate it; fails with the errors of ``Engine.prefill``.

        With ``saves`` False it is not saved, because prompts will soon begin otherwise.

        It is not only evaluated while a question waits, whose own prefill takes as long. A run that saves is made
        anyway, because it happens once; but before 1.3.0 it generates until the model ends by itself, so it is made
        only while no run waits.
        """
        if len(head) < WORTHWHILE_TOKENS:
            return
        caches = self.caches
        if caches is not None:
            if await caches.load(head):
                return
            if saves and not caches.is_refused and self._engine.limits_each_run:
                await caches.save(head)
                return
        if self._is_interrupted:
            return
        if saves and caches is not None and not caches.is_refused:
            with anyio.CancelScope() as self._postponable:
                await caches.save(head)
        elif self.evaluates and self._engine.may_reuse_prefix:
            # Only the service's own prompt is evaluated in advance.
            await self._engine.prefill(head, GenerationOptions(1, owner=None))


# A prefix of fewer tokens is evaluated about as fast as its file is written and read.
# The list of the tools that 'setup' configures has about 900.
EXCHANGED_TOKENS = 256
# After this many prefixes that were saved and not loaded, only those that come again are saved.
_MOST_UNUSED = 3
# Runs that begin all the time are waited for no longer, seconds.
_LONGEST_WAIT_S = 120.0
_REMEMBERED = 64


@dataclass(eq=False)
class PrefixExchange:
    """Keep the long prefixes of several programs, of which the one KV cache holds one.

    Programs ask small questions between their sessions, for a title or for tags. Each would replace system text and
    tools in the KV cache, so these are saved before, and loaded for the next prompt that begins with them. It needs a
    runtime that ends the run that saves (1.3.0 on). A file that cannot be written or used costs time only.
    """

    _engine: Engine
    _model_file: Path
    _files: PromptFiles
    _subject: CacheSubject | None = None
    _caches: dict[str, PromptCaches] = field(default_factory=dict[str, PromptCaches])
    # The prefix of the latest prompt, which the KV cache may hold, and its owner.
    _resident: tuple[Sequence[int], str] = ((), "")
    _unused: int = 0
    # Digests of prefixes that were replaced without being saved, the latest last.
    _replaced: list[str] = field(default_factory=list[str])
    _limit_tokens: float = math.inf  # length of the shortest prefix that could not be saved
    _lock: anyio.Lock = field(default_factory=anyio.Lock)

    async def exchange(self, prompt: Sequence[int], prefix_tokens: int, owner: str) -> None:
        """Save the prefix that a prompt is about to replace, and load the prompt's own if it is saved.

        Where one of them is to be done, runs that go on or wait are waited for, as the prompt's own run would.
        """
        engine = self._engine
        prefix = prompt[:prefix_tokens] if prefix_tokens >= EXCHANGED_TOKENS else ()
        if engine.limits_each_run and engine.may_reuse_prefix and (self._replaces(prompt) or self._lacks(prefix)):
            async with self._lock:
                with anyio.move_on_after(_LONGEST_WAIT_S):
                    await engine.idle()
                if engine.is_idle:
                    try:
                        await self._save_resident(prompt)
                        if self._lacks(prefix) and (caches := await self._caches_of(owner)).has(prefix):
                            if engine.holds_pictures:
                                # The next run would empty the cache.
                                await engine.clear_cache()
                            if await caches.load(prefix):
                                self._unused = 0
                    except (RkllmMcpError, OSError) as error:
                        logger.info("prefixes are not kept any more: %s", error)
                        self._limit_tokens = 0
        self._resident = (prefix, owner)

    def _replaces(self, prompt: Sequence[int]) -> bool:
        """Return True if a run of this prompt replaces a long part of the latest prefix in the KV cache."""
        resident, _ = self._resident
        is_cached = common_prefix(resident, self._engine.cached_tokens) == len(resident)
        return is_cached and len(resident) - common_prefix(resident, prompt) >= EXCHANGED_TOKENS

    def _lacks(self, prefix: Sequence[int]) -> bool:
        """Return True if a long part of this prefix is not in the KV cache."""
        return len(prefix) - common_prefix(prefix, self._engine.cached_tokens) >= EXCHANGED_TOKENS

    async def _save_resident(self, prompt: Sequence[int]) -> None:
        resident, owner = self._resident
        if not self._replaces(prompt) or len(resident) >= self._limit_tokens:
            return
        available = available_bytes()
        if available is not None and available < len(resident) * _MOST_TOKEN_BYTES:
            # It is unknown if the runtime makes a copy of what it writes.
            return
        caches = await self._caches_of(owner)
        if caches.is_refused or caches.has(resident):
            return
        digest = _ids_digest(resident)
        if self._unused >= _MOST_UNUSED and digest not in self._replaced:
            # It is new, and the latest ones were saved in vain: each may hold the time.
            self._replaced = [*self._replaced, digest][-_REMEMBERED:]
            return
        if await caches.save(resident):
            self._unused += 1
        else:
            self._limit_tokens = len(resident)

    async def _caches_of(self, owner: str) -> PromptCaches:
        if (caches := self._caches.get(owner)) is not None:
            return caches
        if self._subject is None:
            engine = self._engine
            identity = (
                self._model_file,
                find_library(engine.supervisor.library),
                engine.version,
                engine.context_tokens,
            )
            self._subject = await to_thread.run_sync(subject_of, *identity)
        subject = replace(self._subject, tenant=owner)
        caches = PromptCaches(self._engine, self._files, subject, logger.info, owner, refuses_for_good=False)
        return self._caches.setdefault(owner, caches)
