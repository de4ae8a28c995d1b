"""A .rkllm file that somebody has becomes a model folder of the user's: ``rkllm-mcp models add``.

Rules: the file's header and name, its neighbours and the catalogue are asked before the person is; a person is asked
only what none of them knows, and where there is no person the sentence names the option; files are linked, not copied.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rkllm_mcp.acquisition.stock import Stock
from rkllm_mcp.acquisition.tokenizer import check_tokenizer
from rkllm_mcp.board.file_names import FileNameHints, name_hints
from rkllm_mcp.board.rkllm_file import RkllmFile, read_rkllm_file
from rkllm_mcp.config.catalogue import SourceCard
from rkllm_mcp.config.models import CARD_NAME, ModelCard, ModelFolder, load_model
from rkllm_mcp.errors import UsageError
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.shelf.card import card_text
from rkllm_mcp.shelf.folder import place_file
from rkllm_mcp.shelf.hub import RemoteFile, Report
from rkllm_mcp.shelf.recognition import Recognition, recognise

# Before a repository's name where a tokenizer is to be fetched.
HUB_PREFIX = "hf:"
_TOKENIZER = "tokenizer.json"
_MOST_NAMESAKES = 100
_UNNAMELY = re.compile(r"[^a-z0-9.]+")
# Parts of a file's name that say how it was converted and not what it is.
_CONVERSION = re.compile(
    r"[-_. ](?:rk\d{4}s?|rv1126b|w\d+a\d+|g\d+|fp16|opt|hybrid|ratio|rkllm|v?1\.\d+\.\d+\w*|ctx\d*k?|\d+k)"
    r"(?![a-z0-9]).*$",
    re.IGNORECASE,
)


class Asker(Protocol):
    """Who answers questions, or says that nobody does."""

    def choose(self, question: str, option: str, choices: Sequence[str] = ()) -> str:
        """An answer, one of the choices where there are any.

        Raises:
            UsageError: nobody answers; the sentence names the option.
        """
        ...

    def confirm(self, question: str, option: str) -> bool:
        """Yes or no.

        Raises:
            UsageError: nobody answers; the sentence names the option.
        """
        ...


@dataclass(frozen=True)
class Addition:
    """A file to add, and what its owner says about it.

    Args:
        path: the .rkllm file.
        name: what to call the model here.
        tokenizer: a ``tokenizer.json``, or ``hf:OWNER/NAME`` to fetch it.
        template: how the model is spoken to.
        copy: make copies instead of links.
        sure: take what can only be guessed without asking.
        any_platform: take a file for another chip, too.
    """

    path: Path
    name: str | None = None
    tokenizer: str | None = None
    template: str | None = None
    copy: bool = False
    sure: bool = False
    any_platform: bool = False


def add(stock: Stock, wish: Addition, asker: Asker, report: Report) -> ModelFolder:
    """Make a model folder of a file that is on this machine.

    Raises:
        RuntimeUnusableError: the file or its tokenizer is none, or none for this board.
        UsageError: something is not known and nobody is there to say it, or the name is taken.
    """
    file = read_rkllm_file(wish.path.expanduser().absolute())
    hints = name_hints(file.path.name)
    platform = file.platform or hints.platform
    stock.check_platform(platform, any_platform=wish.any_platform)
    like = recognise(_names(file), file.architecture, [folder.card for folder in stock.models()])
    card = _card(wish, asker, file, like)
    name = wish.name or _free_name(stock, file, like)
    if stock.shelf.folder(name).exists():
        raise UsageError(f"there is a model {name!r} already; choose another --name, or remove it first")
    stock.say(_told(file, hints, like))
    found = _tokenizer(stock, wish, asker, file, like)
    with stock.shelf.workspace(name) as space:
        stock.shelf.check_room(file.size_bytes if wish.copy else 0)
        tokenizer = space.ready / _TOKENIZER
        if isinstance(found, RemoteFile):
            stock.hub.fetch(stock.hub.find(found), space.place, tokenizer, report)
        else:
            place_file(found, tokenizer, copy=True)
        check_tokenizer(tokenizer, card.template, file.eos_token_id, stock.say)
        place_file(file.path, space.ready / file.path.name, copy=wish.copy)
        longest = file.context_tokens or hints.context_tokens or card.context_tokens
        card = card.model_copy(
            update={
                "name": name,
                "file": file.path.name,
                "tokenizer": _TOKENIZER,
                # A longer window costs memory; who wants all of it says so in [model].
                "context_tokens": min(card.context_tokens, longest),
                "source": SourceCard.model_validate({"platform": platform}) if platform else None,
            }
        )
        (space.ready / CARD_NAME).write_text(card_text(card), "utf-8")
        folder = stock.shelf.publish(name, space)
    return load_model(folder)


def _names(file: RkllmFile) -> list[str]:
    """What the file is called: by its header, by its name, by its folder's."""
    return [name for name in (file.name, file.path.stem, file.path.parent.name) if name]


