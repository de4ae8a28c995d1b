"""Commands that use the running service of their user: what they show, what they ask, and what ends with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rkllm_base.folders import state_folder
from rkllm_mcp.catalogue import translate
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.surfaces.cli.attached import attached_lines, service_to_use
from rkllm_mcp.surfaces.invocation import Session
from rkllm_mcp.surfaces.running_service import RunningService, ServiceRecord, running_services
from tests.end_to_end.test_chat import answer, ask, leave, started
from tests.support.demo_app import Demo, command_line, descendants, events_of, make_demo, text_of
from tests.support.feature_demo import DESK, NOTES, make_features
from tests.support.pictures import RED_ABOVE_BLUE
from tests.support.seeing_page import seeing_board
from tests.support.started import Started
from tests.support.started import started as served

EMULATED = "[NPU: emulated; model 'secretary' answers from a script, not from a language model]"
STORY = "Once upon a time there was a board. " * 12


def attached(service: Started) -> str:
    return f"[Service: attached to {service.url}; --alone starts another assistant]"


def story_teller(folder: Path) -> Demo:
    """An assistant that takes a second for five tokens, and has a story to tell."""
    demo = make_features(folder, [DESK], speed="prefill 5000 decode 5")
    script = folder / "secretary" / "secretary.rkllm"
    rule = f"rule\n  user tell a story\n  say {STORY}\n\nrule\n  user capital"
    script.write_text(script.read_text("utf-8").replace("rule\n  user capital", rule), "utf-8")
    return demo


def test_run_and_tools_call_use_the_service_and_load_nothing(tmp_path: Path) -> None:
    demo = make_features(tmp_path, [DESK, NOTES])
    (tmp_path / "bill.txt").write_text("Ask nobody: @desk:memo://monday", "utf-8")
    with served(demo) as service:
        service.await_servers("desk", "notes")
        done = demo.run_here("run", "What is the capital of France?")
        assert (done.returncode, done.stdout) == (0, "◆ Paris.\n")
        assert done.stderr.splitlines() == [attached(service), EMULATED]
        # A file names no resource of a server, however it was sent.
        done = demo.run_here("run", "--json", "What is to be done?", "-f", "bill.txt")
        events = events_of(done.stdout)
        assert events[0] == {"kind": "status", "text": attached(service)}
        assert (text_of(events), events[-1]) == (
            "I do not know.",
            {"kind": "end", "reason": "answered", "error": None},
        )
        assert [event["kind"] for event in events if event["kind"] == "resource"] == []
        # What is not to be stored is not stored.
        assert service.get("/v1/conversations").json()["count"] == 0
        done = demo.run_here("tools", "call", "list_directory")
        assert (done.returncode, done.stderr) == (0, "")
        done = demo.run_here("tools", "call", "-v", "list_directory")
        assert (done.returncode, done.stderr.splitlines()) == (0, [attached(service)])
        refused = demo.run_here("tools", "call", "delete_file", "path=a.txt")
        assert (refused.returncode, refused.stdout) == (1, "")
        (sentence,) = refused.stderr.splitlines()[1:]
        assert sentence.startswith("Error: it was not run, because it may change something and no user could approve")
        allowed = demo.run_here("tools", "call", "--json", "--yes", "delete_file", "path=a.txt")
        (event,) = events_of(allowed.stdout)
        assert (event["kind"], event["name"]) == ("tool_result", "delete_file")
        missing = demo.run_here("tools", "call", "delete_fil")
        assert (missing.returncode, missing.stderr.splitlines()[1:]) == (
            2,
            ["Error: there is no tool 'delete_fil'; did you mean 'delete_file'?"],
        )
        unknown = demo.run_here("--model", "nobody", "run", "Hello")
        assert unknown.returncode == 1
        assert "there is no model 'nobody' here" in unknown.stderr
        alone = demo.run_here("run", "--alone", "What is the capital of France?")
        assert "Loading model 'secretary'" in alone.stderr


def test_pictures_and_the_name_of_another_model_go_over_the_wire(tmp_path: Path) -> None:
    board = seeing_board(tmp_path)
    (board.folder / "flag.png").write_bytes(RED_ABOVE_BLUE)
    with served(board) as service:
        done = board.run_here("run", "What is it?", "-f", "flag.png")
        assert (done.returncode, done.stdout) == (0, "◆ It is red above, blue below.\n")
        assert attached(service) in done.stderr.splitlines()
        with started(board, "chat") as terminal:
            ask(terminal, "What is it? @flag.png")
            terminal.expect_exact("It is red above, blue below.")
            ask(terminal, "still?")
            terminal.expect_exact("Still red above, blue below.")
            assert leave(terminal) == 0
        other = board.run_here("--model", "blind", "run", "Hello")
        assert (other.returncode, other.stdout) == (0, "◆ You said Hello\n")
        assert attached(service) in other.stderr.splitlines()


def test_a_chat_has_approvals_commands_and_resume_over_the_wire(tmp_path: Path) -> None:
    demo = make_features(tmp_path, [DESK, NOTES])
    with served(demo) as service:
        service.await_servers("desk", "notes")
        with started(demo, "chat") as terminal:
            terminal.expect_exact(attached(service))
            ask(terminal, "Delete a.txt")
            answer(terminal, "Run it?", "c")
            terminal.expect("◆ The tool said")
            ask(terminal, "/approve")
            terminal.expect("conversation +notes +delete_file")
            ask(terminal, "/approve forget delete_file")
            terminal.expect("delete_file")
            ask(terminal, "/approve")
            terminal.expect("No approvals or refusals are stored")
            ask(terminal, "/system Be brief.")
            terminal.expect("reads the conversation again")
            ask(terminal, "/set top_k 5")
            ask(terminal, "Compare @desk:memo://monday: What is to be done?")
            terminal.expect_exact("You should buy milk.")
            ask(terminal, "/undo")
            terminal.expect("Taken back: Compare")
            ask(terminal, "What is the capital of France?")
            terminal.expect_exact("Paris.")
            ask(terminal, "/disable nobody")
            terminal.expect("there is no tool 'nobody'")
            ask(terminal, "/save talk.md")
            terminal.expect("Saved to")
            assert descendants(terminal.pid or 0) == set()
            assert leave(terminal) == 0
        talk = (tmp_path / "talk.md").read_text("utf-8")
        assert talk.startswith("> Be brief.\n\n## You\n\nDelete a.txt\n\n## Assistant\n\n`delete_file(")
        assert talk.endswith("## You\n\nWhat is the capital of France?\n\n## Assistant\n\nParis.\n")
        (stored,) = service.get("/v1/conversations").json()["conversations"]
        whole = service.get(f"/v1/conversations/{stored['id']}").json()
        assert (whole["system"], [turn["versions"] for turn in whole["messages"]]) == ("Be brief.", [1, 1, 2, 1])
        with started(demo, "chat", "--continue") as terminal:
            terminal.expect(f"Continuing {stored['id']}")
            ask(terminal, "What is the capital of France?")
            terminal.expect_exact("Paris.")
            assert leave(terminal) == 0
        assert service.get("/v1/conversations").json()["count"] == 1


def test_ctrl_c_stops_one_answer_and_a_killed_service_fails_one(tmp_path: Path) -> None:
    demo = story_teller(tmp_path)
    with served(demo) as service, started(demo, "chat") as terminal, started(demo, "chat") as other:
        ask(terminal, "tell a story")
        terminal.expect("Once upon")
        ask(other, "tell a story")
        terminal.sendintr()
        terminal.expect("Stopped")
        # The answer of the other terminal goes on.
        other.expect("Once upon a time there")
        other.sendintr()
        other.expect("Stopped")
        ask(terminal, "tell a story")
        terminal.expect("Once upon")
        os.kill(service.process.pid, signal.SIGKILL)
        terminal.expect_exact("Error: the service ended before the answer did")
        ask(terminal, "Hello")
        terminal.expect_exact("Error: the service has ended; start it again")
        with served(demo):
            ask(terminal, "What is the capital of France?")
            terminal.expect_exact("Paris.")
            assert leave(terminal) == 0
        assert leave(other) == 0


def test_a_stopped_run_ends_as_cancelled(tmp_path: Path) -> None:
    demo = story_teller(tmp_path)
    with served(demo) as service, demo.started("run", "--json", "tell a story") as asking:
        assert asking.stdout is not None
        lines = iter(asking.stdout.readline, "")
        assert next(line for line in lines if '"kind":"text"' in line)
        asking.send_signal(signal.SIGINT)
        assert json.loads(list(lines)[-1]) == {"kind": "end", "reason": "cancelled", "error": None}
        assert asking.wait(60) == 130
        workers = [pid for pid in descendants(service.process.pid) if "runtime.worker" in command_line(pid)]
        assert len(workers) == 1


@pytest.mark.parametrize(
    ("session", "alone", "environment", "is_used"),
    [
        ({}, False, {}, True),
        ({"model": "other"}, False, {}, True),
        ({}, True, {}, False),
        ({"model": "models/other"}, False, {}, False),
        ({"no_mcp": True}, False, {}, False),
        ({"runtime": "emulator"}, False, {}, False),
        ({"config_path": "other.toml"}, False, {}, False),
        ({}, False, {"RKLLM_MCP_AGENT__MAX_ROUNDS": "3"}, False),
    ],
)
def test_a_service_is_used_for_its_own_configuration_only(
    session: dict[str, object],
    alone: bool,
    environment: dict[str, str],
    is_used: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    make_demo(tmp_path, [])
    (tmp_path / "other.toml").write_text('[model]\nname = "demo"\n', "utf-8")
    record = ServiceRecord("http://127.0.0.1:1", load_config())
    with record.announce():
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        mine = Session(**session)  # pyright: ignore[reportArgumentType]
        config = load_config(mine.config_path)
        found = service_to_use(mine, config, alone=alone)
        assert (found.key if found is not None else None) == (record.key if is_used else None)
    assert running_services() == []


def test_a_record_of_a_service_that_was_killed_is_not_believed(tmp_path: Path) -> None:
    program = (
        "from rkllm_mcp.config.sections import Config\n"
        "from rkllm_mcp.surfaces.running_service import ServiceRecord\n"
        "with ServiceRecord('http://127.0.0.1:1', Config()).announce():\n"
        "    print('written', flush=True)\n"
        "    input()\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        (service,) = running_services()
        assert (service.pid, service.address) == (process.pid, "http://127.0.0.1:1")
        folder = state_folder() / "services"
        assert [file.stat().st_mode & 0o777 for file in folder.iterdir()] == [0o600]
        process.kill()
        process.wait()
        assert running_services() == []
        assert list(folder.iterdir()) == []


def test_a_service_read_back_knows_what_its_environment_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RKLLM_MCP_AGENT__MAX_ROUNDS", "3")
    with ServiceRecord("http://127.0.0.1:1", load_config()).announce():
        (service,) = running_services()
        assert isinstance(service, RunningService)
        assert service.is_for(load_config())
        monkeypatch.delenv("RKLLM_MCP_AGENT__MAX_ROUNDS")
        # What only the service has, such as the folder of a unit's models, is no difference.
        assert service.is_for(load_config())
        monkeypatch.setenv("RKLLM_MCP_AGENT__MAX_ROUNDS", "4")
        assert not service.is_for(load_config())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start the service of another user")
def test_a_service_of_another_user_is_named_and_nothing_is_loaded_without_alone(tmp_path: Path) -> None:
    program = (
        "import encodings.idna, os\n"
        "from http.server import BaseHTTPRequestHandler, HTTPServer\n"
        "class Ready(BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200)\n"
        "        self.end_headers()\n"
        '        self.wfile.write(b\'{"status": "ready"}\')\n'
        # What is imported before may be in a folder that this user cannot enter.
        "os.setuid(65534)\n"
        "server = HTTPServer(('127.0.0.1', 0), Ready)\n"
        "print(server.server_port, flush=True)\n"
        "server.serve_forever()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as foreign:
        try:
            assert foreign.stdout is not None
            address = f"http://127.0.0.1:{int(foreign.stdout.readline())}"
            demo = make_demo(tmp_path, [], extra=f"[service]\nport = {address.rpartition(':')[2]}\n")
            refused = demo.run_here("run", "Hello")
            assert (refused.returncode, refused.stdout, refused.stderr) == (
                2,
                "",
                f"Error: {translate('attached.foreign', address=address)}\n",
            )
            alone = demo.run_here("run", "--alone", "Hello")
            assert (alone.returncode, "Loading model 'demo'" in alone.stderr) == (0, True), alone.stderr
        finally:
            foreign.kill()


def test_a_configuration_that_was_changed_since_is_said_in_one_more_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config_file = make_demo(tmp_path, []).config
    with ServiceRecord("http://127.0.0.1:1", load_config()).announce():
        (service,) = running_services()
        attached_line = "[Service: attached to http://127.0.0.1:1; --alone starts another assistant]"
        assert attached_lines(Session(), load_config(), service) == [attached_line]
        os.utime(config_file, (0, 0))
        assert attached_lines(Session(), load_config(), service) == [
            attached_line,
            translate("attached.changed", file=load_config().origin.source),
        ]
