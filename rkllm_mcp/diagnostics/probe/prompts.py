"""The prompts of the experiments and of a bench, in the form of a model."""

from __future__ import annotations

from rkllm_mcp.app.settings import picture_tags
from rkllm_mcp.diagnostics.probe.subject import ProbePictures, ProbePrompts
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.generation import IMAGE_MARK
from rkllm_mcp.messages import Message, Picture
from rkllm_mcp.models.cards import ModelFolder
from rkllm_mcp.prompt.conversation import ConversationPrompt, stop_ids
from rkllm_mcp.prompt.template import PictureText
from rkllm_mcp.prompt.tokenizer import ControlText, PlainText
from rkllm_mcp.providers.rkllm import ModelForm
from rkllm_mcp.runtime.emulator import emulated_encoder_library
from rkllm_mcp.runtime.vision.library import find_encoder_library, is_emulated_encoder

# Answered in a few words, and with different first words.
_QUESTION = "What colour is the sky on a clear day? Answer with one sentence."
_OTHER = "Name three rivers in Africa, nothing else."
_FILLER = "The quick brown fox jumps over the lazy dog while the tired river runs past the old mill and the town. "


def prompts_for(form: ModelForm) -> ProbePrompts:
    """The prompts in a model's form."""
    asked: list[tuple[int, ...]] = []
    for question in (_QUESTION, _OTHER):
        prompt = ConversationPrompt(form.tokenizer, form.template, thinking=form.think)
        parts = prompt.parts([Message("user", question)], ())
        asked.append(tuple(token for part in parts for token in part.ids))
    filler = tuple(form.tokenizer.encode([PlainText(_FILLER)]))
    return ProbePrompts(asked[0], asked[1], filler, stop_ids(form.tokenizer, form.template))


def picture_prompt(form: ModelForm, model: ModelFolder) -> ProbePictures | None:
    """Return the question with a picture for a model that sees; None for another, or without librknnrt.so."""
    tags = picture_tags(model.card)
    if model.encoder is None or tags is None:
        return None
    try:
        emulated = is_emulated_encoder(model.encoder)
        library = emulated_encoder_library() if emulated else find_encoder_library(model.encoder)
    except RkllmMcpError:
        return None
    picture_text, picture = f"{tags.start}{tags.content}{tags.end}", Picture.of(b"")
    turn = form.template.turn(
        Message("user", "What is it?", pictures=(picture,)),
        pictures=PictureText(picture_text, frozenset({picture.digest})),
    )
    ids = form.tokenizer.encode([*turn, *form.template.opening(thinking=form.think)])
    text = form.tokenizer.as_text(ids, form.tokenizer.encode([ControlText(picture_text)]), IMAGE_MARK)
    names = (tags.start, tags.end, tags.content)
    return ProbePictures(str(model.encoder), str(library), names, text, len(ids) - 1)
