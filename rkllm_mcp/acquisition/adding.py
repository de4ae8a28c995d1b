"""``rkllm-mcp models add``: a local .rkllm file -> a model folder of the user.

Rules: metadata comes from the file's header and name, its folder and the catalogue; the user is asked only for missing
values, and without a terminal the error names the option; files are linked, not copied.
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

# Prefix of a repository from which to download the tokenizer.
HUB_PREFIX = "hf:"
_TOKENIZER = "tokenizer.json"
_MOST_NAMESAKES = 100
_UNNAMELY = re.compile(r"[^a-z0-9.]+")
# Parts of a file name that describe the conversion, not the model.
_CONVERSION = re.compile(
    r"[-_. ](?:rk\d{4}s?|rv1126b|w\d+a\d+|g\d+|fp16|opt|hybrid|ratio|rkllm|v?1\.\d+\.\d+\w*|ctx\d*k?|\d+k)"
    r"(?![a-z0-9]).*$",
    re.IGNORECASE,
)


class Asker(Protocol):
    """Source of answers to questions; without one, raises UsageError."""

    def choose(self, question: str, option: str, choices: Sequence[str] = ()) -> str:
        """Return an answer, one of the choices if any are given.

        Raises:
            UsageError: no answer is possible; the message names the option.
        """
        ...

    def confirm(self, question: str, option: str) -> bool:
        """Return True for yes.

        Raises:
            UsageError: no answer is possible; the message names the option.
        """
        ...


@dataclass(frozen=True)
class Addition:
    """A file to add, and the user's options."""

    path: Path  # the .rkllm file
    name: str | None = None  # name of the new model
    tokenizer: str | None = None  # a ``tokenizer.json``, or ``hf:OWNER/NAME`` to download it
    template: str | None = None  # chat template
    copy: bool = False  # copy instead of linking
    sure: bool = False  # accept guesses without asking
    any_platform: bool = False  # accept a file for another chip


def add(stock: Stock, options: Addition, asker: Asker, report: Report) -> ModelFolder:
    """Create a model folder from a local file.

    Raises:
        RuntimeUnusableError: the file or its tokenizer is invalid, or not for this board.
        UsageError: a value is missing and cannot be asked for, or the name is taken.
    """
    file = read_rkllm_file(options.path.expanduser().absolute())
    hints = name_hints(file.path.name)
    platform = file.platform or hints.platform
    stock.check_platform(platform, any_platform=options.any_platform)
    like = recognise(_names(file), file.architecture, [folder.card for folder in stock.models()])
    card = _card(options, asker, file, like)
    name = options.name or _free_name(stock, file, like)
    if stock.shelf.folder(name).exists():
        raise UsageError(f"the model {name!r} exists already; choose another --name, or remove it first")
    stock.say(_description(file, hints, like))
    found = _tokenizer(stock, options, asker, file, like)
    with stock.shelf.workspace(name) as space:
        stock.shelf.check_room(file.size_bytes if options.copy else 0)
        tokenizer = space.ready / _TOKENIZER
        if isinstance(found, RemoteFile):
            stock.hub.fetch(stock.hub.find(found), space.place, tokenizer, report)
        else:
            place_file(found, tokenizer, copy=True)
        check_tokenizer(tokenizer, card.template, file.eos_token_id, stock.say)
        place_file(file.path, space.ready / file.path.name, copy=options.copy)
        longest = file.context_tokens or hints.context_tokens or card.context_tokens
        card = card.model_copy(
            update={
                "name": name,
                "file": file.path.name,
                "tokenizer": _TOKENIZER,
                # A longer window costs memory; [model] can request the whole of it.
                "context_tokens": min(card.context_tokens, longest),
                "source": SourceCard.model_validate({"platform": platform}) if platform else None,
            }
        )
        (space.ready / CARD_NAME).write_text(card_text(card), "utf-8")
        folder = stock.shelf.publish(name, space)
    return load_model(folder)


def _names(file: RkllmFile) -> list[str]:
    """Return the file's names: from its header, its file name and its folder."""
    return [name for name in (file.name, file.path.stem, file.path.parent.name) if name]


def _card(options: Addition, asker: Asker, file: RkllmFile, like: Recognition | None) -> ModelCard:
    """Return the chat settings for the new folder."""
    if options.template is not None:
        if options.template not in TEMPLATES:
            raise UsageError(f"unknown template {options.template!r}; the templates are {', '.join(TEMPLATES)}")
        same = like is not None and like.card.template == options.template
        return _bare(like.card, like) if like is not None and same else _unknown(options.template)
    if like is None:
        what = f" (architecture {file.architecture})" if file.architecture else ""
        question = f"Which chat template does the model in {file.path.name}{what} use?"
        return _unknown(asker.choose(question, "--template", sorted(TEMPLATES)))
    if like.by == "architecture" and not options.sure:
        question = (
            f"By its architecture, {file.architecture}, the model uses the chat template {like.card.template}. Correct?"
        )
        if not asker.confirm(question, "--template, or --yes"):
            return _unknown(asker.choose("Which chat template does it use?", "--template", sorted(TEMPLATES)))
    return _bare(like.card, like)


def _bare(card: ModelCard, like: Recognition) -> ModelCard:
    """Return an entry's chat settings; its measurements apply to the same model only."""
    if like.by == "model":
        return card
    return card.model_copy(update={"description": "", "published": None})


def _unknown(template: str) -> ModelCard:
    return ModelCard(name="unknown", template=template)


def _free_name(stock: Stock, file: RkllmFile, like: Recognition | None) -> str:
    """Return the entry's name if the file is that model, else one from the file name; numbered if taken."""
    stem = _CONVERSION.sub("", file.path.stem) or file.path.stem
    made = _UNNAMELY.sub("-", stem.lower()).strip("-.") or "model"
    name = like.card.name if like is not None and like.by == "model" else made
    numbered = (name if number == 1 else f"{name}-{number}" for number in range(1, _MOST_NAMESAKES))
    return next((candidate for candidate in numbered if not stock.shelf.has(candidate)), name)


def _description(file: RkllmFile, hints: FileNameHints, like: Recognition | None) -> str:
    """Return the known properties of the file in one line."""
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
    stock: Stock, options: Addition, asker: Asker, file: RkllmFile, like: Recognition | None
) -> Path | RemoteFile:
    """Return the location of the model's tokenizer."""
    if options.tokenizer is not None:
        return _named_tokenizer(options.tokenizer)
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
        raise UsageError(f"{path} does not exist; --tokenizer names a tokenizer.json, or hf:OWNER/NAME to fetch it")
    return path
