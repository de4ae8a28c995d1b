"""A small vocabulary for each family, with every token that the family's template names."""

from __future__ import annotations

import re
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from rkllm_mcp.messages import Message, ToolCall, ToolResult, ToolSpec
from rkllm_mcp.prompt.template import ChatTemplate
from rkllm_mcp.prompt.tokenizer import ControlText, ModelTokenizer
from rkllm_mcp.toolcalls.formats import marker_texts

# A name between bars (<|im_end|>, <｜User｜>, <|"|>) or behind one (<|turn>, <turn|>), or one of these tags; the other
# tags of a template only explain a format.
_BARRED = re.compile(r"<[|｜_][^<>]+>|<[^<>]+[|｜]>")
_TAGS = re.compile(
    r"</?(?:s|bos|eos|think|tool_call|tool_response|start_of_turn|end_of_turn|end_of_utterance)>",
)
_TAG = re.compile("<[^<>]+>")


def control_names(template: ChatTemplate) -> list[str]:
    """Every token that the family's strings name."""
    tool = ToolSpec("f", "x", {"type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"]})
    calls = (ToolCall("call_1", "f", {"a": "x"}), ToolCall("call_2", "f", {"a": ["x"]}))
    results = (ToolResult("call_1", "f", "x"), ToolResult("call_2", "f", "x"))
    turns = (
        Message("user", "x"),
        Message("assistant", "x"),
        Message("assistant", calls=calls),
        Message("tool", "x", results=results),
    )
    segments = [segment for turn in turns for segment in template.turn(turn)]
    for thinking in (False, True):
        segments += template.head("x", [tool], thinking=thinking)
        segments += template.opening(thinking=thinking)
    texts = [segment.text for segment in segments if isinstance(segment, ControlText)]
    texts += [template.end_of_turn, *template.stop, *marker_texts(template.tool_form.syntaxes)]
    named = {name for text in texts for pattern in (_BARRED, _TAGS) for name in pattern.findall(text)}
    return sorted(named.union(*(_TAG.findall(tag) for tag in template.picture_tags)))


def family_tokenizer(template: ChatTemplate) -> str:
    """A ``tokenizer.json`` of bytes and the family's tokens, all of them special: the hardest case for a reader."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer: Any = Tokenizer(models.BPE(vocab={character: i for i, character in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in control_names(template)])
    return str(tokenizer.to_str())


def family_vocabulary(template: ChatTemplate) -> ModelTokenizer:
    """The vocabulary of ``family_tokenizer``."""
    return ModelTokenizer(family_tokenizer(template))
