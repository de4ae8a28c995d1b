"""``rkllm-mcp status``, ``install``, ``update`` and ``uninstall``: the program as it is installed on this machine."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from importlib import invalidate_caches
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Annotated, Any, cast
from urllib.parse import urlsplit

import typer

from rkllm_base.folders import state_folder, user_folder
from rkllm_base.installation import (
    PACKAGE,
    InstallationError,
    extras,
    find_uv,
    install_extra,
    installed_extras,
    is_debian_package,
    is_pipx_app,
    own_uv_folder,
)
from rkllm_mcp import __version__
from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.cli import service
from rkllm_mcp.surfaces.cli.options import AsJson, Yes, argument, command, flag, may_proceed
from rkllm_mcp.surfaces.invocation import EXIT_ANSWER_FAILED, EXIT_DONE, Session
from rkllm_mcp.surfaces.running_service import running_services

_UPDATE_LIMIT_S = 1800
_APT_LIMIT_S = 60
_NOT_RUNNING = "not running"

app = typer.Typer()


@command(app, "status")
def status_command(session: Session, as_json: AsJson = False) -> int:
    """Show whether the assistant runs, where, and with which model; exit code 1 unless it answers."""
    config = session.config()
    state, unit = service.readiness(config), _unit_state()
    # What answers there may be the assistant of another person or home, or another program.
    is_own = unit.startswith("active") or any(
        urlsplit(running.address).port == service.used_port(config) for running in running_services()
    )
    store, conversations = state_folder() / "state.db", 0
    if store.is_file():
        uri = f"{store.resolve().as_uri()}?mode=ro"
        with suppress(sqlite3.Error), closing(sqlite3.connect(uri, uri=True)) as connection:
            conversations = int(connection.execute("SELECT count(*) FROM conversations").fetchone()[0])
    values: dict[str, Any] = {
        "running": bool(state) and is_own,
        "state": state if is_own and state else "the port is used by another program" if state else _NOT_RUNNING,
        "address": service.local_address(config),
        "service": unit,
        "model": config.model.name or (str(config.model.path) if config.model.path else "none"),
        "servers": [server.name for server in config.active_servers],
        "configuration": str(config.origin.source or "none"),
        "store": str(store),
        "conversations": conversations,
        "version": __version__,
    }
    # "running: no" says it already.
    rows = {name: value for name, value in values.items() if name != "state" or value != _NOT_RUNNING}
    if not values["running"]:
        if values["state"] != _NOT_RUNNING:
            start = "rkllm-mcp serve --port PORT"
        elif any(service.UnitLocation(is_user).file.is_file() for is_user in (False, True)):
            start = "rkllm-mcp service start"
        else:
            start = "rkllm-mcp serve"
        # Without a model nothing starts.
        needs_setup = config.provider.kind == "rkllm" and values["model"] == "none"
        values["start"] = rows["start"] = "rkllm-mcp setup" if needs_setup else start
    word = session.terminal.word
    cells: list[tuple[str, str]] = []
    for name, value in rows.items():
        if isinstance(value, bool):
            words = ["yes" if value else "no"]
        else:
            words = (cast("list[str]", value) or ["none"]) if isinstance(value, list) else [str(value)]
        cells.append((word(name), ", ".join(map(word, words))))
    session.show(values, session.terminal.table((), cells), as_json=as_json)
    return EXIT_DONE if values["running"] else EXIT_ANSWER_FAILED


def _unit_state() -> str:
    """Return the state of the installed unit, such as ``active (user)``."""
    for location in (service.UnitLocation(False), service.UnitLocation(True)):
        if location.file.is_file():
            owner = "user" if location.is_user else "system"
            if shutil.which("systemctl") is None:
                return f"installed ({owner})"
            state = subprocess.run(
                [*location.systemctl, "is-active", service.UNIT_NAME],
                check=False,
                capture_output=True,
                text=True,
                timeout=30,
            )
            return f"{state.stdout.strip() or 'unknown'} ({owner})"
    return "not installed"


def installer_command(action: str) -> list[str] | None:
    """Return the installer's command for ``upgrade`` or ``uninstall`` of this program; None in a checkout."""
    if is_debian_package():
        words = ["install", "--only-upgrade"] if action == "upgrade" else ["remove", "--yes"]
        sudo = [] if os.geteuid() == 0 else ["sudo"]
        return [*sudo, "apt-get", *words, PACKAGE]
    # Written by ``uv tool`` into the environments that it makes.
    if (Path(sys.prefix) / "uv-receipt.toml").exists():
        # A package that was installed from a folder keeps its version number; it is built anew all the same.
        again = ["--no-cache", "--compile-bytecode", "--reinstall-package", PACKAGE] if action == "upgrade" else []
        return [find_uv() or "uv", "tool", action, *again, PACKAGE]
    if is_pipx_app():
        return ["pipx", action, PACKAGE]
    try:
        origin = json.loads(distribution(PACKAGE).read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        return None
    if origin.get("dir_info", {}).get("editable"):
        return None
    # Without --quiet pip names every library that stays as it is.
    words = ["install", "--upgrade", "--quiet"] if action == "upgrade" else ["uninstall", "--yes"]
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", *words, PACKAGE]


@command(app, "install")
def install_command(
    session: Session,
    names: Annotated[list[str] | None, argument("What to install. Default: show what there is.", "NAME")] = None,
    as_json: AsJson = False,
    only_names: Annotated[bool, flag("Print the names of those that are installed, for scripts.", "--names")] = False,
) -> int:
    """Install optional parts of the program, such as postgres, where the program itself is installed."""
    if names:
        _install(names)
        return EXIT_DONE
    if only_names:
        sys.stdout.write("".join(f"{name}\n" for name in installed_extras()))
        return EXIT_DONE
    here, purposes = installed_extras(), read_catalogue(session.language(Config())).table("extras")
    rows = [(name, name in here, str(purposes[name])) for name in extras()]
    session.show(
        [{"name": name, "installed": is_here, "purpose": purpose} for name, is_here, purpose in rows],
        session.terminal.table((), [("✓" if row[1] else "-", row[0], row[2]) for row in rows]),
        as_json=as_json,
    )
    return EXIT_DONE


def _install(names: Sequence[str]) -> None:
    """Install extras; a UsageError if one cannot be installed."""
    try:
        for name in names:
            install_extra(name)
    except InstallationError as error:
        raise UsageError(str(error)) from None


@command(app, "update")
def update_command(
    session: Session,
    restart: Annotated[
        bool, flag("Stop the service first, and start it again after that, also if nothing was updated.", "--restart")
    ] = False,
) -> int:
    """Update the program with what installed it: uv, pipx, pip or apt."""
    words = installer_command("upgrade")
    if is_debian_package():
        # An archive that has the package, besides the file that was installed.
        archives = ""
        if shutil.which("apt-cache") is not None:
            query = ["apt-cache", "madison", PACKAGE]
            archives = subprocess.run(
                query, check=False, capture_output=True, text=True, timeout=_APT_LIMIT_S
            ).stdout.strip()
        if not archives:
            raise UsageError(
                "the program was installed from a .deb file; download the newer one and run:"
                " sudo apt install ./rkllm-mcp_VERSION_arm64.deb"
            )
    if words is None:
        folder = shlex.quote(str(Path(__file__).resolve().parents[3]))
        raise UsageError(f"this is a checkout; update it with: cd {folder} && git pull && scripts/setup")
    unit = service.find_installed("restart") if restart else None
    if unit is not None:
        session.status("Stopping the service after the answers under way …")
        # A program whose files are replaced while it runs imports parts of both releases.
        unit.run("stop", service.UNIT_NAME, advice=unit.log_command, by_sudo=True)
    try:
        session.status(" ".join(words))
        optional = installed_extras()
        if code := _run_installer(words):
            return code
        # uv and pipx may remove what was added to their environments.
        invalidate_caches()
        _install(optional)
        # What is installed now, which this process may not be.
        invalidate_caches()
        installed = version(PACKAGE)
        if installed == __version__:
            session.status(f"rkllm-mcp {installed} is up to date.")
        else:
            session.status(f"Updated from {__version__} to {installed}.")
        if _unit_state().startswith("active"):
            session.status("The service still runs the old version: rkllm-mcp service restart")
    finally:
        if unit is not None:
            unit.run("start", service.UNIT_NAME, advice=unit.log_command, by_sudo=True)
            session.status("Started.")
    return EXIT_DONE


def _run_installer(words: list[str]) -> int:
    if shutil.which(words[0]) is None:
        raise UsageError(f"{words[0]} installed this program and is not on the PATH; run: {' '.join(words)}")
    try:
        # It shows what it downloads. With -m, Python would import from the current folder, which others may write.
        completed = subprocess.run(words, check=False, stdout=sys.stderr, timeout=_UPDATE_LIMIT_S, cwd="/")
    except subprocess.TimeoutExpired:
        raise UsageError(f"'{' '.join(words)}' did not end within {_UPDATE_LIMIT_S // 60} minutes") from None
    return EXIT_ANSWER_FAILED if completed.returncode else EXIT_DONE


@command(app, "uninstall")
def uninstall_command(
    session: Session,
    everything: Annotated[
        bool, flag("Also delete configuration, conversations, documents and models.", "--all")
    ] = False,
    yes: Yes = False,
) -> int:
    """Remove the service and the program; what it stored is kept unless --all is given."""
    folders = [
        folder for folder in dict.fromkeys(map(user_folder, ("config", "state", "data", "cache"))) if folder.is_dir()
    ]
    question = "Remove the service and the program?"
    if everything and folders:
        question = f"Remove the service, the program, and all in {', '.join(map(str, folders))}?"
    if not may_proceed(session, question, yes=yes):
        return EXIT_DONE
    # Before anything is removed: without it the rest would be a program without a way to remove it.
    words = installer_command("uninstall")
    for location in (service.UnitLocation(True), service.UnitLocation(False)):
        if location.file.is_file():
            service.uninstall(session, location.is_user)
    # The uv that install.sh fetched for this program removes it, and goes itself after that.
    own_uv = own_uv_folder()
    for folder in folders:
        if everything:
            for part in folder.iterdir():
                if part.is_symlink() or part.is_file():
                    part.unlink()
                elif part != own_uv:
                    shutil.rmtree(part)
            if own_uv.parent != folder or not own_uv.exists():
                folder.rmdir()
            session.status(f"Removed {folder}")
        elif any(part != own_uv for part in folder.iterdir()):
            session.status(f"Kept: {folder}")
    if words is None:
        session.status(f"The program is a checkout; delete its folder: {Path(__file__).resolve().parents[3]}")
        return EXIT_DONE
    return _run_installer(words) or _remove_own_uv(session, own_uv)


def _remove_own_uv(session: Session, own_uv: Path) -> int:
    """Remove the uv that install.sh fetched, its links and its cache, unless it installed other programs too."""
    uv = own_uv / "bin" / "uv"
    if not uv.exists():
        return EXIT_DONE
    listing = subprocess.run([uv, "tool", "list"], check=False, capture_output=True, text=True, timeout=_APT_LIMIT_S)
    if listing.stdout.strip():
        session.status(f"Kept: {own_uv}, with which other programs were installed")
        return EXIT_DONE
    # What it downloaded for MCP servers.
    subprocess.run([uv, "cache", "clean", "--quiet"], check=False, timeout=_UPDATE_LIMIT_S)
    words = [(uv, "tool", "dir"), (uv, "cache", "dir"), (uv, "python", "dir")]
    answers = [
        subprocess.run(words_of_one, check=False, capture_output=True, text=True, timeout=_APT_LIMIT_S)
        for words_of_one in words
    ]
    folders = [Path(words_of_one.stdout.strip()) for words_of_one in answers if words_of_one.stdout.strip()]
    for name in ("uv", "uvx"):
        link = Path.home() / ".local" / "bin" / name
        if link.is_symlink() and link.resolve().is_relative_to(own_uv.resolve()):
            link.unlink()
    shutil.rmtree(own_uv)
    session.status(f"Removed {own_uv}")
    for folder in folders:
        marks = [folder / name for name in (".gitignore", ".lock", "CACHEDIR.TAG")]
        if folder.is_dir() and {*folder.iterdir()} <= {*marks}:
            for mark in marks:
                mark.unlink(missing_ok=True)
    uvs = [part for folder in folders for part in (folder, folder.parent) if "uv" in (part.name, part.parent.name)]
    for folder in (own_uv.parent, *uvs, Path.home() / ".local" / "bin"):
        # Only those that are empty now.
        with suppress(OSError):
            folder.rmdir()
    return EXIT_DONE
