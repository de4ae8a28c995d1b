"""A file on disk becomes what can be known about it without loading it: version, exports, machine, fingerprints.

A librkllmrt.so has no version function and no versioned name, but it carries one sentence, ``RKLLM SDK (version: 1.3.0
| target: Linux | build: …)``. Other version texts in it (``rknn llm lib version``, ``librknnrt version``) name the NPU
layer beneath and are never read. Nothing here executes anything of the file, so it is safe on any file.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from rkllm_mcp.errors import RuntimeUnusableError
from rkllm_mcp.runtime.abi import FAMILIES, choose_abi
from rkllm_mcp.runtime.abi.releases import GENERATIONS, OFFICIAL_BUILDS, OFFICIAL_DIGESTS

_MARKER = re.compile(
    rb"RKLLM SDK \(version: (?P<version>\d+\.\d+\.\d+(?:b\d+)?)"
    rb"(?: \| target: (?P<target>[^|)\0]{1,64}))?(?: ?\| build: (?P<build>[^)\0]{1,128}))?"
)

_PUBLIC_FUNCTIONS: frozenset[str] = frozenset(name for abi in FAMILIES for name in abi.signatures)

# ELF e_machine values of the machines this project can meet
_MACHINES = {3: "i686", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_CLASS_BITS = {1: 32, 2: 64}
_ELF_BIG_ENDIAN = 2
_ELF_MACHINE_END = 20


@dataclass(frozen=True)
class LibraryFile:
    """What a file says about itself.

    Args:
        path: the file, symbolic links resolved.
        size_bytes: its size.
        version: the runtime release of its marker; None without one.
        build: the marker's build text, such as ``27637c95 2025-05-02 17:46:07``.
        target: the marker's target, such as ``Linux``.
        machine: the machine it was built for, such as ``aarch64``; None when it is no ELF file.
        runs_here: whether this machine and this Python can load it.
        exports: the public RKLLM functions whose names are in it.
        is_emulator: it is this project's emulated runtime.
    """

    path: Path
    size_bytes: int
    version: str | None
    build: str | None
    target: str | None
    machine: str | None
    runs_here: bool
    exports: frozenset[str]
    is_emulator: bool

    @property
    def family(self) -> str | None:
        """The name of the interface family that its version is verified to have."""
        abi = choose_abi(self.version) if self.version else None
        return abi.name if abi else None

    @property
    def generation(self) -> str:
        """What its exports alone tell: from which release to which it may be."""
        return next((meaning for name, meaning in GENERATIONS.items() if name in self.exports), "not an RKLLM runtime")


@dataclass(frozen=True)
class Fingerprint:
    """A file's exact identity; ``official_release`` names the release whose published library it is, if any."""

    sha256: str
    git_blob: str
    official_release: str | None


def read_library_file(path: Path) -> LibraryFile:
    """Look into a file without loading it.

    Raises:
        RuntimeUnusableError: the file cannot be read or is empty.
    """
    real = path.resolve()
    try:
        with real.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _describe(real, content)
    except OSError as error:
        raise _unreadable(path, error) from None
    except ValueError:  # mmap of an empty file
        raise RuntimeUnusableError(f"{path} is empty.", "Copy librkllmrt.so again.") from None


def fingerprint(path: Path) -> Fingerprint:
    """Hash a file: SHA-256, and the id git gives it, by which the official releases are known.

    Raises:
        RuntimeUnusableError: the file cannot be read.
    """
    import hashlib  # only doctor asks; the worker, which reads library files too, should stay small

    try:
        content = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from None
    blob = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
    blob.update(content)
    sha256, git_blob = hashlib.sha256(content).hexdigest(), blob.hexdigest()
    return Fingerprint(sha256, git_blob, OFFICIAL_BUILDS.get(git_blob) or OFFICIAL_DIGESTS.get(sha256))


def _unreadable(path: Path, error: OSError) -> RuntimeUnusableError:
    return RuntimeUnusableError(f"{path} cannot be read: {error.strerror}.", "Check the path and its rights.")


def _describe(path: Path, content: mmap.mmap) -> LibraryFile:
    marker = _MARKER.search(content)
    machine, bits = _elf_machine(content[:_ELF_MACHINE_END])
    build = _text(marker, "build")
    return LibraryFile(
        path=path,
        size_bytes=len(content),
        version=_text(marker, "version"),
        build=build,
        target=_text(marker, "target"),
        machine=machine,
        runs_here=machine == os.uname().machine and bits == struct.calcsize("P") * 8,
        # A name in a string table stands between two NULs; a sentence that mentions it does not.
        exports=frozenset(name for name in _PUBLIC_FUNCTIONS if content.find(b"\0%s\0" % name.encode()) >= 0),
        is_emulator=build is not None and "emulat" in build.lower(),
    )


def _text(marker: re.Match[bytes] | None, group: str) -> str | None:
    value = marker.group(group) if marker else None
    return value.decode("ascii", "replace").strip() if value else None


def _elf_machine(head: bytes) -> tuple[str | None, int | None]:
    """The machine name and pointer width of an ELF header, None for anything else."""
    if len(head) < _ELF_MACHINE_END or head[:4] != b"\x7fELF":
        return None, None
    number = int.from_bytes(head[18:_ELF_MACHINE_END], "big" if head[5] == _ELF_BIG_ENDIAN else "little")
    return _MACHINES.get(number, f"machine {number}"), _CLASS_BITS.get(head[4])
