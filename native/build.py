"""Builds the emulated runtimes: one `librkllmrt.so` per ABI family, and `librknnrt.so` for vision encoders.

    python native/build.py [--abi 1.2.0|1.2.3|1.3.0|1.3.1 ...] [--encoder] [--out DIR]

Rules: only the standard library is used, so any Python from 3.10 on can run it before anything is installed; a
library whose sources, compiler and flags have not changed is left alone, also where the compiler is gone by now; a
finished library replaces an older one in one step, so that several builds at once do no harm. The compiler is `$CC`,
else `cc`, `gcc` or `clang`, else the `ziglang` wheel of the Python that runs this. What the sources do is not known
here.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NATIVE = Path(__file__).resolve().parent
DEFAULT_OUT = NATIVE / "build"
LIBRARY_NAME = "librkllmrt.so"
# The runtime of vision encoders: its sources and linker script, and the folder it is built into.
ENCODER = NATIVE / "vision"
ENCODER_LIBRARY_NAME = "librknnrt.so"
ENCODER_FOLDER = "rknn"

# The version a family's library claims to be -> the value of RKLLM_ABI it is compiled with.
FAMILIES = {"1.2.0": 120, "1.2.3": 121, "1.3.0": 130, "1.3.1": 131}

WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
COMMON = ("-D_GNU_SOURCE", "-pthread", "-fvisibility=hidden", "-fPIC")
OPTIMISED = ("-O2", "-g")
# After the sources, because linkers look for what is missing so far.
LIBRARIES = ("-lm", "-ldl")

# A cold `zig cc` compiles its own C library parts first; nothing else comes near this.
COMPILE_TIMEOUT_S = 600


class BuildError(Exception):
    """The emulator could not be built; the text says why and what to do."""


def sources() -> list[Path]:
    """Returns the C files of the emulator, in a stable order."""
    return sorted((NATIVE / "emulator").glob("*.c"))


def find_compiler() -> list[str]:
    """Returns the command that compiles C.

    Raises:
        BuildError: There is no compiler, and no `ziglang` wheel either.
    """
    if chosen := os.environ.get("CC"):
        return shlex.split(chosen)
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return [path]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    raise BuildError(
        "No C compiler was found (looked for $CC, cc, gcc, clang and the ziglang wheel). "
        "Install one of them, for example with: sudo apt install gcc"
    )


def library_flags(abi: int) -> list[str]:
    """Returns the flags that make the shared library of a family, the linker's included."""
    return [f"-DRKLLM_ABI={abi}", *_shared_flags(LIBRARY_NAME, NATIVE / "exports.map")]


def encoder_flags() -> list[str]:
    """Returns the flags that make `librknnrt.so`."""
    return _shared_flags(ENCODER_LIBRARY_NAME, ENCODER / "exports.map")


def _shared_flags(name: str, exports: Path) -> list[str]:
    return [
        *WARNINGS,
        *COMMON,
        *OPTIMISED,
        f"-I{NATIVE / 'include'}",
        f"-I{ENCODER}",
        "-shared",
        f"-Wl,--version-script={exports}",
        f"-Wl,-soname,{name}",
        # Zig's linker drops what no code refers to, and the version marker is there only to be read from the file.
        "-Wl,--no-gc-sections",
    ]


def compile_program(
    files: Iterable[Path], output: Path, abi: int, extra: Sequence[str] = (), compiler: Sequence[str] | None = None
) -> Path:
    """Compiles C files to an executable with the project's warnings; `extra` flags come last.

    Args:
        files: C sources; the emulator's own may be among them.
        output: Where the executable goes.
        abi: The value of RKLLM_ABI.
        extra: More flags, for example of a sanitizer, or a library to link.
        compiler: The command to use instead of the one `find_compiler` finds.

    Raises:
        BuildError: The compiler refused; its words are in the text.
    """
    includes = [f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'emulator'}", f"-I{ENCODER}"]
    command = [*(compiler or find_compiler()), *WARNINGS, *COMMON, "-g", f"-DRKLLM_ABI={abi}", *includes]
    _compile([*command, *map(str, files), *extra, *LIBRARIES], output)
    return output


