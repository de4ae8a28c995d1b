"""Starts the knowledge server: ``python -m mcp_servers.knowledge``, on standard input and output or over HTTP."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcp_servers.knowledge.errors import KnowledgeError
from mcp_servers.knowledge.settings import Settings, SettingsError, load_settings, parse_flags

if TYPE_CHECKING:
    import anyio.abc

_USAGE_ERROR, _INTERRUPTED = 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until the client leaves, or a signal says so.

    Args:
        arguments: instead of the command line's.

    Returns:
        The exit code: 0 when the client left or the program was told to end, 2 when a setting or the folder is
        unusable, 130 when interrupted.
    """
    try:
        settings = load_settings(parse_flags(arguments), os.environ)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return _USAGE_ERROR
    # Libraries log requests with their headers and addresses: only what is ours is told in detail.
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("mcp_servers").setLevel(settings.log_level.upper())
    # anyio and the SDK take most of a second to import; --help and a wrong setting should not wait for them.
    import anyio

    try:
        return anyio.run(_run, settings)
    except (KnowledgeError, SettingsError) as error:
        print(error, file=sys.stderr)
        return _USAGE_ERROR
    except ModuleNotFoundError as error:
        print(f"{error.name} is not installed: pip install 'rkllm-mcp[knowledge]'", file=sys.stderr)
        return _USAGE_ERROR


async def _run(settings: Settings) -> int:
    import anyio

    code = 0
    failure: Exception | None = None

    async def watch(scope: anyio.CancelScope, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        nonlocal code
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                code = _INTERRUPTED if number == signal.SIGINT else 0
                scope.cancel()
                break
        # From here on the default holds again: a second signal does not wait for the end.

    async with anyio.create_task_group() as tasks:
        await tasks.start(watch, tasks.cancel_scope)
        # A task group would wrap what is raised inside it in a group.
        try:
            await _serve(settings)
        except Exception as error:  # noqa: BLE001  # raised again below
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise _unwrap(failure)
    return code


async def _serve(settings: Settings) -> None:
    from mcp_servers.knowledge.service import open_service

    async with open_service(settings) as service:
        if settings.http is None:
            from mcp_servers.knowledge.server import create_server, serve_stdio

            await serve_stdio(create_server(service))
            return
        from mcp_servers.knowledge.http import create_app, serve_http

        http = settings.http

        def report(port: int) -> None:
            print(f"Serving MCP at http://{http.host}:{port}/mcp", file=sys.stderr, flush=True)

        await serve_http(create_app(service, http), http, report)


def _unwrap(error: Exception) -> Exception:
    """The one error in a group of one, however deep."""
    inner: tuple[Exception, ...] = getattr(error, "exceptions", ())
    return _unwrap(inner[0]) if len(inner) == 1 else error


if __name__ == "__main__":
    sys.exit(main())
