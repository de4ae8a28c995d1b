"""Draw docs/demo.svg, the picture in the README, from a real run in a terminal.

Run it as ``.venv/bin/python -m scripts.picture``. The run is that of scripts/demo; only the agency's answers are saved
ones, so that the picture shows real weather of a day long gone and needs no network. They are in the folder ``shared``
next to the project.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import sys
import tempfile
from io import StringIO
from pathlib import Path

import pexpect
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tests.support.fake_jma import FakeAgency, cases_folder
from tests.support.shared import REPOSITORY
from tests.support.virtual_screen import VirtualScreen

COLUMNS, ROWS = 100, 50
QUESTIONS = ("東京の天気を教えて", "書式の例を見せて")
_TEXT = re.compile(r'textLength="([0-9.]+)"([^>]*)>([^<]*)<')
TARGET = REPOSITORY / "docs" / "demo.svg"
# A picture in a page loads nothing, so the reader's own fonts have to do.
FONTS = "ui-monospace, 'DejaVu Sans Mono', 'Noto Sans Mono CJK JP', monospace"


def seen(question: str, config: Path, environment: dict[str, str]) -> str:
    """What a terminal shows while the question is answered."""
    terminal: pexpect.spawn[str] = pexpect.spawn(
        sys.executable,
        ["-m", "rkllm_mcp", "--config", str(config), "--runtime", "emulator", "--model", "demo", "run", question],
        env={**os.environ, **environment, "TERM": "xterm-256color"},  # pyright: ignore[reportArgumentType]
        dimensions=(ROWS, COLUMNS),
        encoding="utf-8",
        timeout=120,
    )
    output = terminal.read()
    terminal.wait()
    if terminal.exitstatus != 0:
        raise SystemExit(f"the run failed:\n{output}")
    return output


def _with_cell_width(match: re.Match[str]) -> str:
    """A text's length in the picture by the columns it takes: rich counts a Japanese character as one."""
    length, between, text = match.groups()
    shown = html.unescape(text)
    width = float(length) / len(shown) * cell_len(shown)
    return f'textLength="{width:.1f}"{between}>{text}<'


def main() -> None:
    """Ask the questions and draw what was seen."""
    screen = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    with tempfile.TemporaryDirectory() as folder, FakeAgency(cases_folder()) as agency:
        config = Path(folder, "mcp_config.toml")
        text = (REPOSITORY / "models" / "demo" / "mcp_config.toml").read_text(encoding="utf-8")
        config.write_text(text.replace("inherit_env = [", 'inherit_env = ["WEATHER_NOW", ', 1), encoding="utf-8")
        files = shutil.copytree(REPOSITORY / "models" / "demo" / "files", Path(folder, "files"))
        environment = {**agency.environment(Path(folder, "cache")), "RKLLM_MCP_FILES": str(files)}
        environment["RKLLM_MCP_STATE"] = str(Path(folder, "state"))
        for question in QUESTIONS:
            screen.print(Text.assemble(("$ ", "bold green"), f'scripts/demo "{question}"'))
            with VirtualScreen(COLUMNS, ROWS) as terminal:
                terminal.write(seen(question, config, environment))
                screen.print(Text.from_ansi(terminal.styled), "")
    svg = screen.export_svg(title="rkllm-mcp", unique_id="demo")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code, monospace", FONTS)
    svg = _TEXT.sub(_with_cell_width, svg)
    TARGET.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
