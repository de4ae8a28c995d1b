"""The binary interfaces of librkllmrt.so, one module per family, and the known releases.

This is the only package that knows versions: other code calls ``choose_abi`` once and then reads capabilities.

Source: history of Rockchip's rknn-llm repository, 1.0.0 to 1.3.0; for 1.3.1 the programs that pin it.
"""

from __future__ import annotations

from rkllm_mcp.runtime.abi import v1_2_0, v1_2_1, v1_3
from rkllm_mcp.runtime.abi.common import Abi

FAMILIES: tuple[Abi, ...] = (v1_2_0.ABI, v1_2_1.ABI, v1_3.ABI, v1_3.ABI_1_3_1)

WORKING_VERSIONS: tuple[str, ...] = tuple(version for abi in FAMILIES for version in abi.versions)
NEWEST_VERSION = WORKING_VERSIONS[-1]
# The newest release whose behaviour is described; of 1.3.1 only the interface is known.
RECOMMENDED_VERSION = "1.3.0"


def choose_abi(version: str) -> Abi | None:
    """Return the interface of a release; None if the release is not verified."""
    return next((abi for abi in FAMILIES if version in abi.versions), None)


_BY_VALUE = "its rkllm_init takes the parameters by value and its prompts are text only"
_OLD_LAYOUT = "its parameters have another layout and it does not reuse the KV cache"

# Known releases without one of these interfaces, and the reason for the refusal.
UNSUPPORTED_VERSIONS: dict[str, str] = {
    **dict.fromkeys(("1.0.0", "1.0.1", "1.0.2"), _BY_VALUE),
    **dict.fromkeys(("1.1.0", "1.1.1", "1.1.2", "1.1.3", "1.1.4"), _OLD_LAYOUT),
    "1.2.1b1": "this beta has a layout between those of 1.2.0 and 1.2.1",
}

# Releases by the newest function that a library exports; newest first.
GENERATIONS: dict[str, str] = {
    "rkllm_get_kv_cache_size": "1.2.1 or newer",
    "rkllm_set_chat_template": "1.2.0 or 1.2.1b1",
    "rkllm_load_lora": "1.1",
    "rkllm_abort": "1.0.1 or 1.0.2",
    "rkllm_init": "1.0.0",
}

# Git blob ids of the official Linux/aarch64 libraries (rknn-llm repository history): an exact match names the release.
OFFICIAL_BUILDS = {
    "53e00993ebbc7797df09673f806479e8642db946": "1.0.0",
    "a026cbe60905af0ad6c07dfa2fcc339dd4b9fa10": "1.0.1",
    "c913ab1569dfed48916c05fcd898f8d3f9dafe04": "1.0.2",
    "66dfdc7c25cdca9ccf9930798118e17abf7592ff": "1.1.0",
    "bfca051375287d0f5aa754a7b8681b4ede52e259": "1.1.1",
    "e8f4afc38c7394beeff83003dbc772412f649a44": "1.1.2",
    "68e79327e82f675413956be615f48c62ccd0f16e": "1.1.3",
    "3bb8cb6172c4c06e1c622c8f8c579888378784f4": "1.1.4",
    "d45ee9b8dcb9ef27d7dd875ce3be3d5e6dfb654d": "1.2.0",
    "db041c01bba5e0e8f624bb2ff50d48825dde1bfc": "1.2.1b1",
    "6b9439d59f2fe4bb8ef5ee2b09c102f1bf993da9": "1.2.1",
    "8ed9cca16f8d5ad8f7cdd7d393de6561182b3395": "1.2.2",
    "0084abc34ab43359cfa9fd5d4c92ece34127dbd0": "1.2.3",
    "34167b32f99cb7ab19e21fb579fb750d96b878f1": "1.3.0",
}

# SHA-256 of official libraries without a known blob id.
OFFICIAL_DIGESTS = {"f25e9b099db08aaacd0a3ac62b4697d3951d6ae61ae41ea09f6702cfa89eb32c": "1.3.1"}
