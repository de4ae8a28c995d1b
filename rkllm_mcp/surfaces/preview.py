"""The prompt a question would get, for a person to look at: ``rkllm-mcp prompt``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rkllm_mcp.calling import CallContext
from rkllm_mcp.surfaces.session import EXIT_DONE, Session, run_async
from rkllm_mcp.surfaces.terminal import BOLD, wants_color


def show_prompt(session: Session, text: str, system: str | None, *, tools: bool, as_json: bool) -> int:
    """Print the prompt part by part, with its token ids and their count."""
    from rkllm_mcp.inspection import open_tools_and_memory, prompt_parts

    context = CallContext(tokens=session.tokens)

    async def work() -> int:
        config = session.config()
        async with open_tools_and_memory(config.overridden(tools=tools), session.status) as equipment:
            await equipment.toolbox.connected()
            async with equipment.toolbox.attending(context.tokens):
                parts = await prompt_parts(config, text, equipment, system, context)
        rows = [(part.label, part.text, part.ids) for part in parts]
        sys.stdout.write(_as_json(rows) if as_json else _as_text(rows))
        sys.stdout.flush()
        return EXIT_DONE

    return run_async(work)


def _as_json(rows: Sequence[tuple[str, str, Sequence[int]]]) -> str:
    parts: list[dict[str, Any]] = [
        {"part": label, "tokens": len(ids), "text": text, "ids": list(ids)} for label, text, ids in rows
    ]
    return f"{json.dumps({'tokens': sum(part['tokens'] for part in parts), 'parts': parts}, ensure_ascii=False)}\n"


def _as_text(rows: Sequence[tuple[str, str, Sequence[int]]]) -> str:
    lines: list[str] = []
    for label, text, ids in rows:
        heading = f"── {label}: {len(ids)} tokens"
        lines += [f"\x1b[{BOLD}m{heading}\x1b[0m" if wants_color(sys.stdout) else heading, text.rstrip("\n")]
        lines.append(f"   ids: {' '.join(str(token_id) for token_id in ids)}")
    lines.append(f"── total: {sum(len(ids) for _, _, ids in rows)} tokens")
    return "\n".join([*lines, ""])
