from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pexpect
import pytest

from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.chat.forms import TerminalApprover
from rkllm_mcp.surfaces.terminal import Terminal
from tests.models.test_gguf import write_talking_gguf
from tests.support.board_trees import RK3588, plant
from tests.support.demo_model import DEMO_TOKENIZER, demo_vocabulary
from tests.support.emulator import libraries
from tests.support.fake_hub import COMMIT, FakeHub, running
from tests.support.outcome import run_here
from tests.support.rkllm_files import QWEN, container, write_rkllm
from tests.support.served import scripted_model
from tests.support.shared import REPOSITORY

FACTS = {**QWEN, "tokenizer.ggml.eos_token_id": demo_vocabulary().controls.get("<|im_end|>")}
WEIGHTS = container(FACTS, weights=bytes(range(256)) * 100)
FILE = "Qwen2.5-1.5B-Instruct_W8A8_RK3588.rkllm"


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    files = {FILE: WEIGHTS, "tokenizer.json": DEMO_TOKENIZER.read_bytes()}
    with running(FakeHub({"them/mine": files})) as hub:
        yield hub


@pytest.fixture
def environment(tmp_path: Path, fake: FakeHub) -> dict[str, str]:
    """That of a person without any configuration, whose hub is the one on this machine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RKLLM_", "MCP_", "XDG_", "HF_"))}
    return {
        **kept,
        "HOME": str(tmp_path),
        "PYTHONPATH": str(REPOSITORY),
        "HF_ENDPOINT": fake.url,
        "NO_PROXY": "127.0.0.1,localhost",
        "NO_COLOR": "1",
    }


def run(environment: Mapping[str, str], *words: str, group: str = "models") -> subprocess.CompletedProcess[str]:
    return run_here(environment, group, *words)


def pull(environment: Mapping[str, str], *words: str, group: str = "models") -> subprocess.CompletedProcess[str]:
    """its own process: the hub's library reads its environment when it is imported."""
    return subprocess.run(
        [sys.executable, "-m", "rkllm_mcp", group, "pull", *words],
        capture_output=True,
        text=True,
        timeout=120,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        check=False,
    )


def at_a_terminal(environment: Mapping[str, str], *words: str) -> Any:
    """The command as a person sees it; pexpect's own types say too little."""
    spawn: Any = pexpect.spawn
    return spawn(
        sys.executable,
        ["-m", "rkllm_mcp", "models", *words],
        env={**environment, "TERM": "xterm"},
        encoding="utf-8",
        timeout=60,
        dimensions=(24, 100),
    )


def listed(environment: Mapping[str, str]) -> dict[str, dict[str, object]]:
    return {entry["name"]: entry for entry in json.loads(run(environment, "list", "--json").stdout)}


PULL = ("qwen2.5-1.5b", "--repository", "them/mine", "--file", FILE)


def test_a_model_is_pulled_listed_shown_and_removed(environment: dict[str, str], tmp_path: Path) -> None:
    assert listed(environment)["qwen2.5-1.5b"]["state"] == "to pull"
    done = pull(environment, *PULL)
    place = tmp_path / ".local" / "share" / "rkllm-mcp" / "models" / "qwen2.5-1.5b"
    assert (done.returncode, done.stdout) == (0, f"qwen2.5-1.5b: {place}\n")
    assert done.stderr == "Try it: rkllm-mcp chat --model qwen2.5-1.5b\n"
    entry = listed(environment)["qwen2.5-1.5b"]
    assert (entry["state"], entry["file"], entry["missing"]) == ("here", str(place / FILE), [])
    shown = json.loads(run(environment, "show", "qwen2.5-1.5b", "--json").stdout)
    assert (shown["source"]["repository"], shown["source"]["revision"]) == ("them/mine", COMMIT)
    asked = run(environment, "remove", "qwen2.5-1.5b")
    assert (asked.returncode, asked.stderr) == (
        2,
        f"Error: Remove {place} with everything in it? Say it with --yes\n",
    )
    removed = run(environment, "remove", "qwen2.5-1.5b", "--yes", "--quiet")
    assert (removed.returncode, removed.stdout, removed.stderr) == (
        0,
        f"qwen2.5-1.5b: removed from {place.parent}\n",
        "",
    )
    assert list(place.parent.iterdir()) == []


