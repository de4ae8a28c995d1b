"""Values of a diagnosis: reports as input, findings with status and remedy as output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from rkllm_mcp.mcp_client.lifecycle import ServerState
from rkllm_mcp.models.rkllm_header import RkllmFile

# unknown: could not be checked, usually for lack of permission; info: neither good nor bad.
CheckStatus: TypeAlias = Literal["ok", "warn", "fail", "unknown", "info"]


@dataclass(frozen=True)
class CheckResult:
    """Result of one check."""

    name: str  # subject in one or two words: ``npu driver``
    status: CheckStatus  # ``fail`` prevents answers, ``warn`` makes them slow or likely to fail
    found: str  # observed state
    remedy: str = ""  # next step in words; may be empty
    command: str = ""  # shell command that does it or shows more; may be empty


@dataclass(frozen=True)
class LibraryReport:
    """Properties of the runtime library, determined without loading it."""

    found: str  # path and version, or the reason why none was found
    status: CheckStatus  # usable here or not
    remedy: str = ""  # for an unusable library
    command: str = ""  # for an unusable library
    emulated: bool = False  # the emulated runtime, which needs no NPU
    version: str = ""  # release named by its marker; may be empty
    git_blob: str = ""  # git object id of the file; empty without a file
    official_release: str | None = None  # release whose published library is identical; None if none is
    # other libraries of that name that the loader could find, as path and version
    others: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ModelReport:
    """Properties of the model, determined without loading it."""

    name: str  # empty if no model could be chosen
    problem: str = ""  # reason why it cannot be used, as a sentence; may be empty
    remedy: str = ""  # for the problem
    file_bytes: int = 0  # size of the .rkllm file
    context_tokens: int = 0  # context window
    cache_bytes_per_token: int | None = None  # size of a token in the KV cache; None if unknown
    emulated: bool = False  # a script for the emulated runtime
    file: RkllmFile | None = None  # header of the .rkllm file; None if not read
    file_problem: str = ""  # defect of the file, as a sentence; may be empty
    file_remedy: str = ""  # for the defect


@dataclass(frozen=True)
class ServerReport:
    """Properties of a configured server."""

    name: str
    how: str  # command line or address, without secrets
    enabled: bool = True
    command: str = ""  # required program; empty for servers without one
    program: str | None = None  # path of that program; None if not found
    problem: str = ""  # reason why it is skipped on any machine; may be empty
    state: ServerState | None = None  # result of a start; None if it was not started


@dataclass(frozen=True)
class Subjects:
    """Input of the diagnosis, gathered by the composition root. ``servers`` is None if MCP is disabled."""

    configuration: str
    library: LibraryReport
    model: ModelReport
    servers: tuple[ServerReport, ...] | None = ()
