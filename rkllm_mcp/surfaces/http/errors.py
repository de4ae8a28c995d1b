"""Errors in the shape of the API that was asked, and the id of the request that they name."""

from __future__ import annotations

import logging
import math
import re
import uuid
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from rkllm_mcp import errors
from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.completions.request import RequestRefusedError
from rkllm_mcp.config.section import DocumentedModel
from rkllm_mcp.speech.engines import NoTranslationError, SpeechError
from rkllm_mcp.text import Language

HEADER = "X-Request-Id"

# The trace id of W3C's traceparent, https://www.w3.org/TR/trace-context/.
_TRACE = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?", re.ASCII)
# Long enough for a UUID or a trace id, and nothing that could forge a line of a log.
_SANE = re.compile(r"[A-Za-z0-9._\-]{1,64}", re.ASCII)
# The id of the request that is being answered; empty outside of one.
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")


def begin_request(offered: str, traceparent: str = "") -> str:
    """Give the current task a request id: ``offered`` where it is sane, else that of the trace, else a new one."""
    trace = _TRACE.fullmatch(traceparent)
    request_id = offered if _SANE.fullmatch(offered) else trace[1] if trace else uuid.uuid4().hex
    REQUEST_ID.set(request_id)
    return request_id


def name_request(record: logging.LogRecord) -> bool:
    """Add ``request_id`` to a log record, for a handler's format; a filter that every record passes."""
    record.request_id = REQUEST_ID.get() or "-"
    return True


logger = logging.getLogger(__name__)

# Below these paths errors have the shape of Ollama's and of Anthropic's API; everywhere else that of OpenAI's.
OLLAMA = "/api/"
ANTHROPIC = "/v1/messages"
# Asked again after so long, seconds, where nothing better is known.
RETRY_AFTER_S = 5

_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
# Anthropic's kinds, where they are others.
_ANTHROPIC_TYPES: Mapping[int, str] = {413: "request_too_large", 503: "overloaded_error", 504: "timeout_error"}
_CODES: Mapping[int, str] = {
    401: "invalid_api_key",
    404: "not_found",
    405: "method_not_allowed",
    413: "request_too_large",
    415: "unsupported_media_type",
    429: "rate_limit_exceeded",
    503: "not_ready",
}
# In OpenAI's words, by which LiteLLM and others find out that a longer context would help.
_TOO_LONG = "this model's maximum context length is exceeded"
# The router's refusals, in words that say what to do.
_SENTENCES: Mapping[int, str] = {
    404: "there is nothing at this address; /openapi.json lists what there is",
    405: "this address does not take this method; the Allow header lists those that it takes",
}


_COMPLETIONS = "this API is not offered; ask POST /v1/responses or POST /v1/chat/completions"
_STOCKING = "models are got and removed on the board itself, with 'rkllm-mcp models'"
_NO_CONVERSATIONS = "no conversation of OpenAI's API is kept here; send previous_response_id to POST /v1/responses"
# Addresses that programs ask for and that are not offered, by their beginning, or with a $ by the whole of them; a * is
# one part of the path.
NOT_OFFERED: Mapping[str, str] = {
    **dict.fromkeys(["/v1/assistants", "/v1/threads"], _COMPLETIONS),
    **dict.fromkeys(
        ["/v1/batches", "/v1/messages/batches"],
        "batches are not offered; send the requests one after the other, which wait for their turn",
    ),
    "/v1/responses/compact": "no summary of a conversation is made here; ask for one in a request",
    "/v1/responses/*/cancel": "no answer is made in the background here; end the request that waits for it",
    "/v1/conversations/*/items": _NO_CONVERSATIONS,
    "/v1/conversations$": _NO_CONVERSATIONS,
    "/v1/images": "no pictures are made here; a model that sees reads them in a question",
    "/v1/videos": "no videos are made or read here",
    "/v1/realtime": "no speech goes both ways at once; ask POST /v1/audio/transcriptions and POST /v1/audio/speech",
    **dict.fromkeys(
        ["/v1/files", "/v1/uploads", "/v1/vector_stores"],
        "no files are kept for an API; send the text in the request, or add documents on the page",
    ),
    "/v1/moderations": "nothing is judged here; no model for it is offered",
    "/v1/fine_tuning": "no model is trained here",
    **dict.fromkeys(["/v1/evals", "/v1/containers", "/v1/skills", "/v1/agents", "/v1/sessions"], _COMPLETIONS),
    **dict.fromkeys(["/api/push", "/api/create", "/api/copy", "/api/blobs"], _STOCKING),
}
# How addresses of the APIs end, after a base URL that people write into programs with a /v1 too many or too few.
_ENDINGS: Mapping[str, str] = {
    **dict.fromkeys(["/chat/completions", "/completions", "/responses", "/embeddings", "/models"], "/v1"),
    **dict.fromkeys(["/v1/messages", "/v1/messages/count_tokens"], ""),
    **dict.fromkeys(["/api/chat", "/api/generate", "/api/tags", "/api/embed", "/api/version"], ""),
}


