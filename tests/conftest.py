"""What every test may use."""

from __future__ import annotations

import signal
import uuid

import pytest

# A shell that starts the tests in the background has SIGINT ignored, and so would every program that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def own_memory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the program remembers between runs begins empty in every test, and is never the developer's own."""
    monkeypatch.setenv("RKLLM_MCP_STATE", str(tmp_path_factory.getbasetemp() / "state" / uuid.uuid4().hex))
