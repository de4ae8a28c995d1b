"""Every exception of the project, as one tree.

    RkllmMcpError
    ├── ConfigError              the configuration cannot be used                       exit code 2
    ├── UsageError               a command was used wrongly                             exit code 2
    ├── RuntimeUnusableError     the runtime or the model cannot be used                exit code 3
    │   ├── LibraryNotFoundError     no librkllmrt.so where one was looked for
    │   ├── UnknownRuntimeError      a runtime whose version is not known to work
    │   ├── AbiMismatchError         the marker, the symbols and the defaults disagree
    │   ├── ModelNotFoundError       no model of that name, or an incomplete model folder
    │   ├── ModelLoadError           the runtime refused or did not survive loading the model
    │   │   └── MemoryShortError         it needs more memory than is available
    │   ├── ModelFileError           a file that is no .rkllm file, not a whole one, or not one for this board
    │   └── ModelDownloadError       a model's files could not be fetched
    ├── GenerationError          one answer failed; the next may work                   exit code 1
    │   ├── PromptTooLongError       the prompt does not fit the context window
    │   │   └── ServiceTooLongError      a service says so of its own, without figures
    │   ├── ServiceError             a service that answers in place of the NPU refused, failed or cannot be reached
    │   ├── InputRefusedError        an input or an option that cannot work
    │   ├── UnsupportedError         the runtime at hand is too old for what was asked
    │   ├── RunRejectedError         the runtime refused or failed the run
    │   └── WorkerDiedError          the process that owns the NPU died
    ├── StoreError               what is remembered between runs cannot be read or kept
    └── ToolboxError             a server cannot be reached or a tool does not exist
        ├── ServerUnavailableError   also a ConnectionError
        │   └── ServerStartTimeoutError  also a TimeoutError
        ├── ServerRefusedError       a server answered a request with an error; the session goes on
        ├── NotOfferedError          no server, or more than one, has what was named
        └── ToolTimeoutError         also a TimeoutError

Errors carry fields and build their sentence from them; the sentence ends with what the reader can do. A failing tool or
an unreadable call is not here: it is a value that the model sees (messages.ToolResult, events.ToolCallFailed).
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field


class RkllmMcpError(Exception):
    """Anything this project raises on purpose; ``exit_code`` is what the command line returns for it."""

    exit_code = 1


@dataclass(eq=False)
class ConfigError(RkllmMcpError):
    """A configuration file, variable or combination that cannot be used.

    Args:
        source: the file or environment variable that holds the value.
        key: dotted key, such as ``servers[0].command``; empty when the whole source is meant.
        found: what stands there.
        allowed: what may stand there, and so what to do.
    """

    source: str
    key: str
    found: str
    allowed: str
    exit_code = 2

    def __str__(self) -> str:
        where = f"{self.source}: {self.key}" if self.key else self.source
        return f"{where}: found {self.found}; {self.allowed}"


@dataclass(eq=False)
class UsageError(RkllmMcpError):
    """A command used wrongly; ``message`` says what is wrong and what to type instead."""

    message: str
    exit_code = 2

    def __str__(self) -> str:
        return self.message


@dataclass(eq=False)
class RuntimeUnusableError(RkllmMcpError):
    """The runtime or the model cannot be used; ``message`` says why, ``remedy`` what to do."""

    message: str
    remedy: str = ""
    exit_code = 3

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


class LibraryNotFoundError(RuntimeUnusableError):
    """No librkllmrt.so where one was looked for."""


class UnknownRuntimeError(RuntimeUnusableError):
    """A runtime whose version is missing or not one that this binding knows."""


class AbiMismatchError(RuntimeUnusableError):
    """The version marker, the exported symbols and the default parameters disagree."""


class ModelNotFoundError(RuntimeUnusableError):
    """No model of that name, or a model folder that lacks something."""


class ModelLoadError(RuntimeUnusableError):
    """The runtime refused the model or did not survive loading it."""


class MemoryShortError(ModelLoadError):
    """The model needs more memory than is available; the message names both figures."""


class ModelFileError(RuntimeUnusableError):
    """A file that is no .rkllm file, not a whole one, or not one for this board."""


class ModelDownloadError(RuntimeUnusableError):
    """A model's files could not be fetched; what has arrived is kept for the next try."""


class GenerationError(RkllmMcpError):
    """One answer failed. The engine is ready, or restarting, for the next one."""


@dataclass(eq=False)
class PromptTooLongError(GenerationError):
    """The prompt does not fit the context window, also after compaction.

    Args:
        prompt_tokens: how long it is.
        limit_tokens: how long it may be.
        advice: what to do.
        is_partial: it was counted no further than that, because it is far too long in any case.
    """

    prompt_tokens: int
    limit_tokens: int
    advice: str = "shorten the question, use fewer tools, or load a model with a larger context"
    is_partial: bool = field(default=False, kw_only=True)

    def __str__(self) -> str:
        least = "at least " if self.is_partial else ""
        over = self.prompt_tokens - self.limit_tokens
        return (
            f"the prompt has {least}{self.prompt_tokens} tokens, {over} more than the {self.limit_tokens} that fit "
            f"beside the answer; {self.advice}"
        )


