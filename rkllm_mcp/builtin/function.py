"""A Python function as a tool: argument check, execution and result.

Functions that are not ``async`` run in a daemon thread: one that never returns costs its caller a timeout but does not
block the exit of the process. Exceptions become error results.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import anyio
from pydantic_core import to_jsonable_python

from rkllm_base.json_values import is_long
from rkllm_mcp.events import to_json
from rkllm_mcp.messages import ANSWER, ERROR, ToolSpec
from rkllm_mcp.tasks import run_costly
from rkllm_mcp.toolcalls.arguments import ArgumentError, MismatchError, coerce_arguments
from rkllm_mcp.toolcalls.results import text_result
from rkllm_mcp.toolcalls.schemas import TooManyStepsError, UnresolvableError, first_violation

Function = Callable[..., Any]
_MAX_ERROR_CHARS = 400


# Name of an argument that no schema lists: the user's question, of tools that find their values in it themselves.
QUESTION = "question"


class Sentence(str):
    """A result that answers the user's own words as it is."""

    __slots__ = ()


class LocalToolError(ValueError):
    """Error of a tool; the message is passed to the model unchanged.

    Attributes:
        kind: a word for programs, such as ``not_found``.
        what: the value that cannot be used.
        suggestions: values that can.
    """

    def __init__(self, message: str, kind: str = "unusable", what: str = "", suggestions: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.what = what
        self.suggestions = tuple(suggestions)

    def result(self) -> dict[str, Any]:
        """Return the JSON of the ``tools/call`` result."""
        error = {"kind": self.kind, "what": self.what, "suggestions": list(self.suggestions)}
        return {**text_result(str(self), is_error=True), "_meta": {ERROR: error}}


class FunctionThreads:
    """Daemon threads that neither cancellation nor process exit waits for.

    At most ``most`` run at once; a thread that hangs continues to count.
    """

    def __init__(self, most: int = 8) -> None:
        self._free = threading.BoundedSemaphore(most)

    async def run(self, work: Callable[[], Any]) -> Any:
        """Return the result of ``work`` or raise its exception.

        Raises:
            LocalToolError: all threads are busy.
        """
        if not self._free.acquire(blocking=False):
            raise LocalToolError("It is still busy with former calls; answer without it.")
        finished = anyio.Event()
        results: list[Any] = []
        failures: list[BaseException] = []
        loop = asyncio.get_running_loop()

        def store_outcome() -> None:
            try:
                results.append(work())
            except BaseException as error:  # noqa: BLE001  (SystemExit in foreign code must not end the thread without a result)
                failures.append(error)
            finally:
                self._free.release()
            with suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(finished.set)

        threading.Thread(target=store_outcome, name="local tool", daemon=True).start()
        await finished.wait()
        for error in failures:
            if isinstance(error, Exception):
                raise error
            raise RuntimeError(f"it tried to leave by {type(error).__name__}")
        return results[0]


@dataclass(frozen=True)
class LocalFunction:
    """A tool and its function."""

    tool: ToolSpec  # definition for the model
    function: Function  # takes the arguments by name; returns text, JSON values, or None
    threads: FunctionThreads = field(default_factory=FunctionThreads)
    of_question: Callable[[str], str] | None = None  # answers the user's own words; None if it does not read them
    share_in_data: Callable[[str], float] | None = None  # the part of a question's own words that its data has
    is_answer: bool = False  # what it answers to those is a sentence for a person

    async def call(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Check the arguments and run the function; return the JSON of a ``tools/call`` result."""
        try:
            of_question = self.of_question
            if of_question is not None and set(arguments) == {QUESTION}:
                value = await self.threads.run(lambda: of_question(str(arguments[QUESTION])))
            else:
                schema, is_much = self.tool.input_schema, is_long(arguments)
                coerced = await run_costly(_coerce, arguments, schema) if is_much else _coerce(arguments, schema)
                if inspect.iscoroutinefunction(self.function):
                    value = await self.function(**coerced)
                else:
                    value = await self.threads.run(lambda: self.function(**coerced))
                    value = await value if inspect.isawaitable(value) else value
            text = value if isinstance(value, str) else ""
            if value is not None and not isinstance(value, str):
                try:
                    # Dates, dataclasses and the like as JSON, anything else as text.
                    text = to_json(to_jsonable_python(value, fallback=str))
                except (TypeError, ValueError, RecursionError):
                    text = str(value)
            result = text_result(text)
            is_answer = isinstance(value, Sentence) or (self.is_answer and set(arguments) == {QUESTION})
            return {**result, "_meta": {ANSWER: True}} if is_answer else result
        except LocalToolError as error:
            return error.result()
        except ArgumentError as error:
            return LocalToolError(str(error), "arguments").result()
        except Exception as error:  # noqa: BLE001  (foreign code: any exception becomes an error result)
            what = str(error).strip()[:_MAX_ERROR_CHARS]
            sentence = f"Tool '{self.tool.name}' failed: {type(error).__name__}{f': {what}' if what else ''}"
            return text_result(sentence, is_error=True)


@cache
def definitions() -> dict[str, ToolSpec]:
    """Return the definitions of the built-in tools by name, read from their file at the first use."""
    tools: dict[str, Any] = json.loads(Path(__file__).with_name("tools.json").read_text("utf-8"))
    return {name: ToolSpec(name, **definition) for name, definition in tools.items()}


def _coerce(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Coerce and validate the arguments, limits and patterns included."""
    try:
        coerced: dict[str, Any] = coerce_arguments(arguments, schema).value
    except MismatchError as mismatch:
        raise ArgumentError(mismatch.sentence) from None
    try:
        violation = first_violation(coerced, schema)
    except UnresolvableError:
        return coerced  # an unresolvable reference restricts nothing
    except (TooManyStepsError, RecursionError):
        raise ArgumentError("The arguments cannot be used: they take too much work to check.") from None
    if violation is not None:
        where, message = violation
        what = f"The argument '{where}'" if where else "The arguments"
        raise ArgumentError(f"{what} cannot be used: {message[:200]}.")
    return coerced
