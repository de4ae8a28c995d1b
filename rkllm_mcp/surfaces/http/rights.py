"""The rights that each route asks of a key: one row for each method and path.

A route without a row is refused to every caller, so a new route stays closed until its row is written. Handlers ask for
more where the body decides: the host's tools in a completion, a document that is removed, what only the owner may do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

from rkllm_mcp.config.section import Right
from rkllm_mcp.config.sections import RIGHTS
from rkllm_mcp.surfaces.http.errors import HTTPError

Row: TypeAlias = tuple[Right, ...]

# One of the rights of a row is enough. Open routes need no key.
OPEN: Row = ()
ANY_KEY: Row = RIGHTS
CHAT: Row = ("chat",)
TOOLS: Row = ("tools",)
APPROVE: Row = ("approve",)
WRITE: Row = ("write",)

TABLE: Mapping[tuple[str, str], Row] = {
    # The page, and what says that the service lives.
    ("GET", "/"): OPEN,
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("POST", "/v1/devices:exchange"): OPEN,
    # What clients look up before they begin, with any key.
    ("GET", "/metrics"): ANY_KEY,
    ("GET", "/v1/board"): ANY_KEY,
    ("GET", "/v1/boards"): ANY_KEY,
    ("GET", "/v1/queue"): ANY_KEY,
    ("POST", "/v1/boards:join"): OPEN,
    ("POST", "/v1/boards:list"): OPEN,
    ("GET", "/v1/models"): ANY_KEY,
    ("GET", "/v1/models/{model:path}"): ANY_KEY,
    ("GET", "/api/tags"): ANY_KEY,
    ("GET", "/api/version"): ANY_KEY,
    ("POST", "/api/show"): ANY_KEY,
    # Answers, and what a key that asks questions needs for them.
    ("GET", "/v1/me"): CHAT,
    ("GET", "/v1/me/about"): APPROVE,
    ("PUT", "/v1/me/about"): APPROVE,
    ("PUT", "/v1/me/settings"): APPROVE,
    ("GET", "/v1/me/data"): APPROVE,
    ("DELETE", "/v1/me/data"): APPROVE,
    ("GET", "/v1/memory"): APPROVE,
    ("POST", "/v1/memory"): APPROVE,
    ("DELETE", "/v1/memory"): APPROVE,
    ("PATCH", "/v1/memory/{id}"): APPROVE,
    ("DELETE", "/v1/memory/{id}"): APPROVE,
    ("GET", "/v1/memory/export"): APPROVE,
    ("POST", "/v1/memory:import"): APPROVE,
    ("POST", "/v1/models:load"): CHAT,
    ("POST", "/v1/chat/completions"): CHAT,
    ("POST", "/v1/completions"): CHAT,
    ("POST", "/v1/responses"): CHAT,
    ("GET", "/v1/responses/{id}"): CHAT,
    ("GET", "/v1/responses/{id}/input_items"): CHAT,
    ("DELETE", "/v1/responses/{id}"): CHAT,
    ("POST", "/v1/messages"): CHAT,
    ("POST", "/v1/messages/count_tokens"): CHAT,
    ("POST", "/v1/responses/input_tokens"): CHAT,
    ("POST", "/v1/execute"): CHAT,
    ("POST", "/v1/tokens"): CHAT,
    ("POST", "/v1/attachments"): CHAT,
    ("POST", "/v1/embeddings"): CHAT,
    ("POST", "/v1/rerank"): CHAT,
    ("POST", "/v1/audio/transcriptions"): CHAT,
    ("POST", "/v1/audio/translations"): CHAT,
    ("POST", "/v1/audio/speech"): CHAT,
    ("GET", "/v1/audio/voices"): CHAT,
    ("POST", "/v1/elicitations/{id}"): CHAT,
    ("POST", "/v1/knowledge/{tool}"): CHAT,
    ("GET", "/v1/conversations"): CHAT,
    ("GET", "/v1/conversations/{id}"): CHAT,
    ("PATCH", "/v1/conversations/{id}"): CHAT,
    ("DELETE", "/v1/conversations/{id}"): CHAT,
    ("POST", "/v1/conversations/{id}/cancel"): CHAT,
    ("GET", "/v1/conversations/{id}/export"): CHAT,
    ("GET", "/v1/conversations/{id}/prompt"): APPROVE,
    ("GET", "/v1/conversations/{id}/pictures/{sha256}"): CHAT,
    ("GET", "/v1/conversations/{id}/stream"): CHAT,
    ("POST", "/v1/conversations/{id}/versions"): CHAT,
    # A schedule acts while no person is there, so a key that decides for its person makes it; others may run it.
    ("GET", "/v1/schedules"): CHAT,
    ("POST", "/v1/schedules"): APPROVE,
    ("POST", "/v1/schedules:read"): CHAT,
    ("GET", "/v1/schedules/runs"): CHAT,
    ("PATCH", "/v1/schedules/{id}"): APPROVE,
    ("DELETE", "/v1/schedules/{id}"): APPROVE,
    ("POST", "/v1/schedules/{id}/run"): CHAT,
    ("POST", "/api/chat"): CHAT,
    ("POST", "/api/generate"): CHAT,
    ("POST", "/api/embed"): CHAT,
    ("POST", "/api/embeddings"): CHAT,
    ("GET", "/api/ps"): CHAT,
    ("POST", "/api/pull"): CHAT,
    ("GET", "/v1/models/catalogue"): CHAT,
    ("GET", "/v1/models/downloads"): CHAT,
    ("GET", "/v1/models/hub"): CHAT,
    ("POST", "/v1/models:pull"): CHAT,
    ("POST", "/v1/models:stop"): CHAT,
    ("DELETE", "/v1/models/{model:path}"): CHAT,
    ("DELETE", "/api/delete"): CHAT,
    # The tools of servers.
    ("GET", "/v1/tools"): TOOLS,
    ("GET", "/v1/tools/history"): TOOLS,
    ("POST", "/v1/tools/{name}:call"): TOOLS,
    ("POST", "/v1/tools/{name}:enable"): TOOLS,
    ("POST", "/v1/tools/{name}:disable"): TOOLS,
    ("GET", "/v1/resources"): TOOLS,
    ("GET", "/v1/resources/read"): TOOLS,
    ("GET", "/v1/prompts"): TOOLS,
    ("GET", "/v1/servers"): TOOLS,
    ("POST", "/v1/servers"): TOOLS,
    ("GET", "/v1/servers/gallery"): TOOLS,
    ("GET", "/v1/servers/registry"): TOOLS,
    ("POST", "/v1/servers:try"): TOOLS,
    ("POST", "/v1/servers/{name}:enable"): TOOLS,
    ("POST", "/v1/servers/{name}:disable"): TOOLS,
    ("POST", "/v1/servers/{name}:test"): TOOLS,
    ("POST", "/v1/servers/{name}:login"): TOOLS,
    ("GET", "/v1/servers/{name}:login"): TOOLS,
    # Waiting calls with their arguments: the client whose answer waits shows them, a key that approves decides.
    ("GET", "/v1/questions"): ("chat", "approve"),
    ("POST", "/v1/approvals/{id}"): APPROVE,
    ("GET", "/v1/approvals/lasting"): APPROVE,
    ("DELETE", "/v1/approvals/lasting"): APPROVE,
    ("GET", "/v1/devices"): APPROVE,
    ("POST", "/v1/boards:invite"): APPROVE,
    ("POST", "/v1/devices"): APPROVE,
    ("DELETE", "/v1/devices/{id}"): APPROVE,
    ("POST", "/v1/devices:qr"): APPROVE,
    # Documents.
    ("POST", "/v1/documents"): WRITE,
}


def check_rights(table: Mapping[tuple[str, str], Row], method: str, path: str, granted: Collection[Right]) -> None:
    """Refuse a key that has none of the rights of a route, and every caller where the route has no row, with 403.

    Args:
        table: the rows.
        method: the HTTP method of the route; GET for HEAD.
        path: the path as the route declares it, with its parameters in braces.
        granted: the rights of the key.
    """
    row = table.get((method, path))
    if row is None:
        raise HTTPError(403, f"{method} {path} has no row in the table of rights", code="key_purpose")
    if row == OPEN or not set(row).isdisjoint(granted):
        return
    needed = " or ".join(f"'{right}'" for right in row)
    message = f"this key is for {', '.join(granted)}; the owner of the service grants {needed}"
    raise HTTPError(403, message, code="key_purpose")
