"""The wire log has every message, is its owner's alone, and stays bounded."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.mcp_client import wire_log
from rkllm_mcp.mcp_client.lifecycle import open_connection_services
from rkllm_mcp.mcp_client.wire_log import WireLog
from rkllm_mcp.tools.tool_servers import open_toolbox
from tests.support.mcp_servers.calling import said
from tests.support.mcp_servers.specs import PATIENCE_S, tiny


@pytest.mark.anyio
async def test_every_message_of_a_session_is_logged_in_order(tmp_path: Path) -> None:
    with anyio.fail_after(PATIENCE_S), open_connection_services(tmp_path / "state", log_wire=True) as host:
        async with open_toolbox([tiny("t", "legacy")], host=host) as toolbox:
            await toolbox.wait_until_connected()
            assert await said(toolbox, "add", a=1, b=2) == ("3", False)
    log = tmp_path / "state" / "wire.log"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    told = [(line["direction"], line["message"].get("method", "")) for line in lines]
    assert told[:4] == [("sent", "server/discover"), ("received", ""), ("sent", "initialize"), ("received", "")]
    assert ("sent", "tools/call") in told
    assert {line["server"] for line in lines} == {"t"}
    assert lines[-1]["message"]["result"]["content"] == [{"type": "text", "text": "3"}]
    assert log.stat().st_mode & 0o777 == 0o600


def test_what_looks_like_a_secret_is_replaced(tmp_path: Path) -> None:
    log = WireLog(tmp_path / "wire.log")
    write = partial(log.write, "s", lambda text: text.replace("hidden", "[REDACTED]"))
    arguments = {"api_key": "abc", "note": "a hidden thing", "text": "ghp_0123456789abcdefghij"}
    write("sent", {"method": "tools/call", "params": {"arguments": arguments}})
    log.close()
    write("sent", {"method": "too late"})
    (line,) = (tmp_path / "wire.log").read_text().splitlines()
    shown = {"api_key": "[REDACTED]", "note": "a [REDACTED] thing", "text": "[REDACTED]"}
    assert json.loads(line)["message"]["params"]["arguments"] == shown


def test_a_full_log_makes_way_for_a_new_one(tmp_path: Path) -> None:
    log = WireLog(tmp_path / "wire.log", max_bytes=500)
    write = partial(log.write, "s", str)
    for number in range(20):
        write("sent", {"number": number})
    log.close()
    files = {path.name: path.read_text().splitlines() for path in tmp_path.iterdir()}
    assert set(files) == {"wire.log", "wire.log.1"}
    kept = [json.loads(line)["message"]["number"] for line in files["wire.log.1"] + files["wire.log"]]
    assert kept == [*range(20 - len(kept), 20)]
    assert all(sum(map(len, lines)) < 700 for lines in files.values())
    assert wire_log.MAX_BYTES > 1_000_000
