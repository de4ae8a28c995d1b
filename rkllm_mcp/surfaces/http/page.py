"""The page: the files of ``surfaces/web`` as they are, at ``/`` and below ``/static/``. It needs no key to be seen.

What the page then asks for needs one, where one is configured; it asks the person for it. The files are read once and
served from memory by the exact names that they have, so no address reaches any other file. The index names them below
``/static/VERSION/``, where a browser keeps them for good; it asks for the index alone each time (ETag). The page may
run nothing but its own files: its policy allows no inline script or style, no markup made from text, and no request
to anywhere else.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from rkllm_mcp.surfaces.http.route import Route, RouteResponse

FOLDER = Path(__file__).parent.parent / "web"
_INDEX = "index.html"
# Said here and not guessed from the machine's own table: a module of another type is not run by any browser.
_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
}
_WORKER = "worker.js"
# A comment that begins its line: those of types and modules.
_COMMENT = re.compile(rb"^[ \t]*/\*\*.*?\*/", re.MULTILINE | re.DOTALL)
# For the tools that check the scripts, and for no browser.
_CHECKERS = "package.json"
_KEPT, _ASKED_FOR = "public, max-age=31536000, immutable", "no-cache"
# Pictures of questions come from the page's own memory (blob:). Trusted types switch off every way to make markup from
# text: a mistake in the page cannot become an injection. The one policy names the addresses of the page's two workers,
# and no other.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "manifest-src 'self'; worker-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types page-worker"
)


@dataclass(frozen=True)
class PageFile:
    """A file of the page."""

    content: bytes  # its bytes
    media: str  # its content type
    tag: str  # entity tag in quotes, a hash of the content

    @cached_property
    def gzipped_content(self) -> bytes:
        """The bytes compressed with gzip."""
        return gzip.compress(self.content, mtime=0)


@cache
def page_version() -> str:
    """The address of this release's files: a hash of them all."""
    return re.findall(rb"/static/(\w+)/", page_files()[_INDEX].content)[0].decode()


@cache
def page_files() -> Mapping[str, PageFile]:
    """Every file of the page by its path below ``/static/``; the index and the worker name the version of them all."""
    contents: dict[str, bytes] = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix in _TYPES and path.name != _CHECKERS:
            content = path.read_bytes()
            if path.suffix == ".js" and "vendor" not in path.parts:
                # Comments are a fifth of a script's bytes; without them it has the same lines.
                content = _COMMENT.sub(lambda comment: b"\n" * comment[0].count(b"\n"), content)
            contents[path.relative_to(FOLDER).as_posix()] = content
    version = hashlib.sha256(b"".join(contents.values())).hexdigest()[:12]
    files: dict[str, PageFile] = {}
    for name, content in contents.items():
        if name in (_INDEX, _WORKER):
            content = content.replace(b"/static/", f"/static/{version}/".encode())
        if name == _WORKER:
            # It keeps from the start all but the page, itself, and libraries, which it keeps once they are needed.
            cached = [file for file in contents if file not in (_INDEX, _WORKER) and not file.startswith("js/vendor/")]
            content = content.replace(b"FILES = []", f"FILES = {json.dumps(cached)}".encode())
        files[name] = PageFile(content, _TYPES[Path(name).suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return files


@Route("GET", "/", answers=(RouteResponse(media="text/html", says="The page."),), is_open=True)
async def page(request: Request) -> Response:
    """The page."""
    return _response(request, _INDEX, _ASKED_FOR)


async def _static(request: Request) -> Response:
    path, version = request.path_params["path"], request.path_params["version"]
    # A page of an earlier release must not get a part of this one; its worker may, which learns of the release by that.
    if path == _WORKER:
        return _response(request, path, _ASKED_FOR)
    if version != page_version():
        raise HTTPException(404)
    return _response(request, path, _KEPT)


# The page's scripts, styles and pictures; they are not an interface and change with every version.
FILES = StarletteRoute("/static/{version}/{path:path}", _static)


def _response(request: Request, path: str, caching: str) -> Response:
    file = page_files().get(path)
    if file is None:
        raise HTTPException(404)
    headers = {
        "ETag": file.tag,
        "Cache-Control": caching,
        "Content-Security-Policy": _POLICY,
        "Vary": "Accept-Encoding",
    }
    if path == _WORKER:
        headers["Service-Worker-Allowed"] = "/"
    tags = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    if file.tag in tags:
        return Response(status_code=304, headers=headers)
    headers["Content-Type"] = file.media
    if "gzip" in request.headers.get("accept-encoding", "") and file.media != _TYPES[".png"]:
        return Response(file.gzipped_content, headers={**headers, "Content-Encoding": "gzip"})
    return Response(file.content, headers=headers)
