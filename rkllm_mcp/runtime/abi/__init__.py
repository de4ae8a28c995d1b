"""The binary interfaces of librkllmrt.so, one per family, and the known releases.

This is the only package that knows versions: other code calls ``choose_abi`` once and then reads capabilities.

``families.json`` holds what the header of a family declares, in C's words, and that of its base does not, and the
capabilities that it adds (fields of ``Abi``).

Source: history of Rockchip's rknn-llm repository, 1.0.0 to 1.3.0; for 1.3.1 the programs that pin it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rkllm_mcp.runtime.abi.common import Abi
from rkllm_mcp.runtime.abi.declarations import Declarations

_SECTIONS = ("structs", "callbacks", "functions")


def _families() -> tuple[Abi, ...]:
    resolved: dict[str, dict[str, Any]] = {}
    families: list[Abi] = []
    for name, changes in json.loads(Path(__file__).with_name("families.json").read_text("utf-8")).items():
        base = resolved.get(changes.get("base"), {})
        sections = {section: {**base.get(section, {}), **changes.get(section, {})} for section in _SECTIONS}
        capabilities = [*base.get("capabilities", ()), *changes.get("capabilities", ())]
        resolved[name] = {**sections, "capabilities": capabilities}
        can = dict.fromkeys(capabilities, True)
        families.append(Abi(name, tuple(changes["versions"]), Declarations(**sections), **can))
    return tuple(families)


FAMILIES = _families()

WORKING_VERSIONS: tuple[str, ...] = tuple(version for abi in FAMILIES for version in abi.versions)
NEWEST_VERSION = WORKING_VERSIONS[-1]
# The newest release whose behaviour is described; of 1.3.1 only the interface is known.
RECOMMENDED_VERSION = "1.3.0"


def choose_abi(version: str) -> Abi | None:
    """Return the interface of a release; None if the release is not verified."""
    return next((abi for abi in FAMILIES if version in abi.versions), None)


_RELEASES: dict[str, Any] = json.loads(Path(__file__).with_name("releases.json").read_text("utf-8"))
# Known releases without one of these interfaces, and the reason for the refusal.
UNSUPPORTED_VERSIONS: Mapping[str, str] = _RELEASES["unsupported"]
# Releases by the newest function that a library exports; newest first.
GENERATIONS: Mapping[str, str] = _RELEASES["generations"]
# Git blob ids of the official Linux/aarch64 libraries (rknn-llm repository history): an exact match names the release.
OFFICIAL_BUILDS: dict[str, str] = _RELEASES["git_blobs"]
# SHA-256 of official libraries without a known blob id.
OFFICIAL_DIGESTS: dict[str, str] = _RELEASES["sha256"]
