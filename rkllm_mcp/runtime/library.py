"""Find, identify, load and cross-check librkllmrt.so, and type its functions.

Loading with the wrong family usually succeeds and dies at the first run. So the version comes first: the marker of the
file decides, its exports and default parameters must agree, and an unverified release is refused with advice. An
explicit ABI overrides the marker and the cross-checks, never a missing function.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rkllm_base.folders import user_folder
from rkllm_mcp.errors import AbiMismatchError, LibraryNotFoundError, RuntimeUnusableError, UnknownRuntimeError
from rkllm_mcp.runtime.abi import (
    FAMILIES,
    GENERATIONS,
    NEWEST_VERSION,
    OFFICIAL_BUILDS,
    OFFICIAL_DIGESTS,
    RECOMMENDED_VERSION,
    UNSUPPORTED_VERSIONS,
    WORKING_VERSIONS,
    choose_abi,
)
from rkllm_mcp.runtime.abi.common import Abi

_MARKER = re.compile(
    rb"RKLLM SDK \(version: (?P<version>\d+\.\d+\.\d+(?:b\d+)?)"
    rb"(?: \| target: [^|)\0]{1,64})?(?: ?\| build: (?P<build>[^)\0]{1,128}))?"
)

_PUBLIC_FUNCTIONS: frozenset[str] = frozenset(name for abi in FAMILIES for name in abi.types.functions)

# ELF e_machine values of the machines this project can meet
_MACHINES = {3: "i686", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_CLASS_BITS = {1: 32, 2: 64}
_ELF_BIG_ENDIAN = 2
_ELF_MACHINE_END = 20


@dataclass(frozen=True)
class LibraryFile:
    """Description of a library file, read without loading it."""

    path: Path  # the file, symbolic links resolved
    version: str | None  # runtime release of its marker; None without one
    build: str | None  # the marker's build text, such as ``27637c95 2025-05-02 17:46:07``
    machine: str | None  # machine it was built for, such as ``aarch64``; None if it is not an ELF file
    runs_here: bool  # True if this machine and this Python can load it
    exports: frozenset[str]  # public RKLLM functions named in it
    generation: str  # range of releases that its exports indicate
    is_emulator: bool  # True for this project's emulated runtime


@dataclass(frozen=True)
class Fingerprint:
    """A file's exact identity; ``official_release`` names the release of a published library, if it is one."""

    sha256: str
    git_blob: str
    official_release: str | None


def read_library_file(path: Path) -> LibraryFile:
    """Describe a file without loading it; a RuntimeUnusableError if it cannot be read or is empty."""
    real = path.resolve()
    try:
        with real.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            marker, head = _MARKER.search(content), content[:_ELF_MACHINE_END]
            marked: dict[str, bytes | None] = marker.groupdict() if marker else {}
            # Names in a string table are enclosed in NULs, unlike names in messages.
            exports = frozenset(name for name in _PUBLIC_FUNCTIONS if content.find(b"\0%s\0" % name.encode()) >= 0)
    except OSError as error:
        raise _unreadable(path, error) from None
    except ValueError:  # mmap of an empty file
        raise RuntimeUnusableError(f"{path} is empty.", "Copy librkllmrt.so again.") from None
    machine, bits = None, None
    if len(head) >= _ELF_MACHINE_END and head[:4] == b"\x7fELF":
        number = int.from_bytes(head[18:_ELF_MACHINE_END], "big" if head[5] == _ELF_BIG_ENDIAN else "little")
        machine, bits = _MACHINES.get(number, f"machine {number}"), _CLASS_BITS.get(head[4])
    texts = {name: value.decode("ascii", "replace").strip() for name, value in marked.items() if value}
    build = texts.get("build")
    return LibraryFile(
        path=real,
        version=texts.get("version"),
        build=build,
        machine=machine,
        runs_here=machine == os.uname().machine and bits == struct.calcsize("P") * 8,
        exports=exports,
        generation=next((meaning for name, meaning in GENERATIONS.items() if name in exports), "not an RKLLM runtime"),
        is_emulator=build is not None and "emulat" in build.lower(),
    )


def fingerprint(path: Path) -> Fingerprint:
    """Return the hashes of a file, by which official releases are known; a RuntimeUnusableError if it is unreadable."""
    import hashlib  # imported here to keep the worker small

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


LIBRARY_NAME = "librkllmrt.so"
AUTOMATIC = "auto"
EMULATOR = "emulator"

