"""native/build.py: what it builds, when it builds again, and what it says when it cannot."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from native import build
from tests.native.elf import exported_names, soname

EVERYWHERE = {
    "rkllm_createDefaultParam",
    "rkllm_init",
    "rkllm_run",
    "rkllm_run_async",
    "rkllm_destroy",
    "rkllm_abort",
    "rkllm_is_running",
    "rkllm_load_lora",
    "rkllm_load_prompt_cache",
    "rkllm_release_prompt_cache",
    "rkllm_clear_kv_cache",
    "rkllm_set_chat_template",
    "rkllm_accuracy_analysis",
}
SINCE_1_2_1 = {"rkllm_get_kv_cache_size", "rkllm_set_function_tools", "rkllm_set_cross_attn_params"}
UNTIL_1_2_3 = {"rkllm_print_timings", "rkllm_print_memorys"}
EXPORTS = {
    "1.2.0": EVERYWHERE | UNTIL_1_2_3,
    "1.2.3": EVERYWHERE | SINCE_1_2_1 | UNTIL_1_2_3,
    "1.3.0": EVERYWHERE | SINCE_1_2_1,
    "1.3.1": EVERYWHERE | SINCE_1_2_1,
}


@pytest.mark.parametrize("version", list(build.FAMILIES))
def test_a_library_exports_the_names_of_its_family_and_nothing_else(libraries: dict[str, Path], version: str) -> None:
    assert exported_names(libraries[version]) == EXPORTS[version]


@pytest.mark.parametrize("version", list(build.FAMILIES))
def test_a_library_can_be_linked_under_the_name_of_the_real_one(libraries: dict[str, Path], version: str) -> None:
    assert libraries[version].name == "librkllmrt.so"
    assert soname(libraries[version]) == "librkllmrt.so"


@pytest.mark.parametrize("version", list(build.FAMILIES))
def test_a_library_says_which_version_it_plays_and_that_it_is_an_emulator(
    libraries: dict[str, Path], version: str
) -> None:
    markers = re.findall(
        rb"RKLLM SDK \(version: ([^|)]+) \| target: Linux \| build: ([^)]*)\)", libraries[version].read_bytes()
    )
    assert [(name.decode(), b"emulator" in made) for name, made in markers] == [(version, True)]


def test_the_libraries_can_be_loaded_side_by_side(libraries: dict[str, Path]) -> None:
    loaded = [ctypes.CDLL(str(path)) for path in libraries.values()]
    assert [hasattr(library, "rkllm_get_kv_cache_size") for library in loaded] == [False, True, True, True]


@pytest.fixture
def quick_compiler(libraries: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler whose only output is the library of 1.3.0, which the real one made."""
    program = tmp_path / "cc"
    program.write_text(f'#!/bin/sh\nfor output; do :; done\ncp {libraries["1.3.0"]} "$output"\n', "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("CC", str(program))


@pytest.mark.usefixtures("quick_compiler")
def test_the_command_prints_where_the_libraries_are_and_a_second_build_leaves_them_alone(tmp_path: Path) -> None:
    first = tmp_path / "1.3.0" / "librkllmrt.so"
    done = run_build("--abi", "1.3.0", "--out", str(tmp_path))
    assert (done.returncode, done.stdout) == (0, f"1.3.0 {first}\n")
    before = first.stat().st_mtime_ns
    assert build.ensure(tmp_path, ["1.3.0"])["1.3.0"].stat().st_mtime_ns == before
    assert sorted(path.name for path in first.parent.iterdir()) == ["librkllmrt.so", "stamp"]


@pytest.mark.usefixtures("quick_compiler")
def test_a_built_library_is_used_where_no_compiler_is_any_more_unless_its_sources_are_others(tmp_path: Path) -> None:
    library = build.ensure(tmp_path / "out", ["1.3.0"])["1.3.0"]
    before = library.stat().st_mtime_ns
    (tmp_path / "empty").mkdir()
    # Isolated, and so without the wheel's compiler.
    build_without = [sys.executable, "-S", "-I", str(build.NATIVE / "build.py"), "--abi", "1.3.0", "--out"]
    without = {"PATH": str(tmp_path / "empty")}
    done = subprocess.run(
        [*build_without, str(tmp_path / "out")], capture_output=True, text=True, env=without, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"1.3.0 {library}\n", "")
    assert library.stat().st_mtime_ns == before

    (library.parent / "stamp").write_text("of something else\ncc")
    done = subprocess.run(
        [*build_without, str(tmp_path / "out")], capture_output=True, text=True, env=without, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "No C compiler was found" in done.stderr


@pytest.mark.usefixtures("quick_compiler")
def test_a_library_from_other_sources_is_built_again(tmp_path: Path) -> None:
    library = build.ensure(tmp_path, ["1.3.0"])["1.3.0"]
    (library.parent / "stamp").write_text("of something else")
    library.write_bytes(b"not a library")
    build.ensure(tmp_path, ["1.3.0"])
    assert exported_names(library) == EXPORTS["1.3.0"]


def run_build(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the script as a person does."""
    command = [sys.executable, str(build.NATIVE / "build.py"), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, env={**os.environ, **environment}, check=False
    )


def test_without_a_compiler_one_line_says_how_to_get_one(tmp_path: Path) -> None:
    done = run_build("--out", str(tmp_path), CC="no-such-compiler-anywhere")
    assert done.returncode == 1
    assert "no-such-compiler-anywhere" in done.stderr
    assert "Set $CC to one that works." in done.stderr


def test_a_refusal_of_the_compiler_is_shown_in_its_own_words(tmp_path: Path) -> None:
    broken = tmp_path / "broken.c"
    broken.write_text("int main(void) { return undeclared; }")
    with pytest.raises(build.BuildError, match="undeclared"):
        build.compile_program([broken], tmp_path / "broken", 130)


def test_an_unknown_family_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(
        build.BuildError, match=re.escape("There is no family '9.9.9'; known are 1.2.0, 1.2.3, 1.3.0, 1.3.1.")
    ):
        build.ensure(tmp_path, ["9.9.9"])
