"""Pictures of a conversation for a model that sees: their embeddings, and the input of a run.

The runtime takes pictures only next to text, so the ids of the ledger become text again, of which it makes the same ids
(``ModelTokenizer.as_text``). The chat template is ours there, too: the runtime's own is replaced by nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.generation import IMAGE_MARK, ImageInput, PictureEmbedding, Vision
from rkllm_mcp.messages import Message
from rkllm_mcp.prompt.conversation import Prompt
from rkllm_mcp.prompt.template import IMAGE_LINE, NO_PICTURES, PictureText
from rkllm_mcp.prompt.tokenizer import ControlText, ModelTokenizer
from rkllm_mcp.toolcalls.results import NOT_SHOWN, SHOWN


@dataclass(frozen=True)
class Sight:
    """A conversation and the pictures in it that the model sees."""

    messages: Sequence[Message]
    text: PictureText = NO_PICTURES
    embeddings: Mapping[str, PictureEmbedding] = field(default_factory=dict[str, PictureEmbedding])


async def see(messages: Sequence[Message], vision: Vision) -> Sight:
    """Encode the pictures of a conversation; others than those of the last question are left out if that fails.

    Raises:
        RkllmMcpError: a picture of the last question cannot be read or encoded.
    """
    if not vision.takes_several:
        messages = _with_last_picture(messages)
    question = max((index for index, message in enumerate(messages) if message.role == "user"), default=0)
    embeddings: dict[str, PictureEmbedding] = {}
    for index, message in enumerate(messages):
        for picture in message.all_pictures:
            if picture.digest in embeddings:
                continue
            try:
                embeddings[picture.digest] = await vision.embedding(picture)
            except RkllmMcpError:
                # The client cannot take an earlier one out of the conversation, which must go on.
                if index == question:
                    raise
    if not embeddings:
        return Sight(messages)
    tokens = next(iter(embeddings.values())).tokens
    return _with_shown(messages, vision, tokens, frozenset(embeddings), embeddings)


async def see_to_count(messages: Sequence[Message], vision: Vision) -> Sight:
    """Return a conversation as ``see`` does, without an embedding: its prompt has as many tokens, and is not run."""
    if not vision.takes_several:
        messages = _with_last_picture(messages)
    digests = frozenset(picture.digest for message in messages for picture in message.all_pictures)
    if not digests:
        return Sight(messages)
    return _with_shown(messages, vision, await vision.tokens(), digests, {})


def image_input(prompt: Prompt, sight: Sight, vision: Vision, tokenizer: ModelTokenizer) -> ImageInput:
    """Return a prompt with pictures as the input of a run."""
    embeddings = [sight.embeddings[picture.digest] for picture in prompt.pictures]
    values: array[float] = array("f")
    for embedding in embeddings:
        values.extend(embedding.values)
    return ImageInput(
        text=tokenizer.as_text(prompt.ids, tokenizer.encode([ControlText(sight.text.shown)]), IMAGE_MARK),
        values=values,
        tokens_per_image=embeddings[0].tokens,
        images=len(embeddings),
        width=embeddings[0].width,
        height=embeddings[0].height,
        tags=vision.tags,
        digests=tuple(picture.digest for picture in prompt.pictures),
    )


def _with_shown(
    messages: Sequence[Message],
    vision: Vision,
    tokens: int,
    digests: frozenset[str],
    embeddings: Mapping[str, PictureEmbedding],
) -> Sight:
    """Return the conversation with the text of a picture in a prompt, and results that say theirs are shown."""
    shown: list[Message] = []
    for message in messages:
        if any(result.pictures for result in message.results):
            results = (
                replace(result, text=result.text.replace(NOT_SHOWN, SHOWN))
                if any(picture.digest in digests for picture in result.pictures)
                else result
                for result in message.results
            )
            message = replace(message, results=tuple(results))
        shown.append(message)
    tags = vision.tags
    return Sight(shown, PictureText(f"{tags.start}{tags.content * tokens}{tags.end}", digests), embeddings)


def _with_last_picture(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with a line in place of every picture but the last one."""
    reversed_messages: list[Message] = []
    has_last = False
    for message in reversed(messages):
        pictures = message.all_pictures
        if not pictures:
            reversed_messages.append(message)
            continue
        last = () if has_last else pictures[-1:]
        text = f"{IMAGE_LINE * (len(pictures) - len(last))}{message.text}"
        results = tuple(replace(result, pictures=()) for result in message.results)
        reversed_messages.append(replace(message, text=text, pictures=last, results=results))
        has_last = True
    return reversed_messages[::-1]
