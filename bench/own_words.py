"""Questions in a person's own words over real manuals: what the search answers, and how far its score can be believed.

    python -m bench.own_words --office [--show]
    python -m bench.own_words --GROUP DOCUMENTS [--GROUP DOCUMENTS …] [--embedder none|universal-sentence-encoder|…]
    python -m bench.own_words --GROUP DOCUMENTS … --train     the coefficients of the score

A group is one of ``GROUPS``; ``README.md`` or ``about.json`` next to its questions names the packages. Nothing is
chosen with the one that is kept back. ``DOCUMENTS`` has a folder for each corpus, with the files of its packages; the
knowledge base is made in ``DOCUMENTS/.base`` at the first start. ``manuals`` has no such file: gnucash and gnucash-en
are the Japanese and English guide of the package gnucash-docs 4.13, sylpheed the Japanese manual of sylpheed-doc
20140827.

``--office`` asks 185 questions over 50 short documents of an office and a home, and 40 that were written after the
search was tuned; nothing was tuned on a third of the first (the CRC-32 of the question is divisible by three). A
question is right if the first result at the default threshold is its document; without one, if every result is weak.

A result is right if its file and its text agree with one of the answers. *Confident* is a first result that is not
marked weak. Followed by the pairs of ``followups*.json``: the second question of each, with the first one as
``previous_question``. ``--train`` writes ``search/probability.json`` for words alone, or for the embedder, and prints
for each group what a regression without it is sure of, for the other collections one without a fifth of them.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import anyio
import numpy as np

from bench.knowledge import SHARED, read_collection, split
from bench.knowledge import ask as ask_passages
from bench.knowledge import load as load_passages
from mcp_servers.knowledge.embedding import Embedder
from mcp_servers.knowledge.embedding.models import known_model
from mcp_servers.knowledge.importing.folders import import_folder
from mcp_servers.knowledge.importing.reader import open_reader
from mcp_servers.knowledge.ingest import DocumentWriter
from mcp_servers.knowledge.library import Library, LibrarySettings, open_library
from mcp_servers.knowledge.search.pipeline import WEAK
from mcp_servers.knowledge.search.probability import FILE
from mcp_servers.knowledge.search.ranking import Figures
from mcp_servers.knowledge.service import embedder_from
from mcp_servers.knowledge.types import Hit, KnowledgeBase, NewChunk, NewDocument, SearchRequest

DATA = Path(__file__).resolve().parents[1] / "tests" / "data" / "knowledge"
GROUPS = {
    "dev": SHARED / "cases" / "ownwords" / "dev.json",
    **{name: DATA / name / "questions.json" for name in ("manuals", "unseen", "later", "fourth", "fifth", "sixth")},
}
KEPT_BACK = "sixth"
OFFICE, OFFICE_LATER = DATA / "questions.txt", DATA / "later_questions.txt"
NO_DOCUMENT = "-"
FOLLOWUPS = "followups*.json"
_REVIEW = 3
_RIDGE, _STEPS, _FOLDS, _MOST = 1.0, 30, 5, 300
# With vectors a passage over documents that nothing was fitted to is less often right: a score of 0.6 becomes 0.5.
_DOUBT = 0.405


# --- documents of an office and a home


@dataclass(frozen=True)
class OfficeQuestion:
    """A question and the title of the document that answers it, ``-`` for none."""

    text: str
    title: str

    @property
    def is_set_aside(self) -> bool:
        """True for the third that nothing is tuned on."""
        return zlib.crc32(self.text.encode()) % 3 == 0


@dataclass(frozen=True)
class OfficeOutcome:
    """The first result of a question, empty if there is none."""

    question: OfficeQuestion
    found: str
    score: float
    is_weak: bool

    @property
    def is_right(self) -> bool:
        """True for the right document, or for nothing but a weak result where no document answers."""
        return (
            self.is_weak or not self.found if self.question.title == NO_DOCUMENT else self.found == self.question.title
        )


def read_office(file: Path = OFFICE) -> tuple[dict[str, str], list[OfficeQuestion]]:
    """Return title -> text of the documents, and the questions."""
    documents: dict[str, str] = {}
    questions: list[OfficeQuestion] = []
    title = ""
    for line in file.read_text("utf-8").splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "=":
            title = rest
        elif kind == "?":
            questions.append(OfficeQuestion(rest, title))
        elif kind != "#" and line:
            documents[title] = f"{documents.get(title, '')}{line}"
    return documents, questions


async def outcomes(library: Library, documents: dict[str, str], questions: list[OfficeQuestion]) -> list[OfficeOutcome]:
    """Add the documents to a new knowledge base and ask the questions without a threshold."""
    base = await library.create("questions")
    for title, text in documents.items():
        await library.add(
            base.id, NewDocument(title, (NewChunk(text),), f"{zlib.crc32(title.encode()):08x}", uri=title)
        )
    found: list[OfficeOutcome] = []
    for question in questions:
        result = await library.search(SearchRequest(question.text, base.id))
        first = result.hits[0] if result.hits else None
        is_weak = getattr(first, "is_weak", False)
        found.append(OfficeOutcome(question, first.title if first else "", first.score if first else 0.0, is_weak))
    return found


async def ask_office(*, is_shown: bool) -> None:
    """Print the figures of the office: of the third that nothing was tuned on, the others, and the later questions."""
    documents, questions = read_office()
    groups = {
        "office, set aside": [question for question in questions if question.is_set_aside],
        "office, others": [question for question in questions if not question.is_set_aside],
        "office, later": read_office(OFFICE_LATER)[1],
    }
    for name, group in groups.items():
        with tempfile.TemporaryDirectory() as folder:
            async with open_library(Path(folder)) as library:
                results = await outcomes(library, documents, group)
        answerable = [each for each in results if each.question.title != NO_DOCUMENT]
        others = [each for each in results if each.question.title == NO_DOCUMENT]
        right = [each for each in answerable if each.is_right]
        print(
            f"{name}: of {len(answerable)} first {len(right)}, marked weak {sum(each.is_weak for each in right)}; "
            f"of {len(others)} unanswerable empty or weak {sum(each.is_right for each in others)}"
        )
        for each in results if is_shown else ():
            if not each.is_right or each.is_weak:
                print(f"{'ok' if each.is_right else '--'} {each.score:.2f} {each.question.text} -> {each.found}")


# --- manuals


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

    @property
    def is_warned(self) -> bool:
        """True if the results say that no passage is likely to answer, or there are none."""
        return not self.hits or self.hits[0].is_unanswered


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
    await library.indexer.wait_idle()
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
        f"of {len(unanswerable)} unanswerable answered {sum(each.is_confident for each in unanswerable)}; warned: "
        f"{sum(each.is_warned for each in answers if any(each.rights[:_REVIEW]))} with the answer in the top 3, "
        f"{sum(each.is_warned for each in unanswerable)} unanswerable"
    )


@dataclass(frozen=True)
class Example:
    """The figures of a first result, whether it is right, and the set of questions it is of."""

    figures: Sequence[float]
    is_right: bool
    set: str


def fit(examples: Sequence[Example]) -> dict[str, Any]:
    """Return the coefficients of a logistic regression.

    All groups together weigh as much as all collections together, and each set as much as another of its kind.
    """
    figures = np.array([[*each.figures, 1.0] for each in examples])
    right = np.array([each.is_right for each in examples], float)
    sizes = Counter(each.set for each in examples)
    kinds = Counter(name in GROUPS for name in sizes)
    weight = np.array([len(examples) / len(kinds) / kinds[each.set in GROUPS] / sizes[each.set] for each in examples])
    spread = cast("Figures", figures.std(axis=0))
    spread[-1] = 1.0
    scaled: Figures = figures / spread
    beta = cast("Figures", np.zeros(len(spread)))
    for _ in range(_STEPS):
        beta = _newton_step(scaled, right, weight, beta)
    numbers = [round(float(number), 3) for number in beta / spread]
    return {"weights": numbers[:-1], "bias": numbers[-1]}


def _newton_step(figures: Figures, right: Figures, weight: Figures, beta: Figures) -> Figures:
    """Return the next estimate of a regression with a ridge on all but the last coefficient."""
    ridge: Figures = np.eye(beta.size) * _RIDGE
    ridge[-1, -1] = 0.0
    chance: Figures = 1 / (1 + np.exp(-np.dot(figures, beta)))
    gradient: Figures = np.dot(weight * (right - chance), figures) - np.dot(ridge, beta)
    spreads: Figures = figures * (weight * chance * (1 - chance))[:, None]
    curve: Figures = np.dot(np.transpose(spreads), figures) + ridge
    return beta + cast("Figures", np.linalg.solve(curve, gradient))


def chances(coefficients: Mapping[str, Any], examples: Sequence[Example]) -> list[float]:
    """Return the probabilities of examples."""
    logits = [np.dot(coefficients["weights"], each.figures) + coefficients["bias"] for each in examples]
    return [float(1 / (1 + np.exp(-logit))) for logit in logits]


def crossed(examples: Sequence[Example], name: str) -> list[float]:
    """Return the probabilities of the examples of one set, from a regression without this group or without a fifth."""
    own = [each for each in examples if each.set == name]
    folds = 1 if name in GROUPS else _FOLDS
    result = [0.0] * len(own)
    for fold in range(folds):
        held = own[fold::folds]
        ids = set(map(id, held))
        result[fold::folds] = chances(fit([each for each in examples if id(each) not in ids]), held)
    return result


async def collection_examples(embedder: Embedder | None) -> list[Example]:
    """Return examples of questions that are close to their passages: an office's, and collections cut in half."""
    examples: list[Example] = []
    with tempfile.TemporaryDirectory() as folder:
        async with open_library(Path(folder), LibrarySettings(embedder)) as library:
            documents, questions = read_office()
            base = await library.create("office")
            for title, text in documents.items():
                await library.add(base.id, NewDocument(title, (NewChunk(text),), title, uri=title))
            await library.indexer.wait_idle()
            for question in questions:
                hits = (await library.search(SearchRequest(question.text, base.id, 0.0))).hits
                examples += [Example(hit.figures, hit.title == question.title, "office") for hit in hits[:1]]
            for name in ("jsquad", "xquad_en"):
                inside, outside = split(read_collection(name))
                base = await load_passages(library, name, inside.passages)
                for part in (inside, outside):
                    for question in part.thinned(_MOST).questions:
                        hits = (await ask_passages(library, base, question)).hits
                        examples += [Example(hit.figures, hit.uri in question.answers, name) for hit in hits[:1]]
    return examples


