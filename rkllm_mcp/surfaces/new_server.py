"""A new MCP server to write in: ``rkllm-mcp servers new NAME``.

The files beside this module become a folder that runs and passes its tests as it stands. Nothing of this project is in
it: the server knows MCP alone, and any host can start it.
"""

from __future__ import annotations

import re
import shlex
import sys
from importlib import resources
from pathlib import Path

from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.servers import NewServer, add
from rkllm_mcp.surfaces.session import EXIT_DONE, Session

FILES = ("server.py", "test_server.py", "pyproject.toml", "README.md")
# What may name a tool's server, a Python project and the scheme of a URI at once.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*")


def create(session: Session, name: str, folder: str | None, *, is_added: bool) -> int:
    """Write a new server.

    Args:
        session: the invocation.
        name: its name.
        folder: where to; the name when None. It must not exist, or be empty.
        is_added: put it into the configuration, too.

    Raises:
        UsageError: the name or the folder cannot be used.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a server; use letters, digits, - and _, and begin with a letter")
    target = Path(folder or name).expanduser().absolute()
    words = {
        "NAME": name,
        "TITLE": name.replace("-", " ").replace("_", " ").capitalize(),
        "SCHEME": name.lower().replace("_", "-"),
        "PATH": shlex.quote(str(target / "server.py")),
    }
    _write(target, words)
    for file in FILES:
        sys.stdout.write(f"{target / file}\n")
    if is_added:
        return add(session, NewServer(name, ("${PYTHON}", str(target / "server.py"))))
    session.status(f"Add it with: rkllm-mcp servers add {name} -- python {words['PATH']}")
    return EXIT_DONE


def _write(target: Path, words: dict[str, str]) -> None:
    template = resources.files("rkllm_mcp.surfaces") / "server_template"
    try:
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise UsageError(f"{target} is not empty; name another folder with --folder")
        for file in FILES:
            text = (template / f"{file}.txt").read_text("utf-8")
            for key, value in words.items():
                text = text.replace(f"@{key}@", value)
            (target / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{target} cannot be written ({error.strerror}); name another folder with --folder") from None
