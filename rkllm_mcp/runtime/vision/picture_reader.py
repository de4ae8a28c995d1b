"""Pictures are decoded in a process of their own, with limits on its memory and time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio

from rkllm_mcp.errors import InputRefusedError

# Address space of the process, of which Python and Pillow have 100 MB.
MEMORY_BYTES = 640 * 2**20
# Where the picture's process waits for a core, its CPU time is less.
_LIMIT_S = 60.0
# -I: no working directory and no PYTHON* variables; the installation's own packages have Pillow.
_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from rkllm_mcp.runtime.vision.picture import main; main()"
_PACKAGE_PARENT = Path(__file__).resolve().parents[3]


async def read_picture(data: bytes, width: int, height: int, memory_bytes: int = MEMORY_BYTES) -> bytes:
    """Return a picture as RGB lines of this size, read in a process of its own.

    Raises:
        InputRefusedError: it is no picture, damaged or too large, or its decoder crashed or took too long.
    """
    command = (sys.executable, "-I", "-c", _PROGRAM, *map(str, (_PACKAGE_PARENT, width, height, memory_bytes)))
    try:
        with anyio.fail_after(_LIMIT_S):
            run = await anyio.run_process(command, input=data, stderr=subprocess.DEVNULL, check=False)
    except TimeoutError:
        raise InputRefusedError(f"the picture was not read within {_LIMIT_S:g} s; send a smaller one") from None
    except OSError as error:
        raise InputRefusedError(f"no process for the picture can be started ({error}); free some memory") from None
    mark, answer = run.stdout[:1], run.stdout[1:]
    if run.returncode == 0 and mark == b"\1" and len(answer) == width * height * 3:
        return answer
    if run.returncode == 0 and mark == b"\0":
        raise InputRefusedError(answer.decode("utf-8", "replace"))
    raise InputRefusedError("the picture cannot be read: its decoder ended; send it anew as PNG or JPEG")
