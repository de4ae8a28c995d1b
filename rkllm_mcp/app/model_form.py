"""The prompt side of a model: template, tokenizer, and the listing of tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rkllm_mcp.agent.tool_set import find_tools_spec
from rkllm_mcp.app.settings import sampling_by_purpose
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import ModelNotFoundError
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.models.cards import CARD_NAME, ModelFolder
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.prompt.tokenizer import ModelTokenizer
from rkllm_mcp.prompt.tool_list import ToolCosts
from rkllm_mcp.providers.rkllm import ModelForm
from rkllm_mcp.toolcalls.detector import ThinkingMode

# Without their token these would be spelled out letter by letter, and the model would not see a turn begin.
_CONTROL = re.compile(r"<[^<>\s]+>")


def model_form(config: Config, model: ModelFolder) -> ModelForm:
    """Return the template, tokenizer and syntaxes of a model; a ModelNotFoundError if the tokenizer is unusable."""
    card = model.card
    base = TEMPLATES[card.template]
    form = base.tool_form.listed_as(config.agent.tool_listing).in_language(config.agent.person_language)
    template = replace(base, stop=(*base.stop, *card.stop), tool_form=form)
    thinking = config.model.thinking or card.thinking
    # A family that can think may do so unasked.
    mode: ThinkingMode = "auto" if template.can_think or thinking != "off" else "off"
    if thinking != "off" and template.open_thinking:
        mode = "open"
    try:
        tokenizer = ModelTokenizer(model.tokenizer.read_text("utf-8"))
    except (OSError, ValueError) as error:
        problem = f"The tokenizer {model.tokenizer} cannot be read: {error}."
        raise ModelNotFoundError(problem, "Put the tokenizer.json of the original model there.") from None
    beginning = template.head_form.beginning
    turns = (beginning, template.system_opening, template.user_opening, template.assistant_opening)
    needed = (template.end_of_turn, *_CONTROL.findall("".join(turns)))
    missing = next((name for name in needed if name and tokenizer.controls.get(name) is None), None)
    if missing is not None:
        problem = f"The tokenizer {model.tokenizer} has no token {missing}, which the model's template needs."
        remedy = f"Choose another template in {model.folder / CARD_NAME}, or the tokenizer that belongs to the model."
        raise ModelNotFoundError(problem, remedy)
    return ModelForm(
        tokenizer=tokenizer,
        template=template,
        syntaxes=card.syntaxes or template.tool_form.syntaxes,
        thinking=mode,
        think=thinking != "off",
        sampling=sampling_by_purpose(config, model),
        max_new_tokens=config.model.max_new_tokens,
    )


@dataclass(frozen=True)
class PromptListing:
    """Limits and cost of the tool list in a model's prompt."""

    context_tokens: int  # the context window
    cost: Callable[[ToolSpec], int]  # tokens of one listed tool
    with_question: bool = False  # show tools with the question that may need them, instead of a list

    def cost_of_all(self, tools: Sequence[ToolSpec]) -> int:
        """Return the tokens of a list of all these tools; for those on demand it has ``find_tools``."""
        always_listed = [tool for tool in tools if not tool.on_demand]
        find = [find_tools_spec(tools)] if len(always_listed) < len(tools) else []
        return sum(map(self.cost, [*find, *always_listed]))


def listing(config: Config, model: ModelFolder, form: ModelForm) -> PromptListing:
    """Return the listing for the model on the NPU."""
    context_tokens = config.model.context_tokens or model.card.context_tokens
    costs = ToolCosts(form.tokenizer, form.template.tool_form)
    with_question = model.card.tools == "with_question"
    return PromptListing(context_tokens, costs.of, with_question)
