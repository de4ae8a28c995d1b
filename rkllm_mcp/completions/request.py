"""``ChatRequest``, which contains the whole conversation, and its refusal; independent of the protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rkllm_mcp.completions.structured_output import ResponseFormat
from rkllm_mcp.errors import UsageError
from rkllm_mcp.generation import ModelOptions
from rkllm_mcp.messages import Message, ToolSpec

_OWN_CALL_ID = re.compile(r"call_(\d{1,9})")


@dataclass(eq=False)
class RequestRefusedError(UsageError):
    """A request that cannot be answered; the message names the problem and the remedy."""

    param: str = ""  # the field, such as ``messages[2].content``; empty for the whole request
    code: str = ""  # error code; may be empty
    is_too_costly: bool = False  # the request is well-formed but too expensive


@dataclass(frozen=True)
class ChatRequest:
    """A request for one answer."""

    messages: tuple[Message, ...]  # the conversation; a system message comes first, and every call has its result
    tools: tuple[ToolSpec, ...] = ()  # the client's own tools; their calls are returned
    options: ModelOptions = field(default_factory=ModelOptions)  # options of the model's response
    form: ResponseFormat | None = None  # the required format of the answer; None for plain text
    host_tools: bool = False  # run the assistant's own tools and return the text; only without ``tools``
    allowed_tools: tuple[str, ...] | None = None  # the only ones of them that may be used; all when None
    # Secrets for ``headers_template`` placeholders, by name; used for this answer only.
    tokens: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @property
    def client_names(self) -> Mapping[str, str]:
        """The client's names of its tools, by those that the model is shown."""
        return {tool.name: tool.wire_name for tool in self.tools if tool.wire_name}

    @property
    def calls_made(self) -> int:
        """Greatest call number of ``Conversation.next_call_id`` in the request, so that ids stay unique."""
        numbers = (_OWN_CALL_ID.fullmatch(call.id) for message in self.messages for call in message.calls)
        return max((int(match.group(1)) for match in numbers if match), default=0)
