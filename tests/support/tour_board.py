"""The boards of the tour: ``rkllm-mcp serve`` on the emulated NPU with real servers and a model that plays a script."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.support.demo_app import Demo, make_demo
from tests.support.feature_demo import DESK
from tests.support.mcp_servers import tiny
from tests.support.served import scripted_model

LINES = "\\n\\n".join(f"Line {number} of a long answer." for number in range(1, 51))
_SUM = " + ".join(f"value_{number}" for number in range(30))
_DAYS = " | ".join(f"day {day}" for day in range(1, 15))
_DEGREES = " | ".join(f"{day} degrees" for day in range(1, 15))
WIDE = (
    f"```python\\ntotal = {_SUM}  # the end\\n```\\n\\n"
    f"| place | {_DAYS} |\\n|{'---|' * 15}\\n| Tokyo | {_DEGREES} |\\n\\n"
    f"`{'z' * 80}` and https://example.com/{'w' * 80}\\n\\nThat is all."
)
RULES = rf"""
rule writes for long
  user (at length|長く)
  say {LINES}

rule wide
  user (wide table|広い表)
  say {WIDE}

rule clock
  user (time is it|何時)
  prompt clock
  results 0
  call clock {{"timezone":"Europe/London"}}

rule no clock
  user (time is it|何時)
  results 0
  say I have no clock. / 時計がありません。

rule the time
  user (time is it|何時)
  result ([0-9][0-9]:[0-9][0-9])
  say In London it is %1.

rule write
  user (Save|保存).* ([a-z]+\.txt)
  results 0
  call write_file {{"path":"$2","content":"Sunny, 21 degrees."}}

rule write what is said first
  user ([a-z]+\.txt) に保存
  results 0
  call write_file {{"path":"$1","content":"Sunny, 21 degrees."}}

rule written
  user (Save|保存)
  result ^Wrote ([a-z.]+)
  say %1 is written. / %1 に書きました。

rule not written
  user (Save|保存)
  results 1+
  say Then I leave it. / では書きません。

rule form
  user (Book|予約)
  results 0
  call ask_owner {{}}

rule booked
  user (Book|予約)
  result "name": ?"([^"]*)"
  say Booked for %1. / %1 様で予約しました。

rule declined
  user (Book|予約)
  results 1+
  say Not booked. / 予約しませんでした。

rule number
  user (Number|番号)[^0-9]*([0-9]+)
  say Number $2 it is. / $2 番ですね。

rule pasted
  user (How many lines|何行)
  say As many as you pasted. / 貼り付けた行数です。

rule search
  user (holiday|休暇)
  prompt search_documents
  results 0
  call search_documents {{"query":"holiday in year 7"}}

rule found
  user (holiday|休暇)
  result ([0-9]+) days
  say It is %1 days. / %1 日です。

rule
  say I do not know. / 分かりません。
"""
_CONFIG = """
[[servers]]
name = "local"
tools = [{ name = "clock" }]

[[servers]]
name = "files"
folder = "FOLDER"
write = true
allowed_tools = ["list_directory", "write_file"]
"""
KNOWLEDGE = """
[[servers]]
name = "knowledge"
command = "${PYTHON}"
args = ["-m", "mcp_servers.knowledge", "--default-base", "*", "--text", "passages"]
allowed_tools = ["search_documents"]
"""


@contextmanager
def serving(demo: Demo, port: int = 0) -> Generator[tuple[str, subprocess.Popen[str]]]:
    """The service's address and process, once its model is loaded."""
    with demo.started("serve", "--port", str(port)) as process:
        address = ""
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"Serving at (http://[\d.]+:\d+)", line):
                address = found[1]
            if line.startswith("Ready"):
                break
        assert address
        yield address, process
        if process.poll() is None:
            process.terminate()
            _, said = process.communicate(timeout=60)
            assert process.returncode == 0, said


def tour_demo(folder: Path, extra: str = "", prefill: int = 20_000, *, is_equipped: bool = False) -> Demo:
    """The assistant of the tour in ``folder``; its files are those of ``folder / "files"``.

    Args:
        folder: where everything of it is.
        extra: further sections of its configuration.
        prefill: how fast its model reads, tokens per second.
        is_equipped: with a knowledge server, further models (owl takes a while to load) and a ``uvx`` that runs a small
            server whatever its arguments are.
    """
    model = scripted_model(folder / "model", RULES, name="secretary", speed=f"prefill {prefill} decode 90")
    (folder / "files").mkdir()
    servers = _CONFIG.replace("FOLDER", str(folder / "files")) + (KNOWLEDGE if is_equipped else "")
    demo = make_demo(folder / "home", (DESK,), path=model, extra=extra, speed="")
    # Its tools ask questions of their own.
    text = demo.config.read_text("utf-8").replace(
        'name = "desk"\n', 'name = "desk"\napprove = "dangerous"\nallowed_tools = ["ask_owner"]\n'
    )
    demo.config.write_text(text + servers, "utf-8")
    return _equipped(demo) if is_equipped else demo


def _equipped(demo: Demo) -> Demo:
    models = demo.folder / ".local" / "share" / "rkllm-mcp" / "models"
    scripted_model(models / "owl", "fault init-slow 3\nrule\n  say I am the owl.\n", name="owl")
    scripted_model(models / "sparrow", "rule\n  say I am the sparrow.\n", name="sparrow")
    programs = demo.folder / "programs"
    programs.mkdir()
    # Inside the sandbox the tests are not to be seen.
    uvx = programs / "uvx"
    uvx.write_text(f"#!{sys.executable}\n{Path(tiny.__file__).read_text('utf-8')}", "utf-8")
    uvx.chmod(0o755)
    return Demo(demo.folder, {**demo.environment, "PATH": f"{programs}:{demo.environment['PATH']}"})
