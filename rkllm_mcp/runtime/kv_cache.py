"""Known content of the runtime's KV cache, and when it must be cleared before a run.

The owners of the cached prompts are tracked, too: reported reuse must not depend on another owner's prompts, or a
guessed prompt could be confirmed by the number of reused tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rkllm_mcp.generation import IMAGE_MARK, ImageInput, common_prefix
from rkllm_mcp.runtime.frames import RunCommand
from rkllm_mcp.runtime.run import Run, RunState

# Owner of content of unknown origin; no tenant has this name.
_UNKNOWN = "\0"


@dataclass(frozen=True)
class _Images:
    """The images of a prompt: the same ones are at the same positions where the same text leads to the last of them."""

    digests: tuple[str, ...] = ()
    leading_text: str = ""

    def __bool__(self) -> bool:
        return bool(self.digests or self.leading_text)


_NO_IMAGES = _Images()


@dataclass(eq=False)
class CacheState:
    """Known state of the KV cache of one engine."""

    reuses_prefix: bool = True
    ids: Sequence[int] = ()  # token ids that the cache certainly holds, from its start; empty if unknown
    is_cold: bool = True  # True if the cache is known to be empty
    _lora: str | None = None
    _owners: frozenset[str] = frozenset()  # owners of prompts that may still be in the cache
    images: _Images = _NO_IMAGES  # those that may still be in the cache
    _shared: Sequence[int] = ()  # last prompt of the service itself; every owner may know it

    def on_clear(self) -> None:
        """Note that the cache was cleared, or belongs to a new worker."""
        self.ids, self.is_cold = (), True
        self._owners, self.images = frozenset(), _NO_IMAGES

    def on_load(self, ids: Sequence[int] = (), owner: str | None = None) -> None:
        """Note content loaded from a prompt cache, with its ids and owner if they are known."""
        self.ids, self.is_cold = ids, False
        if not ids:
            self._owners |= {_UNKNOWN}
        elif owner is None:
            self._owners, self._shared = frozenset(), ids
        else:
            self._owners = frozenset((owner,))

    def count_uncached(self, tokens: Sequence[int], owner: str | None = None) -> int:
        """Return how many of these ids a run evaluates at most, as it may be reported to ``owner``.

        At least one, as the last one's logits are needed.
        """
        uncached = max(1, len(tokens) - common_prefix(tokens, self.ids))
        visible = self.own_tokens(tokens, owner)
        return uncached if visible is None else max(uncached, len(tokens) - visible)

    def own_tokens(self, tokens: Sequence[int], owner: str | None) -> int | None:
        """Return the upper limit of reused ids to report to ``owner``; None without a limit.

        An earlier run of the same owner counts only if no other owner's run came after it: the remaining length would
        reveal how similar the two prompts are.
        """
        if owner is None or self._owners <= {owner}:
            return None
        return common_prefix(tokens, self._shared)

    def before(self, command: RunCommand) -> RunCommand:
        """Return the command with the necessary clearing of the cache.

        The cache is cleared because images that are not those of the cache, each at its position, are answered wrongly
        (rknn-llm #257, #373, rkllama #175), and because it is undocumented whether the runtime knows the adapter of its
        cache.
        """
        # Images without digests are never known to be the same.
        has_other_images = bool(self.images) and not (self.images.digests and self.images == _images(command))
        has_other_adapter = command.options.lora != self._lora and not self.is_cold
        return replace(command, clears_before=True) if has_other_images or has_other_adapter else command

    def after(self, run: Run, command: RunCommand) -> None:
        """Note the end of a run."""
        if command.clears_after:
            self.on_clear()
            return
        self._lora = command.options.lora
        self.images = _images(command)
        # A run that delivered a token has evaluated its whole prompt, which replaces all earlier content. Without a
        # token its progress is unknown, and the content after a failed run is undocumented.
        is_whole = run.state is RunState.DONE and bool(run.ids)
        # The token sampled last was not evaluated (observed on 1.3.1).
        self.ids = [*run.tokens, *run.ids[:-1]] if self.reuses_prefix and is_whole and run.tokens else ()
        owner = run.command.options.owner
        new: frozenset[str] = frozenset() if owner is None else frozenset((owner,))
        self._owners = new if is_whole else self._owners | new
        if owner is None and is_whole:
            self._shared = run.tokens


def _images(command: RunCommand) -> _Images:
    prompt = command.prompt
    if not isinstance(prompt, ImageInput):
        return _NO_IMAGES
    return _Images(prompt.digests, prompt.text.rpartition(IMAGE_MARK)[0])
