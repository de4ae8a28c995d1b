"""Every call format, one declaration each, and the named sets of formats (syntaxes)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from rkllm_mcp.errors import UsageError
from rkllm_mcp.toolcalls.markers import SPACE, Markers, Shape, literal
from rkllm_mcp.toolcalls.parsers import (
    GEMMA_DELIMITERS,
    NAME_KEYS,
    read_brace_call,
    read_json_calls,
    read_keyed_calls,
    read_named_json,
    read_python_calls,
)
from rkllm_mcp.toolcalls.scanners import (
    Argument,
    BraceScanner,
    JsonScanner,
    NamedJsonScanner,
    PythonScanner,
    Tags,
    TagScanner,
)
from rkllm_mcp.toolcalls.syntax import NEVER, THINKING, TOOL_NAME, Another, CallFormat, Confirmation, ThinkingTags
from rkllm_mcp.toolcalls.tag_parser import read_tags

_FENCE = (*literal("```"), r"[a-zA-Z_]{0,12}")
_QUOTE = "[\"'“”]"
# A name as models write them bare: letters of any script, and what separates words in names.
NAME = (r"[^\W\d]", r"[\w.\-]{0,80}")
_NAME_RUN = re.compile(r"[\w.\-/]*")
# A key in any quotes or none. What else may follow a brace (``{json}``, ``{...}``) is somebody explaining the form.
_KEY = (
    (r"\{", SPACE, "[\"'“”{}]"),
    (r"\{", SPACE, r"[A-Za-z_]", r"\w{0,31}", SPACE, "[:=\"']"),
)
# The keys arguments have in bare objects; the others that are understood are too common in plain data.
_ARGUMENT_KEYS = ("arguments", "parameters", "args")


def followed_by(*shapes: Shape) -> Confirmation:
    """A confirmation by any of several shapes, whatever the declared names."""

    def confirm(text: str, _names: frozenset[str]) -> bool | None:
        return _any(shape.at(text, 0) for shape in shapes)

    return confirm


def any_of(*confirmations: Confirmation) -> Confirmation:
    """A confirmation by any of several others."""

    def confirm(text: str, names: frozenset[str]) -> bool | None:
        return _any(confirmation(text, names) for confirmation in confirmations)

    return confirm


def declared_behind(leads: Sequence[Shape], *behind: Shape) -> Confirmation:
    """A declared name right behind one of the shapes ``leads``, and one of the shapes ``behind`` after it."""

    def confirm(text: str, names: frozenset[str]) -> bool | None:
        return _any(_declared(text, lead, behind, names) for lead in leads)

    return confirm


def _declared(text: str, lead: Shape, behind: Sequence[Shape], names: frozenset[str]) -> bool | None:
    verdict = lead.at(text, 0)
    place = lead.match(text, 0)
    if not verdict or place is None:
        return verdict
    run = _NAME_RUN.match(text, place)
    end = place if run is None else run.end()
    if end == len(text):
        return None if any(name.startswith(text[place:end]) for name in names) else False
    if text[place:end] in names:
        return _any(shape.at(text, end) for shape in behind)
    # A name with other characters in it, which no run of letters shows.
    unusual = [name for name in names if not _NAME_RUN.fullmatch(name)]
    if any(name.startswith(text[place:]) for name in unusual):
        return None
    named = (name for name in unusual if text.startswith(name, place))
    return _any(shape.at(text, place + len(name)) for name in named for shape in behind)


def _any(verdicts: Iterable[bool | None]) -> bool | None:
    found = list(verdicts)
    return True if True in found else None if None in found else False


def optional(*atoms: str) -> tuple[tuple[str, ...], ...]:
    """Nothing, and ``atoms``: for shapes that may have a part."""
    return (), atoms


def _shapes(*parts: Iterable[Sequence[str]]) -> list[Shape]:
    """The shapes of every choice of one sequence of atoms from each part."""
    chosen: list[tuple[str, ...]] = [()]
    for part in parts:
        chosen = [(*before, *atoms) for before in chosen for atoms in part]
    return [Shape(*atoms) for atoms in chosen]


SPACED = ((SPACE,),)
FENCED = optional(*_FENCE, SPACE)
LISTED = optional(r"\[", SPACE)

JSON = followed_by(*_shapes(SPACED, FENCED, LISTED, _KEY))
"""An object, or a list that begins with one; in a fence or not."""


def _keyed(keys: Iterable[str], *value: str) -> list[tuple[str, ...]]:
    return [(_QUOTE, *literal(key), _QUOTE, SPACE, ":", SPACE, *value) for key in keys]


_NAME_ENDS = Shape(_QUOTE)
_CALL_KEYS = (
    *_keyed(_ARGUMENT_KEYS, '[{"]'),
    *_keyed(("type",), *literal('"function"')),
    *_keyed(("function",), r"\{"),
)
# A list whose first call names no declared tool may hold others; what it has beside the name tells it from plain data.
_UNKNOWN_CALL = [
    (*name, r"[\w.\-]{1,64}", _QUOTE, SPACE, ",", SPACE, *arguments)
    for name in _keyed(("name",), _QUOTE)
    for arguments in _keyed(("arguments", "parameters"), '[{"]')
]


def bare_json(*, in_list: bool, leads: Sequence[Sequence[str]] = ((),)) -> Confirmation:
    """An object that names a declared tool, behind its own first bracket.

    Args:
        in_list: the bracket was the one of a list.
        leads: what stands before the object's brace.
    """
    brace = (r"\{", SPACE) if in_list else ()
    openings = [(*lead, SPACE, *brace) for lead in leads]
    named = _shapes(openings, _keyed(NAME_KEYS, _QUOTE))
    others = _shapes(openings, [*_CALL_KEYS, *(_UNKNOWN_CALL if in_list else ())])
    firsts = {lead[0] for lead in leads if lead} or {r"\{" if in_list else _QUOTE}
    begins = re.compile(rf"{SPACE}(?:\Z|{'|'.join(firsts)})")
    whole = any_of(declared_behind(named, _NAME_ENDS), followed_by(*others))

    def confirm(text: str, names: frozenset[str]) -> bool | None:
        # Code is full of brackets, and nearly always the next character tells.
        return whole(text, names) if begins.match(text) else False

    return confirm


FENCED_JSON = any_of(
    *(
        bare_json(in_list=in_list, leads=[(*language, SPACE, bracket)])
        for language in (literal("json"), literal("tool_call"), ())
        for in_list, bracket in ((False, r"\{"), (True, r"\["))
    )
)
"""Behind the backticks of a fence: its language, and an object that names a declared tool."""

PYTHON_CALL = followed_by(*_shapes(SPACED, FENCED, LISTED, [(*NAME, SPACE, r"\(")]))
"""``f(…`` or ``[f(…``, whatever the name; for forms that have a marker."""

PYTHON_OR_JSON = any_of(PYTHON_CALL, JSON)


def python_names(*leads: Sequence[str]) -> Confirmation:
    """A Python call of a declared name behind one of ``leads``."""
    return declared_behind([Shape(*lead) for lead in leads], Shape(SPACE, r"\("))


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
) -> CallFormat:
    """JSON objects, or a list of them, behind a marker and perhaps a ``lead``."""
    openers = (openers,) if isinstance(openers, str) else openers
    return CallFormat(
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


def _python(name: str, opener: str, closer: str, confirm: Confirmation = PYTHON_OR_JSON) -> CallFormat:
    """Calls in Python's spelling between two markers."""
    return CallFormat(
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
APERTUS = CallFormat(
    name="apertus",
    openers=("<|tools_prefix|>",),
    confirm=followed_by(Shape(SPACE, r"\[", SPACE, r"\{", SPACE, "[\"']")),
    scanner=JsonScanner,
    read=read_keyed_calls,
    example='<|tools_prefix|>[{"TOOL": {…}}]<|tools_suffix|>',
    closers=("<|tools_suffix|>",),
    gives_up=_behind_bracket(("<|tools_suffix|>",)),
)

BARE_JSON = CallFormat(
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
JSON_LIST = CallFormat(
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
JSON_FENCE = CallFormat(
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

PYTHON_LIST = CallFormat(
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
PYTHON_CALLS = CallFormat(
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
TOOL_CODE = CallFormat(
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
PYTHON_FENCE = CallFormat(
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
CHATGLM3 = CallFormat(
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
LLAMA3_BUILTIN = CallFormat(
    name="llama3_builtin",
    openers=("<|python_tag|>",),
    confirm=PYTHON_CALL,
    scanner=PythonScanner,
    read=read_python_calls,
    example=f"<|python_tag|>{_PYTHON_FORM}",
    another=(_ANOTHER_PYTHON,),
    gives_up=re.compile(r"\)(?=\s{0,64}\Z)"),
)


def _brace(name: str, opener: str, closer: str) -> CallFormat:
    return CallFormat(
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
    spells="named_json",
)
FUNCTION_JSON = CallFormat(
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


def _tagged(
    name: str, openers: tuple[str, ...], confirm: Confirmation, tags: Tags, *closers: str, repeats: bool = False
) -> CallFormat:
    """One call, or several, in tags."""
    end = rf"(?:{'|'.join(re.escape(end) for end in (*tags.ends, *(closer[:-1] for closer in closers)))})\s{{0,64}}>"
    ends = rf"{end}(?:\s{{0,64}}{end})*"
    begins = re.escape(tags.begins or openers[0])
    return CallFormat(
        name=name,
        openers=openers,
        confirm=confirm,
        scanner=partial(TagScanner, tags),
        read=read_tags(tags, repeats=repeats),
        example=_tagged_example(tags, openers[0], closers),
        closers=closers,
        another=(Another(Shape(SPACE), Shape(*literal(tags.begins))),) if closers and tags.begins else (),
        # Behind a tag, or before the end or another call; between words of a value it may be quoted text.
        gives_up=re.compile(rf"(?<=>)\s{{0,64}}{ends}|{ends}(?=\s{{0,64}}(?:\Z|{begins}|{re.escape(openers[0])}))"),
        keeps=None if tags.begins and openers[0].startswith(tags.begins) else 0,
        begins=tags.begins,
    )


def _tagged_example(tags: Tags, opener: str, closers: tuple[str, ...]) -> str:
    argument = tags.arguments[0]
    naming = ' name="{}">' if tags.quoted else "{}>"
    lead = "" if opener.startswith(tags.begins or opener) else opener
    call = f"{tags.begins}{naming.format('TOOL')}" if tags.begins else f"{opener}TOOL"
    key = naming.format("KEY") if tags.head_ends == ">" else f"KEY</arg_key>{tags.head_ends}"
    return f"{lead}{call}{argument.opens}{key}VALUE{argument.closes}>{tags.ends[0]}>{''.join(closers)}"


_PROJECT_TAGS = Tags(
    begins="<tool_call",
    ends=("</tool_call",),
    arguments=tuple(Argument(f"<{tag}", f"</{tag}", r"[\s/>]") for tag in ("argument", "parameter", "arg")),
    quoted=True,
    cdata=True,
)
PROJECT_XML = _tagged(
    "project_xml",
    ("<tool_call",),
    followed_by(Shape(r"\s", SPACE, r"[A-Za-z_]", r"[\w-]{0,31}", SPACE, "=", SPACE, "[\"'\\w]")),
    _PROJECT_TAGS,
)
_QWEN3 = Argument("<parameter=", "</parameter")
_FUNCTION_FOLLOWS = followed_by(Shape(SPACE, *literal("<function=")))
QWEN3_XML = _tagged(
    "qwen3_xml",
    ("<tool_call>",),
    _FUNCTION_FOLLOWS,
    Tags("<function=", ("</function", "</tool_call"), (_QWEN3,)),
    "</tool_call>",
)
# The opening <tool_call> is often left out; the closing one is then not.
QWEN3_UNWRAPPED = _tagged(
    "qwen3_unwrapped",
    ("<function=",),
    any_of(
        declared_behind(
            (Shape(),), Shape(">", SPACE, *literal("<parameter=")), Shape(">", SPACE, *literal("</function"))
        ),
    ),
    Tags("<function=", ("</function", "</tool_call"), (_QWEN3,)),
    "</tool_call>",
)
SEED_OSS = _tagged(
    "seed_oss",
    ("<seed:tool_call>",),
    _FUNCTION_FOLLOWS,
    Tags("<function=", ("</function", "</seed:tool_call"), (_QWEN3,)),
    "</seed:tool_call>",
)
MINIMAX_M2 = _tagged(
    "minimax_m2",
    ("<minimax:tool_call>",),
    followed_by(Shape(SPACE, *literal("<invoke"), r"\s")),
    Tags("<invoke", ("</invoke", "</minimax:tool_call"), (Argument("<parameter", "</parameter", r"\s"),), quoted=True),
    "</minimax:tool_call>",
)
MINICPM5 = _tagged(
    "minicpm5_xml",
    ("<function",),
    # A space may be missing, or written as some tokenizers show it.
    followed_by(Shape(r"[\sĠ]{0,8}", *literal("name"), SPACE, "=", SPACE, "[\"']")),
    Tags("<function", ("</function",), (Argument("<param", "</param", r"[\sĠn/]"),), quoted=True, cdata=True),
)
GLM4 = _tagged(
    "glm4_xml",
    ("<tool_call>",),
    any_of(
        followed_by(Shape(SPACE, r"[^\s<>{}\[\]()\"']", r"[^\s<>{}\[\]()\"']{0,127}", SPACE, *literal("<arg_key>"))),
        declared_behind((Shape(SPACE),), Shape(SPACE, *literal("</tool_call"))),
    ),
    Tags("", ("</tool_call",), (Argument("<arg_key>", "</arg_value"),), head_ends="<arg_value>"),
    repeats=True,
)


@dataclass(frozen=True)
class Syntax:
    """How one family writes calls.

    Args:
        name: what configuration and ``--syntax`` call it.
        forms: its forms; of two with the same opener the first is asked first.
        thinking: how it marks thinking; a name of ``THINKING``.
        bare_anywhere: its bare forms are calls anywhere in an answer, for families that have no marker and are known to
            write a sentence before the call; elsewhere they are calls only where the answer begins.
    """

    name: str
    forms: tuple[CallFormat, ...]
    thinking: str = "think"
    bare_anywhere: bool = False


def _table(*syntaxes: Syntax) -> dict[str, Syntax]:
    return {syntax.name: syntax for syntax in syntaxes}


SYNTAXES: dict[str, Syntax] = _table(
    Syntax("project_json", (PROJECT_JSON,)),
    Syntax("project_xml", (PROJECT_XML,)),
    Syntax("hermes", (HERMES,)),
    Syntax("granite4_hermes", (HERMES,)),
    Syntax("qwen25_coder", (HERMES, QWEN_DRIFT, JSON_FENCE, BARE_JSON)),
    Syntax("qwen3_xml", (QWEN3_XML, QWEN3_UNWRAPPED)),
    Syntax("smollm3_python", (CODE_TAG,)),
    Syntax("llama3_json", (LLAMA3_TAG, LLAMA3_BUILTIN, BARE_JSON), bare_anywhere=True),
    Syntax("functionary_v31", (FUNCTION_JSON,)),
    Syntax("pythonic_list", (PYTHON_LIST, PYTHON_START), bare_anywhere=True),
    Syntax("llama4_pythonic", (PYTHON_START, PYTHON_LIST), bare_anywhere=True),
    Syntax(
        "gemma3",
        (
            TOOL_CODE,
            PYTHON_TAG,
            PYTHON_FENCE,
            JSON_FENCE,
            PYTHON_LIST,
            PYTHON_CALLS,
            BARE_JSON,
        ),
    ),
    Syntax("functiongemma", (FUNCTIONGEMMA, GEMMA_UNMARKED)),
    Syntax("gemma4", (GEMMA4, GEMMA_UNMARKED), thinking="gemma4"),
    Syntax("internlm2", (INTERNLM2,)),
    Syntax("minicpm3", (TOOL_CALL_START,), thinking="minicpm3"),
    Syntax("minicpm5_xml", (MINICPM5,)),
    Syntax("deepseek_r1", (DEEPSEEK, DEEPSEEK_ASCII, PYTHON_CALLS)),
    Syntax("deepseek_r1_ascii", (DEEPSEEK_ASCII, DEEPSEEK)),
    Syntax("deepseek_v31", (DEEPSEEK,)),
    Syntax("rwkv7", (RWKV7, HERMES, JSON_FENCE)),
    Syntax("chatglm3", (CHATGLM3,)),
    Syntax("glm4_xml", (GLM4,)),
    Syntax("phi4mini_functools", (FUNCTOOLS, GRANITE3)),
    Syntax("firefunction", (FUNCTOOLS,)),
    Syntax("mistral_json", (MISTRAL_JSON, MISTRAL_ARGS), thinking="mistral"),
    Syntax("mistral_args", (MISTRAL_ARGS, MISTRAL_JSON), thinking="mistral"),
    Syntax("lfm2", (TOOL_CALL_START, PYTHON_LIST, JSON_LIST)),
    Syntax("olmo3", (FUNCTION_CALLS,)),
    Syntax("granite3", (GRANITE3, HERMES)),
    Syntax("granite20b", (GRANITE20B,)),
    Syntax("jamba", (TOOL_CALLS_TAG,)),
    Syntax("hunyuan_a13b", (TOOL_CALLS_TAG,)),
    Syntax("apriel", (TOOL_CALLS_TAG,), thinking="apriel"),
    Syntax("nemotron_toolcall_list", (TOOLCALL_TAG,)),
    Syntax("apertus", (APERTUS,)),
    Syntax("seed_oss", (SEED_OSS,), thinking="seed"),
    Syntax("minimax_m2", (MINIMAX_M2,)),
    Syntax(
        "xlam_json",
        (HERMES, MISTRAL_JSON, JSON_FENCE, JSON_LIST, BARE_JSON),
        bare_anywhere=True,
    ),
    Syntax("json_list", (JSON_LIST, JSON_FENCE)),
    Syntax("bare_json", (BARE_JSON,)),
)
"""Every syntax by its name."""

DEFAULT_FORMS: tuple[CallFormat, ...] = tuple(
    form
    for form in dict.fromkeys(form for syntax in SYNTAXES.values() for form in syntax.forms)
    if form not in {PYTHON_CALLS, PYTHON_FENCE, CODE_TAG, CHATGLM3}
)
"""What a model that nobody described may write: every form that has a marker, since a marker costs nothing until it is
written, and the bare ones where an answer begins. Left out is what an answer about programming may begin with as well.
"""


@dataclass(frozen=True)
class SyntaxSelection:
    """The forms and tags a detector works with.

    Args:
        anywhere: forms that are looked for in the whole answer.
        first: forms that are looked for where the answer begins; ``anywhere`` among them.
        thinking: how thinking may be marked.
    """

    anywhere: tuple[CallFormat, ...]
    first: tuple[CallFormat, ...]
    thinking: tuple[ThinkingTags, ...]


def chosen(names: Sequence[str | Syntax] | None) -> SyntaxSelection:
    """What is looked for under these names, ``DEFAULT_FORMS`` for None; a declaration stands for itself.

    Raises:
        UsageError: there is no syntax of a name.
    """
    if names is None:
        marked = tuple(form for form in DEFAULT_FORMS if not form.bare)
        return SyntaxSelection(marked, DEFAULT_FORMS, tuple(tags.at_the_beginning() for tags in THINKING.values()))
    unknown = [name for name in names if isinstance(name, str) and name not in SYNTAXES]
    if unknown:
        raise UsageError(f"unknown syntax '{unknown[0]}'; choose from {', '.join(SYNTAXES)}")
    syntaxes = [SYNTAXES[name] if isinstance(name, str) else name for name in names]
    anywhere = (form for each in syntaxes for form in each.forms if not form.bare or each.bare_anywhere)
    return SyntaxSelection(
        tuple(dict.fromkeys(anywhere)),
        tuple(dict.fromkeys(form for each in syntaxes for form in each.forms)),
        tuple(THINKING[name] for name in dict.fromkeys(("think", *(syntax.thinking for syntax in syntaxes)))),
    )


def boundary_of(form: CallFormat, selection: SyntaxSelection) -> Markers:
    """What cannot stand in a body of ``form`` outside strings and values: its closers, and the openers of calls."""
    openers = (text for other in selection.anywhere if not (other.bare or other.fenced) for text in other.openers)
    # A fence may stand around a body, inside the markers.
    return Markers((*(closer for closer in form.closers if closer[0] != "`"), *openers))


def marker_texts(names: Sequence[str]) -> tuple[str, ...]:
    """The openers and closers of these syntaxes and of their thinking: what has to survive in the generated text.

    Args:
        names: names of ``SYNTAXES``. For families whose markers are special tokens the runtime has to be told not to
            leave those out (``skip_special_token``), or their text has to be put back.
    """
    selection = chosen(names)
    texts = [text for form in selection.first for text in (*form.openers, *form.closers) if not form.bare]
    texts += [text for tags in selection.thinking for text in (tags.opener, tags.closer)]
    return tuple(dict.fromkeys(text for text in texts if TOOL_NAME not in text))
