from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import typer

from rkllm_mcp import __version__
from rkllm_mcp.config.loading import configuration_schema, load_config, read_file
from rkllm_mcp.config.secrets import matches
from rkllm_mcp.surfaces.cli.main import hoist_global_options
from rkllm_mcp.surfaces.cli.options import exit_on_interrupt
from rkllm_mcp.surfaces.invocation import EXIT_INTERRUPTED, run_async
from tests.support.outcome import Command, Outcome, run_here

CLOCK = f'[[servers]]\nname = "time"\ncommand = "{sys.executable}"\nargs = ["-m", "mcp_server_time"]\n'
NOT_CONFIGURED = "No model is configured: rkllm-mcp setup. Or name one with --model NAME or PATH."
DEMO = '[model]\nname = "demo"\n'
UNCONFIGURED = "[Config: no configuration file, so there are no tools; 'rkllm-mcp setup' makes one]"
NO_MODEL = (
    "There is no model 'none'. Here on this machine: demo; 'rkllm-mcp models list' shows those that can be fetched."
)


MCP_OFF = "Error: MCP is switched off, so there are no servers and no tools; leave out --no-mcp or MCP_ENABLED\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("run hi", "run hi"),
        ("run hi --model demo", "--model demo run hi"),
        ("--quiet run --model=demo --json hi", "--quiet --model=demo run --json hi"),
        ("servers add x -- cmd --model y", "servers add x -- cmd --model y"),
        ("run --no-mcp=1", "run --no-mcp=1"),
        ("tools list -q", "-q tools list"),
        ("chat --resume", "chat --resume="),
        ("chat --resume -q", "-q chat --resume="),
        ("chat --resume 3f2 -q", "-q chat --resume 3f2"),
        ("run -- --resume", "run -- --resume"),
    ],
)
def test_global_options_may_be_anywhere_before_two_dashes(words: str, expected: str) -> None:
    assert hoist_global_options(words.split()) == expected.split()


def test_the_version_is_printed(command: Command) -> None:
    assert command("--version") == Outcome(0, f"rkllm-mcp {__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (
            ["--config", "none.toml", "config", "check"],
            2,
            "Error: No such file: none.toml. 'rkllm-mcp config init' writes one.\n",
        ),
        (["run", "hi", "--model"], 2, "Error: --model needs a value behind it; 'rkllm-mcp --help' says which\n"),
        (["run", "hi", "there", "you"], 3, f"Error: {NOT_CONFIGURED}\n"),
        (["prompt", "say", '"hi"'], 3, f"Error: {NOT_CONFIGURED}\n"),
        (["run", "-", "and", "-"], 2, "Error: standard input is named twice; write - once\n"),
        (
            ["run", "hi", "-f", "none.txt"],
            2,
            "Error: No such file: none.txt\n",
        ),
        (["run", "hi", "-f", "."], 2, "Error: . is a folder; name the files in it\n"),
        (
            ["tools", "serve", "--http", "--host", "0.0.0.0"],
            2,
            "Error: 0.0.0.0: off loopback a key is required; 'rkllm-mcp config add-key' makes one\n",
        ),
        (["run", " "], 2, "Error: the question is empty; write it behind the command\n"),
        (
            ["run", "hi", "--force-tool", "x", "--no-tools"],
            2,
            "Error: a tool cannot be forced while tools are switched off; leave one of the two out\n",
        ),
        (
            ["run", "hi", "--model", "none"],
            3,
            f"Error: {NO_MODEL}\n",
        ),
        (
            ["run", "hi", "--model", "demo", "--runtime", "none.so", "-q"],
            3,
            "Error: There is no runtime library at none.so. Correct it, or use auto or emulator.\n",
        ),
        (["models", "show", "none"], 3, f"Error: {NO_MODEL}\n"),
        (
            ["servers", "test", "none"],
            2,
            "Error: there is no server 'none'; the configuration has none\n",
        ),
        (["tools", "list", "--no-mcp"], 2, MCP_OFF),
        (["tools", "call", "x", "--no-mcp"], 2, MCP_OFF),
        (["servers", "test", "--no-mcp"], 2, MCP_OFF),
        (
            ["servers", "remove", "x"],
            2,
            "Error: there is no configuration file to change; .config/rkllm-mcp/config.toml does not exist\n",
        ),
        (
            ["servers", "add", "x"],
            2,
            "Error: a server has either a command or a --url: rkllm-mcp servers add NAME -- COMMAND ARGS\n",
        ),
        (
            ["tools", "show", "none"],
            2,
            f"{UNCONFIGURED}\nError: there is no tool 'none'; 'rkllm-mcp tools list' shows those there are\n",
        ),
        (
            ["detect", "--tools", "none"],
            2,
            "Error: none cannot be read (No such file or directory); name a file with tools as JSON\n",
        ),
    ],
)
def test_an_error_is_one_sentence_that_says_what_to_do(
    command: Command, words: list[str], code: int, sentence: str
) -> None:
    assert command(*words) == Outcome(code, "", sentence)


