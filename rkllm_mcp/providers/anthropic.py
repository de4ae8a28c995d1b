"""Models with Anthropic's Messages interface, through Anthropic's SDK."""

from __future__ import annotations

from typing import Any

from rkllm_mcp.messages import Conversation
from rkllm_mcp.providers.answer import Answer
from rkllm_mcp.providers.anthropic_form import EventReader, Thoughts, request_of
from rkllm_mcp.providers.remote_model import ReadChunk, RemoteModel, Sdk, SdkErrors, transport_errors
from rkllm_mcp.providers.round import Round
from rkllm_mcp.providers.service import Service
from rkllm_mcp.providers.turns import wire_id

# Without a key the SDK would read one from the environment, which must not be sent to another service.
_NO_KEY = "none"


class AnthropicModel(RemoteModel):
    """A ``LastingModel`` on a service with Anthropic's interface."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._readers: dict[str, EventReader] = {}
        # Thinking blocks before the calls of the running answer: they must be sent back with the results.
        self._thoughts: dict[str, dict[str, Thoughts]] = {}

    def over(self, conversation_id: str) -> None:
        """Drop the thinking blocks: only the answer that produced them needs them."""
        self._readers.pop(conversation_id, None)
        self._thoughts.pop(conversation_id, None)

    def _load(self) -> Sdk:
        import anthropic

        service = self.service
        # Compatible services read the key from this header; the SDK now sends it in another one.
        headers = {} if service.is_vendors_own else {"X-Api-Key": service.api_key or _NO_KEY}
        timeout = anthropic.Timeout(service.timeout_s, connect=service.connect_timeout_s)
        client = anthropic.AsyncAnthropic(
            api_key=service.api_key or _NO_KEY,
            base_url=service.base_url,
            timeout=timeout,
            max_retries=service.retries,
            default_headers=headers,
            # A redirect would send the question and the key to a host that is not configured.
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
            thoughts = self._thoughts.setdefault(conversation.id, {})
            thoughts[wire_id(answer.calls[0].id)] = reader.thoughts
