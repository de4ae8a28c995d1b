"""Configuration to engine settings, the lines shown while an application starts, and settings without effect.

``run`` imports this module before its first event; ``model_form`` has what needs the libraries of the prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rkllm_mcp.catalogue import read_catalogue, status_line
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import ConfigError, RuntimeUnusableError
from rkllm_mcp.events import Event
from rkllm_mcp.generation import ImageTags
from rkllm_mcp.models.cards import ModelCard, ModelFolder, choose_model, list_models
from rkllm_mcp.runtime.library import AUTOMATIC, EMULATOR
from rkllm_mcp.sampling import Sampling, SamplingByPurpose, overrides_of
from rkllm_mcp.store.limits import StoreLimits

if TYPE_CHECKING:
    from rkllm_mcp.runtime.settings import EngineSettings
    from rkllm_mcp.text import Language


def store_limits(config: Config) -> tuple[StoreLimits, set[str]]:
    """Return the limits of the stored data, and the names of those that the configuration gives."""
    names = StoreLimits().as_settings()
    sections = {"service": config.service, "security": config.security}
    values: dict[str, Any] = {}
    configured: set[str] = set()
    for name in names:
        section, _, field = name.partition(".")
        values[name] = getattr(sections[section], field)
        if field in sections[section].model_fields_set:
            configured.add(name)
    return StoreLimits.of_settings(values), configured


def chosen_model(config: Config, *, check_names: bool = True) -> ModelFolder:
    """Return the configured model; the emulated runtime can only load scripts. See ``models.cards.choose_model``."""
    return choose_model(config.model, emulated=config.runtime.library == EMULATOR, check_names=check_names)


def model_files(config: Config, directories: Sequence[Path]) -> tuple[Path, ...]:
    """Return the folders of the model on the NPU and of its file, which may be a link; empty if it is not found."""
    try:
        model = choose_model(config.model, directories, emulated=config.runtime.library == EMULATOR)
    except (RuntimeUnusableError, ConfigError):
        return ()
    return tuple(dict.fromkeys((model.folder.absolute(), model.file.resolve().parent)))


def engine_settings(config: Config, model: ModelFolder) -> EngineSettings:
    """Return the settings of the engine; a LibraryNotFoundError if no runtime exists."""
    from rkllm_mcp.runtime.profile import find_profile
    from rkllm_mcp.runtime.settings import EngineSettings

    section = config.runtime
    library = EMULATOR if section.library == AUTOMATIC and model.card.emulated else section.library
    return EngineSettings(
        library=library,
        abi=section.abi,
        model_path=model.file,
        context_tokens=config.model.context_tokens or model.card.context_tokens,
        max_new_tokens=config.model.max_new_tokens,
        sampling=loaded_sampling(config, model),
        skip_special_token=model.card.skip_special_token,
        # Runtimes before 1.3.0 take the tags when the model is loaded.
        image_tags=picture_tags(model.card) if model.encoder is not None else None,
        cpus=section.cpus,
        log_level=section.log_level,
        start_timeout_s=section.start_timeout_s,
        check_memory=section.check_memory,
        cache_bytes_per_token=model.card.cache_bytes_per_token,
        profile=find_profile(str(library), model.file),
    )


def picture_tags(card: ModelCard) -> ImageTags | None:
    """Return the texts around and in place of a picture's tokens; None for a family that does not see."""
    from rkllm_mcp.prompt.families import TEMPLATES

    tags = card.picture_tags or TEMPLATES[card.template].picture_tags
    return ImageTags(tags[0], tags[1], tags[2]) if tags else None


def sampling_by_purpose(config: Config, model: ModelFolder) -> SamplingByPurpose:
    """Return the sampling of each purpose: the owner's settings, else the model's, else the runtime's defaults."""
    card, of_person = model.card.sampling, overrides_of(config.model)
    for_all = overrides_of(card)
    answer, thinking, tools = (
        of_person.on(overrides_of(part).on(for_all)).over(Sampling()) for part in (card, card.thinking, card.tools)
    )
    return SamplingByPurpose(answer, thinking, tools)


def loaded_sampling(config: Config, model: ModelFolder) -> Sampling:
    """Return the sampling with which the model is loaded, for runtimes before 1.3, which have one for all runs.

    A call that is wrong costs more than an answer that is plain, but a model that thinks with a low temperature
    repeats itself.
    """
    sampling = sampling_by_purpose(config, model)
    return sampling.tools if (config.model.thinking or model.card.thinking) == "off" else sampling.thinking


def sees(config: Config) -> bool:
    """Return True if the configured model takes pictures; False also if no model exists."""
    if config.provider.kind != "rkllm":
        return False
    try:
        return chosen_model(config, check_names=False).encoder is not None
    except (ConfigError, RuntimeUnusableError):
        return False


def seeing_model(*, emulated: bool | None = None) -> str:
    """Return the name of an installed model that sees; empty if none exists. ``emulated`` as for ``blindness``."""
    here = (folder for folder in list_models() if emulated in (None, folder.card.emulated))
    return next((folder.name for folder in here if not folder.missing and folder.encoder is not None), "")


def blindness(name: str, *, emulated: bool | None = None) -> str:
    """Return the sentence about pictures that a model does not see; it names an installed model that does.

    ``emulated`` restricts those to scripts of the emulated runtime, or to real models.
    """
    seeing = seeing_model(emulated=emulated)
    advice = f"'{seeing}' does: --model {seeing}" if seeing else "'rkllm-mcp models list' shows which do"
    return f"{name} does not see pictures; {advice}"


def starting_lines(model: str | None, servers: int, language: Language = "en") -> tuple[Event, ...]:
    """Return a line about the model that loads, None for a remote service, and one about the servers that connect."""
    lines = [] if model is None else [status_line("loading", name=model)]
    lines += [status_line("joining" if servers > 1 else "joining_one", count=servers)] if servers else []
    return tuple(map(read_catalogue(language).told, lines))


def unset_rights(config: Config) -> list[str]:
    """Return a line for every tenant without ``may_approve``, whose default will change."""
    fact = "may approve its own calls, because may_approve is not set"
    advice = "the next release refuses them: set may_approve to true or false"
    names = [tenant.name for tenant in config.tenants if tenant.may_approve is None]
    return [f"tenant '{name}' {fact}; {advice}" for name in names]


def unsupported_settings(config: Config) -> Iterator[str]:
    """Yield one line for every setting that has no effect, by itself or together with others."""
    yield from config.origin.remarks
    provider = config.provider
    if provider.kind != "rkllm" and config.agent.embedding_model is not None:
        yield f"agent.embedding_model has no effect: with provider.kind = '{provider.kind}' no model runs on the NPU"
    if provider.fallback is not None and not provider.fallback.when:
        yield "provider.fallback has no effect while its 'when' is empty; list the occasions on which it takes over"
