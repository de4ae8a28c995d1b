"""Optional parts are added to the environment of the program, however that was made; every remedy names the command."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import packaging
import pytest

from rkllm_base.installation import extras
from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.text import LANGUAGES
from tests.support.shared import REPOSITORY

PROGRAMS = ("rkllm_mcp", "mcp_servers", "rkllm_base")
# A distribution of this name with an extra, and a package for it.
METADATA = """Metadata-Version: 2.4
Name: {name}
Version: 1.0
"""
OURS = "Provides-Extra: part\nRequires-Dist: anything-else\nRequires-Dist: a-part[more]>=1; extra == 'part'\n"
PARTS = "Provides-Extra: more\nRequires-Dist: more-of-it; extra == 'more'\n"


def environment(folder: Path, *, with_pip: bool = False) -> Path:
    """An environment in which this program is installed, with ``packaging`` and nothing else; its Python."""
    without = () if with_pip else ("--without-pip",)
    subprocess.run([sys.executable, "-m", "venv", *without, str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "packaging").symlink_to(Path(packaging.__file__).parent)
    (site / "rkllm_mcp-1.0.dist-info").mkdir()
    (site / "rkllm_mcp-1.0.dist-info" / "METADATA").write_text(METADATA.format(name="rkllm-mcp") + OURS, "utf-8")
    return folder / "bin" / "python"


def run(python: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a line of Python that uses ``rkllm_base.installation`` in an environment."""
    return subprocess.run(
        [python, "-c", f"from rkllm_base.installation import *; {code}"],
        check=False,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(REPOSITORY), "HOME": str(python.parents[2]), "PATH": os.environ["PATH"], **variables},
    )


def write_wheel(folder: Path, name: str, further: str = "") -> None:
    module = name.replace("-", "_")
    about = f"{module}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{module}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{module}.py", "")
        wheel.writestr(f"{about}/METADATA", METADATA.format(name=name) + further)
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/RECORD", "")


def test_a_part_is_installed_by_pip_once_and_with_what_belongs_to_it(tmp_path: Path) -> None:
    python = environment(tmp_path / "environment", with_pip=True)
    write_wheel(tmp_path, "a-part", PARTS)
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    refused = run(python, "install_extra('part')", **offline)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == (
        "rkllm_base.installation.InstallationError: part could not be installed, for the reason above;"
        f" run: {python} -m pip --disable-pip-version-check install 'a-part[more]>=1'"
    )

    write_wheel(tmp_path, "more-of-it")
    shown = "print(installed_extras())"
    done = run(python, f"{shown}; install_extra('part'); {shown}; import a_part, more_of_it", **offline)
    assert (done.returncode, done.stdout) == (0, "[]\n['part']\n"), done.stderr
    again = run(python, "install_extra('part')", **offline)
    assert (again.returncode, again.stderr) == (0, "")


def test_an_environment_of_uv_or_pipx_is_changed_by_what_made_it(tmp_path: Path) -> None:
    python = environment(tmp_path / "environment")
    words = "import json; print(json.dumps(install_words(['a[b]>=1'])))"
    without = run(python, words, PATH=str(tmp_path))
    assert without.stderr.splitlines()[-1].endswith("is not here any more; install it: pipx install uv")

    # Where install.sh puts it.
    uv = tmp_path / ".local/share/rkllm-mcp/uv/bin/uv"
    uv.parent.mkdir(parents=True)
    uv.write_text("#!/bin/sh\n", "utf-8")
    uv.chmod(0o755)
    by_uv = run(python, words, PATH=str(tmp_path))
    assert json.loads(by_uv.stdout) == [str(uv), "pip", "install", "--no-cache", "--python", str(python), "a[b]>=1"]

    (tmp_path / "environment" / "pipx_metadata.json").touch()
    by_pipx = run(python, words, PATH=str(tmp_path))
    assert json.loads(by_pipx.stdout) == ["pipx", "inject", "rkllm-mcp", "a[b]>=1"]


def test_a_remedy_names_the_program_as_it_is_called_here(tmp_path: Path) -> None:
    python = environment(tmp_path / "an environment")
    remedy = "print(install_command('postgres'))"
    assert run(python, remedy).stdout == f"'{python}' -m rkllm_mcp install postgres\n"
    script = python.with_name("rkllm-mcp")
    script.write_text("#!/bin/sh\n", "utf-8")
    script.chmod(0o755)
    assert run(python, remedy).stdout == f"'{script}' install postgres\n"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "rkllm-mcp").symlink_to(script)
    assert run(python, remedy, PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}").stdout == "rkllm-mcp install postgres\n"


def test_every_remedy_names_an_extra_that_exists_and_has_a_text_in_every_language() -> None:
    named = {
        argument.value
        for folder in PROGRAMS
        for file in (REPOSITORY / folder).rglob("*.py")
        for call in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in {"install_command", "MissingExtraError"}
        for argument in call.args[-1:]
        if isinstance(argument, ast.Constant)
    }
    known = set(extras())
    assert named
    assert named - known == set()
    assert {"anthropic", "openai"} <= known, "named by the kind of a service"
    assert {language: set(read_catalogue(language).table("extras")) for language in LANGUAGES} == dict.fromkeys(
        LANGUAGES, known
    )


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")
def test_no_page_and_no_message_installs_a_package_by_another_command() -> None:
    places = [*PROGRAMS, "docs", "README.md", "README.ja.md", "install.sh", "scripts", "native"]
    command = ["git", "grep", "-nE", r"rkllm-mcp\[|pip install (pillow|psycopg|onnx)|pip install \{e\.", "--", *places]
    found = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert found.stdout == ""


@pytest.mark.skipif(shutil.which("grep") is None, reason="install.sh needs grep")
@pytest.mark.parametrize("place", ["checkout", "shared folder", "pipe", "other owner"])
def test_the_installer_takes_a_checkout_and_nothing_that_another_user_laid_next_to_it(
    tmp_path: Path, place: str
) -> None:
    if place == "other owner" and os.geteuid() != 0:
        pytest.skip("only root gives a file to another user")
    folder, home = tmp_path / "folder", tmp_path / "home"
    folder.mkdir()
    (home / ".local" / "bin").mkdir(parents=True)
    script = shutil.copy(REPOSITORY / "install.sh", folder)
    (folder / "pyproject.toml").write_text('name = "rkllm-mcp"\n', "utf-8")
    if place == "other owner":
        os.chown(folder / "pyproject.toml", 65534, 65534)
    folder.chmod(0o1777 if place == "shared folder" else 0o755)
    for name in ("uv", "rkllm-mcp"):
        program = home / ".local" / "bin" / name
        program.write_text(f'#!/bin/sh\necho "$@" >> {home}/{name}.log\necho {home}/.local/bin\n', "utf-8")
        program.chmod(0o755)
    environment = {"HOME": str(home), "PATH": f"{home}/.local/bin:{os.environ['PATH']}"}
    words, given = (["sh"], Path(script).read_text("utf-8")) if place == "pipe" else (["sh", script], None)
    subprocess.run(words, cwd=folder, env=environment, input=given, text=True, check=True, capture_output=True)
    asked = (home / "uv.log").read_text("utf-8").splitlines()[0].split()[-1]
    assert asked == (str(folder) if place == "checkout" else "rkllm-mcp")
