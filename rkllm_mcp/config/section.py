"""Base class of all sections: unknown keys are rejected, types are strict, values are frozen.

``Paths`` and tuples are exceptions from strict types, because TOML and JSON write them as strings and lists.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError


class Section(BaseModel):
    """A table of a configuration file."""

    # protected_namespaces: sections have a field "model".
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        protected_namespaces=(),
        use_attribute_docstrings=True,
        # The validator is built with the first use of a section: most of them are only parts of another.
        defer_build=True,
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
    """Return the error of a validator that checks several keys; ``key`` is relative to the section."""
    return PydanticCustomError("combination", "{found}; {allowed}", {"key": key, "found": found, "allowed": allowed})
