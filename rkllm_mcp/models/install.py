"""Install and remove models: ``models pull``, ``models add`` and ``models remove``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from rkllm_mcp.board.machine import Machine
from rkllm_mcp.errors import ModelDownloadError, ModelFileError, UsageError
from rkllm_mcp.models.cards import (
    CARD_NAME,
    ModelCard,
    ModelFolder,
    SourceCard,
    card_text,
    how_to_convert,
    list_models,
    load_model,
    model_directories,
    user_root,
)
from rkllm_mcp.models.compatibility import (
    Fitness,
    ModelMatch,
    check_pair,
    check_tokenizer,
    fitness,
    match_model,
    needed_bytes,
    platform_of,
)
from rkllm_mcp.models.folder import ModelFolderStore, Workspace, place_file
from rkllm_mcp.models.gguf import describe_gguf, is_gguf, read_gguf, tokenizer_of, weights_script
from rkllm_mcp.models.hub import FoundFile, Hub, RemoteFile, Report
from rkllm_mcp.models.rkllm_header import RkllmFile, name_hints, read_rkllm_file
from rkllm_mcp.models.rknn_header import RknnFile, read_rknn_file
from rkllm_mcp.prompt.families import TEMPLATES


@dataclass(frozen=True)
class ModelSources:
    """Sources and destination of models."""

    folders: ModelFolderStore = field(default_factory=lambda: ModelFolderStore(user_root()))  # the user's folder
    hub: Hub = field(default_factory=Hub)  # download source
    machine: Machine = field(default_factory=Machine)  # this board
    # search path of models; None for the default
    directories: tuple[Path, ...] = field(default_factory=model_directories)
    say: Callable[[str], None] = lambda _text: None  # callback for messages to the user

    def models(self) -> list[ModelFolder]:
        """Return every model with a card."""
        return list_models(self.directories)

    def check_platform(self, platform: str | None, *, any_platform: bool) -> None:
        """Raise a ModelFileError if a file is for another chip than this board's; without an NPU any chip is right."""
        here = platform_of(self.machine)
        if any_platform or platform is None or here is None or platform == here:
            return
        raise ModelFileError(
            f"The file is for the {platform}, and this board has an {here}.",
            f"Take one converted for the {here}, or go on with --any-platform.",
        )

    def fitness_of(self, folder: ModelFolder) -> Fitness:
        """Return the compatibility of a model with this machine, from its card and file."""
        card = folder.card
        published = card.published.memory_mb if card.published else None
        parts = (folder.file, *([folder.encoder] if folder.encoder is not None else []))
        size = sum(path.stat().st_size for path in parts if path.is_file())
        platform = card.source.platform if card.source else None
        cache, context = card.cache_bytes_per_token, card.context_tokens
        # Published figures are of short prompts.
        short = published * 10**6 + context * (cache or 0) if published else 0
        memory = short or needed_bytes(size, context, cache)
        return fitness(self.machine, platform, memory, any_machine=card.emulated)

    def removable(self, name: str) -> Path:
        """Return the folder of a model that the user may remove, or raise a UsageError."""
        if self.folders.has(name):
            return self.folders.folder(name)
        other = next((folder for folder in self.models() if name in {folder.name, folder.folder.name}), None)
        if other is None:
            raise UsageError(f"unknown model {name!r} in {self.folders.root}; 'rkllm-mcp models list' lists the models")
        raise UsageError(f"{name!r} is in {other.folder}, which rkllm-mcp does not manage; remove it by hand")


_SHOWN_FILES = 12


@dataclass(frozen=True)
class Pull:
    """Options of a download."""

    name: str  # of the catalogue, or a new one together with ``repository`` and ``file``
    repository: str | None = None  # replaces the catalogue's repository
    file: str | None = None  # replaces the catalogue's .rkllm file
    any_platform: bool = False  # accept a file for another chip

    def resolve(self, sources: ModelSources) -> Pull:
        """Return the options with ``OWNER/NAME[:FILE]`` as repository and file, and a folder named after the model."""
        if "/" not in self.name:
            return self
        if self.repository is not None or (self.file is not None and ":" in self.name):
            raise UsageError("write either OWNER/NAME[:FILE], or a NAME with --repository and --file")
        repository, _, file = self.name.partition(":")
        file = file or self.file or _only(SourceCard(), sources.hub.names(_checked_repository(repository)), repository)
        stem = repository.rpartition("/")[2]
        like = match_model([stem, file], None, [folder.card for folder in sources.models()])
        name = like.card.name if like is not None and like.by == "model" else _plain_name(stem)
        return replace(self, name=name, repository=repository, file=file)


