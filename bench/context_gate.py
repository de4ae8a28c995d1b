"""Questions for the gate of automatic context: which get a passage at which probability.

    python -m bench.context_gate [--kept-back] [--embedder none|universal-sentence-encoder|…] [--show]

The questions and documents are those of ``tests/data/knowledge/gate``. A question about the documents keeps its passage
if one of its document has the probability; one about something else must not get any.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import anyio

from bench.own_words import DATA, read_office
from mcp_servers.knowledge.embedding import Embedder
from mcp_servers.knowledge.importing.folders import import_folder
from mcp_servers.knowledge.importing.reader import open_reader
from mcp_servers.knowledge.ingest import DocumentWriter
from mcp_servers.knowledge.library import Library, LibrarySettings, open_library
from mcp_servers.knowledge.service import embedder_from
from mcp_servers.knowledge.types import Hit, NewChunk, NewDocument, SearchRequest

FOLDER = DATA / "gate"
_PROBABILITIES = (0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8)
_RESULTS = 3  # those of an automatic search, as the gallery sets them


@dataclass(frozen=True)
class GateQuestion:
    """A question and the document that answers it, empty for one about something else."""

    text: str
    document: str = ""


def read_questions(*, kept_back: bool) -> list[GateQuestion]:
    """Return one half of the questions."""
    name = "questions_kept_back.json" if kept_back else "questions.json"
    table = json.loads((FOLDER / name).read_text("utf-8"))
    about = [GateQuestion(entry["question"], entry["document"]) for entry in table["about_the_documents"]]
    return about + [GateQuestion(text) for text in table["about_something_else"]]


async def add_documents(library: Library) -> None:
    """Make a knowledge base of the documents."""
    base = await library.create("gate")
    for title, text in read_office()[0].items():
        digest = f"{zlib.crc32(title.encode()):08x}"
        await library.add(base.id, NewDocument(title, (NewChunk(text),), digest, uri=title))
    async with open_reader() as reader:
        await import_folder(FOLDER / "documents", DocumentWriter(library, base.id), reader)
    await library.indexer.wait_idle()


def is_of(title: str, uri: str, question: GateQuestion) -> bool:
    """Return True if a passage's document is the one that answers the question."""
    return question.document == title or f"/{question.document}." in uri


async def run(*, kept_back: bool, embedder: Embedder | None, is_shown: bool) -> None:
    """Ask the questions of one half, and print what each probability lets through."""
    found: list[tuple[GateQuestion, tuple[Hit, ...]]] = []
    with tempfile.TemporaryDirectory() as folder:
        async with open_library(Path(folder), LibrarySettings(embedder=embedder)) as library:
            await add_documents(library)
            for question in read_questions(kept_back=kept_back):
                result = await library.search(SearchRequest(question.text, threshold=0.0, max_results=_RESULTS))
                found.append((question, result.hits))
    for least in _PROBABILITIES:
        kept = sum(
            any(hit.score >= least and is_of(hit.title, hit.uri, question) for hit in hits)
            for question, hits in found
            if question.document
        )
        clean = sum(all(hit.score < least for hit in hits) for question, hits in found if not question.document)
        passages = sum(hit.score >= least for _, hits in found for hit in hits)
        print(f"from {least:.2f}: {kept} of 20 keep a passage, {clean} of 30 are without; {passages} passages")
    for question, hits in found if is_shown else ():
        mark = (
            ""
            if not question.document
            else "right "
            if any(is_of(hit.title, hit.uri, question) for hit in hits)
            else "WRONG "
        )
        best = ", ".join(f"{hit.score:.2f} {hit.title[:30]}" for hit in hits)
        print(f"{mark}{question.text}: {best}")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept-back", action="store_true")
    parser.add_argument("--embedder", default="none")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    embedder = embedder_from(options.embedder)
    anyio.run(lambda: run(kept_back=options.kept_back, embedder=embedder, is_shown=options.show))


if __name__ == "__main__":
    main()
