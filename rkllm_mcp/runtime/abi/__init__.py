"""The binary interfaces of librkllmrt.so, one module per family, and the choice between them.

This is the only place that knows versions. The code above asks ``choose_abi`` once and then looks at capabilities.
"""

from rkllm_mcp.runtime.abi import v1_2_0, v1_2_1, v1_3, v1_3_1
from rkllm_mcp.runtime.abi.common import Abi

FAMILIES: tuple[Abi, ...] = (v1_2_0.ABI, v1_2_1.ABI, v1_3.ABI, v1_3_1.ABI)

WORKING_VERSIONS: tuple[str, ...] = tuple(version for abi in FAMILIES for version in abi.versions)
NEWEST_VERSION = WORKING_VERSIONS[-1]


def choose_abi(version: str) -> Abi | None:
    """The interface of a runtime release, or None when it is not verified to have one of the known ones."""
    return next((abi for abi in FAMILIES if version in abi.versions), None)
