"""One call in every form: ``save_note(title, body, stars)`` as a model of the family writes it, with any body."""

from __future__ import annotations

import json
from collections.abc import Callable

from rkllm_mcp.messages import ToolSpec

SAVE = ToolSpec(
    "save_note",
    "",
    {
        "type": "object",
        "properties": {"title": {"type": "string"}, "body": {"type": "string"}, "stars": {"type": "integer"}},
        "required": ["title", "body"],
    },
)


GEMMA_MARK = '<|"|>'


def _json(body: str, arguments: str = "arguments") -> str:
    return json.dumps({"name": "save_note", arguments: _arguments(body)}, ensure_ascii=False)


def _arguments(body: str) -> dict[str, object]:
    return {"title": "t", "body": body, "stars": 3}


def _object(body: str) -> str:
    return json.dumps(_arguments(body), ensure_ascii=False)


def _python(body: str) -> str:
    return f"save_note(title='t', body={body!r}, stars=3)"


def _braces(body: str, mark: str) -> str:
    return f"call:save_note{{title:{mark}t{mark},body:{mark}{body}{mark},stars:3}}"


def _qwen(body: str) -> str:
    values = {"title": "t", "body": body, "stars": "3"}
    inside = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<function=save_note>\n{inside}</function>"


def _attributes(body: str, call: str, argument: str) -> str:
    values = {"title": "t", "body": body, "stars": "3"}
    inside = "".join(f'<{argument} name="{key}">{value}</{argument}>' for key, value in values.items())
    return f'<{call} name="save_note">{inside}</{call}>'


def _glm(body: str) -> str:
    values = {"title": "t", "body": body, "stars": "3"}
    inside = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in values.items())
    return f"<tool_call>save_note\n{inside}</tool_call>"


def _deepseek(body: str, bar: str, *, fenced: bool) -> str:
    head = f"function<{bar}tool▁sep{bar}>save_note\n```json\n" if fenced else f"save_note<{bar}tool▁sep{bar}>"
    call = (
        f"<{bar}tool▁call▁begin{bar}>{head}{_object(body)}{chr(10) + '```' if fenced else ''}<{bar}tool▁call▁end{bar}>"
    )
    return f"<{bar}tool▁calls▁begin{bar}>{call}<{bar}tool▁calls▁end{bar}>"


