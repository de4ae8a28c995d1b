"""More MCP servers that do what real ones have done to their hosts: at each message, without end, in a circle.

    python -m tests.support.mcp_servers.unruly WORD[:MESSAGE]

The words are the functions of ``BEHAVIOURS``, as in ``hostile``; some do it at one message of the protocol, such as
``dies_at:tools/list``.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from tests.support.mcp_servers.tiny import LEGACY, MODERN, Arguments, Handler, TinyServer, text_result, tool

ECHO = tool("echo", "Say it again.", text="string")


def echo(_: TinyServer, arguments: Arguments) -> str:
    return str(arguments["text"])


def dies_at() -> None:
    """Kills itself when it is sent the message."""

    class Dying(TinyServer):
        def handle(self, message: dict[str, Any]) -> None:
            if message.get("method") == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            super().handle(message)

    fatal = sys.argv[1].partition(":")[2]
    Dying([ECHO], {"echo": echo}, eras=(LEGACY,)).run()


def garbles() -> None:
    """Answers the message with JSON that is not an answer, one way after the other."""
    ways: list[Any] = [
        "nonsense",
        5,
        None,
        [],
        {},
        {"tools": {"a": 1}},
        {"protocolVersion": 3},
        {"content": {"type": 7}},
    ]

    class Garbling(TinyServer):
        turn = 0

        def send(self, **message: Any) -> None:
            if self.is_fatal and "id" in message:
                message = {"id": message["id"], "result": ways[self.turn % len(ways)]}
                self.turn += 1
            super().send(**message)

        def handle(self, message: dict[str, Any]) -> None:
            self.is_fatal = message.get("method") == fatal
            super().handle(message)

    fatal = sys.argv[1].partition(":")[2]
    Garbling([ECHO], {"echo": echo}, eras=(MODERN if fatal == "server/discover" else LEGACY,)).run()


def insists() -> None:
    """Is of the era in ``$ERA``; as a legacy server it dies of anything before a handshake."""

    class Insisting(TinyServer):
        greeted = False

        def handle(self, message: dict[str, Any]) -> None:
            self.greeted |= message.get("method") in ("initialize", "server/discover")
            if not self.greeted and self.eras == (LEGACY,):
                sys.exit(1)
            super().handle(message)

    Insisting([ECHO], {"echo": echo}, eras=(os.environ["ERA"],)).run()


def misaddresses() -> None:
    """Answers requests that nobody made, with errors and results, before and after the right one."""

    class Misaddressing(TinyServer):
        def send(self, **message: Any) -> None:
            for stranger in (10_000, "abc", None, -1):
                super().send(id=stranger, result={"content": [{"type": "text", "text": "not yours"}]})
                # One without an id belongs to the call that is open.
                if stranger is not None:
                    super().send(id=stranger, error={"code": -32000, "message": "not yours"})
            super().send(**message)
            super().send(**message)

    Misaddressing([ECHO], {"echo": echo}, eras=(LEGACY,)).run()


def mistakes_ids() -> None:
    """Answers every request under another id, so that nobody ever gets an answer."""

    class Mistaking(TinyServer):
        def send(self, **message: Any) -> None:
            super().send(**{**message, "id": "another"})

    Mistaking([ECHO], {"echo": echo}).run()


def floods() -> None:
    """Never stops sending messages that nobody has asked for, while it serves."""
    params = {"level": "info", "data": "x" * 200}
    _talking(lambda server: server.send(method="notifications/message", params=params)).run()


def floods_stderr() -> None:
    """Never stops writing on stderr, in lines or in one line that never ends (``:unbroken``), while it serves."""
    end = "" if sys.argv[1].endswith(":unbroken") else "\n"
    _talking(lambda _: print("debug " + "x" * 5000, end=end, file=sys.stderr)).run()


class _Shared(TinyServer):
    """A server whose output several threads write to."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.lock = threading.Lock()

    def send(self, **message: Any) -> None:
        with self.lock:
            super().send(**message)


def _talking(say: Callable[[TinyServer], None]) -> TinyServer:
    """A server that serves, and keeps saying something next to it."""

    def talk() -> None:
        while True:
            say(server)

    server = _Shared([ECHO], {"echo": echo}, eras=(LEGACY,))
    threading.Thread(target=talk, daemon=True).start()
    return server


def cyclic() -> None:
    """Pages in a circle: the last page names the first."""

    class Cyclic(TinyServer):
        def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
            if method != "tools/list":
                return super().answer(method, params)
            return {**super().answer(method, {}), "nextCursor": "again"}

    Cyclic([ECHO], {"echo": echo}).run()


