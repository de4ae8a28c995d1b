"""Every form in which calls are written: one declaration each.

A new way of writing is a new entry here; which family of models uses which stands in ``syntax``. The sources are the
families' published chat templates and documentation (reference of each in ``docs/toolcalls.md``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

from rkllm_mcp.toolcalls.confirmation import (
    FENCED_JSON,
    JSON,
    NAME,
    PYTHON_CALL,
    PYTHON_OR_JSON,
    any_of,
    bare_json,
    declared_behind,
    followed_by,
    python_names,
)
from rkllm_mcp.toolcalls.form import NEVER, TOOL_NAME, Another, Confirmation, Form
from rkllm_mcp.toolcalls.markers import SPACE, Shape, literal
from rkllm_mcp.toolcalls.scan import JsonScanner, NamedJsonScanner
from rkllm_mcp.toolcalls.scan_calls import BraceScanner, PythonScanner
from rkllm_mcp.toolcalls.spelling import read_json_calls, read_keyed_calls, read_named_json
from rkllm_mcp.toolcalls.spelling_calls import GEMMA_DELIMITERS, read_brace_call, read_python_calls

_JSON_FORM = '{"name": "TOOL", "arguments": {…}}'
_PYTHON_FORM = 'TOOL(KEY="VALUE")'

_ANOTHER_OBJECT = Another(Shape(SPACE, "[,;]?", SPACE), Shape(r"\{"))
_ANOTHER_PYTHON = Another(Shape(SPACE, "[,;]?", SPACE), Shape(*NAME, SPACE, r"\("))


def _behind_bracket(closers: Iterable[str], brackets: str = r"}\]") -> re.Pattern[str]:
    """A closer right behind a bracket, which ends a call; anywhere else in an open string it may be quoted text."""
    return re.compile(rf"(?<=[{brackets}])\s{{0,64}}(" + "|".join(re.escape(closer) for closer in closers) + ")")


def _json(
    name: str,
    openers: str | tuple[str, ...],
    *closers: str,
    confirm: Confirmation = JSON,
    keeps: int = 0,
    lead: str = "",
) -> Form:
    """JSON objects, or a list of them, behind a marker and perhaps a ``lead``."""
    openers = (openers,) if isinstance(openers, str) else openers
    return Form(
        name=name,
        openers=openers,
        confirm=confirm,
        scanner=JsonScanner,
        read=read_json_calls,
        example=f"{openers[0]}{lead}{_JSON_FORM}{closers[0] if closers else ']' if keeps else ''}",
        spells="json",
        closers=closers,
        another=(_ANOTHER_OBJECT,),
        gives_up=_behind_bracket(closers) if closers else NEVER,
        keeps=keeps,
    )


def _python(name: str, opener: str, closer: str, confirm: Confirmation = PYTHON_OR_JSON) -> Form:
    """Calls in Python's spelling between two markers."""
    return Form(
        name=name,
        openers=(opener,),
        confirm=confirm,
        scanner=PythonScanner,
        read=read_python_calls,
        example=f"{opener}[{_PYTHON_FORM}]{closer}",
        closers=(closer,),
        another=(_ANOTHER_PYTHON, _ANOTHER_OBJECT),
        gives_up=_behind_bracket((closer,), r")}\]"),
    )


HERMES = _json("hermes", "<tool_call>", "</tool_call>")
PROJECT_JSON = _json("project_json", "[TOOL_CALL]", "[END_TOOL_CALL]", "[/TOOL_CALL]")
# What models that were trained on several interfaces write instead (reported of Qwen2.5-Coder).
QWEN_DRIFT = _json(
    "qwen_drift",
    ("<function-call>", "<function>", "<tools>"),
    *("</function-call>", "</function>", "</tools>", "</tool"),
    confirm=bare_json(in_list=False, leads=((SPACE, r"\{"),)),
)
LLAMA3_TAG = _json("llama3_tag", "<|python_tag|>")
MISTRAL_JSON = _json("mistral_json", "[TOOL_CALLS]", "[/TOOL_CALLS]")
GRANITE3 = _json("granite3", "<|tool_call|>", "<|/tool_call|>", "<|tool_call_end|>")
GRANITE20B = _json("granite20b", "<function_call>", "</function_call>")
TOOL_CALLS_TAG = _json("tool_calls_tag", "<tool_calls>", "</tool_calls>")
TOOLCALL_TAG = _json("toolcall_tag", "<TOOLCALL>", "</TOOLCALL>")
FUNCTOOLS = _json("functools", "functools[", confirm=followed_by(Shape(SPACE, r"\{", SPACE, "[\"'}]")), keeps=1)
INTERNLM2 = _json(
    "internlm2",
    "<|action_start|>",
    "<|action_end|>",
    lead="<|plugin|>",
    confirm=followed_by(Shape(SPACE, *literal("<|plugin|>"), SPACE, r"\{")),
)
RWKV7 = _json("rwkv7", ("**Tool Call:**", "**Tool Call**:"), "```")
APERTUS = Form(
    name="apertus",
    openers=("<|tools_prefix|>",),
    confirm=followed_by(Shape(SPACE, r"\[", SPACE, r"\{", SPACE, "[\"']")),
    scanner=JsonScanner,
    read=read_keyed_calls,
    example='<|tools_prefix|>[{"TOOL": {…}}]<|tools_suffix|>',
    closers=("<|tools_suffix|>",),
    gives_up=_behind_bracket(("<|tools_suffix|>",)),
)

