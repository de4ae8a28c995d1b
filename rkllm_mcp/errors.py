"""Every exception of the project, as one tree.

    RkllmMcpError
    ├── ConfigError              the configuration cannot be used                       exit code 2
    ├── UsageError               a command was used wrongly                             exit code 2
    │   └── ModelExchangeError       the model is being exchanged for another
    ├── RuntimeUnusableError     the runtime or the model cannot be used                exit code 3
    │   ├── LibraryNotFoundError     librkllmrt.so was not found
    │   ├── UnknownRuntimeError      the runtime's version is not supported
    │   ├── AbiMismatchError         the marker, the symbols and the defaults disagree
    │   ├── ModelNotFoundError       no model has that name, or its folder is incomplete
    │   ├── ModelLoadError           the runtime refused the model or died loading it
    │   │   └── MemoryShortError         it needs more memory than is available
    │   ├── ModelFileError           not a .rkllm file, incomplete, or not for this board
    │   └── ModelDownloadError       a model's files could not be fetched
    ├── GenerationError          one answer failed; the next may work                   exit code 1
    │   ├── PromptTooLongError       the prompt does not fit the context window
    │   │   └── ServiceTooLongError      a service reports this without figures
    │   ├── ServiceError             a remote model service refused, failed or cannot be reached
    │   ├── InputRefusedError        an input or option is not valid
    │   ├── UnsupportedError         the installed runtime does not support a feature
    │   ├── RunRejectedError         the runtime refused or failed the run
    │   └── WorkerDiedError          the process that owns the NPU died
    ├── QueueFullError           too many requests of one key wait for the NPU
    ├── SchedulerClosedError     the queue before the NPU admits no more requests
    ├── StoreError               the store cannot be read or written
    └── ToolboxError             a server cannot be reached or a tool does not exist
        ├── ServerUnavailableError   also a ConnectionError
        │   └── ServerStartTimeoutError  also a TimeoutError
        ├── ServerRefusedError       a server answered with an error; the session stays open
        ├── NotOfferedError          no server, or more than one, has the named item
        └── ToolTimeoutError         also a TimeoutError

Exceptions build their text from a problem and a remedy (``RkllmMcpError``). A failing tool or an invalid call is a
value for the model instead (messages.ToolResult, events.ToolCallFailed).
"""

from __future__ import annotations

import math
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of a message that suggests the closest of some names; empty if none is close."""
    import difflib

    # The dashes of options would make any two of them alike.
    written = {name.lstrip("-"): name for name in names}
    close = difflib.get_close_matches(name.lstrip("-"), list(written), n=1)
    return f"; did you mean {written[close[0]]!r}?" if close else ""


class RkllmMcpError(Exception):
    """Base class of all exceptions of this project; ``exit_code`` is the exit code of the command line."""

    exit_code = 1
    separator = "; "  # between problem and remedy
    # Problem and remedy with the names of fields; the second is empty where one text has both.
    sentences: ClassVar[tuple[str, str]] = ("", "")

    def __str__(self) -> str:
        problem, remedy = self._parts()
        return f"{problem}{self.separator}{remedy}" if remedy else problem

    @property
    def problem(self) -> str:
        """What is wrong, without the remedy."""
        return self._parts()[0]

    def _parts(self) -> tuple[str, str]:
        """Return the problem and the remedy, which may be empty."""
        problem, remedy = (sentence.format_map(vars(self)) for sentence in self.sentences)
        if not self.sentences[1]:
            # One text has both.
            problem, _, remedy = (problem or super().__str__()).partition(self.separator)
        return problem, remedy


@dataclass(eq=False)
class ConfigError(RkllmMcpError):
    """A configuration file, variable or combination that cannot be used."""

    source: str  # file or environment variable
    key: str  # dotted, such as servers[0].command; empty for the whole source
    found: str
    allowed: str  # allowed values, and so the remedy
    line: int = 0  # of a TOML file, from 1; 0 if it is not known
    exit_code = 2

    def _parts(self) -> tuple[str, str]:
        source = f"{self.source}:{self.line}" if self.line else self.source
        where = f"{source}: {self.key}" if self.key else source
        return f"{where}: found {self.found}", self.allowed


@dataclass(eq=False)
class UsageError(RkllmMcpError):
    """Wrong use of a command; ``message`` names the problem and the correct usage."""

    message: str
    exit_code = 2
    sentences = ("{message}", "")


@dataclass(eq=False)
class ModelExchangeError(UsageError):
    """The model, or the tenant's assistant, is being exchanged for another."""

    message: str = "the model is being exchanged; ask again in a moment"


