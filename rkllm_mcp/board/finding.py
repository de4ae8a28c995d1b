"""The values of a check-up: what was looked at, whether it is right, what was found, and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from rkllm_mcp.board.rkllm_file import RkllmFile

# unknown: it could not be looked at, most often for lack of rights; info: neither right nor wrong.
FindingStatus: TypeAlias = Literal["ok", "warn", "fail", "unknown", "info"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Args:
        name: what, in a word or two: ``npu driver``.
        status: ``fail`` keeps answers from being made, ``warn`` makes them slow or likely to fail.
        found: what is there.
        remedy: what to do about it, in words; empty when there is nothing to do.
        command: a line for the shell that does it, or shows more; empty where no line can.
    """

    name: str
    status: FindingStatus
    found: str
    remedy: str = ""
    command: str = ""


@dataclass(frozen=True)
class LibraryReport:
    """What is known of the runtime library without loading it.

    Args:
        found: its path and version, or why there is none.
        status: whether it can be used here.
        remedy: what to do when it cannot.
        emulated: it is the emulated runtime, which needs no NPU.
        version: the release that its marker names; empty without one.
        git_blob: the id that git gives the file; empty when there is none.
        official_release: the release whose published library it is, byte for byte; None when it is none of them.
        others: further libraries of that name that the loader could find, as path and version.
    """

    found: str
    status: FindingStatus
    remedy: str = ""
    emulated: bool = False
    version: str = ""
    git_blob: str = ""
    official_release: str | None = None
    others: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ModelReport:
    """What is known of the model without loading it.

    Args:
        name: the model's name; empty when none could be chosen.
        problem: why it cannot be used, as a sentence; empty when it can.
        remedy: what to do about the problem.
        file_bytes: the size of the .rkllm file.
        context_tokens: its context window.
        emulated: it is a script for the emulated runtime.
        file: what the .rkllm file says about itself; None when that was not read.
        file_problem: why the file is not a good one, as a sentence; empty when it is.
        file_remedy: what to do about that.
    """

    name: str
    problem: str = ""
    remedy: str = ""
    file_bytes: int = 0
    context_tokens: int = 0
    emulated: bool = False
    file: RkllmFile | None = None
    file_problem: str = ""
    file_remedy: str = ""


@dataclass(frozen=True)
class ServerReport:
    """What is known of a configured server without starting it.

    Args:
        name: its name.
        how: its command line or address, without secrets.
        enabled: it is to be connected.
        command: the program it needs; empty for servers without one.
        program: where that program is; None when it is not found.
        problem: why it is skipped wherever it is; empty when it is not.
    """

    name: str
    how: str
    enabled: bool = True
    command: str = ""
    program: str | None = None
    problem: str = ""


@dataclass(frozen=True)
class Subjects:
    """What the host is made of here; gathered by the composition root. ``servers`` is None where MCP is off."""

    configuration: str
    library: LibraryReport
    model: ModelReport
    servers: tuple[ServerReport, ...] | None = ()
