"""One answer: ``rkllm-mcp run``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

from rkllm_mcp.errors import RkllmMcpError, UsageError
from rkllm_mcp.events import End, EndReason
from rkllm_mcp.surfaces.answering import Answering
from rkllm_mcp.surfaces.inquiry import Inquirer
from rkllm_mcp.surfaces.lines import ConsoleAnswers
from rkllm_mcp.surfaces.phrases import PHRASES
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
        approvals: what becomes of calls that need a yes: the person at the terminal is asked, or it stands beforehand.
    """

    text: str
    system: str | None = None
    force_tool: str | None = None
    max_tokens: int | None = None
    tools: bool = True
    approvals: Literal["ask", "grant", "refuse"] = "refuse"


def run(session: Session, question: Question, *, as_json: bool) -> int:
    """Answer one question; returns the exit code."""
    if question.force_tool is not None and (not question.tools or session.no_mcp):
        raise UsageError("a tool cannot be forced while tools are switched off; leave one of the two out")
    if not as_json:
        return _run(session, question, None)
    # JSON is UTF-8 whatever the locale says.
    sys.stdout.reconfigure(encoding="utf-8")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    renderer = JsonRenderer()
    try:
        return _run(session, question, renderer)
    except RkllmMcpError as error:
        # A reader of the stream waits for its end.
        renderer.show(End("failed", str(error)))
        raise


def _run(session: Session, question: Question, program: Renderer | None) -> int:
    """Answer for a program, or for the person at the terminal where there is none."""
    from rkllm_mcp.app import App, ReplyOptions, open_app
    from rkllm_mcp.inspection import asking_language

    tokens = session.tokens
    running: list[tuple[App, str]] = []

    def stop() -> bool:
        # A second Ctrl-C does not wait for the answer to end by itself.
        return bool(running) and (last := running.pop())[0].cancel(last[1])

    async def work() -> int:
        config = session.config()
        if not question.tools:
            config = config.overridden(tools=False)
        language = asking_language(config)
        phrases = PHRASES[language]
        renderer = program or TerminalRenderer(session.terminal, phrases)
        inquirer: Inquirer | None = None
        if question.approvals == "ask":
            inquirer = Inquirer(session.terminal, ConsoleAnswers(session.terminal), language)
        options = ReplyOptions(question.tools, question.max_tokens, question.force_tool, question.approvals, tokens)
        async with open_app(config, status=session.status, one_shot=True) as app:
            for status in app.starting():
                renderer.show(status)
            await app.ready()
            if question.force_tool is not None and app.toolbox.resolve(question.force_tool) is None:
                raise unknown_tool(question.force_tool, app.toolbox.suggest(question.force_tool))
            if app.core.is_emulated:
                session.status(emulation_note(app.core.name, language))
            conversation = app.new_conversation(question.system)
            running.append((app, conversation.id))
            events = app.reply(conversation, question.text, options)
            answering = Answering(app, session.terminal, inquirer, phrases=phrases)
            reason = await answering.follow(conversation.id, events, renderer.show)
        return EXIT_CODES[reason]

    return run_async(work, stop)


def unknown_tool(name: str, suggestion: str | None) -> UsageError:
    """The error of naming a tool that is not there."""
    hint = f"did you mean {suggestion!r}?" if suggestion else "'rkllm-mcp tools list' shows those there are"
    return UsageError(f"there is no tool {name!r}; {hint}")
