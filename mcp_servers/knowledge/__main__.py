"""Command line of the knowledge server: ``python -m mcp_servers.knowledge``."""

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
# NumPy's other threads would wait in a loop between the small matrices of a passage, which takes most of the processor
# time of an embedder: docs/knowledge-server.md, "Models".
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server until the client disconnects or a signal arrives.

    The exit code is 0 after a disconnect or SIGTERM, 2 for an unusable setting or data folder, 130 after SIGINT.
    """
    os.environ.setdefault(_BLAS_THREADS, "1")
    try:
        settings = load_settings(parse_flags(arguments), os.environ)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return _USAGE_ERROR
    # Libraries log headers and addresses at these levels: only this package logs in detail.
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("mcp_servers").setLevel(settings.log_level.upper())
    # Deferred: anyio and the SDK take most of a second to import, which --help should not pay.
    import anyio

    try:
        return anyio.run(_run_http, settings)
    except (KnowledgeError, SettingsError) as error:
        print(error, file=sys.stderr)
        return _USAGE_ERROR


async def _run_http(settings: Settings) -> int:
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
        # The default handlers are restored here: a second signal ends the process at once.

    async with anyio.create_task_group() as tasks:
        await tasks.start(watch, tasks.cancel_scope)
        # Raised outside of the task group, which would wrap it in an exception group.
        try:
            from mcp_servers.knowledge.service import open_service

            async with open_service(settings) as service:
                if settings.http is None:
                    from mcp_servers.knowledge.server import create_server, serve_stdio, stdio_access

                    access = stdio_access(settings)
                    await serve_stdio(create_server(service, lambda _: access))
                else:
                    from mcp_servers.knowledge.http import create_app, serve_http

                    http, words = settings.http, "Serving MCP at http://{}:{}/mcp"
                    await serve_http(
                        create_app(service, http),
                        http,
                        lambda port: print(words.format(http.host, port), file=sys.stderr, flush=True),
                    )
        except Exception as error:  # noqa: BLE001  # raised again below
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        error: Exception = failure
        while len(inner := getattr(error, "exceptions", ())) == 1:  # of nested exception groups
            error = inner[0]
        raise error
    return code


if __name__ == "__main__":
    sys.exit(main())