USUAL_FOLDERS = ("~/.local/lib", "/usr/lib", "/usr/local/lib", "/usr/lib/aarch64-linux-gnu", "/lib")
# Below the home folder: a clone of Rockchip's repository, and of rkllama.
_COPIES = ("rknn-llm/rkllm-runtime/Linux/librkllm_api/aarch64", "rkllama/src/rkllama/lib")
# ldconfig only prints a cache; a machine on which that takes longer has other troubles
_LDCONFIG_TIMEOUT_S = 5.0

_OVERRIDE = 'set abi = "{0}" under [runtime] or RKLLM_MCP_RUNTIME__ABI={0}'
_WORKING = f"Runtimes that work are {', '.join(WORKING_VERSIONS)}"


@dataclass(frozen=True)
class Library:
    """A loaded library with typed and checked functions."""

    file: LibraryFile  # the file it was loaded from
    abi: Abi
    functions: ctypes.CDLL  # the ctypes library; its functions are called by their C names
    default_param: bytes  # result of rkllm_createDefaultParam, as bytes
    version: str  # runtime release, or the ABI's name if the file has no marker


def find_library(where: str = AUTOMATIC) -> Path:
    """Find the file to load; a LibraryNotFoundError lists the locations.

    ``where`` is a path to the file or its folder, or ``auto``: $RKLLM_LIBRARY, LD_LIBRARY_PATH, the releases of
    'runtime pull', the usual folders, then the loader's cache.
    """
    explicit = where if where != AUTOMATIC else os.environ.get("RKLLM_LIBRARY", "")
    if explicit:
        path = Path(explicit).expanduser()
        path = path / LIBRARY_NAME if path.is_dir() else path
        if path.is_file():
            return path.resolve()
        raise LibraryNotFoundError(f"There is no runtime library at {path}.", "Correct it, or use auto or emulator.")
    looked: list[str] = []
    for candidate in _candidates():
        if candidate.is_file():
            return candidate.resolve()
        pulled = runtime_folder() in candidate.parents
        looked.append(str(runtime_folder() if pulled else candidate.parent))
    raise LibraryNotFoundError(
        f"{LIBRARY_NAME} was not found (looked in {', '.join(dict.fromkeys(looked))} and the loader's cache).",
        f"Fetch it with 'rkllm-mcp runtime pull {RECOMMENDED_VERSION}', name a file with 'rkllm-mcp runtime use PATH', "
        "or try '--runtime emulator'.",
    )


def runtime_folder() -> Path:
    """Return the folder of the releases of 'runtime pull': ``$XDG_DATA_HOME/rkllm-mcp/runtimes``."""
    return user_folder("data") / "runtimes"


def visible_libraries(*, everywhere: bool = False) -> list[Path]:
    """Return every librkllmrt.so that ``auto`` could find, in order; ``everywhere`` adds those of other programs."""
    configured = os.environ.get("RKLLM_LIBRARY", "")
    candidates = [*([Path(configured).expanduser()] if configured else []), *_candidates()]
    if everywhere:
        home = Path(os.environ.get("HOME") or Path.home())
        candidates += [home / folder / LIBRARY_NAME for folder in _COPIES]
    return list(dict.fromkeys(path.resolve() for path in candidates if path.is_file()))


def accepted_abi(file: LibraryFile, override: str = AUTOMATIC) -> Abi:
    """Return the interface for a file, before it is loaded; a RuntimeUnusableError if it cannot be loaded here at all.

    ``override`` is the release whose interface is used in any case, or ``auto``; an UnknownRuntimeError if it, or the
    file's release, is not verified to work.
    """
    if file.machine is None:
        raise RuntimeUnusableError(
            f"{file.path} is not a shared library.", "Point [runtime] library at the librkllmrt.so of the RKLLM SDK."
        )
    if not file.runs_here:
        raise RuntimeUnusableError(
            f"{file.path} is built for {file.machine} and this Python runs on {os.uname().machine}.",
            "Use the library for this machine, or '--runtime emulator' where there is no NPU.",
        )
    if override != AUTOMATIC:
        chosen = choose_abi(override)
        if chosen is None:
            raise UnknownRuntimeError(
                f"There is no runtime interface {override!r}.", f"Use auto or one of {', '.join(WORKING_VERSIONS)}."
            )
        return chosen
    if file.version is None and not file.exports:
        raise UnknownRuntimeError(
            f"{file.path} is no RKLLM runtime: it has none of its functions.",
            "Point [runtime] library at the librkllmrt.so of the RKLLM SDK.",
        )
    if file.version is None:
        raise UnknownRuntimeError(
            f"{file.path} does not say which RKLLM release it is (by its functions: {file.generation}).",
            f"{_WORKING}; if you know that it is one of them, {_OVERRIDE.format(NEWEST_VERSION)}.",
        )
    abi = choose_abi(file.version)
    if abi is None:
        why = UNSUPPORTED_VERSIONS.get(file.version, "its interface has not been verified")
        raise UnknownRuntimeError(
            f"{file.path} is RKLLM {file.version}, which this program does not drive: {why}.",
            f"{_WORKING}; to try it with the interface of one of them, {_OVERRIDE.format(NEWEST_VERSION)}.",
        )
    return abi


