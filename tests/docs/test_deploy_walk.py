"""The commands of docs/deploy.md, typed as they are printed on three fresh homes, each under a systemd of its own."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from tests.support.booted import Booted, booted, missing
from tests.support.cut_line import CutLine
from tests.support.postgres import postgres_server
from tests.support.shared import REPOSITORY

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
PAGE = (REPOSITORY / "docs" / "deploy.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PASSWORD = "the password"
# As sudo is where a distribution sets it up: no variable of the caller but those on the line, and no folder of a home.
SUDO = """#!/bin/sh
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root USER=root LOGNAME=root "$@"
"""


def typed(beginning: str) -> str:
    """The block of the page that begins so."""
    (block,) = (text for _, text in BLOCKS if text.startswith(beginning))
    return block


@dataclass(frozen=True)
class Home:
    """A board: a home with the program, and a machine.

    Args:
        places: what stands on the page, and what it is here.
    """

    folder: Path
    machine: Booted
    places: Mapping[str, str]

    @property
    def config(self) -> Path:
        return self.folder / ".config" / "rkllm-mcp" / "config.toml"

    def run(self, line: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Type a line at a shell of the owner of the home, who is root here, without root's variables."""
        for printed, here in self.places.items():
            line = line.replace(printed, here)
        environment = {"HOME": str(self.folder), "LANG": "C.UTF-8", "PYTHONPATH": str(REPOSITORY)}
        environment["PATH"] = f"{self.folder}/.local/bin:{os.environ['PATH']}"
        # The service comes back once its model is loaded.
        script = f"cd {self.folder}; {line}"
        inside = ["nsenter", "--target", str(self.machine.pid), "--mount", "--pid", "--", "bash", "-euc", script]
        return subprocess.run(
            inside, check=False, capture_output=True, text=True, input=stdin, env=environment, timeout=240
        )

    def done(self, line: str, stdin: str = "") -> str:
        """A line that does what it is to do; all that it said."""
        ran = self.run(line, stdin)
        assert ran.returncode == 0, f"{line}\n{ran.stdout}{ran.stderr}"
        return ran.stdout + ran.stderr

    def write(self, block: str) -> None:
        """Write a block of TOML into the configuration, as the page says."""
        for printed, here in self.places.items():
            block = block.replace(printed, here)
        with self.config.open("a", encoding="utf-8") as file:
            file.write(f"\n{block}")


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        found = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in found]


def test_what_the_page_prints_makes_three_boards_of_three_fresh_homes(tmp_path: Path) -> None:
    ports = free_ports(3)
    with postgres_server() as server, ExitStack() as stack:
        # The server of the tests has a socket of the file system alone.
        port = stack.enter_context(CutLine(str(server.folder / ".s.PGSQL.5432"))).port
        # What createuser and createdb do, at a server that the test has started, and what pg_hba.conf is to say.
        server.run(f"CREATE ROLE rkllm LOGIN PASSWORD '{PASSWORD}'")
        server.run("CREATE DATABASE rkllm OWNER rkllm")
        rules = server.folder / "data" / "pg_hba.conf"
        rules.write_text(f"local rkllm rkllm scram-sha-256\n{rules.read_text('utf-8')}", "utf-8")
        server.run("SELECT pg_reload_conf()")
        places = {"192.168.1.11:8080": f"127.0.0.1:{ports[0]}", "192.168.1.10/rkllm": f"127.0.0.1:{port}/rkllm"}
        homes: list[Home] = []
        for number, own_port in enumerate(ports, 1):
            folder = tmp_path / f"home{number}"
            programs = folder / ".local" / "bin"
            programs.mkdir(parents=True)
            (programs / "sudo").write_text(SUDO, "utf-8")
            (programs / "sudo").chmod(0o755)
            (programs / "rkllm-mcp").symlink_to(REPOSITORY / ".venv" / "bin" / "rkllm-mcp")
            place = tmp_path / f"machine{number}"
            place.mkdir()
            home = Home(folder, stack.enter_context(booted(place)), places)
            home.done("rkllm-mcp setup --yes --emulated --no-service")
            # Three boards of one address need three ports.
            text = home.config.read_text("utf-8")
            home.config.write_text(text.replace("port = 8080", f"port = {own_port}"), "utf-8")
            homes.append(home)
        # The service runs as the owner of the configuration, and writes the list of boards into it.
        for home in homes:
            home.done(f"useradd --no-create-home --home-dir {home.folder} pi && chown -R pi: {home.folder}")
        first, second, third = homes
        # [service], whose lines setup has written already.
        (host,) = re.findall(r"^host = .*$", typed("[service]\nhost"), re.MULTILINE)
        text = first.config.read_text("utf-8")
        first.config.write_text(text.replace('host = "127.0.0.1"', host), "utf-8")
        key = first.run("rkllm-mcp config add-key").stdout.strip()
        first.write(typed("[store]"))
        install = typed("sudo RKLLM_DB_PASSWORD=")
        told = first.done(install)
        secret = first.config.parent / "credentials" / "RKLLM_DB_PASSWORD"
        assert f"Wrote {secret}" in told
        assert (secret.read_text("utf-8"), secret.stat().st_mode & 0o777) == (f"{PASSWORD}\n", 0o600)
        for home in (second, third):
            code = first.run("rkllm-mcp boards invite")
            assert code.returncode == 0, code.stderr
            joined = home.done(typed("rkllm-mcp boards join"), stdin=code.stdout)
            assert PASSWORD not in joined
            home.done(re.sub(r"RKLLM_DB_PASSWORD='.*?' ", "", install))
        # One list at all three, which all answer, with one database.
        for home in homes:
            shown = home.done("rkllm-mcp boards status")
            assert shown.count(" ready ") == 3, shown
        authorized = {"Authorization": f"Bearer {key}"}
        body = {"message": "What time is it in London?", "stream": False, "approvals": "grant"}
        url = f"http://127.0.0.1:{ports[2]}"
        asked = httpx2.post(f"{url}/v1/execute", json=body, headers=authorized, timeout=60)
        assert asked.status_code == 200
        for port_of_board in ports:
            kept = httpx2.get(f"http://127.0.0.1:{port_of_board}/v1/conversations", headers=authorized, timeout=60)
            assert [each["title"] for each in kept.json()["conversations"]] == [body["message"]]
        if shutil.which("haproxy") is not None:
            # apt has installed it, and no systemd of the test reloads it.
            _, *lines = typed("sudo apt install haproxy").strip().splitlines()
            for line in lines:
                first.done(line.partition(" && ")[0])