@dataclass(eq=False)
class RuntimeUnusableError(RkllmMcpError):
    """The runtime or the model cannot be used, with the remedy."""

    message: str
    remedy: str = ""
    exit_code = 3
    separator = " "
    sentences = ("{message}", "{remedy}")


class LibraryNotFoundError(RuntimeUnusableError):
    """librkllmrt.so was not found."""


class UnknownRuntimeError(RuntimeUnusableError):
    """The runtime's version is missing or not supported by this binding."""


class AbiMismatchError(RuntimeUnusableError):
    """The version marker, the exported symbols and the default parameters disagree."""


class ModelNotFoundError(RuntimeUnusableError):
    """No model has that name, or a model folder is incomplete."""


class ModelLoadError(RuntimeUnusableError):
    """The runtime refused the model, or died while loading it."""


class MemoryShortError(ModelLoadError):
    """The model needs more memory than is available; the message contains both figures."""


class ModelFileError(RuntimeUnusableError):
    """The file is not a .rkllm file, is incomplete, or is not for this board."""


class ModelDownloadError(RuntimeUnusableError):
    """A model's files could not be fetched; received data is stored for the next attempt."""


class GenerationError(RkllmMcpError):
    """One answer failed. The engine is ready, or restarting, for the next one."""


@dataclass(eq=False)
class PromptTooLongError(GenerationError):
    """The prompt does not fit the context window, even after compaction."""

    prompt_tokens: int
    limit_tokens: int
    advice: str = (
        "send less text (for a long file: 'rkllm-mcp knowledge add FILE'), use fewer tools, or load a model with a "
        "larger context"
    )
    is_partial: bool = field(default=False, kw_only=True)  # counting stopped at prompt_tokens, which exceed any limit

    def _parts(self) -> tuple[str, str]:
        least = "at least " if self.is_partial else ""
        over = self.prompt_tokens - self.limit_tokens
        size = f"{least}{self.prompt_tokens} tokens, {over} more than the {self.limit_tokens}"
        return f"the prompt has {size} that fit with the answer", self.advice


@dataclass(eq=False)
class ServiceTooLongError(PromptTooLongError):
    """A service rejected a prompt as too long without figures; ``prompt_tokens`` is an estimate."""

    host: str = ""

    def _parts(self) -> tuple[str, str]:
        return f"{self.host} reports that the prompt is too long for its model", self.advice


@dataclass(eq=False)
class ServiceError(GenerationError):
    """A remote model service rejected a request, failed or cannot be reached."""

    host: str
    found: str  # predicate of the sentence that begins with the host
    remedy: str
    status: int = 0  # HTTP status; 0 without a response
    retry_after_s: float | None = None
    sentences = ("{host} {found}", "{remedy}")


class InputRefusedError(GenerationError):
    """An input or option that is not valid, refused before it reaches the runtime; its text names the remedy."""


@dataclass(eq=False)
class NoCallError(GenerationError):
    """The model did not make the call that a request requires; ``reason`` is what was wrong with its last attempt."""

    reason: str = ""

    def _parts(self) -> tuple[str, str]:
        reason = f" ({self.reason})" if self.reason else ""
        return f"the model made no valid call, which tool_choice requires{reason}", "ask again, or with fewer tools"


@dataclass(eq=False)
class AnswerFormatError(GenerationError):
    """The answer does not have the form that a request requires; ``reason`` is what is wrong with it."""

    reason: str
    answer: str
    sentences = (
        "the model gave no answer of the form that was asked for: {reason}",
        "ask again, or with a simpler format. Its answer was: {answer}",
    )