def open_library(path: Path, override: str = AUTOMATIC) -> Library:
    """Load a library and type its functions; a RuntimeUnusableError says why the file cannot be loaded.

    An UnknownRuntimeError if its release is not verified to work, an AbiMismatchError if its marker, its exports and
    its default parameters disagree.
    """
    file = read_library_file(path)
    abi = accepted_abi(file, override)
    try:
        # CDLL, never PyDLL: the GIL must be free while the runtime works and calls back.
        functions = ctypes.CDLL(str(file.path))
    except OSError as error:
        remedy = "Install the library it names, or copy librkllmrt.so again."
        if "libgomp" in str(error):
            remedy = "Install libgomp: 'sudo apt install libgomp1'."
        raise RuntimeUnusableError(f"{file.path} cannot be loaded: {error}.", remedy) from None
    with Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as maps:
        is_mapped = any(line.rstrip("\n").endswith(f" {file.path}") for line in maps)
    if not is_mapped:
        raise AbiMismatchError(
            f"The system loaded another file in place of {file.path}.",
            "Remove LD_PRELOAD and other copies of librkllmrt.so, or point [runtime] library at the one to use.",
        )
    # All functions of the family are required and, unless overridden, none of another family.
    exported = {name for name in _PUBLIC_FUNCTIONS if hasattr(functions, name)}
    missing, extra = sorted(abi.types.functions.keys() - exported), sorted(exported - abi.types.functions.keys())
    if missing or (extra and override == AUTOMATIC):
        what = f"lacks {', '.join(missing)}" if missing else f"also exports {', '.join(extra)}"
        raise AbiMismatchError(
            f"{file.path} says it is RKLLM {file.version}, but it {what}, unlike the {abi.name} family.",
            "Install an unmodified runtime, or choose another interface with [runtime] abi.",
        )
    for name, signature in abi.types.signatures.items():
        function = getattr(functions, name)
        function.restype = signature.restype
        function.argtypes = signature.argtypes
        if signature.errcheck is not None:
            function.errcheck = signature.errcheck
    default_param = bytes(functions.rkllm_createDefaultParam())
    if override == AUTOMATIC and not abi.defaults_fit(default_param):
        # Defaults that match another family's layout are refused; those that match none are not evidence.
        for other in FAMILIES:
            if other.defaults_fit(default_param):
                raise AbiMismatchError(
                    f"{file.path} says it is RKLLM {file.version}, but its defaults have the layout of {other.name}.",
                    f"Install an unmodified runtime; if you trust its layout, {_OVERRIDE.format(other.name)}.",
                )
    return Library(file, abi, functions, default_param, file.version or abi.name)


def _candidates() -> Iterator[Path]:
    """Yield the loader's search locations, in its order."""
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if folder:
            yield Path(folder, LIBRARY_NAME)
    for version in reversed(WORKING_VERSIONS):
        yield runtime_folder() / version / LIBRARY_NAME
    for folder in USUAL_FOLDERS:
        yield Path(folder, LIBRARY_NAME).expanduser()
    # The loader's cache.
    import subprocess  # imported here to keep the worker small

    for ldconfig in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        try:
            listing = subprocess.run(
                [ldconfig, "-p"], capture_output=True, text=True, timeout=_LDCONFIG_TIMEOUT_S, check=True
            ).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        for line in listing.splitlines():
            name, _, path = line.strip().partition(" => ")
            if name.startswith(LIBRARY_NAME) and path:
                yield Path(path)
        return
