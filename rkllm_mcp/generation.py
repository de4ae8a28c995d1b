"""Values of one generation or evaluation on an engine, and the options of answers and responses.

Input, GenerationOptions ─▶ engine ─▶ Token … RunStats (generation) or Rows (evaluation)
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from rkllm_mcp.sampling import Sampling, SamplingOverrides

if TYPE_CHECKING:
    from rkllm_mcp.events import Event
    from rkllm_mcp.messages import Picture, ToolSpec
    from rkllm_mcp.text import Language


@dataclass(frozen=True)
class TokenInput:
    """Token ids, used as they are; the only input that the runtime does not extend."""

    tokens: Sequence[int]


@dataclass(frozen=True)
class ImageTags:
    """Text before, after and in place of an image's tokens in the prompt; specific to the model."""

    start: str
    end: str
    content: str


# Placeholder for an image in a text; a message of the runtime names it.
IMAGE_MARK = "<image>"


@dataclass(frozen=True)
class ImageInput:
    """A text with images that a vision encoder has converted to embeddings.

    The runtime applies its chat template to the text, and interprets control tokens in it.
    """

    text: str  # without NUL, with ``<image>`` at the position of each image
    values: array[float]  # float32 embeddings of all images, one row per token, image by image
    tokens_per_image: int  # tokens of an image; with several outputs of the encoder there are more rows
    images: int = 1  # number of images; 1.2.0 accepts one
    width: int = 0  # width of the encoded images, pixels, for models with M-RoPE (1.2.1 on); 0 for other models
    height: int = 0  # height of the encoded images, pixels
    # For 1.3.0 on; earlier releases take them when the model is loaded (``EngineSettings.image_tags``).
    tags: ImageTags | None = None
    # Digests of the images. With them the KV cache is kept for the next run if that has the same images, and cleared
    # before a run with others, whose answers would be wrong (rknn-llm #257, rkllama #175); without, always.
    digests: tuple[str, ...] = ()


Input = TokenInput | ImageInput


@dataclass(frozen=True)
class Token:
    """A generated token: its id, and the text it completed (empty while a character is incomplete)."""

    id: int
    text: str


@dataclass(frozen=True)
class ForcedTool:
    """The choice of one tool: the response begins with a call of it.

    Args:
        name: the tool's name.
        opens_arguments: the response begins inside the arguments, for models that would write a value in their place.
    """

    name: str
    opens_arguments: bool = False


# ``auto``: the model decides; ``required``: the response begins with a call; ``none``: nothing is parsed as a call, and
# the tool list stays in the prompt to preserve the cached prefix.
ToolChoice: TypeAlias = "Literal['auto', 'required', 'none'] | ForcedTool"


@dataclass(frozen=True)
class AnswerGrammar:
    """What the text of a response consists of; models on the NPU are held to it where they can be.

    Args:
        kind: ``json``, ``regex`` or ``choice``; ``grammar`` for llama.cpp's GBNF, or Lark.
        text: a JSON Schema, a regular expression, a JSON list of texts, or the grammar.
    """

    kind: Literal["json", "regex", "choice", "grammar"]
    text: str


@dataclass(frozen=True)
class ModelOptions:
    """Options of one response of a chat model."""

    max_new_tokens: int | None = None  # limit of the response; None for the model's own
    # Ignored by a runtime that cannot set it per run.
    sampling: SamplingOverrides = field(default_factory=SamplingOverrides)
    stop: tuple[str, ...] = ()  # texts that end the response; matched in its text only, not in thinking or calls
    # Think before the response or not; None for the model's own setting, also for models without a choice.
    thinking: bool | None = None
    tool_choice: ToolChoice = "auto"  # the tool that the response begins with, if any
    single_call: bool = False  # end the response after its first call
    others: tuple[ToolSpec, ...] = ()  # callable tools that are not in the tool list, but were described in a turn
    continues: bool = False  # go on with the conversation's last message, an answer without calls; its turn becomes one
    grammar: AnswerGrammar | None = None  # what the text of the response consists of

    @property
    def forced_tool(self) -> str | None:
        """Name of the forced tool, if any."""
        return self.tool_choice.name if isinstance(self.tool_choice, ForcedTool) else None

    @property
    def opens_arguments(self) -> bool:
        """The response begins inside the arguments of the forced tool."""
        return isinstance(self.tool_choice, ForcedTool) and self.tool_choice.opens_arguments


