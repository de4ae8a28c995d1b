"""The C tests of native/tests under sanitizers, the layout of the structs, and somebody's program on every family."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from native import build

SANITIZERS = {
    "none": [],
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-fsanitize=thread"],
}
FILES = ["parts", "scripts", "runs", "state", "numbers", "inputs", "faults", "threads", "weights"]
TESTS = build.NATIVE / "tests"

# Sizes of the vendor's structs as its headers give them, by family (LP64).
SIZES = {
    120: {"RKLLMExtendParam": 120, "RKLLMParam": 208, "RKLLMInput": 32, "RKLLMInferParam": 32, "RKLLMResult": 48},
    121: {"RKLLMExtendParam": 120, "RKLLMParam": 208, "RKLLMInput": 64, "RKLLMInferParam": 32, "RKLLMResult": 72},
    130: {"RKLLMExtendParam": 120, "RKLLMParam": 184, "RKLLMInput": 160, "RKLLMInferParam": 40, "RKLLMResult": 72},
    131: {"RKLLMExtendParam": 120, "RKLLMParam": 184, "RKLLMInput": 208, "RKLLMInferParam": 40, "RKLLMResult": 72},
}
OFFSETS = {
    120: {"RKLLMParam.extend_param": 88, "RKLLMInput.prompt_input": 8, "RKLLMInferParam.keep_history": 24},
    121: {"RKLLMParam.extend_param": 88, "RKLLMInput.prompt_input": 16, "RKLLMResult.perf": 48},
    130: {"RKLLMParam.extend_param": 60, "RKLLMInferParam.keep_history": 32, "RKLLMInferParam.max_new_tokens": 36},
    131: {"RKLLMMultiModalInput.video": 72, "RKLLMMultiModalInput.audio": 144, "RKLLMInput.multimodal_input": 16},
}


def clean_environment(**changes: str) -> dict[str, str]:
    """The environment without what steers the emulator, and with `changes`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RKLLM")}
    return {**kept, **changes}


# Under address every family, whose structs differ. Threads are the same in all, and what a program does without a
# sanitizer it does with one. Not 130: all that is compiled for it is compiled for 131 too.
BUILDS = [(131, "none"), (120, "address"), (121, "address"), (131, "address"), (131, "thread")]


def need_sanitizer(name: str, folder: Path) -> None:
    """Skip the calling test, with the compiler's words, where the runtime of a sanitizer is not installed."""
    (folder / "probe.c").write_text("int main(void) { return 0; }")
    try:
        probe = build.compile_program([folder / "probe.c"], folder / "probe", 130, SANITIZERS[name])
        subprocess.run([probe], check=True, timeout=60, capture_output=True)
    except (build.BuildError, subprocess.CalledProcessError) as error:
        pytest.skip(f"the compiler here has no working runtime for -fsanitize={name}: {error}")


@pytest.fixture(scope="module", params=BUILDS, ids=[f"{family}-{name}" for family, name in BUILDS])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The emulator with all its C tests as one program, compiled for a family and a sanitizer."""
    family, sanitizer = request.param
    need_sanitizer(sanitizer, tmp_path_factory.mktemp("probe"))
    files = [TESTS / "main.c", TESTS / "session.c", *(TESTS / f"test_{name}.c" for name in FILES), *build.sources()]
    output = tmp_path_factory.mktemp("program") / "tests"
    return build.compile_program(files, output, family, SANITIZERS[sanitizer])


@pytest.mark.parametrize("file", FILES)
def test_the_c_tests_pass_without_a_complaint_of_the_sanitizer(
    file: str, program: Path, fake_llama: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [program, file],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
        env=clean_environment(RKLLM_EMULATOR_LLAMA=str(fake_llama), FAKE_LLAMA_LOG=str(tmp_path / "decoded")),
    )
    (tmp_path / "decoded").unlink(missing_ok=True)
    assert done.returncode == 0, done.stderr
    assert "FAIL" not in done.stderr
    assert list(tmp_path.iterdir()) == [], "a test left a file behind"


def test_every_file_of_c_tests_is_run() -> None:
    assert sorted(path.stem.removeprefix("test_") for path in TESTS.glob("test_*.c")) == sorted(FILES)


@pytest.mark.parametrize("abi", list(SIZES))
def test_the_header_lays_its_structs_out_as_the_vendor_does(abi: int, tmp_path: Path) -> None:
    program = build.compile_program([TESTS / "layout.c"], tmp_path / "layout", abi)
    layout = json.loads(subprocess.run([program], capture_output=True, check=True, timeout=60).stdout)
    assert layout["abi"] == abi
    assert {name: layout["structs"][name]["size"] for name in SIZES[abi]} == SIZES[abi]
    for path, offset in OFFSETS[abi].items():
        struct, _, field = path.partition(".")
        assert layout["structs"][struct]["fields"][field][0] == offset, path


@pytest.mark.parametrize("version", list(build.FAMILIES))
def test_a_program_written_for_the_interface_chats_on_every_family(
    version: str, libraries: dict[str, Path], readme_script: Path, tmp_path: Path
) -> None:
    folder = libraries[version].parent
    link = [f"-L{folder}", "-lrkllmrt", f"-Wl,-rpath,{folder}"]
    demo = build.compile_program([TESTS / "llm_demo.c"], tmp_path / "llm_demo", build.FAMILIES[version], link)
    done = subprocess.run(
        [demo, readme_script, "200", "2048"],
        input="Hello!\nclear\nwhat is the weather in Oslo?\nexit\nnever asked\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=clean_environment(),
    )
    assert done.stdout.splitlines() == [
        f"I rkllm: rkllm-runtime version: {version}, rknpu driver version: 0.9.8, platform: RK3588",
        f"I rkllm: loading rkllm model from {readme_script}",
        *[line for line in done.stdout.splitlines() if line.startswith("I rkllm:")][2:],
        "robot: Hello! I am a script.",
        "Ask me about the weather.",
        "robot: One moment.",
        "<tool_call>",
        '{"name": "get_weather", "arguments": {"location": "Oslo"}}',
        "</tool_call>",
    ]
    assert done.stderr == ""


def test_a_program_for_another_model_file_hears_why_it_is_refused(libraries: dict[str, Path], tmp_path: Path) -> None:
    folder = libraries["1.3.0"].parent
    link = [f"-L{folder}", "-lrkllmrt", f"-Wl,-rpath,{folder}"]
    demo = build.compile_program([TESTS / "llm_demo.c"], tmp_path / "llm_demo", 130, link)
    (tmp_path / "weights.rkllm").write_bytes(b"\xda\xee\xb3\x36" + bytes(64))
    done = subprocess.run(
        [demo, tmp_path / "weights.rkllm", "9", "99"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=clean_environment(),
    )
    assert done.returncode == 1
    assert "E rkllm: invalid rkllm model!\n" in done.stdout
