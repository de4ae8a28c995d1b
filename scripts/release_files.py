"""Build the files of a release; ``scripts/release`` starts this module with the tools that it needs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from html import escape
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
DEBIAN = REPOSITORY / "deploy" / "debian"
REQUIREMENTS = DEBIAN / "requirements.txt"
# The folder is an environment of Python (pyvenv.cfg), for whichever of these /usr/bin/python3 is.
HOME = Path("usr/lib/rkllm-mcp")
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
# The C library of the oldest system that has such a Python, Ubuntu 22.04, is 2.35.
PLATFORM = "aarch64-manylinux_2_31"
# What may differ between the wheels of one release for several Pythons; that for the oldest is taken. Modules of the
# stable ABI work on every later Python, and numpy only prints its __config__.
_VARIANTS = re.compile(r"\.dist-info/|\.abi3\.so$|^numpy/__config__\.py$")
# Where and when the installer took a package from; the same commit is to give the same bytes.
_OF_THIS_BUILD = ("direct_url.json", "uv_cache.json")
_PROGRAM = """#!/{home}/bin/python3
import sys

from {module} import {function}

sys.exit({function}())
"""
# What a user adds, for one Python: files of this package are dpkg's.
_ADDED = 'import site, sys; site.addsitedir("/usr/local/lib/rkllm-mcp/python%d.%d" % sys.version_info[:2])\n'


def main() -> None:
    """Build the release into the folder of the first argument, which is emptied."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for old in out.iterdir():
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(out))
    (wheel,) = out.glob("*.whl")
    version = wheel.name.split("-")[1]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir(mode=0o755)
        _lay_out(root, wheel, Path(folder))
        bill = out / f"rkllm-mcp-{version}.cdx.json"
        _write_bill(bill, root / HOME / "lib/site-packages", Path(folder), version)
        _build_package(root, bill, out / f"rkllm-mcp_{version}_arm64.deb", version)
    _write_index(out)
    _write_sums(out)
    for path in sorted(out.iterdir()):
        print(path)


def _run(*words: str | Path) -> None:
    subprocess.run(words, cwd=REPOSITORY, check=True, stdout=sys.stderr, timeout=900)


def _lay_out(root: Path, wheel: Path, folder: Path) -> None:
    """Write the files of the Debian package: one environment for every supported Python."""
    site = root / HOME / "lib/site-packages"
    site.mkdir(parents=True)
    for python in PYTHONS:
        (site.parent / f"python{python}").mkdir()
        (site.parent / f"python{python}/site-packages").symlink_to("../site-packages")
        _merge(_installed(python, folder / python, "--require-hashes", "-r", str(REQUIREMENTS)), site)
    _merge(_installed(PYTHONS[0], folder / "project", "--no-deps", str(wheel)), site)
    (site / "added.pth").write_text(_ADDED, "utf-8")
    (root / HOME / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n", "utf-8")
    programs = root / HOME / "bin"
    programs.mkdir()
    (programs / "python3").symlink_to("/usr/bin/python3")
    (root / "usr/bin").mkdir()
    for name, module, function in _entry_points(wheel):
        (programs / name).write_text(_PROGRAM.format(home=HOME, module=module, function=function), "utf-8")
        (programs / name).chmod(0o755)
        (root / "usr/bin" / name).symlink_to(f"/{HOME}/bin/{name}")


def _installed(python: str, folder: Path, *what: str) -> Path:
    """Return a folder with packages for one Python on aarch64, none of them built here."""
    uv = Path(sys.executable).parent / "uv"
    options = ("--quiet", "--python-platform", PLATFORM, "--python-version", python, "--only-binary", ":all:")
    _run(uv, "pip", "install", "--python", sys.executable, *options, "--target", folder, *what)
    return folder


def _merge(source: Path, site: Path) -> None:
    """Move packages into ``site``; compiled modules have the Python in their names, and other files are the same."""
    shutil.rmtree(source / "bin", ignore_errors=True)
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        if not path.is_file() or name.name in {".lock", *_OF_THIS_BUILD}:
            continue
        if name.name == "RECORD":
            lines = path.read_text("utf-8").splitlines(keepends=True)
            path.write_text(
                "".join(line for line in lines if not any(f"/{made}," in line for made in _OF_THIS_BUILD)), "utf-8"
            )
        target = site / name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, target)
        elif not _VARIANTS.search(str(name)) and path.read_bytes() != target.read_bytes():
            raise SystemExit(f"{name} is another file for another Python; pin one release of its package")


