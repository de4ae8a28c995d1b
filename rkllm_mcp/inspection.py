"""The composition root for everything short of an answer: the check-up, a prompt to look at, the tools without a model.

Like ``app`` it knows every layer below and no surface; unlike ``app`` it never loads a model.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from rkllm_mcp.availability import ineffective
from rkllm_mcp.board.doctor import examine, worst
from rkllm_mcp.board.finding import Finding, LibraryReport, ModelReport, ServerReport, Subjects
from rkllm_mcp.board.gauges import Gauges, read_gauges
from rkllm_mcp.board.machine import Machine
from rkllm_mcp.board.npu import npu_node
from rkllm_mcp.board.rkllm_file import read_rkllm_file
from rkllm_mcp.board.software import check_model, check_servers
from rkllm_mcp.calling import NO_CONTEXT, CallContext
from rkllm_mcp.config import Config, OpenAPIServer, ServerConfig, StdioServer
from rkllm_mcp.config.models import ModelFolder, choose_model
from rkllm_mcp.config.redaction import redacted_arguments, redacted_text
from rkllm_mcp.errors import ConfigError, ModelFileError, RuntimeUnusableError, UsageError

if TYPE_CHECKING:
    from rkllm_mcp.equipment import Equipment
    from rkllm_mcp.prompt.conversation import PromptPart
    from rkllm_mcp.providers.service import Service
    from rkllm_mcp.store.memory import Memory
    from rkllm_mcp.tools.toolbox import Toolbox

__all__ = ["Finding", "diagnose", "open_tools", "prompt_parts", "review", "worst"]

EMULATOR = "emulator"
AUTOMATIC = "auto"
# What the check-up looks at where a service answers and nothing is loaded here.
_NEEDED_WITHOUT_NPU = frozenset({"kernel", "open files", "configuration", "servers"})


@asynccontextmanager
async def open_tools(
    config: Config,
    status: Callable[[str], None] | None = None,
    log_in: Callable[[str, str], Awaitable[None]] | None = None,
) -> AsyncGenerator[Toolbox, None]:
    """Connect the servers that ``config`` names, without a model; on leaving all of them are gone.

    Args:
        config: the configuration.
        status: is told, one line each, which server is connected and which is not.
        log_in: shows somebody the address where to log in to a server, by its name; nobody can be shown when None.
    """
    async with open_tools_and_memory(config, status, log_in=log_in) as equipment:
        yield equipment.toolbox


@asynccontextmanager
async def open_tools_and_memory(
    config: Config,
    status: Callable[[str], None] | None = None,
    *,
    required: bool = False,
    log_in: Callable[[str, str], Awaitable[None]] | None = None,
) -> AsyncGenerator[Equipment, None]:
    """``open_tools`` with what is remembered about the tools.

    Args:
        config: the configuration.
        status: see ``open_tools``.
        required: not being able to remember is an error.
        log_in: see ``open_tools``.

    Raises:
        StoreError: remembering is required and cannot be done.
    """
    from rkllm_mcp.equipment import open_equipment

    async with open_equipment(config, status=status, required=required, log_in=log_in) as equipment:
        yield equipment


@asynccontextmanager
async def open_remembered(config: Config) -> AsyncGenerator[Memory, None]:
    """What is remembered between runs; no server is started.

    Raises:
        StoreError: it cannot be read.
    """
    from rkllm_mcp.store.history import Retention
    from rkllm_mcp.store.memory import open_memory

    retention = Retention(config.security.history_days, config.security.history_calls)
    async with open_memory(retention=retention, required=True) as memory:
        yield memory


async def prompt_parts(
    config: Config, text: str, equipment: Equipment, system: str | None = None, context: CallContext = NO_CONTEXT
) -> list[PromptPart]:
    """The prompt that ``text`` would get as a first question, part by part.

    Every ``auto_context_tool`` is called, and every resource read that the text names.

    Args:
        config: the configuration.
        text: the question.
        equipment: the tools, connected.
        system: the system text; the configuration's when None.
        context: what accompanies calls.

    Raises:
        ModelNotFoundError: there is no such model, or it lacks a file.
        ToolboxError: a resource cannot be read.
        UsageError: a service answers, whose prompts nobody here sees.
    """
    from rkllm_mcp.agent.asking import ask_in_words
    from rkllm_mcp.agent.briefing import Assignment, unheard
    from rkllm_mcp.agent.instructions import system_text
    from rkllm_mcp.assembly import briefing, chosen_model, listing, model_form
    from rkllm_mcp.messages import Conversation, Message
    from rkllm_mcp.prompt.conversation import ConversationPrompt

    if config.provider.kind != "rkllm":
        raise UsageError("a service makes the prompt itself; provider.kind = 'rkllm' shows the one that the NPU gets")
    model = chosen_model(config)
    form = model_form(config, model)
    head = system_text(config.agent.system_prompt, config.agent.language) if system is None else system
    conversation = Conversation(messages=[Message("system", head)] if head else [])
    prepares = briefing(config, listing(config, model, form), equipment.toolbox, equipment.memory.calls)
    offerings, limit_chars = equipment.toolbox.offerings, config.agent.resource_chars
    asked = await ask_in_words(text, offerings, limit_chars, unheard, context)
    brief = await prepares.prepare(conversation, Assignment(asked, equipment.toolbox.tools()), context)
    conversation.add(Message("user", asked.text, context=brief.context))
    prompt = ConversationPrompt(form.vocabulary, form.template, thinking=form.think)
    return prompt.parts(conversation.messages, brief.offer.listed)


def gauges() -> Gauges:
    """How the board is at this moment, as figures."""
    return read_gauges()


def npu_devices(machine: Machine | None = None) -> tuple[str, ...]:
    """The device nodes that the runtime opens, as patterns of paths; none on a machine without an NPU.

    Followed: rknpu's Kconfig; a build with DRM has a render node, one without /dev/rknpu, both take DMA heaps.
    """
    machine = machine or Machine()
    node = npu_node(machine)
    if node is None:
        return ()
    cards = sorted(machine.name_of(card) for card in machine.glob("dev/dri/card*")) if "dri" in node.parts else []
    heaps = sorted(machine.name_of(heap) for heap in machine.glob("dev/dma_heap/*"))
    return (machine.name_of(node), *cards, *heaps)


def model_files(config: Config) -> tuple[Path, ...]:
    """The folder and the file of the model on the NPU; none where it cannot be found.

    The file may lie elsewhere, where the folder links to it.
    """
    try:
        model = choose_model(config.model, emulated=config.runtime.library == EMULATOR)
    except (RuntimeUnusableError, ConfigError):
        return ()
    return tuple(dict.fromkeys((model.folder.absolute(), model.file.resolve().parent)))


def asking_language(config: Config) -> Literal["en", "ja"]:
    """The language in which a person is asked."""
    from rkllm_mcp.tools.trust.reasons import language_of

    return language_of(config.agent.language)


def review(config: Config) -> list[str]:
    """A line for whatever leaves the board, is wished and not fulfilled, or is named and not there."""
    from rkllm_mcp.providers.departures import departures

    return [*departures(config), *_faults(config), *_missing(config)]


def _missing(config: Config) -> list[str]:
    """What the check-up does not find of the models and the servers that are used."""
    refused = _refused(config)
    servers = tuple(_server(server) for server in config.active_servers if server.name not in refused)
    findings = [*check_servers(servers)] if servers else []
    if config.provider.kind == "rkllm":
        findings = [*_library_named(config), *check_model(_model(config)[1]), *_models_beside(config), *findings]
    return [
        f"{finding.name}: {finding.found.rstrip('.')}. {finding.remedy}".rstrip()
        for finding in findings
        if finding.status in ("warn", "fail")
    ]


def _library_named(config: Config) -> list[Finding]:
    """The runtime, where a path says which."""
    if config.runtime.library in (AUTOMATIC, EMULATOR):
        return []
    report = _library(config, emulated=False)
    return [Finding("runtime.library", report.status, report.found, report.remedy)]


def _models_beside(config: Config) -> list[Finding]:
    """The models that are wanted beside the one that answers."""
    wanted = {
        "agent.embedding_model": config.agent.embedding_model if config.active_servers else None,
        "service.embedding_model": config.service.embedding_model,
        "service.ranking_model": config.service.ranking_model,
    }
    reports = {key: _model(config.overridden(model=name))[1] for key, name in wanted.items() if name is not None}
    return [replace(finding, name=key) for key, report in reports.items() for finding in check_model(report)]


def _faults(config: Config) -> list[str]:
    refused = (f"Server '{name}': {refusal}" for name, refusal in _refused(config).items())
    folders = {*config.security.roots, *(root for server in config.active_servers for root in server.roots or ())}
    gone = (
        f"roots: there is no folder {folder}; make it, or correct roots"
        for folder in sorted(folders)
        if not folder.is_dir()
    )
    return [*ineffective(config), *refused, *gone]


def _refused(config: Config) -> dict[str, str]:
    """The servers that will not be started, and why: ``allowed_commands``, no sandbox, a variable that is not set."""
    from rkllm_mcp.assembly import server_specs
    from rkllm_mcp.tools.launch.launching import refusal_here
    from rkllm_mcp.tools.launch.sandbox import missing_place, unusable

    specs = server_specs(config)
    problem = unusable() if any(spec.sandbox for spec in specs) else ""
    refusals = {spec.name: spec.problem for spec in specs}
    for spec in specs:
        if spec.transport == "stdio" and not spec.problem:
            refusals[spec.name] = refusal_here(spec) or (problem or missing_place(spec.sandbox) if spec.sandbox else "")
    return {name: refusal for name, refusal in refusals.items() if refusal}


def diagnose(config: Config, machine: Machine | None = None) -> list[Finding]:
    """Look at the board and at everything that the configuration names; nothing is started.

    Args:
        config: the configuration.
        machine: where; this machine by default.
    """
    source = str(config.source) if config.source else "none, the defaults hold; write one with 'rkllm-mcp config init'"
    servers = tuple(_server(server) for server in config.servers) if config.mcp_enabled else None
    if config.provider.kind == "rkllm":
        model, report = _model(config)
        library = _library(config, emulated=model is not None and model.card.emulated)
        findings = examine(machine or Machine(), Subjects(source, library, report, servers))
        findings += [*_profile(config, model), *_models_beside(config)]
    else:
        subjects = Subjects(source, LibraryReport("", "ok", emulated=True), ModelReport(""), servers)
        looked_at = examine(machine or Machine(), subjects)
        findings = [finding for finding in looked_at if finding.name in _NEEDED_WITHOUT_NPU]
    return [*findings, *_services(config), *(Finding("configuration", "warn", note) for note in _faults(config))]


def _services(config: Config) -> list[Finding]:
    """The services that answer in place of the NPU; none of them is asked anything."""
    from rkllm_mcp.providers.departures import departures
    from rkllm_mcp.providers.service import services_of

    told = (Finding("privacy", "info", line.strip("[]")) for line in departures(config))
    return [*(_service(name, service) for name, service in services_of(config).items()), *told]


def _service(name: str, service: Service) -> Finding:
    from rkllm_mcp.providers.remote import check_sdk

    try:
        check_sdk(service)
    except RuntimeUnusableError as error:
        return Finding(name, "fail", error.message, error.remedy)
    return Finding(name, "ok", f"'{service.model}' at {service.host}, asked over HTTP")


def _model(config: Config) -> tuple[ModelFolder | None, ModelReport]:
    try:
        model = choose_model(config.model, emulated=config.runtime.library == EMULATOR)
    except RuntimeUnusableError as error:
        return None, ModelReport("", error.message, error.remedy)
    except ConfigError as error:
        return None, ModelReport("", str(error))
    context_tokens = config.model.context_tokens or model.card.context_tokens
    size = model.file.stat().st_size if model.file.is_file() else 0
    report = ModelReport(model.name, file_bytes=size, context_tokens=context_tokens, emulated=model.card.emulated)
    if not model.card.emulated:
        try:
            report = replace(report, file=read_rkllm_file(model.file))
        except ModelFileError as error:
            report = replace(report, file_problem=error.message, file_remedy=error.remedy)
    return model, report


def _library(config: Config, *, emulated: bool) -> LibraryReport:
    """What is known of the library; nothing of it is executed."""
    from rkllm_mcp.runtime.library import accepted_abi, find_library
    from rkllm_mcp.runtime.library_file import fingerprint, read_library_file

    where = config.runtime.library
    if where == EMULATOR or (where == AUTOMATIC and emulated):
        return LibraryReport("the emulated NPU, which comes with rkllm-mcp", "ok", emulated=True)
    try:
        path = find_library(where)
        file = read_library_file(path)
        mark = fingerprint(path)
    except RuntimeUnusableError as error:
        return LibraryReport(error.message, "fail", error.remedy)
    report = LibraryReport(
        f"{path}, version {file.version or 'unknown'}",
        "ok",
        emulated=file.is_emulator,
        version=file.version or "",
        git_blob=mark.git_blob,
        official_release=mark.official_release,
        others=_other_libraries(path),
    )
    try:
        abi = accepted_abi(file, config.runtime.abi)
    except RuntimeUnusableError as error:
        return replace(report, found=error.message, status="fail", remedy=error.remedy)
    return replace(report, found=f"{report.found}, interface {abi.name}")


def _profile(config: Config, model: ModelFolder | None) -> list[Finding]:
    """Whether this runtime was probed with this model; nothing where one of them cannot be used."""
    from rkllm_mcp.runtime.library import find_library
    from rkllm_mcp.runtime.profile import kept_profile

    where = config.runtime.library
    if model is None or where == EMULATOR or (where == AUTOMATIC and model.card.emulated):
        return []
    try:
        find_library(where)
    except RuntimeUnusableError:
        return []
    profile = kept_profile(where, model.file)
    if profile is None:
        found = "none; what no document says of this runtime is not known here"
        return [Finding("runtime profile", "info", found, "Measure it once.", "rkllm-mcp doctor --probe")]
    return [Finding("runtime profile", "ok", f"measured {profile.measured_at}, {len(profile.facts)} facts")]


def _other_libraries(chosen: Path) -> tuple[tuple[str, str], ...]:
    """Further libraries that ``auto`` could mean, with the release each names; what cannot be read is left out."""
    from rkllm_mcp.runtime.library import visible_libraries
    from rkllm_mcp.runtime.library_file import read_library_file

    others: list[tuple[str, str]] = []
    for path in visible_libraries():
        if path != chosen:
            with suppress(RuntimeUnusableError):
                others.append((str(path), read_library_file(path).version or "unknown"))
    return tuple(others)


def _server(server: ServerConfig) -> ServerReport:
    problem = _missing_path(server)
    if not isinstance(server, StdioServer):
        address = getattr(server, "url", None) or getattr(server, "openapi_base_url", None) or ""
        how = f"{server.transport} {redacted_text(address)}".strip()
        return ServerReport(server.name, how, server.enabled, problem=problem)
    how = " ".join([server.command, *redacted_arguments(server.args)])
    return ServerReport(server.name, how, server.enabled, server.command, _program(server), problem)


def _missing_path(server: ServerConfig) -> str:
    """The file or folder that a server needs and that is not there, as a sentence; empty when nothing is missing."""
    return next((f"there is no {key} {path}" for key, path in _needed(server) if path and not path.exists()), "")


def _needed(server: ServerConfig) -> Iterator[tuple[str, Path | None]]:
    """What a server needs besides its program, by the word for it."""
    yield "ca_file", cast("Path | None", getattr(server, "ca_file", None))
    if isinstance(server, OpenAPIServer) and isinstance(server.openapi_spec, str):
        from rkllm_mcp.tools.openapi.source import specification_file

        yield "openapi_spec", specification_file(server.openapi_spec)
    if isinstance(server, StdioServer):
        from rkllm_mcp.tools.launch.installation import script_of

        yield "cwd", server.cwd
        yield "script", script_of(server.command, server.args, server.cwd)


def _program(server: StdioServer) -> str | None:
    """Where the program is that a server's own environment finds."""
    path = server.env.get("PATH")
    if "/" in server.command and server.cwd is not None:
        return shutil.which(str(server.cwd / Path(server.command)), path=path)
    return shutil.which(server.command, path=path)