SAMPLES: dict[str, tuple[str, Callable[[str], str]]] = {
    "project_json": ("project_json", lambda body: f"[TOOL_CALL]\n{_json(body)}\n[END_TOOL_CALL]"),
    "project_xml": ("project_xml", lambda body: _attributes(body, "tool_call", "argument")),
    "hermes": ("hermes", lambda body: f"<tool_call>\n{_json(body)}\n</tool_call>"),
    "granite4_hermes, a string": (
        "granite4_hermes",
        lambda body: f'<tool_call>{{"name": "save_note", "arguments": {json.dumps(_object(body))}}}</tool_call>',
    ),
    "qwen25_coder, drifted": ("qwen25_coder", lambda body: f"<function-call>{_json(body)}</function-call>"),
    "qwen3_xml": ("qwen3_xml", lambda body: f"<tool_call>\n{_qwen(body)}\n</tool_call>"),
    "qwen3_xml, no opener": ("qwen3_xml", lambda body: f"{_qwen(body)}\n</tool_call>"),
    "smollm3_python": ("smollm3_python", lambda body: f"<code>{_python(body)}</code>"),
    "llama3_json": ("llama3_json", lambda body: _json(body, "parameters")),
    "llama3_json, tagged": ("llama3_json", lambda body: f"<|python_tag|>{_json(body, 'parameters')}"),
    "functionary_v31": ("functionary_v31", lambda body: f"<function=save_note>{_object(body)}</function>"),
    "pythonic_list": ("pythonic_list", lambda body: f"[{_python(body)}]"),
    "llama4_pythonic": ("llama4_pythonic", lambda body: f"<|python_start|>[{_python(body)}]<|python_end|>"),
    "gemma3, tool_code": ("gemma3", lambda body: f"```tool_code\nprint({_python(body)})\n```"),
    "gemma3, tags": ("gemma3", lambda body: f"<tool_call>{_python(body)}</tool_call>"),
    "gemma3, JSON in a fence": ("gemma3", lambda body: f"```json\n{_json(body)}\n```"),
    "gemma3, Python in a fence": ("gemma3", lambda body: f"```python\n{_python(body)}\n```"),
    "gemma3, a list": ("gemma3", lambda body: f"[{_python(body)}]"),
    "gemma3, no list": ("gemma3", _python),
    "gemma3, an object": ("gemma3", lambda body: _json(body, "parameters")),
    "functiongemma": (
        "functiongemma",
        lambda body: f"<start_function_call>{_braces(body, '<escape>')}<end_function_call>",
    ),
    "gemma4": ("gemma4", lambda body: f"<|tool_call>{_braces(body, GEMMA_MARK)}<tool_call|>"),
    "gemma4, markers left out": ("gemma4", lambda body: _braces(body, GEMMA_MARK)),
    "internlm2": ("internlm2", lambda body: f"<|action_start|> <|plugin|>\n{_json(body, 'parameters')}<|action_end|>"),
    "minicpm3": (
        "minicpm3",
        lambda body: f"<|tool_call_start|>\n```python\n{_python(body)}\n```\n<|tool_call_end|>",
    ),
    "minicpm5_xml": ("minicpm5_xml", lambda body: _attributes(f"<![CDATA[{body}]]>", "function", "param")),
    "deepseek_r1": ("deepseek_r1", lambda body: _deepseek(body, "｜", fenced=True)),
    "deepseek_r1, a bare call": ("deepseek_r1", _python),
    "deepseek_r1_ascii": ("deepseek_r1_ascii", lambda body: _deepseek(body, "|", fenced=True)),
    "deepseek_v31": ("deepseek_v31", lambda body: _deepseek(body, "｜", fenced=False)),
    "rwkv7": ("rwkv7", lambda body: f"**Tool Call:**\n```json\n{_json(body)}\n```"),
    "rwkv7, tags": ("rwkv7", lambda body: f"<tool_call>\n{_json(body)}\n"),
    "rwkv7, a fence": ("rwkv7", lambda body: f"```json\n{_json(body)}\n```"),
    "chatglm3": (
        "chatglm3",
        lambda body: f"save_note\n```python\ntool_call(title='t', body={body!r}, stars=3)\n```",
    ),
    "glm4_xml": ("glm4_xml", _glm),
    "phi4mini_functools": ("phi4mini_functools", lambda body: f"functools[{_json(body)}]"),
    "phi4mini_functools, the card's form": (
        "phi4mini_functools",
        lambda body: f"<|tool_call|>[{_json(body)}]<|/tool_call|>",
    ),
    "firefunction": ("firefunction", lambda body: f" functools[{_json(body)}]"),
    "mistral_json": ("mistral_json", lambda body: f"[TOOL_CALLS] [{_json(body)}]"),
    "mistral_args": ("mistral_args", lambda body: f"[TOOL_CALLS]save_note[ARGS]{_object(body)}"),
    "mistral_args, an id": ("mistral_args", lambda body: f"[TOOL_CALLS]save_note[CALL_ID]a1[ARGS]{_object(body)}"),
    "lfm2": ("lfm2", lambda body: f"<|tool_call_start|>[{_python(body)}]<|tool_call_end|>"),
    "lfm2, JSON": ("lfm2", lambda body: f"<|tool_call_start|>[{_json(body)}]<|tool_call_end|>"),
    "lfm2, a bare list": ("lfm2", lambda body: f"[{_python(body)}]"),
    "olmo3": ("olmo3", lambda body: f"<function_calls>{_python(body)}</function_calls>"),
    "granite3": ("granite3", lambda body: f"<|tool_call|>[{_json(body)}]"),
    "granite20b": ("granite20b", lambda body: f"<function_call> {_json(body)}"),
    "jamba": ("jamba", lambda body: f"<tool_calls>[{_json(body)}]</tool_calls>"),
    "hunyuan_a13b": ("hunyuan_a13b", lambda body: f"<tool_calls>\n[{_json(body)}]\n</tool_calls>"),
    "apriel": ("apriel", lambda body: f"<tool_calls>[{_json(body)}]</tool_calls>"),
    "nemotron_toolcall_list": ("nemotron_toolcall_list", lambda body: f"<TOOLCALL>[{_json(body)}]</TOOLCALL>"),
    "apertus": ("apertus", lambda body: f'<|tools_prefix|>[{{"save_note": {_object(body)}}}]<|tools_suffix|>'),
    "seed_oss": ("seed_oss", lambda body: f"<seed:tool_call>\n{_qwen(body)}\n</seed:tool_call>"),
    "minimax_m2": (
        "minimax_m2",
        lambda body: f"<minimax:tool_call>\n{_attributes(body, 'invoke', 'parameter')}\n</minimax:tool_call>",
    ),
    "xlam_json": ("xlam_json", lambda body: f"[{_json(body)}]"),
    "xlam_json, a fence behind words": ("xlam_json", lambda body: f"```json\n[{_json(body)}]\n```"),
    "json_list": ("json_list", lambda body: f"[{_json(body)}]"),
    "bare_json": ("bare_json", _json),
}
