"""A command that is killed with SIGKILL in the middle of its work, at one of its changes to files.

    python -m tests.support.killed FOLDER

runs ``rkllm-mcp`` again and again, each time in a child of this process, which has imported what the children before
imported, so that a start takes milliseconds. A line of standard input is ``[NUMBER, [WORD, …]]``: the command is killed
before its change of that number below the folder (a file that is opened for writing, renamed, linked or removed, or a
folder that is made or removed), with 0 never. A line of output is its exit code and what it wrote to standard error.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tests.support.shared import REPOSITORY

_WRITING = os.O_WRONLY | os.O_RDWR
# Events of Python, and where among their arguments the descriptor is of the folder that their path is relative to.
_CHANGES = {"os.rename": 2, "os.remove": 1, "os.mkdir": 2, "os.rmdir": 1, "os.link": 2, "os.symlink": 2}


@dataclass(frozen=True)
class Commands:
    """The process that runs the commands."""

    process: subprocess.Popen[str]

    def run(self, *words: str) -> str:
        """Run a command to its good end; return what it wrote to standard error."""
        code, errors = self._ask(0, words)
        assert code == 0, errors
        return errors

    def killed_at_each_change(self, *words: str, most: int = 200) -> Iterator[int]:
        """Kill a command at one change after the other, and yield the number of the change each time.

        It ends with the run that makes fewer changes and so is not killed; the caller brings the folder back to where
        the command began.
        """
        for number in range(1, most):
            code, errors = self._ask(number, words)
            if code == 0:
                return
            assert code == -signal.SIGKILL, errors
            yield number
        raise AssertionError(f"{' '.join(words)} makes more than {most} changes")

    def _ask(self, number: int, words: tuple[str, ...]) -> tuple[int, str]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{json.dumps([number, words])}\n")
        self.process.stdin.flush()
        code, errors = json.loads(self.process.stdout.readline())
        return code, errors


@contextmanager
def commands(folder: Path, environment: Mapping[str, str]) -> Generator[Commands, None, None]:
    """Start the process of the commands that change files below a folder."""
    arguments = [sys.executable, "-m", "tests.support.killed", str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        arguments, stdin=pipe, stdout=pipe, text=True, env=dict(environment), cwd=REPOSITORY
    ) as process:
        yield Commands(process)


def main() -> None:
    """Run the commands of standard input."""
    from rkllm_mcp.surfaces.cli.main import main as rkllm_mcp

    answers = os.dup(sys.stdout.fileno())
    for line in iter(sys.stdin.readline, ""):
        number, words = json.loads(line)
        with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryFile("w+") as modules:
            if (child := os.fork()) == 0:
                nothing = os.open(os.devnull, os.O_RDWR)
                for target, source in ((0, nothing), (1, nothing), (2, errors.fileno())):
                    os.dup2(source, target)
                sys.addaudithook(_killer(sys.argv[1], number, modules.fileno()))
                rkllm_mcp(words)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            for text in (modules, errors):
                text.seek(0)
            for name in modules.read().split():
                with suppress(Exception):
                    import_module(name)
            os.write(answers, f"{json.dumps([code, errors.read()])}\n".encode())


def _killer(folder: str, number: int, modules: int) -> Callable[[str, tuple[object, ...]], None]:
    """Return a hook that kills this process at its change of that number, and says before what it has imported."""
    left = number

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
                os.write(modules, "\n".join(sys.modules).encode())
                os.kill(os.getpid(), signal.SIGKILL)

    return count


if __name__ == "__main__":
    main()