@dataclass(eq=False)
class ServiceTooLongError(PromptTooLongError):
    """A service refused a prompt as too long and told no figures; ``prompt_tokens`` is an estimate."""

    host: str = ""

    def __str__(self) -> str:
        return f"{self.host} says that the prompt is too long for its model; {self.advice}"


@dataclass(eq=False)
class ServiceError(GenerationError):
    """A service that answers in place of the NPU refused, failed or cannot be reached.

    Args:
        host: the service.
        found: what happened, as what follows its name.
        remedy: what to do.
        status: the HTTP status; 0 where there was none.
        retry_after_s: when the service wants to be asked again, seconds; None when it did not say.
    """

    host: str
    found: str
    remedy: str
    status: int = 0
    retry_after_s: float | None = None

    def __str__(self) -> str:
        return f"{self.host} {self.found}; {self.remedy}"


@dataclass(eq=False)
class InputRefusedError(GenerationError):
    """An input or an option that cannot work, refused before the runtime sees it; ``message`` says what to change."""

    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(eq=False)
class UnsupportedError(GenerationError):
    """The runtime at hand cannot do what was asked.

    Args:
        feature: what was asked, as a noun.
        version: the runtime's release.
        since: the first release that can; empty when none is known.
    """

    feature: str
    version: str
    since: str = ""

    def __str__(self) -> str:
        remedy = f"it takes {self.since} or newer" if self.since else "do without it"
        return f"RKLLM {self.version} has no {self.feature}; {remedy}"


# What a RunRejectedError is about.
ANSWER = "this answer"
EVALUATION = "this evaluation"
CALL = "this call"


@dataclass(eq=False)
class RunRejectedError(GenerationError):
    """The runtime refused a run or a call, or reported an error in the middle of it.

    Args:
        reason: what it said.
        tokens_delivered: tokens of this answer that came before; with 0 it can be asked for again unseen.
        task: what failed: ``ANSWER``, ``EVALUATION`` or ``CALL``.
    """

    reason: str
    tokens_delivered: int = 0
    task: str = ANSWER

    def __str__(self) -> str:
        return f"the runtime failed {self.task}: {self.reason}; ask again, and run 'rkllm-mcp doctor' if it repeats"


@dataclass(eq=False)
class WorkerDiedError(GenerationError):
    """The process that owns the NPU died in the middle of something.

    Args:
        exit_code_or_signal: as subprocess reports it: negative is the signal that killed it.
        doing: what it was doing.
        last_lines: the last lines the runtime printed.
        cause: why it was ended, where this program ended it.
        advice: what to do about it, where waiting for the restart is not enough.
        tokens_delivered: tokens of this answer that came before; with 0 it can be asked for again unseen.
    """

    exit_code_or_signal: int
    doing: str
    last_lines: tuple[str, ...] = field(default=())
    cause: str = ""
    advice: str = ""
    tokens_delivered: int = 0

    @property
    def signal_name(self) -> str | None:
        """The signal's name (``SIGSEGV``), or None when the process exited by itself."""
        if self.exit_code_or_signal >= 0:
            return None
        try:
            return signal.Signals(-self.exit_code_or_signal).name
        except ValueError:
            return f"signal {-self.exit_code_or_signal}"

    def __str__(self) -> str:
        how = (
            f"was killed by {self.signal_name}" if self.signal_name else f"exited with code {self.exit_code_or_signal}"
        )
        # What the runtime tells in passing ("I rkllm: …") explains no death.
        words = next((line for line in reversed(self.last_lines) if not line.startswith("I ")), None)
        said = f" (last words: {words})" if words else ""
        why = f" because {self.cause}" if self.cause else ""
        remedy = f"{self.advice}; it" if self.advice else "it"
        return f"the runtime's process {how} while {self.doing}{why}{said}; {remedy} is restarted for the next question"


@dataclass(eq=False)
class StoreError(RkllmMcpError):
    """What is remembered between runs cannot be read or kept.

    Args:
        path: the file.
        found: what is wrong with it.
        remedy: what to do.
    """

    path: str
    found: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.path} cannot be used ({self.found}); {self.remedy}"


@dataclass(eq=False)
class ToolboxError(RkllmMcpError):
    """A server cannot be used; ``message`` says why and what to do."""

    message: str

    def __str__(self) -> str:
        return self.message


class ServerUnavailableError(ToolboxError, ConnectionError):
    """A server could not start, did not initialise in time, or is gone."""


class ServerStartTimeoutError(ServerUnavailableError, TimeoutError):
    """A server was not ready in time."""


class ServerRefusedError(ToolboxError):
    """A server answered a request with an error, or with what cannot be read; its session goes on."""


class NotOfferedError(ToolboxError):
    """What was named is no server's, or several servers have it."""


class ToolTimeoutError(ToolboxError, TimeoutError):
    """A call outlasted its limit."""
