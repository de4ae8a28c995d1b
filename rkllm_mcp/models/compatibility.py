"""The fit of a model to this board: platform, memory, tokenizer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rkllm_mcp.board.machine import Machine
from rkllm_mcp.board.npu import soc_of
from rkllm_mcp.board.system import MEMORY_MARGIN, RUNTIME_BYTES, gib, memory_bytes
from rkllm_mcp.errors import ModelFileError
from rkllm_mcp.models.cards import ModelCard
from rkllm_mcp.models.rkllm_header import RkllmFile
from rkllm_mcp.models.rknn_header import RknnFile
from rkllm_mcp.prompt.conversation import stop_ids
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.prompt.tokenizer import ModelTokenizer

Verdict = Literal["yes", "tight", "no", "unknown"]

# The same silicon in another package; its files are made for the RK3588 (device trees name both).
_SAME_CHIP = {"RK3588S": "RK3588"}
# Memory for the system and the assistant.
_SYSTEM_BYTES = 512 * 2**20
_OWN_ENCODER = "Take the encoder that was exported with this model: 'models add MODEL.rkllm --encoder FILE'."
# Number of tokens to compare; fewer are not evidence.
_LEAST_SAMPLES = 16


@dataclass(frozen=True)
class Fitness:
    """Result of a compatibility check."""

    verdict: Verdict  # ``tight`` if other programs must be stopped first
    reason: str = ""  # a few words


def needed_bytes(file_bytes: int, context_tokens: int = 0, cache_bytes_per_token: int | None = None) -> int:
    """Estimate the memory of a model: its file, the KV cache of a full context window, and the runtime's buffers.

    If the size of a token's cache is unknown, cache and buffers count as a share of the file.
    """
    if cache_bytes_per_token is None or not file_bytes:
        return int(file_bytes * MEMORY_MARGIN)
    return file_bytes + context_tokens * cache_bytes_per_token + RUNTIME_BYTES


def check_pair(encoder: RknnFile, model: RkllmFile) -> None:
    """Raise a ModelFileError if a vision encoder does not fit a language model, by what both files state."""
    if encoder.platform and model.platform and encoder.platform != model.platform:
        problem = f"{encoder.path.name} is for the {encoder.platform}, and {model.path.name} for the {model.platform}."
        raise ModelFileError(problem, _OWN_ENCODER)
    check_width(encoder.path, encoder.width, model.path, model.width)


def check_width(encoder: Path, given: int | None, model: Path, taken: int | None) -> None:
    """Raise a ModelFileError if an encoder gives another number of values for a token than the model takes."""
    if given and taken and given != taken:
        raise ModelFileError(
            f"{encoder.name} gives {given} numbers for a token, and {model.name} takes {taken}: it is the encoder of "
            "another model.",
            _OWN_ENCODER,
        )


def platform_of(machine: Machine) -> str | None:
    """Return the platform of this machine's NPU, as files name it; None without a supported NPU."""
    soc = soc_of(machine)
    return _SAME_CHIP.get(soc.name, soc.name) if soc else None


def fitness(machine: Machine, platform: str | None, needed: int, *, any_machine: bool = False) -> Fitness:
    """Compare the requirements of a model with this machine.

    ``platform`` is the SoC of the model's file, None if unknown; ``needed`` the memory at run time in bytes, 0 if
    unknown; with ``any_machine`` it runs everywhere, as a script for the emulated runtime.
    """
    if any_machine:
        return Fitness("yes")
    here = platform_of(machine)
    if here is None:
        return Fitness("no", "no NPU here")
    if platform is not None and platform != here:
        return Fitness("no", f"for {platform}")
    available, total = memory_bytes(machine, "MemAvailable"), memory_bytes(machine, "MemTotal")
    if not needed or available is None:
        return Fitness("unknown", "memory not known")
    if needed <= available:
        return Fitness("yes")
    short = f"needs {gib(needed)}, {gib(available)} available"
    return Fitness("tight" if needed + _SYSTEM_BYTES <= (total or 0) else "no", short)


