"""Convert errors of a remote service or its SDK to exceptions whose message names the host and the remedy.

Both SDKs and compatible services report errors alike (status, ``error.message`` in the body, ``Retry-After``). API keys
are redacted, because services quote them in messages.

Follows OpenAI "Error codes" and Anthropic "Errors"; messages of Ollama, vLLM, llama.cpp and OpenRouter as in their
issues.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rkllm_base.answers import retry_after_s
from rkllm_mcp.config.secrets import REDACTED, redacted_text
from rkllm_mcp.errors import GenerationError, PromptTooLongError, ServiceError, ServiceTooLongError
from rkllm_mcp.messages import as_mapping
from rkllm_mcp.providers.remote_settings import RemoteSettings
from rkllm_mcp.sampling import names_in
from rkllm_mcp.text import collapse_whitespace, shorten

# Limit for messages; some services send an HTML page.
_MOST_CHARS = 200
_CONTEXT_REMEDY = "shorten the question, use fewer tools, or choose a model with a larger context"

# Anthropic's error types inside a stream, which has status 200.
_KIND_STATUS: Mapping[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|prompt is too long"
    r"|context (?:window|size|length)|too many (?:input )?tokens|input length .*exceed",
    re.IGNORECASE,
)
# Limit and length in messages: "maximum context length is 8192 tokens … 9000 tokens", "too long: 9000 tokens > 8192
# maximum", "request (9000 tokens) exceeds the available context size (8192 tokens)".
_FIGURES = (
    re.compile(
        r"maximum context length is (?P<limit>\d+) tokens.*?(?P<prompt>\d+) (?:tokens|in the messages|input)", re.DOTALL
    ),
    re.compile(r"too long: (?P<prompt>\d+) tokens > (?P<limit>\d+)"),
    re.compile(r"\((?P<prompt>\d+) tokens\) exceeds .*\((?P<limit>\d+) tokens\)"),
)
_REFUSAL = (
    r"not support|n't support|unsupported|unknown|unrecogni[sz]ed|unexpected|not permitted|not allowed"
    r"|extra (?:inputs|fields)"
)
_REFUSED = re.compile(_REFUSAL, re.IGNORECASE)
_NO_TOOLS = re.compile(
    rf"(?:{_REFUSAL})\b.*\b(?:tools?|function calling|tool use)\b|\btools?\b['\"]?[^.]*(?:{_REFUSAL}|requires? --)"
    r"|\bno endpoints found that support tool use",
    re.IGNORECASE,
)
# Optional parameters: if a service rejects one of them, the request is repeated without it.
DISPENSABLE = (
    "stream_options",
    "chat_template_kwargs",
    "parallel_tool_calls",
    "max_tokens",
    "max_completion_tokens",
    *dict.fromkeys([*names_in("openai"), *names_in("anthropic")]),
)
_CLIENT_ERRORS = frozenset({400, 404, 422, 500, 501})


@dataclass(frozen=True)
class ServiceProblem:
    """Error reported by a service."""

    status: int  # HTTP status; 0 if there was no response
    message: str  # one line, redacted
    code: str = ""
    parameter: str = ""  # the rejected part of the request, if named
    retry_after_s: float | None = None
    location: str = ""  # target of a redirect


def problem_of(error: Exception, service: RemoteSettings) -> ServiceProblem:
    """Extract the error from an SDK's exception."""
    body = as_mapping(getattr(error, "body", None))
    # Anthropic's SDK passes the whole body, OpenAI's only the value of "error".
    error_body = as_mapping(body.get("error")) or body
    status: object = getattr(error, "status_code", None)
    code = str(error_body.get("code") or error_body.get("type") or "")
    number = status if isinstance(status, int) and status != 200 else _KIND_STATUS.get(str(error_body.get("type")), 0)
    headers: Mapping[str, str] = getattr(getattr(error, "response", None), "headers", {})
    message = error_body.get("message") or body.get("detail") or getattr(error, "message", None) or str(error)
    return ServiceProblem(
        status=number,
        message=_public_line(str(message), service),
        code=code,
        parameter=str(error_body.get("param") or ""),
        retry_after_s=retry_after_s(headers),
        location=_public_line(headers.get("location", ""), service),
    )


def rejected_part(problem: ServiceProblem, request: Mapping[str, Any]) -> str | None:
    """Return the optional parameter that the service rejected; ``tools`` if its model does not support tools."""
    if "tools" in request and problem.status in _CLIENT_ERRORS:
        is_refused = problem.parameter == "tools" and _REFUSED.search(problem.message) is not None
        if is_refused or _NO_TOOLS.search(problem.message) is not None:
            return "tools"
    if problem.status not in {400, 422} or not _REFUSED.search(problem.message):
        return None
    for key in DISPENSABLE:
        if key in request and (
            problem.parameter == key or re.search(rf"(?<![\w]){key}(?![\w])", problem.message) is not None
        ):
            return key
    return None


