"""The base of every section: unknown keys are refused, values have exactly their type, nothing changes.

``Paths`` and tuples are the exception to the exact type, because TOML and JSON write them as strings and lists.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError


class Section(BaseModel):
    """A table of a configuration file."""

    # protected_namespaces: "model" is this project's word for the thing on the NPU, and a field's name.
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, protected_namespaces=(), use_attribute_docstrings=True
    )


FilePath: TypeAlias = Annotated[Path, Field(strict=False)]
FilePaths: TypeAlias = Annotated[tuple[FilePath, ...], Field(strict=False)]
Names: TypeAlias = Annotated[tuple[str, ...], Field(strict=False)]
Numbers: TypeAlias = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False)]
Seconds: TypeAlias = Annotated[float, Field(gt=0)]
NotNegativeSeconds: TypeAlias = Annotated[float, Field(ge=0)]
Temperature: TypeAlias = Annotated[float, Field(ge=0, le=2)]
Probability: TypeAlias = Annotated[float, Field(gt=0, le=1)]
Positive: TypeAlias = Annotated[int, Field(gt=0)]
NotNegative: TypeAlias = Annotated[int, Field(ge=0)]
Approve: TypeAlias = Literal["dangerous", "always", "never"]


def combination(key: str, found: str, allowed: str) -> PydanticCustomError:
    """The error of a validator that looks at several keys; ``key`` is the one to name, relative to the section."""
    return PydanticCustomError("combination", "{found}; {allowed}", {"key": key, "found": found, "allowed": allowed})
