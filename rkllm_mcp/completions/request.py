"""One request of a program that sends the whole conversation: what every protocol is translated into."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rkllm_mcp.completions.structured_output import ResponseFormat
from rkllm_mcp.errors import UsageError
from rkllm_mcp.messages import Message, ToolSpec
from rkllm_mcp.protocols import ResponseOptions

_OWN_CALL_ID = re.compile(r"call_(\d{1,9})")


@dataclass(eq=False)
class RequestRefusedError(UsageError):
    """A request that cannot be answered as it is.

    Args:
        message: what is wrong, and what to send instead.
        param: the field that is meant, such as ``messages[2].content``; empty when the whole request is.
        code: a word for programs; empty where there is none.
        is_too_costly: it is well formed, and takes too much work to answer.
    """

    param: str = ""
    code: str = ""
    is_too_costly: bool = False


@dataclass(frozen=True)
class ChatRequest:
    """What is asked.

    Args:
        messages: the conversation, a system message first where there is one. Every call has its result.
        tools: the program's own tools; calls of them are returned to it.
        options: the wishes for the model's response.
        form: the form that the answer has to have; None for plain words.
        host_tools: the assistant's own tools are run inside, and the text is returned; only without ``tools``.
        tokens: secrets for ``headers_template`` placeholders, by name; held for this answer only.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    options: ResponseOptions = field(default_factory=ResponseOptions)
    form: ResponseFormat | None = None
    host_tools: bool = False
    tokens: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @property
    def calls_made(self) -> int:
        """The greatest number that a call in it has by ``Conversation.next_call_id``, so that no id comes twice."""
        numbers = (_OWN_CALL_ID.fullmatch(call.id) for message in self.messages for call in message.calls)
        return max((int(found.group(1)) for found in numbers if found), default=0)
