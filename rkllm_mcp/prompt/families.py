"""Every chat template by name, read from ``templates/NAME.toml``.

A file has the fields of ``ChatTemplate``; ``[prefix]`` those of ``PrefixLayout``, and ``[tools]`` those of
``ToolForm``, without the texts that are empty. ``base`` names the template, and ``form`` the tool form, whose fields
are the defaults. ``[about]`` is the row of docs/models.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

from rkllm_base.settings import parse_toml
from rkllm_mcp.prompt.gemma import GEMMA_CALL, gemma_declaration
from rkllm_mcp.prompt.template import ChatTemplate, PrefixLayout
from rkllm_mcp.prompt.tool_list import (
    FENCED_CALL,
    JSON_CALL_WITH_PARAMETERS,
    PYTHON_CALL,
    TAGGED_CALL,
    TOOL_FORMS,
    ToolForm,
    bare_tool,
    spaced_json,
)

_FOLDER = Path(__file__).with_name("templates")


def without_blank_lines(text: str) -> str:
    """Return ``text`` without empty lines."""
    return re.sub(r"\n\s*\n", "\n", text.strip("\n").replace("\r\n", "\n"))


# Fields whose value is a function or a style, which a file names.
_NAMED: Mapping[str, Mapping[str, Any]] = {
    "call_style": {
        "fenced": FENCED_CALL,
        "gemma": GEMMA_CALL,
        "json_with_parameters": JSON_CALL_WITH_PARAMETERS,
        "python": PYTHON_CALL,
        "tagged": TAGGED_CALL,
    },
    "clean": {"without_blank_lines": without_blank_lines},
    "result_text": {"spaced_json": spaced_json},
    "tool": {"bare": bare_tool, "gemma": gemma_declaration},
}


@dataclass(eq=False)
class Templates(Mapping[str, ChatTemplate]):
    """The templates by name; each file is read when it is first needed."""

    _read: dict[str, ChatTemplate] = field(default_factory=dict[str, ChatTemplate])
    _names: list[str] = field(default_factory=lambda: sorted(path.stem for path in _FOLDER.glob("*.toml")))

    def __getitem__(self, name: str) -> ChatTemplate:
        if name not in self._read:
            if name not in self._names:
                raise KeyError(name)
            table = self._table(name)
            base, prefix, tools = table.pop("base", None), table.pop("prefix", None), table.pop("tools", None)
            del table["about"]
            values = _values(table)
            if prefix is not None:
                values["head_form"] = PrefixLayout(**_values(prefix))
            if tools is not None:
                texts = _values(tools)
                form = texts.pop("form", None)
                if form is None:
                    empty: dict[str, Any] = {entry.name: "" for entry in fields(ToolForm) if entry.default is MISSING}
                    values["tool_form"] = ToolForm(**{**empty, **texts})
                else:
                    values["tool_form"] = replace(TOOL_FORMS[form], **texts)
            self._read[name] = replace(self[base], **values) if base else ChatTemplate(**values)
        return self._read[name]

    def about(self, name: str) -> Mapping[str, str]:
        """Return in words what the form of a template is."""
        return self._table(name)["about"]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _table(self, name: str) -> dict[str, Any]:
        return parse_toml((_FOLDER / f"{name}.toml").read_text("utf-8"))


def _values(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of fields, with lists as tuples and names as what they name."""
    constants = {key: _NAMED[key][value] for key, value in table.items() if key in _NAMED}
    lists = {key: tuple(cast("list[str]", value)) for key, value in table.items() if isinstance(value, list)}
    return {**table, **lists, **constants}


TEMPLATES = Templates()
