"""The page's scripts and files by themselves: the pure parts under node, and what holds for every file."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rkllm_mcp.surfaces.http.page import FOLDER
from tests.support.shared import REPOSITORY

SCRIPTS = sorted(path for path in FOLDER.rglob("*.js") if "vendor" not in path.parts)
STYLES = sorted(FOLDER.rglob("*.css"))
MODULE_LINES = 600
# Text on its ground, and what is drawn on it: WCAG 2.2, 1.4.3 and 1.4.11.
TEXT, SHAPE = 4.5, 3.0
PAIRS = [
    (TEXT, ("text", "muted", "accent", "danger"), ("ground", "surface")),
    (TEXT, ("text", "muted"), ("raised", "accent-soft")),
    (TEXT, ("on-accent",), ("accent",)),
    (TEXT, ("accent",), ("accent-soft",)),
    (TEXT, ("danger",), ("danger-soft",)),
    (TEXT, ("caution",), ("caution-soft",)),
    (TEXT, ("code-keyword", "code-number", "info"), ("surface",)),
    (SHAPE, ("control", "accent", "danger"), ("ground", "surface")),
    (SHAPE, ("accent", "danger"), ("raised",)),
]


def node() -> str:
    """Node, in a version whose test runner takes modules; skips the calling test where there is none."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not on the PATH")
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
    if int(version.removeprefix("v").partition(".")[0]) < 20:
        pytest.skip(f"node {version.strip()} is older than 20")
    return program


def test_the_pure_parts_pass_their_tests_under_node() -> None:
    tests = [str(path) for path in sorted(Path(__file__).parent.glob("*.test.mjs"))]
    assert tests
    result = subprocess.run(
        [node(), "--test", *tests], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]


def test_every_script_is_a_module_of_one_sitting_with_a_header() -> None:
    assert SCRIPTS
    for path in SCRIPTS:
        text = path.read_text("utf-8")
        assert text.startswith("/**"), f"{path.name} does not open with what it is"
        # A language has as many sentences as the page.
        assert path.name.startswith("phrases.") or len(text.splitlines()) < MODULE_LINES, path.name


def test_nothing_in_the_scripts_makes_markup_or_code_out_of_text() -> None:
    forbidden = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser")
    assert [path.name for path in SCRIPTS if forbidden.search(path.read_text("utf-8"))] == []


def test_no_file_names_an_address_outside() -> None:
    # The names of XML's vocabularies are no addresses that anybody asks for; the phrases show an example.
    harmless = ("http://www.w3.org/", "https://example.com")
    for path in [*SCRIPTS, *STYLES, *FOLDER.glob("*.svg"), FOLDER / "index.html"]:
        found = re.findall(r"https?://[\w./-]+|url\([^)]*\)|@import[^;]*", path.read_text("utf-8"))
        assert [address for address in found if not address.startswith(harmless)] == [], path.name


def test_the_document_has_nothing_inline_and_all_that_it_names_is_there() -> None:
    class Reader(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.ids: list[str] = []
            self.named: list[str] = []
            self.inline: list[str] = []
            self.files: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            values = {name: value or "" for name, value in attrs}
            self.inline += [name for name in values if name.startswith("on") or name == "style"]
            self.inline += [tag] if tag == "style" or (tag == "script" and "src" not in values) else []
            self.ids += [values["id"]] if "id" in values else []
            self.named += [values[name] for name in ("for", "aria-controls", "aria-labelledby") if name in values]
            self.files += [values[name] for name in ("src", "href") if values.get(name, "").startswith("/static/")]

    reader = Reader()
    reader.feed((FOLDER / "index.html").read_text("utf-8"))
    assert reader.inline == []
    assert len(set(reader.ids)) == len(reader.ids)
    assert set(reader.named) <= set(reader.ids)
    symbols = set(re.findall(r'<symbol id="([a-z]+)"', (FOLDER / "icons.svg").read_text("utf-8")))
    for address in reader.files:
        path, _, symbol = address.removeprefix("/static/").partition("#")
        assert (FOLDER / path).is_file(), address
        assert not symbol or symbol in symbols, address
    used = {name for path in SCRIPTS for name in re.findall(r'\bicon\("([a-z]+)"', path.read_text("utf-8"))}
    assert used <= symbols


def test_the_document_names_the_modules_of_the_first_screen_and_no_others() -> None:
    waiting, found = [FOLDER / "js" / "main.js"], set[Path]()
    while waiting:
        module = waiting.pop()
        imports = re.findall(r'^import [^;]*?"(\.[^"]+)";', module.read_text("utf-8"), re.MULTILINE)
        new = {(module.parent / name).resolve() for name in imports} - found
        found |= new
        waiting += new
    named = re.findall(r'modulepreload" href="/static/([^"]+)"', (FOLDER / "index.html").read_text("utf-8"))
    assert named == sorted(path.relative_to(FOLDER).as_posix() for path in found)


@pytest.mark.parametrize("style", ["base.css", "dark.css"])
def test_colours_have_a_readable_contrast(style: str) -> None:
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", (FOLDER / "css" / style).read_text("utf-8")))
    for least, fronts, grounds in PAIRS:
        for front in fronts:
            for ground in grounds:
                found = contrast(colours[front], colours[ground])
                assert found >= least, f"{front} on {ground}: {found:.2f}"


def test_no_style_sheet_but_those_two_names_a_colour() -> None:
    named = [path.name for path in STYLES if re.search(r"#[0-9a-f]{3,8}\b|\brgb", path.read_text("utf-8"))]
    assert named == ["base.css", "dark.css"]


def contrast(one: str, other: str) -> float:
    """The ratio of two colours' luminances, as WCAG computes it."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
