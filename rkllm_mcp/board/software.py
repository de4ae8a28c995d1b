"""Checks of the runtime library, the model and its file, and the configured servers.

The composition root provides the reports; no check starts a program or executes code of a library.

Source: git blob ids of the official libraries; rknn-llm's messages for a model of another SoC or of a newer toolkit;
rknn-llm #534 for models whose answers 1.3.0 does not end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rkllm_mcp.board.finding import Finding, LibraryReport, ModelReport, ServerReport, Subjects
from rkllm_mcp.board.fitness import platform_of
from rkllm_mcp.board.machine import Machine

# Installation of the programs that servers are usually started with: in words, and as a shell command.
_PROGRAMS = {
    "npx": ("Install Node.js 20 or newer.", "sudo apt install nodejs npm"),
    "node": ("Install Node.js 20 or newer.", "sudo apt install nodejs npm"),
    "uvx": ("Install uv.", "pip install uv"),
    "uv": ("Install uv.", "pip install uv"),
    "docker": ("Install Docker.", "sudo apt install docker.io"),
    "python": ('Write command = "${PYTHON}" for the Python that runs rkllm-mcp.', ""),
}
_OR_OFF = "Correct it, or set enabled = false."
_CONVERT = "Take a file made for this board: rkllm-mcp models list shows them."
_BLOB_SHOWN = 12
# Toolkits whose end token 1.3.0 misreads; the host ends such answers by itself.
_ENDLESS_TOOLKITS = ("1.2.2", "1.2.3")
# Releases that were tested against their headers only.
_UNSEEN = {
    "1.3.1": "the interface of 1.3.1 is known by its header's checksum; how it behaves is known from two reports only: "
    "one program runs with it, one died of SIGBUS with driver 0.9.8",
}


def check_library(library: LibraryReport) -> Iterator[Finding]:
    """Check the runtime library, its release by its bytes, and other copies of it."""
    yield Finding("runtime library", library.status, library.found, library.remedy)
    if library.git_blob and not library.emulated:
        yield _release(library)
        if library.version in _UNSEEN:
            yield Finding(
                "runtime behaviour", "info", _UNSEEN[library.version], "The probe shows it.", "rkllm-mcp doctor --probe"
            )
    different = [f"{path} ({version})" for path, version in library.others if version != library.version]
    if different:
        remedy = "Remove the others, or set 'library' in [runtime]."
        yield Finding("other libraries", "warn", ", ".join(different), remedy, "ldconfig -p | grep rkllmrt")


def _release(library: LibraryReport) -> Finding:
    blob = f"git blob {library.git_blob[:_BLOB_SHOWN]}…"
    if library.official_release is None:
        found = f"{blob} is not one of the published libraries up to 1.3.1"
        return Finding("runtime release", "info", found)
    if library.official_release != library.version:
        found = f"{blob} is the published {library.official_release}, and its own text says {library.version or '-'}"
        return Finding("runtime release", "warn", found, "Copy librkllmrt.so again from the RKLLM SDK.")
    return Finding("runtime release", "ok", f"the published {library.official_release}, byte for byte ({blob})")


def check_model(model: ModelReport) -> Iterator[Finding]:
    """Check the configured model."""
    if model.problem:
        yield Finding("model", "fail", model.problem, model.remedy)
        return
    kind = "emulated, a script instead of a real model" if model.emulated else f"{model.file_bytes / 2**30:.2f} GiB"
    yield Finding("model", "ok", f"{model.name} ({kind}), {model.context_tokens} tokens of context")


def check_model_file(machine: Machine, subjects: Subjects) -> Iterator[Finding]:
    """Compare the metadata of the .rkllm file with this board, runtime and configuration."""
    model, file = subjects.model, subjects.model.file
    if model.file_problem:
        yield Finding("model file", "warn", model.file_problem, model.file_remedy)
    if file is None:
        return
    facts = [
        file.platform or "platform not stated",
        f"toolkit {file.toolkit}" if file.toolkit else "toolkit not stated",
        *([f"{file.npu_cores} NPU cores"] if file.npu_cores else []),
        *([f"context up to {file.context_tokens}"] if file.context_tokens else []),
        *([file.architecture] if file.architecture else []),
    ]
    found = ", ".join(facts)
    yield _misfit(machine, subjects, found) or Finding("model file", "ok", found)
    if subjects.library.version == "1.3.0" and file.toolkit in _ENDLESS_TOOLKITS:
        sentence = f"runtime 1.3.0 does not know the end token of models made by {file.toolkit}"
        yield Finding("model end", "info", sentence, "The host ends these answers by itself; no action is needed.")


def _misfit(machine: Machine, subjects: Subjects, found: str) -> Finding | None:
    """Return the reason why the file cannot be used here; None if it can."""
    file, library, wanted = subjects.model.file, subjects.library, subjects.model.context_tokens
    if file is None:
        return None
    here = platform_of(machine)
    if file.platform and here and file.platform != here:
        return Finding("model file", "fail", f"{found}; this board is an {here}", _CONVERT, "rkllm-mcp models list")
    if file.toolkit and library.version and _numbers(file.toolkit) > _numbers(library.version):
        remedy = f"The runtime refuses models of a newer toolkit; install RKLLM {file.toolkit} or newer."
        return Finding("model file", "fail", f"{found}; the runtime is {library.version}", remedy)
    if file.context_tokens and wanted > file.context_tokens:
        remedy = f"Set context_tokens under [model] to {file.context_tokens} or less."
        return Finding("model file", "fail", f"{found}; {wanted} are configured", remedy)
    return None


def _numbers(version: str) -> tuple[int, ...]:
    """Return a release as numbers; a beta counts as the release."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def check_servers(servers: tuple[ServerReport, ...] | None) -> Iterator[Finding]:
    """Check that each configured server can be started."""
    if servers is None:
        yield Finding("servers", "info", "switched off by MCP_ENABLED=false or --no-mcp")
        return
    if not servers:
        yield Finding("servers", "info", "none configured", "Add one.", "rkllm-mcp servers add NAME -- COMMAND ARGS")
    for server in servers:
        name = f"server {server.name}"
        if not server.enabled:
            yield Finding(name, "info", f"switched off: {server.how}")
        elif server.problem:
            yield Finding(name, "warn", f"{server.problem}, so the server is skipped", _OR_OFF)
        elif server.command and server.program is None:
            yield Finding(
                name, "warn", f"{server.command} is not installed, so the server is skipped", *_remedy(server)
            )
        else:
            yield Finding(name, "ok", server.how)


def _remedy(server: ServerReport) -> tuple[str, str]:
    """Return the remedy for a missing program of a server."""
    if " " in server.command:
        return "Write the program alone in 'command' and each of its arguments in 'args'.", ""
    return _PROGRAMS.get(server.command, (f"Install {server.command}, or correct 'command'.", ""))
