"""What a ``model.toml`` of the catalogue says beyond how to talk to the model: where its files are, and how fast it is.

Both tables are optional. They are data for ``rkllm-mcp models``; nothing that answers a question reads them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rkllm_mcp.config.section import Positive, Section

Platform = Literal["RK3588", "RK3576", "RK3562", "RV1126B"]
"""The SoC that a .rkllm file is converted for; an RK3588S takes files for the RK3588."""

_Repository = Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
# Each step begins with a letter or a digit, so none leads upwards: the name becomes a path on this machine.
_FileName = Annotated[str, Field(pattern=r"^\w[^/]*(/\w[^/]*)*$")]
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class SourceCard(Section):
    """``[source]``: where ``rkllm-mcp models pull`` finds the files, on Hugging Face or a mirror of it."""

    repository: _Repository | None = None
    """The repository with the .rkllm file, ``owner/name``; absent where nobody is known to publish one."""
    file: _FileName | None = None
    """The .rkllm file's name in it."""
    revision: str | None = None
    """A branch, tag or commit of it; ``main`` when not given."""
    sha256: _Sha256 | None = None
    """The .rkllm file's SHA-256."""
    tokenizer_repository: _Repository | None = None
    """The repository with the tokenizer, usually the original model's; ``repository`` when not given."""
    tokenizer_file: _FileName = "tokenizer.json"
    """The tokenizer's name in it."""
    tokenizer_revision: str | None = None
    """A branch, tag or commit of it."""
    platform: Platform = "RK3588"
    """The SoC the file is converted for."""


class PublishedCard(Section):
    """``[published]``: what others measured, each on a board at full clocks."""

    decode_tokens_per_second: Annotated[float, Field(gt=0)] | None = None
    """How fast it writes."""
    ttft_ms: Annotated[float, Field(gt=0)] | None = None
    """Milliseconds to the first token."""
    memory_mb: Positive | None = None
    """Memory while it runs, in MB."""
    source: str = ""
    """Who published it, with which runtime and prompt."""
