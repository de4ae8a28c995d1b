"""A document that was read -> the library: the port that ``importing.folders`` wants, and one document at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mcp_servers.knowledge.importing.documents import ReadDocument
from mcp_servers.knowledge.library import Library
from mcp_servers.knowledge.values import DEFAULT_COLLECTION, EVERYONE, Access, Added, NewChunk, NewDocument


@dataclass(frozen=True)
class Placing:
    """What a document is to be besides what it says.

    Args:
        collection: the collection's name.
        title: instead of the document's own; empty for that.
        uri: instead of where it was read from; empty for that.
        department: who it is for; empty for everybody.
        clearance: what a reader needs.
        fields: free metadata.
    """

    collection: str = DEFAULT_COLLECTION
    title: str = ""
    uri: str = ""
    department: str = ""
    clearance: int = 0
    fields: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Filed:
    """A document that was put into the library.

    Args:
        title: as kept.
        uri: as kept.
        added: what became of it.
    """

    title: str
    uri: str
    added: Added


class Filing:
    """Puts documents into one knowledge base.

    Args:
        library: where.
        base_id: the knowledge base.
        placing: what they are to be.
        access: whose they are.

    Attributes:
        base_id: the knowledge base.
        filed: what was put there.
    """

    def __init__(
        self, library: Library, base_id: str, placing: Placing | None = None, access: Access = EVERYONE
    ) -> None:
        self._library = library
        self.base_id = base_id
        self._placing = placing or Placing()
        self._access = access
        self.filed: list[Filed] = []

    async def known(self, prefix: str) -> Mapping[str, str]:
        """The content hash of every document whose address begins so, by address."""
        documents = await self._library.documents(self.base_id, self._access)
        return {document.uri: document.content_hash for document in documents if document.uri.startswith(prefix)}

    async def add(self, document: ReadDocument, chunks: tuple[NewChunk, ...]) -> None:
        """Keep a document, instead of the one of the same address.

        Raises:
            KnowledgeProblem: as ``Library.add``.
        """
        placing = self._placing
        new = NewDocument(
            title=placing.title or document.title,
            chunks=chunks,
            content_hash=document.content_hash,
            uri=placing.uri or document.uri,
            collection=placing.collection,
            department=placing.department,
            clearance=placing.clearance,
            fields=placing.fields,
        )
        self.filed.append(Filed(new.title, new.uri, await self._library.add(self.base_id, new, self._access)))

    async def remove(self, uri: str) -> None:
        """Forget the document of an address; nothing when there is none."""
        document = await self._library.find(self.base_id, uri, self._access)
        if document:
            await self._library.remove(document.id, self._access)
