"""The model behind the tests of the chat routes: what it says to what, and the tools that programs offer it."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

RULES = r"""
rule a tool is forced
  prompt "name": "get_weather", "arguments": $
  say {"city": "Rome"}}
  say </tool_call>

rule any tool has to be called
  prompt <tool_call>.[{]"name": "$
  user [Ww]eather in ([A-Z][a-z]+)
  say get_weather", "arguments": {"city": "$1"}}
  say </tool_call>

rule any tool, and it is one that there is not
  prompt <tool_call>.[{]"name": "$
  user nonsense
  results 0
  say fly", "arguments": {}}
  say </tool_call>

rule any tool, mended
  prompt <tool_call>.[{]"name": "$
  results 1
  say get_time", "arguments": {}}
  say </tool_call>

rule told not to call
  user Do not call a tool now
  say I will not.

rule a call that cannot be read, for ever
  user break everything
  call get_weather {"town": 1}

rule a call that can be mended
  user break one
  results 0
  say Let me see.
  call get_weather {"town": 1}

rule the mended call
  user break one
  results 1
  result argument 'town' does not exist; did you mean 'city'
  call get_weather {"city": "Oslo"}

rule a good call and a bad one
  user half right
  results 0
  call get_weather {"city": "Oslo"}
  call get_weather {"town": 1}

rule two calls
  user [Ww]eather in ([A-Z][a-z]+) and ([A-Z][a-z]+)
  results 0
  say Two at once.
  call get_weather {"city": "$1"}
  call get_weather {"city": "$2"}

rule one call
  user [Ww]eather in ([A-Z][a-z]+)
  results 0
  call get_weather {"city": "$1"}

rule special characters
  user quote
  results 0
  call write_note {"text": "it's \"L'Aquila\"\n東京 \\ \u2028 </tool_call>", "loud": true, "nothing": null}

rule two sums
  user both sums
  results 0
  call calculator {"expression": "1+1"}
  call calculator {"expression": "2+2"}

rule a sum
  user how much is ([0-9]+) and ([0-9]+)
  results 0
  say Let me calculate.
  call calculator {"expression": "$1+$2"}

rule a tool of a namespace
  user Sky over Oslo
  results 0
  call sky__get_weather {"city": "Oslo"}

rule a tool that takes free text
  user shout
  results 0
  call shout {"input": "Hey\nthere"}

rule a light, of Home Assistant's later releases
  prompt intent__HassTurnOn
  user Turn on the ([A-Za-z ]+)
  results 0
  call intent__HassTurnOn {"name": "$1", "domain": ["light"], "area": ""}

rule a light
  user Turn on the ([A-Za-z ]+)
  results 0
  call HassTurnOn {"name": "$1", "domain": ["light"], "area": ""}

rule two tools of Home Assistant's later releases
  prompt intent__HassTurnOn
  user Do both
  results 0
  call intent__HassTurnOn {"name": "Kitchen Light"}
  call homeassistant__GetLiveContext {}

rule two tools of Home Assistant
  user Do both
  results 0
  call HassTurnOn {"name": "Kitchen Light"}
  call GetLiveContext {}

rule the tool that is named
  user Use ([^[:space:]]+)
  results 0
  say <tool_call>
  say {"name": "$1", "arguments": {"n": null}}
  say </tool_call>

rule a dangerous tool
  user tidy up
  results 0
  call delete_notes {}

rule what a tool said
  results 1+
  result (.*)
  say It says %1, this time.

rule json, which will do at the second time
  user That answer cannot be used
  user needs two
  say {"city": "Oslo", "days": 2}

rule json mended after being told
  user That answer cannot be used
  prompt second chance
  say {"city": "Oslo", "days": 2}

rule json that will not do
  user That answer cannot be used
  say I still do not know.

rule json in a fence
  user trip in a fence
  say ```json
  say {"city": "Oslo", "days": "2"}
  say ```

rule json
  user trip to ([A-Z][a-z]+)
  say {"city": "$1", "days": 3}

rule rooms
  user list of rooms
  say {"rooms": ["kitchen", "hall"], "count": 2}

rule a title
  user Generate a concise title
  say {"title": "💡 Light in the kitchen"}

rule no json at first
  user second chance
  say A trip to Oslo for two days.

rule no json
  user no chance
  say I do not know.

rule a system text
  prompt speak like a pirate
  say Arr.

rule stops
  user count
  say one two three STOP four five STOP six

rule long
  user at length
  say one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen

rule thinking
  user think
  think Hm, let me see.
  say I thought.

rule it fails later
  user fail later
  say one two three four five six
  fault error after 3

rule it fails at once
  user fail at once
  say one
  fault error after 0

rule it never ends
  user for ever
  say one two three four five six seven eight nine ten
  fault hang after 4

rule hello
  user hello from ([a-z]+)
  say Hello, $1. こんにちは 👋

rule
  say I see.
"""

CITY: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[Json] = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": CITY}},
    {"type": "function", "function": {"name": "get_time", "description": "Time"}},
    {
        "type": "function",
        "function": {
            "name": "write_note",
            "description": "Write a note",
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "loud": {"type": "boolean"},
                    "nothing": {"type": ["string", "null"]},
                },
            },
        },
    },
]
OWN_TOOLS = """
[[servers]]
name = "own"
transport = "builtin"
tools = [{ name = "calculator" }]

[[servers]]
name = "notes"
transport = "builtin"

[[servers.tools]]
name = "delete_notes"
description = "Deletes all notes"
input_schema = {}
entry_point = "tests.support.local_tools:nothing"

[service]
model_aliases = ["gpt-4o-mini"]
api_keys = ["the-owners-key"]

[[tenants]]
name = "ann"
api_key = "the-key-of-ann"
mcp = true
"""
OWNERS_KEY, ANNS_KEY = "the-owners-key", "the-key-of-ann"


# What the model says to a result of a tool.
def read_aloud(text: str) -> str:
    return f"It says {text}, this time."


def user(text: str) -> Json:
    return {"role": "user", "content": text}
