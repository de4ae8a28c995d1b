"""A library is found where a loader would look, and refused when anything about it disagrees."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rkllm_mcp.errors import AbiMismatchError, LibraryNotFoundError, RuntimeUnusableError, UnknownRuntimeError
from rkllm_mcp.runtime.abi import NEWEST_VERSION, WORKING_VERSIONS
from rkllm_mcp.runtime.library import find_library, open_library
from tests.support.emulator import MACROS, Emulator, libraries, native_build

WORKING = f"Runtimes that work are {', '.join(WORKING_VERSIONS)}"
OVERRIDE = f'set abi = "{NEWEST_VERSION}" under [runtime] or RKLLM_MCP_RUNTIME__ABI={NEWEST_VERSION}'


def patched(folder: Path, version: str, old: bytes, new: bytes) -> Path:
    """A copy of an emulated library with some bytes replaced by as many others."""
    content = libraries()[version].read_bytes()
    assert old in content
    path = folder / "librkllmrt.so"
    path.write_bytes(content.replace(old, new.ljust(len(old), b"\0")))
    return path


def claiming(folder: Path, version: str, claimed: str) -> Path:
    """A library of one family whose marker claims to be another release."""
    marker = f"RKLLM SDK (version: {version} | target: Linux | build: emulator"
    other = f"RKLLM SDK (version: {claimed} | target: Linux | build: emulator"
    return patched(folder, version, marker.encode(), other[: len(marker)].encode())


def compiled(folder: Path, source: str, *flags: str) -> Path:
    """A small shared library of our own."""
    code, path = folder / "stub.c", folder / "librkllmrt.so"
    code.write_text(source)
    compiler = native_build().find_compiler()
    subprocess.run([*compiler, "-shared", "-fPIC", str(code), "-o", str(path), *flags], check=True, timeout=120)
    return path


@pytest.mark.parametrize("version", MACROS)
def test_a_library_is_bound_with_the_interface_its_marker_names(version: str) -> None:
    library = open_library(libraries()[version])

    assert library.version == version
    assert version in library.abi.versions
    assert tuple(library.functions.rkllm_run.argtypes) == library.abi.types.signatures["rkllm_run"].argtypes


def test_a_marker_that_the_exports_contradict_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AbiMismatchError, match=r"RKLLM 1\.2\.0, but it also exports rkllm_get_kv_cache_size"):
        open_library(claiming(tmp_path, "1.2.3", "1.2.0"))


def test_a_marker_that_claims_functions_the_library_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AbiMismatchError, match=r"says it is RKLLM 1\.3\.0, but it lacks rkllm_get_kv_cache_size"):
        open_library(claiming(tmp_path, "1.2.0", "1.3.0"))


@pytest.mark.parametrize(("version", "claimed", "layout"), [("1.2.3", "1.3.0", "1.2.1"), ("1.3.0", "1.2.3", "1.3.0")])
def test_equal_exports_but_another_layout_of_the_defaults_is_refused(
    tmp_path: Path, version: str, claimed: str, layout: str
) -> None:
    with pytest.raises(AbiMismatchError) as refusal:
        open_library(claiming(tmp_path, version, claimed))
    assert f"says it is RKLLM {claimed}, but its defaults have the layout of {layout}" in str(refusal.value)
    assert f'set abi = "{layout}" under [runtime]' in str(refusal.value)


def test_an_override_beats_marker_and_defaults_but_not_a_missing_function(tmp_path: Path) -> None:
    path = claiming(tmp_path, "1.3.0", "1.2.3")
    assert open_library(path, "1.3.0").abi.name == "1.3.0"
    with pytest.raises(AbiMismatchError, match=r"lacks rkllm_get_kv_cache_size"):
        open_library(libraries()["1.2.0"], "1.3.0")


def test_an_override_that_is_not_a_release_is_refused_with_the_list(newest: Emulator) -> None:
    with pytest.raises(UnknownRuntimeError, match=r"no runtime interface '1\.4'\. Use auto or one of 1\.2\.0, 1\.2\.1"):
        open_library(newest.library, "1.4")


@pytest.mark.parametrize("version", ["1.0.2", "1.1.4", "1.3.2", "2.0.0"])
def test_an_unsupported_release_is_refused_with_what_works_and_how_to_override(tmp_path: Path, version: str) -> None:
    with pytest.raises(UnknownRuntimeError) as refusal:
        open_library(claiming(tmp_path, "1.3.0", version))
    assert f"is RKLLM {version}, which this program does not drive: " in str(refusal.value)
    assert WORKING in str(refusal.value)
    assert OVERRIDE in str(refusal.value)


def test_the_beta_of_1_2_1_is_not_taken_for_1_2_1(tmp_path: Path) -> None:
    marker = b"RKLLM SDK (version: 1.2.3 | target: Linux"
    path = patched(tmp_path, "1.2.3", marker, b"RKLLM SDK (version: 1.2.1b1 | target: Lin")
    with pytest.raises(UnknownRuntimeError, match=r"is RKLLM 1\.2\.1b1, .* between those of 1\.2\.0 and 1\.2\.1"):
        open_library(path)


def test_an_unverified_release_is_refused_unless_its_owner_allows_it(tmp_path: Path) -> None:
    path = claiming(tmp_path, "1.3.1", "1.3.2")
    with pytest.raises(UnknownRuntimeError, match=r"is RKLLM 1\.3\.2, .* drive: its interface has not been verified"):
        open_library(path)
    library = open_library(path, "1.3.1")
    assert (library.version, library.abi.name) == ("1.3.2", "1.3.1")


def test_a_library_without_a_marker_is_refused_with_its_probable_kind(tmp_path: Path) -> None:
    path = patched(tmp_path, "1.3.0", b"RKLLM SDK (version: ", b"")
    with pytest.raises(UnknownRuntimeError) as refusal:
        open_library(path)
    assert "does not say which RKLLM release it is (by its functions: 1.2.1 or newer)" in str(refusal.value)
    assert WORKING in str(refusal.value)


def test_a_library_of_something_else_is_refused_without_advice_to_try_it_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "librkllmrt.so"
    path.write_bytes(
        libraries()["1.3.0"].read_bytes().replace(b"RKLLM SDK", b"Other SDK").replace(b"rkllm_", b"other_")
    )
    with pytest.raises(UnknownRuntimeError) as refusal:
        open_library(path)
    assert str(refusal.value) == (
        f"{path} is no RKLLM runtime: it has none of its functions. "
        "Point [runtime] library at the librkllmrt.so of the RKLLM SDK."
    )


def test_a_file_that_is_not_a_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "librkllmrt.so"
    path.write_text("<html>404</html>")
    with pytest.raises(RuntimeUnusableError, match=r"is not a shared library\. Point"):
        open_library(path)


def test_a_library_for_another_machine_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    content = bytearray(libraries()["1.3.0"].read_bytes())
    content[18:20] = b"\xf3\x00"  # riscv64
    path = tmp_path / "librkllmrt.so"
    path.write_bytes(content)
    with pytest.raises(RuntimeUnusableError, match=r"is built for riscv64 and this Python runs on"):
        open_library(path)


def test_a_missing_libgomp_is_named_with_its_package(tmp_path: Path) -> None:
    (tmp_path / "gomp").mkdir()
    needed = compiled(tmp_path / "gomp", "int gomp_stub(void) { return 0; }", "-Wl,-soname,libgomp.so.987")
    needed.rename(tmp_path / "libgomp.so.987")
    marker = 'const char m[] = "RKLLM SDK (version: 1.3.0 | target: Linux | build: x)";'
    path = compiled(
        tmp_path,
        f"int gomp_stub(void); {marker} int f(void) {{ return gomp_stub(); }}",
        f"-L{tmp_path}",
        "-l:libgomp.so.987",
    )
    (tmp_path / "libgomp.so.987").unlink()
    with pytest.raises(RuntimeUnusableError, match=r"cannot be loaded: libgomp.* Install libgomp: 'sudo apt install"):
        open_library(path)


def test_defaults_that_look_like_no_family_are_not_evidence_against_the_marker(tmp_path: Path) -> None:
    functions = "".join(
        f"int {name}(void) {{ return -1; }}\n"
        for name in open_library(libraries()["1.3.0"]).abi.types.signatures
        if name != "rkllm_createDefaultParam"
    )
    path = compiled(
        tmp_path,
        'const char m[] = "RKLLM SDK (version: 1.3.0 | target: Linux | build: x)";\n'
        "struct param { char bytes[184]; };\n"
        "struct param rkllm_createDefaultParam(void) { struct param p = {{0}}; return p; }\n" + functions,
    )
    assert open_library(path).abi.name == "1.3.0"


def test_a_path_may_be_the_file_or_its_folder(newest: Emulator) -> None:
    assert find_library(str(newest.library)) == newest.library.resolve()
    assert find_library(str(newest.library.parent)) == newest.library.resolve()


def test_a_missing_path_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(LibraryNotFoundError, match=r"There is no runtime library at .*nowhere\.so"):
        find_library(str(tmp_path / "nowhere.so"))


def test_auto_looks_in_the_variable_then_along_the_loaders_path(
    newest: Emulator, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nonexistent:{newest.library.parent}")
    monkeypatch.delenv("RKLLM_LIBRARY", raising=False)
    assert find_library() == newest.library.resolve()
    monkeypatch.setenv("RKLLM_LIBRARY", str(emulator.library))
    assert find_library() == emulator.library.resolve()


def test_auto_that_finds_nothing_lists_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if any(Path(folder, "librkllmrt.so").exists() for folder in ("/usr/lib", "/usr/local/lib")):
        pytest.skip("this machine has the real runtime")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.delenv("RKLLM_LIBRARY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    with pytest.raises(LibraryNotFoundError) as refusal:
        find_library()
    own = tmp_path / "home" / ".local"
    places = f"{own}/share/rkllm-mcp/runtimes, {own}/lib, /usr/lib, /usr/local/lib, /usr/lib/aarch64-linux-gnu, /lib"
    assert f"looked in {tmp_path}, {places} and the loader's cache" in str(refusal.value)
    assert "Fetch it with 'rkllm-mcp runtime pull 1.3.0', " in str(refusal.value)
    assert "'--runtime emulator'" in str(refusal.value)
