"""What a model is asked to be measured: prompts of any length in its own form, as token ids."""

from __future__ import annotations

from rkllm_mcp.messages import Message
from rkllm_mcp.prompt.conversation import ConversationPrompt, stop_ids
from rkllm_mcp.prompt.vocabulary import Foreign
from rkllm_mcp.providers.rkllm import ModelForm
from rkllm_mcp.runtime.probe_prompts import ProbePrompts

# Answered in a few words, and with different first words.
_QUESTION = "What colour is the sky on a clear day? Answer with one sentence."
_OTHER = "Name three rivers in Africa, nothing else."
_FILLER = "The quick brown fox jumps over the lazy dog while the tired river runs past the old mill and the town. "


def prompts_for(form: ModelForm) -> ProbePrompts:
    """The prompts in a model's form."""

    def ids(question: str) -> tuple[int, ...]:
        prompt = ConversationPrompt(form.vocabulary, form.template, thinking=form.think)
        parts = prompt.parts([Message("user", question)], ())
        return tuple(token for part in parts for token in part.ids)

    filler = tuple(form.vocabulary.encode([Foreign(_FILLER)]))
    return ProbePrompts(ids(_QUESTION), ids(_OTHER), filler, stop_ids(form.vocabulary, form.template))
