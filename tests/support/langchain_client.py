"""A program that uses LangChain's OpenAI client in its Responses mode and prints as JSON what came of it.

python langchain_client.py URL KEY
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

langchain_openai: Any = importlib.import_module("langchain_openai")
messages: Any = importlib.import_module("langchain_core.messages")

Json = dict[str, Any]
CITY: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Json = {"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": CITY}}
TRIP: Json = {
    "title": "trip",
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
}


def main(url: str, key: str) -> Json:
    """Everything."""
    fixed: Json = {"base_url": f"{url}/v1", "api_key": key, "model": "parrot", "use_responses_api": True}
    model = langchain_openai.ChatOpenAI(**fixed, max_retries=0)
    previous = langchain_openai.ChatOpenAI(**fixed, max_retries=0, use_previous_response_id=True)
    hello, question = messages.HumanMessage("hello from ann"), messages.HumanMessage("Weather in Oslo and Rome")
    first = previous.invoke([hello])
    with_tools = model.bind_tools([WEATHER])
    called = joined(with_tools.stream([question]))
    results = [messages.ToolMessage("warm", tool_call_id=call["id"]) for call in called.tool_calls]
    try:
        later = [str(piece.text) for piece in model.stream("fail later")][-1]
    except ValueError as error:
        later = str(error)
    return {
        "whole": str(first.text),
        "previous": str(previous.invoke([hello, first, messages.HumanMessage("hello from bob")]).text),
        "calls": [[call["name"], call["args"]] for call in called.tool_calls],
        "answer": str(with_tools.invoke([question, called, *results]).text),
        "form": model.with_structured_output(TRIP, method="json_schema").invoke("trip to Oslo"),
        "thinking": joined(model.stream("think", reasoning={"effort": "low", "summary": "auto"})).content[0]["summary"],
        "later": later,
    }


def joined(pieces: Any) -> Any:
    """Put the pieces of an answer together."""
    first, *others = pieces
    for piece in others:
        first += piece
    return first


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
