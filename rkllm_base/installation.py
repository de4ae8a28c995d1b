"""The installed program: its installer, its optional parts ("extras"), and the commands that add and update them.

The parts are the extras of the installed distribution. The host and the servers are one distribution in one
environment, so this is the one place that knows how something is added to it.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from rkllm_base.folders import user_folder

PACKAGE = "rkllm-mcp"
# The environment of the Debian package (scripts/release), whose files are dpkg's: what a user adds goes to /usr/local.
DEBIAN_HOME = "/usr/lib/rkllm-mcp"

# As "python -m", which would import what lies in the current folder before what is installed; Python 3.10 has no -P.
_RUN_MODULE = """import sys
sys.path[:] = filter(None, sys.path)
import runpy
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)"""
_INSTALL_LIMIT_S = 1800


class InstallationError(Exception):
    """A part could not be installed; the text contains the remedy."""


def is_debian_package() -> bool:
    """Return whether this program was installed as a Debian package."""
    return sys.prefix == DEBIAN_HOME


def is_pipx_app() -> bool:
    """Return whether pipx made this program's environment."""
    return (Path(sys.prefix) / "pipx_metadata.json").exists()


def own_uv_folder() -> Path:
    """Return the environment in which install.sh installs uv where the machine has none."""
    return user_folder("data") / "uv"


def find_uv(name: str = "uv") -> str | None:
    """Return the path of ``uv`` or ``uvx``: on the PATH, or where install.sh puts it; None if none exists."""
    usual = (own_uv_folder() / "bin", Path.home() / ".local" / "bin", Path(sys.executable).parent)
    return shutil.which(name) or next(
        (found_uv for folder in usual if (found_uv := shutil.which(name, path=str(folder)))), None
    )


def program() -> str:
    """Return the shell word that starts this program: its name, or its path where the PATH has no or another one."""
    script = Path(sys.executable).with_name(PACKAGE)
    on_path = shutil.which(PACKAGE)
    if on_path and (is_debian_package() or (script.exists() and Path(on_path).resolve().samefile(script.resolve()))):
        return PACKAGE
    return shlex.quote(str(script)) if script.exists() else f"{shlex.quote(sys.executable)} -m rkllm_mcp"


def module_words(module: str, *words: str) -> list[str]:
    """Return the command that runs an installed module with arguments; nothing of the current folder is imported."""
    return [sys.executable, "-c", _RUN_MODULE, module, *words]


def install_command(extra: str) -> str:
    """Return the shell command that installs an extra, for remedies."""
    sudo = "sudo " if is_debian_package() else ""
    return f"{sudo}{program()} install {extra}"


def extras() -> dict[str, tuple[str, ...]]:
    """Return the requirements of each extra of the installed distribution; empty if it is not installed."""
    from packaging.requirements import Requirement

    try:
        about = metadata.metadata(PACKAGE)
    except metadata.PackageNotFoundError:
        return {}
    requirements = [Requirement(requirement) for requirement in about.get_all("Requires-Dist") or ()]
    by_extra: dict[str, tuple[str, ...]] = {}
    for name in sorted(about.get_all("Provides-Extra") or ()):
        chosen: list[str] = []
        for requirement in requirements:
            if (
                requirement.marker
                and "extra" in str(requirement.marker)
                and requirement.marker.evaluate({"extra": name})
            ):
                each_alone = Requirement(str(requirement))
                each_alone.marker = None
                chosen.append(str(each_alone))
        by_extra[name] = tuple(chosen)
    return by_extra


def is_installed(requirement: str) -> bool:
    """Return whether a requirement is met in this environment, with the extras that it names."""
    from packaging.requirements import Requirement

    required = Requirement(requirement)
    try:
        about = metadata.distribution(required.name)
    except metadata.PackageNotFoundError:
        return False
    if not required.specifier.contains(about.version, prereleases=True):
        return False
    further = [Requirement(text) for text in about.requires or ()]
    return all(
        is_installed(f"{each.name}{each.specifier}")
        for extra in required.extras
        for each in further
        if each.marker and "extra" in str(each.marker) and each.marker.evaluate({"extra": extra})
    )


def installed_extras() -> list[str]:
    """Return the names of the extras of which every package is installed."""
    return [name for name, requirements in extras().items() if all(map(is_installed, requirements))]


def install_words(requirements: Sequence[str]) -> list[str]:
    """Return the command that adds packages to this environment, as words.

    An InstallationError if the program that does it is not here.
    """
    if is_debian_package():
        # The packages of the user's own pip are not touched here.
        folder = f"/usr/local/lib/{PACKAGE}/python{sys.version_info[0]}.{sys.version_info[1]}"
        if importlib.util.find_spec("pip") is None and not Path("/usr/lib/python3/dist-packages/pip").is_dir():
            raise InstallationError("pip is not installed; install it: sudo apt install python3-pip")
        sudo = [] if os.geteuid() == 0 else ["sudo"]
        return [*sudo, "/usr/bin/python3", "-m", "pip", "install", "--target", folder, *requirements]
    if is_pipx_app():
        return ["pipx", "inject", PACKAGE, *requirements]
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", *requirements]
    # An environment that uv made has no pip.
    uv = find_uv()
    if uv is None:
        raise InstallationError(
            f"uv made the environment {sys.prefix} and is not here any more; install it: pipx install uv"
        )
    return [uv, "pip", "install", "--no-cache", "--python", sys.executable, *requirements]


def install_extra(name: str) -> None:
    """Add an extra to this environment, unless it is there; the installer shows its progress on standard error.

    An InstallationError if no such extra exists, or if it cannot be installed.
    """
    available = extras()
    if name not in available:
        raise InstallationError(
            f"there is nothing to install with the name {name!r}; choose from {', '.join(available)}"
        )
    if all(map(is_installed, available[name])):
        return
    words = install_words(available[name])
    line = shlex.join(words)
    try:
        # With -m, Python would import from the current folder, which others may write.
        process = subprocess.run(words, check=False, stdout=sys.stderr, timeout=_INSTALL_LIMIT_S, cwd="/")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallationError(f"{name} could not be installed ({error}); run: {line}") from None
    if process.returncode:
        raise InstallationError(f"{name} could not be installed, for the reason above; run: {line}")
    importlib.invalidate_caches()