def test_what_did_not_come_from_the_user_is_not_removed(environment: dict[str, str], tmp_path: Path) -> None:
    done = run(environment, "remove", "demo", "--yes")
    assert (done.returncode, done.stderr) == (
        2,
        f"Error: 'demo' is in {REPOSITORY}/models/demo, which rkllm-mcp does not manage; remove it by hand\n",
    )
    done = run(environment, "remove", "none", "--yes")
    assert done.returncode == 2
    assert done.stderr == (
        f"Error: unknown model 'none' in {tmp_path}/.local/share/rkllm-mcp/models; "
        "'rkllm-mcp models list' lists the models\n"
    )


def test_a_hub_out_of_reach_is_one_sentence_and_exit_code_3(environment: dict[str, str]) -> None:
    done = pull({**environment, "HF_ENDPOINT": "http://127.0.0.1:9"}, *PULL)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("Error: http://127.0.0.1:9 cannot be reached (")
    assert done.stderr.count("\n") == 1


def test_offline_the_cache_is_enough_and_without_it_a_sentence(environment: dict[str, str], tmp_path: Path) -> None:
    offline = {**environment, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    done = pull(offline, *PULL)
    assert done.returncode == 3
    assert done.stderr == (
        f"Error: HF_HUB_OFFLINE is set, and {tmp_path}/hf/hub does not have {FILE} of them/mine. "
        "Unset it. Or fetch the files on another machine, copy them here and use 'rkllm-mcp models add PATH'.\n"
    )
    code = (
        "from huggingface_hub import hf_hub_download\n"
        f"for name in ({FILE!r}, 'tokenizer.json'): hf_hub_download('them/mine', name)"
    )
    online = {**environment, "HF_HOME": str(tmp_path / "hf")}
    subprocess.run([sys.executable, "-c", code], env=online, check=True, capture_output=True, timeout=60)
    assert pull(offline, *PULL).returncode == 0
    assert listed(offline)["qwen2.5-1.5b"]["state"] == "here"


def test_a_pull_that_broke_off_goes_on(environment: dict[str, str], fake: FakeHub) -> None:
    fake.files["them/mine"][FILE] = container(FACTS, weights=bytes(12 * 2**20))
    fake.cuts, fake.statuses = [11 * 2**20], [None, 503]
    done = pull(environment, *PULL)
    assert done.returncode == 3
    assert "Try again later; the download will resume." in done.stderr
    assert listed(environment)["qwen2.5-1.5b"]["state"] == "to pull"
    assert pull(environment, *PULL).returncode == 0
    rest = f"bytes={11 * 2**20}-"
    assert fake.bodies() == ["", rest, rest, ""], "the last one is the tokenizer"


def test_the_next_step_for_a_processors_model_is_setup_as_long_as_there_is_no_configuration(
    environment: dict[str, str], tmp_path: Path
) -> None:
    weights = write_talking_gguf(tmp_path / "talking.gguf")
    llama = tmp_path / "llama"
    llama.mkdir()
    (llama / "libllama.so").touch()
    done = run({**environment, "RKLLM_EMULATOR_LLAMA": str(llama)}, "add", str(weights), "--name", "talking", "--yes")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].endswith("rkllm-mcp --model talking setup --cpu")


def test_the_catalogue_is_listed_with_speed_memory_and_whether_it_fits(environment: dict[str, str]) -> None:
    done = run(environment, "list")
    heading, first, *rest = done.stdout.splitlines()
    assert heading.split() == ["NAME", "STATE", "SPEED", "MEMORY", "TOOLS", "FITS", "DESCRIPTION"]
    assert first.split()[:3] == ["demo", "emulated", "yes"], "what is here comes first"
    assert any("qwen3-0.6b" in line and "tok/s" in line and "MB" in line for line in rest)
    assert done.stderr == (
        "Models that do not fit: no NPU here. For this machine's CPU: rkllm-mcp setup --cpu\n"
        "SPEED, MEMORY and TOOLS (right calls) are what others measured, and the repositories were not checked.\n"
        "'rkllm-mcp models pull NAME|OWNER/NAME[:FILE]' fetches a model, 'models convert' makes one on a PC.\n"
    )


def test_on_a_board_the_list_marks_the_model_to_begin_with(environment: dict[str, str], tmp_path: Path) -> None:
    environment |= {"RKLLM_MCP_MACHINE_ROOT": str(plant(tmp_path / "board", RK3588))}
    done = run(environment, "list")
    (marked,) = [line for line in done.stdout.splitlines() if " * " in line]
    (advised,) = [line for line in done.stderr.splitlines() if line.startswith("* is the one")]
    assert advised.endswith(f"rkllm-mcp models pull {marked.split()[0]}")
    recommended = [name for name, entry in listed(environment).items() if entry["recommended"]]
    assert recommended == [marked.split()[0]]