class ErrorDetail(DocumentedModel):
    """Description of the error."""

    message: str = Field(description="What is wrong, and what to do about it.")
    type: str = Field(description="The kind of error.")
    param: str | None = Field(default=None, description="The field that is wrong.")
    code: str | None = Field(default=None, description="The same as a word for programs.")


class ErrorBody(DocumentedModel):
    """The body of every answer that is not a success."""

    error: ErrorDetail


class OllamaError(DocumentedModel):
    """The body of every answer below ``/api/`` that is not a success."""

    error: str = Field(description="What is wrong, and what to do about it.")


class AnthropicErrorDetail(DocumentedModel):
    """Description of the error, as Anthropic's API has it."""

    type: str = Field(description="The kind of error.")
    message: str = Field(description="What is wrong, and what to do about it.")
    details: dict[str, str] | None = Field(default=None, description="error_code: the same as a word for programs.")


class AnthropicError(DocumentedModel):
    """The body of every answer below ``/v1/messages`` that is not a success."""

    type: Literal["error"]
    error: AnthropicErrorDetail
    request_id: str = Field(description="The id of the request, as in the header X-Request-Id.")


@dataclass(eq=False)
class HTTPError(Exception):  # it is an answer to a request, and named as one
    """A request that is refused or cannot be answered; ``message`` is a sentence with a remedy."""

    status: int  # the HTTP status
    message: str  # problem and remedy, a sentence
    type: str = ""  # OpenAI's kind of error; the status decides when empty
    param: str | None = None  # the field that is wrong
    code: str | None = None  # a word for programs; the status decides when None
    retry_after_s: float | None = None  # when to ask again, seconds
    headers: Mapping[str, str] = field(default_factory=dict[str, str])  # further headers

    def __str__(self) -> str:
        return self.message

    def body(self, path: str = "") -> dict[str, Any]:
        """The error as JSON in the shape of the API that ``path`` belongs to, for a body or the end of a stream."""
        if path.startswith(OLLAMA):
            return {"error": self.message}
        if not path.startswith(ANTHROPIC):
            usual = "server_error" if self.status >= 500 else "invalid_request_error"
            kind, code = self.type or _TYPES.get(self.status, usual), self.code or _CODES.get(self.status)
            return {"error": {"message": self.message, "type": kind, "param": self.param, "code": code}}
        usual = "api_error" if self.status >= 500 else "invalid_request_error"
        kind = _ANTHROPIC_TYPES.get(self.status) or _TYPES.get(self.status, usual)
        where = f"{self.param}: " if self.param and self.param not in self.message else ""
        error: dict[str, Any] = {"type": kind, "message": f"{where}{self.message}"}
        if self.code:
            error["details"] = {"error_code": self.code}
        return {"type": "error", "error": error, "request_id": REQUEST_ID.get()}

    def response(self, path: str = "") -> Response:
        """The answer to a request for ``path``."""
        headers = dict(self.headers)
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(max(1, math.ceil(self.retry_after_s)))
        if self.status == 401:
            headers.setdefault("WWW-Authenticate", "Bearer")
        return JSONResponse(self.body(path), self.status, headers)


class ClientGoneError(Exception):
    """The client has disconnected."""


