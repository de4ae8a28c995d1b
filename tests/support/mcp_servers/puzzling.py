"""An MCP server on stdio with the tools and results of public reports, without an SDK, which would refuse them."""

from __future__ import annotations

import json
import sys
from typing import Any

# What zod 4 writes for an e-mail address.
EMAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
PATTERN = {"type": "object", "properties": {"email": {"type": "string", "format": "email", "pattern": EMAIL}}}
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS: list[dict[str, Any]] = [
    {"name": "pattern", "description": "Has a pattern.", "inputSchema": PATTERN},
    {"name": "picture", "description": "Answers with a picture.", "inputSchema": NOTHING},
    {"name": "dotted.name/read", "description": "Has dots in its name.", "inputSchema": NOTHING},
    {"name": f"long_{'name_' * 11}end", "description": "Has a long name.", "inputSchema": NOTHING},
    {"name": "unfit", "description": "Breaks its schema.", "inputSchema": NOTHING, "outputSchema": NUMBER},
]


def _reply(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        server = {"name": "puzzling", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": server}
    if method != "tools/call":
        return {"tools": TOOLS}
    name = params["name"]
    content = [{"type": "text", "text": f"{name} was called"}]
    if name == "picture":
        content.append({"type": "image", "data": PIXEL, "mimeType": "image/png"})
    return {"content": content, **({"structuredContent": {"n": "many"}} if name == "unfit" else {})}


def _serve() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            result = _reply(message["method"], message.get("params") or {})
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    _serve()
