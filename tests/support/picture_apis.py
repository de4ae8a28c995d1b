"""A conversation with pictures through each API of programs, with its vendor's client."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import anthropic
import ollama
import openai

Talk = list[tuple[str, str | None]]  # what a user says, with a picture, and the answers in between
MODEL = "seeing"


def _url(data: str) -> str:
    return f"data:image/png;base64,{data}"


def _messages(talk: Talk, part: Callable[[str], Any], text: str = "text") -> list[Any]:
    messages: list[Any] = []
    for index, (words, picture) in enumerate(talk):
        role = "assistant" if index % 2 else "user"
        content: Any = [*([part(picture)] if picture else []), {"type": text, "text": words}]
        messages.append({"role": role, "content": words if role == "assistant" else content})
    return messages


def openai_chat(url: str, talk: Talk) -> str:
    """The answer to the last words of a conversation."""
    messages = _messages(talk, lambda data: {"type": "image_url", "image_url": {"url": _url(data)}})
    with openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
        return client.chat.completions.create(model=MODEL, messages=messages).choices[0].message.content or ""


def openai_responses(url: str, talk: Talk) -> str:
    """The answer to the last words of a conversation."""
    messages = _messages(talk, lambda data: {"type": "input_image", "image_url": _url(data)}, "input_text")
    with openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
        return client.responses.create(model=MODEL, input=messages).output_text


def anthropic_messages(url: str, talk: Talk) -> str:
    """The answer to the last words of a conversation."""
    source = {"type": "base64", "media_type": "image/png"}
    messages = _messages(talk, lambda data: {"type": "image", "source": {**source, "data": data}})
    with anthropic.Anthropic(base_url=url, api_key="x", max_retries=0) as client:
        answer = client.messages.create(model=MODEL, max_tokens=100, messages=messages)
    return "".join(block.text for block in answer.content if block.type == "text")


def ollama_chat(url: str, talk: Talk) -> str:
    """The answer to the last words of a conversation."""
    messages = [
        {"role": "assistant" if index % 2 else "user", "content": words, **({"images": [data]} if data else {})}
        for index, (words, data) in enumerate(talk)
    ]
    with ollama_client(url) as client:
        return client.chat(MODEL, messages=messages).message.content or ""


@contextmanager
def ollama_client(url: str) -> Generator[Any, None, None]:
    """The vendor's client, whose connection is closed at the end."""
    client: Any = ollama.Client(url)
    try:
        yield client
    finally:
        client._client.close()


APIS: tuple[Callable[[str, Talk], str], ...] = (openai_chat, openai_responses, anthropic_messages, ollama_chat)