@dataclass(eq=False)
class UnsupportedError(GenerationError):
    """The installed runtime does not support a feature."""

    feature: str  # a noun
    version: str  # the runtime's release
    since: str = ""  # first release with the feature; empty if none is known

    def _parts(self) -> tuple[str, str]:
        remedy = f"it takes {self.since} or newer" if self.since else "do without it"
        return f"RKLLM {self.version} has no {self.feature}", remedy


# Values of RunRejectedError.task.
ANSWER = "this answer"
EVALUATION = "this evaluation"
CALL = "this call"


@dataclass(eq=False)
class RunRejectedError(GenerationError):
    """The runtime refused a run or a call, or reported an error during it."""

    reason: str
    tokens_delivered: int = 0  # 0: the answer can be repeated unnoticed
    task: str = ANSWER
    sentences = ("the runtime failed {task}: {reason}", "ask again, and run 'rkllm-mcp doctor' if it repeats")


@dataclass(eq=False)
class WorkerDiedError(GenerationError):
    """The process that owns the NPU died."""

    exit_code_or_signal: int  # as in subprocess: negative is a signal
    doing: str
    last_lines: tuple[str, ...] = field(default=())  # last output of the runtime
    cause: str = ""  # why this program ended the process, if it did
    advice: str = ""  # remedy, if the restart alone is not enough
    tokens_delivered: int = 0  # 0: the answer can be repeated unnoticed

    @property
    def signal_name(self) -> str | None:
        """Name of the signal (``SIGSEGV``); None if the process exited by itself."""
        if self.exit_code_or_signal >= 0:
            return None
        try:
            return signal.Signals(-self.exit_code_or_signal).name
        except ValueError:
            return f"signal {-self.exit_code_or_signal}"

    def _parts(self) -> tuple[str, str]:
        how = (
            f"was killed by {self.signal_name}" if self.signal_name else f"exited with code {self.exit_code_or_signal}"
        )
        # Informational lines ("I rkllm: …") do not explain a crash.
        line = next((line for line in reversed(self.last_lines) if not line.startswith("I ")), None)
        output = f" (last output: {line})" if line else ""
        why = f" because {self.cause}" if self.cause else ""
        remedy = f"{self.advice}; it" if self.advice else "it"
        problem = f"the runtime's process {how} while {self.doing}{why}{output}"
        return problem, f"{remedy} is restarted for the next question"


@dataclass(eq=False)
class QueueFullError(RkllmMcpError):
    """The queue of this key is full."""

    waiting: int  # number of requests in it
    retry_after_s: float  # expected time until this request would be admitted if it could wait, seconds

    def _parts(self) -> tuple[str, str]:
        return f"{self.waiting} requests wait already", f"ask again in {math.ceil(self.retry_after_s)} seconds"


class SchedulerClosedError(RkllmMcpError):
    """The queue before the NPU admits no more requests."""


@dataclass(eq=False)
class StoreError(RkllmMcpError):
    """The store cannot be read or written."""

    path: str
    found: str
    remedy: str
    sentences = ("{path} cannot be used ({found})", "{remedy}")

    @property
    def cause(self) -> str:
        """Reason and remedy without the path, for clients of a service."""
        return f"{self.found}; {self.remedy}"


class StoreAwayError(StoreError):
    """The database that boards share cannot be reached at present."""


class ToolboxError(RkllmMcpError):
    """A server or tool cannot be used; its text contains reason and remedy."""


class ServerUnavailableError(ToolboxError, ConnectionError):
    """A server could not start, did not initialise in time, or is gone."""


class ServerStartTimeoutError(ServerUnavailableError, TimeoutError):
    """A server was not ready in time."""


class ServerRefusedError(ToolboxError):
    """A server answered a request with an error or an invalid response; the session stays open."""


class NotOfferedError(ToolboxError):
    """No server, or more than one, has the named item."""


class ToolTimeoutError(ToolboxError, TimeoutError):
    """A call exceeded its time limit."""
