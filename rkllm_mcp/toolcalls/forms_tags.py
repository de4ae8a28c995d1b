"""Every form in which calls are written in tags: one declaration each. See ``forms`` for the others."""

from __future__ import annotations

import re
from functools import partial

from rkllm_mcp.toolcalls.confirmation import any_of, declared_behind, followed_by
from rkllm_mcp.toolcalls.form import Another, Confirmation, Form
from rkllm_mcp.toolcalls.markers import SPACE, Shape, literal
from rkllm_mcp.toolcalls.scan_tags import Argument, Tags, TagScanner
from rkllm_mcp.toolcalls.spelling_tags import read_tags


def _tagged(
    name: str, openers: tuple[str, ...], confirm: Confirmation, tags: Tags, *closers: str, repeats: bool = False
) -> Form:
    """One call, or several, in tags."""
    end = rf"(?:{'|'.join(re.escape(end) for end in (*tags.ends, *(closer[:-1] for closer in closers)))})\s{{0,64}}>"
    ends = rf"{end}(?:\s{{0,64}}{end})*"
    begins = re.escape(tags.begins or openers[0])
    return Form(
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
