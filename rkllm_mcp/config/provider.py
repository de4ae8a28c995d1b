"""The section about who answers: the NPU, or a service elsewhere, and who takes over by which rule."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from rkllm_mcp.config.section import Positive, Seconds, Section, combination

Occasion: TypeAlias = Literal["failed", "too_long", "no_answer", "busy"]


class RemoteSection(Section):
    """A service that answers over HTTP."""

    base_url: Annotated[str, Field(pattern=r"^https?://[^/\s]+")] | None = None
    """The service's address; OpenAI's or Anthropic's own when not given."""
    model: Annotated[str, Field(min_length=1)] | None = None
    """The service's name of the model."""
    api_key: Annotated[str, Field(min_length=1)] | None = None
    """The key for it; better as ${VAR}."""
    tools: bool = True
    """The model can call tools; one that says it cannot is asked without them either way."""
    context_tokens: Positive | None = None
    """Its context window; older turns are left out to fit it when given, else the service judges."""
    max_new_tokens: Positive | None = None
    """The longest answer of one round; the service's own limit when not given."""
    connect_timeout_s: Seconds = 10.0
    """The longest that connecting may take."""
    timeout_s: Seconds = 120.0
    """The longest silence of the service."""
    answer_timeout_s: Seconds = 600.0
    """The longest that one round of the model may take."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """How often a request is repeated that the service refused for now."""

    def _check_service(self, kind: str) -> None:
        if self.model is None:
            raise combination("model", "nothing", f"kind = {kind!r} needs the name of a model")
        if self.base_url is None and self.api_key is None:
            allowed = f"give the key for {kind}, or the base_url of a service of your own"
            raise combination("api_key", "nothing", allowed)


class FallbackSection(RemoteSection):
    """Who takes over where the first model cannot answer."""

    kind: Literal["openai", "anthropic"]
    """How the service is spoken to."""
    when: Annotated[tuple[Occasion, ...], Field(strict=False)] = ()
    """failed: the answer failed; too_long: the question does not fit; no_answer: not a word came; busy: the first model
    is answering somebody else. Never when empty."""

    @model_validator(mode="after")
    def _check_model_of_service(self) -> FallbackSection:
        self._check_service(self.kind)
        return self


class ProviderSection(RemoteSection):
    """Who answers."""

    kind: Literal["rkllm", "openai", "anthropic"] = "rkllm"
    """rkllm is the NPU; the others are services."""
    fallback: FallbackSection | None = None
    """A second service, which takes over by rule; nobody does when not given."""

    @model_validator(mode="after")
    def _check_model_of_service(self) -> ProviderSection:
        if self.kind != "rkllm":
            self._check_service(self.kind)
        return self
