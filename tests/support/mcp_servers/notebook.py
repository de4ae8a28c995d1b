"""A server that writes files and forgets them, with nothing but the standard library.

python -m tests.support.mcp_servers.notebook      files are written into its working folder
"""

from __future__ import annotations

from pathlib import Path

from tests.support.mcp_servers.tiny import Arguments, TinyServer, tool


def _write(_: TinyServer, arguments: Arguments) -> str:
    Path(str(arguments["path"])).write_bytes(str(arguments["content"]).encode())
    return f"wrote {arguments['path']}"


def _read(_: TinyServer, arguments: Arguments) -> str:
    return Path(str(arguments["path"])).read_bytes().decode("utf-8")


def _delete(_: TinyServer, arguments: Arguments) -> str:
    Path(str(arguments["path"])).unlink()
    return f"deleted {arguments['path']}"


def _list(_: TinyServer, __: Arguments) -> str:
    return "\n".join(sorted(path.name for path in Path.cwd().iterdir()))


TOOLS = [
    tool("list_directory", "List the folder."),
    tool("read_file", "Read a file.", path="string"),
    tool("write_file", "Write a file.", path="string", content="string"),
    tool("delete_file", "Delete a file.", path="string"),
]

if __name__ == "__main__":
    TinyServer(TOOLS, {"list_directory": _list, "read_file": _read, "write_file": _write, "delete_file": _delete}).run()