def endless_progress() -> None:
    """Reports progress of a call for ever and never a result, also after it was told to stop."""

    class Reporting(_Shared):
        def handle(self, message: dict[str, Any]) -> None:
            if message.get("method") == "tools/call" and message["params"]["name"] == "work":
                token = message["params"]["_meta"]["progressToken"]
                threading.Thread(target=self.report, args=(token,), daemon=True).start()
            else:
                super().handle(message)

        def report(self, token: Any) -> None:
            for number in itertools.count():
                params = {"progressToken": token, "progress": number, "message": "nearly there"}
                self.send(method="notifications/progress", params=params)
                # Fast enough to be a nuisance, slow enough for two cores.
                threading.Event().wait(0.001)

    Reporting([tool("work"), ECHO], {"echo": echo}, eras=(LEGACY,)).run()


def hangs_up() -> None:
    """Closes its output in the middle of a call and stays."""

    def close(_: TinyServer, __: Arguments) -> str:
        os.close(1)
        return ""

    server = TinyServer([tool("close"), ECHO], {"close": close, "echo": echo})
    try:
        server.run()
    except OSError:
        threading.Event().wait()


def sprawls() -> None:
    """Has far more of everything than a model can read: tools, words about them, schemas, values, depth, fields."""
    nested: Any = "deep"
    for _ in range(900):
        nested = {"a": nested}

    class Sprawling(_Shared):
        def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
            if method == "resources/list":
                return {"resources": [{"uri": f"a:{n}", "name": "n", "description": "d" * 500} for n in range(20_000)]}
            return super().answer(method, params)

        def capabilities(self) -> dict[str, Any]:
            return {**super().capabilities(), "resources": {}}

        def handle(self, message: dict[str, Any]) -> None:
            params: dict[str, Any] = message.get("params") or {}
            name = params.get("name")
            if message.get("method") == "tools/call" and name == "nest":
                # Written without the parser's own limit of depth.
                self.send(id=message["id"], result={"structuredContent": nested, "content": []})
            elif message.get("method") == "tools/call" and name == "form":
                fields = {f"field{number}": {"type": "string"} for number in range(10_000)}
                form = {
                    "mode": "form",
                    "message": "m" * 10_000_000,
                    "requestedSchema": {"type": "object", "properties": fields},
                }
                self.send(id="form", method="elicitation/create", params=form)
                self.asking = message["id"]
            elif message.get("id") == "form":
                self.send(id=self.asking, result=text_result(str(message.get("error") or message.get("result"))))
            else:
                super().handle(message)

    def say(result: str | dict[str, Any]) -> Handler:
        return lambda _, __: result

    long = tool("long", "<tool_call>\u200b" * 1_000_000)
    wide = tool("wide", "w", **{f"p{number}": "string" for number in range(20_000)})
    handlers: dict[str, Handler] = {
        "echo": echo,
        "values": say({"content": [], "structuredContent": {"a": [[]] * 5_000_000}}),
        "text": say("あ\u202e" * 2_500_000),
        "json": say("[" + "[]," * 5_000_000 + "0]"),
        "leaves": say(
            {
                "content": [{"type": "text", "text": "w " * 5_000_000}],
                "structuredContent": {"a": [f"leaf {number}" for number in range(90_000)]},
            }
        ),
        "error": say(text_result("e" * 20_000_000, is_error=True)),
    }
    crowd = [tool(f"tool_{number}", "ab " * 100) for number in range(20_000)]
    named = [ECHO, *(tool(name) for name in ("values", "text", "json", "leaves", "error", "nest", "form"))]
    Sprawling([*named, long, wide, *crowd], handlers, eras=(LEGACY,), page_size=5_000).run()


def changes() -> None:
    """Says without end that its tools have changed, and lists others each time."""

    class Changing(_Shared):
        turn = 0

        def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
            if method != "tools/list":
                return super().answer(method, params)
            self.turn += 1
            return {"tools": [ECHO, *(tool(f"t{number}_{self.turn}", "ab " * 100) for number in range(2000))]}

        def capabilities(self) -> dict[str, Any]:
            return {"tools": {"listChanged": True}}

    def talk() -> None:
        while True:
            server.send(method="notifications/tools/list_changed")
            threading.Event().wait(0.001)

    server = Changing([ECHO], {"echo": echo}, eras=(LEGACY,))
    threading.Thread(target=talk, daemon=True).start()
    server.run()


def prints() -> None:
    """Never stops printing what is not a message, in lines of a megabyte."""
    line = "[" * 1_000_000

    def talk() -> None:
        while True:
            with server.lock:
                sys.stdout.write(line + "\n")
                sys.stdout.flush()

    def start(_: TinyServer, __: Arguments) -> str:
        threading.Thread(target=talk, daemon=True).start()
        return "from now on"

    server = _Shared([tool("start")], {"start": start}, eras=(LEGACY,))
    server.run()


BEHAVIOURS = {
    behaviour.__name__: behaviour
    for behaviour in (
        changes,
        cyclic,
        dies_at,
        endless_progress,
        floods,
        floods_stderr,
        garbles,
        hangs_up,
        insists,
        misaddresses,
        mistakes_ids,
        prints,
        sprawls,
    )
}

if __name__ == "__main__":
    BEHAVIOURS[sys.argv[1].partition(":")[0]]()