def pull_weights(sources: ModelSources, options: Pull, report: Report) -> ModelFolder:
    """Download a model as a GGUF file, for this machine's CPU, into a folder next to that for the NPU.

    ``options`` name an entry of the catalogue with ``[cpu]``, or a repository and its file.

    Raises:
        RuntimeUnusableError: the file is not available, is not a GGUF file, or its tokenizer cannot be had.
        UsageError: the catalogue has no GGUF file of the model, or its chat template is unknown.
    """
    models = sources.models()
    if "/" in options.name or options.repository is not None:
        repository, _, file = (options.repository or options.name).partition(":")
        file = file or options.file or ""
        if not file.endswith(".gguf"):
            raise UsageError("name the file too: OWNER/NAME:FILE.gguf, or --repository and --file")
        like = match_model([file, repository.rpartition("/")[2]], None, [folder.card for folder in models])
        if like is None:
            raise UsageError(
                f"the chat template of {file!r} is unknown; fetch the file yourself and use "
                "'rkllm-mcp models add FILE.gguf --template NAME'"
            )
        name = like.card.name if like.by == "model" else _plain_name(Path(file).stem)
        card, remote = like.card.model_copy(update={"name": name}), RemoteFile(_checked_repository(repository), file)
    else:
        known = next((folder.card for folder in models if folder.folder.name == options.name), None)
        # For another name, load_model raises the error with the known names.
        card = known or load_model(options.name, sources.directories).card
        if card.cpu is None:
            names = ", ".join(folder.name for folder in models if folder.card.cpu is not None)
            raise UsageError(f"no GGUF file of {options.name!r} is known; there are {names}, or OWNER/NAME:FILE.gguf")
        sources.say(f"{card.cpu.file}: {card.cpu.size_mb} MB, {card.cpu.licence}; for {card.cpu.good_for}")
        remote = RemoteFile(card.cpu.repository, card.cpu.file)
    name = f"{card.name}{CPU_SUFFIX}"
    if sources.folders.has(name):
        installed = load_model(sources.folders.folder(name))
        sources.say(f"{name} is here already: {installed.folder}")
        return installed
    weights = sources.hub.find(remote)
    with sources.folders.workspace(name) as space:
        sources.folders.check_room(_outstanding(weights, space))
        sources.hub.fetch(weights, space.place, space.ready / _WEIGHTS, report)
        metadata = read_gguf(space.ready / _WEIGHTS)
        text = tokenizer_of(metadata)
        if text is not None:
            (space.ready / _TOKENIZER).write_text(text, "utf-8")
        else:
            original = _find_tokenizer(sources, card.source or SourceCard(repository=remote.repository), options)
            sources.hub.fetch(original, space.place, space.ready / _TOKENIZER, report)
        _write_weights_folder(space, name, card, describe_gguf(space.ready / _WEIGHTS, metadata), sources.say)
        folder = sources.folders.publish(name, space)
    return load_model(folder)


def _write_weights_folder(
    space: Workspace,
    name: str,
    card: ModelCard,
    file: RkllmFile,
    say: Callable[[str], None],
    longest: int | None = None,
) -> None:
    """Check the tokenizer of a GGUF file in ``space``, and write script and card of the emulated runtime for it."""
    check_tokenizer(space.ready / _TOKENIZER, card.template, file, say)
    script = weights_script(_WEIGHTS, file.context_tokens or card.context_tokens, TEMPLATES[card.template])
    (space.ready / _SCRIPT).write_text(script, "utf-8")
    changes = {"name": name, "file": _SCRIPT, "tokenizer": _TOKENIZER, "source": None, "published": None, "cpu": None}
    _write_card(space, card.model_copy(update={**changes, "emulated": True}), file, longest)


def _checked_repository(repository: str) -> str:
    """Return the repository's name, or raise a UsageError if it is no ``OWNER/NAME``."""
    try:
        if repository.startswith("."):
            raise UsageError(f"{repository!r} is not a valid model name; for a file of yours use 'models add'")
        return SourceCard.model_validate({"repository": repository}).repository or ""
    except ValidationError:
        raise UsageError(f"{repository!r} is no repository; write OWNER/NAME[:FILE]") from None


