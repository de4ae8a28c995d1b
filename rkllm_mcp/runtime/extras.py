"""Functions of an engine that change its model: LoRA adapters, chat template.

A call is executed after the current run and before the waiting ones. Its effect is restored on a new worker. Every
call may raise the errors of ``Engine.call``; below are the others.
"""

from __future__ import annotations

from os import PathLike

from rkllm_mcp.errors import InputRefusedError
from rkllm_mcp.runtime.engine import LORA_SETTING, Engine
from rkllm_mcp.runtime.inputs import existing_file, require_c_text

_TEMPLATE = "the chat template"


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
    """Wrap the text of image inputs in these texts instead of the model's own template.

    The runtime concatenates system, prefix, text and postfix, clears the KV cache, and ignores thinking from then on
    (rknn-llm #377, #431). Token inputs are not affected.

    Raises:
        InputRefusedError: a part holds a NUL character.
    """
    require_c_text(system, prefix, postfix)
    arguments = {"system": system, "prefix": prefix, "postfix": postfix}
    await engine.call("set_chat_template", arguments, setting=_TEMPLATE, cold=True)
