"""Model folders and their ``model.toml``: cards, the catalogue, and the choice of a model."""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import Field, ValidationError

import rkllm_mcp
from rkllm_base.folders import user_folder
from rkllm_mcp.config.editing import toml_key, toml_value
from rkllm_mcp.config.loading import add_line, read_file
from rkllm_mcp.config.sampling import with_sampling
from rkllm_mcp.config.section import Names, Positive, Section
from rkllm_mcp.config.sections import ModelSection
from rkllm_mcp.config.validation_errors import explain
from rkllm_mcp.errors import ConfigError, ModelNotFoundError, did_you_mean

Platform = Literal["RK3588", "RK3576", "RK3562", "RV1126B"]
"""SoC that a .rkllm file is converted for; an RK3588S takes files for the RK3588."""

_Repository = Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
# Each path component starts with a letter or a digit, so none leads upwards: the name becomes a path on this machine.
_FileName = Annotated[str, Field(pattern=r"^\w[^/]*(/\w[^/]*)*$")]
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class SourceCard(Section):
    """``[source]``: download location for ``rkllm-mcp models pull``, on Hugging Face or a mirror of it."""

    repository: _Repository | None = None
    """The repository with the .rkllm file, ``owner/name``; absent if no publisher is known."""
    file: _FileName | None = None
    """The .rkllm file's name in the repository."""
    revision: str | None = None
    """A branch, tag or commit of the repository; ``main`` when not given."""
    sha256: _Sha256 | None = None
    """The .rkllm file's SHA-256."""
    encoder_file: _FileName | None = None
    """The vision encoder's name in the repository; its only .rknn file for the platform when not given."""
    tokenizer_repository: _Repository | None = None
    """The repository with the tokenizer, usually the original model's; ``repository`` when not given."""
    tokenizer_file: _FileName = "tokenizer.json"
    """The tokenizer's name in the repository."""
    tokenizer_revision: str | None = None
    """A branch, tag or commit of the tokenizer's repository."""
    platform: Platform = "RK3588"
    """The SoC the file is converted for."""


class CpuCard(Section):
    """``[cpu]``: the model as a GGUF file, which ``rkllm-mcp models pull --cpu`` fetches for a processor."""

    repository: _Repository
    """The repository with the file, ``owner/name``."""
    file: _FileName
    """The file's name in the repository."""
    size_mb: Positive
    """Size of the file in MB."""
    licence: str
    """Licence of the weights."""
    good_for: str
    """Use of the model, in a few words."""


class PublishedCard(Section):
    """``[published]``: measurements published by others, each on a board at full clocks."""

    decode_tokens_per_second: Annotated[float, Field(gt=0)] | None = None
    """Decoding speed."""
    ttft_ms: Annotated[float, Field(gt=0)] | None = None
    """Time to the first token in milliseconds."""
    memory_mb: Positive | None = None
    """Memory at run time in MB."""
    source: str = ""
    """Publisher, runtime and prompt of the measurement."""


class ToolCallCard(Section):
    """``[tool_calls]``: shares of right tool calls that others measured, in percent."""

    single_percent: Annotated[float, Field(ge=0, le=100)] | None = None
    """Calls of one turn, in constructed tasks (BFCL: non-live AST)."""
    live_percent: Annotated[float, Field(ge=0, le=100)] | None = None
    """Calls of one turn, in requests of users (BFCL: live)."""
    several_turns_percent: Annotated[float, Field(ge=0, le=100)] | None = None
    """Tasks over several turns (BFCL: multi-turn)."""
    source: str = ""
    """Benchmark, its version, and the model that was measured."""


CARD_NAME = "model.toml"
# Number of models named in a message; the catalogue has some dozens.
_MOST_NAMES = 8
# First line of the emulator's scripts (native/README.md), which distinguishes them from real weights.
EMULATED_HEADER = b"RKLLM-EMULATOR "
# The lines before the rules of a script, which may name weights.
_SCRIPT_HEAD_BYTES = 1 << 16


class SamplingValues(with_sampling(Section)):
    """Sampling parameters; None leaves the value of ``[sampling]``, and there the runtime's default."""


class SamplingCard(SamplingValues):
    """``[sampling]``: of answers, and where it differs, of thinking and of rounds that may call a tool."""

    thinking: SamplingValues = SamplingValues()
    """Of answers with thinking."""
    tools: SamplingValues = SamplingValues()
    """Of rounds that may call a tool."""
    source: str = ""
    """Publisher's document with the values for answers and thinking."""
    read_in: Literal["", "original", "copy", "quoted"] = ""
    """Where that document was read: in the publisher's repository, in a copy, or in what others quote from it."""