def test_wrong_usage_ends_with_2(command: Command) -> None:
    for words in (["nonsense"], ["run", "hi", "--nonsense"], ["run", "hi", "--max-tokens", "0"], ["models", "show"]):
        assert command(*words).code == 2


def test_logs_show_no_headers_and_no_addresses(tmp_path: Path) -> None:
    spec = "http://127.0.0.1:1/openapi.json?api_key=key-of-somebody"
    (tmp_path / "c.toml").write_text(f'[[servers]]\nname = "api"\nopenapi_spec = "{spec}"\n', "utf-8")
    words = ["-m", "rkllm_mcp", "--debug", "--config", "c.toml", "tools", "list"]
    env = {**os.environ, "RKLLM_MCP_STATE": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert "ms asyncio: " in done.stderr
    assert [name for name in ("httpcore", "httpx", "key-of-somebody") if name in done.stderr] == []


def test_a_traceback_is_only_for_debug(command: Command) -> None:
    assert "Traceback" not in command("--config", "none.toml", "config", "check").err
    assert "Traceback" in command("--config", "none.toml", "config", "check", "--debug").err


def test_a_stream_of_json_ends_with_an_end_also_when_nothing_can_run(command: Command) -> None:
    outcome = command("run", "--json", "hi", "--model", "none")
    assert (outcome.code, outcome.out) == (
        3,
        f'{{"kind":"end","reason":"failed","error":"{NO_MODEL}"}}\n',
    )


def test_config_init_writes_a_file_that_check_accepts(command: Command, tmp_path: Path) -> None:
    own = f"{tmp_path}/.config/rkllm-mcp/config.toml"
    hint = "It names no model yet: 'rkllm-mcp setup' gets one, 'rkllm-mcp models list' shows the names.\n"
    assert command("config", "init") == Outcome(0, f"{own}\n", hint)
    assert command("config", "check") == Outcome(
        0, f"{own}\nright; servers: local, weather\n", f"model: {NOT_CONFIGURED}\n"
    )
    assert command("config", "init") == Outcome(
        2, "", "Error: .config/rkllm-mcp/config.toml exists; name another file, or write over it with --force\n"
    )
    assert command("config", "init", "--force").code == 0
    jsonschema.validate(read_file(Path(own)), configuration_schema())


def test_commands_that_write_change_the_users_file_unless_another_is_there_or_named(
    command: Command, tmp_path: Path
) -> None:
    add = ("servers", "add", "s", "--", sys.executable)
    for options, file in (
        ((), ".config/rkllm-mcp/config.toml"),
        (("--config", "other.toml"), "other.toml"),
        ((), "mcp_config.toml"),
    ):
        if file == "mcp_config.toml":
            (tmp_path / file).touch()
        assert command(*options, *add) == Outcome(0, f"s: added to {tmp_path}/{file}\n", "")
        assert f'command = "{sys.executable}"' in (tmp_path / file).read_text("utf-8")


def test_the_choice_between_two_files_is_announced_once(command: Command, tmp_path: Path) -> None:
    own = tmp_path / ".config" / "rkllm-mcp" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text(DEMO)
    assert "[Config: " not in command("tools", "list").err
    (tmp_path / "mcp_config.toml").write_text(DEMO)
    said = "[Config: mcp_config.toml of this folder is used, not .config/rkllm-mcp/config.toml]"
    assert command("tools", "list").err.count(said) == 1
    assert command("--config", "mcp_config.toml", "tools", "list").err.count("[Config: ") == 0


def test_config_check_without_a_file_says_so(command: Command) -> None:
    assert command("config", "check") == Outcome(
        0, f"{UNCONFIGURED}\nright; servers: none\n", f"model: {NOT_CONFIGURED}\n"
    )


def test_config_check_tells_what_could_be_better_and_what_may_not_start(command: Command, tmp_path: Path) -> None:
    (tmp_path / "mcp_config.toml").write_text(f'{DEMO}[[tenants]]\nname = "t"\napi_key = "k"\nmay_approve = true\n')
    outcome = command("config", "check")
    advice = "any reader of the file has it; 'rkllm-mcp config add-key' stores a hash instead"
    readable = "mcp_config.toml has secrets (tenants[0].api_key), and every user of this machine can read it"
    assert (outcome.code, outcome.err) == (
        0,
        f"tenants[0].api_key is a key as it is: {advice}\n{readable}: chmod 600 mcp_config.toml\n",
    )
    (tmp_path / "mcp_config.toml").write_text(f'{DEMO}[security]\nallowed_commands = ["true"]\n{CLOCK}')
    outcome = command("config", "check")
    assert outcome.err.startswith("Server 'time': ")
    assert outcome.err.endswith("may not be started; security.allowed_commands allows true\n")


def test_config_check_names_every_program_and_file_that_is_not_there(command: Command, tmp_path: Path) -> None:
    (tmp_path / "mcp_config.toml").write_text(
        '[model]\npath = "gone.rkllm"\n[service]\nranking_model = "none"\n'
        '[runtime]\nlibrary = "gone.so"\n[security]\nroots = ["here", "gone"]\n'
        '[[servers]]\nname = "a"\ncommand = "no-such-program"\n'
        '[[servers]]\nname = "off"\ncommand = "no-such-program"\nenabled = false\n'
        '[[servers]]\nname = "b"\nurl = "https://h/mcp"\nca_file = "own.pem"\n'
        '[[servers]]\nname = "c"\nopenapi_spec = "api.json"\n'
        '[[servers]]\nname = "d"\nopenapi_spec = "https://h/api.json"\n'
        '[[servers]]\nname = "e"\ncommand = "sh"\ncwd = "gone"\n'
        '[[servers]]\nname = "f"\ncommand = "sh"\nargs = ["gone.sh"]\ncwd = "here"\n'
        '[[servers]]\nname = "g"\ncommand = "sh"\nargs = ["here.sh"]\ncwd = "here"\n'
    )
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "here.sh").touch()
    outcome = command("config", "check")
    off = "Correct it, or set enabled = false."
    skipped = "is not installed, so the server is skipped"
    assert (outcome.code, outcome.err.splitlines()) == (
        0,
        [
            "roots: there is no folder gone; make it, or correct roots",
            "runtime.library: There is no runtime library at gone.so. Correct it, or use auto or emulator.",
            "model: There is no gone.rkllm. Name a model folder or a .rkllm file.",
            f"service.ranking_model: {NO_MODEL}",
            f"server a: no-such-program {skipped}. Install no-such-program, or correct 'command'.",
            f"server b: there is no ca_file own.pem, so the server is skipped. {off}",
            f"server c: there is no openapi_spec api.json, so the server is skipped. {off}",
            f"server e: there is no cwd gone, so the server is skipped. {off}",
            f"server f: there is no script here/gone.sh, so the server is skipped. {off}",
        ],
    )


