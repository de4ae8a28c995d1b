"""The service on a socket, with a model that plays a script: what a program meets, in a thread next to the test."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
import uvicorn

from rkllm_base.listener import listening_socket
from rkllm_mcp.app.tenants import open_tenants
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.store import open_store
from rkllm_mcp.surfaces.http.app import create_app
from rkllm_mcp.surfaces.http.schedules import run_schedules
from rkllm_mcp.surfaces.http.state import ServiceState
from tests.support.demo_app import PythonServer, make_demo
from tests.support.demo_model import DEMO_TOKENIZER

_STARTED_WITHIN_S = 60.0
_CARD = """name = "{name}"
template = "{template}"
file = "model.rkllm"
tokenizer = "{tokenizer}"
emulated = true
"""
_HEAD = """RKLLM-EMULATOR 1
vocabulary tokenizer.json
eos <|im_end|>
context {context}
speed {speed}
"""
# A speed at which an answer lasts long enough for a client to leave or to stop it: forty tokens in a second.
SLOW = "prefill 5000 decode 40"


def scripted_model(
    folder: Path,
    rules: str,
    *,
    name: str = "parrot",
    template: str = "qwen2.5",
    context: int = 4096,
    speed: str = "flat",
    is_held: bool = False,
) -> Path:
    """A model folder that plays ``rules`` at a ``speed`` (native/README.md), with the demo's tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_bytes(DEMO_TOKENIZER.read_bytes())
    card = _CARD.format(name=name, template=template, tokenizer="tokenizer.json")
    (folder / "model.toml").write_text(f"{card}held = true\n" if is_held else card, "utf-8")
    (folder / "model.rkllm").write_text(_HEAD.format(context=context, speed=speed) + rules, "utf-8")
    return folder


def ranking_model(folder: Path) -> Path:
    """A model folder whose tokenizer has words for yes and no."""
    scripted_model(folder, "rule\n  user <Query>:(.*)<Document>:(.*)\n  rank yes no\n", name="judge")
    state = json.loads(DEMO_TOKENIZER.read_text("utf-8"))
    state["model"]["vocab"]["yes"] = len(state["model"]["vocab"])
    state["model"]["merges"].append(["y", "es"])
    for token in state["added_tokens"]:
        token["id"] += 1
    (folder / "tokenizer.json").write_text(json.dumps(state), "utf-8")
    return folder


@dataclass
class Served:
    """A running service.

    Args:
        url: where, without a path.
        service: what is behind it; it lives in another thread, so a test only looks at it.
        log: every call that the emulated runtime has had.
    """

    log: Path
    url: str = ""
    service: ServiceState | None = None
    failure: BaseException | None = None
    started: threading.Event = field(default_factory=threading.Event)

    def runs(self) -> list[dict[str, Any]]:
        """What the emulator says of every run so far: ``prompt``, ``sampled``, ``prefill_tokens``, …."""
        calls = map(json.loads, self.log.read_text("utf-8").splitlines())
        return [call["run"] for call in calls if call["call"] == "rkllm_run"]

    def new_code(self) -> str:
        """A code that links a device, as another process of the owner makes it."""
        assert self.service is not None
        path = self.service.tenants.tenant("").app.store.database.path

        async def make() -> str:
            async with open_store(path=path, required=True) as store:
                return await store.devices.new_code()

        # A test of the page has Playwright's loop in its own thread.
        with ThreadPoolExecutor() as thread:
            return thread.submit(anyio.run, make).result(60)


@contextmanager
def served(
    folder: Path,
    model: Path,
    servers: tuple[PythonServer, ...] = (),
    *,
    extra: str = "",
    speed: str = "flat",
    is_for_the_session: bool = False,
) -> Generator[Served, None, None]:
    """Serve a model folder until the block is left.

    Args:
        speed: if it is empty, the model's script says how fast it is.
        is_for_the_session: the environment is that of before as soon as it has started, for tests of other things.
    """
    demo = make_demo(folder, servers, path=model, extra=extra, speed=speed)
    own = {"RKLLM_MCP_STATE": str(folder / "state"), "RKLLM_EMULATOR_LOG": str(folder / "calls.jsonl")}
    it = Served(folder / "calls.jsonl")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**demo.environment, **own}.items():
            patch.setenv(name, value)
        stop = threading.Event()
        thread = threading.Thread(target=_run, args=(it, demo.config, stop), daemon=True)
        thread.start()
        try:
            assert it.started.wait(_STARTED_WITHIN_S), "the service did not start"
            if it.failure is not None:
                raise it.failure
            if is_for_the_session:
                patch.undo()
            yield it
        finally:
            stop.set()
            thread.join(_STARTED_WITHIN_S)
            assert not thread.is_alive(), "the service did not stop"


def _run(it: Served, config: Path, stop: threading.Event) -> None:
    async def serve() -> None:
        async with open_tenants(load_config(config)) as tenants:
            await tenants.model_host.ready()
            service = ServiceState(tenants, config_file=config, reload=lambda: tenants.reload(load_config(config)))
            settings = uvicorn.Config(create_app(service), log_level="error", lifespan="off")
            server = uvicorn.Server(settings)
            # It listens before the server does: whoever connects early waits.
            listener = listening_socket("127.0.0.1", 0)
            async with anyio.create_task_group() as tasks, anyio.create_task_group() as clocks:
                tasks.start_soon(server.serve, [listener])
                clocks.start_soon(run_schedules, service)
                it.url, it.service = f"http://127.0.0.1:{listener.getsockname()[1]}", service
                it.started.set()
                await anyio.to_thread.run_sync(stop.wait)
                server.should_exit = True
                clocks.cancel_scope.cancel()

    try:
        anyio.run(serve)
    except BaseException as error:  # noqa: BLE001  (raised in the test's thread)
        it.failure = error
    finally:
        it.started.set()