class ModelCard(Section):
    """A ``model.toml``."""

    name: Annotated[str, Field(min_length=1)]
    """The model's name, the same as its folder's."""
    description: str = ""
    """One line for 'rkllm-mcp models list'."""
    task: Literal["chat", "embed", "rerank"] = "chat"
    """What the model is for: answers, vectors, or the order of passages."""
    template: str = "chatml"
    """Chat template of the model: a name of rkllm_mcp.prompt.template."""
    context_tokens: Positive = 4096
    """The context window the file was converted for."""
    file: str = "model.rkllm"
    """The .rkllm file; relative to the folder."""
    tokenizer: str = "tokenizer.json"
    """The model's tokenizer.json; relative to the folder."""
    encoder: str | None = None
    """The vision encoder, a .rknn file; relative to the folder. The folder's only one when not given."""
    picture_tags: Annotated[Names, Field(min_length=3, max_length=3)] | None = None
    """Texts before, behind and in place of a picture's tokens; the template's own when not given."""
    syntaxes: Names | None = None
    """How the model may write tool calls: names of rkllm_mcp.toolcalls.formats; the template's own when not given."""
    thinking: Literal["off", "auto", "open"] = "off"
    """off: answer at once; auto: think where the model does so by itself; open: always think."""
    stop: Names = ()
    """Further tokens that end an answer, in addition to those of the template."""
    sampling: SamplingCard = SamplingCard()
    """Sampling parameters, as the publisher recommends them."""
    answers_from: Literal["conversation", "facts", "sentences"] = "conversation"
    """Answer after results from the whole conversation, where more calls may follow, or at once from the question and
    the results alone, for models that repeat every call; sentences: also give a sentence of the program's own tools as
    the answer, without the model.
    """
    tools: Literal["listed", "with_question"] = "listed"
    """Where the model reads its tools: listed at the beginning of the prompt, or with each question those that it may
    need, where the host begins the call of one that it most probably needs; for models that choose badly.
    """
    first_call: Literal["model", "search"] | None = None
    """Without effect; the key above decides what begins a call."""
    held: bool | None = None
    """Hold JSON answers and tool calls to their schema while they are written, after 'rkllm-mcp install held'; by
    default all models but scripts of the emulated runtime, which cannot go on with another text.
    """
    skip_special_token: bool = False
    """True if the runtime omits control tokens from the text."""
    prompt_cache: bool | None = None
    """True if prefilled prompts can be saved; by default derived from the template: false for recurrent and hybrid
    models.
    """
    cache_bytes_per_token: Positive | None = None
    """Size of a token's keys and values in the KV cache; used where the file does not say it."""
    emulated: bool = False
    """True when the file is a script for the emulated runtime."""
    source: SourceCard | None = None
    """Download location of the files."""
    cpu: CpuCard | None = None
    """The same model as a GGUF file, for a processor."""
    published: PublishedCard | None = None
    """Published measurements."""
    tool_calls: ToolCallCard | None = None
    """Published shares of right tool calls."""
    reported: Names = ()
    """What owners of boards reported of it, each with board and release; not measured here."""


# Templates of families whose state is not a list of tokens: they can neither save nor share a prefix (rknn-llm #517,
# #520).
_RECURRENT = frozenset({"lfm2", "lfm2.5", "qwen3.5", "rwkv7"})


@dataclass(frozen=True)
class ModelFolder:
    """A model found on this machine."""

    folder: Path
    card: ModelCard  # from ``model.toml``, or assumed for a file without a card
    file: Path  # the .rkllm file
    tokenizer: Path  # its tokenizer.json

    @property
    def name(self) -> str:
        """The model's name."""
        return self.card.name

    @property
    def encoder(self) -> Path | None:
        """Path of the vision encoder's file; None for a model that does not see."""
        if self.card.encoder is not None:
            return self.folder / Path(self.card.encoder).expanduser()
        files = sorted(self.folder.glob("*.rknn"))
        return files[0] if len(files) == 1 else None

    @property
    def keeps_prompts(self) -> bool:
        """True if the runtime can save and share the model's prefilled prompts."""
        return not self.is_recurrent if self.card.prompt_cache is None else self.card.prompt_cache

    @property
    def is_recurrent(self) -> bool:
        """True if its state is not a list of tokens, so that what was read last cannot be taken back."""
        return self.card.template in _RECURRENT

    @property
    def has_weights(self) -> bool:
        """True if the emulated runtime computes the answers from weights; a script plays them otherwise."""
        if not self.card.emulated:
            return False
        try:
            with self.file.open("rb") as file:
                lines = file.read(_SCRIPT_HEAD_BYTES).splitlines()
        except OSError:
            return False
        return any(line.split()[:1] == [b"weights"] for line in lines)

    @property
    def is_held(self) -> bool:
        """True if JSON answers and calls are held to their schema, where the extra ``held`` and the runtime let it."""
        return self.has_weights or not self.card.emulated if self.card.held is None else self.card.held

    @property
    def can_be_pulled(self) -> bool:
        """True if a repository with its .rkllm file is known."""
        return self.card.source is not None and self.card.source.repository is not None

    @property
    def missing(self) -> tuple[Path, ...]:
        """Return the required files that do not exist."""
        return tuple(path for path in (self.file, self.tokenizer) if not path.is_file())


