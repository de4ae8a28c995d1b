"""Questions in a person's own words over real manuals: what the search answers, and how far its score can be believed.

    python -m bench.own_words DOCUMENTS [--embedder none|hashing|use|cpu:FOLDER] [--questions FILE] [--show]
    python -m bench.own_words DOCUMENTS --train     the coefficients of the score, for search/probability.json

``DOCUMENTS`` has a folder for each corpus that ``about.json`` beside the questions names, with the HTML files of its
packages; the knowledge base is made in ``DOCUMENTS/.base`` at the first start. A result is right if its file and its
text agree with one of the answers. *Confident* is a first result that is not marked weak. Followed by the pairs of
``followups.json``: the second question of each, with the first one as ``previous_question``.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anyio

from bench.knowledge_collections import SHARED
from mcp_servers.knowledge.importing.folders import import_folder
from mcp_servers.knowledge.importing.reader import open_reader
from mcp_servers.knowledge.ingest import DocumentWriter
from mcp_servers.knowledge.library import Library, LibrarySettings, open_library
from mcp_servers.knowledge.service import embedder_from
from mcp_servers.knowledge.types import Hit, KnowledgeBase, SearchRequest

QUESTIONS = SHARED / "cases" / "ownwords" / "dev.json"
FOLLOWUPS = "followups.json"
_REVIEW = 3


@dataclass(frozen=True)
class Answer:
    """The results of one question, right or not, and its figures."""

    question: Mapping[str, Any]
    hits: Sequence[Hit]
    rights: Sequence[bool]

    @property
    def is_confident(self) -> bool:
        """True if the first result is not marked weak."""
        return bool(self.hits) and not self.hits[0].is_weak


def is_right(hit: Hit, gold: Sequence[Mapping[str, str] | str]) -> bool:
    """Return whether a result is one of the answers: a part of the path, and an expression for what the chunk says."""
    said = " ".join([hit.title, *hit.headings, hit.content])
    for one in gold:
        file, match = (one["file"], one["match"]) if isinstance(one, Mapping) else one.partition("::")[::2]
        if file in unquote(hit.uri) and re.search(match, said, re.IGNORECASE):
            return True
    return False


async def load(library: Library, documents: Path) -> dict[str, KnowledgeBase]:
    """Return a knowledge base for each folder of the documents, filling those that are missing."""
    bases = {base.name: base for base in await library.bases()}
    folders = sorted([path async for path in anyio.Path(documents).glob("[!.]*") if await path.is_dir()])
    async with open_reader() as reader:
        for folder in folders:
            if folder.name not in bases:
                bases[folder.name] = await library.create(folder.name)
                await import_folder(Path(folder), DocumentWriter(library, bases[folder.name].id), reader)
    await library.wait_idle()
    return bases


async def ask(library: Library, base: KnowledgeBase, question: Mapping[str, Any], **more: Any) -> Answer:
    """Ask one question as a host does that gives no threshold."""
    found = await library.search(SearchRequest(question["question"], base.id, **more))
    gold = question.get("gold", ())
    return Answer(question, found.hits, [is_right(hit, gold) for hit in found.hits])


def print_figures(name: str, answers: Sequence[Answer], unanswerable: Sequence[Answer]) -> None:
    """Print one line of the table."""
    first = [bool(each.rights[:1] == [True]) for each in answers]
    confident = [right for right, each in zip(first, answers, strict=True) if each.is_confident]
    print(
        f"{name}: of {len(answers)} first {sum(first)}, top 3 {sum(any(each.rights[:_REVIEW]) for each in answers)}, "
        f"confident right {sum(confident)}, confident wrong {len(confident) - sum(confident)}; "
        f"of {len(unanswerable)} unanswerable answered {sum(each.is_confident for each in unanswerable)}"
    )


async def _main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("documents", type=Path, help="a folder for each corpus")
    parser.add_argument("--questions", type=Path, default=QUESTIONS, help="default: the shared ones")
    parser.add_argument("--embedder", default="none")
    parser.add_argument("--show", action="store_true", help="each question with its first results")
    given = parser.parse_args()
    asked: dict[str, list[dict[str, Any]]] = json.loads(given.questions.read_text("utf-8"))
    embedder = embedder_from(given.embedder)
    async with open_library(given.documents / ".base", LibrarySettings(embedder)) as library:
        bases = await load(library, given.documents)
        # Python 3.10 takes no comprehension that awaits inside another.
        answers = {kind: [await ask(library, bases[each["corpus"]], each) for each in asked[kind]] for kind in asked}
        if given.show:
            for each in [*answers["questions"], *answers["unanswerable"]]:
                shown = [
                    f"{hit.score:.2f} {Path(hit.uri).name} {(*hit.headings, '')[-1:][0][:30]}" for hit in each.hits[:2]
                ]
                print("RIGHT" if each.rights[:1] == [True] else "-", each.question["question"], shown)
        print_figures(given.questions.stem, answers["questions"], answers["unanswerable"])
        pairs = json.loads(given.questions.with_name(FOLLOWUPS).read_text("utf-8"))
        for name in ("alone", "with the question before"):
            more = [{"previous": each["previous"]} if name != "alone" else {} for each in pairs]
            asked_pairs = [await ask(library, bases[p["corpus"]], p, **m) for p, m in zip(pairs, more, strict=True)]
            if given.show:
                for each in asked_pairs:
                    print("RIGHT" if each.rights[:1] == [True] else "-", each.question["question"])
            print_figures(f"follow-ups {name}", asked_pairs, [])


if __name__ == "__main__":
    anyio.run(_main)
