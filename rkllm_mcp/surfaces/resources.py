"""What the configured servers let others read, without a model: ``rkllm-mcp resources``."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from rkllm_mcp.calling import CallContext
from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.offers import resource_dict, resource_table, template_dict
from rkllm_mcp.surfaces.session import EXIT_DONE, Session
from rkllm_mcp.surfaces.terminal import printable
from rkllm_mcp.surfaces.tools import with_tools, write_json

if TYPE_CHECKING:
    from rkllm_mcp.inspection import Toolbox


def list_all(session: Session, server: str | None, *, as_json: bool) -> int:
    """Print the resources and templates of every server, or of one."""
    context = CallContext(tokens=session.tokens)

    async def work(toolbox: Toolbox) -> int:
        resources, templates = await toolbox.offerings.readable(server, context)
        if as_json:
            listed = {
                "resources": list(map(resource_dict, resources)),
                "templates": list(map(template_dict, templates)),
            }
            write_json(listed)
            return EXIT_DONE
        sys.stdout.write(resource_table(resources, templates, session.terminal.columns))
        if not resources and not templates:
            session.status("No resources; 'rkllm-mcp servers test' says how the servers are.")
        return EXIT_DONE

    return with_tools(session, work)


def read(session: Session, reference: str, target: str | None, *, as_json: bool) -> int:
    """Print a resource, or write it to a new file.

    Args:
        session: this invocation.
        reference: ``server:uri``, or an address that says by itself whose it is.
        target: the file; a resource of several parts becomes one file, part after part.
        as_json: print what the server sent.
    """
    context = CallContext(tokens=session.tokens)

    async def work(toolbox: Toolbox) -> int:
        content = await toolbox.offerings.read_resource(reference.removeprefix("@"), context=context)
        if target is not None:
            data = b"".join(_bytes(part) for part in content.contents)
            await _write(target, data)
            session.status(f"{len(data)} bytes written to {target}")
        elif as_json:
            write_json({"server": content.server, "uri": content.uri, "contents": [dict(c) for c in content.contents]})
        else:
            text = printable(content.text)
            sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        return EXIT_DONE

    return with_tools(session, work)


def subscribe(session: Session, reference: str, count: int | None, *, as_json: bool) -> int:
    """Print a line whenever a resource changes, until interrupted or ``count`` of them have come."""
    context = CallContext(tokens=session.tokens)

    async def work(toolbox: Toolbox) -> int:
        left = count
        enough = anyio.Event()

        async def changed(uri: str) -> None:
            nonlocal left
            sys.stdout.write(f"{json.dumps({'uri': uri}, ensure_ascii=False) if as_json else printable(uri)}\n")
            sys.stdout.flush()
            left = None if left is None else left - 1
            if left == 0:
                enough.set()

        async with anyio.create_task_group() as tasks:
            await tasks.start(toolbox.offerings.subscribe, reference.removeprefix("@"), changed, context)
            session.status(f"Waiting for changes of {reference}; Ctrl-C ends.")
            await enough.wait()
            tasks.cancel_scope.cancel()
        return EXIT_DONE

    return with_tools(session, work)


def _bytes(part: Any) -> bytes:
    """One part of a resource as it is: ``text`` as UTF-8, or ``blob`` decoded."""
    if "blob" in part:
        return base64.b64decode(part["blob"])
    return str(part.get("text", "")).encode("utf-8", "replace")


async def _write(target: str, data: bytes) -> None:
    path = Path(target)
    try:
        async with await anyio.open_file(path, "xb") as file:
            await file.write(data)
    except FileExistsError:
        raise UsageError(f"{path} exists; choose another name") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}); choose another name") from None