# By exception, the first that fits.
_PROBLEMS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], Callable[[Any], HTTPError]], ...] = (
    (
        errors.PromptTooLongError,
        lambda error: HTTPError(400, f"{_TOO_LONG}: {error}", param="messages", code="context_length_exceeded"),
    ),
    ((errors.InputRefusedError, errors.UnsupportedError), lambda error: HTTPError(400, str(error))),
    (
        RequestRefusedError,
        lambda error: HTTPError(
            422 if error.is_too_costly else 400, str(error), param=error.param or None, code=error.code or None
        ),
    ),
    (
        (errors.ModelExchangeError, errors.RuntimeUnusableError, errors.WorkerDiedError),
        lambda error: HTTPError(503, str(error), retry_after_s=RETRY_AFTER_S),
    ),
    (errors.UsageError, lambda error: HTTPError(400, str(error))),
    # The status that no client repeats by itself: the same request would end the same way.
    (errors.AnswerFormatError, lambda error: HTTPError(422, str(error), param="response_format", code="answer_format")),
    (errors.NoCallError, lambda error: HTTPError(422, str(error), param="tool_choice", code="tool_use_failed")),
    (
        errors.ServiceError,
        lambda error: HTTPError(429 if error.status == 429 else 502, str(error), retry_after_s=error.retry_after_s),
    ),
    (errors.NotOfferedError, lambda error: HTTPError(404, str(error))),
    (errors.QueueFullError, lambda error: HTTPError(429, str(error), retry_after_s=error.retry_after_s)),
    (
        errors.SchedulerClosedError,
        lambda _: HTTPError(503, "the service is being stopped; ask again in a moment", retry_after_s=RETRY_AFTER_S),
    ),
    (NoTranslationError, lambda error: HTTPError(501, str(error), code="not_offered")),
    (SpeechError, lambda error: HTTPError(502, str(error), code="speech_program")),
    (errors.ToolboxError, lambda error: HTTPError(502, str(error), code="tool_server")),
    (
        errors.StoreAwayError,
        lambda error: HTTPError(
            503,
            f"what is stored cannot be read now: {error.cause}",
            code="storage",
            retry_after_s=RETRY_AFTER_S,
        ),
    ),
    (
        errors.StoreError,
        lambda error: HTTPError(500, f"what is stored cannot be read or changed: {error.cause}", code="storage"),
    ),
    (errors.RkllmMcpError, lambda error: HTTPError(500, str(error))),
)


def problem_of(error: BaseException) -> HTTPError:
    """Convert an exception to the HTTPError for the client."""
    if isinstance(error, HTTPError):
        return error
    for kind, make in _PROBLEMS:
        if isinstance(error, kind):
            return make(error)
    alone: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    if len(alone) == 1:
        return problem_of(alone[0])
    logger.error("a request failed", exc_info=error)
    return HTTPError(500, unforeseen_message(), code="internal_error")


def unforeseen_message() -> str:
    """Return the message of an internal error: the request id under which the log has details."""
    where = f"; the log has more under request {request_id}" if (request_id := REQUEST_ID.get()) else ""
    return f"something went wrong inside the service{where}"


# The patterns of ``NOT_OFFERED`` with their sentences.
_NOT_OFFERED = tuple(
    (re.compile(re.escape(address).replace(r"\*", "[^/]+").replace(r"\$", r"\Z") + r"(?:/|\Z)"), says)
    for address, says in NOT_OFFERED.items()
)


def response_to(error: BaseException, path: str = "", language: Language = "en", method: str = "POST") -> Response:
    """The answer to a request for ``path`` that ended in an error, in a person's language."""
    if isinstance(error, (ClientDisconnect, ClientGoneError)):
        # The client is gone; the status is nginx's for this case.
        return Response(status_code=499)
    if isinstance(error, HTTPException):
        message = _SENTENCES.get(error.status_code, error.detail)
        status, headers = error.status_code, dict(error.headers or {})
        is_unknown = status == 404 or (status == 405 and method == "POST")
        if is_unknown and (says := next((says for pattern, says in _NOT_OFFERED if pattern.match(path)), "")):
            # Where another route is at the address, its methods would be the wrong advice for what programs create.
            status, message, headers = 404, says, {}
        elif status == 404:
            # A program may mean an address of an API with another base URL.
            end = max((end for end in _ENDINGS if path.endswith(end)), key=len, default="")
            meant = f"{_ENDINGS[end]}{end}" if end else path
            if meant != path:
                base = "ends in /v1, once" if _ENDINGS[end] else "is the address of this service without a path"
                advice = f"the API is at {meant}, so the base URL in the program {base}"
                path, message = meant, f"there is nothing at this address; {advice}"
        if "Allow" in headers:
            headers["Allow"] = ", ".join(sorted(headers["Allow"].split(", ")))
        problem = HTTPError(status, message, headers=headers)
    else:
        problem = problem_of(error)
    return replace(problem, message=read_catalogue(language).phrase(problem.message)).response(path)
