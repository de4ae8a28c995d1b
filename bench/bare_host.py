"""The least that a token costs a host in Python with the runtime in its own process: the floor of ``bench.hosts``.

    python -m bench.bare_host LIBRARY MODEL PORT

This project's engine, and a server that writes each token as a chunk of OpenAI's stream: no prompt, no conversation, no
tools, no queue, no limits. Every question is answered with the model's words.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rkllm_mcp.generation import GenerationOptions, Token
from rkllm_mcp.runtime.engine import Engine, open_engine
from rkllm_mcp.runtime.settings import EngineSettings

_CONTEXT_TOKENS = 4096
_MOST_TOKENS = 3000
_PROMPT = (1, 2, 3)


async def answer(engine: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request: a question with a stream, anything else with nothing."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if head.startswith(b"post"):
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
        asked = json.loads(await reader.readexactly(length))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

        def write_tokens(batch: Sequence[Token]) -> None:
            for token in batch:
                record = b'data: {"choices":[{"delta":{"content":%b}}]}\n\n' % json.dumps(token.text).encode()
                writer.write(b"%x\r\n%b\r\n" % (len(record), record))

        async with engine.generation(_PROMPT, GenerationOptions(asked["max_tokens"])) as run:
            await run.deliver(write_tokens)
        writer.write(b"0\r\n\r\n")
    else:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()
    writer.close()


async def serve(library: Path, model: Path, port: int) -> None:
    """Serve until the process is ended."""
    settings = EngineSettings(
        model_path=model, library=library, context_tokens=_CONTEXT_TOKENS, max_new_tokens=_MOST_TOKENS
    )
    async with open_engine(settings) as engine:
        await engine.ready()
        server = await asyncio.start_server(partial(answer, engine), "127.0.0.1", port)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