def pull(sources: ModelSources, options: Pull, report: Report) -> ModelFolder:
    """Download a model's .rkllm file, tokenizer and, if it sees, its vision encoder into the user's folder.

    Raises:
        RuntimeUnusableError: the model is not available, does not fit, or fails verification.
        UsageError: the chat template for a model of that name is unknown.
    """
    options = options.resolve(sources)
    sources.folders.folder(options.name)
    card, there = _card_to_pull(sources, options)
    if there is not None and not there.missing and (there.encoder is None or there.encoder.is_file()):
        sources.say(f"{options.name} is here already: {there.folder}")
        return there
    source = _source(card, options)
    sources.check_platform(name_hints(source.file or "").platform or source.platform, any_platform=options.any_platform)
    repository, file = source.repository or "", source.file
    if file is None:
        file = _only(source, sources.hub.names(repository, source.revision), repository)
        sources.check_platform(name_hints(file).platform, any_platform=False)
    weights = sources.hub.find(RemoteFile(repository, file, source.revision, source.sha256))
    tokenizer = _find_tokenizer(sources, source, options)
    if there is None:
        card = card.model_copy(update={"file": Path(weights.remote.name).name, "tokenizer": "tokenizer.json"})
    encoder: FoundFile | None = None
    encoder_name = source.encoder_file
    if card.encoder is not None and encoder_name is None:
        names = [name for name in sources.hub.names(repository, source.revision) if name.endswith(".rknn")]
        fitting = [name for name in names if name_hints(name).platform in {None, source.platform}]
        encoder_name = fitting[0] if len(fitting) == 1 else None
        if encoder_name is None:
            content = f"{len(fitting)} vision encoders" if fitting else "no vision encoder"
            sources.say(
                f"{repository} has {content} for the {source.platform}, so the model will not see (docs/pictures.md)"
            )
    if card.encoder is not None and encoder_name is not None:
        encoder = sources.hub.find(RemoteFile(repository, encoder_name, source.revision))
    downloaded = {
        "file": weights.remote.name,
        "revision": weights.commit or source.revision,
        "encoder_file": encoder.remote.name if encoder is not None else None,
    }
    card = card.model_copy(update={"source": source.model_copy(update=downloaded)})
    files = [(weights, card.file), (tokenizer, card.tokenizer)]
    if encoder is not None and card.encoder is not None:
        files.append((encoder, card.encoder))
    elif card.encoder is not None:
        card = card.model_copy(update={"encoder": None})
    with sources.folders.workspace(options.name) as space:
        sources.folders.check_room(sum(_outstanding(source_file, space) for source_file, _ in files))
        for source_file, name in files:
            sources.hub.fetch(source_file, space.place, space.ready / Path(name).name, report)
        header = read_rkllm_file(space.ready / Path(card.file).name)
        sources.check_platform(header.platform, any_platform=options.any_platform)
        if card.encoder is not None:
            eyes = read_rknn_file(space.ready / Path(card.encoder).name)
            sources.check_platform(eyes.platform, any_platform=options.any_platform)
            check_pair(eyes, header)
        check_tokenizer(space.ready / Path(card.tokenizer).name, card.template, header, sources.say)
        _write_card(space, card, header)
        folder = sources.folders.publish(options.name, space)
    return load_model(folder)


def _card_to_pull(sources: ModelSources, options: Pull) -> tuple[ModelCard, ModelFolder | None]:
    """Return the card to download for, and the user's existing folder of that name."""
    models = sources.models()
    folder = next((folder for folder in models if folder.folder.name == options.name), None)
    if folder is not None:
        user_folder = folder if folder.folder.parent == sources.folders.root.absolute() else None
        if folder.card.emulated:
            raise UsageError(f"{options.name!r} is a script for the emulated runtime and comes with rkllm-mcp; use it")
        directories = [directory.absolute() for directory in sources.directories]
        root = sources.folders.root.absolute()
        before = directories[: directories.index(root)] if root in directories else []
        # A folder of models that is searched earlier hides one of the same name in the user's own.
        if user_folder is None and folder.folder.parent in before:
            raise UsageError(f"{folder.folder} has precedence over {sources.folders.root}; put the files there by hand")
        return folder.card, user_folder
    if options.repository is None or options.file is None:
        # load_model raises the error with the known names.
        load_model(options.name, sources.directories)
    like = match_model([options.file or "", options.name], None, [folder.card for folder in models])
    if like is None:
        raise UsageError(
            f"the chat template of {options.name!r} is unknown; fetch the file yourself and use "
            "'rkllm-mcp models add PATH --template NAME'"
        )
    sources.say(f"{options.name} uses the chat template of {like.card.name}")
    changes = {"name": options.name, "description": ""}
    other = {} if like.by == "model" else {"published": None, "source": None}
    return like.card.model_copy(update=changes | other), None


