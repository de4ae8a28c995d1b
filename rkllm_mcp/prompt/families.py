"""Every chat template by its name: what ``template`` in a ``model.toml`` may say.

The families are data in ``families_*``, one block each, with the source of every block beside it. Where ours differs
from what a family publishes, it is for one of these reasons, all our choice:

* A turn is rendered once. Some templates leave the thinking of earlier answers out of later prompts, or write an empty
  block into all of them; our ledger keeps what the model wrote, because a change there would have the NPU read all that
  follows again. What a template leaves out goes when a turn is rendered again: after a compaction, another tool list,
  or a change of the history.
* No dates and no default system texts: the head must be the same tomorrow, and the owner's words are the system text.
* Tool lists are minified JSON. Templates indent them (Llama, xLAM) or put blanks behind separators; both cost prefill.
* Text is not trimmed, and errors of tools begin with ``Error:``.
"""

from __future__ import annotations

from collections.abc import Mapping

from rkllm_mcp.prompt.families_chatml import (
    CHATML,
    HAMMER_2_1,
    INTERNLM2,
    MINICPM4,
    QWEN2_5,
    QWEN3,
    QWEN3_5,
    SMOLLM3,
    XLAM_2,
)
from rkllm_mcp.prompt.families_gemma import GEMMA_3, GEMMA_4
from rkllm_mcp.prompt.families_plain import DEEPSEEK_R1, LLAMA_3_2, PHI_3_5, RWKV_7, TELECHAT_2
from rkllm_mcp.prompt.template import ChatTemplate

TEMPLATES: Mapping[str, ChatTemplate] = {
    "qwen2.5": QWEN2_5,
    "qwen3": QWEN3,
    "qwen3.5": QWEN3_5,
    "chatml": CHATML,
    "gemma3": GEMMA_3,
    "gemma4": GEMMA_4,
    "llama3.2": LLAMA_3_2,
    "phi3.5": PHI_3_5,
    "internlm2": INTERNLM2,
    "minicpm4": MINICPM4,
    "smollm3": SMOLLM3,
    "deepseek-r1": DEEPSEEK_R1,
    "telechat2": TELECHAT_2,
    "rwkv7": RWKV_7,
    "xlam2": XLAM_2,
    "hammer2.1": HAMMER_2_1,
}
