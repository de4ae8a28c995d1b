"""A server that speaks the part of the hub's protocol that ``huggingface_hub`` needs to fetch a file.

    HEAD, GET /OWNER/NAME/resolve/REVISION/PATH    headers x-repo-commit, etag, and for large files a redirect to
    GET /cdn/ETAG                                  where ranges are understood; under another name of this machine
    GET /api/models/OWNER/NAME/tree/REVISION       the list of files
    GET /api/models?search=WORDS                   the repositories with these words in their names
    GET /any/other/path                            a file of ``plain``, as GitHub serves the files of a tag

It can break a connection in the middle of a body, answer with a status, and forget that it understands ranges.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

COMMIT = "c0ffee" * 6 + "c0ff"
_TREE = re.compile(r"/api/models/([^/]+/[^/]+)/tree/[^/]+")
_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
# Small files are in git; the others are stored by their SHA-256 and redirected to.
_LARGE = 1000


@dataclass
class FakeHub:
    """The hub's contents and mood.

    Args:
        files: ``owner/name`` -> path -> contents.
        plain: path, without the first slash -> contents.
        gated: repositories whose terms nobody has accepted.
        cuts: for one answer with a body after the other, how many bytes are sent before the connection breaks; None
            sends all of it.
        statuses: for one answer with a body after the other, the status; None is as it should be.
        announce: path -> the SHA-256 that is announced in place of the right one.
        ranges: whether ranges are understood.
        stall_bytes: after so many bytes a longer body stops coming until ``gone``, and ``stalled`` is set; never if 0.
    """

    files: dict[str, dict[str, bytes]] = field(default_factory=dict[str, dict[str, bytes]])
    plain: dict[str, bytes] = field(default_factory=dict[str, bytes])
    gated: set[str] = field(default_factory=set[str])
    cuts: list[int | None] = field(default_factory=list["int | None"])
    statuses: list[int | None] = field(default_factory=list["int | None"])
    announce: dict[str, str] = field(default_factory=dict[str, str])
    ranges: bool = True
    stall_bytes: int = 0
    stalled: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)
    requests: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    authorizations: set[str] = field(default_factory=set[str])
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def bodies(self) -> list[str]:
        """The ranges of the large bodies that were asked for, in order; empty for a whole one."""
        return [wanted for method, path, wanted in self.requests if method == "GET" and path.startswith("/cdn/")]

    def blob(self, etag: str) -> bytes | None:
        for files in self.files.values():
            for path, contents in files.items():
                if etag in {_sha256(contents), self.announce.get(path)}:
                    return contents
        return None


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        del format, args

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.hub.requests.append((self.command, self.path, self.headers.get("Range", "")))
        self.hub.authorizations |= set(self.headers.get_all("Authorization") or ())
        if self.path.startswith("/cdn/"):
            contents = self.hub.blob(self.path.removeprefix("/cdn/"))
            self._send(404, {}) if contents is None else self._body(contents, {})
            return
        if self.path.startswith("/api/models?"):
            words = parse_qs(self.path.partition("?")[2])["search"][0].lower()
            entries = [{"id": name} for name in self.hub.files if words in name.lower()]
            self._send(200, {"Content-Type": "application/json"}, json.dumps(entries).encode())
            return
        listed = _TREE.fullmatch(self.path.partition("?")[0])
        if listed is not None:
            self._list(listed.group(1))
            return
        plain = self.hub.plain.get(self.path[1:])
        if plain is not None:
            self._body(plain, {})
            return
        found = _RESOLVE.fullmatch(self.path)
        if found is None:
            self._send(404, {})
            return
        self._resolve(*found.groups())

    def _list(self, repository: str) -> None:
        if repository not in self.hub.files:
            self._send(401, {"X-Error-Code": "RepoNotFound"})
            return
        entries = [
            {"type": "file", "path": path, "size": len(contents), "oid": hashlib.sha1(contents).hexdigest()}
            for path, contents in self.hub.files[repository].items()
        ]
        self._send(200, {"Content-Type": "application/json"}, json.dumps(entries).encode())

    def _resolve(self, repository: str, revision: str, path: str) -> None:
        headers = {"X-Repo-Commit": COMMIT}
        if repository not in self.hub.files:
            self._send(401, {"X-Error-Code": "RepoNotFound"})
        elif repository in self.hub.gated:
            self._send(403, {"X-Error-Code": "GatedRepo"})
        elif revision not in {"main", COMMIT}:
            self._send(404, {"X-Error-Code": "RevisionNotFound"})
        elif path not in self.hub.files[repository]:
            self._send(404, {**headers, "X-Error-Code": "EntryNotFound"})
        elif len(contents := self.hub.files[repository][path]) < _LARGE:
            self._body(contents, {**headers, "ETag": f'"{hashlib.sha1(contents).hexdigest()}"'})
        else:
            etag = self.hub.announce.get(path, _sha256(contents))
            linked = {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(contents))}
            self._send(302, {**headers, **linked, "Location": f"http://localhost:{self.hub.port}/cdn/{etag}"})

    def _body(self, contents: bytes, headers: Mapping[str, str]) -> None:
        status, start = 200, 0
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if wanted and self.hub.ranges:
            status, start = 206, int(wanted.group(1))
            if start >= len(contents):
                self._send(416, {"Content-Range": f"bytes */{len(contents)}"})
                return
            headers = {**headers, "Content-Range": f"bytes {start}-{len(contents) - 1}/{len(contents)}"}
        is_head = self.command == "HEAD"
        refused = None if is_head or not self.hub.statuses else self.hub.statuses.pop(0)
        if refused is not None:
            self._send(refused, {})
            return
        cut = None if is_head or not self.hub.cuts else self.hub.cuts.pop(0)
        self._send(status, headers, contents[start:], cut)

    def _send(self, status: int, headers: Mapping[str, str], body: bytes = b"", cut: int | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD" and 0 < self.hub.stall_bytes < len(body):
            self.wfile.write(body[: self.hub.stall_bytes])
            self.wfile.flush()
            self.hub.stalled.set()
            self.hub.gone.wait(60)
            self.close_connection = True
            return
        if self.command != "HEAD":
            self.wfile.write(body[:cut])
        if cut is not None:
            self.close_connection = True


@contextmanager
def running(hub: FakeHub) -> Generator[FakeHub]:
    """The hub on a port of this machine, until the block ends."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=60)


def _sha256(contents: bytes) -> str:
    return hashlib.sha256(contents).hexdigest()