def ensure(out: Path | None = None, versions: Iterable[str] | None = None) -> dict[str, Path]:
    """Builds what is missing or out of date.

    Args:
        out: The directory for the libraries; `native/build` when None.
        versions: Which families, by version; all when None.

    Returns:
        The library of every family asked for, by version.

    Raises:
        BuildError: A version is not known, there is no compiler, or it refused.
    """
    out = (out or DEFAULT_OUT).resolve()
    wanted = list(versions if versions is not None else FAMILIES)
    for version in wanted:
        if version not in FAMILIES:
            raise BuildError(f"There is no family '{version}'; known are {', '.join(FAMILIES)}.")
    with ThreadPoolExecutor() as pool:
        builds = {
            v: pool.submit(_ensure_one, out / v / LIBRARY_NAME, library_flags(FAMILIES[v]), sources()) for v in wanted
        }
    return {version: building.result() for version, building in builds.items()}


def ensure_encoder(out: Path | None = None) -> Path:
    """Builds `librknnrt.so` if it is missing or out of date, below `out` (`native/build`), and returns it.

    Raises:
        BuildError: There is no compiler, or it refused.
    """
    library = (out or DEFAULT_OUT).resolve() / ENCODER_FOLDER / ENCODER_LIBRARY_NAME
    return _ensure_one(library, encoder_flags(), sorted(ENCODER.glob("*.c")))


def _ensure_one(library: Path, flags: list[str], files: list[Path]) -> Path:
    stamp = library.with_name("stamp")
    made_of = _fingerprint(flags, files)
    made_before, _, made_with = stamp.read_text().partition("\n") if library.exists() and stamp.exists() else ("",) * 3
    try:
        compiler = find_compiler()
    except BuildError:
        if made_before == made_of:
            return library
        raise
    if (made_before, made_with) == (made_of, shlex.join(compiler)):
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    _compile([*compiler, *flags, *map(str, files), *LIBRARIES], library)
    _write_whole(stamp, f"{made_of}\n{shlex.join(compiler)}")
    return library


def _fingerprint(flags: list[str], files: list[Path]) -> str:
    """Returns a digest of everything the library is made of."""
    digest = hashlib.sha256("\0".join([*flags, *LIBRARIES]).encode())
    beside = sorted({folder for path in files for folder in (path.parent, NATIVE / "include", ENCODER)})
    headers = [header for folder in beside for header in sorted(folder.glob("*.h"))]
    for path in [*files, *headers, NATIVE / "exports.map", ENCODER / "exports.map"]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _compile(command: list[str], output: Path) -> None:
    """Runs the compiler into a file beside `output`, then moves it there."""
    with tempfile.TemporaryDirectory(prefix=".building-", dir=output.parent) as scratch:
        made = Path(scratch) / output.name
        try:
            done = subprocess.run(
                [*command, "-o", str(made)], capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildError(f"The compiler could not be run: {error}. Set $CC to one that works.") from error
        if done.returncode != 0:
            raise BuildError(f"The compiler refused ({shlex.join(command[:1])}):\n{done.stderr.strip()}")
        made.replace(output)


def _write_whole(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(prefix=".stamp-", dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(name).replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds what the command line asks for and prints where it is."""
    parser = argparse.ArgumentParser(
        description="Builds the emulated librkllmrt.so of each ABI family, and librknnrt.so."
    )
    parser.add_argument("--abi", action="append", choices=list(FAMILIES), help="a family; may be repeated (all)")
    parser.add_argument("--encoder", action="store_true", help="librknnrt.so; without --abi nothing else")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="directory for the libraries (native/build)")
    options = parser.parse_args(arguments)
    everything = options.abi is None and not options.encoder
    try:
        built = ensure(options.out, None if everything else options.abi or ())
        if everything or options.encoder:
            built[ENCODER_FOLDER] = ensure_encoder(options.out)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    for version, path in built.items():
        print(f"{version} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
