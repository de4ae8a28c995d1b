"""A small MCP server on standard input and output, of both eras, with nothing but the standard library.

    python -m tests.support.mcp_servers.tiny [legacy|modern]      without a word it speaks both

Importable too: ``TinyServer`` answers with any tools, and ``hostile`` misbehaves by way of it. It serves one request
after the other, so that what a test sees has one possible order; ``wait`` alone never ends, but can be cancelled.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
META = "io.modelcontextprotocol"

Arguments = Mapping[str, Any]
Handler = Callable[["TinyServer", Arguments], "str | dict[str, Any]"]


def tool(name: str, description: str = "", /, **properties: str) -> dict[str, Any]:
    """A tool definition whose parameters have the given JSON types; all are required."""
    schema: dict[str, Any] = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}
    if properties:
        schema["required"] = [*properties]
    return {"name": name, "description": description or f"Tool {name}.", "inputSchema": schema}


def text_result(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """A ``tools/call`` result with one text."""
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


class TinyServer:
    """Serves ``tools`` with ``handlers``; ``eras`` it does not speak are refused as real servers refuse them."""

    def __init__(
        self,
        tools: list[dict[str, Any]],
        handlers: Mapping[str, Handler],
        eras: tuple[str, ...] = (MODERN, LEGACY),
        page_size: int = 1000,
    ) -> None:
        self.tools = tools
        self.handlers = handlers
        self.eras = eras
        self.page_size = page_size
        self.meta: Mapping[str, Any] = {}
        self.listening: Any = None
        self.waiting: list[Any] = []
        self.cancelled: list[str] = []

    def run(self) -> None:
        """Serve until the input ends."""
        for line in sys.stdin:
            self.handle(json.loads(line))

    def send(self, **message: Any) -> None:
        """Write one message."""
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def handle(self, message: dict[str, Any]) -> None:
        """Answer one message."""
        method, request = message.get("method"), message.get("id")
        params: dict[str, Any] = message.get("params") or {}
        if method == "notifications/cancelled" and params.get("requestId") in self.waiting:
            self.waiting.remove(params["requestId"])
            self.cancelled.append("wait")
        if request is None:
            return
        if method == "subscriptions/listen":
            self.listening = request
            note: dict[str, Any] = {
                "_meta": {f"{META}/subscriptionId": request},
                "notifications": params["notifications"],
            }
            self.send(method="notifications/subscriptions/acknowledged", params=note)
        elif method == "tools/call" and params["name"] == "wait":
            self.waiting.append(request)
        else:
            self.send(id=request, **self.outcome(str(method), params))

    def outcome(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of a request, or its error."""
        try:
            return {"result": self.answer(method, params)}
        except LookupError as error:
            return {"error": {"code": error.args[0], "message": error.args[1]}}

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of a request."""
        self.meta = params.get("_meta") or {}
        if method == "initialize" and LEGACY in self.eras:
            info = {"name": "tiny", "version": "1"}
            return {"protocolVersion": LEGACY, "capabilities": self.capabilities(), "serverInfo": info}
        is_modern = MODERN in self.eras
        modern = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if is_modern else {}
        if method == "server/discover" and MODERN in self.eras:
            return {**modern, "supportedVersions": [MODERN], "capabilities": self.capabilities()}
        if method == "tools/list":
            start = int(params.get("cursor") or 0)
            page: dict[str, Any] = {"tools": self.tools[start : start + self.page_size]}
            if start + self.page_size < len(self.tools):
                page["nextCursor"] = str(start + self.page_size)
            return {**modern, **page}
        if method == "tools/call":
            handler = self.handlers.get(params["name"])
            if handler is None:
                raise LookupError(-32602, f"Unknown tool: {params['name']}")
            result = handler(self, cast("Arguments", params.get("arguments") or {}))
            kind = {"resultType": "complete"} if is_modern else {}
            return {**kind, **(text_result(result) if isinstance(result, str) else result)}
        raise LookupError(-32601, f"Method not found: {method}")

    def capabilities(self) -> dict[str, Any]:
        """What it declares."""
        return {"tools": {"listChanged": True}}

    def report_progress(self, progress: float, total: float, message: str) -> None:
        """Tell how far the present call is."""
        params = {"progressToken": self.meta["progressToken"], "progress": progress, "total": total, "message": message}
        self.send(method="notifications/progress", params=params)

    def tools_changed(self) -> None:
        """Tell that the list of tools is another one now."""
        meta = {f"{META}/subscriptionId": self.listening} if self.listening is not None else {}
        self.send(method="notifications/tools/list_changed", params={"_meta": meta})


def add(_: TinyServer, arguments: Arguments) -> str:
    """The sum of a and b."""
    return str(arguments["a"] + arguments["b"])


def steps(server: TinyServer, arguments: Arguments) -> str:
    """Reports each of ``count`` steps."""
    for number in range(1, arguments["count"] + 1):
        server.report_progress(number, arguments["count"], f"step {number}")
    return "done"


def learn(server: TinyServer, arguments: Arguments) -> str:
    """Adds a tool of that name where there is none, and says that the list has changed."""
    if all(known["name"] != arguments["name"] for known in server.tools):
        server.tools.append(tool(arguments["name"]))
    server.tools_changed()
    return "learnt"


def fail(_: TinyServer, arguments: Arguments) -> dict[str, Any]:
    """An error result."""
    return text_result(str(arguments["why"]), is_error=True)


def environment(_: TinyServer, arguments: Arguments) -> str:
    """The names of its environment variables."""
    import os

    return ",".join(sorted(os.environ)) if arguments.get("name") is None else os.environ.get(arguments["name"], "")


def cancellations(server: TinyServer, _: Arguments) -> str:
    """Which calls were cancelled."""
    return ",".join(server.cancelled)


TOOLS = [
    tool("add", "Add two numbers.", a="number", b="number"),
    tool("steps", count="integer"),
    tool("learn", name="string"),
    tool("fail", why="string"),
    tool("environment"),
    tool("wait"),
    tool("cancellations"),
]
HANDLERS: dict[str, Handler] = {
    "add": add,
    "steps": steps,
    "learn": learn,
    "fail": fail,
    "environment": environment,
    "cancellations": cancellations,
}


def main() -> None:
    eras = {"legacy": (LEGACY,), "modern": (MODERN,)}
    TinyServer([*TOOLS], HANDLERS, eras.get(sys.argv[-1], (MODERN, LEGACY))).run()


if __name__ == "__main__":
    main()
