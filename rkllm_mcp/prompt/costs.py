"""What each tool costs in the list at the front of a prompt."""

from __future__ import annotations

from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.prompt.tools import ToolForm
from rkllm_mcp.prompt.vocabulary import Segment, Vocabulary


class ToolCosts:
    """Tokens of listed tools, each counted once.

    Args:
        vocabulary: the model's tokenizer.
        form: how the model's tools are listed.
    """

    def __init__(self, vocabulary: Vocabulary, form: ToolForm) -> None:
        self._vocabulary = vocabulary
        self._form = form
        self._tokens: dict[tuple[Segment, ...], int] = {}

    def of(self, tool: ToolSpec) -> int:
        """What ``tool`` costs, tokens; a token more or less where its neighbours in the list join it."""
        segments = tuple(self._form.listed(tool, self._form.tool_separator))
        tokens = self._tokens.get(segments)
        if tokens is None:
            tokens = self._tokens[segments] = len(self._vocabulary.encode(segments))
        return tokens