def _source(card: ModelCard, options: Pull) -> SourceCard:
    source = card.source or SourceCard()
    if options.repository is not None or options.file is not None:
        # Checksum and revision of the catalogue's file do not apply to another file.
        platform = name_hints(options.file or "").platform or source.platform
        other = {"revision": None, "sha256": None, "encoder_file": None, "platform": platform}
        changes = {"repository": options.repository or source.repository, "file": options.file or source.file}
        try:
            source = SourceCard.model_validate({**source.model_dump(), **other, **changes})
        except ValidationError:
            raise UsageError("--repository is OWNER/NAME, and --file the path of a file in it") from None
    if source.repository is None:
        raise ModelDownloadError(
            f"No published .rkllm file of {options.name!r} is known.", how_to_convert(options.name, source)
        )
    return source


def _find_tokenizer(sources: ModelSources, source: SourceCard, options: Pull) -> FoundFile:
    """Find the tokenizer: the original model's, or in the .rkllm file's repository, first if the user names one."""
    repository_file = RemoteFile(source.repository or "", source.tokenizer_file, source.revision)
    if source.tokenizer_repository is None:
        return sources.hub.find(repository_file)
    original = RemoteFile(source.tokenizer_repository, source.tokenizer_file, source.tokenizer_revision)
    first, second = (repository_file, original) if options.repository else (original, repository_file)
    try:
        return sources.hub.find(first)
    except ModelDownloadError as trouble:
        try:
            return sources.hub.find(second)
        except ModelDownloadError:
            raise trouble from None


def _only(source: SourceCard, names: Sequence[str], repository: str) -> str:
    """Return the file for the platform; of several the plain w8a8 one, which is the fastest and the one measured."""
    files = [name for name in names if name.endswith(".rkllm") and "lora" not in name.lower()]
    fitting = [name for name in files if name_hints(name).platform in {None, source.platform}]
    plain = [name for name in fitting if name_hints(name).data_type == "w8a8"]
    for candidates in (fitting, plain):
        if len(candidates) == 1:
            return candidates[0]
    content = f"{len(files)} .rkllm files: {', '.join(files[:_SHOWN_FILES])}" if files else "no .rkllm file"
    advice = "Name one with --file." if files else "Name another with --repository."
    raise ModelDownloadError(f"{repository} has {content}.", advice)


def _outstanding(source_file: FoundFile, space: Workspace) -> int:
    if source_file.cached is not None or source_file.size is None:
        return 0
    part = source_file.part(space.place)
    return max(0, source_file.size - (part.stat().st_size if part.exists() else 0))


def _write_card(space: Workspace, card: ModelCard, file: RkllmFile, longest: int | None = None) -> None:
    """Write the card with what the file states; ``longest`` is the context window where it states none."""
    # A longer window costs memory; [model] can request the whole of it.
    context = min(card.context_tokens, file.context_tokens or longest or card.context_tokens)
    cache = file.cache_bytes_per_token or card.cache_bytes_per_token
    card = card.model_copy(update={"context_tokens": context, "cache_bytes_per_token": cache})
    (space.ready / CARD_NAME).write_text(card_text(card), "utf-8")


# Prefix of a repository from which to download the tokenizer.
HUB_PREFIX = "hf:"
# Of the names of models that this machine's CPU computes: the same model may be there for the NPU.
CPU_SUFFIX = "-cpu"
_TOKENIZER = "tokenizer.json"
_WEIGHTS = "model.gguf"  # of a folder for the CPU, and the script next to it
_SCRIPT = "model.rkllm"
_MOST_NAMESAKES = 100
_UNNAMELY = re.compile(r"[^a-z0-9.]+")
# Parts of a file name that describe the conversion, not the model.
_CONVERSION = re.compile(
    r"[-_. ](?:rk\d{4}s?|rv1126b|w\d+a\d+|g\d+|fp16|opt|hybrid|ratio|rkllm|v?1\.\d+\.\d+\w*|ctx\d*k?|\d+k)"
    r"(?![a-z0-9]).*$",
    re.IGNORECASE,
)


class AddQuestions(Protocol):
    """Source of answers to questions; raises a UsageError that names the option if no answer is possible."""

    def choose(self, question: str, option: str, choices: Sequence[str] = ()) -> str:
        """Return an answer, one of the choices if any are given."""
        ...

    def confirm(self, question: str, option: str) -> bool:
        """Return True for yes."""
        ...


