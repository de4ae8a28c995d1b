"""Find, read and check the configuration: search order, TOML or JSON, ``${VAR}``, environment overrides."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from rkllm_base.folders import user_folder
from rkllm_base.settings import TOMLDecodeError, parse_toml, read_switch
from rkllm_mcp.config.claude_desktop import FOREIGN_TOP_KEYS, KNOWN_KEYS, entries_of
from rkllm_mcp.config.expansion import expand, is_list, is_table, unset_variables
from rkllm_mcp.config.section import Section
from rkllm_mcp.config.sections import Config, Sections
from rkllm_mcp.config.validation_errors import explain
from rkllm_mcp.errors import ConfigError, UsageError, did_you_mean

PREFIX = "RKLLM_MCP_"
_NAME = r"""(?:"[^"]*"|'[^']*'|[\w-]+)"""
_HEADER = re.compile(r"\s*\[(?P<array>\[)?(?P<names>[^\[\]]+)\]")
_ASSIGNMENT = re.compile(rf"\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*=")
_PART = re.compile(r"""("[^"]*"|'[^']*')|([\w-]+)""")


def apply_overrides(table: dict[str, Any], env: Mapping[str, str], source: str) -> dict[str, str]:
    """Write the overrides of ``env`` into the sections of ``table``; return the dotted keys with their variables.

    A ConfigError if a variable names an unknown section or key, or its value has the wrong type.
    """
    origins: dict[str, str] = {}
    kinds = {name: field.annotation for name, field in Sections.model_fields.items()}
    # The other sections are lists.
    sections = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Section)}
    for variable in sorted(env):
        section, separator, key = variable.removeprefix(PREFIX).lower().partition("__")
        if not variable.startswith(PREFIX) or not separator or not env[variable]:
            continue
        where = f"environment variable {variable}"
        fields = sections[section].model_fields if section in sections else {}
        if key not in fields:
            level, unknown, known = ("key", key, fields) if section in sections else ("section", section, sections)
            names = [name.upper() for name in known]
            allowed = f"the {f'keys of {section}' if level == 'key' else 'sections'} are {', '.join(names)}"
            hint = did_you_mean(unknown.upper(), names)
            raise ConfigError(where, "", f"{level} {unknown.upper()!r}", f"{allowed}{hint}")
        values = table.setdefault(section, {})
        if not is_table(values):
            raise ConfigError(source, section, repr(values), "a table is allowed")
        text, types = env[variable], _kinds(fields[key].annotation)
        values[key] = text
        if types & {"tuple", "dict"}:
            try:
                values[key] = json.loads(text)
            except json.JSONDecodeError:
                raise ConfigError(where, "", repr(text), 'a list in JSON is allowed, such as ["a", "b"]') from None
        elif kind := next((kind for kind in (bool, int, float) if kind.__name__ in types), None):
            # The check of the section reports the allowed values.
            with suppress(ValidationError):
                values[key] = TypeAdapter(kind).validate_python(text.strip(), strict=False)
        origins[f"{section}.{key}"] = where
    return origins


def _kinds(annotation: Any) -> set[str]:
    """Return the plain types in an annotation: ``tuple[str, ...] | None`` has tuple, str and NoneType."""
    origin = getattr(annotation, "__origin__", annotation)
    kinds = {origin.__name__} if isinstance(origin, type) else set[str]()
    if origin is tuple or origin is dict:
        return kinds
    for inner in get_args(annotation):
        kinds |= _kinds(inner)
    return kinds


FILE_NAME = "mcp_config.toml"
# The folder next to a configuration file to which 'service install' writes the secrets that it refers to, by name.
CREDENTIALS = "credentials"
# Relative to the file's folder, so that a configuration does not depend on the working directory.
_PATH_KEYS: tuple[tuple[str, str], ...] = (("runtime", "library"), ("model", "path"), ("security", "roots"))
_SERVER_PATH_KEYS = ("ca_file", "cwd", "folder", "openapi_spec", "roots", "sandbox_read", "sandbox_write")


def search_order(env: Mapping[str, str] = os.environ, cwd: Path | None = None) -> tuple[Path, ...]:
    """Return the files to search for when none is named; the first existing one is used."""
    return (
        (cwd or Path.cwd()) / FILE_NAME,
        user_folder("config", env) / "config.toml",
        Path("/etc/rkllm-mcp/config.toml"),
    )