# Addresses of services, by their kind.
_EXAMPLES = {"openai": "it ends in /v1 for most services", "anthropic": "it ends before /v1/messages"}
# By status the problem and the remedy, with fields of the problem and the service.
_SENTENCES: Mapping[int, tuple[str, str]] = {
    402: ("requires payment", "check your account with the service"),
    404: ("has no model '{model}', or no such address", "check {section}.model and {section}.base_url: {example}"),
    **dict.fromkeys((408, 504), ("took too long", "ask again")),
    **dict.fromkeys((429, 503, 529), ("is busy or has reached its rate limit", "ask again {wait}")),
}


def failure(problem: ServiceProblem, service: RemoteSettings, prompt_tokens: int) -> GenerationError:
    """Return the exception for a failed answer; ``prompt_tokens`` is an estimate."""
    if problem.status in {400, 413, 422, 500} and _TOO_LONG.search(f"{problem.code} {problem.message}"):
        for figures in _FIGURES:
            match = figures.search(problem.message)
            if match is not None and int(match["prompt"]) > int(match["limit"]):
                why = f"so {service.host} refused it; {_CONTEXT_REMEDY}"
                return PromptTooLongError(int(match["prompt"]), int(match["limit"]), why)
        # The service named neither length nor limit.
        return ServiceTooLongError(prompt_tokens, max(0, prompt_tokens - 1), _CONTEXT_REMEDY, service.host)
    status, section = problem.status, service.section
    fault, remedy, reason = "reports an error", "ask again", problem.message
    if problem.code == "no_board":
        # Our own proxy of several boards.
        fault, remedy, reason = "has no board that can answer now", "ask again in a moment", ""
    elif 300 <= status < 400:
        fault = f"redirects requests to {problem.location or 'another address'}"
        remedy, reason = f"set {section}.base_url to that address if you trust it", ""
    elif status in _SENTENCES:
        wait = "in a while" if problem.retry_after_s is None else f"in {problem.retry_after_s:g} s"
        words = {"model": service.model, "section": section, "example": _EXAMPLES[service.kind], "wait": wait}
        fault, remedy = (text.format(**words) for text in _SENTENCES[status])
    elif status in {401, 403}:
        fault = "requires a key" if service.api_key is None else "rejects the key"
        remedy = f"check {section}.api_key"
    elif status >= 500:
        fault = f"failed with status {status}"
    elif status:
        fault, remedy = f"rejects the request with status {status}", f"check {section}.model and the tools in use"
    fault = f"{fault} ({reason})" if reason else fault
    return ServiceError(service.host, fault, remedy, status, problem.retry_after_s)


def unreachable(service: RemoteSettings, error: Exception | None = None) -> ServiceError:
    """Return the exception for a connection that failed or broke; without ``error`` it was not made in time."""
    how = f"within {service.connect_timeout_s:g} s"
    if error is not None:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        how = f"({_public_line(str(cause) or type(cause).__name__, service)})"
    remedy = f"check the network and {service.section}.base_url, then ask again"
    return ServiceError(service.host, f"cannot be reached {how}", remedy)


def silent(service: RemoteSettings, error: Exception | None = None) -> ServiceError:
    """Return the exception for a timeout; ``error`` is the SDK's, None if the whole answer took too long."""
    # Both SDKs raise one exception for all timeouts; only its cause tells which one.
    if error is not None and "Connect" in type(error.__cause__ or error).__name__:
        return unreachable(service)
    if error is not None:
        fault, remedy = (
            f"sent no data for {service.timeout_s:g} s",
            f"ask again, or raise {service.section}.timeout_s",
        )
    else:
        fault = f"did not finish its answer within {service.answer_timeout_s:g} s"
        remedy = f"ask for a shorter answer, or raise {service.section}.answer_timeout_s"
    return ServiceError(service.host, fault, remedy)


def broken_off(service: RemoteSettings, why: str = "") -> ServiceError:
    """Return the exception for an answer that broke off."""
    fault = "broke off in the middle of its answer"
    return ServiceError(service.host, f"{fault} ({_public_line(why, service)})" if why else fault, "ask again")


def no_stream(service: RemoteSettings) -> ServiceError:
    """Return the exception for a response that is not of this kind of service."""
    return ServiceError(
        service.host,
        f"did not answer as a service of kind '{service.kind}' does",
        f"check {service.section}.kind, and whether {service.section}.base_url is right: {_EXAMPLES[service.kind]}",
    )


def _public_line(text: str, service: RemoteSettings) -> str:
    """Return one redacted line of limited length."""
    line = collapse_whitespace(text)
    if service.api_key:
        line = line.replace(service.api_key, REDACTED)
    return shorten(redacted_text(line), _MOST_CHARS)
