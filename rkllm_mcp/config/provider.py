"""The section about the answering model: the NPU or a remote service, and the fallback."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from rkllm_mcp.config.section import Positive, Seconds, Section, combination

Occasion: TypeAlias = Literal["failed", "too_long", "no_answer", "busy"]


class RemoteSection(Section):
    """A remote service that answers over HTTP."""

    base_url: Annotated[str, Field(pattern=r"^https?://[^/\s]+")] | None = None
    """The service's address; OpenAI's or Anthropic's own when not given."""
    model: Annotated[str, Field(min_length=1)] | None = None
    """The model's name at the service."""
    api_key: Annotated[str, Field(min_length=1)] | None = None
    """The API key; preferably as ${VAR}."""
    tools: bool = True
    """The model supports tool calls; if the service rejects them, it is called without tools either way."""
    context_tokens: Positive | None = None
    """Its context window; older turns are left out to fit it when given, else the service judges."""
    max_new_tokens: Positive | None = None
    """The longest answer of one round; the service's own limit when not given."""
    connect_timeout_s: Seconds = 10.0
    """Time limit for connecting."""
    timeout_s: Seconds = 120.0
    """Maximum time without data from the service."""
    answer_timeout_s: Seconds = 600.0
    """Time limit for one round of the model."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """Number of retries after a temporary rejection by the service."""

    def _check_service(self, kind: str) -> None:
        if self.model is None:
            raise combination("model", "nothing", f"kind = {kind!r} needs the name of a model")
        if self.base_url is None and self.api_key is None:
            allowed = f"give the key for {kind}, or the base_url of a service of your own"
            raise combination("api_key", "nothing", allowed)


class FallbackSection(RemoteSection):
    """The service that answers if the first model cannot."""

    kind: Literal["openai", "anthropic"]
    """Protocol of the service."""
    when: Annotated[tuple[Occasion, ...], Field(strict=False)] = ()
    """failed: the answer failed; too_long: the question does not fit; no_answer: no text was generated; busy: the first
    model is answering another request. Never when empty.
    """

    @model_validator(mode="after")
    def _check_model_of_service(self) -> FallbackSection:
        self._check_service(self.kind)
        return self


class ProviderSection(RemoteSection):
    """The answering model."""

    kind: Literal["rkllm", "openai", "anthropic"] = "rkllm"
    """rkllm is the NPU; the others are services."""
    fallback: FallbackSection | None = None
    """A second service for the cases in its rule; none when not given."""

    @model_validator(mode="after")
    def _check_model_of_service(self) -> ProviderSection:
        if self.kind != "rkllm":
            self._check_service(self.kind)
        return self
