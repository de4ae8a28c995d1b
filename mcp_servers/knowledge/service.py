"""What the tools do, whoever asks and over whichever transport: typed values in, an answer or a problem out.

A knowledge base is named by its id, by its name, or not at all where the owner chose a default. What a model cannot be
asked for is left out, and said, or refused where the owner is ``strict``.
"""

from __future__ import annotations

from dataclasses import replace

from mcp_servers.knowledge import adding, answers
from mcp_servers.knowledge.adding import Source
from mcp_servers.knowledge.answers import (
    AddedAnswer,
    BasesAnswer,
    CreatedAnswer,
    NormalizedAnswer,
    ReindexAnswer,
    RemovedAnswer,
    SearchAnswer,
    SummaryAnswer,
)
from mcp_servers.knowledge.filing import Filing, Placing
from mcp_servers.knowledge.importing.documents import Progress
from mcp_servers.knowledge.importing.reader import Reader
from mcp_servers.knowledge.intake import known_id
from mcp_servers.knowledge.library import Library
from mcp_servers.knowledge.ocr import Judge, normalize
from mcp_servers.knowledge.problems import BadArgumentError, BaseNotFoundError, StageUnavailableError
from mcp_servers.knowledge.settings import Settings
from mcp_servers.knowledge.values import Access, SearchRequest

# Every knowledge base there is, where one is to be named.
ALL = "*"
_CHOOSE = "Give one of list_knowledge_bases"


class Service:
    """The tools over one open library; ``opening.open_service`` makes one.

    Args:
        library: where everything is kept.
        reader: reads documents.
        settings: what the owner wants.
        judge: a language model of the owner's for doubtful OCR; None for none.
    """

    def __init__(self, library: Library, reader: Reader, settings: Settings, judge: Judge | None = None) -> None:
        self.library = library
        self.settings = settings
        self._reader = reader
        self._judge = judge

    async def search(self, request: SearchRequest, access: Access, *, explain: bool = False) -> SearchAnswer:
        """The passages that answer a question best.

        Args:
            request: its ``base_id`` may also be a name, ``*`` for all, or empty for the default.
            access: who asks.
            explain: say what each stage did.

        Raises:
            KnowledgeProblem: as ``Library.search``; a model does not answer, where that is to be an error.
        """
        wanted = request.base_id or self.settings.default_base
        base_id = ALL if wanted == ALL else await self._named(wanted, access)
        asked = replace(request, base_id=None if base_id == ALL else base_id)
        result = await self.library.search(asked, access, explain=explain)
        if result.left_out and self.settings.models.strict:
            raise StageUnavailableError(result.left_out[0])
        return answers.search_answer(result, base_id)

    async def summary(self, base: str, access: Access) -> SummaryAnswer:
        """A knowledge base in words and numbers.

        Raises:
            KnowledgeProblem: as ``Library.summary``.
        """
        return answers.summary_answer(await self.library.summary(await self._named(base, access), access))

    async def normalize(self, text: str, judge: Judge | None) -> NormalizedAnswer:
        """Misread long vowel marks put right.

        Args:
            text: as a scanner read it.
            judge: the host's model, which is asked before the owner's.

        Raises:
            TextTooLongError: there is too much of it.
            StageUnavailableError: the model does not answer, where that is to be an error.
        """
        normalized = await normalize(text, judge or self._judge)
        if self.settings.models.strict and normalized.status.startswith("LLM service unavailable"):
            raise StageUnavailableError(normalized.status)
        return answers.normalized_answer(normalized)

    async def bases(self, base: str, access: Access) -> BasesAnswer:
        """The knowledge bases there are; with one named, that one and its documents.

        Raises:
            KnowledgeProblem: as ``Library.documents``.
        """
        if not base:
            return answers.bases_answer(await self.library.overview(None, access), ())
        base_id = await self._named(base, access)
        found = await self.library.overview(base_id, access)
        return answers.bases_answer(found, await self.library.documents(base_id, access))

    async def create(self, name: str, description: str, access: Access) -> CreatedAnswer:
        """A new knowledge base.

        Raises:
            KnowledgeProblem: as ``Library.create``.
        """
        base = await self.library.create(name, description, access=access)
        return CreatedAnswer(knowledge_base_id=base.id, name=base.name, description=base.description)

    async def add(
        self, base: str, source: Source, placing: Placing, access: Access, on_progress: Progress
    ) -> AddedAnswer:
        """Documents in.

        Raises:
            KnowledgeProblem: the document cannot be read or kept, or may not be.
        """
        source = source.checked()
        base_id = await self._named(base, access)
        # Before anything is read or fetched for somebody who may not even see the base.
        await self.library.base(base_id, access)
        filing = Filing(self.library, base_id, placing, access)
        if source.path:
            path = adding.allowed_path(source.path, self.settings.import_from, access)
            return await adding.add_path(path, filing, self._reader, on_progress)
        document = source.url or adding.text_blob(source.text)
        return await adding.add_document(document, filing, self._reader, on_progress)

    async def remove(self, document_id: str, access: Access) -> RemovedAnswer:
        """A document out.

        Raises:
            KnowledgeProblem: as ``Library.remove``.
        """
        document = await self.library.remove(document_id, access)
        return RemovedAnswer(removed=document.id, title=document.title, knowledge_base_id=document.base_id)

    async def remove_empty(self, base: str, access: Access) -> RemovedAnswer:
        """A knowledge base out, once it holds no document: no single call destroys more than one.

        Raises:
            KnowledgeProblem: as ``Library.remove_base``; it still holds documents.
        """
        base_id = await self._named(base, access)
        found = await self.library.base(base_id, access)
        if await self.library.documents(base_id, access):
            raise BadArgumentError("knowledge_base_id", "still holds documents", "Remove each by its document_id first")
        await self.library.remove_base(base_id, access)
        return RemovedAnswer(removed=base_id, title=found.name, knowledge_base_id=base_id)

    async def reindex(self, base: str, access: Access) -> ReindexAnswer:
        """The index made anew, in the background.

        Raises:
            KnowledgeProblem: as ``Library.reindex``.
        """
        state = await self.library.reindex(await self._named(base, access), access)
        return ReindexAnswer(
            knowledge_base_id=state.base_id,
            chunks=state.chunks,
            embedder=state.searched_with,
            becoming=state.becoming,
            done=state.done,
            problem_found=state.problem,
        )

    async def _named(self, base: str, access: Access) -> str:
        """The id of a base that is given by its id or its name, or left to the default."""
        wanted = (base or self.settings.default_base).strip()
        if not wanted:
            raise BadArgumentError("knowledge_base_id", "is missing", _CHOOSE)
        if known_id(wanted):
            return wanted
        bases = await self.library.bases(access)
        if wanted == ALL:
            if len(bases) == 1:
                return bases[0].id
            raise BadArgumentError("knowledge_base_id", "is missing", _CHOOSE)
        named = [found for found in bases if found.name.casefold() == wanted.casefold()]
        if len(named) > 1:
            raise BadArgumentError("knowledge_base_id", f"is {wanted!r:.80}, as several are called", "Give an id")
        if not named:
            raise BaseNotFoundError(wanted)
        return named[0].id
