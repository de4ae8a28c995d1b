"""``python -m rkllm_mcp`` is the command ``rkllm-mcp``."""

from rkllm_mcp.surfaces.cli import main

if __name__ == "__main__":
    main()