@dataclass(frozen=True)
class Addition:
    """A file to add, and the user's options."""

    path: Path  # the .rkllm file, or a GGUF file for the CPU
    name: str | None = None  # name of the new model
    tokenizer: str | None = None  # a ``tokenizer.json``, or ``hf:OWNER/NAME`` to download it
    template: str | None = None  # chat template
    encoder: str | None = None  # the vision encoder, a .rknn file; the only one next to the .rkllm file if None
    copy: bool = False  # copy instead of linking
    sure: bool = False  # accept guesses without asking
    any_platform: bool = False  # accept a file for another chip


def add(sources: ModelSources, options: Addition, asker: AddQuestions, report: Report) -> ModelFolder:
    """Create a model folder from a local file.

    Raises:
        RuntimeUnusableError: the file or its tokenizer is invalid, or not for this board.
        UsageError: a value is missing and cannot be asked for, or the name is taken.
    """
    path = options.path.expanduser().absolute()
    metadata = read_gguf(path) if is_gguf(path) else None
    file = read_rkllm_file(path) if metadata is None else describe_gguf(path, metadata)
    hints = name_hints(file.path.name)
    platform = file.platform or hints.platform
    sources.check_platform(platform, any_platform=options.any_platform)
    names = [name for name in (file.name, file.path.stem, file.path.parent.name) if name]
    like = match_model(names, file.architecture, [folder.card for folder in sources.models()])
    card = _card(options, asker, file, like)
    encoder = None if metadata is not None else _encoder(sources, options, file)
    name = options.name
    if not name:
        # The entry's name if the file is that model, else one from the file name; numbered if taken.
        name = like.card.name if like is not None and like.by == "model" else _plain_name(file.path.stem)
        name += "" if metadata is None else CPU_SUFFIX
        numbered = [name, *(f"{name}-{number}" for number in range(2, _MOST_NAMESAKES))]
        name = next((candidate for candidate in numbered if not sources.folders.has(candidate)), name)
    if sources.folders.folder(name).exists():
        raise UsageError(f"the model {name!r} exists already; choose another --name, or remove it first")
    toolkit = file.toolkit or hints.toolkit
    facts = [
        file.name or file.architecture or file.path.name,
        *([f"for {platform}"] if platform else []),
        *([hints.data_type] if hints.data_type else []),
        *([f"{file.npu_cores} NPU cores"] if file.npu_cores else []),
        *([f"toolkit {toolkit}"] if toolkit else []),
        *([f"up to {file.context_tokens} tokens"] if file.context_tokens else []),
        *([f"like {like.card.name} by its {'name' if like.by != 'architecture' else like.by}"] if like else []),
    ]
    sources.say(", ".join(facts))
    if encoder is not None:
        sources.say(_encoder_description(encoder, card))
    text = tokenizer_of(metadata) if metadata is not None and options.tokenizer is None else None
    tokenizer_source = text or _tokenizer(sources, options, asker, file, like)
    with sources.folders.workspace(name) as space:
        sources.folders.check_room(file.size_bytes if options.copy else 0)
        tokenizer = space.ready / _TOKENIZER
        if isinstance(tokenizer_source, RemoteFile):
            sources.hub.fetch(sources.hub.find(tokenizer_source), space.place, tokenizer, report)
        elif isinstance(tokenizer_source, Path):
            place_file(tokenizer_source, tokenizer, copy=True)
        else:
            tokenizer.write_text(tokenizer_source, "utf-8")
        if metadata is not None:
            place_file(file.path, space.ready / _WEIGHTS, copy=options.copy)
            _write_weights_folder(space, name, card, file, sources.say, hints.context_tokens)
        else:
            check_tokenizer(tokenizer, card.template, file, sources.say)
            model = file.path.name
            place_file(file.path, space.ready / model, copy=options.copy)
            if encoder is not None:
                place_file(encoder.path, space.ready / encoder.path.name, copy=options.copy)
            source = SourceCard.model_validate({"platform": platform}) if platform else None
            changes = {"name": name, "file": model, "tokenizer": _TOKENIZER, "source": source, "cpu": None}
            changes["encoder"] = encoder.path.name if encoder is not None else None
            _write_card(space, card.model_copy(update=changes), file, hints.context_tokens)
        folder = sources.folders.publish(name, space)
    return load_model(folder)


