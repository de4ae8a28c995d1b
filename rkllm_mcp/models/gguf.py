"""GGUF files: metadata, the tokenizer in them, and the script that lets the emulated runtime compute them.

The file's layout is llama.cpp's: magic, version, counts, then key and value pairs. A byte-level BPE tokenizer becomes a
``tokenizer.json``; its pre-tokenizer is named in the file, and only those compared with llama.cpp's ids are known here.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from rkllm_mcp.errors import ModelFileError
from rkllm_mcp.models.rkllm_header import RkllmFile, describe_metadata
from rkllm_mcp.prompt.template import ChatTemplate

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_FORMATS: Mapping[int, str] = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
# A vocabulary has under 300,000 tokens and as many merges.
_MOST_VALUES = 1 << 22
# Kinds of tokens: control tokens, and others that are never cut.
_CONTROL, _USER_DEFINED = 3, 4
_UNUSED = 5

_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
# By the name in the file: normalizer, and what text is cut up by before it is encoded.
_PRE_TOKENIZERS: Mapping[str, tuple[dict[str, Any] | None, Sequence[dict[str, Any]]]] = {
    "qwen2": (
        {"type": "NFC"},
        [
            {"type": "Split", "pattern": {"Regex": _QWEN2}, "behavior": "Isolated", "invert": False},
            {**_BYTE_LEVEL, "use_regex": False},
        ],
    ),
    "smollm": (None, [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL]),
}


def is_gguf(path: Path) -> bool:
    """Return True if a file begins as a GGUF file."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def read_gguf(path: Path) -> Mapping[str, Any]:
    """Return the metadata of a GGUF file; a ModelFileError if it is cut off or has an unknown layout."""
    try:
        with path.open("rb") as file:
            return _Reader(file, path.stat().st_size).metadata()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelFileError(f"{path} cannot be read ({reason}).", "Copy or download it again.") from None


@dataclass(eq=False)
class _Reader:
    """Reader of the pairs; a ValueError for what no GGUF file has."""

    file: BinaryIO
    remaining: int  # bytes

    def metadata(self) -> dict[str, Any]:
        if self._bytes(4) != _MAGIC:
            raise ValueError("it is no GGUF file")
        version = self._number("I")
        if version not in _VERSIONS:
            raise ValueError(f"its version {version} of GGUF is not known")
        self._number("Q")  # tensors
        return {self._value(_STRING): self._value(self._number("I")) for _ in range(self._number("Q", _MOST_VALUES))}

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._bytes(self._number("Q")).decode("utf-8", "replace")
        if kind == _ARRAY:
            kind, count = self._number("I"), self._number("Q", _MOST_VALUES)
            if kind in _FORMATS:
                form = f"<{count}{_FORMATS[kind]}"
                return list(struct.unpack(form, self._bytes(struct.calcsize(form))))
            return [self._value(kind) for _ in range(count)]
        if kind not in _FORMATS:
            raise ValueError(f"it has a value of the unknown kind {kind}")
        return self._number(_FORMATS[kind])

    def _number(self, form: str, most: float = math.inf) -> Any:
        """Return a number, which ``most`` bounds if it counts values."""
        number = struct.unpack(f"<{form}", self._bytes(struct.calcsize(f"<{form}")))[0]
        if number > most:
            raise ValueError(f"it lists {number} values")
        return number

    def _bytes(self, count: int) -> bytes:
        if count > self.remaining:
            raise ValueError("it is cut off")
        self.remaining -= count
        return self.file.read(count)


def describe_gguf(path: Path, metadata: Mapping[str, Any]) -> RkllmFile:
    """Return what a GGUF file says of its model, in the terms of a .rkllm file."""
    plain = {key: value for key, value in metadata.items() if isinstance(value, (str, int, float))}
    length = plain.get(f"{plain.get('general.architecture', '')}.context_length")
    context = length if isinstance(length, int) and length > 0 else None
    return replace(describe_metadata(path, path.stat().st_size, plain), context_tokens=context, platform=None)


def tokenizer_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the tokenizer as the text of a ``tokenizer.json``; None for a kind that is not known here."""
    steps = _PRE_TOKENIZERS.get(str(metadata.get("tokenizer.ggml.pre")))
    tokens, merges = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.merges")
    kinds = metadata.get("tokenizer.ggml.token_type")
    if steps is None or not tokens or not merges or not kinds or metadata.get("tokenizer.ggml.model") != "gpt2":
        return None
    normalizer, pre_tokenizers = steps
    # Some files list a control token twice; llama.cpp takes the first.
    ids: dict[str, int] = {}
    for index, token in enumerate(tokens):
        ids.setdefault(token, index)
    tokens_with_kind = [(token, index, kinds[index]) for token, index in ids.items() if index < len(kinds)]
    added = [
        {
            "id": index,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == _CONTROL,
        }
        for token, index, kind in tokens_with_kind
        if kind in {_CONTROL, _USER_DEFINED}
    ]
    # Added tokens are in the vocabulary too: those that do not are numbered anew by the tokenizers library.
    vocab = {token: index for token, index, kind in tokens_with_kind if kind != _UNUSED}
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": added,
            "normalizer": normalizer,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers},
            "decoder": _BYTE_LEVEL,
            "model": {"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": False},
        },
        ensure_ascii=False,
    )


def weights_script(weights: str, context_tokens: int, template: ChatTemplate) -> str:
    """Return the emulated runtime's script for a GGUF file next to it (native/README.md has the lines)."""
    is_chatml = template.end_of_turn == "<|im_end|>"
    return "\n".join(
        [
            "RKLLM-EMULATOR 1",
            "vocabulary tokenizer.json",
            f"weights {weights}",
            *([f"eos {template.end_of_turn}"] if template.end_of_turn else []),
            f"context {context_tokens}",
            *(["template chatml"] if is_chatml else []),
            "fault abort-in-prefill",
            "",
        ]
    )
