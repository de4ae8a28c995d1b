"""Adjustments: what can be changed about a loaded model between two generations, as methods of the engine.

Each method waits for the generation under way and goes before those that wait. What it sets outlives the worker: a new
one is told again. Where the runtime at hand has no such function the method says which release has it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from rkllm_mcp.errors import InputRefusedError
from rkllm_mcp.runtime.inputs import require_c_text

_LORA = "the LoRA adapter "
_PROMPT_CACHE = "the prompt cache"
_TEMPLATE = "the chat template"
_TOOLS = "the function tools"


class Extras(ABC):
    """The part of an engine that changes its model."""

    @abstractmethod
    async def _call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        needs: str = "",
        setting: str = "",
        cold: bool | None = None,
        holds: Sequence[int] = (),
        owner: str | None = None,
    ) -> int | None:
        """Call a function of the model."""

    @abstractmethod
    def _drop(self, setting: str) -> None:
        """Tell a new worker no more."""

    @property
    @abstractmethod
    def _kept(self) -> tuple[str, ...]:
        """The names of what a new worker is told."""

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of the LoRA adapters that are loaded."""
        return tuple(name.removeprefix(_LORA) for name in self._kept if name.startswith(_LORA))

    async def load_lora(self, path: str | PathLike[str], name: str, *, scale: float = 1.0) -> None:
        """Load a LoRA adapter; a generation selects it with ``GenerationOptions.lora``.

        Args:
            path: the adapter's ``.rkllm`` file, converted for this model.
            name: what to call it.
            scale: the strength with which it is applied.

        Raises:
            InputRefusedError: there is no such file, or the name is taken or empty.
            RunRejectedError: the runtime refused it.
            WorkerDiedError: the worker died of it.
        """
        require_c_text(name)
        if not name:
            raise InputRefusedError("an adapter needs a name, by which a generation selects it; give it one")
        if name in self.adapters:
            raise InputRefusedError(f"an adapter '{name}' is loaded already; choose another name")
        arguments = {"path": str(_existing(path)), "name": name, "scale": scale}
        await self._call("load_lora", arguments, setting=f"{_LORA}{name}")

    async def load_prompt_cache(
        self, path: str | PathLike[str], *, tokens: Sequence[int] = (), owner: str | None = None
    ) -> None:
        """Fill the KV cache from a file that a generation saved; the next prompt that begins like it prefills the rest.

        Args:
            path: the file.
            tokens: the ids of the prompt that it holds, where they are known; for what runs are expected to prefill.
            owner: whose prompt it is, as for ``GenerationOptions``.

        Raises:
            InputRefusedError: there is no such file.
            RunRejectedError: the runtime refused it; it belongs to another model or release.
            WorkerDiedError: the worker died of it.
        """
        if _PROMPT_CACHE in self._kept:
            # Files may only be changed after the last one was released (SDK guide 1.3.0, 3.2.9).
            await self.release_prompt_cache()
        arguments = {"path": str(_existing(path))}
        await self._call("load_prompt_cache", arguments, setting=_PROMPT_CACHE, cold=False, holds=tokens, owner=owner)

    async def release_prompt_cache(self) -> None:
        """Give up the loaded prompt cache; without one, nothing.

        Raises:
            RunRejectedError: the runtime refused.
            WorkerDiedError: the worker died before it answered.
        """
        if _PROMPT_CACHE in self._kept:
            await self._call("release_prompt_cache", {}, cold=False)
            self._drop(_PROMPT_CACHE)

    async def set_chat_template(self, system: str, prefix: str, postfix: str) -> None:
        """Put text inputs between these, and nothing else, instead of the model's own template.

        The runtime joins system, prefix, text and postfix as they are, empties the KV cache, and from then on ignores
        thinking and function tools (rknn-llm #377, #431). Token inputs are not touched.

        Raises:
            InputRefusedError: a part holds a NUL character.
            RunRejectedError: the runtime refused.
            WorkerDiedError: the worker died before it answered.
        """
        require_c_text(system, prefix, postfix)
        arguments = {"system": system, "prefix": prefix, "postfix": postfix}
        await self._call("set_chat_template", arguments, setting=_TEMPLATE, cold=True)

    async def set_function_tools(
        self, tools: Sequence[Mapping[str, Any]], *, system: str = "", response_tag: str = "tool_response"
    ) -> None:
        """Describe tools in the runtime's own prompt for text inputs (1.2.1 on); it needs the model's own template.

        Args:
            tools: OpenAI-style ``{"type": "function", "function": {…}}``.
            system: the system text beside them.
            response_tag: what results are wrapped in, as the model's template has it.

        Raises:
            InputRefusedError: there are no tools (rknn-llm #377), or they are no JSON.
            UnsupportedError: the runtime has none.
            RunRejectedError: the runtime refused; the model has no template of its own, or it was replaced.
            WorkerDiedError: the worker died before it answered.
        """
        require_c_text(system, response_tag)
        if not tools:
            raise InputRefusedError("there are no tools to set; leave the call out")
        try:
            described = json.dumps(list(tools), ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise InputRefusedError(f"the tools are no JSON: {error}; use plain values") from None
        arguments = {"system": system, "tools": described, "response_tag": response_tag}
        await self._call("set_function_tools", arguments, needs="has_function_tools", setting=_TOOLS)


def _existing(path: str | PathLike[str]) -> Path:
    found = Path(path).expanduser().absolute()
    if not found.is_file():
        raise InputRefusedError(f"there is no file {found}; correct the path")
    return found