def shadowed_file(source: Path | None, env: Mapping[str, str] = os.environ) -> Path | None:
    """Return the configuration file that the one of the working folder hides; None if ``source`` hides none."""
    local, *shadowed = search_order(env)
    if source is None or source.absolute() != local:
        return None
    return next((path for path in shadowed if path.is_file()), None)


def load_config(
    path: str | Path | None = None, *, env: Mapping[str, str] = os.environ, cwd: Path | None = None
) -> Config:
    """Load and check the configuration.

    Args:
        path: the file to use; it must exist. None searches for one and uses the defaults if none exists.
        env: the environment: variables in values, ``RKLLM_MCP_<SECTION>__<KEY>``, ``MCP_ENABLED``, ``XDG_CONFIG_HOME``;
            the files in ``CREDENTIALS_DIRECTORY``, where systemd puts secrets, and in ``credentials`` next to the file
            also count as variables of their names.
        cwd: the folder for relative paths and the search; the process's own by default.

    Raises:
        ConfigError: the configuration is invalid.
    """
    switch = env.get("MCP_ENABLED", "")
    enabled = read_switch(switch) if switch.strip() else True
    if enabled is None:
        raise ConfigError("environment variable MCP_ENABLED", "", repr(switch), "allowed are true and false")
    # The files of systemd's LoadCredential.
    folder = env.get("CREDENTIALS_DIRECTORY", "")
    files = sorted(Path(folder).iterdir()) if folder and Path(folder).is_dir() else ()
    given = {file.name: _credential(file) for file in files}
    if path is not None:
        file = (cwd or Path.cwd()) / Path(path).expanduser()
        if not file.exists():
            raise UsageError(f"No such file: {file}. 'rkllm-mcp config init' writes one.")
        source = file.absolute()
    else:
        candidates = search_order({**given, **env}, cwd)
        source = next((candidate.absolute() for candidate in candidates if candidate.is_file()), None)
    # The owner's commands need what the service gets from systemd.
    saved: dict[str, str] = {}
    if source is not None and os.access(folder_of_saved := source.parent / CREDENTIALS, os.R_OK | os.X_OK):
        readable = (path for path in sorted(folder_of_saved.iterdir()) if path.is_file() and os.access(path, os.R_OK))
        saved = {file.name: _credential(file) for file in readable}
    env = {**saved, **given, **env}
    name = str(source) if source else "the environment"
    raw = read_file(source) if source else {}
    try:
        return build_config(raw, env, name, source, mcp_enabled=enabled)
    except ConfigError as error:
        if source is not None and error.source == name:
            add_line(error, source)
        raise


def _credential(path: Path) -> str:
    try:
        # Editors end a file with a newline, which is not part of the secret.
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), "", f"a credential that cannot be read ({error})", "give it as text") from None


def build_config(
    raw: Mapping[str, Any], env: Mapping[str, str], name: str, source: Path | None, *, mcp_enabled: bool = True
) -> Config:
    """Check a parsed file; see ``load_config``."""
    table = {key: value for key, value in raw.items() if key not in {"servers", "mcpServers"}}
    if "mcpServers" in raw or isinstance(raw.get("servers"), dict):
        table = {key: value for key, value in table.items() if key not in FOREIGN_TOP_KEYS}
    table = expand(table, env, source=name)
    # Each server separately: one with unset variables stays unchanged and is skipped later.
    as_used: dict[str, Any] = {}
    for top in ("servers", "mcpServers"):
        value = raw.get(top)
        expanded: dict[Any, Any] = dict(enumerate(value)) if is_list(value) else {**value} if is_table(value) else {}
        for key, item in expanded.items():
            if is_table(item):
                # Keys of another host may name variables that only that host has.
                fields = {part: item[part] for part in item if part in KNOWN_KEYS}
                unknown = {part: item[part] for part in item if part not in KNOWN_KEYS}
                if not unset_variables(fields, env):
                    where = f"{top}[{key}]" if is_list(value) else f"{top}.{key}"
                    fields = expand(fields, env, source=name, key=where)
                expanded[key] = unknown | fields
        if value is not None:
            as_used[top] = list(expanded.values()) if is_list(value) else expanded if is_table(value) else value
    entries = entries_of(as_used, env, name)
    if source is not None:
        for section, key in _PATH_KEYS:
            _settle(table.get(section), key, source.parent)
        for entry in entries:
            for key in _SERVER_PATH_KEYS:
                _settle(entry.table, key, source.parent)
    origins = apply_overrides(table, env, name)
    table["servers"] = [entry.table for entry in entries]
    try:
        checked = Config.model_validate(table)
    except ValidationError as error:
        raise explain(error, name, entries, origins) from None
    remarks = tuple(entry.remark for entry in entries if entry.remark)
    as_written = {top: raw[top] for top in ("servers", "mcpServers") if top in raw}
    servers = [entry.table for entry in entries_of(as_written, env, name)]
    missing = {str(server.get("name")): tuple(unset_variables(server, env)) for server in servers}
    unset = {server: variables for server, variables in missing.items() if variables}
    return checked.with_origin(source=source, mcp_enabled=mcp_enabled, unset=unset, remarks=remarks)


