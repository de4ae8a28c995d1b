"""``setup`` in an empty home: what it creates, that it goes on where it was stopped, and what ``--undo`` takes back."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import httpx2
import pexpect
import pytest

from rkllm_mcp.board.machine import Machine
from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.diagnostics import checks
from rkllm_mcp.store import open_store
from rkllm_mcp.surfaces.cli.service import qr_text
from tests.models.test_gguf import write_talking_gguf
from tests.support.board_trees import LAPTOP, MAINLINE_ROCK_5B, ORANGE_PI_5, RK3562, RK3576, RK3588, ROCK_5B_OLD, plant
from tests.support.demo_model import DEMO_TOKENIZER
from tests.support.emulator import libraries, make_fake_llama
from tests.support.fake_hub import FakeHub, running
from tests.support.outcome import Command, Outcome, run_here
from tests.support.rkllm_files import container

_PATIENCE_S = 120
MODEL, REPOSITORY = "qwen2.5-0.5b", "ThomasTheMaker/Qwen2.5-0.5B-Instruct-RKLLM-1.2.0"
FILE = "Qwen2.5-0.5B-Instruct-1.2.0.rkllm"
SCRIPT = """RKLLM-EMULATOR 1
vocabulary tokenizer.json
eos <|im_end|>
context 4096
speed flat
rule
  user [Ww]hat time|何時
  not result [0-9]:[0-9]
  call clock {}
rule
  say It is late.
