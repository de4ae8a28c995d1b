"""Every chat template by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from rkllm_mcp.prompt.gemma import GEMMA_CALL, QUOTE, gemma_declaration
from rkllm_mcp.prompt.template import ChatTemplate, PrefixLayout
from rkllm_mcp.prompt.tool_list import (
    FENCED_CALL,
    HERMES,
    JSON_CALL_WITH_PARAMETERS,
    MARKERS,
    PYTHON_CALL,
    TAGGED_CALL,
    ToolForm,
    bare_tool,
    spaced_json,
)

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
    # A model that misses the end of its turn continues with an invented turn or result.
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
    head_form=PrefixLayout(layout="tools_first"),
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
        call_style=TAGGED_CALL,
        text_separator="\n\n",
    ),
)

# SmolLM3: the reasoning mode stands in the system turn, which is closed only when there are tools (the published
# template does so). Results come back bare as the user's words there; ours keep Hermes' tags around them.
SMOLLM3 = replace(
    CHATML,
    system_closing="",
    head_form=PrefixLayout(
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
    head_form=PrefixLayout(
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
        call_style=JSON_CALL_WITH_PARAMETERS,
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
    head_form=PrefixLayout(beginning="<s>"),
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
        call_style=PYTHON_CALL,
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
    head_form=PrefixLayout(after_system="\n"),
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
    head_form=PrefixLayout(layout="tools_turn", tools_opening="<|im_start|>user\n", tools_closing=f"\n\n{END}\n"),
    tool_form=replace(
        _LIST_OF_CALLS,
        introduction=(
            "[BEGIN OF TASK INSTRUCTION]\nYou call tools for the user. Choose the tools that answer the request and "
            "fill in their arguments with the right types. When no tool fits, say so; when a required argument is "
            "missing, ask for it. The user asks; a tool turn brings the results of a call.\n"
            "\n[END OF TASK INSTRUCTION]\n\n[BEGIN OF AVAILABLE_TOOLS]\n["
        ),
        conclusion=(
            "]\n[END OF AVAILABLE_TOOLS]\n\n\n[BEGIN OF TASK INSTRUCTION]\n"
            "Write calls as a JSON list and nothing else:\n"
            '```\n[\n    {"name": "function_name", "arguments": {"argument1": "value1", "argument2": "value2"}}\n]\n'
            "```\n\n[END OF TASK INSTRUCTION]"
        ),
        syntaxes=("json_list", "hermes"),
        tool=bare_tool,
        tool_opening="",
        tool_separator=", ",
    ),
)


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
    head_form=PrefixLayout(layout="user_turn", beginning="<bos>", after_system="\n\n"),
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
        call_style=PYTHON_CALL,
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
    # Thinking is asked for in the system turn. With thinking off the larger models get an empty channel; E2B and E4B,
    # which run here, were not trained on that.
    head_form=PrefixLayout(beginning="<bos>", thinking_preface="<|think|>\n"),
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
        call_style=GEMMA_CALL,
        text_separator="",
        call_separator="",
        result_separator="",
        note_is_result=True,
    ),
)


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
    head_form=PrefixLayout(
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
        call_style=JSON_CALL_WITH_PARAMETERS,
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
    head_form=PrefixLayout(beginning="<｜begin▁of▁sentence｜>"),
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
        call_style=FENCED_CALL,
        calls_opening="<｜tool▁calls▁begin｜>",
        calls_closing="<｜tool▁calls▁end｜>",
        text_separator="",
        note_is_result=True,
    ),
)

# TeleChat2: Hermes' tags behind the Chinese instruction that it was trained on, as in its authors' training code.
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
    tool_form=replace(
        HERMES,
        introduction=(
            "\n\n# 可用工具\n你可以调用<tools></tools>标签中包含的一个或多个工具来辅助你回答问题,"
            "以下是可用工具详情：\n<tools>\n"
        ),
        conclusion=(
            "</tools>\n\n# 调用方法\n你需要遵循工具的要求，使用json格式返回工具名称及参数，"
            "并用<tool_call></tool_call>包含。"
            '下方是一个调用模板：\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
            "</tool_call>\n"
        ),
        syntaxes=("hermes", "bare_json"),
        tool_opening="",
        tool_closing="\n",
        text_separator="",
    ),
)


def without_blank_lines(text: str) -> str:
    """Return ``text`` without empty lines."""
    return re.sub(r"\n\s*\n", "\n", text.strip("\n").replace("\r\n", "\n"))


# RWKV-7: an empty line and a name separate turns, and both are plain text. So empty lines are removed from untrusted
# text, as its authors ask, and no text can begin a turn. The call format follows the reference; list and results are
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