# A size (1.5b, 350m, e2b), a number or a word.
_WORD = re.compile(r"e?\d+(?:\.\d+)*[bm](?![a-z0-9])|[a-z]+|\d+(?:\.\d+)*")
_SIZE = re.compile(r"e?\d+(?:\.\d+)*[bm]")
# Architectures whose name differs from the family name of the models. "llama" is missing on purpose: several families,
# each with its own template, are built on it.
_ARCHITECTURES: Mapping[str, str] = {"qwen2": "qwen2.5", "phi3": "phi-3.5", "gemma3_text": "gemma3"}


@dataclass(frozen=True)
class ModelMatch:
    """The matching entry of the catalogue."""

    card: ModelCard  # the entry
    # matched by: the ``model`` itself, its ``family``, or only the ``architecture``
    by: Literal["model", "family", "architecture"]


def match_model(names: Sequence[str], architecture: str | None, entries: Sequence[ModelCard]) -> ModelMatch | None:
    """Find the matching entry: by names, the most reliable first, or by the architecture in the file's header."""
    words = [(card, _WORD.findall(card.name.lower())) for card in entries if not card.emulated]
    for name in names:
        if (card := _longest(name, words)) is not None:
            return ModelMatch(card, "model")
    families = [(card, [word for word in name_words if not _SIZE.fullmatch(word)]) for card, name_words in words]
    for name in names:
        if (card := _longest(name, families)) is not None:
            return ModelMatch(card, "family")
    family = _ARCHITECTURES.get(architecture or "", architecture or "")
    if (card := _longest(family, families)) is not None:
        return ModelMatch(card, "architecture")
    return None


def _longest(name: str, candidates: Sequence[tuple[ModelCard, Sequence[str]]]) -> ModelCard | None:
    """Return the candidate with the most words, all of which occur in the name in this order."""
    spelled = _WORD.findall(name.lower())
    fitting: list[tuple[int, ModelCard]] = []
    for card, name_words in candidates:
        # Each word is looked for after the one before.
        remaining = iter(spelled)
        if name_words and all(word in remaining for word in name_words):
            fitting.append((len(name_words), card))
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


def check_tokenizer(path: Path, template_name: str, file: RkllmFile | None, say: Callable[[str], None]) -> None:
    """Check that the tokenizer can be the one of a model's file, and report doubts with ``say``.

    Raises:
        ModelFileError: the file is not a tokenizer, has another vocabulary, or lacks a token that the template needs.
    """
    template, eos_token_id = TEMPLATES[template_name], file.eos_token_id if file else None
    try:
        vocabulary = ModelTokenizer(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"The tokenizer cannot be read: {error}.", "Take the tokenizer.json of the original model."
        ) from None
    if template.end_of_turn and vocabulary.controls.get(template.end_of_turn) is None:
        raise ModelFileError(
            f"The tokenizer has no token {template.end_of_turn}, which the template {template_name!r} needs.",
            "Take the model's own tokenizer, or another template.",
        )
    samples: Mapping[int, str] = file.token_samples if file else {}
    other = [index for index, text in samples.items() if vocabulary.piece(index) != text]
    if file is not None and len(samples) >= _LEAST_SAMPLES and len(other) * 2 > len(samples):
        index = other[0]
        raise ModelFileError(
            f"The tokenizer is another model's: token {index} is {samples[index]!r} in {file.path.name} and "
            f"{vocabulary.piece(index)!r} in the tokenizer.",
            f"Take the tokenizer.json of the original model{f', {file.name}' if file.name else ''}.",
        )
    if eos_token_id is not None and eos_token_id not in stop_ids(vocabulary, template):
        piece = vocabulary.decode([eos_token_id])
        here = (
            f"is {json.dumps(piece, ensure_ascii=False)} in this tokenizer" if piece else "this tokenizer does not have"
        )
        say(
            f"According to the file, token {eos_token_id} ends an answer, which {here}; "
            "if answers do not end, it is not the model's own tokenizer."
        )
