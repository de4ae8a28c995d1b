"""Office files of packages have the words that another reader finds; ``docs/documents.md`` names the rest."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import unicodedata
from pathlib import Path

import pytest

from mcp_servers.knowledge.errors import NoTextError
from mcp_servers.knowledge.importing.documents import Blob, ParseLimits
from mcp_servers.knowledge.importing.parse import parse_blob
from tests.support.installed import need_index

anydoc = pytest.importorskip("anydoc")
# Their sources contain documents that their tests read.
PACKAGES = {"python-docx": "1.2.0", "python-pptx": "1.0.2"}
# Pictures are named after the files that they came from.
_PICTURE_NAME = re.compile(r"[\w .-]+\.(?:png|jpe?g|gif|jpg)", re.IGNORECASE)
# The kind of an embedded file, which is named in a warning and not read.
EMBEDDED = {"shp-access-ole-object.pptx": ["worksheet"]}
_MARKUP = re.compile(r"!\[[^\]]*\](?:\([^)]*\))?|\]\([^)]*\)|<[^>]{1,200}>|[\\*_`#|>~]")


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    need_index()
    folder = tmp_path_factory.mktemp("packages")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ",".join(PACKAGES)]
    versions = [f"{name}=={version}" for name, version in PACKAGES.items()]
    if subprocess.run(
        [*command, "-d", str(folder), *versions], capture_output=True, check=False, timeout=300
    ).returncode:
        pytest.skip(f"the sources of {', '.join(PACKAGES)} cannot be had")
    for source in folder.glob("*.tar.gz"):
        with tarfile.open(source) as archive:
            archive.extractall(folder, filter="data")
    return sorted(file for kind in ("docx", "pptx", "xlsx") for file in folder.rglob(f"*.{kind}"))


def _words(text: str) -> set[str]:
    plain = _PICTURE_NAME.sub(" ", _MARKUP.sub(" ", text))
    return set(re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", plain).lower()))


def test_no_word_that_the_oracle_reads_is_lost(documents: list[Path]) -> None:
    assert len(documents) >= 60
    lost: dict[str, list[str]] = {}
    for file in documents:
        try:
            expected = _words(anydoc.to_markdown(str(file)))
        except Exception:  # noqa: BLE001  # files that the oracle refuses
            continue
        try:
            parsed = parse_blob(Blob(file.read_bytes(), file.name), ParseLimits())
            words = _words("\n".join("\n".join([*each.headings, each.text]) for each in parsed.passages))
        except NoTextError:
            words = set[str]()
        if missing := expected - words:
            lost[file.name] = sorted(missing)
    assert lost == EMBEDDED
