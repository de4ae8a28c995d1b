"""How families of models write tool calls: names for sets of forms.

The names are what ``model.toml`` and ``--syntax`` use. A family that was trained on one form also drifts to others, so
a syntax may have several; ``thinking`` says how its models mark what they think. A new family is a new entry here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rkllm_mcp.errors import UsageError
from rkllm_mcp.toolcalls import forms, forms_tags
from rkllm_mcp.toolcalls.form import TOOL_NAME, Form
from rkllm_mcp.toolcalls.markers import Markers
from rkllm_mcp.toolcalls.thinking import THINKING, ThinkingTags


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
    forms: tuple[Form, ...]
    thinking: str = "think"
    bare_anywhere: bool = False


def _table(*syntaxes: Syntax) -> dict[str, Syntax]:
    return {syntax.name: syntax for syntax in syntaxes}


SYNTAXES: dict[str, Syntax] = _table(
    Syntax("project_json", (forms.PROJECT_JSON,)),
    Syntax("project_xml", (forms_tags.PROJECT_XML,)),
    Syntax("hermes", (forms.HERMES,)),
    Syntax("granite4_hermes", (forms.HERMES,)),
    Syntax("qwen25_coder", (forms.HERMES, forms.QWEN_DRIFT, forms.JSON_FENCE, forms.BARE_JSON)),
    Syntax("qwen3_xml", (forms_tags.QWEN3_XML, forms_tags.QWEN3_UNWRAPPED)),
    Syntax("smollm3_python", (forms.CODE_TAG,)),
    Syntax("llama3_json", (forms.LLAMA3_TAG, forms.LLAMA3_BUILTIN, forms.BARE_JSON), bare_anywhere=True),
    Syntax("functionary_v31", (forms.FUNCTION_JSON,)),
    Syntax("pythonic_list", (forms.PYTHON_LIST, forms.PYTHON_START), bare_anywhere=True),
    Syntax("llama4_pythonic", (forms.PYTHON_START, forms.PYTHON_LIST), bare_anywhere=True),
    Syntax(
        "gemma3",
        (
            forms.TOOL_CODE,
            forms.PYTHON_TAG,
            forms.PYTHON_FENCE,
            forms.JSON_FENCE,
            forms.PYTHON_LIST,
            forms.PYTHON_CALLS,
            forms.BARE_JSON,
        ),
    ),
    Syntax("functiongemma", (forms.FUNCTIONGEMMA, forms.GEMMA_UNMARKED)),
    Syntax("gemma4", (forms.GEMMA4, forms.GEMMA_UNMARKED), thinking="gemma4"),
    Syntax("internlm2", (forms.INTERNLM2,)),
    Syntax("minicpm3", (forms.TOOL_CALL_START,), thinking="minicpm3"),
    Syntax("minicpm5_xml", (forms_tags.MINICPM5,)),
    Syntax("deepseek_r1", (forms.DEEPSEEK, forms.DEEPSEEK_ASCII, forms.PYTHON_CALLS)),
    Syntax("deepseek_r1_ascii", (forms.DEEPSEEK_ASCII, forms.DEEPSEEK)),
    Syntax("deepseek_v31", (forms.DEEPSEEK,)),
    Syntax("rwkv7", (forms.RWKV7, forms.HERMES, forms.JSON_FENCE)),
    Syntax("chatglm3", (forms.CHATGLM3,)),
    Syntax("glm4_xml", (forms_tags.GLM4,)),
    Syntax("phi4mini_functools", (forms.FUNCTOOLS, forms.GRANITE3)),
    Syntax("firefunction", (forms.FUNCTOOLS,)),
    Syntax("mistral_json", (forms.MISTRAL_JSON, forms.MISTRAL_ARGS), thinking="mistral"),
    Syntax("mistral_args", (forms.MISTRAL_ARGS, forms.MISTRAL_JSON), thinking="mistral"),
    Syntax("lfm2", (forms.TOOL_CALL_START, forms.PYTHON_LIST, forms.JSON_LIST)),
    Syntax("olmo3", (forms.FUNCTION_CALLS,)),
    Syntax("granite3", (forms.GRANITE3, forms.HERMES)),
    Syntax("granite20b", (forms.GRANITE20B,)),
    Syntax("jamba", (forms.TOOL_CALLS_TAG,)),
    Syntax("hunyuan_a13b", (forms.TOOL_CALLS_TAG,)),
    Syntax("apriel", (forms.TOOL_CALLS_TAG,), thinking="apriel"),
    Syntax("nemotron_toolcall_list", (forms.TOOLCALL_TAG,)),
    Syntax("apertus", (forms.APERTUS,)),
    Syntax("seed_oss", (forms_tags.SEED_OSS,), thinking="seed"),
    Syntax("minimax_m2", (forms_tags.MINIMAX_M2,)),
    Syntax(
        "xlam_json",
        (forms.HERMES, forms.MISTRAL_JSON, forms.JSON_FENCE, forms.JSON_LIST, forms.BARE_JSON),
        bare_anywhere=True,
    ),
    Syntax("json_list", (forms.JSON_LIST, forms.JSON_FENCE)),
    Syntax("bare_json", (forms.BARE_JSON,)),
)
"""Every syntax by its name."""

DEFAULT_FORMS: tuple[Form, ...] = tuple(
    form
    for form in dict.fromkeys(form for syntax in SYNTAXES.values() for form in syntax.forms)
    if form not in {forms.PYTHON_CALLS, forms.PYTHON_FENCE, forms.CODE_TAG, forms.CHATGLM3}
)
"""What a model that nobody described may write: every form that has a marker, since a marker costs nothing until it is
written, and the bare ones where an answer begins. Left out is what an answer about programming may begin with as well.
"""


@dataclass(frozen=True)
class Selection:
    """The forms and tags a detector works with.

    Args:
        anywhere: forms that are looked for in the whole answer.
        first: forms that are looked for where the answer begins; ``anywhere`` among them.
        thinking: how thinking may be marked.
    """

    anywhere: tuple[Form, ...]
    first: tuple[Form, ...]
    thinking: tuple[ThinkingTags, ...]


def chosen(names: Sequence[str | Syntax] | None) -> Selection:
    """What is looked for under these names, ``DEFAULT_FORMS`` for None; a declaration stands for itself.

    Raises:
        UsageError: there is no syntax of a name.
    """
    if names is None:
        marked = tuple(form for form in DEFAULT_FORMS if not form.bare)
        return Selection(marked, DEFAULT_FORMS, tuple(tags.at_the_beginning() for tags in THINKING.values()))
    unknown = [name for name in names if isinstance(name, str) and name not in SYNTAXES]
    if unknown:
        raise UsageError(f"unknown syntax '{unknown[0]}'; choose from {', '.join(SYNTAXES)}")
    syntaxes = [SYNTAXES[name] if isinstance(name, str) else name for name in names]
    anywhere = (form for each in syntaxes for form in each.forms if not form.bare or each.bare_anywhere)
    return Selection(
        tuple(dict.fromkeys(anywhere)),
        tuple(dict.fromkeys(form for each in syntaxes for form in each.forms)),
        tuple(THINKING[name] for name in dict.fromkeys(("think", *(syntax.thinking for syntax in syntaxes)))),
    )


def boundary_of(form: Form, selection: Selection) -> Markers:
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