ApprovalMode: TypeAlias = Literal["ask", "grant", "refuse", "no_right"]


@dataclass(frozen=True)
class AnswerOptions:
    """Options of one answer of the assistant."""

    # Options of its responses; a forced tool, by any of its names, is that of the first one.
    model: ModelOptions = field(default_factory=ModelOptions)
    tools: bool = True  # show tools to the model, which may call them
    # The only tools that the answer may use, by any of their names; all when None.
    allowed_tools: tuple[str, ...] | None = None
    # Decision about calls that need approval: ``ask`` emits an Approval and waits for ``App.decide``; ``grant``
    # and ``refuse`` decide beforehand; ``no_right`` refuses, but asks the user for the content of servers' forms.
    approvals: ApprovalMode = "refuse"
    approval_timeout_s: float | None = None  # limit of the wait for an approval, seconds; None for the configuration's
    id_prefix: str = ""  # of the ids of its questions, from which a proxy reads this board's name
    # Secrets for ``headers_template`` placeholders, by name; used for this answer only.
    tokens: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    save: bool = False  # save question and answer before ``End``; a ``Status`` reports what cannot be saved
    resources: bool = True  # ``@server:uri`` in the question is read
    # What the person wants remembered is kept if the question says so, and recalled for it.
    memory: bool = False
    # No further question follows, which a server that starts slowly could join.
    is_single: bool = False
    # The asker does not see which servers are left out, so all that are starting are waited for.
    needs_all_servers: bool = False
    language: Language | None = None  # of questions for approval; None for the configuration's
    context: str = ""  # the model reads it before the question, in the same turn
    # No person is there: the only tools that may be called besides those that are known to read only, by any of their
    # names; None if a person is there. See ``CallContext.is_unattended``.
    unattended_tools: tuple[str, ...] | None = None
    pictures: tuple[Picture, ...] = ()  # pictures that belong to the question
    # The events of the answer that is continued, with ``continues`` of the model's options.
    begun: tuple[Event, ...] = ()


@dataclass(frozen=True)
class GenerationOptions:
    """Limits and switches of one generation."""

    max_new_tokens: int = 512  # end the run after this many tokens
    # Token ids that end the answer; the run is aborted if the runtime does not end there by itself.
    stop_ids: frozenset[int] = frozenset()
    # Sampling of this run (1.3.0 on); None uses the settings the model was loaded with.
    sampling: Sampling | None = None
    lora: str | None = None  # name of an adapter loaded with ``extras.load_lora``; None for the base model
    save_prompt_cache: str | None = None  # file to which the runtime writes the evaluated prompt at the end of the run
    # The tenant that the run belongs to, empty for the owner of the service. None for the service itself: every tenant
    # may learn what its prompts left in the KV cache.
    owner: str | None = ""
    gives_way: bool = False  # the run ends early, as a success, once anything else is asked of the engine


FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class RunStats:
    """Statistics of a finished generation."""

    # ``stop`` at the end token or an early end, ``length`` at ``max_new_tokens``.
    finish: FinishReason
    prefilled_tokens: int | None  # prompt tokens evaluated, as reported by the runtime; None before 1.2.1
    prefill_ms: float  # as reported by the runtime, else measured up to the first callback
    decode_ms: float  # as reported by the runtime, else measured from the first to the last callback
    generated_tokens: int  # tokens delivered
    time_to_first_token_ms: float  # from the request to the first token, including the queue
    queued_ms: float = 0.0  # the part of it spent waiting for other generations
    memory_mb: float | None = None  # peak memory of the worker process, as reported by the runtime; None if it is not
    cold: bool = False  # the KV cache was empty before this run (first run, or restarted worker)
    # Total duration of the run's callbacks if it is measured (``EngineSettings.timed_callbacks``), without the wait for
    # the GIL.
    callback_ms: float = 0.0
    # Prompt tokens that were not known to be in the KV cache, an upper limit for ``prefilled_tokens``; None for inputs
    # other than token ids.
    expected_tokens: int | None = None
    # Upper limit of the prompt tokens reported as reused from the KV cache: those that this owner or the service put
    # there. None without a limit, if no other owner's prompt was in the cache.
    own_tokens: int | None = None
    gave_way: bool = False  # something else was asked of the engine, for which the run ended early


