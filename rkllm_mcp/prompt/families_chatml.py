"""Families whose turns are ChatML's: Qwen and what grew from it, SmolLM3, InternLM2, MiniCPM4.

Sources: reference toolcall-formats 1 and 6 for formats and wording; the renderings of the published templates named at
each block. Where a family was never trained on a wording, ours asks for its call format in few words.
"""

from __future__ import annotations

from dataclasses import replace

from rkllm_mcp.prompt.calls import JSON_CALL_WITH_PARAMETERS, PYTHON_CALL, TAGGED_CALL
from rkllm_mcp.prompt.heads import HeadForm
from rkllm_mcp.prompt.template import ChatTemplate
from rkllm_mcp.prompt.tools import HERMES, MARKERS, ToolForm, bare_tool

END = "<|im_end|>"

# ChatML models that were never trained on tools: the project's markers.
CHATML = ChatTemplate(
    system_opening="<|im_start|>system\n",
    system_closing=f"{END}\n",
    user_opening="<|im_start|>user\n",
    user_closing=f"{END}\n",
    results_opening="<|im_start|>user\n",
    results_closing=f"{END}\n",
    assistant_opening="<|im_start|>assistant\n",
    assistant_closing=f"{END}\n",
    end_of_turn=END,
    # A model that misses its end goes on with a turn, or a result, of its own making.
    stop=("<|endoftext|>", "<|im_start|>", "<tool_response>"),
    tool_form=MARKERS,
)

# Qwen2.5: the published template puts a default system text where there is none; ours does not.
QWEN2_5 = replace(CHATML, tool_form=HERMES)

# Qwen3: enable_thinking=false is an empty block that the prompt closes.
QWEN3 = replace(QWEN2_5, no_thinking="<think>\n\n</think>\n\n")

# Qwen3.5: the tools come before the system text, calls are tags, and thinking is opened by the prompt.
QWEN3_5 = replace(
    QWEN3,
    open_thinking="<think>\n",
    head_form=HeadForm(layout="tools_first"),
    tool_form=ToolForm(
        introduction="# Tools\n\nYou have access to the following functions:\n\n<tools>",
        conclusion=(
            "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
            "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
            "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\n"
            "multiple lines\n</parameter>\n</function>\n</tool_call>\n\n"
            "<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified format: an inner "
            "<function=...></function> block must be nested within <tool_call></tool_call> XML tags\n"
            "- Required parameters MUST be specified\n"
            "- You may provide optional reasoning for your function call in natural language BEFORE the function "
            "call, but NOT after\n"
            "- If there is no function call available, answer the question like normal with your current knowledge "
            "and do not tell the user about function calls\n</IMPORTANT>"
        ),
        call_opening="<tool_call>\n",
        call_closing="\n</tool_call>",
        result_opening="<tool_response>\n",
        result_closing="\n</tool_response>",
        syntaxes=("qwen3_xml", "hermes"),
        spelling=TAGGED_CALL,
        text_separator="\n\n",
    ),
)

# SmolLM3: the reasoning mode stands in the system turn, which is closed only when there are tools (the published
# template does so). Results come back bare as the user's words there; ours keep Hermes' tags around them.
SMOLLM3 = replace(
    CHATML,
    system_closing="",
    head_form=HeadForm(
        preface="## Metadata\n\nKnowledge Cutoff Date: June 2025\n",
        thinking_preface="Reasoning Mode: /think\n\n## Custom Instructions\n\n",
        no_thinking_preface="Reasoning Mode: /no_think\n\n## Custom Instructions\n\n",
        after_system="\n\n",
        tools_closing=f"\n\n{END}\n",
    ),
    no_thinking="<think>\n\n</think>\n",
    tool_form=replace(
        HERMES,
        introduction=(
            "### Tools\n\nYou may call one or more functions to assist with the user query.\n"
            "You are provided with function signatures within <tools></tools> XML tags:\n\n<tools>"
        ),
        syntaxes=("hermes", "smollm3_python", "bare_json"),
    ),
)

