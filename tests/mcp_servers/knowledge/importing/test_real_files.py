"""Documents of other projects' tests, from the packages that contain them."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from mcp_servers.knowledge.errors import NoTextError
from mcp_servers.knowledge.importing.documents import Blob, ParseLimits
from mcp_servers.knowledge.importing.parse import parse_blob
from tests.support.installed import need_npm

PACKAGE = "mammoth@1.13.0"
TEXTS = {
    "comments.docx": {"Ouch.", "A tachyon walks into a bar.", "Fin."},
    "endnotes.docx": {"Ouch"},
    "footnotes.docx": {"Ouch"},
    "simple-list.docx": {"Apple", "Banana"},
    "single-paragraph.docx": {"Walking on imported air"},
    "strikethrough.docx": {"Today's Special: Salmon Sold out"},
    "tables.docx": {"Above", "Top left | Top right\nBottom left | Bottom right", "Below"},
    "text-box.docx": {"Datum plane"},
    "underline.docx": {"The Sunset Tree"},
}
WITHOUT_TEXT = {
    *("empty.docx", "external-picture.docx", "tiny-picture.docx", "tiny-picture-target-base-relative.docx"),
}


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    need_npm(PACKAGE)
    words = ["npm", "pack", "--silent", PACKAGE]
    packed = subprocess.run(words, cwd=folder, capture_output=True, check=True, text=True, timeout=120)
    with tarfile.open(folder / packed.stdout.split()[-1]) as archive:
        for member in archive.getmembers():
            if member.isfile() and member.name.endswith(".docx") and (content := archive.extractfile(member)):
                (folder / Path(member.name).name).write_bytes(content.read())
    return folder


def test_no_text_of_a_word_file_is_lost_in_silence(documents: Path) -> None:
    lost: dict[str, set[str]] = {}
    empty: set[str] = set()
    for file in sorted(documents.glob("*.docx")):
        try:
            parsed = parse_blob(Blob(file.read_bytes(), file.name), ParseLimits())
        except NoTextError:
            empty.add(file.name)
            continue
        whole = "\n".join(passage.text for passage in parsed.passages)
        if missing := {text for text in TEXTS.get(file.name, set()) if text not in whole}:
            lost[file.name] = {whole, *missing}
    assert (lost, empty) == ({}, WITHOUT_TEXT)
