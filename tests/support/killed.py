"""A command that is killed with SIGKILL in the middle of its work, at one of its changes to files.

    python -m tests.support.killed FOLDER NUMBER COMMAND…

runs ``rkllm-mcp COMMAND…`` and kills it before its change of that number below a folder: a file that is opened for
writing, renamed, linked or removed, or a folder that is made or removed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.shared import REPOSITORY

_WRITING = os.O_WRONLY | os.O_RDWR
# Events of Python, and where among their arguments the descriptor is of the folder that their path is relative to.
_CHANGES = {"os.rename": 2, "os.remove": 1, "os.mkdir": 2, "os.rmdir": 1, "os.link": 2, "os.symlink": 2}


def runs_killed_at_each_change(
    folder: Path, *command: str, environment: Mapping[str, str], first: int = 1, step: int = 1, most: int = 200
) -> Iterator[int]:
    """Kill a command at one change after the other, and yield the number of the change each time.

    It ends with the run that makes fewer changes and so is not killed; the caller brings the folder back to where the
    command began.
    """
    for number in range(first, most, step):
        arguments = [sys.executable, "-m", "tests.support.killed", str(folder), str(number), *command]
        done = subprocess.run(
            arguments, check=False, capture_output=True, text=True, env=environment, cwd=REPOSITORY, timeout=120
        )
        if done.returncode == 0:
            return
        assert done.returncode == -signal.SIGKILL, done.stderr
        yield number
    raise AssertionError(f"{' '.join(command)} makes more than {most} changes")


def main() -> None:
    """Run the command of the command line."""
    folder, number, *command = sys.argv[1:]
    left = int(number)

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event == "open":
            path, _, flags = arguments
            if not (isinstance(flags, int) and flags & _WRITING):
                return
        elif event in _CHANGES:
            path, descriptor = str(arguments[0]), arguments[_CHANGES[event]]
            if descriptor != -1:
                path = os.path.join(os.readlink(f"/proc/self/fd/{descriptor}"), path)  # noqa: PTH118, PTH115
        else:
            return
        if str(path).startswith(folder):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    from rkllm_mcp.surfaces.cli.main import main as rkllm_mcp

    sys.addaudithook(count)
    rkllm_mcp(command)


if __name__ == "__main__":
    main()
