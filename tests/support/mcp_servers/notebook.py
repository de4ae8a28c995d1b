"""A server that writes files and forgets them, with nothing but the standard library.

python -m tests.support.mcp_servers.notebook      files are written into its working folder
"""

from __future__ import annotations

from pathlib import Path

from tests.support.mcp_servers.tiny import Arguments, TinyServer, tool


def _write(_: TinyServer, arguments: Arguments) -> str:
    Path(str(arguments["path"])).write_text(str(arguments["content"]), encoding="utf-8")
    return f"wrote {arguments['path']}"


def _delete(_: TinyServer, arguments: Arguments) -> str:
    Path(str(arguments["path"])).unlink()
    return f"deleted {arguments['path']}"


def _list(_: TinyServer, __: Arguments) -> str:
    return "\n".join(sorted(path.name for path in Path.cwd().iterdir()))


TOOLS = [
    tool("list_directory", "List the folder."),
    tool("write_file", "Write a file.", path="string", content="string"),
    tool("delete_file", "Delete a file.", path="string"),
]

if __name__ == "__main__":
    TinyServer(TOOLS, {"list_directory": _list, "write_file": _write, "delete_file": _delete}).run()
