"""``rkllm-mcp models pull``: a name of the catalogue -> a model folder of the user.

Rules: platform and disk space are checked before the download; files get their final names after verification; the
folder appears when it is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from rkllm_mcp.acquisition.stock import Stock
from rkllm_mcp.acquisition.tokenizer import check_tokenizer
from rkllm_mcp.board.file_names import name_hints
from rkllm_mcp.board.rkllm_file import read_rkllm_file
from rkllm_mcp.config.catalogue import SourceCard
from rkllm_mcp.config.models import CARD_NAME, ModelCard, ModelFolder, load_model
from rkllm_mcp.errors import ModelDownloadError, UsageError
from rkllm_mcp.shelf.card import card_text
from rkllm_mcp.shelf.folder import Workspace
from rkllm_mcp.shelf.hub import FoundFile, RemoteFile, Report
from rkllm_mcp.shelf.recognition import recognise

_WHERE_TO_LOOK = (
    "Rockchip's rkllm_model_zoo (linked from github.com/airockchip/rknn-llm) and huggingface.co/models?search=rkllm "
    "have files; name one with --repository OWNER/NAME --file FILE, or convert the model with scripts/convert_model.py."
)


_SHOWN_FILES = 12


@dataclass(frozen=True)
class Pull:
    """Options of a download."""

    name: str  # of the catalogue, or a new one together with ``repository`` and ``file``
    repository: str | None = None  # replaces the catalogue's repository
    file: str | None = None  # replaces the catalogue's .rkllm file
    any_platform: bool = False  # accept a file for another chip


def pull(stock: Stock, options: Pull, report: Report) -> ModelFolder:
    """Download a model's .rkllm file and tokenizer into the user's folder.

    Raises:
        RuntimeUnusableError: the model is not available, does not fit, or fails verification.
        UsageError: the chat template for a model of that name is unknown.
    """
    stock.shelf.folder(options.name)
    card, there = _wanted(stock, options)
    if there is not None and not there.missing:
        stock.say(f"{options.name} is here already: {there.folder}")
        return there
    source = _source(card, options)
    stock.check_platform(name_hints(source.file or "").platform or source.platform, any_platform=options.any_platform)
    weights = _find_weights(stock, source)
    tokenizer = _find_tokenizer(stock, source, options)
    if there is None:
        card = card.model_copy(update={"file": Path(weights.remote.name).name, "tokenizer": "tokenizer.json"})
    card = card.model_copy(update={"source": _settled(source, weights)})
    with stock.shelf.workspace(options.name) as space:
        stock.shelf.check_room(sum(_outstanding(found, space) for found in (weights, tokenizer)))
        _fetch(stock, card, (weights, tokenizer), space, report, any_platform=options.any_platform)
        folder = stock.shelf.publish(options.name, space)
    return load_model(folder)


def _wanted(stock: Stock, options: Pull) -> tuple[ModelCard, ModelFolder | None]:
    """Return the card to download for, and the user's existing folder of that name."""
    models = stock.models()
    folder = next((folder for folder in models if folder.folder.name == options.name), None)
    if folder is not None:
        own = folder if folder.folder.parent == stock.shelf.root.absolute() else None
        if folder.card.emulated:
            raise UsageError(f"{options.name!r} is a script for the emulated runtime and comes with rkllm-mcp; use it")
        if own is None and _comes_before(stock, folder.folder.parent):
            raise UsageError(f"{folder.folder} has precedence over {stock.shelf.root}; put the files there by hand")
        return folder.card, own
    if options.repository is None or options.file is None:
        # load_model raises the error with the known names.
        load_model(options.name, stock.directories)
    like = recognise([options.file or "", options.name], None, [folder.card for folder in models])
    if like is None:
        raise UsageError(
            f"the chat template of {options.name!r} is unknown; fetch the file yourself and use "
            "'rkllm-mcp models add PATH --template NAME'"
        )
    stock.say(f"{options.name} uses the chat template of {like.card.name}")
    own = {"name": options.name, "description": ""} | (
        {} if like.by == "model" else {"published": None, "source": None}
    )
    return like.card.model_copy(update=own), None


