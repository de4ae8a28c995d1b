"""Edits of a configuration file that preserve the rest of it, including comments.

A TOML file is edited as text, a JSON file as a value. Every edit is verified before it is written: the new file must
contain the old values and exactly the requested change; otherwise nothing is written, and the ``ConfigError``
shows the change to make by hand. A file that cannot be read or written is a ``ConfigError``, too. Edits of several
processes and threads wait for each other, so none is lost.
"""

from __future__ import annotations

import fcntl
import glob
import itertools
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rkllm_mcp.config.claude_desktop import entries_of
from rkllm_mcp.config.expansion import is_list, is_table
from rkllm_mcp.config.loading import build_config, read_file
from rkllm_mcp.config.secrets import secret_places
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import ConfigError, UsageError
from rkllm_mcp.text import collapse_whitespace

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_TABLE = re.compile(r"^\s*\[")
# An edit takes milliseconds; one that has not ended by then is stopped in a debugger, say.
_LOCK_TIMEOUT_S = 10.0
_LOCK_RETRY_S = 0.02
# The comment of an assignment.
_BEHIND_VALUE = re.compile(r"=(?:\"[^\"]*\"|'[^']*'|[^\"'#])*?(\s*#.*)")


def add_servers(path: Path, servers: Sequence[Mapping[str, Any]], *, of_new_names: bool = False) -> None:
    """Append servers to a configuration file, creating it if necessary.

    A UsageError if they are to be ``of_new_names`` and the file has a server of the name of one.
    """
    plain = [_plain(server) for server in servers]
    with _locked_file(path) as file:
        before = file.table
        for server in plain if of_new_names else ():
            if server["name"] in names_in(path):
                raise UsageError(f"{path} has a server {server['name']!r}; remove it first, or choose another name")
        if file.is_json and not is_list(before.get("servers")):
            theirs = {server["name"]: {key: server[key] for key in server if key != "name"} for server in plain}
            after = {**before, "mcpServers": {**before.get("mcpServers", {}), **theirs}}
        else:
            after = {**before, "servers": [*before.get("servers", []), *plain]}
        blocks = "\n".join(f"[[servers]]\n{_lines(server)}" for server in plain)
        _write(file, after, _with_block(file.text, blocks), f"add this by hand:\n{blocks}")


def set_boards(path: Path, boards: Sequence[Mapping[str, Any]]) -> None:
    """Write the list of boards of a configuration file, creating it if necessary; ones that are there stay as they are.

    A ConfigError for boards that cannot be in one list.
    """
    checked_servers({"boards": list(boards)}, "the list of boards", path)
    plain = [_plain(board) for board in boards]
    with _locked_file(path) as file:
        present: list[dict[str, Any]] = file.table.get("boards", [])
        added = plain[len(present) :] if plain[: len(present)] == present else plain
        blocks = "\n".join(f"[[boards]]\n{_lines(board)}" for board in added)
        text = file.text
        for _ in present if added is plain else ():
            text = _without_block(text, 0, "boards")
        text = _with_block(text, blocks) if added else text
        _write(file, {**file.table, "boards": plain}, text, f"write the boards by hand:\n{blocks}")