def read_file(path: Path) -> dict[str, Any]:
    """Parse a TOML or JSON file, or raise a ConfigError; without a suffix, a file that starts with a brace is JSON."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            str(path), "", f"bytes that are not UTF-8 at offset {error.start}", "save it as UTF-8"
        ) from None
    except OSError as error:
        raise ConfigError(
            str(path), "", f"a file that cannot be read ({error.strerror})", "name a readable file"
        ) from None
    is_json = path.suffix == ".json" or (path.suffix != ".toml" and text.lstrip().startswith("{"))
    if not is_json:
        try:
            return parse_toml(text)
        except TOMLDecodeError as error:
            # Copying two examples with a [service] table each into one file is a common mistake.
            is_second = str(error).startswith("Cannot declare") and "twice" in str(error)
            advice = "put its keys below the one above" if is_second else "correct that line"
            raise ConfigError(str(path), "", f"a TOML error: {error}", advice) from None
    try:
        value: Any = json.loads(text) if text.strip() else None
    except json.JSONDecodeError as error:
        problem = f"a JSON error: {error.msg} (at line {error.lineno}, column {error.colno})"
        raise ConfigError(str(path), "", problem, "correct that line") from None
    if not is_table(value):
        raise ConfigError(str(path), "", "JSON that is not an object", 'begin with {"mcpServers": …}')
    return value


def add_line(error: ConfigError, source: Path) -> ConfigError:
    """Write the line of ``error.key`` in the TOML file ``source`` into ``error``; return it.

    It is the line, from 1, that sets the key, or begins the nearest table of it; 0 for none.
    """
    key_parts = _parts_of(error.key)
    counts: dict[tuple[str, ...], int] = {}  # of the tables of each array
    table: list[str] = []
    depth, line = 0, 0
    for number, row in enumerate(source.read_text("utf-8-sig").splitlines(), 1):
        path: list[str] = []
        if header := _HEADER.match(row):
            names = _parts_of(header["names"])
            if header["array"]:
                counts[tuple(names)] = counts.get(tuple(names), -1) + 1
            for end, name in enumerate(names, 1):
                path.append(name)
                if (array := tuple(names[:end])) in counts:
                    path.append(str(counts[array]))
            table = path
        elif assignment := _ASSIGNMENT.match(row):
            path = [*table, *_parts_of(assignment[1])]
        shared = min(len(path), len(key_parts))
        if shared > depth and path[:shared] == key_parts[:shared]:
            depth, line = shared, number
    error.line = line
    return error


def _parts_of(key: str) -> list[str]:
    """Return the parts of a dotted key: ``servers[0].command`` is servers, 0, command."""
    return [bare or quoted[1:-1] for quoted, bare in _PART.findall(key)]


def _settle(section: Any, key: str, folder: Path) -> None:
    value = section.get(key) if is_table(section) else None
    if is_list(value):
        section[key] = [str(folder / Path(item).expanduser()) if isinstance(item, str) else item for item in value]
    elif isinstance(value, str):
        # A key for a path also takes words, addresses and inline specifications.
        is_word = not value or (key == "library" and value in {"auto", "emulator"})
        is_inline = key == "openapi_spec" and (value.lstrip().startswith("{") or "\n" in value)
        if not is_word and not is_inline and "://" not in value:
            section[key] = str(folder / Path(value).expanduser())


def configuration_schema() -> dict[str, Any]:
    """Return the JSON Schema of a configuration file."""
    schema = Sections.model_json_schema()
    # Entries of other hosts are accepted; their keys are not described here.
    schema["properties"]["mcpServers"] = {
        "type": "object",
        "description": "Servers as Claude Desktop and other hosts write them.",
        "additionalProperties": {"type": "object"},
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": FILE_NAME}
