"""Questions in a person's own words over short documents of an office and a home: how many the search answers.

    python -m bench.questions [--set-aside | --all | --later] [--show]

A question is right if the first result at the default threshold is its document. ``--set-aside`` asks the third that
nothing was tuned on (the CRC-32 of the question is divisible by three), ``--all`` every question, ``--later`` the 40
that were written after the search was tuned, ``--show`` prints those that failed. Questions that no document answers
are right if every result is marked weak.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from mcp_servers.knowledge.library import Library, open_library
from mcp_servers.knowledge.types import NewChunk, NewDocument, SearchRequest

FILE = Path(__file__).resolve().parents[1] / "tests" / "data" / "knowledge" / "questions.txt"
LATER = FILE.with_name("later_questions.txt")
NO_DOCUMENT = "-"


@dataclass(frozen=True)
class Question:
    """A question and the title of the document that answers it, ``-`` for none."""

    text: str
    title: str

    @property
    def is_set_aside(self) -> bool:
        """True for the third that nothing is tuned on."""
        return zlib.crc32(self.text.encode()) % 3 == 0


@dataclass(frozen=True)
class Outcome:
    """The first result of a question, empty if there is none."""

    question: Question
    found: str
    score: float
    is_weak: bool

    @property
    def is_right(self) -> bool:
        """True for the right document, or for nothing but a weak result where no document answers."""
        return (
            self.is_weak or not self.found if self.question.title == NO_DOCUMENT else self.found == self.question.title
        )


def read_collection(file: Path = FILE) -> tuple[dict[str, str], list[Question]]:
    """Return title -> text of the documents, and the questions."""
    documents: dict[str, str] = {}
    questions: list[Question] = []
    title = ""
    for line in file.read_text("utf-8").splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "=":
            title = rest
        elif kind == "?":
            questions.append(Question(rest, title))
        elif kind != "#" and line:
            documents[title] = f"{documents.get(title, '')}{line}"
    return documents, questions


async def outcomes(library: Library, documents: dict[str, str], questions: list[Question]) -> list[Outcome]:
    """Add the documents to a new knowledge base and ask the questions without a threshold."""
    base = await library.create("questions")
    for title, text in documents.items():
        await library.add(
            base.id, NewDocument(title, (NewChunk(text),), f"{zlib.crc32(title.encode()):08x}", uri=title)
        )
    found: list[Outcome] = []
    for question in questions:
        result = await library.search(SearchRequest(question.text, base.id))
        first = result.hits[0] if result.hits else None
        is_weak = getattr(first, "is_weak", False)
        found.append(Outcome(question, first.title if first else "", first.score if first else 0.0, is_weak))
    return found


async def _measure(arguments: argparse.Namespace) -> None:
    documents, questions = read_collection()
    if arguments.later:
        questions = read_collection(LATER)[1]
    elif not arguments.all:
        questions = [question for question in questions if question.is_set_aside == arguments.set_aside]
    with tempfile.TemporaryDirectory() as folder:
        async with open_library(Path(folder)) as library:
            found = await outcomes(library, documents, questions)
    answerable = [each for each in found if each.question.title != NO_DOCUMENT]
    right = [each for each in answerable if each.is_right]
    strong = [each for each in right if not each.is_weak]
    empty = sum(not each.found for each in answerable)
    others = [each for each in found if each.question.title == NO_DOCUMENT]
    share = len(right) / len(answerable)
    print(f"documents {len(documents)}, questions {len(answerable)}: right {len(right)} ({share:.0%})")
    print(f"of these at the threshold {len(strong)}, marked weak {len(right) - len(strong)}; empty {empty}")
    print(f"without an answer {len(others)}: empty or weak {sum(each.is_right for each in others)}")
    if arguments.show:
        for each in found:
            if not each.is_right or each.is_weak:
                print(f"{'ok' if each.is_right else '--'} {each.score:.2f} {each.question.text} -> {each.found}")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set-aside", action="store_true", help="the third that nothing is tuned on")
    parser.add_argument("--all", action="store_true", help="every question")
    parser.add_argument("--later", action="store_true", help="the questions written after the tuning")
    parser.add_argument("--show", action="store_true", help="print the questions that failed")
    asyncio.run(_measure(parser.parse_args()))


if __name__ == "__main__":
    main()
