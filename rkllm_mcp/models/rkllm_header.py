"""The contents of a ``.rkllm`` file's header and of its name."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from rkllm_mcp.errors import ModelFileError

MAGIC = bytes.fromhex("daeeb336")
PLATFORMS = ("RK3588", "RK3576", "RK3562", "RV1126B")

# How a script for the emulated runtime begins (native/README.md), and where its width stands.
_SCRIPT = b"RKLLM-EMULATOR "
_SCRIPT_HEAD_BYTES = 1 << 16
_CONVERT = "Convert the original model on a PC: rkllm-mcp models convert."
_AGAIN = "Copy or download it again."
# First bytes of other file types -> description and remedy.
_OTHERS: tuple[tuple[bytes, str, str], ...] = (
    (_SCRIPT, "is a script for the emulated runtime", "Use it as it is: --model PATH."),
    (
        b"GGUF",
        "is a GGUF file, which llama.cpp runs",
        "Convert it on a PC: rkllm-mcp models convert.",
    ),
    (b"RKNN", "is an .rknn file, for vision models", "Name the .rkllm file in the same folder."),
    (b"version https://git-lfs", "is a pointer of Git LFS in place of the file", "Fetch the file: git lfs pull."),
    (b"PK\x03\x04", "is a ZIP archive", "Unpack it and name the .rkllm file in it."),
    (b"\x1f\x8b", "is a gzip archive", "Unpack it and name the .rkllm file in it."),
    (b"<", "is a web page, as a download through the wrong link leaves it", "Download the file itself."),
    (b"{", "is JSON", "Name the .rkllm file."),
)

# Sizes of GGUF's value types by their number; 8 is a string, 9 an array.
_FORMATS: Mapping[int, str] = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9

_VERSION_OF_GGUF = 3
# A model has some dozens of pairs and some hundreds of tensors; tokens are the longest array, under 300,000.
_MOST_PAIRS = 4096
_MOST_TENSORS = 65536
_MOST_STRINGS = 1 << 20
_LONGEST_KEY = 1024
_LONGEST_DIMENSIONS = 8
# No file is that large; a number like that means an unknown layout.
_MAX_PLAUSIBLE = 1 << 40
# Length of the mask; it repeats after that, and no key is longer.
_MASK_BYTES = 256
# More than the number of known keys; only a malicious file has more.
_MOST_MASKS = 64
_SAMPLED_STRINGS = 100

# Keys of .rkllm and GGUF files; {arch} is the architecture, which the first pair names.
_KEYS = (
    "general.architecture", "general.name", "general.alignment", "general.type", "general.file_type",
    "general.quantization_version", "general.basename", "general.finetune", "general.size_label", "general.license",
    "rkllm.platform", "rkllm.core_num", "rkllm.version", "rkllm.max_context", "rkllm.m_align",
    "rkllm.chat_template.pre", "rkllm.chat_template.system", "rkllm.chat_template.post",
    "{arch}.context_length", "{arch}.embedding_length", "{arch}.block_count", "{arch}.feed_forward_length",
    "{arch}.rope.dimension_count", "{arch}.rope.freq_base", "{arch}.attention.head_count",
    "{arch}.attention.head_count_kv", "{arch}.attention.layer_norm_epsilon", "{arch}.vocab_size",
    "{arch}.attention.layer_norm_rms_epsilon", "{arch}.attention.key_length", "{arch}.attention.value_length",
    "tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.scores",
    "tokenizer.ggml.token_type", "tokenizer.ggml.merges", "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.eos_token_id", "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.padding_token_id",
    "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token", "tokenizer.huggingface.json",
    "tokenizer.chat_template",
)  # fmt: skip

_VERSION = re.compile(r"\d+\.\d+\.\d+\w*")


@dataclass(frozen=True)
class RkllmFile:
    """Metadata of a .rkllm file; None for missing or unreadable values."""

    path: Path
    size_bytes: int
    platform: str | None = None  # target SoC, ``RK3588``
    npu_cores: int | None = None  # NPU cores in use
    toolkit: str | None = None  # version of rkllm-toolkit
    context_tokens: int | None = None  # maximum context
    architecture: str | None = None  # ``qwen2``, ``llama``, …
    name: str | None = None  # original model; truncated beyond the known mask
    eos_token_id: int | None = None  # token that ends an answer
    # some tokens of its vocabulary by id; empty if unreadable
    token_samples: Mapping[int, str] = field(default_factory=dict[int, str])
    cache_bytes_per_token: int | None = None  # size of a token's keys and values in the KV cache
    width: int | None = None  # numbers of a token's embedding


def read_rkllm_file(path: Path) -> RkllmFile:
    """Read the metadata of a .rkllm file; a ModelFileError if it is unreadable, cut off, of another kind or too old."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            _check_kind(path, file.read(64), size)
            file.seek(len(MAGIC))
            header = _Header(file, size)
            pairs = header.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelFileError(f"{path} cannot be read ({reason}).", "Name a readable .rkllm or GGUF file.") from None
    if header.is_cut:
        raise ModelFileError(f"{path} is cut off: it is shorter than its header requires.", _AGAIN)
    mask = _known_mask(pairs)
    plain: dict[str, str | int | float] = {}
    for key, value in pairs:
        if isinstance(value, Masked):
            plain[_text(key, mask)] = _text(value, mask)
        elif isinstance(value, (int, float)):
            plain[_text(key, mask)] = value
    # Samples of the vocabulary within the known part of the mask, if they are text.
    stored = next((value for key, value in pairs if _text(key, mask) == "tokenizer.ggml.tokens"), None)
    tokens = stored if isinstance(stored, dict) else {}
    try:
        samples = {
            index: _xor(token.head, mask).decode("utf-8")
            for index, token in tokens.items()
            if token.length <= len(mask)
        }
    except UnicodeDecodeError:
        samples = {}
    return replace(describe_metadata(path, size, plain), token_samples=samples)


