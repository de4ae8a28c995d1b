"""The process of a folder with a model for speech, from outside: started by a request, ended by itself when idle.

    EngineProcess.start() ─▶ python -m rkllm_mcp.speech.sherpa FOLDER SOCKET … ─▶ a Wyoming server on a Unix socket

A process that dies costs the requests that it had; the next one starts it again.
"""

from __future__ import annotations

import select
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, cast

# The largest voice reads 300 MB from an SD card, next to a language model that loads.
_LOAD_TIMEOUT_S = 120.0
IDLE_S = 600.0
READY = b"ready\n"
SOCKET = "speech.socket"
# Before the folder of a model, in place of the address of a program.
SHERPA = "sherpa:"
_LOG = "log"
_LOG_BYTES = 4_096


class EngineProcess:
    """The process of one folder, shared by all requests of this program.

    Args:
        folder: the model's.
        language: the one that is spoken, if the model cannot be told it with a recording; empty to find out.
        idle_s: seconds without a request after which it ends.
    """

    def __init__(self, folder: Path, language: str = "", idle_s: float = IDLE_S) -> None:
        self._command = [sys.executable, "-m", "rkllm_mcp.speech.sherpa", str(folder)]
        self._options = [language, str(idle_s)]
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path()

    @property
    def pid(self) -> int | None:
        """The id of the process; None while none runs."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def start(self) -> Path:
        """Return the socket of the running process, which has loaded its model; this may take many seconds.

        Raises:
            RuntimeError: it does not start; the message is the reason.
        """
        with self._lock:
            if self.pid is not None:
                return self._folder / SOCKET
            self.stop()
            self._folder = Path(tempfile.mkdtemp(prefix="rkllm-speech-"))
            with (self._folder / _LOG).open("wb") as log:
                # It ends when its standard input does: with this program, however that ends.
                self._process = subprocess.Popen(
                    [*self._command, str(self._folder / SOCKET), *self._options],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                )
            output = cast("IO[bytes]", self._process.stdout)
            is_silent = not select.select([output], [], [], _LOAD_TIMEOUT_S)[0]
            if is_silent or output.read(len(READY)) != READY:
                with (self._folder / _LOG).open("rb") as log:
                    lines = log.read(_LOG_BYTES).decode("utf-8", "replace").strip().splitlines()
                self.stop()
                reason = lines[-1] if lines else "its process gave no reason"
                raise RuntimeError(f"it was not loaded within {_LOAD_TIMEOUT_S:g} s" if is_silent else reason)
            return self._folder / SOCKET

    def stop(self) -> None:
        """End the process, if one runs."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
                # Its pipes are closed as well.
                self._process.communicate()
                shutil.rmtree(self._folder, ignore_errors=True)
                self._process = None


_processes: dict[tuple[Path, str], EngineProcess] = {}


def process_of(address: str) -> EngineProcess:
    """Return the process of ``sherpa:FOLDER#LANGUAGE``; there is one, however many requests use it."""
    name, _, language = address.removeprefix(SHERPA).partition("#")
    folder = Path(name).expanduser()
    return _processes.setdefault((folder, language), EngineProcess(folder, language))
