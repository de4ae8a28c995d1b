"""Configuration and model card become the settings of each part.

One function per part: what the engine, the model's form and the servers are told. The parts do not know the
configuration, and the configuration does not know them; they meet here.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TypeVar

from rkllm_mcp.config import Config
from rkllm_mcp.config.models import CARD_NAME, ModelFolder, choose_model
from rkllm_mcp.config.servers import RemoteServer, ServerConfig, StdioServer
from rkllm_mcp.errors import ModelNotFoundError
from rkllm_mcp.generation import Sampling
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.prompt.template import ChatTemplate
from rkllm_mcp.prompt.vocabulary import Vocabulary
from rkllm_mcp.providers.rkllm import ModelForm
from rkllm_mcp.runtime.engine import EngineSettings
from rkllm_mcp.toolcalls.detector import ThinkingMode
from rkllm_mcp.tools.servers import ServerSpec

EMULATOR = "emulator"
# Without their token these would be spelled out letter by letter, and the model would not see a turn begin.
_CONTROL = re.compile(r"<[^<>\s]+>")
_PLACEHOLDER = re.compile(r"\$\{[^}]*\}")
_Value = TypeVar("_Value")


def chosen_model(config: Config) -> ModelFolder:
    """The model that the configuration means; the emulated runtime can only load scripts.

    Raises:
        ModelNotFoundError: there is no such model, or it lacks a file.
    """
    return choose_model(config.model, emulated=config.runtime.library == EMULATOR)


def engine_settings(config: Config, model: ModelFolder) -> EngineSettings:
    """What the engine is told.

    Raises:
        LibraryNotFoundError: there is no runtime, or the emulated one cannot be built here.
    """
    section = config.runtime
    library = EMULATOR if section.library == "auto" and model.card.emulated else section.library
    return EngineSettings(
        library=library,
        abi=section.abi,
        model_path=model.file,
        context_tokens=config.model.context_tokens or model.card.context_tokens,
        max_new_tokens=config.model.max_new_tokens,
        sampling=sampling_of(config, model),
        skip_special_token=model.card.skip_special_token,
        cpus=section.cpus,
        log_level=section.log_level,
        start_timeout_s=section.start_timeout_s,
        worker=section.worker,
    )


def sampling_of(config: Config, model: ModelFolder) -> Sampling:
    """How the next token is chosen: the owner's wish, else the model's, else the runtime's default."""
    wish, card, default = config.model, model.card.sampling, Sampling()
    temperature = _first(wish.temperature, card.temperature, default.temperature)
    top_k = _first(wish.top_k, card.top_k, default.top_k)
    return Sampling(
        temperature=temperature,
        # Temperature 0 means the likeliest token; what the runtime does with a zero is not known.
        top_k=1 if temperature == 0 else top_k,
        top_p=_first(wish.top_p, card.top_p, default.top_p),
        repeat_penalty=_first(wish.repeat_penalty, card.repeat_penalty, default.repeat_penalty),
        frequency_penalty=_first(card.frequency_penalty, default.frequency_penalty),
        presence_penalty=_first(card.presence_penalty, default.presence_penalty),
    )


def model_form(config: Config, model: ModelFolder) -> ModelForm:
    """How the model is spoken to and read.

    Raises:
        ModelNotFoundError: its tokenizer cannot be read, or lacks a token that its template needs.
    """
    card = model.card
    base = TEMPLATES[card.template]
    form = base.tool_form.listed_as(config.agent.tool_listing)
    template = replace(base, stop=(*base.stop, *card.stop), tool_form=form)
    thinking = config.model.thinking or card.thinking
    return ModelForm(
        vocabulary=_vocabulary(model, template),
        template=template,
        syntaxes=card.syntaxes or template.tool_form.syntaxes,
        thinking=_thinking_mode(thinking, template),
        think=thinking != "off",
        sampling=sampling_of(config, model),
        max_new_tokens=config.model.max_new_tokens,
    )


def server_specs(config: Config) -> list[ServerSpec]:
    """The servers to connect, those that are switched off left out."""
    return [_server_spec(server) for server in config.active_servers]


def _first(*values: _Value | None) -> _Value:
    """The first value that is given; the last one always is."""
    return next(value for value in values if value is not None)


def _vocabulary(model: ModelFolder, template: ChatTemplate) -> Vocabulary:
    try:
        vocabulary = Vocabulary(model.tokenizer.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelNotFoundError(
            f"The tokenizer {model.tokenizer} cannot be read: {error}.",
            "Put the tokenizer.json of the original model there.",
        ) from None
    beginning = template.head_form.beginning
    turns = (beginning, template.system_opening, template.user_opening, template.assistant_opening)
    needed = (template.end_of_turn, *_CONTROL.findall("".join(turns)))
    missing = next((name for name in needed if name and vocabulary.control_id(name) is None), None)
    if missing is not None:
        raise ModelNotFoundError(
            f"The tokenizer {model.tokenizer} has no token {missing}, which the model's template needs.",
            f"Choose another template in {model.folder / CARD_NAME}, or the tokenizer that belongs to the model.",
        )
    return vocabulary


def _thinking_mode(setting: str, template: ChatTemplate) -> ThinkingMode:
    """How thinking is recognised: a family that can think may do so unasked."""
    if setting != "off" and template.open_thinking:
        return "open"
    can_think = bool(template.no_thinking or template.open_thinking)
    return "auto" if can_think or setting != "off" else "off"


def _server_spec(server: ServerConfig) -> ServerSpec:
    common = ServerSpec(
        name=server.name,
        transport=server.transport,
        timeout_s=server.timeout_s,
        connect_timeout_s=server.connect_timeout_s,
        allowed_tools=server.allowed_tools,
        excluded_tools=server.excluded_tools,
        system_instruction=server.system_instruction or "",
        response_instruction=server.response_instruction or "",
        auto_context_tool=server.auto_context_tool or "",
    )
    if isinstance(server, StdioServer):
        cwd = str(server.cwd) if server.cwd is not None else None
        return replace(
            common,
            command=server.command,
            args=server.args,
            env=server.env,
            inherit_env=server.inherit_env,
            cwd=cwd,
        )
    if isinstance(server, RemoteServer):
        # A header that waits for a request's token is never sent unfilled.
        fixed = {name: text for name, text in server.headers_template.items() if not _PLACEHOLDER.search(text)}
        return replace(common, url=server.url, headers=fixed)
    return common