def embedding_width(path: Path) -> int | None:
    """Return the numbers of a token's embedding of a .rkllm file or of a script; None if it does not say."""
    try:
        with path.open("rb") as file:
            head = file.read(_SCRIPT_HEAD_BYTES)
        if not head.startswith(_SCRIPT):
            return read_rkllm_file(path).width
    except (OSError, ModelFileError):
        return None
    words = (line.split() for line in head.splitlines())
    return next((int(line[1]) for line in words if line[:1] == [b"hidden"] and line[1].isdigit()), None)


def _check_kind(path: Path, head: bytes, size: int) -> None:
    if head.startswith(MAGIC):
        if size < 24:
            raise ModelFileError(f"{path} is cut off: it has {size} bytes.", _AGAIN)
        return
    if not head.strip(b"\0"):
        problem = "is empty" if not size else "begins with zeros, as a download that was broken off leaves it"
        raise ModelFileError(f"{path} {problem}.", _AGAIN)
    for beginning, what, remedy in _OTHERS:
        if head.startswith(beginning):
            raise ModelFileError(f"{path} {what}.", remedy)
    if head[8:10] == b'{"':
        raise ModelFileError(f"{path} is a safetensors file, an original model.", _CONVERT)
    start = head[:4].hex(" ").upper()
    raise ModelFileError(
        f"{path} begins with {start}, and a .rkllm file of toolkit 1.2 or newer with {MAGIC.hex(' ').upper()}; "
        "it is another kind of file, or was made by an older toolkit.",
        _CONVERT,
    )


@dataclass(frozen=True)
class Masked:
    """A string as stored in the file: its first bytes and its length."""

    head: bytes
    length: int


# A string, some strings of an array by index, or a number: of an array of integers the first one.
Value = Masked | dict[int, Masked] | int | float
_Pair = tuple[Masked, "Value | None"]


class _TruncatedError(Exception):
    """The header extends beyond the end of the file."""


class _UnknownLayoutError(Exception):
    """The header has an unknown layout; the values read so far are valid."""