def test_in_a_japanese_terminal_models_are_described_in_japanese_and_to_programs_in_english(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "rkllm-mcp.toml").write_text("not TOML", "utf-8")
    japanese = {**environment, "LANG": "ja_JP.UTF-8", "COLUMNS": "300"}
    japanese.pop("LC_ALL", None)
    broken = ("--config", str(tmp_path / "rkllm-mcp.toml"))
    for listed in (run_here(japanese, "models", "list"), run_here(japanese, *broken, "models", "list")):
        assert "Qwen3 4B。ツールが得意ですが、低速です" in listed.stdout
        assert "NPU がありません" in listed.stderr
        assert "NPU がありません" not in listed.stdout
    assert "Qwen3 4B。ツールが得意ですが、低速です" in run(japanese, "show", "qwen3-4b").stdout
    shown = json.loads(run(japanese, "show", "qwen3-4b", "--json").stdout)
    listed_models = json.loads(run(japanese, "list", "--json").stdout)
    for model in (shown, *(each for each in listed_models if each["name"] == "qwen3-4b")):
        english = ("Qwen3 4B: strong with tools, and slow", "no NPU here")
        assert (model["description"], model["fits"]["reason"]) == english


def test_a_shell_completes_the_names_of_models(environment: dict[str, str]) -> None:
    def completed(line: str, shell: str = "bash") -> list[str]:
        asked = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_TYPER_COMPLETE_ARGS": line}
        asked["_RKLLM_MCP_COMPLETE"] = f"complete_{shell}"
        command = [sys.executable, "-m", "rkllm_mcp"]
        return subprocess.run(
            command, env={**environment, **asked}, capture_output=True, text=True, timeout=60, check=False
        ).stdout.split()

    assert completed("rkllm-mcp models pull qwen3-4") == ["qwen3-4b", "qwen3-4b-2507"]
    assert completed("rkllm-mcp models use d") == ["demo"], "one that is here"
    assert completed("rkllm-mcp --model d") == ["demo"]
    # Zsh completes nothing without a description, and a colon would end it.
    shown = " ".join(completed("rkllm-mcp models pull qwen3-4b-", "zsh"))
    assert '"qwen3-4b-2507":"Qwen3 4B Instruct 2507, strong with tools' in shown


def test_a_model_that_is_not_here_is_shown_all_the_same(environment: dict[str, str]) -> None:
    shown = json.loads(run(environment, "show", "qwen3-0.6b", "--json").stdout)
    assert (shown["state"], len(shown["missing"])) == ("to pull", 2)


def test_a_file_of_the_owner_is_added(environment: dict[str, str], tmp_path: Path) -> None:
    path = write_rkllm(tmp_path / "x" / FILE, FACTS)
    missing = run(environment, "add", str(path))
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr.endswith("Say it with --tokenizer\n")
    done = run(environment, "add", str(path), "--tokenizer", str(DEMO_TOKENIZER), "--name", "mine")
    assert (done.returncode, done.stdout) == (0, f"mine: {tmp_path}/.local/share/rkllm-mcp/models/mine\n")
    assert listed(environment)["mine"]["template"] == "qwen2.5"


def test_a_person_at_a_terminal_is_asked_for_missing_values(environment: dict[str, str], tmp_path: Path) -> None:
    path = write_rkllm(tmp_path / "x" / "best.rkllm", {**FACTS, "general.name": "best", "general.architecture": "new"})
    child = at_a_terminal(environment, "add", str(path))
    child.expect_exact("Which chat template does the model in best.rkllm (architecture new) use?")
    child.expect_exact("> ")
    child.sendline("nonsense")
    child.expect_exact("> ")
    child.sendline("chatml")
    child.expect_exact("Where is the tokenizer")
    child.sendline(str(DEMO_TOKENIZER))
    child.expect_exact("best: ")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert listed(environment)["best"]["template"] == "chatml"


