"""What a request brings, checked: JSON becomes a model, or a refusal that names the field.

    body ─▶ 413 too large ─▶ 415 no JSON by its type ─▶ 400 not JSON ─▶ 422 not what the route takes ─▶ model

Nothing that JSON does not have gets through (NaN, infinity), half of a surrogate pair becomes U+FFFD, nothing is nested
without end, and a body that stops coming is given up. The parser holds the interpreter's lock for a body at a time,
also in a thread, so the number of values is limited: 7 MB of text take it some milliseconds, 7 MB of empty lists a
second.
"""

from __future__ import annotations

import math
import re
import sys
import zlib
from collections import Counter
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json
from starlette.requests import Request

from rkllm_base import uploads
from rkllm_base.answers import MOST_VALUES, count_values
from rkllm_base.uploads import SILENCE_S
from rkllm_mcp.config.section import DocumentedModel
from rkllm_mcp.surfaces.http.admission import UNCOUNTED_BYTES
from rkllm_mcp.surfaces.http.errors import OLLAMA, HTTPError
from rkllm_mcp.surfaces.http.state import MEBIBYTE, hold_body, run_work, service_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# Longer bodies are checked in a thread; what is shorter takes 5 ms at most, even when it is nothing but small parts.
_LONG_BYTES = 8_192
_MOST_ERRORS = 10_000
_MOST_WINDOW_LOG = 23  # 8 MB, as RFC 8878 recommends for decoders
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# An escaped surrogate after whole escapes of the backslash, where a pair has its own group; half a pair as bytes.
_SURROGATES = re.compile(
    rb"(?<!\\)((?:\\\\)*)(?:(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\xed[\xa0-\xbf][\x80-\xbf]"
)

ModelT = TypeVar("ModelT", bound=BaseModel)


class RequestBody(DocumentedModel):
    """A request of our own interface: exact types, no unknown fields. Forms and results may use it as well."""

    model_config = ConfigDict(strict=True, extra="forbid", protected_namespaces=())


class LenientBody(DocumentedModel):
    """A request of another project's interface: exact types; unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", protected_namespaces=())


async def read(request: Request, model: type[ModelT], *, silence_s: float = SILENCE_S) -> ModelT:
    """Read a request's JSON body as ``model``, with limits for its size and for pauses.

    Below Ollama's paths the body is JSON whatever its Content-Type says.

    Raises:
        HTTPError: 408, 413, 415, 400 or 422, with the field.
    """
    # Read in any case: a refusal while the client still sends would be lost with the connection.
    content = await _content(request, service_of(request).body_limit, silence_s)
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    kind = kind.strip().lower()
    is_json = kind == "application/json" or kind.endswith("+json")
    if not is_json and not request.url.path.startswith(OLLAMA):
        message = f"the body has to be JSON, not {kind or 'without a type'}; send Content-Type: application/json"
        raise HTTPError(415, message)
    charset = parameters.partition("charset=")[2].strip(' "').lower()
    if charset not in ("", "utf-8", "utf8", "us-ascii"):
        raise HTTPError(415, f"the body is in {charset}; JSON is sent as UTF-8")
    if len(content) < _LONG_BYTES:
        checked: ModelT | HTTPError = _validate(content, model)
    else:
        checked = await run_work(request, _validate, content, model)
    # An exception holds the variables of this function while it is handled.
    del content
    if isinstance(checked, HTTPError):
        raise checked
    return checked


def _validate(content: bytes, model: type[ModelT]) -> ModelT | HTTPError:
    """Return the body as ``model``, or the refusal: an exception raised here would keep the body alive."""
    if count_values(content) > MOST_VALUES:
        return HTTPError(413, f"the body has more than {MOST_VALUES:,} values; send fewer at once")
    content = content.removeprefix(_BYTE_ORDER_MARK)
    value = _json(content)
    if isinstance(value, HTTPError) and (b"\\u" in content or b"\xed" in content):
        # A program that cuts a text inside an emoji sends the half of it in every later request.
        # A pair of escaped surrogates stays as it is, and half of one becomes U+FFFD after its backslashes.
        content = _SURROGATES.sub(
            lambda surrogates: surrogates[0] if surrogates[2] else (surrogates[1] or b"") + b"\xef\xbf\xbd", content
        )
        value = _json(content)
    if isinstance(value, HTTPError):
        return value
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        return refusal(error, value)


def query(request: Request, model: type[ModelT]) -> ModelT:
    """Read the query of a request's address as ``model``; an HTTPError 422 names a wrong parameter."""
    values = dict(request.query_params)
    try:
        return model.model_validate_strings(values)
    except ValidationError as error:
        raise refusal(error, values) from None


