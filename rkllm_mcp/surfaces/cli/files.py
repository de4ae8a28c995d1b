"""Files that commands write: filled templates, whole or not at all, and never in place of another."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from rkllm_mcp.config.editing import draft_beside, write_private
from rkllm_mcp.errors import UsageError


def filled_template(name: str, values: Mapping[str, str]) -> str:
    """Return the template ``NAME.txt`` of this package with ``@KEY@`` replaced by each value."""
    text = (Path(__file__).parent / f"{name}.txt").read_text("utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def write_whole(target: Path, text: str, advice: str = "; name another file with --config", mode: int = 0o600) -> None:
    """Write a file in one piece, or raise a UsageError: half a configuration would be taken for its owner's wish."""
    draft = draft_beside(target, ".draft")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_private(draft, text, mode)
        draft.replace(target)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise UsageError(f"{target} cannot be written ({error.strerror}){advice}") from None


def make_folder(folder: Path) -> os.stat_result:
    """Make a folder and those above it as the owner of the first that exists, and return its status.

    What root makes for a service or a person belongs to them. An OSError if it cannot be made.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    owner = (missing[-1].parent if missing else folder).stat()
    for path in reversed(missing):
        path.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(path, owner.st_uid, owner.st_gid)
    return folder.stat()


def read_export(source: str) -> bytes:
    """Return the file of an export, or standard input for ``-``; a UsageError if it cannot be read."""
    try:
        return sys.stdin.buffer.read() if source == "-" else Path(source).expanduser().read_bytes()
    except OSError as error:
        raise UsageError(f"{source} cannot be read ({error.strerror}); name the JSON file of an export") from None


def write_new(path: str, data: bytes) -> None:
    """Write a file that does not exist yet, or raise a UsageError."""
    try:
        with Path(path).expanduser().open("xb") as file:
            file.write(data)
    except FileExistsError:
        raise UsageError(f"{path} exists; choose another name") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}); choose another name") from None
