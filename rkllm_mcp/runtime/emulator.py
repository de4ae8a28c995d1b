"""Locate the emulated runtime library, and build it if it is missing or older than its sources.

A checkout builds into ``native/build``; an installed package carries the sources and builds into the user's cache. The
build program checks the files' ages and selects the compiler; it runs with the same Python, whose ``ziglang`` wheel may
be the only compiler.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rkllm_base.folders import user_folder
from rkllm_base.installation import install_command
from rkllm_mcp.errors import LibraryNotFoundError
from rkllm_mcp.runtime.abi import RECOMMENDED_VERSION

VERSIONS = ("1.2.0", "1.2.3", "1.3.0", "1.3.1")
DEFAULT_VERSION = RECOMMENDED_VERSION
VERSION_VARIABLE = "RKLLM_EMULATOR_ABI"

# The first build with the ziglang wheel compiles parts of a C library, which is slow.
_BUILD_TIMEOUT_S = 600.0

# The compiler's message begins with the refused input.
_REASON_CHARS = 500

_PACKAGE = Path(__file__).resolve().parents[1]
_CHECKOUT_SOURCES = _PACKAGE.parent / "native"
_PACKAGED_SOURCES = _PACKAGE / "_native"


def emulator_library(version: str | None = None) -> Path:
    """Return the emulated ``librkllmrt.so`` of a release, built if necessary, which blocks.

    ``version`` is one of ``VERSIONS``; None for $RKLLM_EMULATOR_ABI, else 1.3.0. A LibraryNotFoundError if it is
    unknown or cannot be built here, with the reason.
    """
    release = version or os.environ.get(VERSION_VARIABLE) or DEFAULT_VERSION
    if release not in VERSIONS:
        raise LibraryNotFoundError(
            f"There is no emulated runtime {release!r}.", f"Set ${VERSION_VARIABLE} to one of {', '.join(VERSIONS)}."
        )
    return _built(release, ["--abi", release], f"{release}/librkllmrt.so")


def emulated_encoder_library() -> Path:
    """Return the emulated ``librknnrt.so``, built if necessary, which blocks; or raise a LibraryNotFoundError."""
    return _built("librknnrt.so", ["--encoder"], "rknn/librknnrt.so")


def _built(name: str, options: Sequence[str], library: str) -> Path:
    if (_CHECKOUT_SOURCES / "build.py").is_file() and os.access(_CHECKOUT_SOURCES, os.W_OK):
        sources, out = _CHECKOUT_SOURCES, _CHECKOUT_SOURCES / "build"
    else:
        sources = _PACKAGED_SOURCES if (_PACKAGED_SOURCES / "build.py").is_file() else _CHECKOUT_SOURCES
        out = user_folder("cache") / "emulator"
    command = [sys.executable, str(sources / "build.py"), *options, "--out", str(out)]
    try:
        built = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        reason = str(error)
    else:
        path = out / library
        if built.returncode == 0 and path.is_file():
            return path
        reason = built.stderr.strip() or f"the build ended with code {built.returncode}"
    raise LibraryNotFoundError(
        f"The emulated runtime {name} could not be built: {reason[:_REASON_CHARS]}",
        f"Install a C compiler: sudo apt install gcc, or without root: {install_command('compiler')}",
    )
