"""EPUB -> title and passages: the chapters in the order of the spine.

A chapter that is missing or encrypted is named in a warning; a book whose chapters are all encrypted is refused.
"""

from __future__ import annotations

import posixpath
import zipfile
from urllib.parse import unquote
from xml.etree import ElementTree as ET

from mcp_servers.knowledge.errors import EncryptedDocumentError
from mcp_servers.knowledge.importing.archives import elements_named, find_part, parse_part
from mcp_servers.knowledge.importing.documents import Blob, DocumentBuilder, some_names
from rkllm_base.encodings import decode

_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_SHOWN = frozenset({"application/xhtml+xml", "image/svg+xml", "application/x-dtbook+xml", "text/html"})
# Fonts are obfuscated with these; text is not.
_FONT_ALGORITHMS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")


def read_book(archive: zipfile.ZipFile, builder: DocumentBuilder, blob: Blob) -> tuple[str, list[str]]:
    """Read a book; return its title and warnings, or raise EncryptedDocumentError."""
    from mcp_servers.knowledge.importing.html import declared_charset, read_html

    container = next((entry for entry in archive.namelist() if entry.endswith(_CONTAINER)), None)
    if container is None:
        raise KeyError(_CONTAINER)
    # Some books are packed with the folder around them.
    root = container.removesuffix(_CONTAINER)
    locked: set[str] = set()
    encryption = f"{root}{_ENCRYPTION}"
    listed = parse_part(archive, encryption) if encryption in archive.namelist() else ET.Element("encryption")
    for data in elements_named(listed, "EncryptedData"):
        methods = [method.get("Algorithm", "") for method in elements_named(data, "EncryptionMethod")]
        if not methods or methods[0] not in _FONT_ALGORITHMS:
            for reference in elements_named(data, "CipherReference"):
                name = root + reference.get("URI", "").lstrip("/")
                locked |= {name, unquote(name)}
    package = find_part(
        archive, root + next(elements_named(parse_part(archive, container), "rootfile")).get("full-path", "")
    )
    if package in locked:
        raise EncryptedDocumentError(blob.name)
    book = parse_part(archive, package)
    items = {item.get("id"): item for item in elements_named(book, "item")}
    read: set[str] = set()
    lost: list[str] = []
    encrypted: list[str] = []
    for number, reference in enumerate(elements_named(book, "itemref"), 1):
        item, kinds = items.get(reference.get("idref")), set[str]()
        # In place of data or a picture, which no reader has to show, is what it names.
        while item is not None and (kind := item.get("media-type", "")) not in _SHOWN and kind not in kinds:
            kinds.add(kind)
            item = items.get(item.get("fallback"), item)
        href = "" if item is None else item.get("href", "").replace("\\", "/")
        try:
            name = find_part(
                archive, posixpath.normpath(posixpath.join("/", posixpath.dirname(package), href)).lstrip("/")
            )
        except KeyError:
            lost.append(href or f"chapter {number}")
            continue
        if name in read:
            continue
        read.add(name)
        if name in locked:
            encrypted.append(name)
            continue
        try:
            content = archive.read(name)
        except zipfile.BadZipFile:
            lost.append(href)
            continue
        # A chapter may be a drawing (svg).
        _, passages = read_html(decode(content, declared_charset(content)).text)
        builder.extend(passages, page=number)
    if encrypted and not builder.passages:
        raise EncryptedDocumentError(blob.name)
    title = next((" ".join("".join(element.itertext()).split()) for element in elements_named(book, "title")), "")
    warnings = [f"Chapters that the book names are missing or damaged: {some_names(lost)}."] if lost else []
    warnings += [f"Chapters are encrypted and were not read: {some_names(encrypted)}."] if encrypted else []
    return title, warnings