# InternLM2: tools and results are turns of roles of their own, named <|plugin|>.
_PLUGIN_TURN = "<|im_start|>environment name=<|plugin|>\n"
INTERNLM2 = replace(
    CHATML,
    results_opening=_PLUGIN_TURN,
    stop=("</s>", "<|im_start|>"),
    head_form=HeadForm(
        layout="tools_turn",
        beginning="<s>",
        tools_opening="<|im_start|>system name=<|plugin|>\n",
        tools_closing=f"{END}\n",
    ),
    tool_form=ToolForm(
        introduction="[",
        conclusion="]",
        call_opening="<|action_start|><|plugin|>\n",
        call_closing="<|action_end|>",
        result_opening="",
        result_closing="",
        syntaxes=("internlm2",),
        tool=bare_tool,
        tool_opening="",
        tool_separator=", ",
        spelling=JSON_CALL_WITH_PARAMETERS,
        text_separator="",
        call_separator="",
        result_separator=f"{END}\n{_PLUGIN_TURN}",
        note_is_result=True,
    ),
)

# MiniCPM4: no reference describes its own tool form; this is MiniCPM3's call with a list in our words.
_TOOL_TURN = "<|im_start|>tool\n"
MINICPM4 = replace(
    CHATML,
    results_opening=_TOOL_TURN,
    stop=("</s>", "<|im_start|>"),
    head_form=HeadForm(beginning="<s>"),
    tool_form=ToolForm(
        introduction="\n\n# Functions\nYou can call these functions. One JSON object describes each:\n",
        conclusion=(
            "\n\nCall functions only when they are needed; otherwise answer directly. To call, write exactly this and "
            "then stop:\n<|tool_call_start|>\n```python\nfunction_name(argument=value)\n```\n<|tool_call_end|>"
        ),
        call_opening="",
        call_closing="\n",
        result_opening="",
        result_closing="",
        syntaxes=("minicpm3", "hermes"),
        tool=bare_tool,
        spelling=PYTHON_CALL,
        calls_opening="<|tool_call_start|>\n```python\n",
        calls_closing="```\n<|tool_call_end|>",
        call_separator="",
        result_separator=f"{END}\n{_TOOL_TURN}",
        note_is_result=True,
    ),
)

# A bare JSON list of calls, and [] for none.
_LIST_OF_CALLS = ToolForm(
    introduction="",
    conclusion="",
    call_opening="",
    call_closing="",
    result_opening="",
    result_closing="",
    syntaxes=("xlam_json",),
    calls_opening="[",
    calls_closing="]",
    call_separator=", ",
    result_separator=f"{END}\n{_TOOL_TURN}",
    note_is_result=True,
)

# xLAM-2: published is one system turn with the instruction and a list. The published template leaves the instruction
# out when there is a system text; ours keeps it, since there always is one. The order is theirs, the words are ours.
XLAM_2 = replace(
    CHATML,
    results_opening=_TOOL_TURN,
    head_form=HeadForm(after_system="\n"),
    tool_form=replace(
        _LIST_OF_CALLS,
        introduction=(
            "You can use a set of tools. To use tools, write all calls as one JSON array:\n\n"
            '[{"name": "tool_name", "arguments": {"argument1": "value1", "argument2": "value2"}}, …]\n\n'
            "Then wait for the results. Ask when a required argument is missing. When no tool fits, or none is needed, "
            "answer in plain text. The tools are:\n\n"
        ),
        tool_opening="",
        tool_closing="\n\n",
    ),
)

# Hammer 2.1: published is a user turn of its own with instruction, tools and format between headings. The order and the
# headings are theirs, the words are ours, and instead of answering [] for no call the model may answer in text.
HAMMER_2_1 = replace(
    CHATML,
    results_opening=_TOOL_TURN,
    head_form=HeadForm(layout="tools_turn", tools_opening="<|im_start|>user\n", tools_closing=f"\n\n{END}\n"),
    tool_form=replace(
        _LIST_OF_CALLS,
        introduction=(
            "[BEGIN OF TASK INSTRUCTION]\nYou call tools for the user. Choose the tools that answer the request and "
            "fill in their arguments with the right types. When no tool fits, say so; when a required argument is "
            "missing, ask for it. The user asks; a tool turn brings the results of a call.\n"
            "[END OF TASK INSTRUCTION]\n\n[BEGIN OF AVAILABLE_TOOLS]\n["
        ),
        conclusion=(
            "]\n[END OF AVAILABLE_TOOLS]\n\n[BEGIN OF TASK INSTRUCTION]\nWrite calls as a JSON list and nothing else:\n"
            '```\n[\n    {"name": "function_name", "arguments": {"argument1": "value1", "argument2": "value2"}}\n]\n'
            "```\n[END OF TASK INSTRUCTION]"
        ),
        syntaxes=("json_list", "hermes"),
        tool=bare_tool,
        tool_opening="",
        tool_separator=", ",
    ),
)