async def train(own: Mapping[str, Sequence[Answer]], embedder: Embedder | None) -> None:
    """Write the coefficients for words or an embedder; print how far they can be believed, cross-validated.

    ``own`` are the answers by set.
    """
    examples = [Example(each.hits[0].figures, each.rights[0], name) for name in own for each in own[name] if each.hits]
    examples += await collection_examples(embedder)
    table: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    made = fit(examples)
    if embedder:
        made["bias"] = round(made["bias"] - _DOUBT, 3)
    table[(known_model(embedder.name).match or "vectors") if embedder else "words"] = made
    rows = ",\n".join(f'  "{key}": {json.dumps(value)}' for key, value in table.items())
    await anyio.Path(FILE).write_text(f"{{\n{rows}\n}}\n")
    for kind in Counter(each.set for each in examples):
        rights = [each.is_right for each in examples if each.set == kind]
        sure = [right for right, chance in zip(rights, crossed(examples, kind), strict=True) if chance >= WEAK]
        print(f"{kind}, cross-validated: confident right {sum(sure)} of {sum(rights)}, wrong {len(sure) - sum(sure)}")


async def ask_all(
    documents: Path,
    file: Path,
    embedder: Embedder | None,
    *,
    is_shown: bool = False,
) -> tuple[list[Answer], list[Answer]]:
    """Ask the questions of a file and the follow-ups next to it; return the answers, first of those with an answer."""
    asked: dict[str, list[dict[str, Any]]] = json.loads(await anyio.Path(file).read_text("utf-8"))
    async with open_library(documents / ".base", LibrarySettings(embedder)) as library:
        bases = await load(library, documents)
        # Python 3.10 takes no comprehension that awaits inside another.
        answers = {kind: [await ask(library, bases[each["corpus"]], each) for each in asked[kind]] for kind in asked}
        if is_shown:
            for each in [*answers["questions"], *answers["unanswerable"]]:
                print_answer(each)
        for pairs_file in sorted([path async for path in anyio.Path(file.parent).glob(FOLLOWUPS)]):
            await ask_follow_ups(library, bases, pairs_file, is_shown=is_shown)
    return answers["questions"], answers["unanswerable"]