class _Header:
    """Parser of the header after the magic."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self._remaining = size - len(MAGIC)
        self._strings = 0
        self.is_cut = False

    def read(self) -> list[_Pair]:
        """Return the pairs up to the first unknown layout; sets ``is_cut``."""
        pairs: list[_Pair] = []
        try:
            version, tensors, count = self._unpack("<I"), self._unpack("<Q"), self._unpack("<Q")
            if version != _VERSION_OF_GGUF or count > _MOST_PAIRS or tensors > _MOST_TENSORS:
                return pairs
            for _ in range(int(count)):
                key = self._string(_LONGEST_KEY)
                pairs.append((key, self._value(int(self._unpack("<I")))))
            # The last tensor starts inside the file; its length depends on undocumented types.
            for _ in range(int(tensors)):
                self._string(_LONGEST_KEY)
                dimensions = int(self._unpack("<I"))
                if dimensions > _LONGEST_DIMENSIONS:
                    return pairs
                self._skip(8 * dimensions + 4)
                self._check(int(self._unpack("<Q")), self._size - 1)
        except _TruncatedError:
            # If the first key cannot be decoded, the layout is unknown and the file must not be called truncated.
            self.is_cut = not pairs or _first_mask(pairs) is not None
        except _UnknownLayoutError:
            pass
        return pairs

    def _value(self, kind: int) -> Value | None:
        if kind == _STRING:
            return self._string(self._size)
        if kind != _ARRAY:
            if kind not in _FORMATS:
                raise _UnknownLayoutError
            return self._unpack(_FORMATS[kind])
        item, count = int(self._unpack("<I")), int(self._unpack("<Q"))
        if item == _STRING:
            self._strings += count
            if self._strings > _MOST_STRINGS:
                raise _UnknownLayoutError
            step = max(1, count // _SAMPLED_STRINGS)
            strings = ((index, self._string(self._size)) for index in range(count))
            return {index: string for index, string in strings if not index % step}
        if item not in _FORMATS:
            raise _UnknownLayoutError
        form = _FORMATS[item]
        first = int(self._unpack(form)) if count and form[1] in "bBhHiIqQ" else None
        self._skip(struct.calcsize(form) * (count if first is None else count - 1))
        return first

    def _string(self, longest: int) -> Masked:
        length = int(self._unpack("<Q"))
        self._check(length, self._remaining)
        if length > longest:
            raise _UnknownLayoutError
        head = self._read_bytes(min(length, _MASK_BYTES))
        self._skip(length - len(head))
        return Masked(head, length)

    def _unpack(self, form: str) -> int | float:
        number: int | float = struct.unpack(form, self._read_bytes(struct.calcsize(form)))[0]
        return number

    def _read_bytes(self, count: int) -> bytes:
        data = self._file.read(count)
        if len(data) < count:
            raise _TruncatedError
        self._remaining -= count
        return data

    def _check(self, count: int, most: int) -> None:
        if count > _MAX_PLAUSIBLE:
            raise _UnknownLayoutError
        if count > most:
            raise _TruncatedError

    def _skip(self, count: int) -> None:
        self._check(count, self._remaining)
        if count:
            self._file.seek(count, 1)
        self._remaining -= count


def _known_mask(pairs: list[_Pair]) -> bytes:
    """Return the known part of the mask, empty if the layout is unknown.

    It is extended by the bytes on which most of the longer keys agree. An unknown key can have the length and start of
    a known one; a single key against several others is ignored.
    """
    mask = _first_mask(pairs)
    if mask is None:
        return b""
    architecture = _text(pairs[0][1], mask)
    names: dict[int, list[bytes]] = {}  # the known keys by length
    for name in _KEYS:
        plain = name.replace("{arch}", architecture).encode()
        names.setdefault(len(plain), []).append(plain)
    while True:
        masks: set[bytes] = set()
        for key, _ in pairs:
            begin = _xor(key.head, mask)
            fitting = [name for name in names.get(key.length, ()) if name.startswith(begin[: len(name)])]
            if len(fitting) == 1 and len(fitting[0]) > len(mask):
                masks.add(_xor(key.head, fitting[0]))
        longer = sorted(masks, key=len)[:_MOST_MASKS]
        votes = [sum(not any(_xor(candidate, other)) for other in longer) for candidate in longer]
        if not longer or (len(longer) > 1 and max(votes) * 2 <= len(longer)):
            return mask
        mask = longer[votes.index(max(votes))]


def _first_mask(pairs: list[_Pair]) -> bytes | None:
    """Return the mask bytes from the first key; None if it is not the key with which every file starts."""
    first, begin = pairs[0][0] if pairs else None, _KEYS[0].encode()
    if first is None or first.length != len(begin) or _xor(first.head, _xor(MAGIC, b"GGUF")) != begin[:4]:
        return None
    return _xor(first.head, begin)


def _text(value: Value | None, mask: bytes) -> str:
    """Decode a string within the known part of the mask, without unprintable characters."""
    if not isinstance(value, Masked):
        return ""
    text = _xor(value.head, mask).decode("utf-8", "ignore")
    return "".join(char for char in text if char.isprintable())


def _xor(first: bytes, second: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(first, second, strict=False))


# Architectures of which only some layers have a KV cache.
_WITHOUT_FULL_CACHE = re.compile(r"rwkv|mamba|qwen3?_?\.?(?:5|next)|lfm")
# Of an architecture, what the size of its cache follows from.
_CACHE_FIGURES = (
    "block_count", "attention.head_count", "attention.head_count_kv", "embedding_length", "attention.key_length",
    "attention.value_length",
)  # fmt: skip
_CACHE_VALUE_BYTES = 2  # keys and values are 16-bit floats


def describe_metadata(path: Path, size: int, plain: Mapping[str, str | int | float]) -> RkllmFile:
    """Return the metadata of a file from its pairs of keys and values."""
    platform = str(plain.get("rkllm.platform", "")).upper()
    toolkit = _VERSION.search(str(plain.get("rkllm.version", "")))
    architecture = str(plain.get("general.architecture", ""))
    figures = (_number(plain.get(f"{architecture}.{name}"), 1, 1 << 20) for name in _CACHE_FIGURES)
    layers, heads, shared, width, key, value = figures
    shared, usual = shared or heads, width // heads if width and heads else None
    key, value = key or usual, value or usual
    cache_bytes = None
    if layers and shared and key and value and not _WITHOUT_FULL_CACHE.search(architecture):
        cache_bytes = layers * shared * (key + value) * _CACHE_VALUE_BYTES
    return RkllmFile(
        path,
        size,
        platform=platform if platform in PLATFORMS else None,
        npu_cores=_number(plain.get("rkllm.core_num"), 1, 16),
        toolkit=toolkit.group() if toolkit else None,
        context_tokens=_number(plain.get("rkllm.max_context"), 1, 1 << 20),
        architecture=architecture or None,
        name=str(plain.get("general.name", "")) or None,
        eos_token_id=_number(plain.get("tokenizer.ggml.eos_token_id"), 0, 1 << 24),
        cache_bytes_per_token=cache_bytes,
        width=width,
    )


def _number(value: object, least: int, most: int) -> int | None:
    return value if isinstance(value, int) and least <= value <= most else None


_PLATFORM_IN_NAME = re.compile(r"(?<![a-z0-9])(rk3588|rk3576|rk3562|rv1126b)s?(?![a-z0-9])")
_DATA_TYPE = re.compile(r"(?<![a-z0-9])((?:w8a8|w4a16|w4a8)(?:[-_]g\d+)?|fp16)(?![a-z0-9])")
_CONTEXT = re.compile(r"(?<![a-z0-9.])(?:ctx[-_]?|(?=\d{1,2}k))(\d+)(k?)(?![a-z0-9])")
_TOOLKIT = re.compile(r"(?<![a-z0-9.])v?(1\.\d+\.\d+(?:b\d+)?)(?![a-z0-9.])")


@dataclass(frozen=True)
class FileNameHints:
    """Hints from a file's name."""

    platform: str | None = None  # SoC in Rockchip's spelling
    data_type: str | None = None  # ``w8a8``, ``w8a8_g128``, …
    context_tokens: int | None = None  # context window
    toolkit: str | None = None  # version of rkllm-toolkit


def name_hints(name: str) -> FileNameHints:
    """Return the hints in a file's name."""
    spaced = name.lower().replace("_", "-").removesuffix(".rkllm")
    patterns = (_PLATFORM_IN_NAME, _DATA_TYPE, _CONTEXT, _TOOLKIT)
    platform, data_type, context, toolkit = (pattern.search(spaced) for pattern in patterns)
    return FileNameHints(
        platform.group(1).upper() if platform else None,
        data_type.group(1).replace("-", "_") if data_type else None,
        int(context.group(1)) * (1024 if context.group(2) else 1) if context else None,
        toolkit.group(1) if toolkit else None,
    )