def test_a_server_that_lacks_a_variable_is_named_and_the_others_serve(command: Command, tmp_path: Path) -> None:
    (tmp_path / "mcp_config.toml").write_text(f'{DEMO}{CLOCK}[[servers]]\nname = "far"\nurl = "${{FAR_URL}}"\n')
    problem = "${FAR_URL} is not set in the environment; set FAR_URL, or write ${FAR_URL:-default}"
    checked = command("config", "check")
    assert (checked.code, checked.err) == (0, f"Server 'far': {problem}\n")
    assert "far   http       left out, not set: FAR_URL" in command("servers", "list").out
    listed = command("tools", "list")
    assert (listed.code, "get_current_time" in listed.out) == (0, True)
    assert f"[MCP: Server 'far' is left out: {problem}]" in listed.err
    assert command("servers", "test", "far").code == 1


def test_config_show_hides_secrets(command: Command, tmp_path: Path) -> None:
    (tmp_path / "mcp_config.toml").write_text('[service]\napi_keys = ["hunter2"]\n')
    outcome = command("config", "show")
    assert json.loads(outcome.out)["service"]["api_keys"] == ["[REDACTED]"]
    assert outcome.err == "# mcp_config.toml\n"
    assert command("config", "show", "-q").err == ""


def test_servers_are_added_listed_and_removed(command: Command, tmp_path: Path) -> None:
    (tmp_path / "mcp_config.toml").touch()
    path = tmp_path / "mcp_config.toml"
    added = command("servers", "add", "time", "--env", "TZ=UTC", "--", "uvx", "mcp-server-time", "--local")
    assert added == Outcome(0, f"time: added to {path}\n", "")
    assert command("servers", "add", "far", "--url", "https://h/mcp", "--header", "X-Key: ${far}").code == 0
    assert path.read_text() == (
        '[[servers]]\nname = "time"\ncommand = "uvx"\nargs = ["mcp-server-time", "--local"]\nenv = {TZ = "UTC"}\n\n'
        '[[servers]]\nname = "far"\nurl = "https://h/mcp"\nheaders_template = {X-Key = "${far}"}\n'
    )
    assert command("servers", "list").out == (
        "NAME  TRANSPORT  STATE  HOW\n"
        "time  stdio      on     uvx mcp-server-time --local\n"
        "far   http       on     https://h/mcp\n"
    )
    assert command("servers", "add", "far", "--url", "https://h/mcp") == Outcome(
        2, "", "Error: mcp_config.toml has a server 'far'; remove it first, or choose another name\n"
    )
    assert command("servers", "add", "bad", "--url", "h/mcp") == Outcome(
        2,
        "",
        "Error: the new server: servers[0].url: found 'h/mcp'; http needs an address that begins with "
        "http:// or https://\n",
    )
    assert command("servers", "add", "keyed", "--env", "KEY=${MISSING}", "--", "uvx", "${HOME}") == Outcome(
        0,
        f"keyed: added to {path}\n",
        "Not set in the environment: MISSING. Without, the server is left out.\n",
    )
    assert command("servers", "remove", "time") == Outcome(0, f"time: removed from {path}\n", "")
    assert "time" not in path.read_text()


