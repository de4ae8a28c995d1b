"""Notices of schedules to addresses of other programs: one POST, signed, tried again if it fails.

    json   {"schedule", "outcome", "title", "text", …}   n8n, Home Assistant's webhook trigger, programs of one's own
    text   the text alone, the title as header           ntfy

The signature is HMAC-SHA256 of ``TIMESTAMP.BODY`` with the schedule's secret, as hexadecimal digits.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from email.header import Header

import anyio

from rkllm_mcp import __version__
from rkllm_mcp.config.addresses import Reach
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.records import Schedule, ScheduleRun
from rkllm_mcp.schedules.rules import read_zone
from rkllm_mcp.text import first_line, shorten

SIGNATURE, TIMESTAMP = "X-Rkllm-Signature", "X-Rkllm-Timestamp"
_TIMEOUT_S = 10.0
# Pauses before the attempts.
_PAUSES_S = (0.0, 5.0, 30.0)
_REASON_CHARS = 200
_SERVER_ERROR = 500
_REMEDY = "a tenant's webhook leads to the public network only; ask the owner of the service"


@dataclass(frozen=True)
class Notice:
    """What a person is told of a run."""

    title: str
    text: str


async def post_webhook(
    schedule: Schedule,
    run: ScheduleRun,
    notice: Notice,
    *,
    is_public_only: bool = False,
    pause: Callable[[float], Awaitable[None]] = anyio.sleep,
) -> str:
    """Send a notice and return what became of it, such as ``200`` or the reason of the last failure.

    A redirection is not followed. With ``is_public_only`` the address may not lead to a private network, nor to this
    machine.
    """
    import httpx2

    headers = {"User-Agent": f"rkllm-mcp/{__version__}"}
    if schedule.webhook_form == "text":
        body = notice.text.encode("utf-8", "replace")
        # A header has ASCII only; ntfy reads RFC 2047.
        title = notice.title if notice.title.isascii() else Header(notice.title, "utf-8", maxlinelen=998).encode()
        headers |= {"Content-Type": "text/plain; charset=utf-8", "Title": title}
    else:
        values = {
            "schedule": schedule.id,
            "run": run.id,
            "prompt": schedule.prompt,
            "outcome": run.outcome,
            "title": notice.title,
            "text": notice.text,
            "due": datetime.fromtimestamp(run.due, read_zone(schedule.zone)).isoformat(timespec="seconds"),
            "late_s": max(0, round(run.claimed - run.due)),
            "conversation": run.conversation or None,
        }
        body = json.dumps(values, ensure_ascii=False).encode("utf-8", "replace")
        headers["Content-Type"] = "application/json"
    reach = Reach("", (), _REMEDY) if is_public_only else None
    outcome = ""
    client = httpx2.AsyncClient(timeout=_TIMEOUT_S, follow_redirects=False)
    async with client:
        for seconds in _PAUSES_S:
            await pause(seconds)
            timestamp = str(int(time.time()))
            digest = hmac.new(schedule.secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
            headers |= {TIMESTAMP: timestamp, SIGNATURE: f"sha256={digest.hexdigest()}"}
            try:
                request = client.build_request("POST", schedule.webhook, headers=headers, content=body)
                if reach is not None:
                    reach.restrict(request)
                response = await client.send(request)
            except ServerUnavailableError as error:
                return shorten(str(error), _REASON_CHARS)
            except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
                outcome = shorten(first_line(str(error)) or type(error).__name__, _REASON_CHARS)
                continue
            outcome = str(response.status_code)
            if response.status_code < _SERVER_ERROR:
                return outcome
    return outcome
