"""Models of Anthropic, and of services with its interface. On Anthropic's SDK."""

from __future__ import annotations

from typing import Any

from rkllm_mcp.messages import Conversation
from rkllm_mcp.providers.answer import Answer
from rkllm_mcp.providers.anthropic_form import EventReader, Thoughts, request_of
from rkllm_mcp.providers.remote_model import ReadChunk, RemoteModel, Sdk, SdkErrors, transport_errors
from rkllm_mcp.providers.round import Round
from rkllm_mcp.providers.service import Service
from rkllm_mcp.providers.turns import wire_id

# The SDK would look for a key in the environment, which is not meant for a service of one's own.
_NO_KEY = "none"


class AnthropicModel(RemoteModel):
    """A ``LastingModel`` on a service with Anthropic's interface.

    Args:
        service: which one.
    """

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._readers: dict[str, EventReader] = {}
        # What the model thought before the calls of an answer under way: it has to be told again with their results.
        self._thoughts: dict[str, dict[str, Thoughts]] = {}

    def over(self, conversation_id: str) -> None:
        """The answer under way in a conversation ended; the next one need not know what was thought in it."""
        self._readers.pop(conversation_id, None)
        self._thoughts.pop(conversation_id, None)

    def _load(self) -> Sdk:
        import anthropic

        service = self.service
        # Services with this interface read the key where it was for years; the SDK has another place for it by now.
        headers = {} if service.is_vendors_own else {"X-Api-Key": service.api_key or _NO_KEY}
        timeout = anthropic.Timeout(service.timeout_s, connect=service.connect_timeout_s)
        client = anthropic.AsyncAnthropic(
            api_key=service.api_key or _NO_KEY,
            base_url=service.base_url,
            timeout=timeout,
            max_retries=service.retries,
            default_headers=headers,
            # A redirect would take the question and the key to a host that nobody has named.
            http_client=anthropic.DefaultAsyncHttpxClient(follow_redirects=False, timeout=timeout),
        )
        transport = transport_errors()
        errors = SdkErrors(
            silent=(anthropic.APITimeoutError, *transport.silent),
            connection=(anthropic.APIConnectionError, *transport.connection),
            said=(anthropic.AnthropicError,),
        )
        return Sdk(client.messages.create, client.close, errors)

    def _request(self, asked: Round, conversation: Conversation) -> dict[str, Any]:
        return request_of(self.service, asked, self._refused, self._thoughts.get(conversation.id, {}))

    def _reader(self, conversation: Conversation) -> ReadChunk:
        reader = self._readers[conversation.id] = EventReader()
        return reader.pieces_of

    def _answered(self, conversation: Conversation, answer: Answer) -> None:
        reader = self._readers.pop(conversation.id, None)
        if reader is not None and reader.thoughts and answer.calls:
            kept = self._thoughts.setdefault(conversation.id, {})
            kept[wire_id(answer.calls[0].id)] = reader.thoughts
