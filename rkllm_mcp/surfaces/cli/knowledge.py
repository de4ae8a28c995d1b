"""The owner's documents: ``rkllm-mcp knowledge``."""

from __future__ import annotations

import math
import os
import sys
import uuid
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from rkllm_mcp.config.servers import is_knowledge
from rkllm_mcp.errors import ToolboxError, UsageError
from rkllm_mcp.models.embedders import CATALOGUE, RECOMMENDED, EmbedderSources
from rkllm_mcp.surfaces.cli.knowledge_client import Facts, open_knowledge
from rkllm_mcp.surfaces.cli.models import download_progress
from rkllm_mcp.surfaces.cli.options import AsJson, argument, command, flag, in_loop, may_proceed, option
from rkllm_mcp.surfaces.invocation import EXIT_ANSWER_FAILED, EXIT_DONE, Session
from rkllm_mcp.surfaces.terminal import printable, wrap, write_json
from rkllm_mcp.text import collapse_whitespace, shorten

_ALL = "*"


def _tell_added(session: Session, name: str, answer: Facts, *, quiet: bool) -> int:
    """Print the result of adding a source; return how many of its files failed."""
    if not quiet:
        for document in answer["documents"]:
            state = session.terminal.word("added" if document["is_new"] else "unchanged")
            # The id is for a program; a person names a document by its title.
            identifier = "" if session.terminal.columns else f"{document['document_id']}  "
            sys.stdout.write(printable(f"{identifier}{state}  {document['title']}\n"))
        if answer.get("unchanged"):
            session.status(f"{answer['unchanged']} files are unchanged.")
    for warning in answer.get("warnings", []):
        session.status(f"Note: {name}: {warning}")
    files = answer.get("files", [])
    for file in files:
        session.status(f"{file['outcome']}: {_with_path(file['path'], file['reason'])}")
    return sum(file["outcome"] == "failed" for file in files)


def _with_path(path: str, reason: str) -> str:
    """Return a sentence about a file that begins with its path; the server's may begin with it, or with its name."""
    if reason.startswith(("http://", "https://", _absolute(Path(path)))):
        return reason
    name = Path(path).name
    return f"{path}{reason.removeprefix(name)}" if name and reason.startswith(f"{name} ") else f"{path}: {reason}"


def _is_id(word: str) -> bool:
    try:
        return bool(uuid.UUID(word))
    except ValueError:
        return False


# Of a passage on a screen; --json and a pipe have all of it.
_SHOWN_LINES = 3

app = typer.Typer(no_args_is_help=True)

_Base = Annotated[str, option("Knowledge base; may be omitted if there is only one.", "NAME|ID", "--base", "-b")]
_FirstBase = Annotated[
    str, option("Knowledge base; may be omitted if there is only one. The first is created.", "NAME|ID", "--base", "-b")
]


@command(app, "create")
async def create_command(
    session: Session,
    name: Annotated[str, argument("Name of the knowledge base.")],
    description: Annotated[str, option("Description of the content, in one sentence.", "TEXT")] = "",
    as_json: AsJson = False,
) -> None:
    """Create an empty knowledge base and print its id."""
    async with open_knowledge(session) as knowledge:
        created = await knowledge.call("create_knowledge_base", name=name, description=description)
        session.show(created, f"{created['knowledge_base_id']}\n", as_json=as_json)
        names = [base["name"].casefold() for base in await knowledge.bases()]
        if names.count(created["name"].casefold()) > 1:
            session.status("There is another knowledge base of this name; tell them apart by their ids.")