def refusal(error: ValidationError, value: Any) -> HTTPError:
    """The 422 that names the first field that is wrong in ``value``, unless listing all of them would take long."""
    if error.error_count() > _MOST_ERRORS:
        return HTTPError(422, f"the body is wrong in {error.error_count():,} places; send a part of it to learn where")
    details = error.errors(include_url=False, include_context=False, include_input=False)
    # The ways to the fields through the value, without the names of unions and types that pydantic puts into them.
    paths: list[list[str | int]] = []
    for detail in details:
        inner, path, is_missing = value, list[str | int](), detail["type"] == "missing"
        for index, step in enumerate(detail["loc"]):
            try:
                inner = inner[step]
            except (LookupError, TypeError):
                if not is_missing or index < len(detail["loc"]) - 1:
                    continue
            path.append(step)
        paths.append(path)
    # Of a union every member complains. What was meant is the one that got furthest into the value, with the least to
    # say; its name is what the place leaves out.
    members = [
        tuple(step for step in detail["loc"] if step not in path) for detail, path in zip(details, paths, strict=True)
    ]
    count_of_members = Counter(members)
    best = max(range(len(details)), key=lambda index: (len(paths[index]), -count_of_members[members[index]]))
    detail = details[best]
    dotted_path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in paths[best])
    param = dotted_path.removeprefix(".")
    return HTTPError(422, f"{param or 'the body'}: {detail['msg']}", param=param or None, code=detail["type"])


async def _content(request: Request, limit: int, silence_s: float) -> bytes:
    length = request.headers.get("content-length", "")
    is_announced = length.isdecimal() and int(length) > limit
    if is_announced and request.headers.get("expect", "").lower() == "100-continue":
        # It waits for a word before it sends so much, and this is the word.
        raise _too_large(limit)
    # Of a body whose length is not announced the longest is expected, once it is longer than what is not counted.
    encoding = request.headers.get("content-encoding", "").strip().lower()
    is_known = length.isdecimal() and encoding in _PLAIN
    body_lease = await hold_body(request, int(length) if is_known and not is_announced else 0, limit)
    content, size = bytearray(), 0
    # Excess data is read and dropped, within reason.
    async for chunk in limit_body(request, limit, silence_s, most=4 * limit).stream():
        size += len(chunk)
        if size > limit:
            content.clear()
        elif not is_known and size > UNCOUNTED_BYTES and not body_lease.size:
            body_lease = await hold_body(request, limit, limit)
        if size <= limit and not is_announced:
            content += chunk
    if size > limit:
        body_lease.shrink(0)
        raise _too_large(limit)
    body = bytes(content)
    if encoding not in _PLAIN:
        body = await run_work(request, decompress, body, encoding, limit)
    body_lease.shrink(len(body))
    return body


_PLAIN = ("", "identity")


def decompress(body: bytes, encoding: str, limit: int) -> bytes:
    """Return a body without its compression, which programs add to long ones.

    Raises:
        HTTPError: 413, it has more than ``limit`` bytes; 415, another compression; 400, it is not what it says.
    """
    try:
        if encoding in ("gzip", "x-gzip", "deflate"):
            # Of deflate there are two forms, with a header and without.
            is_raw = encoding == "deflate" and body[:1] != b"\x78"
            unpacker = zlib.decompressobj(-zlib.MAX_WBITS if is_raw else zlib.MAX_WBITS | 32)
            content = unpacker.decompress(body, limit + 1)
            is_whole = unpacker.eof
        elif encoding == "zstd":
            frame = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _MOST_WINDOW_LOG})
            content = frame.decompress(body, limit + 1)
            is_whole = frame.eof
        else:
            message = (
                f"Content-Encoding {encoding} is not understood here; send gzip, deflate, zstd or the body as it is"
            )
            raise HTTPError(415, message)
    except (zlib.error, zstd.ZstdError) as error:
        raise HTTPError(400, f"the body is not {encoding}: {error}; send it again") from None
    if len(content) > limit:
        raise _too_large(limit)
    if not is_whole:
        raise HTTPError(400, f"the body is not {encoding}: its end is missing; send it again")
    return content


def limit_body(
    request: Request,
    limit: int,
    silence_s: float = SILENCE_S,
    *,
    most: int | None = None,
    problem: HTTPError | None = None,
) -> Request:
    """Return the request with a limit on pauses in its body and on its size, up to ``most`` of which are read.

    Reading raises HTTPError: 408, or ``problem``, a 413, for a body that is too long.
    """
    receive = uploads.limit_receive(
        request.receive,
        most or limit,
        too_large=lambda: problem or _too_large(limit),
        stalled=lambda words: HTTPError(408, f"the body {words}; send it again"),
        silence_s=silence_s,
    )
    return Request(request.scope, receive)


def _too_large(limit: int) -> HTTPError:
    megabytes = limit / MEBIBYTE
    message = (
        f"the body is larger than {megabytes:g} MB, where a picture takes a third more than its file; send less, or "
        "raise body_mb in [service] of the board"
    )
    return HTTPError(413, message)


def _json(content: bytes) -> Any:
    """Return the value, or the HTTPError for what is not JSON."""
    if not content.strip():
        return HTTPError(400, "the body is empty; send JSON, with its Content-Length")
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        return HTTPError(400, f"the body is not UTF-8 at byte {error.start}; send JSON as UTF-8")
    try:
        value = from_json(content, allow_inf_nan=False)
    except ValueError as error:
        return HTTPError(400, f"the body is not JSON: {error}")
    if _has_infinity(value):
        return HTTPError(400, "the body is not JSON: a number is too large")
    return value


def _has_infinity(value: Any) -> bool:
    """Return True if a number was read as infinity; the parser limits the depth."""
    if isinstance(value, dict):
        return any(map(_has_infinity, cast("dict[str, Any]", value).values()))
    if isinstance(value, list):
        return any(map(_has_infinity, cast("list[Any]", value)))
    return isinstance(value, float) and math.isinf(value)
