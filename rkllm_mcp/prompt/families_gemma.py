"""Gemma 3 and Gemma 4.

Sources: reference toolcall-formats 1.1 and 6; the renderings of the templates that vLLM publishes for both.
"""

from __future__ import annotations

from rkllm_mcp.prompt.calls import PYTHON_CALL
from rkllm_mcp.prompt.gemma import GEMMA_CALL, QUOTE, gemma_declaration
from rkllm_mcp.prompt.heads import HeadForm
from rkllm_mcp.prompt.template import ChatTemplate
from rkllm_mcp.prompt.tools import ToolForm

# Gemma 3: no system role and no token for calls. System text and tools begin the first user turn, and calls are a list
# in Python's notation, as Google's documentation asks; the words are ours.
GEMMA_3 = ChatTemplate(
    system_opening="",
    system_closing="",
    user_opening="<start_of_turn>user\n",
    user_closing="<end_of_turn>\n",
    results_opening="<start_of_turn>user\n",
    results_closing="<end_of_turn>\n",
    assistant_opening="<start_of_turn>model\n",
    assistant_closing="<end_of_turn>\n",
    end_of_turn="<end_of_turn>",
    stop=("<eos>", "<start_of_turn>"),
    head_form=HeadForm(layout="user_turn", beginning="<bos>", after_system="\n\n"),
    tool_form=ToolForm(
        introduction="You can call these functions. One JSON object describes each:",
        conclusion=(
            "\n\nCall functions only when they are needed; otherwise answer directly. To call, write only a list of "
            "calls, without Markdown, and then stop:\n"
            "[function_name(argument1=value1, argument2=value2), other_function(argument=value)]\n\n"
        ),
        call_opening="",
        call_closing="",
        result_opening="<tool_response>\n",
        result_closing="\n</tool_response>",
        syntaxes=("gemma3", "pythonic_list"),
        spelling=PYTHON_CALL,
        calls_opening="[",
        calls_closing="]",
        call_separator=", ",
    ),
)

# Gemma 4: tools, calls and results in its own notation between control tokens. A call ends the answer where the result
# is to begin, and the model goes on behind it in the same turn.
GEMMA_4 = ChatTemplate(
    system_opening="<|turn>system\n",
    system_closing="<turn|>\n",
    user_opening="<|turn>user\n",
    user_closing="<turn|>\n",
    results_opening="",
    results_closing="",
    assistant_opening="<|turn>model\n",
    assistant_closing="<turn|>\n",
    end_of_turn="<turn|>",
    stop=("<|tool_response>", "<eos>", "<|turn>"),
    # enable_thinking=false is an empty channel that the prompt closes; thinking is asked for in the system turn.
    no_thinking="<|channel>thought\n<channel|>",
    head_form=HeadForm(beginning="<bos>", thinking_preface="<|think|>\n"),
    calls_end_turn="",
    results_stay_in_turn=True,
    tool_form=ToolForm(
        introduction="",
        conclusion="",
        call_opening="<|tool_call>",
        call_closing="<tool_call|>",
        result_opening=f"<|tool_response>response:{{name}}{{value:{QUOTE}",
        result_closing=f"{QUOTE}}}<tool_response|>",
        syntaxes=("gemma4",),
        tool=gemma_declaration,
        tool_opening="<|tool>",
        tool_closing="<tool|>",
        spelling=GEMMA_CALL,
        text_separator="",
        call_separator="",
        result_separator="",
        note_is_result=True,
    ),
)