def test_another_hosts_servers_are_imported_once(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "mcp_config.toml"
    path.write_text('# mine\n[[servers]]\nname = "b"\ncommand = "mine"\n')
    (tmp_path / "claude.json").write_text(
        json.dumps(
            {
                "anything": {"else": 1},
                "mcpServers": {
                    "a": {"command": "npx", "args": ["${DIR}"], "timeout": 5000, "disabled": True},
                    "b": {"command": "theirs"},
                },
            }
        )
    )
    assert command("servers", "import", "claude.json") == Outcome(
        0,
        f"a: added to {path}\nb: left out: {path} has a server of this name\n",
        "",
    )
    assert path.read_text() == (
        '# mine\n[[servers]]\nname = "b"\ncommand = "mine"\n\n'
        '[[servers]]\nname = "a"\ncommand = "npx"\nargs = ["${DIR}"]\ntimeout_s = 5.0\nenabled = false\n'
    )


def test_models_are_listed_and_shown(command: Command) -> None:
    assert command("models", "list").out.splitlines()[1].split()[:2] == ["demo", "emulated"]
    shown = json.loads(command("models", "show", "demo", "--json").out)
    assert (shown["name"], shown["state"], shown["missing"]) == ("demo", "emulated", [])


def test_the_doctor_has_nothing_to_say_against_the_emulated_npu(command: Command) -> None:
    outcome = command("doctor", "--json", "--runtime", "emulator")
    findings = {finding["name"]: finding for finding in json.loads(outcome.out)["findings"]}
    assert (outcome.code, findings["runtime library"]["status"], findings["model"]["status"]) == (0, "ok", "ok")


def test_the_doctor_ends_with_3_where_nothing_can_answer(command: Command) -> None:
    outcome = command("doctor", "--runtime", "none.so")
    assert outcome.code == 3
    assert "✗ runtime library  There is no runtime library at" in outcome.out
    assert "keep the assistant from answering here.\n" in outcome.out or "keeps the assistant" in outcome.out


def test_tools_are_listed_called_and_fail_without_a_model(command: Command, tmp_path: Path) -> None:
    (tmp_path / "mcp_config.toml").write_text(CLOCK)
    listed = command("tools", "list", "-q").out.splitlines()
    assert [line.split()[:2] for line in listed] == [
        ["NAME", "SERVER"],
        ["get_current_time", "time"],
        ["convert_time", "time"],
    ]
    called = command("tools", "call", "get_current_time", "timezone=Asia/Tokyo", "-q")
    assert (called.code, json.loads(called.out)["timezone"], called.err) == (0, "Asia/Tokyo", "")
    failed = command("tools", "call", "mcp__time__get_current_time", '{"timezone": "Mars/Olympus"}', "--json", "-q")
    result = json.loads(failed.out)
    assert (failed.code, result["kind"], result["is_error"]) == (1, "tool_result", True)
    assert command("tools", "call", "get_curent_time", "-q") == Outcome(
        2, "", "Error: there is no tool 'get_curent_time'; did you mean 'get_current_time'?\n"
    )


@pytest.mark.parametrize(
    ("words", "end"),
    [
        ("run --qiet hi", "; did you mean '--quiet'?"),
        ("run --modle demo hi", "; did you mean '--model'?"),
        ("run --fiel a.txt", "; did you mean '--file'?"),
        # That both have dashes does not make them alike.
        ("chat --yes", "; see rkllm-mcp chat --help"),
        # Nor is the name of an argument an option.
        ("servers add --name x", "; see rkllm-mcp servers add --help"),
    ],
)
def test_a_misspelt_option_is_answered_with_one_like_it(command: Command, words: str, end: str) -> None:
    name, _, rest = words.partition(" --")
    option = f"--{rest.split()[0]}"
    assert command(*words.split()) == Outcome(2, "", f"Error: 'rkllm-mcp {name}' has no option {option}{end}\n")


def test_a_call_that_works_prints_its_result_alone_and_status_lines_with_v_or_if_it_fails(
    command: Command, tmp_path: Path
) -> None:
    server = '[[servers]]\nname = "local"\ntransport = "builtin"\ntools = [{ name = "calculator" }]\n'
    (tmp_path / "mcp_config.toml").write_text(server)
    connected = "[MCP: Server 'local' is ready: 1 tool]\n"
    assert command("tools", "call", "calculator", "expression=2*21") == Outcome(0, "42\n", "")
    assert command("tools", "call", "calculator", "expression=2*21", "-v") == Outcome(0, "42\n", connected)
    failed = command("tools", "call", "calculator", "expression=2*")
    assert (failed.code, failed.out, failed.err.startswith(f"{connected}Error: ")) == (1, "", True), failed.err


def test_servers_are_tried_and_the_one_that_fails_is_reported(command: Command, tmp_path: Path) -> None:
    gone = '[[servers]]\nname = "gone"\ncommand = "no-such-program"\n'
    (tmp_path / "mcp_config.toml").write_text(CLOCK + gone)
    outcome = command("servers", "test")
    # How wide a column is depends on how long a server took to start.
    _, time, gone = (" ".join(line.split()) for line in outcome.out.splitlines())
    assert (outcome.code, time.startswith("time ready 2 tools ")) == (1, True)
    assert gone.startswith("gone failed - - 'no-such-program' was not found")
    assert outcome.err == "Starting 2 servers …\n"
    assert command("servers", "test", "time").code == 0


def test_an_empty_list_of_servers_is_reported(command: Command) -> None:
    sentence = "No servers to test; add one with 'rkllm-mcp servers add NAME -- COMMAND ARGS'.\n"
    assert command("servers", "test") == Outcome(0, "", sentence)
    assert command("config", "check", "--no-mcp").out.endswith(
        "right; servers: none, MCP is switched off (MCP_ENABLED=false or --no-mcp)\n"
    )


def test_a_prompt_is_shown_part_by_part_with_its_token_ids(command: Command) -> None:
    demo = ("--model", "demo", "prompt")
    shown = json.loads(command(*demo, "こんにちは", "--system", "Be brief.", "--json").out)
    assert [part["part"] for part in shown["parts"]] == ["system", "user", "answer"]
    assert shown["tokens"] == sum(part["tokens"] for part in shown["parts"])
    assert all(part["tokens"] == len(part["ids"]) for part in shown["parts"])
    text = command(*demo, "こんにちは", "--system", "Be brief.").out
    assert "こんにちは" in text
    assert text.endswith(f"── total: {shown['tokens']} tokens\n")


REPOSITORY = Path(__file__).resolve().parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY)}