@command(app, "add")
def add_command(
    session: Session,
    sources: Annotated[
        list[str], argument("Files, folders or URLs to add; - reads text from standard input.", "FILE|FOLDER|URL...")
    ],
    base: _FirstBase = "",
    title: Annotated[str, option("Title, instead of the document's own.", "TEXT")] = "",
    collection: Annotated[str, option("Collection within the knowledge base.", "NAME")] = "",
    as_json: AsJson = False,
) -> int:
    """Add documents: PDF, Office, EPUB, mail, HTML, Markdown, text, source code, or whole folders."""
    checked_sources: list[tuple[str, Facts]] = []
    missing: list[str] = []
    for name in sources:
        if name == "-":
            try:
                text = sys.stdin.buffer.read().decode("utf-8")
            except UnicodeDecodeError:
                raise UsageError(
                    "standard input is no UTF-8; save it in a file, of which the encoding is found out"
                ) from None
            if not text.strip():
                raise UsageError("standard input has no text; pipe a document into it")
            checked_sources.append((name, {"text": text}))
        elif urlsplit(name).scheme in ("http", "https"):
            checked_sources.append((name, {"url": name}))
        else:
            path = _absolute(Path(name))
            checked_sources.append((name, {"path": path}))
            # Path.exists raises for a path that cannot be looked at, before Python 3.12.
            missing += [] if os.path.exists(path) else [path]  # noqa: PTH110

    async def add_all() -> int:
        answers: list[Facts] = []
        failed = 0
        async with open_knowledge(session) as knowledge:
            # Nothing is created for names that are mistyped; a server elsewhere may have the files.
            if len(missing) == len(sources) and not (await knowledge.listing())["knowledge_bases"]:
                for name in missing:
                    problem = "No such file or directory. Check the path and its permissions."
                    session.error(f"{name} cannot be opened: {problem}")
                return EXIT_ANSWER_FAILED
            base_id = await knowledge.base_id_or_first(base)
            for name, source in checked_sources:
                try:
                    answer = await knowledge.add(base_id, source, title=title, collection=collection)
                except ToolboxError as error:
                    failed += 1
                    session.error(_with_path(name, str(error)))
                    continue
                answers.append(answer)
                failed += _tell_added(session, name, answer, quiet=as_json)
                if not (answer["documents"] or answer.get("unchanged") or answer.get("files")):
                    session.status(f"There is nothing to add in {name}.")
        if as_json:
            write_json(answers)
        elif answers and not any(map(is_knowledge, session.config().servers)):
            session.status("The assistant does not search it yet: 'rkllm-mcp servers install knowledge'.")
        return EXIT_ANSWER_FAILED if failed else EXIT_DONE

    return in_loop(session, add_all)


@command(app, "list")
async def list_command(
    session: Session,
    name: Annotated[str, argument("Knowledge base whose documents are listed.", "NAME|ID")] = "",
    base: Annotated[str, option("Same as the argument.", "NAME|ID", "--base", "-b")] = "",
    as_json: AsJson = False,
) -> None:
    """List the knowledge bases, or the documents of one."""
    if name and base:
        raise UsageError("name one knowledge base: as an argument or with --base")
    base_name = name or base
    async with open_knowledge(session) as knowledge:
        listing = await knowledge.listing(await knowledge.base_id(base_name) if base_name else "")
    if base_name:
        heading = ("ID", "TITLE", "CHUNKS", "COLLECTION", "FROM")
        keys = ("document_id", "title", "chunks", "collection", "uri")
        entries = listing.get("documents", [])
        none = "It has no documents; 'rkllm-mcp knowledge add FILE' adds one."
    else:
        heading = ("ID", "NAME", "DOCUMENTS", "CHUNKS", "DESCRIPTION")
        keys = ("knowledge_base_id", "name", "total_documents", "total_chunks", "description")
        entries, none = listing["knowledge_bases"], "No knowledge bases; 'rkllm-mcp knowledge add FILE' makes one."
    rows = [[str(entry[key]) for key in keys] for entry in entries]
    session.show(entries, session.terminal.table(heading, rows), as_json=as_json, none=none)


