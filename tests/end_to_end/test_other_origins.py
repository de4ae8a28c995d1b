"""Pages of other origins that use the board, in a real Chromium: the one that ``cors`` names may, another may not."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2

from tests.support.browser import PATIENCE_MS, chromium
from tests.support.chat_script import RULES
from tests.support.clients import scripted_demo, serving
from tests.support.served import scripted_model

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SETTINGS = """
[[servers]]
name = "own"
transport = "builtin"
tools = [{{ name = "calculator" }}]

[service]
cors = ["http://127.0.0.1:{port}"]
"""
# What OpenAI's client sends from a page: headers of its own need a preflight. The answer is read piece by piece.
ASK = """async (url) => {
    const headers = { Authorization: "Bearer none", "Content-Type": "application/json", "X-Stainless-Lang": "js" };
    const body = JSON.stringify({ messages: [{ role: "user", content: "hello from oslo" }], stream: true });
    try {
        const answer = await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        let text = "";
        for (let piece = await reader.read(); !piece.done; piece = await reader.read()) text += piece.value;
        return { status: answer.status, text, id: answer.headers.get("X-Request-Id") };
    } catch (error) {
        return { error: error.name };
    }
}"""
# A request that a browser sends without asking first, as a form would; the page cannot read the answer.
SLIP = """async (url) => {
    const answer = await fetch(`${url}/v1/tools/calculator:disable`, { method: "POST", mode: "no-cors" });
    return answer.type;
}"""


class EmptyPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>Another page</title>")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""


@contextmanager
def another_site() -> Generator[int, None, None]:
    """A site with an empty page; yields its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), EmptyPage) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def run(browser: Browser, page_url: str, script: str, url: str) -> Any:
    """What a script of a page comes to."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    try:
        page = context.new_page()
        page.goto(page_url)
        return page.evaluate(script, url)
    finally:
        context.close()


def test_a_page_of_another_origin_uses_the_board_only_where_cors_names_it(tmp_path: Path) -> None:
    model = scripted_model(tmp_path / "model", RULES)
    with chromium() as browser, another_site() as port:
        demo = scripted_demo(tmp_path / "home", model, extra=SETTINGS.format(port=port))
        with serving(demo) as service:
            answered = run(browser, f"http://127.0.0.1:{port}/", ASK, service.url)
            assert answered["status"] == 200
            assert "data: [DONE]" in answered["text"]
            assert len(answered["id"]) == 32
            # The same site under another name is another origin.
            assert run(browser, f"http://localhost:{port}/", ASK, service.url) == {"error": "TypeError"}
            assert run(browser, f"http://localhost:{port}/", SLIP, service.url) == "opaque"
            (tool,) = httpx2.get(f"{service.url}/v1/tools", timeout=120).json()["tools"]
            assert (tool["name"], tool["enabled"]) == ("calculator", True)
