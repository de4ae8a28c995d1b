"""A small MCP server of both eras that has more than tools, and asks: resources, prompts, questions, tasks.

    python -m tests.support.mcp_servers.asking [legacy|modern] [advertising|mute]

Until 2025-11-25 it asks by its own request and reads on until the answer comes; since 2026-07-28 it returns what
it needs and is called again with the answers. One that is ``advertising`` knows nothing of what it says it has; one
that is ``mute`` never answers when it is asked for that.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from tests.support.mcp_servers.tiny import LEGACY, META, MODERN, Arguments, Handler, TinyServer, text_result, tool

PICTURE = base64.b64encode(bytes(1200)).decode()
RESOURCES: Mapping[str, dict[str, Any]] = {
    "memo://monday": {"mimeType": "text/plain", "text": "Buy milk."},
    "memo://tuesday": {"mimeType": "text/plain", "text": "Call the plumber."},
    "memo://買い物": {"mimeType": "text/plain", "text": "牛乳"},
    "memo://picture": {"mimeType": "image/png", "blob": PICTURE},
    "memo://packed": {"mimeType": "application/json", "blob": base64.b64encode(b'{\n  "n": 1\n}').decode()},
}
TEMPLATE = "memo://day/{date}"
PROMPTS = [
    {
        "name": "code_review",
        "description": "Reviews code.",
        "arguments": [
            {"name": "language", "description": "The language.", "required": True},
            {"name": "style", "description": "How to say it."},
        ],
    },
    {"name": "begun", "description": "Has begun an answer."},
    {"name": "empty", "description": "Has no turns."},
]
LANGUAGES = ("python", "pascal", "rust")
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name"},
        "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
        "count": {"type": "integer", "minimum": 1, "default": 2},
    },
    "required": ["name", "size"],
}


class InputRequiredError(Exception):
    """The call has to be made again with answers; carries the result that says so."""


class AskingServer(TinyServer):
    """See the module."""

    def __init__(self, eras: tuple[str, ...], manner: str = "") -> None:
        super().__init__([*TOOLS], HANDLERS, eras)
        self.manner = manner
        self.params: dict[str, Any] = {}
        self.is_modern = False
        self.watching: dict[Any, list[str]] = {}
        self.tasks: dict[str, dict[str, Any]] = {}
        self.seen: list[str] = []
        self.log_level = ""
        self.visits = 0
        self.later: list[dict[str, Any]] = []

    def run(self) -> None:
        """Serve until the input ends; what came while an answer was waited for comes next."""
        for line in sys.stdin:
            self.later.append(json.loads(line))
            while self.later:
                self.handle(self.later.pop(0))

    def capabilities(self) -> dict[str, Any]:
        """All it has."""
        return {
            **super().capabilities(),
            "resources": {"subscribe": True},
            "prompts": {},
            "completions": {},
            "logging": {},
        }

    def handle(self, message: dict[str, Any]) -> None:
        """Answer one message."""
        params: dict[str, Any] = message.get("params") or {}
        wanted: dict[str, Any] = params.get("notifications") or {}
        if message.get("method") == "subscriptions/listen" and wanted.get("resourceSubscriptions"):
            self.watching[message["id"]] = wanted["resourceSubscriptions"]
            note: dict[str, Any] = {"_meta": {f"{META}/subscriptionId": message["id"]}, "notifications": wanted}
            self.send(method="notifications/subscriptions/acknowledged", params=note)
            return
        if self.manner == "mute" and message.get("method") in _OFFERS:
            return
        super().handle(message)

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of a request."""
        self.params = params
        self.is_modern = f"{META}/protocolVersion" in (params.get("_meta") or {})
        self.meta = params.get("_meta") or {}
        offered = None if self.manner == "advertising" else _OFFERS.get(method)
        if offered is not None:
            return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **offered(self, params)}
        if method == "tools/call" and "task" in params:
            return _legacy_task(self, params)
        try:
            return super().answer(method, params)
        except InputRequiredError as error:
            return error.args[0]

    def outcome(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of a request, or its error, with what the error says in addition."""
        try:
            return {"result": self.answer(method, params)}
        except LookupError as error:
            code, message, *data = error.args
            return {"error": {"code": code, "message": message, **({"data": data[0]} if data else {})}}

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """What the client answers; an error of its is a LookupError of code and message."""
        if self.is_modern:
            answers: dict[str, Any] = self.params.get("inputResponses") or {}
            if "q" not in answers:
                request = {"method": method, "params": params}
                raise InputRequiredError({"resultType": "input_required", "inputRequests": {"q": request}})
            return answers["q"]
        self.send(id="q", method=method, params=params)
        for line in sys.stdin:
            message = json.loads(line)
            if message.get("id") != "q" or "method" in message:
                self.later.append(message)
                continue
            if "error" in message:
                raise LookupError(message["error"]["code"], message["error"]["message"])
            return message["result"]
        raise EOFError

    def updated(self, uri: str) -> None:
        """Tell whoever wants to know that a resource has changed."""
        for subscription, uris in self.watching.items():
            if any(uri.startswith(watched) for watched in uris):
                meta = {} if subscription == "legacy" else {"_meta": {f"{META}/subscriptionId": subscription}}
                self.send(method="notifications/resources/updated", params={"uri": uri, **meta})


# --- offers ----------------------------------------------------------------------------------------------------------


def list_resources(_: AskingServer, __: Arguments) -> dict[str, Any]:
    listed: list[dict[str, Any]] = [{"uri": uri, "name": uri.rpartition("/")[2]} for uri in RESOURCES]
    listed[0] |= {"title": "Monday", "description": "What is to be done.", "mimeType": "text/plain", "size": 9}
    return {"resources": listed}


def list_templates(_: AskingServer, __: Arguments) -> dict[str, Any]:
    return {"resourceTemplates": [{"uriTemplate": TEMPLATE, "name": "day"}]}


def read_resource(_: AskingServer, params: Arguments) -> dict[str, Any]:
    uri = params["uri"]
    if uri.startswith("memo://day/"):
        return {"contents": [{"uri": uri, "text": f"Nothing on {uri[11:]}."}]}
    if uri == "memo://folder":
        return {"contents": [{"uri": f"memo://{name}", "text": name} for name in ("a", "b")]}
    if uri not in RESOURCES:
        raise LookupError(-32602, "Resource not found")
    return {"contents": [{"uri": uri, **RESOURCES[uri]}]}


def subscribe(server: AskingServer, params: Arguments) -> dict[str, Any]:
    server.watching["legacy"] = [params["uri"]]
    server.seen.append("subscribed")
    return {}


def unsubscribe(server: AskingServer, _: Arguments) -> dict[str, Any]:
    server.watching.pop("legacy", None)
    server.seen.append("unsubscribed")
    return {}


def list_prompts(_: AskingServer, __: Arguments) -> dict[str, Any]:
    return {"prompts": PROMPTS}


def get_prompt(_: AskingServer, params: Arguments) -> dict[str, Any]:
    def turn(role: str, content: dict[str, Any]) -> dict[str, Any]:
        return {"role": role, "content": content}

    def words(text: str) -> dict[str, Any]:
        return {"type": "text", "text": text}

    given: dict[str, Any] = params.get("arguments") or {}
    if params["name"] == "begun":
        return {"messages": [turn("user", words("Count.")), turn("assistant", words("One, two,"))]}
    if params["name"] == "empty":
        return {"messages": []}
    resource = {"uri": "memo://rules", "mimeType": "text/plain", "text": "No globals."}
    return {
        "messages": [
            turn("user", words("Here are the rules.")),
            turn("user", {"type": "resource", "resource": resource}),
            turn("assistant", words("I have read them.")),
            turn("user", words(f"Review this {given['language']} code{given.get('style', '.')}")),
        ]
    }


def complete(_: AskingServer, params: Arguments) -> dict[str, Any]:
    value = params["argument"]["value"]
    words = LANGUAGES if params["ref"]["type"] == "ref/prompt" else ("2026-11-21", "2026-11-22")
    return {"completion": {"values": [word for word in words if word.startswith(value)]}}


def set_level(server: AskingServer, params: Arguments) -> dict[str, Any]:
    server.log_level = params["level"]
    return {}


# --- tasks -----------------------------------------------------------------------------------------------------------


def _state(server: AskingServer, task: dict[str, Any]) -> dict[str, Any]:
    """The task as it is told: its next state, or the last again."""
    states: list[dict[str, Any]] = task["states"]
    state = states.pop(0) if len(states) > 1 else states[0]
    if state["status"] == "input_required" and task["answers"]:
        return _state(server, task)
    if state["status"] == "input_required":
        states.insert(0, state)
    name = "pollIntervalMs" if server.is_modern else "pollInterval"
    times = {"createdAt": "2026-11-21T00:00:00Z", "lastUpdatedAt": "2026-11-21T00:00:00Z", "ttl": None}
    return {"taskId": task["id"], name: 1, **times, **state}


def _new_task(server: AskingServer, kind: str) -> dict[str, Any]:
    result = text_result("It took a while.")
    question = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": FORM}}
    working = {"status": "working", "statusMessage": "half way"}
    ends: Mapping[str, list[dict[str, Any]]] = {
        "done": [{"status": "completed", "result": result}],
        "asks": [
            {"status": "input_required", "inputRequests": {"who": question}},
            {"status": "completed", "result": result},
        ],
        "fails": [{"status": "failed", "error": {"code": -32603, "message": "the disk is full"}}],
        "is_cancelled": [{"status": "cancelled", "statusMessage": "the owner has left"}],
        "never": [working],
    }
    states = [{"status": "working"}, working, working, *ends[kind]]
    task: dict[str, Any] = {"id": f"task-{kind}", "states": states, "answers": {}, "result": result, "kind": kind}
    server.tasks[task["id"]] = task
    return task


def long(server: Any, arguments: Arguments) -> dict[str, Any]:
    """A call that the server makes a task of."""
    extensions = server.meta.get(f"{META}/clientCapabilities", {}).get("extensions", {})
    if "io.modelcontextprotocol/tasks" not in extensions:
        raise LookupError(-32021, "Missing required client capability")
    return {**_state(server, _new_task(server, arguments["kind"])), "resultType": "task", "ttlMs": None}


def _legacy_task(server: AskingServer, params: Arguments) -> dict[str, Any]:
    return {"task": _state(server, _new_task(server, params["arguments"]["kind"]))}


def _task(server: AskingServer, params: Arguments) -> dict[str, Any]:
    return server.tasks[params["taskId"]]


def get_task(server: AskingServer, params: Arguments) -> dict[str, Any]:
    return _state(server, _task(server, params))


def update_task(server: AskingServer, params: Arguments) -> dict[str, Any]:
    _task(server, params)["answers"] = params["inputResponses"]
    server.seen.append(json.dumps(params["inputResponses"]["who"]))
    return {}


def cancel_task(server: AskingServer, params: Arguments) -> dict[str, Any]:
    server.seen.append(f"cancelled {params['taskId']}")
    return {} if server.is_modern else _state(server, _task(server, params))


def task_result(server: AskingServer, params: Arguments) -> dict[str, Any]:
    task = _task(server, params)
    if task["kind"] == "asks":
        task["answers"] = server.ask("elicitation/create", {"message": "Who?", "requestedSchema": FORM})
        server.seen.append(json.dumps(task["answers"]))
    if task["kind"] == "fails":
        raise LookupError(-32603, "the disk is full")
    return task["result"]


_OFFERS: Mapping[str, Any] = {
    "resources/list": list_resources,
    "resources/templates/list": list_templates,
    "resources/read": read_resource,
    "resources/subscribe": subscribe,
    "resources/unsubscribe": unsubscribe,
    "prompts/list": list_prompts,
    "prompts/get": get_prompt,
    "completion/complete": complete,
    "logging/setLevel": set_level,
    "tasks/get": get_task,
    "tasks/update": update_task,
    "tasks/cancel": cancel_task,
    "tasks/result": task_result,
}


# --- tools -----------------------------------------------------------------------------------------------------------


def ask_model(server: Any, arguments: Arguments) -> str:
    """Asks the host's model."""
    content = {"type": "text", "text": arguments["question"]}
    params = {"messages": [{"role": "user", "content": content}], "maxTokens": 50, **arguments.get("with", {})}
    answer = server.ask("sampling/createMessage", params)
    return f"{answer['model']} says {answer['content']['text']} ({answer['stopReason']})"


def ask_model_often(server: Any, arguments: Arguments) -> str:
    """Asks the host's model again and again; until 2025-11-25."""
    content = {"type": "text", "text": "Again?"}
    params = {"messages": [{"role": "user", "content": content}], "maxTokens": 50}
    for number in range(arguments["count"]):
        try:
            server.ask("sampling/createMessage", params)
        except LookupError as error:  # noqa: PERF203  (it ends the loop)
            return f"{number} answers, then: {error.args[1]}"
    return "all answered"


def ask_owner(server: Any, arguments: Arguments) -> str:
    """Asks the host's owner."""
    schema = arguments.get("schema") or FORM
    return json.dumps(server.ask("elicitation/create", {"message": "Who are you?", "requestedSchema": schema}))


def ask_address(server: Any, arguments: Arguments) -> str:
    """Asks the host's owner to open an address."""
    params = {"mode": "url", "message": "Log in.", "url": arguments["url"], "elicitationId": "e1"}
    return json.dumps(server.ask("elicitation/create", params))


def needs_visit(server: Any, arguments: Arguments) -> str:
    """Wants an address visited before it runs, by an error; until 2025-11-25."""
    server.visits += 1
    if server.visits == arguments["after"]:
        return "visited"
    elicitation = {"mode": "url", "message": "Log in.", "url": "https://login.example/", "elicitationId": "e1"}
    raise LookupError(-32042, "Log in first.", {"elicitations": [elicitation]})


def ask_roots(server: Any, _: Arguments) -> str:
    """Asks for the roots."""
    return ",".join(root["uri"] for root in server.ask("roots/list", {})["roots"])


def touch(server: Any, arguments: Arguments) -> str:
    """Changes a resource."""
    server.updated(arguments["uri"])
    return "touched"


def seen(server: Any, _: Arguments) -> str:
    """What it was told in addition."""
    return "\n".join(server.seen)


def leave(_: Any, __: Arguments) -> str:
    """Ends in the middle of the call."""
    os._exit(0)


def level(server: Any, _: Arguments) -> str:
    """From which level on its log was asked for."""
    return server.log_level or server.meta.get(f"{META}/logLevel", "")


def trace(server: Any, _: Arguments) -> str:
    """The trace that the call belongs to."""
    return server.meta.get("traceparent", "none")


LONG = tool("long", "Takes a while.", kind="string")
TOOLS = [
    tool("ask_model", "Asks the model.", question="string"),
    tool("ask_model_often", "Asks the model again and again.", count="integer"),
    tool("ask_owner"),
    tool("ask_address", url="string"),
    tool("needs_visit", after="integer"),
    tool("ask_roots"),
    tool("touch", uri="string"),
    tool("seen"),
    tool("leave"),
    tool("level"),
    tool("trace"),
    {**LONG, "execution": {"taskSupport": "required"}},
]
HANDLERS: dict[str, Handler] = {
    "ask_model": ask_model,
    "ask_model_often": ask_model_often,
    "ask_owner": ask_owner,
    "ask_address": ask_address,
    "needs_visit": needs_visit,
    "ask_roots": ask_roots,
    "touch": touch,
    "seen": seen,
    "leave": leave,
    "level": level,
    "trace": trace,
    "long": long,
}


def main() -> None:
    words = sys.argv[1:]
    eras = tuple(era for word, era in (("modern", MODERN), ("legacy", LEGACY)) if word in words)
    manners = [word for word in words if word in ("advertising", "mute")]
    AskingServer(eras or (MODERN, LEGACY), *manners).run()


if __name__ == "__main__":
    main()