def detect(text: str, *words: str, cwd: Path) -> list[dict[str, object]]:
    done = run_here(ENVIRONMENT, "detect", *words, stdin=text.encode(), folder=cwd)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_detect_prints_events_with_the_text_of_each_call(tmp_path: Path) -> None:
    call = '[TOOL_CALL]{"name": "get_weather", "arguments": {"location": "東京"}}[END_TOOL_CALL]'
    expected = [
        {"kind": "text", "text": "Look: "},
        {"kind": "tool_call", "name": "get_weather", "arguments": {"location": "東京"}, "raw": call, "repaired": False},
    ]
    assert detect(f"Look: {call}", cwd=tmp_path) == expected
    (tmp_path / "tools.json").write_text('{"tools": [{"name": "get_weather", "inputSchema": {"type": "object"}}]}')
    assert detect(f"Look: {call}", "--tools", "tools.json", "--syntax", "project_json", cwd=tmp_path) == expected
    # Every model may write every marked form, whatever its own is.
    assert detect(f"Look: {call}", "--syntax", "hermes", cwd=tmp_path) == expected


@pytest.mark.parametrize(
    ("tools", "sentence"),
    [
        ("[5]", 'holds a tool without a name; each tool is {"name": "…", "input_schema": {…}}'),
        ('[{"function": 5}]', 'holds a tool without a name; each tool is {"name": "…", "input_schema": {…}}'),
        (
            '[{"name": "t", "input_schema": 5}]',
            "holds a tool 't' whose schema is no object; write {} for no arguments",
        ),
        ("5", 'holds no tools; write a list: [{"name": "…", "input_schema": {…}}]'),
    ],
)
def test_unreadable_tools_are_distinguished(command: Command, tmp_path: Path, tools: str, sentence: str) -> None:
    (tmp_path / "tools.json").write_text(tools)
    assert command("detect", "--tools", "tools.json") == Outcome(2, "", f"Error: tools.json {sentence}\n")