def _card(wish: Addition, asker: Asker, file: RkllmFile, like: Recognition | None) -> ModelCard:
    """What the new folder says of how the model is spoken to."""
    if wish.template is not None:
        if wish.template not in TEMPLATES:
            raise UsageError(f"there is no template {wish.template!r}; there are {', '.join(TEMPLATES)}")
        same = like is not None and like.card.template == wish.template
        return _bare(like.card, like) if like is not None and same else _unknown(wish.template)
    if like is None:
        what = f" (architecture {file.architecture})" if file.architecture else ""
        question = f"How is the model in {file.path.name}{what} spoken to?"
        return _unknown(asker.choose(question, "--template", sorted(TEMPLATES)))
    if like.by == "architecture" and not wish.sure:
        question = f"By its architecture, {file.architecture}, the model is spoken to as {like.card.template}. Right?"
        if not asker.confirm(question, "--template, or --yes"):
            return _unknown(asker.choose("How is it spoken to?", "--template", sorted(TEMPLATES)))
    return _bare(like.card, like)


def _bare(card: ModelCard, like: Recognition) -> ModelCard:
    """The entry's own words on how it is spoken to; what was measured holds for the same model only."""
    if like.by == "model":
        return card
    return card.model_copy(update={"description": "", "published": None})


def _unknown(template: str) -> ModelCard:
    return ModelCard(name="unknown", template=template)


def _free_name(stock: Stock, file: RkllmFile, like: Recognition | None) -> str:
    """The entry's name where the file is that model, else one made of the file's; with a number when it is taken."""
    stem = _CONVERSION.sub("", file.path.stem) or file.path.stem
    made = _UNNAMELY.sub("-", stem.lower()).strip("-.") or "model"
    name = like.card.name if like is not None and like.by == "model" else made
    numbered = (name if number == 1 else f"{name}-{number}" for number in range(1, _MOST_NAMESAKES))
    return next((candidate for candidate in numbered if not stock.shelf.has(candidate)), name)


def _told(file: RkllmFile, hints: FileNameHints, like: Recognition | None) -> str:
    """What is known of the file, in a line."""
    facts = [
        file.name or file.architecture or file.path.name,
        *([f"for {platform}"] if (platform := file.platform or hints.platform) else []),
        *([hints.data_type] if hints.data_type else []),
        *([f"{file.npu_cores} NPU cores"] if file.npu_cores else []),
        *([f"toolkit {toolkit}"] if (toolkit := file.toolkit or hints.toolkit) else []),
        *([f"up to {file.context_tokens} tokens"] if file.context_tokens else []),
        *([f"like {like.card.name} by its {'name' if like.by != 'architecture' else like.by}"] if like else []),
    ]
    return ", ".join(facts)


def _tokenizer(
    stock: Stock, wish: Addition, asker: Asker, file: RkllmFile, like: Recognition | None
) -> Path | RemoteFile:
    """Where the model's tokenizer is."""
    if wish.tokenizer is not None:
        return _named_tokenizer(wish.tokenizer)
    beside = file.path.parent / _TOKENIZER
    if beside.is_file():
        return beside
    if like is not None and like.by == "model":
        same = next((folder.tokenizer for folder in stock.models() if folder.card == like.card), None)
        if same is not None and same.is_file():
            return same
    source = like.card.source if like is not None and like.by == "model" else None
    advice = "the original model's tokenizer.json, as a path or hf:OWNER/NAME"
    if source is not None and source.tokenizer_repository is not None:
        advice += f", here hf:{source.tokenizer_repository}"
    return _named_tokenizer(asker.choose(f"Where is the tokenizer ({advice})?", "--tokenizer"))


def _named_tokenizer(named: str) -> Path | RemoteFile:
    if named.startswith(HUB_PREFIX):
        return RemoteFile(named.removeprefix(HUB_PREFIX), _TOKENIZER)
    path = Path(named).expanduser()
    path = path / _TOKENIZER if path.is_dir() else path
    if not path.is_file():
        raise UsageError(f"there is no {path}; --tokenizer names a tokenizer.json, or hf:OWNER/NAME to fetch it")
    return path