def _entry_points(wheel: Path) -> Iterator[tuple[str, str, str]]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (path for path in archive.namelist() if path.endswith(".dist-info/entry_points.txt"))
        parser = ConfigParser()
        parser.read_string(archive.read(name).decode())
    for program, target in parser["console_scripts"].items():
        module, _, function = target.partition(":")
        yield program, module, function


def _write_bill(bill: Path, site: Path, folder: Path, version: str) -> None:
    """Write the CycloneDX bill of materials of what is in the Debian package."""
    environment = folder / "environment"
    _run(sys.executable, "-m", "venv", "--without-pip", environment)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "site.pth").write_text(f"{site}\n", "utf-8")
    options = ("--output-reproducible", "--pyproject", "pyproject.toml", "--mc-type", "application")
    tool = (sys.executable, "-m", "cyclonedx_py", "environment", *options, "--sv", "1.6", "-o", bill)
    _run(*tool, environment / "bin" / "python")
    content = json.loads(bill.read_text("utf-8"))
    # The project file names the release only by the module that has it.
    content["metadata"]["component"]["version"] = version
    # The tool reads names of licences that SPDX knows; a few packages write a sentence.
    sentences = dict(_licences(site))
    for part in content["components"]:
        if not part.get("licenses") and (sentence := sentences.get(part["name"])):
            part["licenses"] = [{"license": {"name": sentence}}]
    # The path of the machine that built it says nothing to others.
    text = json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True)
    bill.write_text(text.replace(str(folder), "") + "\n", "utf-8")


def _licences(site: Path) -> Iterator[tuple[str, str]]:
    for distribution in distributions(path=[str(site)]):
        metadata: Any = distribution.metadata
        yield metadata["Name"], metadata["License"] or ""


def _build_package(root: Path, bill: Path, package: Path, version: str) -> None:
    about = root / "usr/share/doc/rkllm-mcp"
    about.mkdir(parents=True)
    shutil.copyfile(REPOSITORY / "LICENSE", about / "copyright")
    shutil.copyfile(bill, about / "sbom.cdx.json")
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    control = root / "DEBIAN"
    control.mkdir()
    text = (DEBIAN / "control").read_text("utf-8")
    (control / "control").write_text(text.replace("VERSION", version).replace("KIBIBYTES", str(size // 1024)), "utf-8")
    for name in ("postinst", "prerm", "triggers"):
        shutil.copyfile(DEBIAN / name, control / name)
    for path in root.rglob("*"):
        if not path.is_symlink():
            is_program = path.is_dir() or path.parent.name == "bin" or path.name in {"postinst", "prerm"}
            path.chmod(0o755 if is_program else 0o644)
    # A third of the time of the default level, for a twentieth more bytes.
    _run("dpkg-deb", "--root-owner-group", "-Zxz", "-z3", "--build", root, package)


def _write_index(out: Path) -> None:
    """Write a simple index (PEP 503) of the package below ``simple/``."""
    folder = out / "simple" / "rkllm-mcp"
    folder.mkdir(parents=True)
    lines = [
        f'<a href="../../{escape(path.name)}#sha256={_sha256(path)}">{escape(path.name)}</a>'
        for path in sorted([*out.glob("*.whl"), *out.glob("*.tar.gz")])
    ]
    (folder / "index.html").write_text("<!DOCTYPE html>\n" + "<br>\n".join(lines) + "\n", "utf-8")
    (folder.parent / "index.html").write_text('<!DOCTYPE html>\n<a href="rkllm-mcp/">rkllm-mcp</a>\n', "utf-8")


def _write_sums(out: Path) -> None:
    lines = [f"{_sha256(path)}  {path.name}\n" for path in sorted(out.iterdir()) if path.is_file()]
    (out / "SHA256SUMS").write_text("".join(lines), "utf-8")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    os.umask(0o022)
    main()