BARE_JSON = Form(
    name="bare_json",
    openers=("{",),
    confirm=bare_json(in_list=False),
    scanner=JsonScanner,
    read=read_json_calls,
    example=_JSON_FORM,
    spells="json",
    another=(_ANOTHER_OBJECT,),
    keeps=None,
    bare=True,
)
JSON_LIST = Form(
    name="json_list",
    openers=("[",),
    confirm=bare_json(in_list=True),
    scanner=JsonScanner,
    read=read_json_calls,
    example=f"[{_JSON_FORM}]",
    spells="json",
    keeps=None,
    bare=True,
)
JSON_FENCE = Form(
    name="json_fence",
    openers=("```",),
    confirm=FENCED_JSON,
    scanner=JsonScanner,
    read=read_json_calls,
    example=f"```json\n{_JSON_FORM}\n```",
    spells="json",
    closers=("```",),
    another=(_ANOTHER_OBJECT,),
    bare=True,
    fenced=True,
)

PYTHON_LIST = Form(
    name="python_list",
    openers=("[",),
    confirm=python_names((SPACE,)),
    scanner=PythonScanner,
    read=read_python_calls,
    example=f"[{_PYTHON_FORM}]",
    gives_up=re.compile(r"\)\s{0,64}\](?=\s{0,64}\Z)"),
    keeps=None,
    bare=True,
)
PYTHON_CALLS = Form(
    name="python_calls",
    openers=(f"{TOOL_NAME}(",),
    # ``f() gives`` and ``f(x) is`` begin sentences; a call on a line of its own, or with values, is meant as one.
    confirm=followed_by(
        Shape(SPACE, r"\)", r"[ \t]{0,16}", r"\n"),
        Shape(SPACE, "[\"'\\d\\-\\[{]"),
        Shape(SPACE, r"[A-Za-z_]", r"\w{0,63}", SPACE, "=", "[^=]"),
    ),
    scanner=PythonScanner,
    read=read_python_calls,
    example=_PYTHON_FORM,
    another=(_ANOTHER_PYTHON,),
    gives_up=re.compile(r"\)(?=\s{0,64}\Z)"),
    keeps=None,
    bare=True,
)
TOOL_CODE = Form(
    name="tool_code",
    openers=("```tool_code", "```tool_call"),
    confirm=PYTHON_OR_JSON,
    scanner=PythonScanner,
    read=read_python_calls,
    example=f"```tool_code\n{_PYTHON_FORM}\n```",
    closers=("```",),
    another=(_ANOTHER_PYTHON, _ANOTHER_OBJECT),
    gives_up=_behind_bracket(("```",), r")}\]"),
    fenced=True,
)
PYTHON_FENCE = Form(
    name="python_fence",
    openers=("```python",),
    confirm=any_of(
        *(
            python_names((r"\s", SPACE, *wrapped, *listed, SPACE))
            for wrapped in ((), literal("print("))
            for listed in ((), (r"\[",))
        )
    ),
    scanner=PythonScanner,
    read=read_python_calls,
    example=f"```python\n{_PYTHON_FORM}\n```",
    closers=("```",),
    another=(_ANOTHER_PYTHON,),
    gives_up=_behind_bracket(("```",), r")\]"),
    bare=True,
    fenced=True,
)
CHATGLM3 = Form(
    name="chatglm3",
    openers=(f"{TOOL_NAME}\n",),
    confirm=followed_by(Shape(SPACE, *literal("```python"), SPACE, *literal("tool_call"), SPACE, r"\(")),
    scanner=PythonScanner,
    read=read_python_calls,
    example='TOOL\n```python\ntool_call(KEY="VALUE")\n```',
    closers=("```",),
    gives_up=_behind_bracket(("```",), ")"),
    keeps=None,
    bare=True,
)
PYTHON_TAG = _python("python_tag", "<tool_call>", "</tool_call>", PYTHON_CALL)
CODE_TAG = _python("code_tag", "<code>", "</code>", python_names((SPACE,), (SPACE, r"\[", SPACE)))
TOOL_CALL_START = _python("tool_call_start", "<|tool_call_start|>", "<|tool_call_end|>")
PYTHON_START = _python("python_start", "<|python_start|>", "<|python_end|>")
FUNCTION_CALLS = _python("function_calls", "<function_calls>", "</function_calls>")
LLAMA3_BUILTIN = Form(
    name="llama3_builtin",
    openers=("<|python_tag|>",),
    confirm=PYTHON_CALL,
    scanner=PythonScanner,
    read=read_python_calls,
    example=f"<|python_tag|>{_PYTHON_FORM}",
    another=(_ANOTHER_PYTHON,),
    gives_up=re.compile(r"\)(?=\s{0,64}\Z)"),
)


