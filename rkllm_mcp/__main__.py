"""The command ``rkllm-mcp``, also as ``python -m rkllm_mcp``: settings of the interpreter, then the command line."""

from __future__ import annotations

import gc
import os
import signal
import sys

# Imports leave hardly any garbage; at Python's 700 new objects its collector takes a sixth of the start.
GC_THRESHOLD = 10_000


def spare_owner() -> None:
    """Write no bytecode as root into the environment of a person, who could not update or remove it any more."""
    if os.geteuid() == 0 and os.stat(sys.prefix).st_uid:  # noqa: PTH116  # pathlib would be imported for it alone
        sys.dont_write_bytecode = True


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    # Ctrl-C while modules are imported, or while the interpreter ends, is not an error that anyone wants to read.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.set_threshold(GC_THRESHOLD)
    spare_owner()
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