# The last places of ``model_directories``, which come with rkllm-mcp.
CATALOGUES = 2


def user_root(env: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the user's models: ``$XDG_DATA_HOME/rkllm-mcp/models``."""
    return user_folder("data", env) / "models"


def model_directories(env: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Return the folders to search for models; the first one with a name is used."""
    configured = [Path(part).expanduser() for part in env.get("RKLLM_MCP_MODELS", "").split(":") if part]
    package = Path(rkllm_mcp.__file__).parent
    # A source tree has the catalogue at its root; an installed package contains it.
    return (*configured, user_root(env), package.parent / "models", package / "_models")


def is_catalogued(name: str) -> bool:
    """Return True if the catalogue that comes with this program has a model of this name."""
    return any((folder / name / CARD_NAME).is_file() for folder in model_directories({})[-2:])


def list_models(directories: Sequence[Path] | None = None) -> list[ModelFolder]:
    """Return every model with a card by name, also without weights here; a ConfigError if a card is invalid."""
    folders: dict[str, ModelFolder] = {}
    for directory in directories if directories is not None else model_directories():
        for card in sorted(directory.glob(f"*/{CARD_NAME}")):
            if card.parent.name not in folders:
                folders[card.parent.name] = _check(_read_folder(card.parent))
    return [folders[name] for name in sorted(folders)]


def load_model(
    name_or_path: str | Path, directories: Sequence[Path] | None = None, *, check_names: bool = True
) -> ModelFolder:
    """Return the model of a name or path, with all its files.

    ``name_or_path`` is a folder's name, a folder, or a .rkllm file with ``model.toml`` or ``tokenizer.json`` in the
    same folder. Names are searched for in ``directories``, by default ``model_directories()``. ``check_names`` compares
    the card's template and syntaxes with those that exist, for which both are imported.

    Raises:
        ModelNotFoundError: the model does not exist, or lacks a file.
        ConfigError: its ``model.toml`` is invalid.
    """
    folder = _find(name_or_path, model_directories() if directories is None else directories)
    if check_names:
        _check(folder)
    if folder.file in folder.missing:
        fetch = f"Fetch them with 'rkllm-mcp models pull {folder.name}'"
        is_own = folder.card.source is None
        remedy = fetch if folder.can_be_pulled or is_own else how_to_convert(folder.card.name, folder.card.source)
        raise ModelNotFoundError(
            f"The model {folder.name!r} has no weights here.",
            f"{remedy.rstrip('.')}, or put its .rkllm file at {folder.file}.",
        )
    if folder.missing:
        raise ModelNotFoundError(
            f"The model {folder.name!r} has no tokenizer.",
            f"Put the tokenizer.json of the original model at {folder.tokenizer}.",
        )
    return folder


def _find(name_or_path: str | Path, directories: Sequence[Path]) -> ModelFolder:
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or text.endswith(".rkllm") or text in {".", ".."}:
        path = Path(name_or_path).expanduser().absolute()
        if path.is_dir():
            if (path / CARD_NAME).is_file():
                return _read_folder(path)
            files = sorted(path.glob("*.rkllm"))
            if len(files) == 1:
                return _without_card(files[0])
            content = "several .rkllm files" if files else "neither a model.toml nor a .rkllm file"
            raise ModelNotFoundError(f"The folder {path} has {content}.", "Name the .rkllm file itself.")
        if not path.is_file():
            raise ModelNotFoundError(f"There is no {path}.", "Name a model folder or a .rkllm file.")
        if (path.parent / CARD_NAME).is_file():
            folder = _read_folder(path.parent)
            return ModelFolder(folder.folder, folder.card, path, folder.tokenizer)
        return _without_card(path)
    for directory in directories:
        if (directory / text / CARD_NAME).is_file():
            return _read_folder(directory / text)
    if Path(text, CARD_NAME).is_file():
        raise ModelNotFoundError(f"There is no model {text!r}.", f"For the folder of that name write ./{text}")
    folders = list_models(directories)
    names = [folder.name for folder in folders]
    close = difflib.get_close_matches(text, names, n=1)
    remedy = f"Did you mean {close[0]!r}? " if close else ""
    if not names:
        remedy = f"There are none in {', '.join(str(directory) for directory in directories)}."
    elif len(names) <= _MOST_NAMES:
        remedy += f"Known here: {', '.join(names)}."
    else:
        here = ", ".join(folder.name for folder in folders if not folder.missing) or "none"
        remedy += f"Here on this machine: {here}; 'rkllm-mcp models list' shows those that can be fetched."
    raise ModelNotFoundError(f"There is no model {text!r}.", remedy)


def choose_model(
    section: ModelSection,
    directories: Sequence[Path] | None = None,
    *,
    emulated: bool = False,
    check_names: bool = True,
) -> ModelFolder:
    """Return the configured model, or the only available one if none is configured.

    Without ``emulated`` a script for the emulated runtime is not taken, and with it nothing else is. ``check_names``
    and the errors are those of ``load_model``; a ModelNotFoundError also if none or several are available.
    """
    model = section.path or section.name
    if model is not None:
        return load_model(model, directories, check_names=check_names)
    here = [folder for folder in list_models(directories) if not folder.missing and folder.card.task == "chat"]
    candidates = [folder for folder in here if folder.card.emulated == emulated]
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise ModelNotFoundError("No model is configured: rkllm-mcp setup.", "Or name one with --model NAME or PATH.")
    names = ", ".join(folder.name for folder in candidates)
    raise ModelNotFoundError(f"There are several models: {names}.", "Choose one with --model NAME or name in [model].")


def _without_card(file: Path) -> ModelFolder:
    """Return a file without a card, with properties from its name and conservative defaults."""
    name = file.stem.lower().replace("_", "-")
    template = "qwen3" if "qwen3" in name else "qwen2.5" if "qwen2" in name else "chatml"
    is_script = False
    with suppress(OSError), file.open("rb") as opened:
        is_script = opened.read(len(EMULATED_HEADER)) == EMULATED_HEADER
    card = ModelCard(name=file.stem, template=template, emulated=is_script, file=file.name)
    return ModelFolder(file.parent, card, file, file.parent / card.tokenizer)


def _read_folder(folder: Path) -> ModelFolder:
    source, directory = folder / CARD_NAME, folder.absolute()
    try:
        status = source.stat()
        version = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
    except OSError:
        version = ()
    card = _read_card(source, version)
    return ModelFolder(
        directory, card, directory / Path(card.file).expanduser(), directory / Path(card.tokenizer).expanduser()
    )


# A service reads every card for each list of models, and for each request that names another model.
@functools.lru_cache(maxsize=256)
def _read_card(source: Path, version: tuple[int, ...]) -> ModelCard:
    del version  # a file that was changed is read again
    raw: dict[str, Any] = {"name": source.parent.name, **read_file(source)}
    try:
        return ModelCard.model_validate(raw)
    except ValidationError as error:
        raise add_line(explain(error, str(source), root=ModelCard), source) from None


def _check(model: ModelFolder) -> ModelFolder:
    """Return a model whose card names a template and syntaxes that exist."""
    from rkllm_mcp.prompt.families import TEMPLATES
    from rkllm_mcp.toolcalls.formats import SYNTAXES

    card, source = model.card, model.folder / CARD_NAME
    names: list[tuple[str, str, Mapping[str, Any]]] = [("template", card.template, TEMPLATES)]
    names += [("syntaxes", syntax, SYNTAXES) for syntax in card.syntaxes or ()]
    for key, name, table in names:
        if name not in table:
            allowed = f"allowed are {', '.join(table)}{did_you_mean(name, table)}"
            raise add_line(ConfigError(str(source), key, repr(name), allowed), source)
    return model


def how_to_convert(name: str, source: SourceCard | None) -> str:
    """Return the sentence for a model whose .rkllm file is not known to be published."""
    original = (source.tokenizer_repository if source else None) or "OWNER/NAME"
    return (
        f"On a PC: 'hf download {original} --local-dir {name} && rkllm-mcp models convert {name}'; or name another "
        "repository: 'rkllm-mcp models pull OWNER/NAME[:FILE]'."
    )


def card_text(card: ModelCard) -> str:
    """Return the card as TOML: plain keys first, then tables."""
    values = card.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    if card.source is not None:
        # Always written, because it determines where the file runs.
        values["source"] = {**values.get("source", {}), "platform": card.source.platform}
    return "\n".join([*_lines("", values), ""])


def _lines(path: str, table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if not isinstance(value, dict):
            yield f"{toml_key(key)} = {toml_value(value)}"
    for key, value in table.items():
        if isinstance(value, dict) and value:
            name = f"{path}.{toml_key(key)}" if path else toml_key(key)
            yield f"\n[{name}]"
            yield from _lines(name, cast("dict[str, Any]", value))
