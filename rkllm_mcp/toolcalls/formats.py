"""Every call format, one declaration each, and the named sets of formats (syntaxes)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain, product
from typing import Any

from rkllm_mcp.errors import UsageError
from rkllm_mcp.toolcalls.lenient_json import ParsedCall
from rkllm_mcp.toolcalls.markers import SPACE, Markers, Shape, literal
from rkllm_mcp.toolcalls.parsers import (
    GEMMA_DELIMITERS,
    NAME_KEYS,
    WRAPPER_KEYS,
    read_brace_call,
    read_bracketed_call,
    read_json_calls,
    read_keyed_calls,
    read_named_json,
    read_python_calls,
)
from rkllm_mcp.toolcalls.scanners import (
    Argument,
    BraceScanner,
    NamedJsonScanner,
    Scanner,
    Tags,
    TagScanner,
    json_scanner,
    python_scanner,
)
from rkllm_mcp.toolcalls.syntax import NEVER, THINKING, TOOL_NAME, Another, CallFormat, Confirmation, ThinkingTags
from rkllm_mcp.toolcalls.tag_parser import TagReader

_FENCE = (*literal("```"), r"[a-zA-Z_]{0,12}")
_QUOTE = "[\"'“”]"
# A name without quotes: letters of any script, and separators of words.
NAME = (r"[^\W\d]", r"[\w.\-]{0,80}")
_NAME_RUN = re.compile(r"[\w.\-/]*")
# A key with or without quotes. Other text after a brace (``{json}``, ``{...}``) is an explanation of the format.
_KEY = ((r"\{", SPACE, "[\"'“”{}]"), (r"\{", SPACE, r"[A-Za-z_]", r"\w{0,31}", SPACE, "[:=\"']"))
# Keys of arguments in objects without markers; the other keys that are accepted are too common in plain data.
_ARGUMENT_KEYS = ("arguments", "parameters", "args")


def followed_by(*shapes: Shape) -> Confirmation:
    """Return a confirmation by any of several shapes, for any declared names."""
    return lambda text, _names: _any(shape.at(text, 0) for shape in shapes)


def any_of(*confirmations: Confirmation) -> Confirmation:
    """Return a confirmation by any of several others."""
    return lambda text, names: _any(confirmation(text, names) for confirmation in confirmations)


def declared_behind(leads: Sequence[Shape], *followers: Shape) -> Confirmation:
    """Return a confirmation by a declared name right after one of ``leads`` and followed by one of ``followers``."""
    return lambda text, names: _any(_names_declared(text, lead, followers, names) for lead in leads)


def _names_declared(text: str, lead: Shape, followers: Sequence[Shape], names: frozenset[str]) -> bool | None:
    verdict = lead.at(text, 0)
    start = lead.match(text, 0)
    if not verdict or start is None:
        return verdict
    run = _NAME_RUN.match(text, start)
    end = start if run is None else run.end()
    if end == len(text):
        return None if any(name.startswith(text[start:end]) for name in names) else False
    if text[start:end] in names:
        return _any(shape.at(text, end) for shape in followers)
    # Declared names with characters outside _NAME_RUN.
    unusual = [name for name in names if not _NAME_RUN.fullmatch(name)]
    if any(name.startswith(text[start:]) for name in unusual):
        return None
    prefixes = (name for name in unusual if text.startswith(name, start))
    return _any(shape.at(text, start + len(name)) for name in prefixes for shape in followers)


def _any(verdicts: Iterable[bool | None]) -> bool | None:
    results = list(verdicts)
    return True if True in results else None if None in results else False


def _shapes(*parts: Iterable[Sequence[str]]) -> list[Shape]:
    """Return the shapes of every choice of one sequence of atoms from each part."""
    return [Shape(*chain.from_iterable(choice)) for choice in product(*parts)]


# Parts of shapes; one with no atoms may be left out.
SPACED = ((SPACE,),)
FENCED = ((), (*_FENCE, SPACE))
LISTED = ((), (r"\[", SPACE))

JSON = followed_by(*_shapes((*SPACED, (SPACE, *literal("\\n"), SPACE)), FENCED, LISTED, _KEY))
"""An object, or a list that begins with one, with or without a code fence."""


def _key_shapes(keys: Iterable[str], *value: str) -> list[tuple[str, ...]]:
    return [(_QUOTE, *literal(key), _QUOTE, SPACE, "[:=]", SPACE, *value) for key in keys]


_NAME_ENDS = Shape(_QUOTE)
_CALL_KEYS = (
    *_key_shapes(_ARGUMENT_KEYS, '[{"]'),
    *_key_shapes(("type",), *literal('"function"')),
    *_key_shapes(("function",), r"\{"),
    *_key_shapes(WRAPPER_KEYS, r"[{\[]"),
)
# A list may hold further calls although its first names an unknown tool, and an object that is a whole answer is sent
# back; the argument key tells them from plain data.
_UNKNOWN_CALL = [
    (*name, r"[^\"'\\\n{}\[\]]{1,64}", _QUOTE, SPACE, ",", SPACE, *arguments)
    for name in _key_shapes(("name",), _QUOTE)
    for arguments in (
        *_key_shapes(("arguments", "parameters"), '[{"]'),
        *_key_shapes(("arguments", "parameters"), *literal("null")),
    )
]


def bare_json(*, in_list: bool, leads: Sequence[Sequence[str]] = ((),)) -> Confirmation:
    """Return a confirmation by an object that names a declared tool, or any with arguments, after its first bracket.

    ``in_list``: the bracket begins a list. ``leads``: texts before the object's brace.
    """
    brace = (r"\{", SPACE) if in_list else ()
    openings = [(*lead, SPACE, *brace) for lead in leads]
    name_shapes = _shapes(
        openings, [*_key_shapes(NAME_KEYS, _QUOTE), *_key_shapes(NAME_KEYS, _QUOTE, *literal("functions."))]
    )
    key_shapes = _shapes(openings, [*_CALL_KEYS, *_UNKNOWN_CALL])
    firsts = {lead[0] for lead in leads if lead} or {r"\{" if in_list else _QUOTE}
    begins = re.compile(rf"{SPACE}(?:\Z|{'|'.join(firsts)})")
    confirm = any_of(declared_behind(name_shapes, _NAME_ENDS), followed_by(*key_shapes))

    # Code is full of brackets, and nearly always the next character decides.
    return lambda text, names: confirm(text, names) if begins.match(text) else False


FENCED_JSON = any_of(
    *(
        bare_json(in_list=in_list, leads=[(*language, SPACE, bracket)])
        for language in (literal("json"), literal("tool_call"), literal("function_call"), ())
        for in_list, bracket in ((False, r"\{"), (True, r"\["))
    )
)
"""After the backticks of a fence: its language, and an object that names a declared tool."""

PYTHON_CALL = followed_by(*_shapes(SPACED, FENCED, LISTED, [(*NAME, SPACE, r"\(")]))
"""``f(…`` or ``[f(…`` with any name; for formats that have a marker."""

PYTHON_OR_JSON = any_of(PYTHON_CALL, JSON)

_VALUES = ((SPACE, "[\"'\\d\\-\\[{]"), (SPACE, r"[A-Za-z_]", r"\w{0,63}", SPACE, "=", "[^=]"))
"""Behind a parenthesis: values as programs write them. ``f(x) is`` begins a sentence."""

WRITTEN_CALL = followed_by(*_shapes(SPACED, FENCED, LISTED, [(*NAME, r"\(")], [(SPACE, r"\)"), *_VALUES]))
"""``f(key=`` or ``[f("…`` with any name; ``tag (a note)`` is a sentence."""


def python_names(*leads: Sequence[str]) -> Confirmation:
    """Return a confirmation by a Python call of a declared name after one of ``leads``."""
    return declared_behind([Shape(*lead) for lead in leads], Shape(SPACE, r"\("))


_JSON_EXAMPLE = '{"name": "TOOL", "arguments": {…}}'
_PYTHON_EXAMPLE = 'TOOL(KEY="VALUE")'

_ENDS_ANSWER = re.compile(r"\)(?=\s{0,64}\Z)")
_ANOTHER_OBJECT = Another(Shape(SPACE, "[,;]?", SPACE), Shape(r"\{"))
_ANOTHER_PYTHON = Another(Shape(SPACE, "[,;]?", SPACE), Shape(*NAME, SPACE, r"\("))


def _behind_bracket(closers: Iterable[str], brackets: str = r"}\]") -> re.Pattern[str]:
    """Return a pattern for a closer right after a bracket; elsewhere in an open string it may be quoted text."""
    return re.compile(rf"(?<=[{brackets}])\s{{0,64}}(" + "|".join(re.escape(closer) for closer in closers) + ")")


@dataclass(frozen=True)
class _Notation:
    """The defaults of the formats that have a marker before calls in one notation."""

    body: str  # of the example, between the first opener and closer
    confirm: Confirmation
    scanner: Callable[[Markers], Scanner]
    read: Callable[[str], tuple[ParsedCall, ...]]
    another: tuple[Another, ...]
    brackets: str  # the last one of a call, before a closer that may end it
    gives_up: re.Pattern[str]  # without closers


def _format(
    notation: _Notation, name: str, openers: str | tuple[str, ...], *closers: str, **settings: Any
) -> CallFormat:
    """Declare a format after a marker; ``settings`` are those of a ``CallFormat``."""
    openers = (openers,) if isinstance(openers, str) else openers
    defaults: dict[str, Any] = {
        "example": f"{openers[0]}{notation.body}{closers[0] if closers else ''}",
        "confirm": notation.confirm,
        "scanner": notation.scanner,
        "read": notation.read,
        "another": notation.another,
        "gives_up": _behind_bracket(closers, notation.brackets) if closers else notation.gives_up,
    }
    return CallFormat(name=name, openers=openers, closers=closers, **{**defaults, **settings})


_json = partial(
    _format,
    _Notation(_JSON_EXAMPLE, JSON, json_scanner, read_json_calls, (_ANOTHER_OBJECT,), r"}\]", NEVER),
)
"""Declare JSON objects, or a list of them, after a marker."""

_python = partial(
    _format,
    _Notation(
        f"[{_PYTHON_EXAMPLE}]",
        PYTHON_OR_JSON,
        python_scanner,
        read_python_calls,
        (_ANOTHER_PYTHON, _ANOTHER_OBJECT),
        r")}\]",
        _ENDS_ANSWER,
    ),
)
"""Declare Python-like calls after a marker."""


HERMES = _json("hermes", "<tool_call>", "</tool_call>")
PROJECT_JSON = _json("project_json", "[TOOL_CALL]", "[END_TOOL_CALL]", "[/TOOL_CALL]")
# Variants written by models that were trained on several interfaces (reported for Qwen2.5-Coder).
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
FUNCTOOLS = _json(
    "functools",
    "functools[",
    example=f"functools[{_JSON_EXAMPLE}]",
    confirm=followed_by(Shape(SPACE, r"\{", SPACE, "[\"'}]")),
    keeps=1,
)
INTERNLM2 = _json(
    "internlm2",
    "<|action_start|>",
    "<|action_end|>",
    example=f"<|action_start|><|plugin|>{_JSON_EXAMPLE}<|action_end|>",
    confirm=followed_by(Shape(SPACE, *literal("<|plugin|>"), SPACE, r"\{")),
)
RWKV7 = _json("rwkv7", ("**Tool Call:**", "**Tool Call**:"), "```")
APERTUS = _json(
    "apertus",
    "<|tools_prefix|>",
    "<|tools_suffix|>",
    example='<|tools_prefix|>[{"TOOL": {…}}]<|tools_suffix|>',
    confirm=followed_by(Shape(SPACE, r"\[", SPACE, r"\{", SPACE, "[\"']")),
    read=read_keyed_calls,
    another=(),
)

BARE_JSON = _json("bare_json", "{", example=_JSON_EXAMPLE, confirm=bare_json(in_list=False), keeps=None, bare=True)
JSON_LIST = _json(
    "json_list", "[", example=f"[{_JSON_EXAMPLE}]", confirm=bare_json(in_list=True), another=(), keeps=None, bare=True
)
JSON_FENCE = _json(
    "json_fence",
    "```",
    "```",
    example=f"```json\n{_JSON_EXAMPLE}\n```",
    confirm=FENCED_JSON,
    gives_up=NEVER,
    bare=True,
    fenced=True,
)

PYTHON_LIST = _python(
    "python_list",
    "[",
    example=f"[{_PYTHON_EXAMPLE}]",
    confirm=python_names((SPACE,)),
    another=(),
    gives_up=re.compile(r"\)\s{0,64}\](?=\s{0,64}\Z)"),
    keeps=None,
    bare=True,
)
PYTHON_CALLS = _python(
    "python_calls",
    f"{TOOL_NAME}(",
    example=_PYTHON_EXAMPLE,
    # ``f() gives`` begins a sentence.
    confirm=followed_by(*_shapes([(SPACE, r"\)", r"[ \t]{0,16}", r"\n"), *_VALUES])),
    another=(_ANOTHER_PYTHON,),
    keeps=None,
    bare=True,
)
TOOL_CODE = _python(
    "tool_code",
    ("```tool_code", "```tool_call", "```function_call"),
    "```",
    example=f"```tool_code\n{_PYTHON_EXAMPLE}\n```",
    fenced=True,
)
PYTHON_FENCE = _python(
    "python_fence",
    "```python",
    "```",
    example=f"```python\n{_PYTHON_EXAMPLE}\n```",
    confirm=any_of(
        *(
            python_names((r"\s", SPACE, *wrapped, *bracket, SPACE))
            for wrapped in ((), literal("print("))
            for bracket in ((), (r"\[",))
        )
    ),
    another=(_ANOTHER_PYTHON,),
    gives_up=_behind_bracket(("```",), r")\]"),
    bare=True,
    fenced=True,
)
CHATGLM3 = _python(
    "chatglm3",
    f"{TOOL_NAME}\n",
    "```",
    example='TOOL\n```python\ntool_call(KEY="VALUE")\n```',
    confirm=followed_by(Shape(SPACE, *literal("```python"), SPACE, *literal("tool_call"), SPACE, r"\(")),
    another=(),
    gives_up=_behind_bracket(("```",), ")"),
    keeps=None,
    bare=True,
)
PYTHON_LINE = replace(
    PYTHON_CALLS, name="python_line", confirm=followed_by(*_shapes([(SPACE, r"\)"), *_VALUES])), ends_turn=True
)
PYTHON_TAG = _python("python_tag", "<tool_call>", "</tool_call>", confirm=WRITTEN_CALL)
CODE_TAG = _python("code_tag", "<code>", "</code>", confirm=python_names((SPACE,), (SPACE, r"\[", SPACE)))
TOOL_CALL_START = _python("tool_call_start", "<|tool_call_start|>", "<|tool_call_end|>")
PYTHON_START = _python("python_start", "<|python_start|>", "<|python_end|>")
FUNCTION_CALLS = _python("function_calls", "<function_calls>", "</function_calls>")
LLAMA3_BUILTIN = _python(
    "llama3_builtin",
    "<|python_tag|>",
    example=f"<|python_tag|>{_PYTHON_EXAMPLE}",
    confirm=PYTHON_CALL,
    another=(_ANOTHER_PYTHON,),
)


GEMMA4 = CallFormat(
    name="gemma4",
    openers=("<|tool_call>",),
    confirm=followed_by(
        Shape(SPACE, *literal("call"), SPACE, ":", SPACE, r"[^\W\d]"), Shape(SPACE, ":", SPACE, r"[^\W\d]")
    ),
    scanner=partial(BraceScanner, GEMMA_DELIMITERS),
    read=read_brace_call,
    example="<|tool_call>call:TOOL{…}<tool_call|>",
    closers=("<tool_call|>",),
    another=(Another(Shape(SPACE, "[,;]?", SPACE), Shape(*literal("call"), SPACE, ":")),),
    gives_up=_behind_bracket(("<tool_call|>",)),
)
FUNCTIONGEMMA = replace(
    GEMMA4,
    name="functiongemma",
    openers=("<start_function_call>",),
    example="<start_function_call>call:TOOL{…}<end_function_call>",
    closers=("<end_function_call>",),
    gives_up=_behind_bracket(("<end_function_call>",)),
)
# The markers are special tokens; this is the text if the runtime removes them.
GEMMA_UNMARKED = CallFormat(
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
MISTRAL_ARGS = CallFormat(
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
)
FUNCTION_JSON = CallFormat(
    name="function_json",
    openers=("<function=",),
    confirm=followed_by(Shape(*_FUNCTION_NAME, r"\{")),
    scanner=NamedJsonScanner,
    read=read_named_json,
    example="<function=TOOL>{…}</function>",
    closers=("</function>",),
    gives_up=_behind_bracket(("</function>",), "}"),
)


def _deepseek(name: str, bar: str) -> CallFormat:
    section, ends = f"<{bar}tool▁calls▁begin{bar}>", f"<{bar}tool▁calls▁end{bar}>"
    begin, end = f"<{bar}tool▁call▁begin{bar}>", f"<{bar}tool▁call▁end{bar}>"
    return CallFormat(
        name=name,
        openers=(f"{section}{begin}", f"{section}\n{begin}", begin),
        confirm=followed_by(Shape(SPACE, r"[^\s<>{}]", r"[^\s<>{}]{0,127}", SPACE, *literal(f"<{bar}tool▁sep{bar}>"))),
        scanner=NamedJsonScanner,
        read=read_named_json,
        example=f"{section}{begin}function<{bar}tool▁sep{bar}>TOOL\n```json\n{{…}}\n```{end}{ends}",
        closers=(f"{end}{ends}", f"{end}\n{ends}", end, ends),
        another=tuple(
            Another(Shape(SPACE, *fence, SPACE, *literal(end), SPACE, *literal(begin)), Shape(r"[\s\S]"))
            for fence in ((), literal("```"))
        ),
        gives_up=_behind_bracket((end,), "}`"),
    )


DEEPSEEK = _deepseek("deepseek", "｜")
DEEPSEEK_ASCII = _deepseek("deepseek_ascii", "|")


def _tag_format(
    name: str, openers: tuple[str, ...], confirm: Confirmation, tags: Tags, *closers: str, repeats: bool = False
) -> CallFormat:
    """Declare one call, or several, in tags."""
    end = rf"(?:{'|'.join(re.escape(end) for end in (*tags.ends, *(closer[:-1] for closer in closers)))})\s{{0,64}}>"
    ends = rf"{end}(?:\s{{0,64}}{end})*"
    begins = re.escape(tags.begins or openers[0])
    argument = tags.arguments[0]
    naming = ' name="{}">' if tags.quoted else "{}>"
    lead = "" if openers[0].startswith(tags.begins or openers[0]) else openers[0]
    call = f"{tags.begins}{naming.format('TOOL')}" if tags.begins else f"{openers[0]}TOOL"
    key = f"KEY</arg_key>{tags.head_ends}" if tags.has_long_heads else naming.format("KEY")
    ending = f"{argument.closes}>{tags.ends[0]}>{''.join(closers)}"
    return CallFormat(
        name=name,
        openers=openers,
        confirm=confirm,
        scanner=partial(TagScanner, tags),
        read=TagReader(tags, repeats),
        example=f"{lead}{call}{argument.opens}{key}VALUE{ending}",
        closers=closers,
        another=(Another(Shape(SPACE), Shape(*literal(tags.begins))),) if closers and tags.begins else (),
        # After a tag, before the end or before another call; between words of a value it may be quoted text.
        gives_up=re.compile(rf"(?<=>)\s{{0,64}}{ends}|{ends}(?=\s{{0,64}}(?:\Z|{begins}|{re.escape(openers[0])}))"),
        keeps=None if tags.begins and openers[0].startswith(tags.begins) else 0,
        begins=tags.begins,
    )


_PROJECT_TAGS = Tags(
    begins="<tool_call",
    ends=("</tool_call",),
    arguments=tuple(Argument(f"<{tag}", f"</{tag}", r"[\s/>]") for tag in ("argument", "parameter", "arg")),
    quoted=True,
    cdata=True,
)
PROJECT_XML = _tag_format(
    "project_xml",
    ("<tool_call",),
    followed_by(Shape(r"\s", SPACE, r"[A-Za-z_]", r"[\w-]{0,31}", SPACE, "=", SPACE, "[\"'\\w]")),
    _PROJECT_TAGS,
)
_QWEN3 = Argument("<parameter=", "</parameter")
_FUNCTION_FOLLOWS = followed_by(Shape(SPACE, *literal("<function=")))
QWEN3_XML = _tag_format(
    "qwen3_xml",
    ("<tool_call>",),
    _FUNCTION_FOLLOWS,
    Tags("<function=", ("</function", "</tool_call"), (_QWEN3,)),
    "</tool_call>",
)
# The opening <tool_call> is often missing, while the closing one is present.
QWEN3_UNWRAPPED = _tag_format(
    "qwen3_unwrapped",
    ("<function=",),
    declared_behind((Shape(),), Shape(">", SPACE, *literal("<parameter=")), Shape(">", SPACE, *literal("</function"))),
    Tags("<function=", ("</function", "</tool_call"), (_QWEN3,)),
    "</tool_call>",
)
SEED_OSS = _tag_format(
    "seed_oss",
    ("<seed:tool_call>",),
    _FUNCTION_FOLLOWS,
    Tags("<function=", ("</function", "</seed:tool_call"), (_QWEN3,)),
    "</seed:tool_call>",
)
MINIMAX_M2 = _tag_format(
    "minimax_m2",
    ("<minimax:tool_call>",),
    followed_by(Shape(SPACE, *literal("<invoke"), r"\s")),
    Tags("<invoke", ("</invoke", "</minimax:tool_call"), (Argument("<parameter", "</parameter", r"\s"),), quoted=True),
    "</minimax:tool_call>",
)
# The tag around it is another one, or left out.
_INVOKED = declared_behind((Shape(r"\s", SPACE, *literal("name"), SPACE, "=", SPACE, "[\"']"),), Shape("[\"']"))
_INVOKE_TAGS = Tags("<invoke", ("</invoke",), (Argument("<parameter", "</parameter", r"\s"),), quoted=True)
INVOKE = _tag_format("invoke", ("<invoke",), _INVOKED, _INVOKE_TAGS)
WRAPPED_INVOKE = _tag_format(
    "wrapped_invoke",
    ("<function_calls>", "<tool_call>", "<tool_calls>"),
    followed_by(Shape(SPACE, *literal("<invoke"), r"\s")),
    _INVOKE_TAGS,
    *("</function_calls>", "</tool_call>", "</tool_calls>"),
)
MINICPM5 = _tag_format(
    "minicpm5_xml",
    ("<function",),
    # The space may be missing, or written as Ġ (byte-level tokenizers).
    followed_by(Shape(r"[\sĠ]{0,8}", *literal("name"), SPACE, "=", SPACE, "[\"']")),
    Tags("<function", ("</function",), (Argument("<param", "</param", r"[\sĠn/]"),), quoted=True, cdata=True),
)
GLM4 = _tag_format(
    "glm4_xml",
    ("<tool_call>",),
    any_of(
        followed_by(Shape(SPACE, r"[^\s<>{}\[\]()\"']", r"[^\s<>{}\[\]()\"']{0,127}", SPACE, *literal("<arg_key>"))),
        declared_behind((Shape(SPACE),), Shape(SPACE, *literal("</tool_call"))),
    ),
    Tags("", ("</tool_call",), (Argument("<arg_key>", "</arg_value"),), head_ends="<arg_value>"),
    repeats=True,
)


# The words that small models confuse with their own marker's: toolcall, tool_calls, FunctionCall.
_PARTS = product(("tool", "function"), ("call", "calls"), ("_", "-", ""))
_SPELLED = [f"{kind}{joint}{call}" for kind, call, joint in _PARTS]
_WORDS = (
    *dict.fromkeys((*_SPELLED, *(word.upper() for word in _SPELLED), *(word.title() for word in _SPELLED))),
    *(f"{kind}{call}" for kind in ("Tool", "Function") for call in ("Call", "Calls")),
)
_BRACKETS = (("<", ">"), ("<|", "|>"), ("<|", ">"), ("[", "]"))
_DRIFTED = tuple(f"{opens}{word}{closes}" for word in _WORDS for opens, closes in _BRACKETS)
DRIFT_JSON = replace(HERMES, name="drift_json", openers=_DRIFTED)
DRIFT_PYTHON = replace(PYTHON_TAG, name="drift_python", openers=_DRIFTED)
DRIFT_XML = replace(QWEN3_XML, name="drift_xml", openers=_DRIFTED)
DRIFT_NAMED = CallFormat(
    name="drift_named",
    openers=tuple(f"[{word}:" for word in _WORDS),
    confirm=declared_behind((Shape(SPACE),), Shape(SPACE, r"\{")),
    scanner=json_scanner,
    read=read_bracketed_call,
    example="[tool_call: TOOL {…}]",
    keeps=None,
)
_DRIFTS = (DRIFT_JSON, DRIFT_PYTHON, DRIFT_XML, DRIFT_NAMED)


@dataclass(frozen=True)
class Syntax:
    """The call formats and thinking tags of one model family."""

    name: str  # in configuration and ``--syntax``
    models: str  # that write it, for docs/toolcalls.md
    formats: tuple[CallFormat, ...]  # of two with the same opener the first is tried first
    thinking: str = "think"  # its marks of thinking; a name of ``THINKING``
    # Its formats without a marker are calls after a sentence on the same line too, for families that write one
    # first; for others they are calls at the beginning of the answer and as lines of their own.
    bare_behind_sentence: bool = False
    bare_anywhere: bool = False  # they are calls anywhere


_SYNTAXES = (
    Syntax("project_json", "the project's own style, for models without a form of their own", (PROJECT_JSON,)),
    Syntax("project_xml", "the project's own style in tags", (PROJECT_XML,)),
    Syntax("hermes", "Qwen2, Qwen2.5, Qwen3, Qwen2-VL, Qwen3-VL, TeleChat2, SmolLM3 (`xml_tools`)", (HERMES,)),
    Syntax("granite4_hermes", "Granite 4; arguments are often a JSON string", (HERMES,)),
    Syntax("qwen25_coder", "Qwen2.5-Coder, with what it drifts to", (HERMES, QWEN_DRIFT, JSON_FENCE, BARE_JSON)),
    Syntax(
        "qwen3_xml",
        "Qwen3-Coder, Qwen3.5 and later; the opening `<tool_call>` is often left out",
        (QWEN3_XML, QWEN3_UNWRAPPED),
    ),
    Syntax("smollm3_python", "SmolLM3 (`python_tools`)", (CODE_TAG,)),
    Syntax(
        "llama3_json",
        "Llama 3.1 to 3.3, its built-in functions too",
        (LLAMA3_TAG, LLAMA3_BUILTIN, BARE_JSON),
        bare_behind_sentence=True,
    ),
    Syntax("functionary_v31", "Llama 3.1's own functions, Functionary 3.1", (FUNCTION_JSON,)),
    Syntax("pythonic_list", "Llama 3.2, Gemma by prompt", (PYTHON_LIST, PYTHON_START), bare_behind_sentence=True),
    Syntax("llama4_pythonic", "Llama 4", (PYTHON_START, PYTHON_LIST), bare_behind_sentence=True),
    Syntax(
        "gemma3",
        "Gemma 2, 3 and 3n, by prompt: fences, Python, JSON, tags",
        (TOOL_CODE, PYTHON_TAG, PYTHON_FENCE, JSON_FENCE, PYTHON_LIST, PYTHON_CALLS, BARE_JSON),
    ),
    Syntax("functiongemma", "FunctionGemma", (FUNCTIONGEMMA, GEMMA_UNMARKED)),
    Syntax("gemma4", "Gemma 4", (GEMMA4, GEMMA_UNMARKED), thinking="gemma4"),
    Syntax("internlm2", "InternLM2 and 2.5", (INTERNLM2,)),
    Syntax("minicpm3", "MiniCPM3, MiniCPM4 by prompt", (TOOL_CALL_START,), thinking="minicpm3"),
    Syntax("minicpm5_xml", "MiniCPM5", (MINICPM5,)),
    Syntax("deepseek_r1", "DeepSeek R1 and its distills", (DEEPSEEK, DEEPSEEK_ASCII, PYTHON_CALLS)),
    Syntax("deepseek_r1_ascii", "the same with plain bars", (DEEPSEEK_ASCII, DEEPSEEK)),
    Syntax("deepseek_v31", "DeepSeek V3.1", (DEEPSEEK,)),
    Syntax("rwkv7", "RWKV7 (G1)", (RWKV7, HERMES, JSON_FENCE)),
    Syntax("chatglm3", "ChatGLM3", (CHATGLM3,)),
    Syntax("glm4_xml", "GLM-4.5 to 4.7", (GLM4,)),
    Syntax("phi4mini_functools", "Phi-4-mini", (FUNCTOOLS, GRANITE3)),
    Syntax("firefunction", "Firefunction 2", (FUNCTOOLS,)),
    Syntax("mistral_json", "Mistral 7B 0.3, Nemo", (MISTRAL_JSON, MISTRAL_ARGS), thinking="mistral"),
    Syntax(
        "mistral_args", "Mistral Small 3.2, Ministral 3, Devstral", (MISTRAL_ARGS, MISTRAL_JSON), thinking="mistral"
    ),
    Syntax("lfm2", "LFM2 and 2.5", (TOOL_CALL_START, PYTHON_LIST, JSON_LIST)),
    Syntax("olmo3", "Olmo 3", (FUNCTION_CALLS,)),
    Syntax("granite3", "Granite 3", (GRANITE3, HERMES)),
    Syntax("granite20b", "Granite 20B function calling", (GRANITE20B,)),
    Syntax("jamba", "Jamba", (TOOL_CALLS_TAG,)),
    Syntax("hunyuan_a13b", "Hunyuan-A13B", (TOOL_CALLS_TAG,)),
    Syntax("apriel", "Apriel", (TOOL_CALLS_TAG,), thinking="apriel"),
    Syntax("nemotron_toolcall_list", "Nemotron Nano 2", (TOOLCALL_TAG,)),
    Syntax("apertus", "Apertus", (APERTUS,)),
    Syntax("seed_oss", "Seed-OSS", (SEED_OSS,), thinking="seed"),
    Syntax("minimax_m2", "MiniMax M2", (MINIMAX_M2, WRAPPED_INVOKE, INVOKE)),
    Syntax(
        "xlam_json",
        "xLAM 2, Hammer 2.1: bare lists, fences, other families' tags",
        (HERMES, MISTRAL_JSON, JSON_FENCE, JSON_LIST, BARE_JSON),
        bare_behind_sentence=True,
    ),
    Syntax("json_list", "Hammer and others: a bare list", (JSON_LIST, JSON_FENCE)),
    Syntax("bare_json", "anything: a bare object", (BARE_JSON,)),
)

SYNTAXES: dict[str, Syntax] = {syntax.name: syntax for syntax in _SYNTAXES}
"""Every syntax by its name."""

LINE_FORMATS = (BARE_JSON, JSON_LIST, PYTHON_LIST, PYTHON_LINE, GEMMA_UNMARKED)
"""Formats without a marker that every model may write: calls on lines of their own, if all of them are valid."""

_MARKED = tuple(
    dict.fromkeys(
        call_format
        for syntax in SYNTAXES.values()
        for call_format in syntax.formats
        # Pages and programs have elements of this name.
        if not call_format.bare and call_format is not CODE_TAG
    )
)

DEFAULT_FORMATS: tuple[CallFormat, ...] = (*_MARKED, *_DRIFTS, *LINE_FORMATS)
"""Formats that every model may write, in addition to its own: every format with a marker, and ``LINE_FORMATS``."""


@dataclass(frozen=True)
class SyntaxSelection:
    """The formats and tags of one detector."""

    anywhere: tuple[CallFormat, ...]  # formats that count in the whole answer
    first: tuple[CallFormat, ...]  # formats that count at the beginning of the answer; includes ``anywhere``
    thinking: tuple[ThinkingTags, ...]
    bare_anywhere: bool = False  # formats without a marker count inside a sentence too


def select_syntaxes(names: Sequence[str | Syntax] | None) -> SyntaxSelection:
    """Return the formats and tags of these syntaxes, theirs first, with those that every model may write.

    Raises:
        UsageError: a name is unknown.
    """
    return _selection(None if names is None else tuple(names))


@lru_cache(maxsize=64)
def _selection(names: tuple[str | Syntax, ...] | None) -> SyntaxSelection:
    unknown = [name for name in names or () if isinstance(name, str) and name not in SYNTAXES]
    if unknown:
        raise UsageError(f"unknown syntax '{unknown[0]}'; choose from {', '.join(SYNTAXES)}")
    syntaxes = [SYNTAXES[name] if isinstance(name, str) else name for name in names or ()]
    pairs = [(syntax, call_format) for syntax in syntaxes for call_format in syntax.formats]
    anywhere = [form for syntax, form in pairs if not form.bare or syntax.bare_anywhere or syntax.bare_behind_sentence]
    marked = [call_format for call_format in DEFAULT_FORMATS if not call_format.bare]
    thinking = (
        tuple(replace(tags, anywhere=False) for tags in THINKING.values())
        if names is None
        else tuple(THINKING[name] for name in dict.fromkeys(("think", *(syntax.thinking for syntax in syntaxes))))
    )
    return SyntaxSelection(
        tuple(dict.fromkeys((*anywhere, *marked))),
        tuple(dict.fromkeys((*(form for _, form in pairs), *marked))),
        thinking,
        any(syntax.bare_anywhere for syntax in syntaxes),
    )


@lru_cache(maxsize=256)
def boundary_of(call_format: CallFormat, selection: SyntaxSelection) -> Markers:
    """Return the markers that cannot occur outside strings and values of a body: its closers, and openers of calls."""
    openers = (
        text
        for other in selection.anywhere
        if not (other.bare or other.fenced or other in _DRIFTS)
        for text in other.openers
    )
    # A code fence may surround a body, inside the markers.
    return Markers((*(closer for closer in call_format.closers if closer[0] != "`"), *openers))


def marker_texts(names: Sequence[str]) -> tuple[str, ...]:
    """Return the openers and closers that a model of these syntaxes may write, which the generated text must contain.

    Some families write them as special tokens. The runtime must not remove those (``skip_special_token``), or their
    text must be restored.
    """
    selection = select_syntaxes(names)
    texts = [
        text
        for call_format in selection.first
        for text in (*call_format.openers, *call_format.closers)
        if not call_format.bare
    ]
    texts += [text for tags in selection.thinking for text in (tags.opener, tags.closer)]
    return tuple(dict.fromkeys(text for text in texts if TOOL_NAME not in text))
