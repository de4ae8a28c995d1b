"""A program that uses LiteLLM and prints as JSON what came of it. It runs in ``.clients/`` and imports nothing of ours.

python litellm_client.py URL KEY
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

# Its own prices come with it; without this it asks for newer ones on the internet.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
litellm: Any = importlib.import_module("litellm")

Json = dict[str, Any]
CITY: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[Json] = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": CITY}}
]
TRIP: Json = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
}


class Asking:
    """One way to reach the service.

    Args:
        model: provider and name.
        base: the service's address as that provider has it.
        key: the API key.
    """

    def __init__(self, model: str, base: str, key: str) -> None:
        self.provider = model.partition("/")[0]
        self._fixed: Mapping[str, Any] = {"model": model, "api_base": base, "api_key": key, "max_retries": 0}

    def __call__(self, *messages: Any, **fields: Any) -> Any:
        """Ask; a text is a user's message."""
        sent = [{"role": "user", "content": each} if isinstance(each, str) else each for each in messages]
        return litellm.completion(**{**self._fixed, "messages": sent, "timeout": 60, **fields})

    async def later(self, text: str) -> Any:
        """Ask without waiting for others."""
        return await litellm.acompletion(**self._fixed, messages=[{"role": "user", "content": text}], timeout=60)


def main(url: str, key: str) -> Json:
    """Everything, by the name of the provider."""
    openai, ollama = Asking("openai/parrot", f"{url}/v1", key), Asking("ollama_chat/parrot", url, key)
    vectors = litellm.embedding(model="openai/parrot", api_base=f"{url}/v1", api_key=key, input=["one", "two"])
    ranked = litellm.rerank(
        model="jina_ai/judge", api_base=f"{url}/v1/rerank", api_key=key, query="cat", documents=["a dog", "a cat"]
    )
    return {
        "openai": answers(openai),
        "ollama_chat": answers(ollama),
        "vectors": [len(each["embedding"]) for each in vectors.data],
        "ranked": sorted(each["index"] for each in ranked.results),
    }


def answers(ask: Asking) -> Json:
    """What each kind of request comes to."""
    return {
        "whole": whole(ask("hello from oslo")),
        "streamed": streamed(ask("hello from oslo", stream=True, stream_options={"include_usage": True})),
        "at once": asyncio.run(several(ask)),
        "tools": round_trip(ask),
        "streamed tools": calls(
            litellm.stream_chunk_builder(list(ask("weather in Oslo and Rome", tools=TOOLS, stream=True)))
        ),
        "form": ask(
            "trip to Oslo", response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": TRIP}}
        )
        .choices[0]
        .message.content,
        "thinking": ask("think", reasoning_effort="low").choices[0].message.reasoning_content,
        "cut": whole(ask("at length", max_tokens=3)),
        "another model": failure(lambda: ask("x", model=f"{ask.provider}/nobody")),
        "another key": failure(lambda: ask("x", api_key="wrong")),
        "too long": failure(lambda: ask("long " * 5000)),
        "broken": failure(lambda: ask("fail at once")),
        "broken later": failure(lambda: list(ask("fail later", stream=True))),
    }


def whole(answer: Any) -> Json:
    """An answer in one piece."""
    choice = answer.choices[0]
    counted = answer.usage.prompt_tokens > 0 and answer.usage.completion_tokens > 0
    return {"text": choice.message.content, "finish": choice.finish_reason, "counted": counted}


def streamed(chunks: Any) -> Json:
    """An answer in pieces."""
    pieces = list(chunks)
    built = litellm.stream_chunk_builder(pieces)
    return {
        **whole(built),
        "in pieces": sum(bool(piece.choices and piece.choices[0].delta.content) for piece in pieces),
    }


async def several(ask: Asking) -> list[str]:
    """Three answers at the same time."""
    found = await asyncio.gather(*(ask.later(f"hello from {city}") for city in ("oslo", "rome", "bonn")))
    return [answer.choices[0].message.content for answer in found]


def calls(answer: Any) -> Json:
    """The calls of an answer."""
    choice = answer.choices[0]
    made = [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls or ()]
    ids = {call.id for call in choice.message.tool_calls or ()}
    return {"finish": choice.finish_reason, "calls": made, "ids": len(ids)}


def round_trip(ask: Asking) -> Json:
    """Calls, their results, and the answer to those."""
    first = ask("weather in Oslo and Rome", tools=TOOLS)
    message = first.choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "name": call.function.name, "content": said}
        for call, said in zip(message.tool_calls, ("cold", "warm"), strict=True)
    ]
    # In the other order: the ids say what belongs to what.
    last = ask("weather in Oslo and Rome", message, *reversed(results), tools=TOOLS)
    return {**calls(first), "answer": last.choices[0].message.content}


def failure(work: Callable[[], Any]) -> Json:
    """How something fails."""
    try:
        work()
    except Exception as error:  # noqa: BLE001  # it is what is asked for
        return {"kind": type(error).__name__, "status": getattr(error, "status_code", None), "text": str(error)}
    return {}


if __name__ == "__main__":
    litellm.suppress_debug_info = True
    sys.stdout.write(json.dumps(main(*sys.argv[1:])))
