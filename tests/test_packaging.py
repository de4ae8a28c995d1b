"""The wheel that people install holds all it needs and works away from the repository."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from rkllm_mcp import __version__
from tests.support.installed import need_index
from tests.support.shared import REPOSITORY

# 290 MB are compressed, or run under emulation; pytest ends a test after 600 s.
RELEASE_LIMIT_S = 590


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built without a network."""
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, timeout=120)
    (built,) = target.glob("*.whl")
    return built


def test_the_wheel_holds_the_packages_the_models_and_the_emulators_sources_and_nothing_built(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for needed in (
        "rkllm_mcp/app/assistant.py",
        "rkllm_mcp/py.typed",
        "mcp_servers/py.typed",
        "rkllm_mcp/_models/demo/mcp_config.toml",
        "mcp_servers/weather/__main__.py",
        "mcp_servers/knowledge/ocr/katakana.txt",
        "mcp_servers/knowledge/ocr/recent.txt",
        "mcp_servers/knowledge/search/sudachi_synonyms.txt",
        "mcp_servers/knowledge/search/synonyms.txt",
        "rkllm_mcp/surfaces/cli/config_template.toml.txt",
        "rkllm_mcp/_models/demo/demo.rkllm",
        "rkllm_mcp/_models/demo/tokenizer.json",
        "rkllm_mcp/_native/build.py",
        "rkllm_mcp/_native/include/rkllm_abi.h",
        "rkllm_mcp/tools/glossary.txt",
        "rkllm_mcp/tools/spelling.txt",
        "rkllm_mcp/surfaces/web/index.html",
        "rkllm_mcp/surfaces/web/icons.svg",
        "rkllm_mcp/surfaces/web/css/base.css",
        "rkllm_mcp/surfaces/web/js/main.js",
        "rkllm_mcp/surfaces/web/js/markdown/blocks.js",
    ):
        assert needed in names
    assert not [name for name in names if name.endswith((".so", ".pyc", ".o")) or "/tests/" in name]


def test_the_source_archive_holds_the_types_and_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run([*build, "-t", "sdist"], cwd=REPOSITORY, check=True, capture_output=True, timeout=120)
    (source,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (folder,) = (tmp_path / "source").iterdir()
    assert (folder / "rkllm_mcp" / "py.typed").is_file()
    subprocess.run([*build, "-t", "wheel"], cwd=folder, check=True, capture_output=True, timeout=120)
    (again,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert sorted(first.namelist()) == sorted(second.namelist())


# scripts/setup gets it where the machine has none.
UV = shutil.which("uv", path=f"{os.environ['PATH']}:{Path(sys.executable).parent}")


@pytest.mark.skipif(UV is None, reason="uv is not here")
@pytest.mark.parametrize("source", ["checkout", "wheel"])
def test_uv_installs_it_as_a_tool_in_a_bare_home_with_documents_and_types(
    wheel: Path, tmp_path: Path, source: str
) -> None:
    need_index()
    home = tmp_path / "home"
    (home / ".local" / "bin").mkdir(parents=True)
    (home / ".local" / "bin" / "uv").symlink_to(str(UV))
    kept = {key: value for key, value in os.environ.items() if key.startswith(("UV_", "PIP_", "SSL_", "HTTP"))}
    environment = {**kept, "HOME": str(home), "PATH": f"{home}/.local/bin:{os.environ['PATH']}", "LANG": "C.UTF-8"}

    def run(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            words, cwd=home, env=environment, capture_output=True, text=True, timeout=400, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    package = REPOSITORY if source == "checkout" else wheel
    run("sh", str(REPOSITORY / "install.sh"), str(package))
    # Nothing was set up, so nothing answers, least of all a script.
    assert "No model is configured: rkllm-mcp setup." in run("rkllm-mcp", "run", "hello", code=3)
    assert "✓ It called clock and answered." in run("rkllm-mcp", "setup", "--yes", "--emulated", "--no-service")
    assert f"# {home}/.config/rkllm-mcp/config.toml\n" in run("rkllm-mcp", "config", "show")
    assert "answers from a script" in run("rkllm-mcp", "run", "hello")
    (home / "rules.html").write_text("<h1>House</h1><p>The bins are emptied on Thursday.</p>", "utf-8")
    run("rkllm-mcp", "knowledge", "create", "house")
    run("rkllm-mcp", "knowledge", "add", "rules.html")
    assert "emptied on Thursday" in run("rkllm-mcp", "knowledge", "search", "When are the bins emptied?")
    tools = next((home / ".local" / "share" / "uv" / "tools" / "rkllm-mcp").glob("lib/python*/site-packages"))
    assert (tools / "rkllm_mcp" / "py.typed").is_file()
    status = json.loads(run("rkllm-mcp", "status", "--json", code=1))
    assert (status["running"], status["configuration"]) == (False, f"{home}/.config/rkllm-mcp/config.toml"), status
    run("rkllm-mcp", "backup", "board.tar.gz")
    run("rkllm-mcp", "update")
    assert "answers from a script" in run("rkllm-mcp", "run", "hello")
    run("rkllm-mcp", "uninstall", "--all", "--yes")
    assert not tools.exists()
    assert not (home / ".local/share/rkllm-mcp").exists()
    assert not (home / ".config/rkllm-mcp").exists()
    assert (home / "board.tar.gz").is_file()


def test_an_installed_package_answers_on_the_emulated_npu(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("RKLLM", "XDG", "PYTHON"))}
    environment |= {"HOME": str(tmp_path), "PYTHONPATH": str(site), "RKLLM_EMULATOR_SPEED": "flat"}
    # Packages are found in the order of PYTHONPATH, so these are the wheel's, not the repository's.
    command = [sys.executable, "-m", "rkllm_mcp", "--runtime", "emulator", "--model", "demo", "run", "Hello"]
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("◆ This is the emulated model")
    assert list((tmp_path / ".cache" / "rkllm-mcp" / "emulator").glob("*/librkllmrt.so"))


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with everything that ``scripts/release`` builds."""
    need_index()
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is not here")
    folder = tmp_path_factory.mktemp("release") / "dist"
    done = subprocess.run(
        [REPOSITORY / "scripts" / "release", folder],
        env={**os.environ, "PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RELEASE_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return folder


def test_a_release_is_complete_and_its_checksums_are_right(release: Path) -> None:
    assert sorted(path.name for path in release.iterdir()) == [
        "SHA256SUMS",
        f"rkllm-mcp-{__version__}.cdx.json",
        f"rkllm-mcp_{__version__}_arm64.deb",
        f"rkllm_mcp-{__version__}-py3-none-any.whl",
        f"rkllm_mcp-{__version__}.tar.gz",
        "simple",
    ]
    lines = (release / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    files = [path for path in release.iterdir() if path.is_file() and path.name != "SHA256SUMS"]
    assert sums == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_same_commit_gives_the_same_wheel_and_source_archive(release: Path, tmp_path: Path) -> None:
    epoch = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=REPOSITORY, check=True, capture_output=True, text=True
    ).stdout.strip()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(tmp_path)],
        cwd=REPOSITORY,
        env={**os.environ, "SOURCE_DATE_EPOCH": epoch},
        check=True,
        capture_output=True,
        timeout=120,
    )
    for built in tmp_path.iterdir():
        assert built.read_bytes() == (release / built.name).read_bytes()


def test_pip_takes_the_package_from_the_index_of_a_release(release: Path, tmp_path: Path) -> None:
    index = (release / "simple").as_uri()
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--index-url", index, "-d", str(tmp_path)]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    environment = {**kept, "PIP_CONFIG_FILE": os.devnull}
    subprocess.run([*command, "rkllm-mcp"], env=environment, check=True, capture_output=True, timeout=120)
    (taken,) = tmp_path.iterdir()
    assert taken.read_bytes() == (release / taken.name).read_bytes()


def test_the_debian_package_has_modules_of_arm64_for_each_python_and_a_bill_of_all_libraries(
    release: Path, tmp_path: Path
) -> None:
    (package,) = release.glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", package, tmp_path], check=True, timeout=300)
    home = tmp_path / "usr/lib/rkllm-mcp"
    modules = list((home / "lib/site-packages").rglob("*.so*"))
    # Where it was built would make each build another one.
    assert not [path for path in home.glob("lib/site-packages/*.dist-info/*") if path.name == "direct_url.json"]
    # The 18th and 19th byte of a library name its machine: 183 is aarch64.
    assert {path.name for path in modules if path.read_bytes()[18:20] != b"\xb7\x00"} == set()
    pythons = {tag for path in modules for tag in re.findall(r"\.cpython-(\d+)-aarch64", path.name)}
    assert pythons == {"310", "311", "312", "313"}
    core = {path.name.split(".")[1][:11] for path in modules if path.name.startswith("_pydantic_core")}
    assert core == {"cpython-310", "cpython-311", "cpython-312", "cpython-313"}
    assert sorted(path.name for path in (home / "lib").glob("python*")) == [
        f"python3.{minor}" for minor in (10, 11, 12, 13)
    ]
    bill = json.loads((release / f"rkllm-mcp-{__version__}.cdx.json").read_text("utf-8"))
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", __version__)
    shipped = {path.name.split("-")[0].lower() for path in home.glob("lib/site-packages/*.dist-info")} - {"rkllm_mcp"}
    assert {part["name"].lower().replace("-", "_").replace(".", "_") for part in bill["components"]} == shipped
    assert not [part["name"] for part in bill["components"] if not part.get("licenses")]
    installed = (tmp_path / "usr/share/doc/rkllm-mcp/sbom.cdx.json").read_bytes()
    assert installed == (release / f"rkllm-mcp-{__version__}.cdx.json").read_bytes()


@pytest.mark.arm64
def test_the_debian_package_is_installed_answers_and_is_removed_in_a_clean_root(release: Path) -> None:
    has_qemu = shutil.which("qemu-aarch64-static") and shutil.which("proot")
    if not has_qemu and not (REPOSITORY / ".arm64" / "host" / "ready").exists():
        pytest.skip("qemu-user-static and proot are not installed, and scripts/arm64 has not fetched them")
    (package,) = release.glob("*.deb")
    done = subprocess.run(
        [REPOSITORY / "scripts" / "arm64", "--package", package],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RELEASE_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "done on aarch64" in done.stdout.splitlines()[-1]
