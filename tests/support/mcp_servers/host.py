"""A host as its own program: opens a toolbox with one server, says that it is ready, and waits to be told to end.

python -m tests.support.mcp_servers.host BEHAVIOUR
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import anyio

from rkllm_mcp.tools.tool_servers import open_toolbox
from tests.support.mcp_servers.specs import hostile, timed


async def main() -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    spec = hostile(sys.argv[1], env={"ALIVE": os.environ["ALIVE"]})
    async with open_toolbox(
        [spec], on_status=lambda line: print(line, flush=True), host=timed(stop_grace_s=0.1)
    ) as toolbox:
        await toolbox.wait_until_connected()
        await anyio.sleep_forever()


if __name__ == "__main__":
    asyncio.run(main())