@command(app, "search")
async def search_command(
    session: Session,
    query: Annotated[str, argument("Question.")],
    base: _Base = "",
    threshold: Annotated[
        float | None, option("Minimum score: 0.5 is broad, 0.6 balanced (default), 0.7 strict.", "SHARE")
    ] = None,
    max_results: Annotated[int, option("Maximum number of results, up to 50.", "N")] = 10,
    previous: Annotated[str, option("Question before, which this one may continue.", "QUESTION")] = "",
    explain: Annotated[bool, flag("Show the result of each stage of the search.", "--explain")] = False,
    as_json: AsJson = False,
) -> None:
    """Search one or all knowledge bases for passages; exit code 1 if there are none."""
    if threshold is not None and not math.isfinite(threshold):
        raise UsageError("--threshold is no number; give one from 0 to 1")
    async with open_knowledge(session) as knowledge:
        bases = await knowledge.bases()
        base_id = await knowledge.base_id(base) if base else _ALL
        if not any(base["total_documents"] for base in bases if base_id in {_ALL, base["knowledge_base_id"]}):
            raise UsageError("there are no documents to search in yet; 'rkllm-mcp knowledge add FILE' adds one")
        answer = await knowledge.call(
            "search_documents",
            query=query,
            knowledge_base_id=base_id,
            threshold=threshold,
            max_results=max_results,
            previous_question=previous,
            explain=explain or None,
        )
    if as_json:
        write_json(answer)
        return
    for result in answer["results"]:
        metadata = result["metadata"]
        weak = f" ({session.terminal.word('weak')})" if result.get("weak") else ""
        columns, passage = session.terminal.columns, result["content"]
        if columns is not None:
            lines = wrap(shorten(collapse_whitespace(passage), _SHOWN_LINES * columns), columns)
            passage = "\n".join(lines[:_SHOWN_LINES])
        sys.stdout.write(printable(f"{result['score']:.2f}  {metadata['citation']}{weak}\n{passage}\n\n"))
    for stage in answer.get("stages", []):
        what = stage["made"] or f"left out: {stage['left_out']}"
        session.terminal.error(f"{stage['stage']:16} {stage['given']} -> {what} ({stage['seconds']:.4f} s)", "")
    for warning in answer.get("warnings", []):
        session.status(f"Note: {warning}")


@command(app, "remove")
def remove_command(
    session: Session,
    documents: Annotated[list[str] | None, argument("Ids, titles, paths or URLs of documents.", "DOCUMENT")] = None,
    base: _Base = "",
    everything: Annotated[bool, flag("Remove all documents and the knowledge base itself.", "--all")] = False,
    yes: Annotated[bool, flag("Do not ask for confirmation of --all.", "--yes", "-y")] = False,
) -> int:
    """Remove documents, or with --all a whole knowledge base."""
    names = documents or []
    if everything == bool(names):
        raise UsageError("name the documents to remove, or a knowledge base with --base and --all")
    if everything and not base:
        raise UsageError("--all removes a whole knowledge base; name it with --base")
    if everything and not may_proceed(session, f"Remove the knowledge base {base} with all its documents?", yes=yes):
        return EXIT_DONE

    async def remove_all() -> None:
        async with open_knowledge(session) as knowledge:
            if names and all(map(_is_id, names)):
                chosen, base_id = names, ""
            else:
                base_id = await knowledge.base_id(base)
                base_documents = (await knowledge.listing(base_id)).get("documents", [])
                chosen = [document["document_id"] for document in base_documents] if everything else []
                for word in names:
                    address = Path(_absolute(Path(word))).as_uri()
                    matching = [
                        document["document_id"]
                        for document in base_documents
                        if word in (document["document_id"], document["title"], document["uri"])
                        or document["uri"] == address
                    ]
                    if not matching:
                        advice = "'rkllm-mcp knowledge list --base NAME' shows them"
                        raise UsageError(f"there is no document {word!r}; {advice}")
                    if len(matching) > 1:
                        raise UsageError(f"several documents are called {word!r}; give the id of one")
                    chosen += matching
            for document_id in chosen:
                removed = await knowledge.call("remove_document", document_id=document_id)
                session.status(f"Removed {removed['title']}.")
            if everything:
                removed = await knowledge.call("remove_document", knowledge_base_id=base_id)
                session.status(f"Removed the knowledge base {removed['title']}.")

    return in_loop(session, remove_all)


_NO_MODEL = "none"
_MB = 10**6