def _brace(name: str, opener: str, closer: str) -> Form:
    return Form(
        name=name,
        openers=(opener,),
        confirm=followed_by(
            Shape(SPACE, *literal("call"), SPACE, ":", SPACE, r"[^\W\d]"), Shape(SPACE, ":", SPACE, r"[^\W\d]")
        ),
        scanner=partial(BraceScanner, GEMMA_DELIMITERS),
        read=read_brace_call,
        example=f"{opener}call:TOOL{{…}}{closer}",
        closers=(closer,),
        another=(Another(Shape(SPACE, "[,;]?", SPACE), Shape(*literal("call"), SPACE, ":")),),
        gives_up=_behind_bracket((closer,)),
    )


GEMMA4 = _brace("gemma4", "<|tool_call>", "<tool_call|>")
FUNCTIONGEMMA = _brace("functiongemma", "<start_function_call>", "<end_function_call>")
# The markers are special tokens; where the runtime leaves those out, this is what remains.
GEMMA_UNMARKED = Form(
    name="gemma_unmarked",
    openers=("call:",),
    confirm=declared_behind((Shape(SPACE),), Shape(SPACE, r"\{")),
    scanner=partial(BraceScanner, GEMMA_DELIMITERS),
    read=read_brace_call,
    example="call:TOOL{…}",
    another=(Another(Shape(SPACE), Shape(*literal("call:"))),),
    keeps=None,
    bare=True,
)

_FUNCTION_NAME = (r"[^\s<>{}/]", r"[^\n<>{}]{0,127}", ">", SPACE)
MISTRAL_ARGS = Form(
    name="mistral_args",
    openers=("[TOOL_CALLS]",),
    confirm=followed_by(
        Shape(SPACE, *NAME, SPACE, *literal("[ARGS]")),
        Shape(SPACE, *NAME, SPACE, *literal("[CALL_ID]")),
        Shape(SPACE, *NAME, SPACE, r"\{"),
    ),
    scanner=NamedJsonScanner,
    read=read_named_json,
    example="[TOOL_CALLS]TOOL[ARGS]{…}",
    spells="named_json",
)
FUNCTION_JSON = Form(
    name="function_json",
    openers=("<function=",),
    confirm=followed_by(Shape(*_FUNCTION_NAME, r"\{")),
    scanner=NamedJsonScanner,
    read=read_named_json,
    example="<function=TOOL>{…}</function>",
    spells="named_json",
    closers=("</function>",),
    gives_up=_behind_bracket(("</function>",), "}"),
)


def _deepseek(name: str, bar: str) -> Form:
    section, ends = f"<{bar}tool▁calls▁begin{bar}>", f"<{bar}tool▁calls▁end{bar}>"
    begin, end = f"<{bar}tool▁call▁begin{bar}>", f"<{bar}tool▁call▁end{bar}>"
    return Form(
        name=name,
        openers=(f"{section}{begin}", f"{section}\n{begin}", begin),
        confirm=followed_by(Shape(SPACE, r"[^\s<>{}]", r"[^\s<>{}]{0,127}", SPACE, *literal(f"<{bar}tool▁sep{bar}>"))),
        scanner=NamedJsonScanner,
        read=read_named_json,
        example=f"{section}{begin}function<{bar}tool▁sep{bar}>TOOL\n```json\n{{…}}\n```{end}{ends}",
        spells="named_json",
        closers=(f"{end}{ends}", f"{end}\n{ends}", end, ends),
        another=tuple(
            Another(Shape(SPACE, *fence, SPACE, *literal(end), SPACE, *literal(begin)), Shape(r"[\s\S]"))
            for fence in ((), literal("```"))
        ),
        gives_up=_behind_bracket((end,), "}`"),
    )


DEEPSEEK = _deepseek("deepseek", "｜")
DEEPSEEK_ASCII = _deepseek("deepseek_ascii", "|")
