"""The values of one generation: what goes to an engine, and what comes back.

What goes in is a sequence of token ids, or one of the four inputs of the runtime (``Input``). A generation yields Token
values as the runtime delivers them and closes with one RunStats; an evaluation, which generates nothing, returns Rows.
The port that providers ask for is ``Generator`` below; runtime.engine.Engine is its real implementation.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, Protocol

# Whose turn a text is: the runtime knows no other roles
Role = Literal["user", "tool"]


@dataclass(frozen=True)
class TokenInput:
    """Token ids, used as they are: the only input to which the runtime adds nothing."""

    tokens: Sequence[int]


@dataclass(frozen=True)
class TextInput:
    """Text, to which the runtime applies the model's chat template; control tokens written in it count as such.

    Args:
        text: one turn, without NUL; for the role ``tool`` the results as JSON, an array for several.
        role: whose turn it is (1.2.1 on).
        thinking: whether a model that can think does (1.2.1 on); None leaves it to the runtime, which says no.
    """

    text: str
    role: Role = "user"
    thinking: bool | None = None


@dataclass(frozen=True)
class EmbeddingInput:
    """A prompt as embeddings, one per token.

    Args:
        values: float32, one row after the other.
        tokens: how many rows.
    """

    values: array[float]
    tokens: int


@dataclass(frozen=True)
class ImageTags:
    """What stands around and in place of an image's tokens in the prompt; they depend on the model."""

    start: str
    end: str
    content: str


@dataclass(frozen=True)
class ImageInput:
    """A text with images that a vision encoder has already turned into embeddings.

    Args:
        text: one turn, with ``<image>`` where each image belongs.
        values: float32 embeddings of all images, one row per token, one image after the other.
        tokens_per_image: rows of one image (of all outputs of the encoder, where it has several).
        images: how many; 1.2.0 takes one.
        width: of the images as encoded, pixels, for models with M-RoPE (1.2.1 on); 0 where the model does not ask.
        height: the same.
        tags: for 1.3.0 on; before, they are given when the model is loaded (``EngineSettings.image_tags``).
        role: whose turn it is (1.2.1 on).
        thinking: as for text.
    """

    text: str
    values: array[float]
    tokens_per_image: int
    images: int = 1
    width: int = 0
    height: int = 0
    tags: ImageTags | None = None
    role: Role = "user"
    thinking: bool | None = None


Input = TokenInput | TextInput | EmbeddingInput | ImageInput


@dataclass(frozen=True)
class Token:
    """One token: its id, and the text it completed (empty while a character is unfinished)."""

    id: int
    text: str


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. The fields are the runtime's own; ``top_k=1`` is greedy."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.9
    repeat_penalty: float = 1.1
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1


