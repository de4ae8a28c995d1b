"""Run the command ``rkllm-mcp`` as ``python -m rkllm_mcp``."""

from __future__ import annotations

from rkllm_mcp.surfaces.cli.main import main

if __name__ == "__main__":
    main()
