"""The command ``rkllm-mcp``, also as ``python -m rkllm_mcp``: settings of the interpreter, then the command line."""

from __future__ import annotations

import gc
import os
import signal

# Imports leave hardly any garbage; at Python's 700 new objects its collector takes a sixth of the start.
GC_THRESHOLD = 10_000


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    # Ctrl-C while modules are imported, or while the interpreter ends, is no error that anyone wants to read.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.set_threshold(GC_THRESHOLD)
    # No plugin of pydantic has a part here, and the search for one reads the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from rkllm_mcp.surfaces.cli.main import main as command_line

    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        command_line()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
