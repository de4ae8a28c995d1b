"""What a file says about itself is read without loading it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from rkllm_mcp.errors import RuntimeUnusableError
from rkllm_mcp.runtime.abi import OFFICIAL_BUILDS, OFFICIAL_DIGESTS, choose_abi
from rkllm_mcp.runtime.library import fingerprint, read_library_file

MARKER = b"\0RKLLM SDK (version: 1.2.1b1 | target: Linux | build: 27637c95 2025-05-02 17:46:07)\0"
AARCH64 = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\xb7\x00"


def file_of(folder: Path, content: bytes) -> Path:
    path = folder / "librkllmrt.so"
    path.write_bytes(content)
    return path


def test_a_library_for_another_machine_is_described_all_the_same(tmp_path: Path) -> None:
    file = read_library_file(file_of(tmp_path, AARCH64 + MARKER + b"\0rkllm_set_chat_template\0rkllm_init\0"))

    assert (file.version, file.build) == ("1.2.1b1", "27637c95 2025-05-02 17:46:07")
    assert (file.machine, file.is_emulator, choose_abi("1.2.1b1")) == ("aarch64", False, None)
    assert file.runs_here == (os.uname().machine == "aarch64")
    assert file.exports == {"rkllm_set_chat_template", "rkllm_init"}
    assert file.generation == "1.2.0 or 1.2.1b1"


def test_the_versions_of_the_npu_layer_are_not_taken_for_the_runtimes(tmp_path: Path) -> None:
    content = AARCH64 + b"\0rknn llm lib version: 2.3.3b0 (f123)\0librknnrt version: 2.3.0\0"
    assert read_library_file(file_of(tmp_path, content)).version is None


@pytest.mark.parametrize(
    ("names", "generation"),
    [
        (b"\0rkllm_init\0rkllm_abort\0rkllm_load_lora\0", "1.1"),
        (b"\0rkllm_init\0rkllm_abort\0", "1.0.1 or 1.0.2"),
        (b"\0rkllm_init\0", "1.0.0"),
        (b"call rkllm_init first", "not an RKLLM runtime"),
    ],
)
def test_exports_alone_tell_the_generation(tmp_path: Path, names: bytes, generation: str) -> None:
    assert read_library_file(file_of(tmp_path, AARCH64 + names)).generation == generation


def test_an_empty_a_missing_and_a_forbidden_file_are_errors_that_say_so(tmp_path: Path) -> None:
    with pytest.raises(RuntimeUnusableError, match=r"is empty\. Copy"):
        read_library_file(file_of(tmp_path, b""))
    with pytest.raises(RuntimeUnusableError, match=r"missing\.so cannot be read: No such file"):
        read_library_file(tmp_path / "missing.so")
    with pytest.raises(RuntimeUnusableError, match=r"cannot be read: Is a directory"):
        read_library_file(tmp_path)
    with pytest.raises(RuntimeUnusableError, match=r"cannot be read: No such file"):
        fingerprint(tmp_path / "missing.so")


def test_a_fingerprint_is_sha256_and_the_id_that_git_gives(tmp_path: Path) -> None:
    found = fingerprint(file_of(tmp_path, b"hello\n"))
    # `printf 'hello\n' | git hash-object --stdin`
    assert found.git_blob == "ce013625030ba8dba906f756967f9e9ca394464a"
    assert found.sha256 == hashlib.sha256(b"hello\n").hexdigest()
    assert found.official_release is None


def test_the_official_builds_are_whole_ids_of_known_releases() -> None:
    assert ({len(blob) for blob in OFFICIAL_BUILDS}, {len(digest) for digest in OFFICIAL_DIGESTS}) == ({40}, {64})
    assert set(OFFICIAL_BUILDS.values()) >= {"1.1.4", "1.2.0", "1.2.1b1", "1.2.1", "1.2.2", "1.2.3", "1.3.0"}
    assert set(OFFICIAL_DIGESTS.values()) == {"1.3.1"}
