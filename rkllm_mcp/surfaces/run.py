"""One answer: ``rkllm-mcp run``."""

from __future__ import annotations

import sys
from contextlib import aclosing
from dataclasses import dataclass

from rkllm_mcp.errors import RkllmMcpError, UsageError
from rkllm_mcp.events import End, EndReason
from rkllm_mcp.surfaces.render import JsonRenderer, Renderer, TerminalRenderer
from rkllm_mcp.surfaces.session import (
    EXIT_ANSWER_FAILED,
    EXIT_DONE,
    EXIT_INTERRUPTED,
    Session,
    emulation_note,
    run_async,
)

# An answer that a limit cut is an answer; the person was told.
EXIT_CODES: dict[EndReason, int] = {
    "answered": EXIT_DONE,
    "round_limit": EXIT_DONE,
    "token_limit": EXIT_DONE,
    "cancelled": EXIT_INTERRUPTED,
    "failed": EXIT_ANSWER_FAILED,
}


@dataclass(frozen=True)
class Question:
    """What is asked, and how.

    Args:
        text: the words.
        system: the system prompt; the configuration's when None.
        force_tool: begin with a call of this tool.
        max_tokens: the longest answer; the configuration's when None.
        tools: the model is shown tools.
    """

    text: str
    system: str | None = None
    force_tool: str | None = None
    max_tokens: int | None = None
    tools: bool = True


def run(session: Session, question: Question, *, as_json: bool) -> int:
    """Answer one question; returns the exit code."""
    if question.force_tool is not None and (not question.tools or session.no_mcp):
        raise UsageError("a tool cannot be forced while tools are switched off; leave one of the two out")
    renderer: Renderer
    if as_json:
        # JSON is UTF-8 whatever the locale says.
        sys.stdout.reconfigure(encoding="utf-8")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        renderer = JsonRenderer()
    else:
        renderer = TerminalRenderer(session.terminal)
    try:
        return _run(session, question, renderer)
    except RkllmMcpError as error:
        if as_json:
            # A reader of the stream waits for its end.
            renderer.show(End("failed", str(error)))
        raise


def _run(session: Session, question: Question, renderer: Renderer) -> int:
    from rkllm_mcp.app import App, ReplyOptions, open_app

    running: list[tuple[App, str]] = []

    def stop() -> bool:
        # A second Ctrl-C does not wait for the answer to end by itself.
        return bool(running) and (last := running.pop())[0].cancel(last[1])

    async def work() -> int:
        config = session.config()
        if not question.tools:
            config = config.overridden(tools=False)
        options = ReplyOptions(question.tools, question.max_tokens, question.force_tool)
        async with open_app(config, status=session.status) as app:
            for status in app.starting():
                renderer.show(status)
            await app.ready()
            if question.force_tool is not None and app.toolbox.resolve(question.force_tool) is None:
                raise unknown_tool(question.force_tool, app.toolbox.suggest(question.force_tool))
            if app.model.card.emulated:
                session.status(emulation_note(app.model.name))
            conversation = app.new_conversation(question.system)
            running.append((app, conversation.id))
            reason: EndReason = "failed"
            async with aclosing(app.reply(conversation, question.text, options)) as events:
                async for event in events:
                    renderer.show(event)
                    reason = event.reason if isinstance(event, End) else reason
        return EXIT_CODES[reason]

    return run_async(work, stop)


def unknown_tool(name: str, suggestion: str | None) -> UsageError:
    """The error of naming a tool that is not there."""
    hint = f"did you mean {suggestion!r}?" if suggestion else "'rkllm-mcp tools list' shows those there are"
    return UsageError(f"there is no tool {name!r}; {hint}")