@command(app, "model")
def model_command(
    session: Session,
    name: Annotated[str, argument(f"Model to set up and use, or {_NO_MODEL} to search by words only.", "NAME")] = "",
    repository: Annotated[str | None, option("Repository on Hugging Face, for another model.", "OWNER/NAME")] = None,
    file: Annotated[str | None, option("Name of the .onnx file in the repository.", "FILE")] = None,
    remove: Annotated[bool, flag("Remove the model instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the embedding models that fit this machine, or set one up: questions then find text in other words."""
    # Loads nothing of the hub before a download.
    sources = EmbedderSources()
    if not name:
        installed, chosen = sources.list_installed(), sources.chosen_name()
        states = {**dict.fromkeys(installed, "downloaded"), chosen: "in use"}
        rows: list[dict[str, Any]] = []
        for card in CATALOGUE.values():
            state = states.get(card.name) or ("recommended" if card.name == RECOMMENDED else "")
            rows.append(
                {
                    "name": card.name,
                    "state": state if card.is_fitting else "too large",
                    "download_mb": card.download_mb,
                    "memory_mb": card.memory_mb,
                    "minutes": card.minutes,
                    "description": card.text,
                }
            )
        rows += [
            {"name": installed_name, "state": states[installed_name]}
            for installed_name in installed
            if installed_name not in CATALOGUE
        ]
        columns = ("name", "state", "download_mb", "memory_mb", "minutes", "description")
        cells = [[session.terminal.word(str(row.get(column, ""))) for column in columns] for row in rows]
        heads = ("NAME", "STATE", "MB", "MEMORY", "MINUTES", "DESCRIPTION")
        session.show(rows, session.terminal.table(heads, cells), as_json=as_json)
        session.status(
            "MINUTES are for 3,000 passages. Memory and minutes are estimates for an RK3588."
            " 'rkllm-mcp knowledge model NAME' sets one up."
        )
    elif remove:
        session.status(f"Removed {name}; {sources.remove(name) / _MB:.0f} MB became free.")
    elif name == _NO_MODEL:
        sources.choose("")
        session.status("The knowledge server searches by words only from its next start on.")
    else:
        with download_progress(session) as report:
            folder = sources.pull(name, repository, file, report)
        sys.stdout.write(f"{folder}\n")
        card = CATALOGUE.get(name)
        if card and card.npu:
            session.status(f"The service must run it: 'rkllm-mcp models add {name}', then [service] embedding_model.")
        session.status(
            "The knowledge server uses it from its next start on; 'rkllm-mcp knowledge reindex' makes the vectors now."
        )


@command(app, "reindex")
async def reindex_command(session: Session, base: _Base = "") -> int:
    """Build the indexes of a knowledge base again, as after a change of the embedder, and wait for the end."""
    async with open_knowledge(session) as knowledge:
        state = await knowledge.call("reindex", knowledge_base_id=await knowledge.base_id(base), wait=True)
    session.status(
        f"Reindexed {state['chunks']} chunks, {state['done']} vectors of {state['embedder']}."
        if state["embedder"]
        else f"Reindexed {state['chunks']} chunks."
    )
    if problem := state.get("problem_found"):
        session.error(problem)
    return EXIT_ANSWER_FAILED if problem else EXIT_DONE


_File = Annotated[Path, argument("File to write; .gz compresses it.", "FILE")]


@command(app, "export")
async def export_command(session: Session, file: _File, base: _Base = "") -> None:
    """Write a knowledge base to a file as JSON lines: the text of its documents, without vectors."""
    async with open_knowledge(session) as knowledge:
        base_id = await knowledge.base_id(base)
        answer = await knowledge.call("export_knowledge_base", knowledge_base_id=base_id, path=_absolute(file))
    _tell_copied(session, "Exported", answer)


@command(app, "import")
async def import_command(
    session: Session,
    file: Annotated[Path, argument("File of 'knowledge export'.", "FILE")],
    base: Annotated[str, option("Add to this knowledge base instead of a new one.", "NAME|ID", "--base", "-b")] = "",
    name: Annotated[str, option("Name of the new knowledge base.", "NAME")] = "",
) -> None:
    """Add the documents of an exported knowledge base, to a new one unless --base names one."""
    path = _absolute(file)
    async with open_knowledge(session) as knowledge:
        base_id = await knowledge.base_id(base) if base else ""
        answer = await knowledge.call("import_knowledge_base", knowledge_base_id=base_id, path=path, name=name)
    sys.stdout.write(f"{answer['knowledge_base_id']}\n")
    _tell_copied(session, "Imported", answer)


@command(app, "backup")
async def backup_command(session: Session, file: Annotated[Path, argument("File to write.", "FILE")]) -> None:
    """Copy all knowledge bases with their indexes to a file, also while they are in use."""
    async with open_knowledge(session) as knowledge:
        answer = await knowledge.call("back_up", path=_absolute(file))
    _tell_copied(session, "Backed up", answer)


def _absolute(path: Path) -> str:
    # The server may stand in another folder; a link keeps its own name.
    return os.path.abspath(path.expanduser())  # noqa: PTH100


def _tell_copied(session: Session, verb: str, answer: Facts) -> None:
    contents = f": {answer['documents']} documents, {answer['chunks']} chunks" if "documents" in answer else ""
    session.status(f"{verb} {answer['path']} ({answer['bytes']:,} bytes){contents}.")