def _comes_before(stock: Stock, directory: Path) -> bool:
    """Return True if a folder of models hides the user's own folder of the same name."""
    places = [place.absolute() for place in stock.directories]
    own = stock.shelf.root.absolute()
    return own in places and directory in places and places.index(directory) < places.index(own)


def _source(card: ModelCard, options: Pull) -> SourceCard:
    source = card.source or SourceCard()
    if options.repository is not None or options.file is not None:
        # Checksum and revision of the catalogue's file do not apply to another file.
        other = {
            "revision": None,
            "sha256": None,
            "platform": name_hints(options.file or "").platform or source.platform,
        }
        named = {"repository": options.repository or source.repository, "file": options.file or source.file}
        try:
            source = SourceCard.model_validate({**source.model_dump(), **other, **named})
        except ValidationError:
            raise UsageError("--repository is OWNER/NAME, and --file the path of a file in it") from None
    if source.repository is None:
        raise ModelDownloadError(f"The catalogue has no .rkllm file for {options.name!r}.", _WHERE_TO_LOOK)
    return source


def _find_tokenizer(stock: Stock, source: SourceCard, options: Pull) -> FoundFile:
    """Find the tokenizer: the original model's, or the one in the repository of the .rkllm file.

    If the user names a repository, its tokenizer is tried first.
    """
    beside = RemoteFile(source.repository or "", source.tokenizer_file, source.revision)
    if source.tokenizer_repository is None:
        return stock.hub.find(beside)
    original = RemoteFile(source.tokenizer_repository, source.tokenizer_file, source.tokenizer_revision)
    first, second = (beside, original) if options.repository else (original, beside)
    try:
        return stock.hub.find(first)
    except ModelDownloadError as trouble:
        try:
            return stock.hub.find(second)
        except ModelDownloadError:
            raise trouble from None


def _find_weights(stock: Stock, source: SourceCard) -> FoundFile:
    """Find the .rkllm file: the named one, else the only suitable one in the repository."""
    repository, name = source.repository or "", source.file
    if name is None:
        name = _only(source, stock.hub.names(repository, source.revision))
        stock.check_platform(name_hints(name).platform, any_platform=False)
    return stock.hub.find(RemoteFile(repository, name, source.revision, source.sha256))


def _only(source: SourceCard, names: Sequence[str]) -> str:
    """Return the file for the platform; of several the plain w8a8 one, which is the fastest and the one measured."""
    files = [name for name in names if name.endswith(".rkllm") and "lora" not in name.lower()]
    fitting = [name for name in files if name_hints(name).platform in {None, source.platform}]
    plain = [name for name in fitting if name_hints(name).data_type == "w8a8"]
    for candidates in (fitting, plain):
        if len(candidates) == 1:
            return candidates[0]
    found = f"{len(files)} .rkllm files: {', '.join(files[:_SHOWN_FILES])}" if files else "no .rkllm file"
    advice = "Name one with --file." if files else "Name another with --repository."
    raise ModelDownloadError(f"{source.repository} has {found}.", advice)


def _settled(source: SourceCard, weights: FoundFile) -> SourceCard:
    """Return the source with the downloaded file and commit, for the card."""
    settled = {"file": weights.remote.name, "revision": weights.commit or source.revision}
    return source.model_copy(update=settled)


def _outstanding(found: FoundFile, space: Workspace) -> int:
    if found.cached is not None or found.size is None:
        return 0
    part = found.part(space.place)
    return max(0, found.size - (part.stat().st_size if part.exists() else 0))


def _fetch(
    stock: Stock,
    card: ModelCard,
    files: Sequence[FoundFile],
    space: Workspace,
    report: Report,
    *,
    any_platform: bool,
) -> None:
    for found, name in zip(files, (card.file, card.tokenizer), strict=True):
        target = space.ready / Path(name).name
        stock.hub.fetch(found, space.place, target, report)
    header = read_rkllm_file(space.ready / Path(card.file).name)
    stock.check_platform(header.platform, any_platform=any_platform)
    check_tokenizer(space.ready / Path(card.tokenizer).name, card.template, header.eos_token_id, stock.say)
    longest = header.context_tokens or card.context_tokens
    card = card.model_copy(update={"context_tokens": min(card.context_tokens, longest)})
    (space.ready / CARD_NAME).write_text(card_text(card), "utf-8")
