"""Families with turns of their own: Llama 3.2, Phi-3.5, DeepSeek R1's distills, TeleChat2 and RWKV-7.

Sources: reference toolcall-formats 1 and 6 for formats and wording; the renderings of the published templates named at
each block. What could not be checked against a published template says so.
"""

from __future__ import annotations

import re
from dataclasses import replace

from rkllm_mcp.prompt.calls import FENCED_CALL, JSON_CALL_WITH_PARAMETERS, spaced_json
from rkllm_mcp.prompt.heads import HeadForm
from rkllm_mcp.prompt.template import ChatTemplate
from rkllm_mcp.prompt.tools import HERMES, MARKERS, ToolForm

# Llama 3.2: the tools come before the first question, results as JSON in a turn of the role ipython. The published
# template refuses several calls in one answer; they are separated by semicolons, as its readers expect.
_RESULT_TURN = "<|start_header_id|>ipython<|end_header_id|>\n\n"
LLAMA_3_2 = ChatTemplate(
    system_opening="<|start_header_id|>system<|end_header_id|>\n\n",
    system_closing="<|eot_id|>",
    user_opening="<|start_header_id|>user<|end_header_id|>\n\n",
    user_closing="<|eot_id|>",
    results_opening=_RESULT_TURN,
    results_closing="<|eot_id|>",
    assistant_opening="<|start_header_id|>assistant<|end_header_id|>\n\n",
    assistant_closing="<|eot_id|>",
    end_of_turn="<|eot_id|>",
    stop=("<|eom_id|>", "<|end_of_text|>", "<|start_header_id|>"),
    head_form=HeadForm(
        layout="tools_in_user_turn",
        beginning="<|begin_of_text|>",
        before_tools_preface="Environment: ipython\n",
        preface="Cutting Knowledge Date: December 2023\n\n",
    ),
    tool_form=ToolForm(
        introduction=(
            "Given the following functions, please respond with a JSON for a function call with its proper arguments "
            "that best answers the given prompt.\n\n"
            'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.'
            "Do not use variables.\n\n"
        ),
        conclusion="",
        call_opening="",
        call_closing="",
        result_opening="",
        result_closing="",
        syntaxes=("llama3_json", "pythonic_list", "functionary_v31"),
        tool_opening="",
        tool_closing="\n\n",
        spelling=JSON_CALL_WITH_PARAMETERS,
        call_separator="; ",
        result_separator=f"<|eot_id|>{_RESULT_TURN}",
        result_text=spaced_json,
        note_is_result=True,
    ),
)

# Phi-3.5: never trained on tools (reference: toolcall-formats 1.1), so the project's markers.
PHI_3_5 = ChatTemplate(
    system_opening="<|system|>\n",
    system_closing="<|end|>\n",
    user_opening="<|user|>\n",
    user_closing="<|end|>\n",
    results_opening="<|user|>\n",
    results_closing="<|end|>\n",
    assistant_opening="<|assistant|>\n",
    assistant_closing="<|end|>\n",
    end_of_turn="<|end|>",
    stop=("<|endoftext|>", "<|user|>", "<|system|>"),
    tool_form=MARKERS,
)

# DeepSeek R1's distills: the system text is bare, the model thinks first, and goes on behind results in the same turn.
# No list of tools was trained; the words are ours. The published template knows no thinking that is off, and writes
# nothing behind results: an answer that is to think opens its block there too.
DEEPSEEK_R1 = ChatTemplate(
    system_opening="",
    system_closing="",
    user_opening="<｜User｜>",
    user_closing="",
    results_opening="<｜tool▁outputs▁begin｜>",
    results_closing="<｜tool▁outputs▁end｜>",
    assistant_opening="<｜Assistant｜>",
    assistant_closing="<｜end▁of▁sentence｜>",
    end_of_turn="<｜end▁of▁sentence｜>",
    stop=("<｜User｜>", "<｜tool▁outputs▁begin｜>"),
    no_thinking="<think>\n\n</think>\n\n",
    open_thinking="<think>\n",
    head_form=HeadForm(beginning="<｜begin▁of▁sentence｜>"),
    results_stay_in_turn=True,
    tool_form=ToolForm(
        introduction="\n\nYou can call these functions. One JSON object describes each:\n",
        conclusion=(
            "\n\nCall functions only when they are needed; otherwise answer directly. To call, write exactly this and "
            "then stop:\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>function_name\n"
            '```json\n{"argument": "value"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
        ),
        call_opening="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        call_closing="<｜tool▁call▁end｜>",
        result_opening="<｜tool▁output▁begin｜>",
        result_closing="<｜tool▁output▁end｜>",
        syntaxes=("deepseek_r1", "hermes", "bare_json"),
        spelling=FENCED_CALL,
        calls_opening="<｜tool▁calls▁begin｜>",
        calls_closing="<｜tool▁calls▁end｜>",
        text_separator="",
        note_is_result=True,
    ),
)

# TeleChat2: Hermes' tags (its own tutorial reads them so). Turns and wording could not be checked against the published
# template.
TELECHAT_2 = ChatTemplate(
    system_opening="<_system>",
    system_closing="\n",
    user_opening="<_user>",
    user_closing="",
    results_opening="<_user>",
    results_closing="",
    assistant_opening="<_bot>",
    assistant_closing="<_end>\n",
    end_of_turn="<_end>",
    stop=("<_user>", "<_system>"),
    tool_form=replace(HERMES, syntaxes=("hermes", "bare_json")),
)


def without_blank_lines(text: str) -> str:
    """``text`` with no empty line in it and none around it."""
    return re.sub(r"\n\s*\n", "\n", text.strip("\n").replace("\r\n", "\n"))


# RWKV-7: turns are told apart by an empty line and a name, which is ordinary text. So foreign text gets no empty lines:
# its authors ask for that, and nobody can begin a turn. The form of calls follows the reference; list and results are
# in our words.
RWKV_7 = ChatTemplate(
    system_opening="System: ",
    system_closing="\n\n",
    user_opening="User: ",
    user_closing="\n\n",
    results_opening="User: ",
    results_closing="\n\n",
    assistant_opening="Assistant:",
    assistant_closing="\n\n",
    end_of_turn="",
    stop=(),
    stop_texts=("\n\n",),
    open_thinking=" <think",
    before_answer=" ",
    clean=without_blank_lines,
    tool_form=ToolForm(
        introduction="\nYou can call these tools. One JSON object describes each:",
        conclusion=(
            "\nCall a tool only when it is needed; otherwise answer directly. To call one, write exactly this and then "
            'stop:\n**Tool Call:**\n```json\n{"name": "tool_name", "arguments": {"argument": "value"}}\n```'
        ),
        call_opening="**Tool Call:**\n```json\n",
        call_closing="\n```",
        result_opening="**Tool Result:** {name}\n",
        result_closing="",
        syntaxes=("rwkv7",),
    ),
)
