"""Models with OpenAI's interface (OpenAI, Ollama, llama.cpp, vLLM, another board), through OpenAI's SDK."""

from __future__ import annotations

from typing import Any

from rkllm_mcp.messages import Conversation
from rkllm_mcp.providers.openai_form import pieces_of, request_of
from rkllm_mcp.providers.remote_model import ReadChunk, RemoteModel, Sdk, SdkErrors, transport_errors
from rkllm_mcp.providers.round import Round

# The SDK requires a key; local services rarely do.
_NO_KEY = "none"


class OpenAIModel(RemoteModel):
    """A ``LastingModel`` on a service with OpenAI's interface."""

    def _load(self) -> Sdk:
        import openai

        service = self.service
        # The SDK reads an organisation from the environment, which must not be sent to other services.
        hidden = () if service.is_vendors_own else ("OpenAI-Organization", "OpenAI-Project")
        headers: Any = {name: openai.Omit() for name in hidden}
        timeout = openai.Timeout(service.timeout_s, connect=service.connect_timeout_s)
        client = openai.AsyncOpenAI(
            api_key=service.api_key or _NO_KEY,
            base_url=service.base_url,
            timeout=timeout,
            max_retries=service.retries,
            default_headers=headers,
            # A redirect would send the question, and perhaps the key, to a host that is not configured.
            http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False, timeout=timeout),
        )
        transport = transport_errors()
        errors = SdkErrors(
            silent=(openai.APITimeoutError, *transport.silent),
            connection=(openai.APIConnectionError, *transport.connection),
            said=(openai.OpenAIError,),
        )
        return Sdk(client.chat.completions.create, client.close, errors)

    def _request(self, asked: Round, conversation: Conversation) -> dict[str, Any]:
        del conversation
        return request_of(self.service, asked, self._refused)

    def _reader(self, conversation: Conversation) -> ReadChunk:
        del conversation
        return pieces_of
