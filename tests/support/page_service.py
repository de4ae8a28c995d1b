"""A service for the page alone: real HTTP on a port of this machine, the routes that the page uses, scripted answers.

It has the shapes of ``rkllm_mcp.surfaces.http`` and shows what a healthy service shows seldom: a queue, a connection
that breaks, a key that is wrong, a form that comes back, hostile text. ``tests/end_to_end/test_page.py`` has the page
meet the real one.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, cast
from urllib.parse import quote_plus

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from rkllm_base.encodings import decode
from rkllm_mcp.config.gallery import gallery
from rkllm_mcp.config.registry import matching, registry_copy
from rkllm_mcp.diagnostics.programs import needed_programs
from rkllm_mcp.surfaces.http import page
from tests.support.browser import ELSEWHERE

Json = dict[str, Any]
# In an answer: wait until ``PageService.go_on`` is called, or break the connection.
HOLD: Json = {"kind": "hold"}
BREAK: Json = {"kind": "break"}
END: Json = {"kind": "end", "reason": "answered", "error": None}
USAGE: Json = {
    "kind": "usage",
    "prompt_tokens": 612,
    "prefilled_tokens": 96,
    "cached_tokens": 516,
    "generated_tokens": 48,
    "prefill_ms": 410.0,
    "decode_ms": 5200.0,
    "time_to_first_token_ms": 640.0,
}


def text(words: str) -> Json:
    """A piece of an answer."""
    return {"kind": "text", "text": words}


def call(id: str, name: str, arguments: Json, server: str = "weather") -> Json:  # noqa: A002
    """A call of a tool."""
    return {"kind": "tool_call", "id": id, "name": name, "server": server, "arguments": arguments, "repaired": False}


def known_model(name: str, state: str = "to pull", fits: str = "yes", **fields: Any) -> Json:
    """A model of the catalogue."""
    return {
        "name": name,
        "description": f"{name}: answers and tools.",
        "task": "chat",
        "state": state,
        "fits": fits,
        "reason": "" if fits == "yes" else "needs 9.1 GiB, 5.2 GiB available",
        "tokens_per_second": 16.7,
        "memory_mb": 1689,
        "context_tokens": 4096,
        "recommended": False,
        "loaded": False,
        "removable": False,
        "partial_bytes": 0,
        **fields,
    }


def download(name: str, state: str, **fields: Any) -> Json:
    """A download of a model."""
    return {
        "name": name,
        "folder": "",
        "state": state,
        "received": 620_000_000,
        "total": 1_700_000_000,
        "problem": "",
        **fields,
    }


def result(id: str, name: str, said: str, *, is_error: bool = False) -> Json:  # noqa: A002
    """What came of a call."""
    return {
        "kind": "tool_result",
        "id": id,
        "name": name,
        "is_error": is_error,
        "text": said,
        "seconds": 0.42,
        "truncated": False,
    }


@dataclass
class PageService:
    """What the service has and how it is.

    Args:
        answers: the events of each answer, by the question; ``END`` is added where it is missing.
        refusals: for one question after the other, an error to answer with: status, body and headers.
        codes: those of the refusals, in their order.
        key: what has to come as a bearer; empty when nothing has to.
        storage: why nothing is stored; empty when all is well.
        titles: whether the board writes titles of conversations.
        about: the text about the person.
        catalogue: the models that the board has or could have.
        downloads: those of models.
        can_add: the key may add servers.
        missing: programs that servers of the gallery need and that are not here, with what installs them.
        registry_searches: the words that left the board.
        tests: what the tests of servers come to, by name; ``TESTED`` for all others.
        form_error: the error with which the first form comes back; empty when it is taken.
        markup: is after every name and text that is sent, and is taken out of what comes back.
        pace_s: how long each piece of a text takes.
        release: ends the address of the page's files; another one is another release of the page.
    """

    answers: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])
    refusals: list[tuple[int, str, dict[str, str]]] = field(default_factory=list[tuple[int, str, dict[str, str]]])
    codes: list[str] = field(default_factory=list[str])
    key: str = ""
    storage: str = ""
    titles: bool = False
    about: str = ""
    form_error: Json | None = None
    conversations: dict[str, Json] = field(default_factory=dict[str, Json])
    servers: list[Json] = field(default_factory=list[Json])
    tools: list[Json] = field(default_factory=list[Json])
    calls: list[Json] = field(default_factory=list[Json])
    questions: list[Json] = field(default_factory=list[Json])
    models: list[Json] = field(default_factory=list[Json])
    catalogue: list[Json] = field(default_factory=list[Json])
    downloads: list[Json] = field(default_factory=list[Json])
    permissions: list[Json] = field(default_factory=list[Json])
    can_add: bool = False
    missing: dict[str, str] = field(default_factory=dict[str, str])
    registry_searches: list[str] = field(default_factory=list[str])
    tests: dict[str, Json] = field(default_factory=dict[str, Json])
    documents: dict[str, str] | None = None
    resources: Json = field(default_factory=lambda: {"resources": [], "templates": []})
    prompts: list[Json] = field(default_factory=list[Json])
    board: Json = field(default_factory=lambda: dict(BOARD))
    several: Json = field(default_factory=dict[str, Any])  # of /v1/me: the name of this board, and what boards share
    settings: Json = field(default_factory=dict[str, Any])
    waiting: int = 0  # in the proxy of several boards
    requests: list[tuple[str, str, Any]] = field(default_factory=list[tuple[str, str, Any]])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    markup: str = ""
    pace_s: float = 0.0
    release: str = ""
    port: int = 0
    _gate: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url_from_elsewhere(self) -> str:
        """As another machine names it: by plain HTTP, which a browser does not trust."""
        return f"http://{ELSEWHERE}:{self.port}"

    def count(self, path: str) -> int:
        """How often a path was asked for."""
        return sum(1 for _, asked, _ in self.requests if asked == path)

    def go_on(self) -> None:
        """Let every answer that holds go on."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._gate.set)

    def sent(self, path: str) -> list[Any]:
        """The bodies that were posted to a path."""
        return [body for method, to, body in self.requests if method == "POST" and to == path]

    def start_of(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def renewed(self, request: Request) -> Response:
        """The page's files as another release has them."""
        version = f"{page.page_version()}{self.release}"
        name = request.path_params.get("path", "index.html")
        is_known = name == "worker.js" or request.path_params.get("version", version) == version
        if not is_known or name not in page.page_files():
            return Response(status_code=404)
        file = page.page_files()[name]
        content = file.content.replace(page.page_version().encode(), version.encode())
        return Response(content, media_type=file.media, headers={"Service-Worker-Allowed": "/"})

    async def execute(self, request: Request) -> Response:
        body = await request.json()
        if self.refusals:
            status, message, headers = self.refusals.pop(0)
            return _problem(status, message, headers, code=self.codes.pop(0) if self.codes else None)
        if body.get("conversation") and body["conversation"] not in self.conversations:
            return _problem(404, "there is no such conversation here", param="conversation")
        name = body.get("conversation") or f"c{len(self.conversations) + 1}"
        asked = "continue" if body.get("continue") else body.get("message") or body.get("prompt", {}).get("name", "")
        if body.get("again"):
            asked = self.conversations[name]["messages"][-2]["text"]
            del self.conversations[name]["messages"][-2:]
        stored = self.conversations.setdefault(name, _conversation(name, asked))
        versions = 1
        if body.get("continue"):
            del stored["messages"][-2:]
        if (position := body.get("replaces")) is not None:
            earlier = stored["earlier"].setdefault(position, [])
            earlier.append(stored["messages"][position:])
            del stored["messages"][position:]
            versions = len(earlier) + 1
        question: Json = {"role": "user", "text": asked, "thinking": "", "created": 1000.0, "events": []}
        stored["messages"].append({**question, "version": versions, "versions": versions})
        events = list(self.answers.get(asked, [text("I do not know.")]))
        events += [] if events[-1]["kind"] in ("end", "break") else [END]
        return StreamingResponse(
            self._stream(events, stored), media_type="text/event-stream", headers={"X-Conversation-Id": name}
        )

    async def _stream(self, events: list[Json], stored: Json) -> AsyncGenerator[bytes, None]:
        said, shown = "", list[Json]()
        yield b": heartbeat\n\n"
        for event in events:
            if event is HOLD:
                await self._gate.wait()
                self._gate.clear()
                if stored.pop("cancelled", False):
                    yield _record({"kind": "end", "reason": "cancelled", "error": None})
                    return
            elif event is BREAK:
                raise ConnectionAbortedError
            else:
                if event["kind"] == "text":
                    said += event["text"]
                    await asyncio.sleep(self.pace_s)
                if event["kind"] == "end" and event["reason"] in ("answered", "interrupted"):
                    answer: Json = {
                        "role": "assistant",
                        "text": said,
                        "thinking": "",
                        "created": 1100.0,
                        "events": shown,
                    }
                    stored["messages"].append({**answer, "version": 1, "versions": 1, "ending": event["reason"]})
                elif event["kind"] not in ("status", "queued", "prefill", "tool_progress", "approval"):
                    shown.append(event)
                yield _record(event)

    async def cancel(self, request: Request) -> Response:
        self.conversations[request.path_params["id"]]["cancelled"] = True
        self._gate.set()
        return JSONResponse({"cancelled": True})

    async def list_conversations(self, request: Request) -> Response:
        limit, search = int(request.query_params["limit"]), request.query_params["search"]
        # As on a board, one is there when its first answer is over.
        over = [each for each in self.conversations.values() if each["messages"][-1]["role"] == "assistant"]
        found = sorted((each for each in over if search in each["title"]), key=lambda each: not each["pinned"])
        listed = [{**each, "messages": len(each["messages"])} for each in found[:limit]]
        return JSONResponse({"conversations": listed, "count": len(found)})

    async def conversation(self, request: Request) -> Response:
        name = request.path_params["id"]
        if name not in self.conversations:
            return _problem(404, f"there is no conversation {name!r}")
        if request.method == "DELETE":
            del self.conversations[name]
            return Response(status_code=204)
        if request.method == "PATCH":
            self.conversations[name].update(await request.json())
        return JSONResponse(self.conversations[name])

    async def tokens(self, request: Request) -> Response:
        return JSONResponse({"tokens": sum(len(text) for text in (await request.json())["texts"])})

    async def knowledge(self, request: Request) -> Response:
        if self.documents is None:
            return _problem(404, "there is no knowledge server", code="no_knowledge_server")
        given = (await request.json())["arguments"]
        base = {"knowledge_base_id": "b1", "name": "Rules", "total_documents": len(self.documents)}
        found = [
            {
                "content": text,
                "score": 0.83,
                "metadata": {"title": title, "page": 12, "document_id": title, "chunk_index": 1},
            }
            for title, text in self.documents.items()
            if given.get("query", "") in text
        ]
        listed = [{"document_id": title, "title": title, "uri": "", "chunks": 3} for title in self.documents]
        results: dict[str, Json] = {
            "list_knowledge_bases": {"knowledge_bases": [base], "documents": listed},
            "search_documents": {"results": found},
        }
        if request.path_params["tool"] == "read_passages":
            if given["document_id"] not in self.documents:
                return _problem(422, "Document not found", code="document_refused")
            return JSONResponse(self._passages(**given))
        if request.path_params["tool"] == "remove_document":
            del self.documents[given["document_id"]]
        return JSONResponse(results.get(request.path_params["tool"], {}))

    def _passages(self, document_id: str, chunk_index: int, limit: int) -> Json:
        """A document of three passages, one page each; the one in the middle is its text."""
        assert self.documents is not None
        texts = ["How it begins.", self.documents[document_id], "How it ends."]
        found = [
            {"content": text, "chunk_index": index, "page": 11 + index, "headings": ["Rules", "Work"]}
            for index, text in enumerate(texts)
        ]
        whole = {"document_id": document_id, "knowledge_base_id": "b1", "title": document_id, "uri": "", "chunks": 3}
        return {**whole, "results": found[chunk_index : chunk_index + limit]}

    async def read_resource(self, request: Request) -> Response:
        given = dict(request.query_params)
        return JSONResponse({**given, "contents": [{"uri": given["uri"], "text": "x"}], "tokens": 42})

    async def upload(self, request: Request) -> Response:
        async with request.form() as form:
            file = form["file"]
            assert not isinstance(file, str)
            text = decode(await file.read()).text
            if request.url.path.endswith("attachments"):
                # A form feed begins a page.
                pages = [place + 1 for place, letter in enumerate(text) if letter == "\f"]
                read: Json = {"title": file.filename, "text": text, "warnings": [], "tokens": len(text)}
                return JSONResponse({**read, "pages": [0, *pages] if pages else []})
            assert self.documents is not None
            self.documents[file.filename or ""] = text
        return JSONResponse({"documents": [{"chunks": 3}]}, 201)

    async def forget(self, request: Request) -> Response:
        if request.method == "DELETE":
            name = request.query_params["tool"]
            self.permissions = [each for each in self.permissions if each["tool"] != name]
            return Response(status_code=204)
        return JSONResponse({"permissions": self.permissions})

    async def load(self, request: Request) -> Response:
        name = (await request.json())["model"]
        self.models = [{**each, "loaded": each["id"] == name} for each in self.models]
        return JSONResponse({})

    async def person(self, request: Request) -> Response:
        if request.method == "PUT":
            self.about = (await request.json())["about"]
        return JSONResponse({"about": self.about})

    async def data(self, request: Request) -> Response:
        if request.method == "DELETE":
            self.conversations.clear()
            self.about = ""
        return JSONResponse({"about": self.about, "conversations": list(self.conversations.values())})

    async def pull(self, request: Request) -> Response:
        name = (await request.json())["model"]
        self.downloads = [each for each in self.downloads if each["name"] != name]
        if request.url.path.endswith("pull"):
            self.downloads.append(download(name, "running"))
        return JSONResponse({})

    async def remove_model(self, request: Request) -> Response:
        self.catalogue = [each for each in self.catalogue if each["name"] != request.path_params["name"]]
        return JSONResponse({})

    async def registry(self, request: Request) -> Response:
        """The copy of the release; the registry itself has one server more."""
        found, asked = registry_copy(), request.query_params
        servers = [asdict(each) for each in matching(found.servers, asked["search"])]
        if asked["live"] == "true":
            self.registry_searches.append(asked["search"])
            servers.append({**servers[0], "name": "com.example/news", "title": "News of today", "short": "news"})
        about = {"registry": "https://registry.example", "cursor": "", "origin": "", "date": found.date}
        return JSONResponse({**about, "servers": servers})

    async def qr(self, request: Request) -> Response:
        svg = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><path d="M0 0h9v9z"/></svg>'
        return JSONResponse({"svg": svg, "is_linking": self.can_add})

    async def gallery(self, request: Request) -> Response:
        names = {server["name"] for server in self.servers}
        servers = [
            {
                **each,
                "installed": each["name"] in names,
                "missing": [
                    name
                    for name in needed_programs(each["command"][0], is_sandboxed=each["is_sandboxed"])
                    if name in self.missing
                ],
            }
            for each in gallery()
        ]
        missing = [{"name": name, "command": command} for name, command in self.missing.items()]
        return JSONResponse({"servers": servers, "missing": missing, "can_add": self.can_add})

    async def try_server(self, request: Request) -> Response:
        body = await request.json()
        return JSONResponse(self.tests.get(body.get("gallery") or body["name"], TESTED))

    async def export(self, request: Request) -> Response:
        stored = self.conversations[request.path_params["id"]]
        if request.query_params["format"] == "json":
            return JSONResponse(stored)
        return PlainTextResponse(f"# {stored['title']}\n", media_type="text/markdown")

    async def switch(self, request: Request) -> Response:
        name, _, action = request.path_params["name"].rpartition(":")
        if action == "test":
            return JSONResponse({**self.tests.get(name, TESTED), "name": name})
        for entry in self.tools + self.servers:
            if name in (entry.get("qualified_name"), entry["name"]):
                entry["enabled"] = action == "enable"
        return JSONResponse({"name": name, "enabled": action == "enable"})

    async def elicitation(self, request: Request) -> Response:
        if self.form_error is not None:
            problem, self.form_error = self.form_error, None
            return JSONResponse({"error": problem}, 422)
        self._gate.set()
        return JSONResponse({"id": request.path_params["id"], "action": (await request.json())["action"]})

    async def approval(self, request: Request) -> Response:
        self._gate.set()
        return JSONResponse({"id": request.path_params["id"], "decision": (await request.json())["decision"]})

    async def document(self, request: Request) -> Response:
        errors = request.query_params.get("errors") == "true"
        server = request.query_params.get("server")
        calls = [c for c in self.calls if (c["is_error"] or not errors) and server in (None, c["server"])]
        documents: dict[str, Json] = {
            "/v1/tools": {"tools": self.tools, "tokens": sum(t["tokens"] for t in self.tools if t["enabled"])},
            "/v1/tools/history": {"calls": calls},
            "/v1/servers": {"servers": self.servers},
            "/v1/questions": {"questions": self.questions},
            "/v1/schedules": {"schedules": [], "zone": "Europe/Berlin"},
            "/v1/schedules/runs": {"runs": [], "now": 0.0},
            "/v1/resources": self.resources,
            "/v1/prompts": {"prompts": self.prompts},
            "/v1/board": self.board,
            "/v1/models": {"data": self.models},
            "/v1/models/catalogue": {"models": self.catalogue, "downloads": self.downloads},
            "/v1/models/downloads": {"downloads": self.downloads},
            "/v1/models/hub": {"hub": self.url, "repositories": ["them/Qwen-rkllm"]},
            "/v1/me": {
                "tenant": "",
                "language": "en",
                "emulated": True,
                "model": next((each["id"] for each in self.models if each["loaded"]), "demo"),
                "context_tokens": self.board["context_tokens"],
                "needs_key": bool(self.key),
                "may_delete": True,
                "version": "0.1.0",
                "storage": self.storage,
                "titles": self.titles,
                "board": "",
                "shared": False,
                "listens": False,
                "speaks": False,
                "settings": self.settings,
                **self.several,
            },
            "/v1/queue": {"waiting": self.waiting},
        }
        return JSONResponse(documents[request.url.path])

    async def change_settings(self, request: Request) -> Response:
        self.settings |= await request.json()
        return JSONResponse(self.settings)

    def routes(self) -> list[Route]:
        documents = (
            "tools",
            "tools/history",
            "servers",
            "questions",
            "resources",
            "prompts",
            "board",
            "models",
            "me",
            "queue",
        )
        documents += ("models/catalogue", "models/downloads", "models/hub")
        return [
            *(Route(f"/v1/{name}", self.document) for name in documents),
            Route("/v1/execute", self.execute, methods=["POST"]),
            Route("/v1/conversations", self.list_conversations),
            Route("/v1/conversations/{id}", self.conversation, methods=["GET", "PATCH", "DELETE"]),
            Route("/v1/conversations/{id}/cancel", self.cancel, methods=["POST"]),
            Route("/v1/conversations/{id}/export", self.export),
            Route("/v1/tokens", self.tokens, methods=["POST"]),
            Route("/v1/knowledge/{tool}", self.knowledge, methods=["POST"]),
            Route("/v1/documents", self.upload, methods=["POST"]),
            Route("/v1/attachments", self.upload, methods=["POST"]),
            Route("/v1/approvals/lasting", self.forget, methods=["GET", "DELETE"]),
            Route("/v1/resources/read", self.read_resource),
            Route("/v1/servers/gallery", self.gallery),
            Route("/v1/servers/registry", self.registry),
            Route("/v1/devices:qr", self.qr, methods=["POST"]),
            Route("/v1/servers:try", self.try_server, methods=["POST"]),
            Route("/v1/me/about", self.person, methods=["GET", "PUT"]),
            Route("/v1/me/settings", self.change_settings, methods=["PUT"]),
            Route("/v1/me/data", self.data, methods=["GET", "DELETE"]),
            Route("/v1/models:load", self.load, methods=["POST"]),
            Route("/v1/models:pull", self.pull, methods=["POST"]),
            Route("/v1/models:stop", self.pull, methods=["POST"]),
            Route("/v1/models/{name}", self.remove_model, methods=["DELETE"]),
            Route("/v1/tools/{name}", self.switch, methods=["POST"]),
            Route("/v1/servers/{name}", self.switch, methods=["POST"]),
            Route("/v1/approvals/{id}", self.approval, methods=["POST"]),
            Route("/v1/elicitations/{id}", self.elicitation, methods=["POST"]),
        ]


TESTED: Json = {
    "name": "new",
    "state": "ready",
    "problem": "",
    "failure": "",
    "seconds": 0.8,
    "tokens": 210,
    "tools": [{"name": "fetch"}],
    "output": [],
}
BOARD: Json = {
    "npu_load": [62, 58, 0],
    "temperature_c": 48.5,
    "memory": {"total_mb": 7920, "available_mb": 5210},
    "model": "demo",
    "runtime": "emulated 1.3.0",
    "emulated": True,
    "context_tokens": 4096,
    "prefill_tps": 212.4,
    "decode_tps": 8.9,
    "prefilled_tokens": 1840,
    "reused_tokens": 9620,
    "queue": {"waiting": 0, "running": 0},
    "uptime_s": 7384,
}


@contextmanager
def running(service: PageService) -> Generator[PageService]:
    """The service on a port of this machine, the same as before when it starts again, until the block ends."""

    async def recorded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/v1/"):
            send = _marking(send, scope["path"], service.markup) if service.markup else send
            scope["path"] = scope["path"].replace(service.markup or "\0", "")
            scope["query_string"] = scope["query_string"].replace(quote_plus(service.markup or "\0").encode(), b"")
            request = Request(scope, receive)
            body = (await request.body()).replace(json.dumps(service.markup or "\0")[1:-1].encode(), b"")
            service.requests.append((request.method, request.url.path, json.loads(body) if body[:1] == b"{" else None))
            service.headers.append(dict(request.headers))
            if service.key and request.headers.get("authorization") != f"Bearer {service.key}":
                await _problem(401, "this key is not known")(scope, receive, send)
                return

            # The body was taken above; what still comes is the end of the connection.
            sent = False

            async def again() -> Any:
                nonlocal sent
                if sent:
                    return await receive()
                sent = True
                return {"type": "http.request", "body": body, "more_body": False}

            await app(scope, again, send)
            return
        await (other if service.release and scope["type"] == "http" else app)(scope, receive, send)

    static = [Route("/", page.page.handler), page.FILES]
    app = Starlette(routes=[*static, *service.routes()])
    other = Starlette(routes=[Route("/", service.renewed), Route("/static/{version}/{path:path}", service.renewed)])
    server = uvicorn.Server(
        uvicorn.Config(recorded, port=service.port, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
    )
    started = threading.Event()

    async def serve() -> None:
        service.start_of(asyncio.get_running_loop())
        config = server.config
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        service.port = server.servers[0].sockets[0].getsockname()[1]
        started.set()
        await server.main_loop()
        await server.shutdown()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert started.wait(20)
    try:
        yield service
    finally:
        server.should_exit = True
        service.go_on()
        thread.join(timeout=20)


# Values that a program reads: everything else is a name or a text.
_WORDS = frozenset(
    {"kind", "id", "state", "role", "ending", "transport", "ruling", "language", "param", "code", "type", "failure"}
    | {"started", "conversation", "uri", "uri_template", "url", "format", "fits", "task", "date"}
)
_REASONS = frozenset({"answered", "cancelled", "failed"})


def _marked(value: Any, markup: str, key: str = "") -> Any:
    """A value with markup after its names and texts; ``key`` says what it is."""
    if isinstance(value, str):
        return value if not value or key in _WORDS or value in _REASONS else value + markup
    if isinstance(value, list):
        return [_marked(item, markup, key) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        # What a server chooses to call its arguments and the fields of its form.
        behind = markup if key in ("arguments", "properties") else ""
        items = cast("Json", value).items()
        return {name + behind: _marked(item, markup, "" if behind else name) for name, item in items}
    return value


def _marking(send: Any, path: str, markup: str) -> Any:
    """Send responses with markup after the names and texts of their JSON."""
    held: list[Json] = []

    async def send_marked(message: Json) -> None:
        if message["type"] == "http.response.start":
            held.append(message)
            return
        body: bytes = message.get("body", b"")
        if body.startswith(b"data: {"):
            body = _record(_marked(json.loads(body[6:]), markup))
        elif body[:1] == b"{" and path != "/v1/servers/gallery":  # whose texts are the program's own
            content = json.loads(body)
            if path == "/v1/models":
                content["data"] = [{**each, "id": each["id"] + markup} for each in content["data"]]
            body = json.dumps(_marked(content, markup)).encode()
        if held:
            start = held.pop()
            start["headers"] = [
                (name, str(len(body)).encode() if name == b"content-length" else value)
                for name, value in start["headers"]
            ]
            await send(start)
        await send({**message, "body": body})

    return send_marked


def _conversation(name: str, title: str) -> Json:
    return {
        "id": name,
        "title": title,
        "created": 1_795_000_000.0,
        "updated": 1_795_000_000.0,
        "pinned": False,
        "passage": "",
        "settings": {},
        "system": None,
        "messages": [],
        "earlier": {},
    }


def _record(event: Json) -> bytes:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def _problem(
    status: int,
    message: str,
    headers: dict[str, str] | None = None,
    param: str | None = None,
    code: str | None = None,
) -> JSONResponse:
    body = {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}
    return JSONResponse(body, status, headers)
