"""Functions of an engine that change its model: LoRA adapters, chat template, function tools.

A call is executed after the current run and before the waiting ones. Its effect is restored on a new worker. Every
call may raise the errors of ``Engine.call``; below are the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from rkllm_mcp.errors import InputRefusedError
from rkllm_mcp.runtime.engine import LORA_SETTING, Engine, existing_file
from rkllm_mcp.runtime.inputs import require_c_text

_TEMPLATE = "the chat template"
_TOOLS = "the function tools"


async def load_lora(engine: Engine, path: str | PathLike[str], name: str, *, scale: float = 1.0) -> None:
    """Load a LoRA adapter; a generation selects it with ``GenerationOptions.lora``.

    Args:
        engine: engine of the model.
        path: the adapter's ``.rkllm`` file, converted for this model.
        name: its name in ``GenerationOptions.lora``.
        scale: strength of the adapter.

    Raises:
        InputRefusedError: the file does not exist, or the name is taken or empty.
    """
    require_c_text(name)
    if not name:
        raise InputRefusedError("an adapter needs a name, by which a generation selects it; give it one")
    if name in engine.adapters:
        raise InputRefusedError(f"an adapter '{name}' is loaded already; choose another name")
    arguments = {"path": str(existing_file(path)), "name": name, "scale": scale}
    await engine.call("load_lora", arguments, setting=f"{LORA_SETTING}{name}")


async def set_chat_template(engine: Engine, system: str, prefix: str, postfix: str) -> None:
    """Wrap text inputs in these texts instead of the model's own template.

    The runtime concatenates system, prefix, text and postfix, clears the KV cache, and ignores thinking and function
    tools from then on (rknn-llm #377, #431). Token inputs are not affected.

    Raises:
        InputRefusedError: a part holds a NUL character.
    """
    require_c_text(system, prefix, postfix)
    arguments = {"system": system, "prefix": prefix, "postfix": postfix}
    await engine.call("set_chat_template", arguments, setting=_TEMPLATE, cold=True)


async def set_function_tools(
    engine: Engine, tools: Sequence[Mapping[str, Any]], *, system: str = "", response_tag: str = "tool_response"
) -> None:
    """Describe tools in the runtime's own prompt for text inputs (1.2.1 on); requires the model's own template.

    Args:
        engine: engine of the model.
        tools: OpenAI-style ``{"type": "function", "function": {…}}``.
        system: system text of the prompt.
        response_tag: tag around results, as in the model's template.

    Raises:
        InputRefusedError: the list is empty (rknn-llm #377) or not JSON.
        RunRejectedError: the model has no template of its own, or it was replaced.
    """
    require_c_text(system, response_tag)
    if not tools:
        raise InputRefusedError("there are no tools to set; leave the call out")
    try:
        described = json.dumps(list(tools), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InputRefusedError(f"the tools are no JSON: {error}; use plain values") from None
    arguments = {"system": system, "tools": described, "response_tag": response_tag}
    await engine.call("set_function_tools", arguments, needs="has_function_tools", setting=_TOOLS)