async def ask_follow_ups(
    library: Library, bases: Mapping[str, KnowledgeBase], file: anyio.Path, *, is_shown: bool
) -> None:
    """Print the figures of the second questions of a file, asked alone and with the question before."""
    pairs: list[dict[str, Any]] = json.loads(await file.read_text("utf-8"))
    for name in ("alone", "with the question before"):
        more = [{"previous": each["previous"]} if name != "alone" else {} for each in pairs]
        answers = [await ask(library, bases[p["corpus"]], p, **m) for p, m in zip(pairs, more, strict=True)]
        print_figures(f"{file.stem} {name}", answers, [])
        for each in answers if is_shown else ():
            print_answer(each)


def print_answer(answer: Answer) -> None:
    """Print a question with its first results."""
    shown = [f"{hit.score:.2f} {Path(hit.uri).name} {(*hit.headings, '')[-1:][0][:30]}" for hit in answer.hits[:2]]
    print("RIGHT" if answer.rights[:1] == [True] else "-", answer.question["question"], shown)


async def _main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--office", action="store_true", help="the short documents of an office")
    for name in GROUPS:
        parser.add_argument(f"--{name}", type=Path, help="a folder for each corpus of this group")
    parser.add_argument("--embedder", default="none")
    parser.add_argument("--show", action="store_true", help="each question with its first results")
    parser.add_argument("--train", action="store_true", help="write the coefficients of the score")
    given = parser.parse_args()
    if given.office:
        await ask_office(is_shown=given.show)
    embedder = embedder_from(given.embedder)
    own: dict[str, list[Answer]] = {}
    for name, file in GROUPS.items():
        documents = getattr(given, name)
        if documents:
            answers = await ask_all(documents, file, embedder, is_shown=given.show)
            print_figures(name, *answers)
            if name != KEPT_BACK:
                own[name] = [*chain(*answers)]
    if given.train:
        await train(own, embedder)


if __name__ == "__main__":
    anyio.run(_main)