@dataclass(frozen=True)
class OutputRows:
    """Result of an evaluation: rows of hidden states or logits."""

    values: array[float]  # float32, row by row
    width: int  # floats per row
    # Rows that the runtime returned, including those not requested; some releases return one per evaluated token, some
    # only the last.
    given: int
    stats: RunStats  # statistics of the run

    def row(self, index: int = -1) -> array[float]:
        """Return one row, by default the last."""
        start = (index % (len(self.values) // self.width)) * self.width
        return self.values[start : start + self.width]


# Takes tokens of a run.
FeedTokens: TypeAlias = Callable[[Sequence[Token]], None]


class Generation(Protocol):
    """A run of an engine."""

    @property
    def expected_prefill(self) -> int:
        """Prompt tokens that are not known to be in the KV cache, for the run's owner; 0 before the run starts."""
        ...

    async def deliver(self, feed: FeedTokens, /) -> None:
        """Pass the tokens to ``feed`` as they arrive, in batches and in order; return after the last.

        ``feed`` is called in the callback of the socket that brings the tokens, or in the caller's task. An exception
        that it raises is raised here.

        Raises:
            GenerationError: the run failed; all tokens before that were passed on.
        """
        ...

    def finish_early(self) -> None:
        """End the run as at a stop string; a consumer that leaves instead gets no statistics."""
        ...

    def stats(self) -> RunStats:
        """Return the statistics, once ``deliver`` has returned."""
        ...


@dataclass(frozen=True)
class PictureEmbedding:
    """A picture as a vision encoder sees it."""

    values: array[float]  # float32, row by row; all rows of a token follow each other
    width: int  # of the encoder's input, pixels
    height: int
    tokens: int  # of a picture


class Vision(Protocol):
    """The eyes of a model."""

    tags: ImageTags  # texts around and in place of a picture's tokens

    @property
    def takes_several(self) -> bool:
        """False if the runtime takes one picture in a prompt."""
        ...

    async def tokens(self) -> int:
        """Return the number of tokens of a picture; a RuntimeUnusableError if the encoder cannot be loaded."""
        ...

    async def embedding(self, picture: Picture, /) -> PictureEmbedding:
        """Return the embedding of a picture; an InputRefusedError if it cannot be read."""
        ...


class Generator(Protocol):
    """The part of an engine that providers use."""

    @property
    def context_tokens(self) -> int:
        """Context window that the model was loaded with."""
        ...

    async def ready(self) -> None:
        """Wait until the model is loaded or reloaded.

        Raises:
            RuntimeUnusableError: the model cannot be loaded.
        """
        ...

    def expect(self, tokens: Sequence[int], /) -> None:
        """Expect a run soon whose prompt begins with these tokens."""
        ...

    def cancel_expected(self, tokens: Sequence[int], /) -> None:
        """Cancel the expected run with exactly these tokens."""
        ...

    def count_uncached(self, tokens: Sequence[int], owner: str | None = "", /) -> int:
        """Return how many of these prompt tokens are not known to be in the KV cache, for this owner."""
        ...

    def generation(
        self, prompt: Input | Sequence[int], /, options: GenerationOptions | None = None
    ) -> AbstractAsyncContextManager[Generation]:
        """Run the model on token ids or on another input; leaving the context early aborts the run."""
        ...


# Prepares the KV cache for a prompt (ids, number of ids of its prefix, owner), with a prefix that was kept outside of
# it; never fails.
PrefixExchanger: TypeAlias = Callable[[Sequence[int], int, str], Awaitable[None]]


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of leading token ids that are equal."""
    shortest = min(len(first), len(second))
    # The usual case, equal up to the end of one, is one comparison.
    if list(first[:shortest]) == list(second[:shortest]):
        return shortest
    return next(index for index in range(shortest) if first[index] != second[index])


@dataclass(frozen=True)
class HeldLimits:
    """How much correcting a response may cost, beyond which it goes on as without."""

    corrections: int = 8
    seconds: float = 3.0  # from a wrong token to the first token of the run after it, all corrections together
    clock: Callable[[], float] = time.monotonic
