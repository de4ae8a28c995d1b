"""Name of a .rkllm file -> hints: platform, data type, context and toolkit, by the publishers' naming conventions.

The conventions are not enforced (Rockchip's demo writes ``NAME_W8A8_RK3588.rkllm``, others
``NAME-rk3588-w8a8_g128-opt-0-hybrid-ratio-0.5.rkllm`` or ``NAME-rk3588-w8a8-16k-v1.2.3.rkllm``), so no file is rejected
for its name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PLATFORM_IN_NAME = re.compile(r"(?<![a-z0-9])(rk3588|rk3576|rk3562|rv1126b)s?(?![a-z0-9])")
_DATA_TYPE = re.compile(r"(?<![a-z0-9])((?:w8a8|w4a16|w4a8)(?:[-_]g\d+)?|fp16)(?![a-z0-9])")
_CONTEXT = re.compile(r"(?<![a-z0-9.])(?:ctx[-_]?)(\d+)(k?)(?![a-z0-9])|(?<![a-z0-9.])(\d{1,2})(k)(?![a-z0-9])")
_TOOLKIT = re.compile(r"(?<![a-z0-9.])v?(1\.\d+\.\d+(?:b\d+)?)(?![a-z0-9.])")


@dataclass(frozen=True)
class FileNameHints:
    """Hints from a file's name."""

    platform: str | None = None  # SoC in Rockchip's spelling
    data_type: str | None = None  # ``w8a8``, ``w8a8_g128``, …
    context_tokens: int | None = None  # context window
    toolkit: str | None = None  # version of rkllm-toolkit


def name_hints(name: str) -> FileNameHints:
    """Return the hints in a file's name."""
    low = name.lower()
    spaced = low.replace("_", "-").removesuffix(".rkllm")
    platform = _PLATFORM_IN_NAME.search(spaced)
    data_type = _DATA_TYPE.search(spaced)
    context = _CONTEXT.search(spaced)
    toolkit = _TOOLKIT.search(spaced)
    tokens = None
    if context is not None:
        tokens = int(context.group(1) or context.group(3)) * (1024 if context.group(2) or context.group(4) else 1)
    return FileNameHints(
        platform.group(1).upper() if platform else None,
        data_type.group(1).replace("-", "_") if data_type else None,
        tokens,
        toolkit.group(1) if toolkit else None,
    )
