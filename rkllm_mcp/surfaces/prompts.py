"""The questions that the configured servers have prepared, without a model: ``rkllm-mcp prompts``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rkllm_mcp.calling import CallContext
from rkllm_mcp.surfaces.offers import prompt_dict, prompt_table, read_pairs
from rkllm_mcp.surfaces.session import EXIT_DONE, Session
from rkllm_mcp.surfaces.terminal import printable
from rkllm_mcp.surfaces.tools import with_tools, write_json

if TYPE_CHECKING:
    from rkllm_mcp.inspection import Toolbox


def list_all(session: Session, server: str | None, *, as_json: bool) -> int:
    """Print the prompts of every server, or of one."""
    context = CallContext(tokens=session.tokens)

    async def work(toolbox: Toolbox) -> int:
        prompts = await toolbox.offerings.prompts(server, context)
        if as_json:
            write_json([prompt_dict(prompt) for prompt in prompts])
            return EXIT_DONE
        sys.stdout.write(prompt_table(prompts, session.terminal.columns))
        if not prompts:
            session.status("No prompts; 'rkllm-mcp servers test' says how the servers are.")
        return EXIT_DONE

    return with_tools(session, work)


def get(session: Session, reference: str, words: Sequence[str], *, as_json: bool) -> int:
    """Print a prompt with its blanks filled, turn by turn."""
    arguments = read_pairs(words)
    context = CallContext(tokens=session.tokens)

    async def work(toolbox: Toolbox) -> int:
        filled = await toolbox.offerings.fill_prompt(reference, arguments, context)
        turns = [(message.role, message.text) for message in filled.messages]
        if as_json:
            template = filled.template
            messages = [{"role": role, "text": text} for role, text in turns]
            write_json({"server": template.server, "name": template.name, "messages": messages})
        else:
            sys.stdout.write("\n\n".join(f"── {role}\n{printable(text)}" for role, text in turns) + "\n")
        return EXIT_DONE

    return with_tools(session, work)
