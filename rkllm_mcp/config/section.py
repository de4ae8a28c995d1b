"""Base class of all sections: unknown keys are rejected, types are strict, values are frozen.

``Paths`` and tuples are exceptions from strict types, because TOML and JSON write them as strings and lists.
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, WithJsonSchema
from pydantic_core import CoreSchema, PydanticCustomError


class DocumentedModel(BaseModel):
    """A model whose JSON Schema has the strings below its fields as their descriptions.

    pydantic's ``use_attribute_docstrings`` does the same when a class is made, and parses the sources at every start.
    The validator is built with the first use of a class: most of them are only parts of another.
    """

    model_config = ConfigDict(defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Add the descriptions; pydantic calls this for each model of a schema."""
        schema = handler(core_schema)
        properties: dict[str, dict[str, Any]] = handler.resolve_ref_schema(schema).get("properties", {})
        for kind in reversed(cls.__mro__):
            if issubclass(kind, DocumentedModel):
                for name, text in _attribute_docstrings(kind.__module__).get(kind.__name__, {}).items():
                    if name in properties:
                        properties[name]["description"] = text
        return schema


@functools.cache
def _attribute_docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return the strings below the fields of a module's classes, by class and field.

    A class that is made of a table is not in it; its fields have descriptions.
    """
    try:
        source = inspect.getsource(sys.modules[module])
    except OSError:
        return {}
    documented: dict[str, dict[str, str]] = {}
    for definition in ast.walk(ast.parse(source)):
        for field, below in pairwise(definition.body if isinstance(definition, ast.ClassDef) else ()):
            match definition, field, below:
                case (
                    ast.ClassDef(name=name),
                    ast.AnnAssign(target=ast.Name(id=key)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    documented.setdefault(name, {})[key] = inspect.cleandoc(text)
                case _:
                    continue
    return documented


class Section(DocumentedModel):
    """A table of a configuration file."""

    # protected_namespaces: sections have a field "model".
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


FilePath: TypeAlias = Annotated[Path, Field(strict=False)]
FilePaths: TypeAlias = Annotated[tuple[FilePath, ...], Field(strict=False)]
Names: TypeAlias = Annotated[tuple[str, ...], Field(strict=False)]
Numbers: TypeAlias = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False)]
Seconds: TypeAlias = Annotated[float, Field(gt=0)]
NotNegativeSeconds: TypeAlias = Annotated[float, Field(ge=0)]
Positive: TypeAlias = Annotated[int, Field(gt=0)]
NotNegative: TypeAlias = Annotated[int, Field(ge=0)]
Right: TypeAlias = Literal["chat", "tools", "approve", "write"]
Approve: TypeAlias = Literal["writes", "dangerous", "always", "never"]


_KEEP_ALIVE = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h))+")
_KEEP_ALIVE_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_KEEP_ALIVE_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def keep_alive_s(value: str | float) -> float:
    """Return the seconds of Ollama's ``keep_alive``, infinity for a negative one; a ValueError for other text."""
    text = str(value).strip()
    try:
        seconds = float(text)
    except ValueError:
        size = text.removeprefix("-")
        if not _KEEP_ALIVE.fullmatch(size):
            advice = "write seconds, 5m or 1h30m, 0 for at once, -1 for never"
            raise ValueError(f"{text[:40]!r} is no duration; {advice}") from None
        seconds = sum(float(number) * _KEEP_ALIVE_UNITS[unit] for number, unit in _KEEP_ALIVE_PART.findall(size))
        seconds = -1.0 if text.startswith("-") else seconds
    return math.inf if seconds < 0 or math.isnan(seconds) else seconds


def _checked_keep_alive(value: str | float) -> str | float:
    try:
        keep_alive_s(value)
    except ValueError:
        raise PydanticCustomError("keep_alive", "seconds, 5m or 1h30m; 0 for at once, -1 for never") from None
    return value


# The rule of ``keep_alive_s``, for readers of the schema.
_DURATION = r"^-?(\d+(\.\d+)?|(\d+(\.\d+)?(ms|s|m|h))+)$"
KeepAlive: TypeAlias = Annotated[
    int | float | str,
    AfterValidator(_checked_keep_alive),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "pattern": _DURATION}]}),
]


def combination(key: str, actual: str, allowed: str) -> PydanticCustomError:
    """Return the error of a validator that checks several keys; ``key`` is relative to the section."""
    return PydanticCustomError("combination", "{found}; {allowed}", {"key": key, "found": actual, "allowed": allowed})
