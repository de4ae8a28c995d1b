"""Diagnosis of everything that an answer needs, from the chip to the tools, with remedies.

``examine`` runs a list of checks in order. A check that raises an unexpected exception becomes an ``unknown`` finding.
The same checks run on machines without an NPU; with the emulated runtime, checks of the NPU are informational.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rkllm_mcp.app.settings import unset_rights, unsupported_settings
from rkllm_mcp.board.machine import Machine
from rkllm_mcp.board.npu import soc_of
from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.config.editing import checked_servers
from rkllm_mcp.config.gallery import server_table
from rkllm_mcp.config.secrets import redacted_arguments, redacted_text
from rkllm_mcp.config.sections import Config
from rkllm_mcp.config.servers import BuiltinServer, OpenAPIServer, ServerConfig, StdioServer
from rkllm_mcp.diagnostics import checks, machine_checks
from rkllm_mcp.diagnostics.findings import CheckResult, CheckStatus, LibraryReport, ModelReport, ServerReport, Subjects
from rkllm_mcp.diagnostics.programs import missing_programs
from rkllm_mcp.errors import ConfigError, LibraryNotFoundError, ModelFileError, RuntimeUnusableError, UsageError
from rkllm_mcp.mcp_client.allowed_commands import refusal_here
from rkllm_mcp.mcp_client.sandbox import missing_place, script_of, unusable
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.models.cards import ModelFolder, choose_model
from rkllm_mcp.models.rkllm_header import read_rkllm_file
from rkllm_mcp.providers.remote_settings import egress_notices, services_of
from rkllm_mcp.runtime.abi import RECOMMENDED_VERSION
from rkllm_mcp.runtime.library import (
    AUTOMATIC,
    EMULATOR,
    accepted_abi,
    find_library,
    fingerprint,
    read_library_file,
    visible_libraries,
)
from rkllm_mcp.runtime.profile import find_profile
from rkllm_mcp.toolcalls.constraint import is_installed
from rkllm_mcp.toolcalls.untrusted_text import on_one_line

if TYPE_CHECKING:
    from rkllm_mcp.mcp_client.lifecycle import ServerState


def examine(machine: Machine, subjects: Subjects) -> list[CheckResult]:
    """Run all checks; never raises. ``subjects`` describes the library, model and servers of the configuration."""
    model = subjects.model
    # Each with the name of the result if it fails; a check begins when its results are read.
    of_board: list[tuple[str, Iterable[CheckResult]]] = [
        ("soc", checks.check_soc(machine)),
        ("kernel", checks.check_kernel(machine)),
        ("npu driver", checks.check_driver(machine)),
        ("npu device", checks.check_device(machine)),
        ("npu load", checks.check_load(machine)),
    ]
    if soc_of(machine) is not None:
        of_board += [
            ("npu clock", checks.check_clocks(machine)),
            ("cpus", machine_checks.check_cpus(machine)),
            ("npu users", machine_checks.check_npu_users(machine)),
            ("temperature", checks.check_temperature(machine)),
            ("npu memory", checks.check_npu_memory(machine, model.file_bytes)),
        ]
    of_board += [
        ("libgomp", checks.check_gomp(machine)),
        ("open files", checks.check_open_files(machine)),
    ]
    of_answers: list[tuple[str, Iterable[CheckResult]]] = [
        ("memory", checks.check_memory(machine, model)),
        ("swap", machine_checks.check_swap(machine)),
        ("model size", machine_checks.check_model_size(machine, model)),
        ("configuration", [CheckResult("configuration", "info", subjects.configuration)]),
        ("runtime library", checks.check_library(subjects.library)),
        ("model", checks.check_model(model)),
        ("model file", checks.check_model_file(machine, subjects)),
        ("servers", checks.check_servers(subjects.servers)),
    ]
    findings: list[CheckResult] = []
    for number, (name, results) in enumerate([*of_board, *of_answers]):
        try:
            found = list(results)
        except Exception as error:  # noqa: BLE001  # a failing check must not end the diagnosis
            found = [CheckResult(name, "unknown", f"could not be checked: {type(error).__name__}: {error}")]
        if subjects.library.emulated and number < len(of_board):
            not_needed = partial(replace, status="info", remedy="Not needed by the emulated runtime.", command="")
            found = [not_needed(result) if result.status in {"fail", "warn"} else result for result in found]
        findings += found
    return findings


def worst(findings: Iterable[CheckResult]) -> CheckStatus:
    """Return the most severe status: ``fail``, ``warn`` or ``ok``."""
    statuses = {finding.status for finding in findings}
    return "fail" if "fail" in statuses else "warn" if "warn" in statuses else "ok"


# What the check-up looks at where a service answers and nothing is loaded here.
_NEEDED_WITHOUT_NPU = frozenset({"kernel", "open files", "configuration", "servers"})


def config_warnings(config: Config) -> list[str]:
    """Return a line for each remote service, each setting without effect, and each missing file."""
    lines = [*egress_notices(config), *_faults(config)]
    refused = refused_servers(config)
    servers = tuple(_server(server) for server in config.active_servers if server.name not in refused)
    findings = [*checks.check_servers(servers)] if servers else []
    if config.provider.kind == "rkllm":
        findings = [*checks.check_model(_model(config)[1]), *_models_beside(config), *findings]
        if config.runtime.library not in (AUTOMATIC, EMULATOR):
            report = _library(config, emulated=False)
            findings = [CheckResult("runtime.library", report.status, report.found, report.remedy), *findings]
    lines += [
        f"{finding.name}: {finding.found.rstrip('.')}. {finding.remedy}".rstrip()
        for finding in findings
        if finding.status in ("warn", "fail")
    ]
    return [*lines, *approval_notices(config)]


def approval_notices(config: Config) -> list[str]:
    """Return a line for each server with tools that ``approve = "writes"`` asks for and ``"dangerous"`` does not.

    The tools of an MCP server are those of its last connection here.
    """
    from rkllm_mcp.app.tools import SERVER_FACTS
    from rkllm_mcp.mcp_client.server_cache import Forgetful, ServerCache
    from rkllm_mcp.store import stored_texts
    from rkllm_mcp.store.database import state_file
    from rkllm_mcp.tools.approvals import newly_asked

    facts = Forgetful(stored_texts(state_file(os.environ, config.origin.tenant), SERVER_FACTS))
    notices: list[str] = []
    for server in config.resolved_servers():
        tools: Iterable[ToolSpec] = ()
        if isinstance(server, BuiltinServer):
            tools_of_functions = (tool for tool in server.tools if tool.entry_point is not None and not tool.problem)
            tools = [
                ToolSpec(tool.name, read_only=tool.read_only, destructive=tool.destructive)
                for tool in tools_of_functions
            ]
        elif not isinstance(server, OpenAPIServer):
            tools = ServerCache(server, facts).known.tools or ()
        if names := newly_asked(server, tools):
            tools_named = ", ".join(map(on_one_line, names))
            notices.append(
                f"Server '{server.name}': calls of {tools_named} need approval (approve = \"writes\": not known to be "
                "read-only) and are refused where no user can be asked. Put those that may run unasked into its "
                'always_allow, or set its approve to "dangerous".'
            )
    return notices


def _models_beside(config: Config) -> list[CheckResult]:
    model_names = {
        "agent.embedding_model": config.agent.embedding_model if config.active_servers else None,
        "service.embedding_model": config.service.embedding_model,
        "service.ranking_model": config.service.ranking_model,
    }
    reports = {key: _model(config.with_options(model=name))[1] for key, name in model_names.items() if name is not None}
    return [replace(finding, name=key) for key, report in reports.items() for finding in checks.check_model(report)]


def _faults(config: Config) -> list[str]:
    refused = (f"Server '{name}': {refusal}" for name, refusal in refused_servers(config).items())
    folders = {*config.security.roots, *(root for server in config.active_servers for root in server.roots or ())}
    gone = sorted(folder for folder in folders if not folder.is_dir())
    absent = (f"roots: there is no folder {folder}; make it, or correct roots" for folder in gone)
    idle = (
        f"Server '{server.name}': tool {tool.name!r} is left out: {tool.problem}"
        for server in config.active_servers
        if isinstance(server, BuiltinServer)
        for tool in server.tools
        if tool.problem
    )
    faults = [*unsupported_settings(config), *unset_rights(config), *refused, *idle, *absent]
    boards = enumerate(() if config.service.boards_secret else config.boards)
    if names := [config.board_name(index) for index, board in boards if not (board.key or board.is_private)]:
        faults.append(
            f"boards: {', '.join(names)} would be asked with the key of the caller over plain HTTP, so they are asked "
            "without a key, and their models and queues are not shown; set key in their entries, or let them join"
        )
    return faults


def refused_servers(config: Config) -> dict[str, str]:
    """Return the servers that will not be started, with the reason: command, sandbox, or a variable that is not set."""
    specs = [spec for spec in config.resolved_servers() if isinstance(spec, StdioServer)]
    problem = unusable() if any(spec.sandbox for spec in specs) else ""
    refusals = {server.name: config.problem_of(server) for server in config.active_servers}
    for spec in specs:
        if not refusals[spec.name]:
            refused = refusal_here(spec, config.security.allowed_commands)
            refusals[spec.name] = refused or (problem or missing_place(spec) if spec.sandbox else "")
    return {name: refusal for name, refusal in refusals.items() if refusal}


def gallery_server(
    name: str, folder: str | None, config: Config, path: Path, *, is_sandboxed: bool = True
) -> dict[str, Any]:
    """Return the table of a server of the gallery that may be started here; ``path`` is its future file.

    Raises:
        UsageError: no such server exists, its folder is missing or superfluous, or it would not be started.
    """
    table = server_table(name, folder, is_sandboxed=is_sandboxed)
    new = checked_servers({"servers": [table]}, "the new server", path)
    if refused := refused_servers(config.model_copy(update={"servers": new.servers})):
        raise UsageError(f"{name} is not installed: {refused[name]}")
    return table


async def start_servers(config: Config) -> dict[str, ServerState]:
    """Start the configured servers, close them, and return what became of each."""
    from rkllm_mcp.app.tools import open_tools

    async with open_tools(config) as environment:
        await environment.toolbox.wait_until_started()
        return {state.name: state for state in environment.toolbox.servers()}


def diagnose(config: Config, states: Mapping[str, ServerState] | None = None) -> list[CheckResult]:
    """Check the board and everything that the configuration names.

    ``states`` are those of ``start_servers``; without them no server is started.
    """
    source = str(config.origin.source or "none, so there are no tools; 'rkllm-mcp setup' makes one")
    states = states or {}
    reports = tuple(replace(_server(server), state=states.get(server.name)) for server in config.servers)
    servers = reports if config.origin.mcp_enabled else None
    if config.provider.kind == "rkllm":
        model, report = _model(config)
        library = _library(config, emulated=model is not None and model.card.emulated)
        findings = examine(Machine(), Subjects(source, library, report, servers))
        if model is not None:
            findings += checks.check_encoder(Machine(), model, report.file)
            where = config.runtime.library
            if where != EMULATOR and not (where == AUTOMATIC and model.card.emulated):
                with suppress(RuntimeUnusableError):
                    find_library(where)
                    if (profile := find_profile(where, model.file)) is None:
                        remark = "none; what no document says of this runtime is not known here"
                        remedy = "Measure it once.", "rkllm-mcp doctor --probe"
                        findings.append(CheckResult("runtime profile", "info", remark, *remedy))
                    else:
                        measured = f"measured {profile.measured_at}, {len(profile.facts)} facts"
                        findings.append(CheckResult("runtime profile", "ok", measured))
        findings += [*_held(config, model), *_models_beside(config)]
        # The programs that servers of the gallery need, where one is missing.
        purposes = read_catalogue("en").table("programs")
        for name, command in missing_programs().items():
            findings.append(CheckResult(name, "info", f"not usable here; it is {purposes[name]}", "", command))
    else:
        subjects = Subjects(source, LibraryReport("", "ok", emulated=True), ModelReport(""), servers)
        looked_at = examine(Machine(), subjects)
        findings = [finding for finding in looked_at if finding.name in _NEEDED_WITHOUT_NPU]
    findings += (CheckResult("approval", "info", notice) for notice in approval_notices(config))
    # The services that answer in place of the NPU are not asked anything.
    for name, service in services_of(config).items():
        from rkllm_mcp.app.models import check_sdk

        try:
            check_sdk(service)
        except RuntimeUnusableError as error:
            findings.append(CheckResult(name, "fail", error.message, error.remedy))
        else:
            how = f"'{service.model}' at {service.host}, asked over HTTP"
            findings.append(CheckResult(name, "ok", how))
    findings += (CheckResult("privacy", "info", line.strip("[]")) for line in egress_notices(config))
    return [*findings, *(CheckResult("configuration", "warn", note) for note in _faults(config))]


def _model(config: Config) -> tuple[ModelFolder | None, ModelReport]:
    try:
        model = choose_model(config.model, emulated=config.runtime.library == EMULATOR)
    except RuntimeUnusableError as error:
        return None, ModelReport("", error.message, error.remedy)
    except ConfigError as error:
        return None, ModelReport("", str(error))
    context_tokens = config.model.context_tokens or model.card.context_tokens
    size = model.file.stat().st_size if model.file.is_file() else 0
    report = ModelReport(
        model.name,
        file_bytes=size,
        context_tokens=context_tokens,
        cache_bytes_per_token=model.card.cache_bytes_per_token,
        emulated=model.card.emulated,
    )
    if not model.card.emulated:
        try:
            file = read_rkllm_file(model.file)
            cache = file.cache_bytes_per_token or report.cache_bytes_per_token
            report = replace(report, file=file, cache_bytes_per_token=cache)
        except ModelFileError as error:
            report = replace(report, file_problem=error.message, file_remedy=error.remedy)
    return model, report


def _library(config: Config, *, emulated: bool) -> LibraryReport:
    where = config.runtime.library
    if where == EMULATOR or (where == AUTOMATIC and emulated):
        return LibraryReport("the emulated NPU, which comes with rkllm-mcp", "ok", emulated=True)
    try:
        path = find_library(where)
        file = read_library_file(path)
        mark = fingerprint(path)
    except RuntimeUnusableError as error:
        missing = isinstance(error, LibraryNotFoundError)
        command = f"rkllm-mcp runtime pull {RECOMMENDED_VERSION}" if missing else "rkllm-mcp runtime list"
        return LibraryReport(error.message, "fail", error.remedy, command)
    # Others that ``auto`` could mean, with the release each names; what cannot be read is left out.
    other_libraries: list[tuple[str, str]] = []
    for other in visible_libraries():
        if other != path:
            with suppress(RuntimeUnusableError):
                other_libraries.append((str(other), read_library_file(other).version or "unknown"))
    report = LibraryReport(
        f"{path}, version {file.version or 'unknown'}",
        "ok",
        emulated=file.is_emulator,
        version=file.version or "",
        git_blob=mark.git_blob,
        official_release=mark.official_release,
        others=tuple(other_libraries),
    )
    try:
        abi = accepted_abi(file, config.runtime.abi)
    except RuntimeUnusableError as error:
        command = "rkllm-mcp runtime list"
        return replace(report, found=error.message, status="fail", remedy=error.remedy, command=command)
    return replace(report, found=f"{report.found}, interface {abi.name}")


def _held(config: Config, model: ModelFolder | None) -> list[CheckResult]:
    """Say if answers and calls are held to their schema while the model writes them; empty without a model."""
    if model is None or not (model.is_held or model.card.held is False):
        return []
    if not model.is_held:
        return [CheckResult("held answers", "info", "switched off in the model's card; JSON is checked at its end")]
    state = "JSON answers are checked at their end, and asked for again once"
    if not is_installed():
        command = "rkllm-mcp install held"
        return [CheckResult("held answers", "info", state, "Hold them while they are written.", command)]
    profile = find_profile(config.runtime.library, model.file)
    if profile is not None and (reason := profile.against_corrections):
        return [CheckResult("held answers", "info", f"{state}: as 'doctor --probe' found, {reason}")]
    return [CheckResult("held answers", "ok", "JSON answers and tool calls are held to their schema")]


def _server(server: ServerConfig) -> ServerReport:
    # What a server needs in addition to its program.
    needed = {"ca_file": cast("Path | None", getattr(server, "ca_file", None))}
    if isinstance(server, BuiltinServer):
        needed["folder"] = server.folder
    if isinstance(server, OpenAPIServer) and isinstance(server.openapi_spec, str):
        from rkllm_mcp.openapi.source import specification_file

        needed["openapi_spec"] = specification_file(server.openapi_spec)
    if isinstance(server, StdioServer):
        needed |= {"cwd": server.cwd, "script": script_of(server.command, server.args, server.cwd)}
    missing = (f"there is no {key} {path}" for key, path in needed.items() if path and not path.exists())
    problem = next(missing, "")
    if not isinstance(server, StdioServer):
        address = getattr(server, "url", None) or getattr(server, "openapi_base_url", None) or ""
        how = f"{server.transport} {redacted_text(address)}".strip()
        return ServerReport(server.name, how, server.enabled, problem=problem)
    how = " ".join([server.command, *redacted_arguments(server.args)])
    # The program's path as the server's environment finds it.
    command = server.command
    if "/" in command and server.cwd is not None:
        command = str(server.cwd / Path(command))
    program = shutil.which(command, path=server.env.get("PATH"))
    return ServerReport(server.name, how, server.enabled, server.command, program, problem)