@pytest.mark.parametrize("answer", ["n", ""])
def test_a_person_who_does_not_say_yes_keeps_the_model(
    environment: dict[str, str], tmp_path: Path, answer: str
) -> None:
    path = write_rkllm(tmp_path / "x" / FILE, FACTS)
    run(environment, "add", str(path), "--tokenizer", str(DEMO_TOKENIZER), "--name", "mine")
    child = at_a_terminal(environment, "remove", "mine")
    child.expect_exact("[y/N] ")
    child.sendline(answer)
    child.expect_exact("Nothing was changed.")
    child.expect(pexpect.EOF)
    child.close()
    assert listed(environment)["mine"]["state"] == "here"


def test_without_a_user_the_missing_option_is_named() -> None:
    with pytest.raises(UsageError, match=r"^Why\? Say it with --x: a, b$"):
        TerminalApprover(Terminal()).choose("Why?", "--x", ["a", "b"])


def test_a_person_at_a_terminal_watches_a_bar(environment: dict[str, str]) -> None:
    screen = io.StringIO()
    child = at_a_terminal(environment, "pull", *PULL)
    child.logfile_read = screen
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert FILE[:20] in screen.getvalue()
    assert "tokenizer.json" in screen.getvalue()


def test_a_runtime_is_pulled_listed_and_chosen_in_the_configuration(
    environment: dict[str, str], fake: FakeHub, tmp_path: Path
) -> None:
    library = libraries()["1.3.0"].read_bytes()
    place = "rkllm-runtime/Linux/librkllm_api/aarch64/librkllmrt.so"
    fake.plain = {"release-v1.3.0/LICENSE": b"Rockchip's terms\n", f"release-v1.3.0/{place}": library}
    sums = {"1.3.0": hashlib.sha256(library).hexdigest()}
    (tmp_path / "mirror.json").write_text(json.dumps({"address": fake.url, "checksums": sums}))
    config = tmp_path / "config.toml"
    environment |= {"RKLLM_MCP_RUNTIMES": str(tmp_path / "mirror.json")}
    pulled = tmp_path / ".local" / "share" / "rkllm-mcp" / "runtimes" / "1.3.0" / "librkllmrt.so"
    done = pull(environment, "1.3.0", group="runtime")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{pulled}\n", "Rockchip's terms\n")
    other = libraries()["1.2.3"].resolve()
    config.write_text("")
    chosen = run(environment, "use", str(other), "--config", str(config), group="runtime")
    assert (chosen.returncode, chosen.stdout, chosen.stderr) == (
        0,
        f"RKLLM 1.2.3 (emulated) (not a published file by its checksum): {other}\n",
        f"Written to {config} as [runtime] library.\n",
    )
    assert config.read_text() == f'[runtime]\nlibrary = "{other}"\n'
    run(environment, "use", "1.3.0", "--config", str(config), group="runtime")
    assert config.read_text() == f'[runtime]\nlibrary = "{pulled}"\n'
    entries = json.loads(run(environment, "list", "--json", "--config", str(config), group="runtime").stdout)
    assert entries[0] == {
        "release": "1.3.0",
        "state": "in use",
        "file": str(pulled),
        "checksum_known": True,
        "problem": "",
    }
    assert {entry["state"] for entry in entries[1:]} == {"to pull"}


def test_a_model_is_used_from_now_on_by_the_configuration_and_by_the_service_that_runs(
    environment: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / ".local" / "share" / "rkllm-mcp" / "models"
    for name in ("parrot", "owl"):
        scripted_model(folder / name, f"rule\n  say {name}\n", name=name)
    config = tmp_path / "config.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    text = f'[model]\nname = "{{}}"  # mine\n\n[runtime]\nlibrary = "emulator"\n\n[service]\nport = {port}\n'
    config.write_text(text.format("parrot"))
    used = run(environment, "use", "owl", "--config", str(config))
    assert (used.returncode, used.stdout, used.stderr) == (
        0,
        f"owl: {folder / 'owl'}\n",
        f"Written to {config} as [model] name. No service runs here now.\n",
    )
    assert config.read_text() == text.format("owl")
    command = [sys.executable, "-m", "rkllm_mcp", "--config", str(config), "serve"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as service:
        try:
            assert service.stderr is not None
            while service.stderr.readline() != "Ready: owl\n":
                pass
            used = run(environment, "use", "parrot", "--config", str(config))
            assert used.stderr == f"Written to {config} as [model] name. The running service has loaded it.\n"
            assert service.stderr.readline() == "[NPU: Model 'parrot' is loaded]\n"
        finally:
            service.terminate()
    unknown = run(environment, "use", "nobody", "--config", str(config))
    assert unknown.returncode == 3
    assert config.read_text() == text.format("parrot")