"""


@dataclass
class Home:
    """A home folder, and the environment of its commands."""

    path: Path
    env: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        return {**kept, "HOME": str(self.path), **self.env}

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "rkllm_mcp", *words]
        out, closed = subprocess.PIPE, subprocess.DEVNULL
        return subprocess.Popen(
            command, cwd=self.path, env=self.environment, text=True, stdin=closed, stdout=out, stderr=out
        )

    def run_here(self, *words: str) -> tuple[int, str, str]:
        """As ``run`` in this process, for what fetches no model: its library reads HF_ENDPOINT when it is imported."""
        done = run_here(self.environment, *words, folder=self.path)
        return done.returncode, done.stdout, done.stderr.replace(f"{self.path}/", "")

    def run(self, *words: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        process = self.start(*words)
        out, err = process.communicate(timeout=_PATIENCE_S)
        return process.returncode, out, err.replace(f"{self.path}/", "")

    @property
    def files(self) -> list[str]:
        """The files and folders that are not state, relative to the home."""
        return sorted(
            str(path.relative_to(self.path))
            for path in self.path.rglob("*")
            if not path.is_relative_to(self.path / ".local/state") and not path.is_relative_to(self.path / ".cache")
        )


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "home").mkdir()
    return Home(tmp_path / "home")


CONFIG = ".config/rkllm-mcp/config.toml"


def test_setup_without_an_npu_ends_with_an_answer_that_used_a_tool_and_is_undone(home: Home) -> None:
    code, out, err = home.run_here("setup", "--yes", "--emulated", "--no-service")
    # Nothing listens, so there is no code that would run out before anything does.
    assert (code, out) == (0, ""), err
    assert "While it runs, 'rkllm-mcp service link' shows the address of the page" in err
    for line in ("✓ local: 4 tools", "✓ files: 3 tools", "✓ It called clock and answered.", f"Wrote {CONFIG}"):
        assert f"{line}\n" in err, err
    config = load_config(home.path / CONFIG)
    assert [server.name for server in config.servers] == ["local", "weather", "files"]
    assert (config.service.host, config.service.api_keys, config.model.name) == ("127.0.0.1", (), "demo")
    written = (home.path / CONFIG).read_bytes()
    code, out, err = home.run_here("setup", "--yes", "--emulated", "--no-service", "--lan")
    assert (code, (home.path / CONFIG).read_bytes()) == (0, written)
    assert f"{CONFIG} exists and is not changed.\n" in err
    assert '    [service]\n    host = "0.0.0.0"\n' in err
    (home.path / "rkllm-mcp-files" / "mine.txt").touch()
    code, out, err = home.run_here("setup", "--undo")
    assert (code, out) == (0, "")
    assert err.startswith(f"Removed {CONFIG}\nKept rkllm-mcp-files: there are files in it.\n")
    assert home.files == [".config", ".local", "rkllm-mcp-files", "rkllm-mcp-files/mine.txt"]


def test_files_changed_since_then_stay_and_are_named(home: Home) -> None:
    assert home.run("setup", "--yes", "--emulated", "--no-service", "--lan")[0] == 0
    config = load_config(home.path / CONFIG)
    assert (config.service.host, config.service.api_keys[0].startswith("sha256:")) == ("0.0.0.0", True)
    with (home.path / CONFIG).open("a") as file:
        file.write("# mine\n")
    code, _, err = home.run("setup", "--undo")
    assert (code, err.startswith(f"Kept {CONFIG}: it was changed since.\nRemoved rkllm-mcp-files\n")) == (0, True)
    assert home.run("setup", "--undo")[2].startswith(f"Kept {CONFIG}: it was changed since.\n")
    with (home.path / CONFIG).open("a") as file:
        file.write(
            f'[[servers]]\nname = "knowledge"\ncommand = "{sys.executable}"\nargs = ["-m", "mcp_servers.knowledge"]\n'
        )
    embedders = home.path / ".local/share/rkllm-mcp/embedders"
    embedders.parent.mkdir(parents=True, exist_ok=True)
    embedders.touch()
    code, _, err = home.run("setup", "--yes", "--emulated", "--no-service")
    assert (code, "until it is there, they are found by their words" in err) == (0, True), err
    embedders.unlink()
    code, _, err = home.run("setup", "--yes", "--emulated", "--no-service")
    assert (code, (embedders / "default").resolve()) == (0, embedders / "universal-sentence-encoder"), err
    code, _, err = home.run("setup", "--undo")
    assert (code, (embedders / "universal-sentence-encoder").exists()) == (0, False), err


def test_without_a_terminal_and_yes_nothing_is_asked_and_nothing_made(home: Home) -> None:
    assert home.run_here("setup") == (
        2,
        "",
        "Error: setup asks a few questions; run it in a terminal, or with --yes\n",
    )
    assert home.run_here("setup", "--undo")[2] == "There is nothing to undo: setup has created nothing here.\n"
    assert home.files == []


@pytest.fixture
def board(home: Home, tmp_path: Path) -> Generator[FakeHub]:
    """An RK3588 as far as files tell, and a stand-in for both repositories."""
    library = libraries()["1.3.0"].read_bytes()
    plain = {
        "release-v1.3.0/LICENSE": b"Rockchip's licence\n",
        "release-v1.3.0/rkllm-runtime/Linux/librkllm_api/aarch64/librkllmrt.so": library,
    }
    weights = container(weights=bytes(4 << 20))
    files = {REPOSITORY: {FILE: weights}, "Qwen/Qwen2.5-0.5B-Instruct": {"tokenizer.json": DEMO_TOKENIZER.read_bytes()}}
    with running(FakeHub(files=files, plain=plain)) as hub:
        mirror = tmp_path / "mirror.json"
        checksums = {"1.3.0": hashlib.sha256(library).hexdigest()}
        mirror.write_text(json.dumps({"address": hub.url, "checksums": checksums}))
        home.env |= {
            "RKLLM_MCP_MACHINE_ROOT": str(plant(tmp_path / "board", RK3588)),
            "RKLLM_MCP_RUNTIMES": str(mirror),
            "HF_ENDPOINT": hub.url,
        }
        yield hub


def test_on_a_board_setup_goes_on_where_it_was_stopped_and_is_undone(home: Home, board: FakeHub) -> None:
    model = home.path / ".local/share/rkllm-mcp/models" / MODEL
    words = ("--model", MODEL, "setup", "--yes", "--no-service")
    # The pulled file is no script, so the emulated library that was pulled does not load it.
    code, out, err = home.run(*words)
    assert (code, out) == (3, ""), err
    assert "✓ RK3588, 3 NPU cores (Radxa ROCK 5B)\n" in err
    assert f"✓ {model.relative_to(home.path)}\n" in err
    assert (home.path / CONFIG).is_file()
    fetched = len(board.requests)
    (model / FILE).write_text(SCRIPT)
    code, out, err = home.run(*words)
    assert (code, out) == (0, ""), err
    assert len(board.requests) == fetched
    for line in (f"Here already: {model.relative_to(home.path)}", "✓ It called clock and answered."):
        assert f"{line}\n" in err, err
    code, _, err = home.run("setup", "--undo")
    assert err.startswith(
        f"Removed {CONFIG}\nRemoved rkllm-mcp-files\nKept {model.relative_to(home.path)}: it was changed since.\n"
        "Removed .local/share/rkllm-mcp/runtimes/1.3.0\n"
    )
    assert not (home.path / ".local/share/rkllm-mcp/runtimes").exists()


def test_ctrl_c_during_a_download_keeps_what_came_and_undo_takes_it_back(home: Home, board: FakeHub) -> None:
    board.stall_bytes = 3 << 20
    process = home.start("--model", MODEL, "setup", "--yes", "--no-service")
    parts = home.path / f".local/share/rkllm-mcp/models/.{MODEL}.part"
    assert board.stalled.wait(_PATIENCE_S)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=_PATIENCE_S)
    board.gone.set()
    assert (process.returncode, out) == (130, "")
    assert err.endswith("What has arrived is kept.\nStopped; 'rkllm-mcp setup' goes on from here.\n"), err
    assert "Traceback" not in err
    assert [path.suffix for path in parts.glob("*.incomplete")] == [".incomplete"]
    assert home.run("setup", "--undo")[0] == 0
    assert home.files == [".local", ".local/share"]


def test_setup_for_the_cpu_fetches_a_model_that_answers_and_is_undone(home: Home, tmp_path: Path) -> None:
    weights = write_talking_gguf(tmp_path / "weights.gguf").read_bytes()
    files = {"Qwen/Qwen2.5-1.5B-Instruct-GGUF": {"qwen2.5-1.5b-instruct-q4_k_m.gguf": weights}}
    model = ".local/share/rkllm-mcp/models/qwen2.5-1.5b-cpu"
    with running(FakeHub(files=files)) as hub:
        home.env |= {"HF_ENDPOINT": hub.url, "RKLLM_EMULATOR_LLAMA": str(make_fake_llama(tmp_path))}
        code, out, err = home.run("setup", "--yes", "--cpu", "--no-service")
        assert (code, out) == (0, ""), err
        for line in (
            "  1  qwen2.5-1.5b  (1117 MB, Apache-2.0)  answers and tools in English and Japanese on a PC",
            f"✓ {model}",
            "◆ ok",
            "[NPU: qwen2.5-1.5b-cpu]",
        ):
            assert f"{line}\n" in err, err
        config = load_config(home.path / CONFIG)
        assert (config.model.name, config.runtime.library) == ("qwen2.5-1.5b-cpu", "emulator")
        fetched = len(hub.requests)
        code, _, err = home.run("--model", "qwen2.5-1.5b-cpu", "setup", "--yes", "--cpu", "--no-service")
        assert (code, len(hub.requests)) == (0, fetched)
        assert f"Here already: {model}\n" in err
    assert home.run("setup", "--undo")[0] == 0
    assert not (home.path / model).exists()


def test_a_qr_code_is_drawn_dark_on_light_with_its_margin() -> None:
    lines = qr_text("http://192.0.2.2:8080/#/link/x", color=False).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert (set(lines[0]), lines[1][:9]) == ({"█"}, "██ ▄▄▄▄▄ ")
    assert qr_text("x", color=True).startswith("\x1b[97;40m██")


def test_devices_are_linked_listed_and_revoked_in_the_shell(command: Command, tmp_path: Path) -> None:
    code = command("service", "link").out.strip().rpartition("/")[2]

    async def exchange() -> str:
        async with open_store(path=tmp_path / ".local/state/rkllm-mcp/state.db") as store:
            linked = await store.devices.exchange(code, "phone")
            assert linked is not None
            return linked[0].id

    number = anyio.run(exchange)
    heading, row = command("service", "keys").out.splitlines()
    assert (heading.split(), row.split()[0], row.split()[-1]) == (["ID", "LINKED", "RIGHTS", "DEVICE"], number, "phone")
    nothing = Outcome(0, "", "No device has a key; 'rkllm-mcp service link' links one.\n")
    assert command("service", "keys", "--revoke", number) == nothing
    assert command("service", "keys", "--revoke", number) == Outcome(
        2, "", f"Error: there is no device '{number}'; 'rkllm-mcp service keys' lists them\n"
    )


BOARDS: dict[str, dict[str, str | None]] = {
    "orange pi 5": {**ORANGE_PI_5},
    "old driver": {**ROCK_5B_OLD},
    "mainline": {**MAINLINE_ROCK_5B},
    "rk3576": {**RK3576},
    "rk3562": {**RK3562},
    "no heap": {**RK3562, "dev/dma_heap/system": None},
    "laptop": {**LAPTOP},
    "nothing": {},
    "container": {"proc/device-tree": "-> /nowhere", "sys/module/rknpu/initstate": "live\n"},
    "driver 0.9.7": {**ORANGE_PI_5, "sys/kernel/debug/rknpu/version": "RKNPU driver: v0.9.7\n"},
    "driver 0.9.2": {**ORANGE_PI_5, "sys/kernel/debug/rknpu/version": "RKNPU driver: v0.9.2\n"},
    "link": {**ORANGE_PI_5, "dev/rknpu": "-> dri/card1"},
    "no nodes": {**ORANGE_PI_5, "dev/dri/card1": None, "dev/dri/renderD129": None},
}


@pytest.mark.parametrize("is_usable", [True, False])
@pytest.mark.parametrize("name", BOARDS)
def test_every_finding_about_a_board_has_a_japanese_text(tmp_path: Path, name: str, is_usable: bool) -> None:
    machine = Machine(plant(tmp_path, BOARDS[name]), can_use=lambda path: is_usable)
    texts = read_catalogue("ja").table("setup.findings")
    for check in (checks.check_soc, checks.check_driver, checks.check_device, checks.check_gomp):
        for finding in check(machine):
            for sentence in filter(None, (finding.found, finding.remedy)):
                assert any(re.fullmatch(pattern, sentence) for pattern in texts), sentence
                words = read_catalogue("ja").translate_text("setup.findings", sentence)
                english = re.findall(r"\b(?:the|which|this|that|install|with|no|not)\b", words, re.IGNORECASE)
                assert not english, words


@pytest.mark.parametrize("has_npm", [True, False])
def test_without_an_npu_a_model_on_the_cpu_is_offered_first_where_it_can_be_had(home: Home, *, has_npm: bool) -> None:
    bin_folder = home.path / "bin"
    bin_folder.mkdir()
    if has_npm:
        (bin_folder / "npm").write_text("#!/bin/sh\nexit 1\n")
        (bin_folder / "npm").chmod(0o755)
    machine = plant(home.path / "machine", {**LAPTOP})
    environment = {"PATH": str(bin_folder), "HOME": str(home.path), "LANG": "C.UTF-8", "TERM": "xterm"}
    terminal: pexpect.spawn[str] = pexpect.spawn(
        sys.executable,
        ["-m", "rkllm_mcp", "setup", "--no-service"],
        env={**environment, "RKLLM_MCP_MACHINE_ROOT": str(machine)},  # pyright: ignore[reportArgumentType]
        cwd=str(home.path),
        encoding="utf-8",
        timeout=_PATIENCE_S,
        dimensions=(60, 200),
    )
    choices = {"--cpu": "this machine's CPU computes a small", "--emulated": "a script answers a handful of questions"}
    if not has_npm:
        choices = dict(reversed(choices.items()))
    try:
        terminal.expect_exact("There is no NPU here that the runtime supports. Instead of it:")
        if not has_npm:
            terminal.expect_exact(
                "! --cpu: npm is needed to fetch llama.cpp's library. Install it: sudo apt install npm."
            )
        for count, (choice, words) in enumerate(choices.items(), 1):
            terminal.expect_exact(f"  {count}  {choice}  {words}")
        terminal.expect_exact("(Enter: 1)?")
        terminal.sendline("")
        terminal.expect_exact("The CPU of this machine computes the model" if has_npm else "answers come from a script")
        terminal.expect_exact("2/7 The runtime library")
        terminal.sendintr()
        terminal.expect(pexpect.EOF)
    finally:
        terminal.close(force=True)


def test_the_page_is_shown_when_it_answers_and_the_assistant_ends_with_ctrl_c(home: Home) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home.path), "LANG": "C.UTF-8", "TERM": "xterm"}
    words = ["-m", "rkllm_mcp", "setup", "--emulated", "--no-service"]
    terminal: pexpect.spawn[str] = pexpect.spawn(
        sys.executable,
        words,
        env=environment,  # pyright: ignore[reportArgumentType]
        cwd=str(home.path),
        encoding="utf-8",
        timeout=_PATIENCE_S,
        dimensions=(60, 120),
    )
    try:
        terminal.expect("May other devices of your network")
        terminal.sendline("n")
        terminal.expect("A folder whose text files")
        terminal.sendline("")
        terminal.expect("Shall the assistant search documents of yours")
        terminal.sendline("y")
        terminal.expect("Find documents by meaning")
        terminal.sendline("n")
        terminal.expect("Documents are found by their words")
        terminal.expect("Start the assistant now")
        terminal.sendline("")
        terminal.expect(r"http://127\.0\.0\.1:80\d\d/#/link/[\w-]{32}")
        address, _, code = str(terminal.after).partition("/#/link/")
        linked = httpx2.post(f"{address}/v1/devices:exchange", json={"code": code, "name": "phone"}, timeout=60)
        assert linked.status_code == 200
        terminal.expect("Ctrl-C ends it")
        terminal.sendintr()
        terminal.expect(pexpect.EOF)
        terminal.wait()
        assert terminal.exitstatus == 0
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"{address}/healthz")
    finally:
        terminal.close(force=True)
