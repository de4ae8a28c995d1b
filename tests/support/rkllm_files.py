"""Files in the documented layout of .rkllm files, of our own making: no weights, a header that can be read.

It is written from the description alone and shares no code with the reader: GGUF version 3 with the magic and every
string XORed with one mask of 256 bytes, which begins anew at each string. The mask's first four bytes are those that
the documented magic implies; the others are arbitrary.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

MASK = bytes([0x9D, 0xA9, 0xE6, 0x70]) + random.Random(7).randbytes(252)

QWEN: Mapping[str, object] = {
    "general.architecture": "qwen2",
    "general.name": "Qwen2.5-1.5B-Instruct",
    "general.alignment": 32,
    "rkllm.platform": "RK3588",
    "rkllm.core_num": 3,
    "rkllm.version": "1.2.3",
    "rkllm.max_context": 4096,
    "qwen2.attention.layer_norm_rms_epsilon": 1e-06,
    # Too few to be compared with a tokenizer.
    "tokenizer.ggml.tokens": ["!", '"', "#"] * 5,
    "tokenizer.ggml.eos_token_id": 151645,
}


def masked(text: str, mask: bytes = MASK) -> bytes:
    return bytes(char ^ mask[index % 256] for index, char in enumerate(text.encode()))


def string(text: str, mask: bytes = MASK) -> bytes:
    return struct.pack("<Q", len(text.encode())) + masked(text, mask)


def value(item: object, mask: bytes = MASK) -> bytes:
    """A typed value: its type's number, then itself."""
    if isinstance(item, bool):
        return struct.pack("<I?", 7, item)
    if isinstance(item, int):
        return struct.pack("<II", 4, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item, str):
        return struct.pack("<I", 8) + string(item, mask)
    assert isinstance(item, list)
    inner = [value(entry, mask) for entry in cast("list[object]", item)]
    kind = inner[0][:4] if inner else struct.pack("<I", 4)
    return struct.pack("<I", 9) + kind + struct.pack("<Q", len(inner)) + b"".join(entry[4:] for entry in inner)


@dataclass(frozen=True)
class Tensor:
    name: str
    offset: int
    dimensions: tuple[int, ...] = (16, 16)


def container(
    pairs: Mapping[str, object] = QWEN,
    *,
    mask: bytes = MASK,
    tensors: Sequence[Tensor] = (Tensor("token_embd.weight", 0), Tensor("output.weight", 64)),
    weights: bytes = bytes(range(128)),
) -> bytes:
    """A whole file."""
    head = masked("GGUF", mask) + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    body = b"".join(string(key, mask) + value(item, mask) for key, item in pairs.items())
    infos = b"".join(
        string(tensor.name, mask)
        + struct.pack(f"<I{len(tensor.dimensions)}Q", len(tensor.dimensions), *tensor.dimensions)
        + struct.pack("<IQ", 0, tensor.offset)
        for tensor in tensors
    )
    header = head + body + infos
    return header + bytes(-len(header) % 32) + weights


def write_rkllm(path: Path, pairs: Mapping[str, object] | None = None) -> Path:
    """A file for tests that only need one; ``pairs`` are put over those of a Qwen2.5."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(container({**QWEN, **(pairs or {})}))
    return path
