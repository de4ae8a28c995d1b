"""A judge behind an address: any service that speaks OpenAI's chat completions.

    POST {url}/chat/completions  {model, messages, temperature, max_tokens} -> {choices: [{message: {content}}]}

One request for one question, in bounded time, and no second try: the rules have an answer of their own. The key goes
into one header and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anyio
import httpx2

from mcp_servers.knowledge.embedding.service import ServiceAddress
from mcp_servers.knowledge.problems import ModelServiceUnavailableError

_OK = 200
_CONNECT_TIMEOUT_S = 3.0
_CLOSE_S = 1.0
# What a model says around the lines that it was asked for, in tokens; a token of Japanese is hardly longer than a
# character, so the answer itself needs no more tokens than the question has characters.
_POLITENESS = 64


@dataclass(frozen=True)
class ChatService:
    """A language model at an address.

    Args:
        address: http or https, up to where ``/chat/completions`` follows; and for how long to wait.
    """

    address: ServiceAddress

    async def answer(self, instructions: str, text: str) -> str:
        """What the model makes of a text; the same every time, as far as the service allows.

        Raises:
            ModelServiceUnavailableError: the service does not answer in time, refuses, or answers something else.
        """
        messages = [{"role": "system", "content": instructions}, {"role": "user", "content": text}]
        most = len(text) + _POLITENESS
        body = {"model": self.address.model, "messages": messages, "temperature": 0, "max_tokens": most}
        try:
            with anyio.fail_after(self.address.timeout_s):
                return _content(await self._post(body))
        except TimeoutError as error:
            raise ModelServiceUnavailableError(f"no answer in {self.address.timeout_s:g} s") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise ModelServiceUnavailableError(str(error) or type(error).__name__) from error

    async def _post(self, body: dict[str, Any]) -> httpx2.Response:
        key = self.address.key
        client = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx2.Timeout(self.address.timeout_s, connect=_CONNECT_TIMEOUT_S),
        )
        try:
            return await client.post(self.address.url.rstrip("/") + "/chat/completions", json=body)
        finally:
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await client.aclose()


def _content(response: httpx2.Response) -> str:
    if response.status_code != _OK:
        raise ModelServiceUnavailableError(f"HTTP {response.status_code}")
    try:
        content: object = response.json()["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError) as error:
        raise ModelServiceUnavailableError("its answer is no chat completion") from error
    if not isinstance(content, str):
        raise ModelServiceUnavailableError("its answer has no text")
    return content