def test_a_reader_that_leaves_causes_no_complaint(tmp_path: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "rkllm_mcp", "detect", "--tools", "tools.json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=ENVIRONMENT,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    (tmp_path / "tools.json").write_text('[{"name": "t"}]')
    program.stdout.close()
    _, err = program.communicate(b"some text\n" * 20000, timeout=120)
    assert (program.returncode, err) == (1, b"")


def shell(words: str, cwd: Path, *, is_buffered: bool = True) -> tuple[int, str]:
    """The exit code and standard error of ``rkllm-mcp`` with the shell's redirections."""
    line = f"{sys.executable} -m rkllm_mcp {words}"
    done = subprocess.run(
        ["sh", "-c", line],
        check=False,
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**ENVIRONMENT, "PYTHONUNBUFFERED": "" if is_buffered else "1"},
        timeout=60,
    )
    return done.returncode, done.stderr


def test_streams_that_the_caller_closed_are_not_our_mistake(tmp_path: Path) -> None:
    assert shell("detect <&-", tmp_path) == (0, "")
    assert shell("run <&-", tmp_path) == (2, "Error: the question is empty; write it behind the command\n")
    assert shell("config schema >&-", tmp_path) == (0, "")
    assert shell("models show none 2>&-", tmp_path) == (3, "")


