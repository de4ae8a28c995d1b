"""Tables of a ``model.toml`` about the model's files and published measurements.

Both tables are optional and used by ``rkllm-mcp models`` only.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rkllm_mcp.config.section import Positive, Section

Platform = Literal["RK3588", "RK3576", "RK3562", "RV1126B"]
"""SoC that a .rkllm file is converted for; an RK3588S takes files for the RK3588."""

_Repository = Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
# Each path component starts with a letter or a digit, so none leads upwards: the name becomes a path on this machine.
_FileName = Annotated[str, Field(pattern=r"^\w[^/]*(/\w[^/]*)*$")]
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class SourceCard(Section):
    """``[source]``: download location for ``rkllm-mcp models pull``, on Hugging Face or a mirror of it."""

    repository: _Repository | None = None
    """The repository with the .rkllm file, ``owner/name``; absent if no publisher is known."""
    file: _FileName | None = None
    """The .rkllm file's name in the repository."""
    revision: str | None = None
    """A branch, tag or commit of the repository; ``main`` when not given."""
    sha256: _Sha256 | None = None
    """The .rkllm file's SHA-256."""
    tokenizer_repository: _Repository | None = None
    """The repository with the tokenizer, usually the original model's; ``repository`` when not given."""
    tokenizer_file: _FileName = "tokenizer.json"
    """The tokenizer's name in the repository."""
    tokenizer_revision: str | None = None
    """A branch, tag or commit of the tokenizer's repository."""
    platform: Platform = "RK3588"
    """The SoC the file is converted for."""


class PublishedCard(Section):
    """``[published]``: measurements published by others, each on a board at full clocks."""

    decode_tokens_per_second: Annotated[float, Field(gt=0)] | None = None
    """Decoding speed."""
    ttft_ms: Annotated[float, Field(gt=0)] | None = None
    """Time to the first token in milliseconds."""
    memory_mb: Positive | None = None
    """Memory at run time in MB."""
    source: str = ""
    """Publisher, runtime and prompt of the measurement."""