def _encoder(sources: ModelSources, options: Addition, model: RkllmFile) -> RknnFile | None:
    """Return the vision encoder that goes with a model: the named one, or the only one next to it."""
    if options.encoder is not None:
        path = Path(options.encoder).expanduser().absolute()
        if not path.is_file():
            raise UsageError(f"{path} does not exist; --encoder names a .rknn file")
    else:
        encoders = sorted(model.path.parent.glob("*.rknn"))
        if len(encoders) > 1:
            names = ", ".join(path.name for path in encoders)
            raise UsageError(f"several encoders are beside {model.path.name}: {names}; name one with --encoder")
        if not encoders:
            return None
        path = encoders[0]
    encoder = read_rknn_file(path)
    sources.check_platform(encoder.platform, any_platform=options.any_platform)
    check_pair(encoder, model)
    return encoder


def _encoder_description(encoder: RknnFile, card: ModelCard) -> str:
    """Return the known properties of an encoder in one line, and what is missing next to it."""
    facts = [
        f"encoder {encoder.path.name}",
        *([f"for {encoder.platform}"] if encoder.platform else []),
        *([f"toolkit {encoder.toolkit}"] if encoder.toolkit else []),
        *([f"{encoder.input_size[1]} x {encoder.input_size[0]} pixels"] if encoder.input_size else []),
        *([f"{encoder.tokens} tokens a picture"] if encoder.tokens else []),
        *(["its width could not be compared"] if not encoder.width else []),
    ]
    has_tags = card.picture_tags or TEMPLATES[card.template].picture_tags
    return ", ".join(facts) + ("" if has_tags else "; write picture_tags into its model.toml (docs/pictures.md)")


def _card(options: Addition, asker: AddQuestions, file: RkllmFile, like: ModelMatch | None) -> ModelCard:
    """Return the chat settings for the new folder."""
    template = options.template
    if template is not None:
        if template not in TEMPLATES:
            raise UsageError(f"unknown template {template!r}; the templates are {', '.join(TEMPLATES)}")
    elif like is None:
        what = f" (architecture {file.architecture})" if file.architecture else ""
        question = f"Which chat template does the model in {file.path.name}{what} use?"
        template = asker.choose(question, "--template", sorted(TEMPLATES))
    elif like.by == "architecture" and not options.sure:
        by = f"By its architecture, {file.architecture}"
        question = f"{by}, the model uses the chat template {like.card.template}. Correct?"
        if not asker.confirm(question, "--template, or --yes"):
            template, like = asker.choose("Which chat template does it use?", "--template", sorted(TEMPLATES)), None
    if like is None or template not in (None, like.card.template):
        return ModelCard(name="unknown", template=template or "")
    # An entry's measurements apply to the same model only.
    other = {} if like.by == "model" else {"description": "", "published": None}
    return like.card.model_copy(update=other)


def _plain_name(stem: str) -> str:
    """Return a folder name from a file or repository name, without the parts about the conversion."""
    return _UNNAMELY.sub("-", (_CONVERSION.sub("", stem) or stem).lower()).strip("-.") or "model"


def _tokenizer(
    sources: ModelSources, options: Addition, asker: AddQuestions, file: RkllmFile, like: ModelMatch | None
) -> Path | RemoteFile:
    """Return the location of the model's tokenizer."""
    if options.tokenizer is not None:
        return _named_tokenizer(options.tokenizer)
    neighbour = file.path.parent / _TOKENIZER
    if neighbour.is_file():
        return neighbour
    if like is not None and like.by == "model":
        same = next((folder.tokenizer for folder in sources.models() if folder.card == like.card), None)
        if same is not None and same.is_file():
            return same
    source = like.card.source if like is not None and like.by == "model" else None
    advice = "the original model's tokenizer.json, as a path or hf:OWNER/NAME"
    if source is not None and source.tokenizer_repository is not None:
        advice += f", here hf:{source.tokenizer_repository}"
    return _named_tokenizer(asker.choose(f"Where is the tokenizer ({advice})?", "--tokenizer"))


def _named_tokenizer(argument: str) -> Path | RemoteFile:
    if argument.startswith(HUB_PREFIX):
        return RemoteFile(argument.removeprefix(HUB_PREFIX), _TOKENIZER)
    path = Path(argument).expanduser()
    path = path / _TOKENIZER if path.is_dir() else path
    if not path.is_file():
        raise UsageError(f"{path} does not exist; --tokenizer names a tokenizer.json, or hf:OWNER/NAME to fetch it")
    return path