@dataclass(frozen=True)
class SamplingWish:
    """What one request wants of the sampling; None keeps what the model has.

    Args:
        temperature: 0 takes the likeliest token.
        top_k: choose among this many likeliest tokens.
        top_p: choose among the likeliest tokens that together have this probability.
        repeat_penalty: above 1 makes repetitions less likely.
        frequency_penalty: above 0 makes a token less likely the more often it came.
        presence_penalty: above 0 makes a token that came less likely.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repeat_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None

    def over(self, base: Sampling) -> Sampling:
        """``base`` with what is wished for."""
        wished = {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}
        sampling = replace(base, **wished)
        if sampling.temperature == 0:
            # The likeliest token is meant; what the runtime does with a zero is not known.
            return replace(sampling, top_k=1)
        if base.temperature == 0 and self.top_k is None:
            # The base takes the likeliest token, and the wish is another.
            return replace(sampling, top_k=Sampling.top_k)
        return sampling


@dataclass(frozen=True)
class GenerationOptions:
    """One generation's limits and switches.

    Args:
        max_new_tokens: after this many tokens the run is ended.
        stop_ids: token ids that end the answer; where the runtime does not end there by itself the run is aborted.
        sampling: per-run sampling where the runtime can (1.3.0 on); None keeps what the model was loaded with.
        stop_strings: texts that end the answer and are no part of it. A token is held back while its text may still
            be the beginning of one; of the tokens that spell one, the ids come and the text does not.
        lora: name of the adapter to use, loaded with ``Engine.load_lora``; None for the model itself.
        save_prompt_cache: the runtime writes the evaluated prompt to this file when the run ends.
        keep_history: the runtime appends to the runs before instead of comparing prompts; the next run without it
            begins with an empty cache.
        pause_after_tokens: the run pauses after this many tokens, which ends the generation with ``paused``; the next
            with ``resume`` goes on (1.2.1 on). 0 for never.
        resume: go on with the generation that was paused; its input is not read by the runtimes that were seen.
        enough: asked when the next token is fetched; when it says yes the run ends as it does at a stop string, and
            its figures come. Whoever leaves instead gets none.
        begun: told once the run is given to the runtime, and how many tokens of its prompt the KV cache is not known
            to hold then, or not on account of ``owner``; that is what the run costs if it is left.
        owner: on whose account it runs: a tenant's name, empty for the owner of the service. None for the service
            itself, whose prompts are no secret: anybody may learn what they left in the KV cache.
    """

    max_new_tokens: int = 512
    stop_ids: frozenset[int] = frozenset()
    sampling: Sampling | None = None
    stop_strings: tuple[str, ...] = ()
    lora: str | None = None
    save_prompt_cache: str | None = None
    keep_history: bool = False
    pause_after_tokens: int = 0
    resume: bool = False
    enough: Callable[[], bool] | None = None
    begun: Callable[[int], None] | None = None
    owner: str | None = ""


FinishReason = Literal["stop", "length", "paused"]


@dataclass(frozen=True)
class RunStats:
    """The end of a generation.

    Args:
        finish: ``stop`` when the model ended or a stop string came, ``length`` when ``max_new_tokens`` were there,
            ``paused`` when it was asked to pause and did.
        prefilled_tokens: prompt tokens evaluated, as the runtime reports; None before 1.2.1, which does not say.
        prefill_ms: as the runtime reports, else measured up to the first callback.
        decode_ms: as the runtime reports, else measured from the first to the last callback.
        generated_tokens: tokens delivered.
        time_to_first_token_ms: from the request to the first token, queueing included.
        queued_ms: how much of that was waiting for other generations.
        memory_mb: peak memory of the process that owns the model, as the runtime reports; None when it does not.
        cold: the KV cache was known to be empty before this run (first run, or the worker was restarted).
        expected_tokens: prompt tokens that the KV cache was not known to hold when the run began, so
            ``prefilled_tokens`` should be no more; None where the prompt was not one of token ids.
        stop_string: the stop string that ended it; None where none did.
        callback_ms: how long all of its callbacks together kept the runtime, where the engine was to find out
            (``EngineSettings.timed_callbacks``); what it took them to get the interpreter's lock is not in it.
        own_tokens: the most of its prompt that may be reported as reused from the KV cache: what this owner or the
            service put there. None without a limit, where nobody else's prompt was in the cache.
    """

    finish: FinishReason
    prefilled_tokens: int | None
    prefill_ms: float
    decode_ms: float
    generated_tokens: int
    time_to_first_token_ms: float
    queued_ms: float = 0.0
    memory_mb: float | None = None
    cold: bool = False
    stop_string: str | None = None
    callback_ms: float = 0.0
    expected_tokens: int | None = None
    own_tokens: int | None = None


@dataclass(frozen=True)
class Rows:
    """What an evaluation gives: rows of hidden states or logits.

    Args:
        values: float32, one row after the other.
        width: floats in a row.
        given: rows that the runtime gave, of which these were asked for; some releases give one for every token that
            was evaluated, some only the last.
        stats: the figures of the run.
    """

    values: array[float]
    width: int
    given: int
    stats: RunStats

    def row(self, index: int = -1) -> array[float]:
        """One row, the last where no other is asked for."""
        start = (index % (len(self.values) // self.width)) * self.width
        return self.values[start : start + self.width]


class Generator(Protocol):
    """What a provider needs of an engine."""

    @property
    def context_tokens(self) -> int:
        """The context window that the model was loaded with."""
        ...

    async def ready(self) -> None:
        """Wait until the model is loaded, or loaded again.

        Raises:
            RuntimeUnusableError: it cannot be loaded, and why.
        """
        ...

    def announce(self, tokens: Sequence[int], /) -> None:
        """Tell that a run whose prompt begins with these tokens will be asked for soon."""
        ...

    def revoke(self, tokens: Sequence[int], /) -> None:
        """Tell that the run that was announced with this very sequence will not come, so that nobody waits for it."""
        ...

    def uncached(self, tokens: Sequence[int], owner: str | None = "", /) -> int:
        """How many of these prompt tokens a run that began now would have to evaluate, as far as its owner may know."""
        ...

    def generate(
        self, tokens: Sequence[int], /, options: GenerationOptions | None = None
    ) -> AsyncGenerator[Token | RunStats, None]:
        """Run the model on ``tokens``; leaving early aborts the run."""
        ...