def add_server(path: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Check one server, append it to a file and return its table; a UsageError if the file has one of this name."""
    raw = {"servers": [dict(entry)]}
    checked_servers(raw, "the new server", path)
    (table,) = (tidy(added.table) for added in entries_of(raw, {}, "the new server"))
    add_servers(path, [table], of_new_names=True)
    return table


def checked_servers(raw: Mapping[str, Any], source: str, path: Path) -> Config:
    """Check entries that may be used on another day, with every variable set; ``path`` is their future file."""
    names = re.findall(r"\$\{(?:env:)?([A-Za-z_]\w*)", json.dumps(raw))
    every_variable = {**dict.fromkeys(names, "http://unset.invalid"), **os.environ}
    return build_config(raw, every_variable, source, path.absolute())


def names_in(path: Path) -> set[str]:
    """Return the names of the servers in a configuration file; empty if it does not exist."""
    if not path.is_file():
        return set()
    return {str(entry.table.get("name")) for entry in entries_of(read_file(path), {}, str(path))}


def tidy(entry: dict[str, Any]) -> dict[str, Any]:
    """Remove a transport that the command or URL implies."""
    implied = {"command": "stdio", "url": "http"}
    is_implied = any(key in entry and entry.get("transport") == transport for key, transport in implied.items())
    return {key: entry[key] for key in entry if key != "transport" or not is_implied}


def remove_server(path: Path, name: str) -> None:
    """Remove a server from a configuration file."""
    with _locked_file(path) as file:
        after = dict(file.table)
        ours: Any = after.get("servers") or []
        numbers = [number for number, server in enumerate(ours) if is_list(ours) and server.get("name") == name]
        if numbers:
            after["servers"] = [server for number, server in enumerate(ours) if number != numbers[0]]
            if not after["servers"]:
                del after["servers"]
        else:
            tables = (top for top in ("mcpServers", "servers") if is_table(after.get(top)) and name in after[top])
            if (top := next(tables, None)) is None:
                names = [str(server.get("name")) for server in ours] if is_list(ours) else list(ours)
                there = ", ".join([*names, *after.get("mcpServers", {})]) or "none"
                raise ConfigError(str(path), "servers", f"no server named {name!r}", f"there are {there}")
            after[top] = {key: after[top][key] for key in after[top] if key != name}
        text = _without_block(file.text, numbers[0]) if numbers else file.text
        _write(file, after, text, f"remove the server {name!r} by hand")


def set_value(path: Path, section: str, key: str, value: Any) -> None:
    """Set one key of a section in a configuration file, creating both if necessary."""
    line = _lines({key: value})
    with _locked_file(path) as file:
        after = {**file.table, section: {**file.table.get(section, {}), key: value}}
        text = _with_assignment(file.text, section, rf"{re.escape(key)}\s*=", line)
        _write(file, after, text, f"write this under [{section}] by hand: {line.rstrip()}")


def _with_assignment(text: str, section: str, key: str, new: str, *, index: int = 0, entry: str = "") -> str:
    """Return the text with ``new`` as the line of a key, also where the key or its section is missing.

    A line that is there keeps its comment; with ``entry`` it is the beginning of a list, and gets that as its first
    line. ``key`` is a pattern; of ``[[section]]`` it is the ``index``-th one.
    """
    lines = text.splitlines(keepends=True)
    header = re.compile(rf"\s*\[\[?\s*{re.escape(section)}\s*\]")
    starts = [number for number, line in enumerate(lines) if header.match(line)]
    if index >= len(starts):
        return _with_block(text, f"[{section}]\n{new}")
    start = starts[index]
    line_numbers = itertools.takewhile(lambda number: not _TABLE.match(lines[number]), range(start + 1, len(lines)))
    old = next((number for number in line_numbers if re.match(rf"\s*{key}", lines[number])), None)
    if old is None:
        head = lines[start].rstrip("\n")
        lines[start] = f"{head}\n{new}"
    elif entry:
        head, _, tail = lines[old].partition("[")
        tail = tail.lstrip(" \t")
        # Text after the bracket gets its own line; a bracket alone closes the list.
        tail = f"    {tail}" if tail.strip(" \t\n]") else tail.lstrip("\n")
        lines[old] = f"{head}[\n{entry}{tail}"
    else:
        comment = _BEHIND_VALUE.search(lines[old])
        lines[old] = f"{new.rstrip()}{comment[1] if comment else ''}\n"
    return "".join(lines)


def add_key(path: Path, entry: str, label: str = "") -> None:
    """Add an API key of the owner, in its stored form, to a file that may not exist; ``label`` becomes a comment."""
    words = collapse_whitespace(label)
    line = f"    {toml_value(entry)},{f'  # {words}' if words else ''}\n"
    with _locked_file(path) as file:
        service: dict[str, Any] = file.table.get("service", {})
        after = {**file.table, "service": {**service, "api_keys": [entry, *service.get("api_keys", [])]}}
        new = f"api_keys = [\n{line}]\n"
        text = _with_assignment(file.text, "service", r"api_keys\s*=\s*\[", new, entry=line)
        _write(file, after, text, f"add this to api_keys in [service] by hand:\n{line}")


def add_tenant(path: Path, name: str, entry: str, label: str = "") -> None:
    """Add a tenant with the stored form of a key, or give an existing one this key; ``label`` becomes a comment."""
    words = collapse_whitespace(label)
    value = f"api_key = {toml_value(entry)}"
    line = f"{value}{f'  # {words}' if words else ''}\n"
    block = f'[[tenants]]\nname = {toml_value(name)}\n{line}may_approve = false\ndocuments = "own"\n'
    with _locked_file(path) as file:
        tenants: list[dict[str, Any]] = list(file.table.get("tenants", []))
        index = next((number for number, tenant in enumerate(tenants) if tenant.get("name") == name), None)
        if index is None:
            tenants.append({"name": name, "api_key": entry, "may_approve": False, "documents": "own"})
            text = _with_block(file.text, block)
        else:
            tenants[index] = {**tenants[index], "api_key": entry}
            text = _with_assignment(file.text, "tenants", r"api_key\s*=", f"{value}\n", index=index)
        advice = f"write this by hand, for the tenant {name}:\n{line}"
        _write(file, {**file.table, "tenants": tenants}, text, advice)


@dataclass(frozen=True)
class _LockedFile:
    """A configuration file while other edits wait; empty if it does not exist."""

    path: Path
    table: dict[str, Any]
    text: str
    is_json: bool


@contextmanager
def _locked_file(path: Path) -> Generator[_LockedFile]:
    """Read a configuration file, and keep other edits in its folder waiting; a ConfigError if one does not end."""
    # The folder is locked because the file is replaced; a folder that does not exist yet is made by the first edit.
    folder = next((parent for parent in path.absolute().parents if parent.is_dir()), Path("/"))
    descriptor: int | None = None
    # A folder that cannot be opened cannot be locked; whether its file can be written, the edit itself says.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + _LOCK_TIMEOUT_S
        while descriptor is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pass
            except OSError:  # a file system without locks
                break
            if time.monotonic() > deadline:
                problem = "a file that another program has been editing for a while"
                raise ConfigError(str(path), "", problem, "end that rkllm-mcp command, then repeat this one")
            time.sleep(_LOCK_RETRY_S)
        table, text = (read_file(path), path.read_text("utf-8")) if path.exists() else ({}, "")
        begins_json = bool(table) and text.removeprefix("\ufeff").lstrip().startswith("{")
        yield _LockedFile(path, table, text, path.suffix == ".json" or (path.suffix != ".toml" and begins_json))
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _write(file: _LockedFile, after: Mapping[str, Any], text: str, advice: str) -> None:
    """Write ``after``: a JSON file as a value, a TOML file as ``text``."""
    path, suffix = file.path, ".toml"
    if file.is_json:
        text = json.dumps(after, ensure_ascii=False, indent=2) + "\n"
        suffix, advice = ".json", "edit it by hand"
    draft = draft_beside(path, f".draft{suffix}")
    try:
        try:
            draft.parent.mkdir(parents=True, exist_ok=True)
            write_private(draft, text)
        except OSError as error:
            problem = f"a file that cannot be written ({error.strerror})"
            raise ConfigError(str(path), "", problem, "choose another with --config") from None
        try:
            result: Mapping[str, Any] | None = read_file(draft)
        except ConfigError:
            result = None
        if result != after:
            raise ConfigError(str(path), "servers", "servers written in a form that is not edited here", advice)
        if path.exists():
            # The draft gets the owner and the mode of the file that it replaces; secrets are for the owner alone.
            old = path.stat()
            with suppress(OSError):
                os.chown(draft, old.st_uid, old.st_gid)
            mode = stat.S_IMODE(old.st_mode)
            # A file of root may belong to the group of the service, which reads it.
            draft.chmod(mode & (0o640 if old.st_uid == 0 else 0o600) if secret_places(after) else mode)
        draft.replace(path)
    finally:
        # The error is already raised; a missing or unremovable draft does not matter.
        with suppress(OSError):
            draft.unlink()


def _with_block(text: str, block: str) -> str:
    """Return the text with a block of lines after it, an empty line between."""
    separator = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{separator}{block}"


def _without_block(text: str, index: int, section: str = "servers") -> str:
    """Return the text without the ``index``-th ``[[section]]``, the comment directly above it and its sub-tables."""
    table, subtable = rf"\s*\[\[\s*{section}\s*\]\]", rf"\s*\[\[?\s*{section}\s*\."
    lines = text.splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if re.match(table, line)]
    if not 0 <= index < len(starts):
        return text
    start = starts[index]
    end = start + 1
    while end < len(lines) and (not _TABLE.match(lines[end]) or re.match(subtable, lines[end])):
        end += 1
    # Comments and blank lines above the next table belong to that table.
    while end < len(lines) and end > start + 1 and lines[end - 1].lstrip().startswith("#"):
        end -= 1
    while start > 0 and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    return "".join([*lines[:start], *lines[end:]])


def draft_beside(target: Path, suffix: str) -> Path:
    """Return the path of this process's draft of a file, and remove the drafts that killed processes have left.

    They may hold keys and conversations.
    """
    prefix = f".{target.name}."
    for draft in target.parent.glob(f"{glob.escape(prefix)}*{suffix}"):
        pid = draft.name.removeprefix(prefix).partition(".")[0]
        # In a container, the next process often has the number of the one that was killed.
        if not pid.isdecimal() or (int(pid) != os.getpid() and Path(f"/proc/{pid}").exists()):
            continue
        with suppress(OSError):
            if draft.is_dir() and not draft.is_symlink():
                shutil.rmtree(draft)
            else:
                draft.unlink()
    return target.with_name(f"{prefix}{os.getpid()}{suffix}")


def write_private(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a new file that has this mode from its first byte; an OSError if it cannot be written."""
    with suppress(FileNotFoundError):
        path.unlink()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(text)


def _plain(server: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as they are read back: no None, lists instead of tuples."""
    return json.loads(json.dumps({key: value for key, value in server.items() if value is not None}))


def _lines(table: Mapping[str, Any]) -> str:
    return "".join(f"{toml_key(key)} = {toml_value(value)}\n" for key, value in table.items())


def toml_key(name: str) -> str:
    """Return a key as TOML, quoted if necessary."""
    return name if _BARE_KEY.fullmatch(name) else toml_value(name)


def toml_value(value: Any) -> str:
    """Return a value as TOML on one line."""
    if isinstance(value, str):
        # JSON's escapes are valid TOML, except that TOML requires escaping DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(toml_value(item) for item in cast('Sequence[Any]', value))}]"
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return "{" + ", ".join(f"{toml_key(key)} = {toml_value(item)}" for key, item in items if item is not None) + "}"
    return json.dumps(value)
