"""The compose file: a parser of Compose takes it, and its parts, run as processes, are three boards at one address."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from rkllm_mcp.config.loading import load_config
from tests.support.boards import public_configuration, until_line
from tests.support.postgres import PostgresServer
from tests.support.shared import REPOSITORY

FOLDER = REPOSITORY / "deploy" / "compose"
KEY = "sk-rkllm-owner-of-boards"
SECRETS = {"RKLLM_KEY": KEY, "RKLLM_DB_PASSWORD": "secret"}
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))
BOARDS = ("board1", "board2", "board3")


def test_a_parser_of_compose_takes_the_file() -> None:
    if shutil.which("docker-compose") is None:
        pytest.skip("docker-compose is not here: sudo apt install docker-compose")
    command = ["docker-compose", "-f", str(FOLDER / "compose.yaml"), "config", "--quiet"]
    done = subprocess.run(command, env={**os.environ, **SECRETS}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_boards_of_the_file_are_those_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    config = load_config(FOLDER / "boards.toml")
    services = COMPOSE["services"]
    addresses = {name: service["networks"]["boards"]["ipv4_address"] for name, service in services.items()}
    assert [board.address for board in config.boards] == [f"{addresses[name]}:8080" for name in BOARDS]
    assert config.store.url == f"postgresql://rkllm:secret@{addresses['postgres']}/rkllm"
    assert config.service.trusted_proxies == (addresses["proxy"],)
    mounted = {volume.split(":")[0] for service in services.values() for volume in service["volumes"]}
    assert {name for name in mounted if name.startswith("./") and not (FOLDER / name).is_file()} == set()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_its_parts_run_as_processes_are_one_address(tmp_path: Path, postgres: PostgresServer) -> None:
    if shutil.which("haproxy") is None:
        pytest.skip("haproxy is not here: sudo apt install haproxy")
    ports = {name: free_port() for name in BOARDS}
    text = (FOLDER / "boards.toml").read_text("utf-8")
    for number, name in enumerate(BOARDS, 11):
        text = text.replace(f"10.38.0.{number}:8080", f"127.0.0.1:{ports[name]}")
    text = text.replace("postgresql://rkllm:${RKLLM_DB_PASSWORD}@10.38.0.10/rkllm", postgres.new_database())
    config = tmp_path / "boards.toml"
    config.write_text(text.replace("0.0.0.0", "127.0.0.1"), "utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RKLLM", "XDG", "MCP"))}
    environment |= {**SECRETS, "HOME": str(tmp_path), "PYTHONPATH": str(REPOSITORY)}
    program = [sys.executable, "-m", "rkllm_mcp", "--config", str(config)]
    with ExitStack() as stack:
        started: list[subprocess.Popen[str]] = []
        for name, port in ports.items():
            command = [*program, *COMPOSE["x-board"]["command"][3:4], "--port", str(port)]
            own = {**environment, "RKLLM_MCP_STATE": str(tmp_path / name)}
            process = stack.enter_context(subprocess.Popen(command, env=own, stderr=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            started.append(process)
        for process in started:
            until_line(process, "Ready")
        file = tmp_path / "haproxy.cfg"
        subprocess.run([*program, "boards", "haproxy", "--output", str(file)], env=environment, check=True)
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        text = public_configuration(file.read_text("utf-8"), listener.fileno(), tmp_path / "control.sock")
        file.write_text(text, "utf-8")
        proxy = stack.enter_context(
            subprocess.Popen(["haproxy", "-db", "-f", str(file)], pass_fds=[listener.fileno()], stdout=subprocess.PIPE)
        )
        stack.callback(proxy.kill)
        url, headers = f"http://127.0.0.1:{listener.getsockname()[1]}", {"Authorization": f"Bearer {KEY}"}
        assert httpx2.get(f"{url}/v1/models", timeout=60).status_code == 401
        body = {"message": "hello", "stream": False}
        answer = httpx2.post(f"{url}/v1/execute", json=body, headers=headers, timeout=60).raise_for_status()
        path = f"/v1/conversations/{answer.json()['conversation']}"
        for port in ports.values():
            kept = httpx2.get(f"http://127.0.0.1:{port}{path}", headers=headers, timeout=60).raise_for_status().json()
            assert [turn["text"] for turn in kept["messages"]] == ["hello", answer.json()["text"]]
        boards = httpx2.get(f"{url}/v1/boards", headers=headers, timeout=60).json()["boards"]
        assert [(board["name"], board["state"], board["model"]) for board in boards] == [
            (name, "ready", "demo") for name in BOARDS
        ]
