"""Pictures at the command line: files of a question, standard input, and /file in the chat."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from tests.support.outcome import run_here
from tests.support.pictures import BLUE, BLUE_ABOVE_RED, GREEN_ABOVE_WHITE, RED, RED_ABOVE_BLUE, saved, stripes
from tests.support.seeing_model import seeing_model, without_eyes


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a model that sees, and pictures."""
    seeing_model(tmp_path)
    for name, data in {"a.png": RED_ABOVE_BLUE, "b b.png": BLUE_ABOVE_RED, "c.png": GREEN_ABOVE_WHITE}.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "cut.png").write_bytes(RED_ABOVE_BLUE[:200])
    # As phones write two pictures in one file.
    (tmp_path / "d.mpo").write_bytes(stripes((RED, BLUE), kind="MPO"))
    return tmp_path


def said(place: Path, *words: str, stdin: bytes = b"") -> tuple[int, str, str]:
    own = {name: str(place / name) for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")}
    command = (*words, "--model", "./seeing", "--runtime", "emulator")
    done = run_here({**os.environ, **own}, *command, stdin=stdin, folder=place)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "stdin", "answer"),
    [
        (("what is it?", "-f", "a.png"), b"", "It is red above, blue below."),
        (("what is it?", "-f", "-"), BLUE_ABOVE_RED, "It is blue above, red below."),
        (
            ("both?", "-f", "c.png", "-f", "b b.png"),
            b"",
            "The first is green above, white below, the second is blue above, red below.",
        ),
    ],
)
def test_a_question_takes_pictures(place: Path, words: tuple[str, ...], stdin: bytes, answer: str) -> None:
    code, out, _ = said(place, "run", *words, stdin=stdin)
    assert (code, out.strip().removeprefix("◆ ")) == (0, answer)


def test_the_cost_of_pictures_is_named_with_what_was_read(place: Path) -> None:
    words = ("both?", "-f", "c.png", "-f", "b b.png", "-v")
    assert "; pictures take 32 of the prompt]" in said(place, "run", *words)[2]
    assert "pictures take" not in said(place, "run", "hello", "-v")[2]


def test_a_damaged_picture_is_a_sentence(place: Path) -> None:
    code, out, err = said(place, "run", "what is it?", "-f", "cut.png")
    assert (code, out.strip()) == (1, "")
    assert "the PNG picture is damaged or incomplete" in err


@pytest.mark.parametrize(
    ("data", "kind"),
    [(saved(Image.new("RGB", (9, 9)), "TIFF"), "a TIFF picture"), (b"\xff\n" + bytes(50), "a JPEG XL picture")],
)
def test_a_picture_of_another_format_is_told_those_of_pictures(place: Path, data: bytes, kind: str) -> None:
    (place / "x.tif").write_bytes(data)
    code, out, err = said(place, "run", "what is it?", "-f", "x.tif")
    assert (code, out.strip()) == (2, "")
    assert f"x.tif is {kind}, which is not read; save it as JPEG, PNG, WebP, AVIF, GIF or BMP" in err


def test_a_text_that_begins_as_a_picture_does_is_a_text(place: Path) -> None:
    (place / "notes.txt").write_bytes(b"BMW and other makers")
    code, out, err = said(place, "run", "what is it?", "-f", "notes.txt")
    assert (code, "BMW and other makers" in out) == (0, True), err


@pytest.mark.parametrize("name", ["a.png", "cut.png"])
def test_a_model_that_does_not_see_says_so_once_and_names_one_that_does(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (place / "models").mkdir()
    (place / "seeing").rename(place / "models" / "seeing")
    without_eyes(place).rename(place / "seeing")
    monkeypatch.setenv("RKLLM_MCP_MODELS", str(place / "models"))
    # Where Tesseract is installed the text of a picture is read; these have none.
    sentence = f"{name} cannot be read: this model does not see pictures; 'seeing' does: --model seeing"
    code, out, err = said(place, "run", "what is it?", "-f", name)
    assert (code, out.strip(), err.count("pictures"), sentence in err) == (2, "", 1, True), err
    code, out, err = said(place, "chat", stdin=f"/file {name}\n".encode())
    assert sentence in out + err


def test_a_file_of_the_chat_is_shown_with_the_next_question(place: Path) -> None:
    lines = "/file b b.png\nwhat is it?\n/file a.png\nand this?\n/retry\nstill?\n"
    code, out, _ = said(place, "chat", stdin=lines.encode())
    answers = [line.removeprefix("◆ ") for line in out.splitlines() if line.startswith("◆")]
    assert (code, answers) == (
        0,
        ["It is blue above, red below.", *["It is red above, blue below."] * 2, "Still red above, blue below."],
    )


def test_pictures_that_are_dropped_onto_the_terminal_go_with_the_question(place: Path) -> None:
    lines = (
        f"'{place}/b b.png'",
        "what is it?",
        f"{place}/d.mpo and this?",
        f"{place}/c.png {place}/b\\ b.png both?",
        f"file://{place}/b%20b.png",
        "again?",
        # No picture that is there, and one in the middle: words.
        f"{place}/none.png",
        f"what is {place}/a.png",
    )
    code, out, err = said(place, "chat", stdin="\n".join(lines).encode())
    answers = [line.removeprefix("◆ ").replace(str(place), "") for line in out.splitlines() if line.startswith("◆")]
    assert (code, answers) == (
        0,
        [
            "It is blue above, red below.",
            "It is red above, blue below.",
            "The first is green above, white below, the second is blue above, red below.",
            "It is blue above, red below.",
            "You said /none.png",
            "You said what is /a.png",
        ],
    ), err
