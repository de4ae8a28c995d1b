"""Evaluated prompts on disk: believed only when everything agrees, never half there, never more than allowed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rkllm_mcp.errors import RuntimeUnusableError
from rkllm_mcp.runtime.prompt_cache import (
    CacheSubject,
    Dropped,
    PromptFiles,
    SavedPrompt,
    prompts_folder,
    remove_entry,
    subject_of,
)
from tests.support.emulator import libraries
from tests.support.shared import REPOSITORY

SUBJECT = CacheSubject("/models/a.rkllm", "aa", 1, "bb", "1.3.0", 4096)
HEAD = [1, 2, 3]
MB = 1 << 20


def saved(
    files: PromptFiles, *, ids: list[int] = HEAD, content: bytes = b"kv", subject: CacheSubject = SUBJECT
) -> Path:
    draft = files.draft(subject, ids)
    draft.write_bytes(content)
    kept = files.keep(draft, subject, ids, 500.0)
    assert isinstance(kept, SavedPrompt)
    return kept.file


def in_the_folder(files: PromptFiles) -> list[str]:
    return sorted(path.name for path in files.folder.iterdir())


@pytest.fixture
def files(tmp_path: Path) -> PromptFiles:
    return PromptFiles(tmp_path / "prompts", limit_mb=8)


def test_a_saved_prefix_is_found_and_readable_by_its_owner_only(files: PromptFiles) -> None:
    assert files.find(SUBJECT, HEAD) is None
    file = saved(files)
    assert files.find(SUBJECT, HEAD) == SavedPrompt(file, 2, 500.0, is_proven=False)
    assert file.read_bytes() == b"kv"
    assert (files.folder.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o700, 0o700)
    assert files.find(SUBJECT, [1, 2]) is None


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (replace(SUBJECT, model="cc"), "the model file is another one now"),
        (replace(SUBJECT, model_mtime_ns=2), "the model file is another one now"),
        (replace(SUBJECT, library="dd"), "the runtime is another one now (1.3.0, it was 1.3.0)"),
        (replace(SUBJECT, version="1.2.3"), "the runtime is another one now (1.2.3, it was 1.3.0)"),
        (replace(SUBJECT, context_tokens=8192), "the context window is 8192 tokens now, it was 4096"),
    ],
)
def test_what_belongs_to_something_else_is_dropped_with_the_reason(
    files: PromptFiles, now: CacheSubject, reason: str
) -> None:
    saved(files)
    assert files.find(now, HEAD) == Dropped(reason)
    assert files.find(SUBJECT, HEAD) is None


def test_an_adapter_has_its_own_prompts(files: PromptFiles) -> None:
    saved(files)
    assert files.find(replace(SUBJECT, lora="legal"), HEAD) is None
    assert files.find(SUBJECT, HEAD) is not None


def _change_manifest(**changes: Any) -> Callable[[Path], None]:
    def change(entry: Path) -> None:
        path = entry / "manifest.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (lambda entry: (entry / "prompt.bin").write_bytes(b"k"), "its file has 1 bytes instead of 2"),
    "gone": (lambda entry: (entry / "prompt.bin").unlink(), "its file has 0 bytes instead of 2"),
    "other bytes": (lambda entry: (entry / "prompt.bin").write_bytes(b"vk"), "its file is damaged"),
    "no manifest": (lambda entry: (entry / "manifest.json").unlink(), "its manifest cannot be read"),
    "half a manifest": (lambda entry: (entry / "manifest.json").write_text('{"format'), "its manifest cannot be read"),
    "no object": (lambda entry: (entry / "manifest.json").write_text("[]"), "its manifest cannot be read"),
    "no text": (lambda entry: (entry / "manifest.json").write_bytes(b"\xff"), "its manifest cannot be read"),
    "another format": (_change_manifest(format=2), "it was saved by another version of this program"),
    "another prefix": (_change_manifest(ids="x"), "it holds another prefix"),
    "a wrong type": (_change_manifest(prefill_ms=[]), "its manifest cannot be read"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_dropped_and_gone(files: PromptFiles, damage: str) -> None:
    damaged, reason = DAMAGE[damage]
    damaged(saved(files).parent)
    assert files.find(SUBJECT, HEAD) == Dropped(reason)
    assert in_the_folder(files) == []


def test_a_draft_that_nothing_became_of_leaves_nothing(files: PromptFiles) -> None:
    remove_entry(files.draft(SUBJECT, HEAD).parent)
    assert in_the_folder(files) == []
    files.draft(SUBJECT, HEAD).write_bytes(b"half")
    assert files.find(SUBJECT, HEAD) is None


def test_what_a_process_left_when_it_was_killed_is_swept_and_never_believed(files: PromptFiles) -> None:
    program = (
        "import os, sys\nfrom pathlib import Path\n"
        "from rkllm_mcp.runtime.prompt_cache import CacheSubject, PromptFiles\n"
        "subject = CacheSubject('/models/a.rkllm', 'aa', 1, 'bb', '1.3.0', 4096)\n"
        "draft = PromptFiles(Path(sys.argv[1]), 8).draft(subject, [1, 2, 3])\n"
        "draft.write_bytes(b'kv')\nos.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(files.folder)], check=False, cwd=REPOSITORY, timeout=60)
    assert len(in_the_folder(files)) == 1
    (files.folder / "refusals.4194305").write_text("{")  # no process has this number
    assert files.find(SUBJECT, HEAD) is None
    file = saved(files)
    assert in_the_folder(files) == [file.parent.name]


def test_a_prefix_that_is_saved_again_replaces_what_there_was(files: PromptFiles) -> None:
    saved(files)
    assert saved(files, content=b"newer").read_bytes() == b"newer"
    assert len(in_the_folder(files)) == 1


def test_the_one_used_longest_ago_makes_room(files: PromptFiles) -> None:
    paths = [saved(files, ids=[number], content=b"x" * 3 * MB) for number in (1, 2)]
    for age, path in enumerate(reversed(paths)):
        os.utime(path.parent, ns=(age, age))  # the first was used last
    assert isinstance(files.find(SUBJECT, [1]), SavedPrompt)
    saved(files, ids=[3], content=b"x" * 3 * MB)
    there = [number for number in (1, 2, 3) if isinstance(files.find(SUBJECT, [number]), SavedPrompt)]
    assert there == [1, 3]


def test_a_file_larger_than_the_limit_of_all_is_not_stored(files: PromptFiles) -> None:
    saved(files, ids=[1])
    draft = files.draft(SUBJECT, HEAD)
    draft.write_bytes(b"x" * 9 * MB)
    assert files.keep(draft, SUBJECT, HEAD, 1.0) == Dropped("9 MB are more than prompt_cache_mb allows")
    remove_entry(draft.parent)
    assert files.find(SUBJECT, HEAD) is None
    assert isinstance(files.find(SUBJECT, [1]), SavedPrompt)


def test_a_refusal_holds_for_the_model_and_the_runtime_and_the_oldest_are_forgotten(files: PromptFiles) -> None:
    assert files.refusal(SUBJECT) == ""
    files.refuse(SUBJECT, "no")
    assert files.refusal(replace(SUBJECT, context_tokens=1)) == "no"
    assert files.refusal(replace(SUBJECT, library="other")) == files.refusal(replace(SUBJECT, model="other")) == ""
    for number in range(64):
        files.refuse(replace(SUBJECT, model=str(number)), "no")
    assert files.refusal(SUBJECT) == ""
    (files.folder / "refusals.json").write_text("{")
    assert files.refusal(replace(SUBJECT, model="63")) == ""


def test_a_subject_knows_the_bytes_of_model_and_library(tmp_path: Path) -> None:
    model = tmp_path / "m.rkllm"
    model.write_bytes(b"weights")
    library, other = (libraries()[version] for version in ("1.3.0", "1.2.3"))
    subject = subject_of(model, library, "1.3.0", 4096)
    assert subject == subject_of(model, library, "1.3.0", 4096)
    assert subject.library != subject_of(model, other, "1.3.0", 4096).library
    model.write_bytes(b"wEights")
    os.utime(model, ns=(subject.model_mtime_ns, subject.model_mtime_ns))
    assert subject.model != subject_of(model, library, "1.3.0", 4096).model
    with pytest.raises(RuntimeUnusableError, match=r"none\.rkllm cannot be read"):
        subject_of(tmp_path / "none.rkllm", library, "1.3.0", 4096)


def test_the_folder_is_the_users_cache() -> None:
    assert prompts_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/rkllm-mcp/prompts")
    assert prompts_folder({"HOME": "/h"}) == Path("/h/.cache/rkllm-mcp/prompts")
