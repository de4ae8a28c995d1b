"""One call of a tool without a model: ``rkllm-mcp tools call``.

The person who types it chose the call, but not what a server makes of it: what may change something is asked about at a
terminal, and needs ``--yes`` where nobody can be asked. What a server asks meanwhile is asked there too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rkllm_mcp.calling import Asker, CallContext, Standing
from rkllm_mcp.encode import event_to_json
from rkllm_mcp.events import ToolFinished
from rkllm_mcp.messages import ToolCall
from rkllm_mcp.surfaces.inquiry import Inquirer, Person
from rkllm_mcp.surfaces.lines import ConsoleAnswers
from rkllm_mcp.surfaces.questions import somebody_is_there
from rkllm_mcp.surfaces.session import EXIT_ANSWER_FAILED, EXIT_DONE, Session
from rkllm_mcp.surfaces.terminal import printable
from rkllm_mcp.surfaces.tools import found_tool, read_arguments, with_tools

if TYPE_CHECKING:
    from rkllm_mcp.inspection import Toolbox

_SAY_YES = "Say --yes to allow it."
_NOT_RUN = f"Error: it was not run, because it may change something and nobody could be asked. {_SAY_YES}"


def call(session: Session, name: str, words: Sequence[str], *, as_json: bool, yes: bool) -> int:
    """Call one tool and print what it answers."""
    is_piped = list(words) == ["-"]
    given = [sys.stdin.buffer.read().decode("utf-8", "replace")] if is_piped else words
    asker = _asker(session, yes=yes, can_ask=not is_piped)
    context = CallContext(asker=asker, tokens=session.tokens)

    async def work(toolbox: Toolbox) -> int:
        tool = found_tool(toolbox, name)
        arguments = read_arguments(given, tool.input_schema)
        result = await toolbox.call(ToolCall("call_1", tool.name, arguments), context)
        if as_json:
            seconds = round(result.seconds, 3)
            event = ToolFinished(result.call_id, result.name, result.is_error, result.text, seconds, result.truncated)
            sys.stdout.write(f"{event_to_json(event)}\n")
        elif result.is_error:
            session.terminal.error(_NOT_RUN if result.ruling == "refused" else f"Error: {result.text}")
        else:
            sys.stdout.write(f"{printable(result.text)}\n")
        sys.stdout.flush()
        return EXIT_ANSWER_FAILED if result.is_error else EXIT_DONE

    return with_tools(session, work)


def _asker(session: Session, *, yes: bool, can_ask: bool) -> Asker:
    from rkllm_mcp.inspection import asking_language

    if yes:
        return Standing("once")
    if can_ask and somebody_is_there():
        language = asking_language(session.config())
        return Person(Inquirer(session.terminal, ConsoleAnswers(session.terminal), language))
    return Standing("deny", _SAY_YES)
