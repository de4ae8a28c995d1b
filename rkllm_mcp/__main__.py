"""Run the command ``rkllm-mcp`` as ``python -m rkllm_mcp``."""

from rkllm_mcp.surfaces.cli import main

if __name__ == "__main__":
    main()