# Short output waits in Python's buffer for the end of the program; long or unbuffered output meets the disk at once.
@pytest.mark.parametrize("is_buffered", [True, False], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("words", ["config schema", "--version"])
def test_a_full_disk_after_the_output_is_one_sentence(words: str, is_buffered: bool, tmp_path: Path) -> None:
    sentence = "Error: nothing more can be written (No space left on device); make room and ask again\n"
    assert shell(f"{words} >/dev/full", tmp_path, is_buffered=is_buffered) == (1, sentence)


@pytest.mark.parametrize("is_buffered", [True, False], ids=["buffered", "unbuffered"])
def test_a_reader_that_leaves_early_shows_no_traceback(is_buffered: bool, tmp_path: Path) -> None:
    # A pipe that nothing reads any more, before the program writes its first byte.
    words = '-q models list >pipe & exec 3<pipe; exec 3<&-; wait "$!"'
    os.mkfifo(tmp_path / "pipe")
    assert shell(words, tmp_path, is_buffered=is_buffered) == (1, "")


def test_the_help_is_there_without_the_heavy_libraries() -> None:
    code = (
        "import sys, rkllm_mcp.surfaces.cli.main\n"
        "print(sorted({'mcp', 'pydantic', 'prompt_toolkit', 'tokenizers', 'anyio', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert done.stdout == "[]\n"


def test_config_add_key_shows_a_key_once_and_keeps_a_hash_of_it(command: Command, tmp_path: Path) -> None:
    (tmp_path / "mcp_config.toml").write_text(DEMO)
    mine = command("config", "add-key", "--name", "laptop")
    theirs = command("config", "add-key", "--tenant", "kitchen")
    config = load_config(tmp_path / "mcp_config.toml")
    assert matches(mine.out.strip(), config.service.api_keys[0])
    assert matches(theirs.out.strip(), config.tenants[0].api_key)
    assert (mine.code, config.tenants[0].name) == (0, "kitchen")
    assert mine.err.startswith("mcp_config.toml has the hash of it, as a key of yours.")
    text = (tmp_path / "mcp_config.toml").read_text("utf-8")
    assert mine.out.strip() not in text
    assert text.count("sha256:") == 2
    assert command("config", "check").err == ""
    assert command("config", "add-key", "--tenant", " ").code == 2


def test_ctrl_c_ends_a_command_that_asks_a_person_in_its_event_loop() -> None:
    went_on: list[str] = []

    async def ask() -> None:
        with exit_on_interrupt():
            signal.raise_signal(signal.SIGINT)
            went_on.append("asked")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(typer.Exit) as end:
        run_async(ask)
    assert (end.value.exit_code, went_on, signal.getsignal(signal.SIGINT)) == (EXIT_INTERRUPTED, [], before)
