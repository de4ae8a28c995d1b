"""Models in ONNX that are small enough to be written here: an embedder and a cross-encoder of a dozen words, ears and
voices that sherpa-onnx loads.

ONNX is protobuf, and these models need only a few of its messages, so they are written field by field: nobody has to
install a library that writes ONNX, or fetch a model.

Followed: onnx.proto3 of ONNX 1.16; the numbers are its field numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers, processors

# Words that mean the same have the same vector, which no search by words can know.
MEANINGS = (("sea", "ocean", "海"), ("mountain", "peak", "山"), ("river", "stream", "川"))
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = (*_SPECIAL, *(word for words in MEANINGS for word in words))
_FLOAT, _INT32, _INT64 = 1, 6, 7
# Sound of a voice for each letter or sign, samples; and the rate.
VOICE_STEP, VOICE_RATE = 256, 22_050


def write_embedder(
    folder: Path, *, turned: bool = False, file: str = "model.onnx", asks: str = "attention_mask"
) -> Path:
    """A model whose vector of a text is the mean of its words' meanings.

    Args:
        folder: made when it is not there.
        turned: other weights in a file of the same size.
        file: where the network is in it.
        asks: what the network takes in addition to tokens, and does not use.
    """
    table = _meanings(turned=turned)
    # The marks around a text cancel each other, and tell which of the two was taken where only one is.
    table[WORDS.index("[CLS]"), -1], table[WORDS.index("[SEP]"), -1] = 0.2, -0.2
    gather = _node("Gather", ["table", "input_ids"], ["last_hidden_state"])
    inputs = [_value(name, _INT64, ("texts", "tokens")) for name in ("input_ids", asks)]
    outputs = [_value("last_hidden_state", _FLOAT, ("texts", "tokens", table.shape[1]))]
    return _write(folder, file, _model([gather], [_tensor("table", table)], inputs, outputs))


def _meanings(*, turned: bool = False) -> NDArray[np.float32]:
    """Return a row for each word, in which only its meaning stands out."""
    table = np.full((len(WORDS), len(MEANINGS) + 1), 0.01, np.float32)
    for place, words in enumerate(MEANINGS):
        for word in words:
            table[WORDS.index(word), -1 - place if turned else place] = 1.0
    return table


def write_static_embedder(
    folder: Path, *, below: str = "0_StaticEmbedding", kind: str = "F32", matrices: int = 1
) -> Path:
    """The same as a static model: a matrix in a safetensors file."""
    table = _meanings().astype(np.float16 if kind == "F16" else np.float32)
    tensors = {
        f"embedding.weight{number or ''}": {"dtype": kind, "shape": table.shape, "data_offsets": [0, table.nbytes]}
        for number in range(matrices)
    }
    header = json.dumps({"__metadata__": {"format": "pt"}, **tensors}).encode()
    (folder / below).mkdir(parents=True, exist_ok=True)
    content = len(header).to_bytes(8, "little") + header + table.tobytes()
    (folder / below / "model.safetensors").write_bytes(content)
    _tokenizer().save(str(folder / below / "tokenizer.json"))
    return folder


def write_reranker(folder: Path) -> Path:
    """A cross-encoder for which a passage answers every question if it speaks of the sea."""
    weights = np.full((len(WORDS), 1), -1.0, np.float32)
    weights[WORDS.index("sea")] = 9.0
    nodes = [
        _node("Gather", ["weights", "input_ids"], ["words"]),
        # Only the passage counts: the second of the pair.
        _node("Cast", ["token_type_ids"], ["sides"], to=_FLOAT),
        _node("Unsqueeze", ["sides", "last"], ["columns"]),
        _node("Mul", ["words", "columns"], ["counted"]),
        _node("ReduceSum", ["counted", "tokens"], ["logits"], keepdims=0),
    ]
    constants = [_tensor("weights", weights), _tensor("last", np.array([-1])), _tensor("tokens", np.array([1]))]
    inputs = [_value(name, _INT64, ("texts", "tokens")) for name in ("input_ids", "token_type_ids")]
    return _write(folder, "model.onnx", _model(nodes, constants, inputs, [_value("logits", _FLOAT, ("texts", 1))]))


def write_recogniser(folder: Path, words: Sequence[str] = ("good", "morning")) -> Path:
    """A SenseVoice that hears the same words in every recording."""
    marks = ("<blank>", "<|en|>", "<|NEUTRAL|>", "<|Speech|>", "<|withitn|>")
    tokens = (*marks, *(f"\u2581{word}" for word in words))
    folder.mkdir(parents=True, exist_ok=True)
    listed = "".join(f"{token} {number}\n" for number, token in enumerate(tokens))
    (folder / "tokens.txt").write_text(listed, "utf-8")
    features, heard = 560, np.eye(len(tokens), dtype=np.float32)[None, 1:] * 9
    constants = [
        _tensor("heard", heard),
        _tensor("weights", np.zeros((features, len(tokens)), np.float32)),
        _tensor("silence", np.eye(1, len(tokens), dtype=np.float32)[0]),
    ]
    nodes = [
        _node("MatMul", ["x", "weights"], ["products"]),
        _node("Add", ["products", "silence"], ["rest"]),
        _node("Concat", ["heard", "rest"], ["logits"], axis=1),
    ]
    inputs = [_value("x", _FLOAT, ("one", "frames", features))]
    inputs += [_value(name, _INT32, ("one",)) for name in ("x_length", "language", "text_norm")]
    ones = ",".join(["1"] * features)
    languages = {f"lang_{code}": 0 for code in ("auto", "zh", "en", "ja", "ko", "yue", "nospeech")}
    properties = {
        "lfr_window_size": 7,
        "lfr_window_shift": 6,
        "normalize_samples": 0,
        "neg_mean": ones,
        "inv_stddev": ones,
        "model_type": "sense_voice_ctc",
        "version": 2,
        "vocab_size": len(tokens),
        "comment": "iic/SenseVoiceSmall",
        **languages,
        "with_itn": 14,
        "without_itn": 15,
    }
    outputs = [_value("logits", _FLOAT, ("one", "all", len(tokens)))]
    (folder / "model.int8.onnx").write_bytes(_model(nodes, constants, inputs, outputs, properties))
    return folder


def write_voice(folder: Path, name: str = "en_US-tiny-low", speakers: int = 1) -> Path:
    """A voice of Piper, in which each sign of the sounds is a click of ``VOICE_STEP`` samples."""
    folder.mkdir(parents=True, exist_ok=True)
    signs = "_^$ abcdefghijklmnopqrstuvwxyz\u02c8.,!?;:"
    (folder / "tokens.txt").write_text("".join(f"{sign} {number}\n" for number, sign in enumerate(signs)), "utf-8")
    click = np.linspace(0.01, -0.01, VOICE_STEP, dtype=np.float32)[None, None]
    nodes = [
        _node("Cast", ["input"], ["numbers"], to=_FLOAT),
        _node("Unsqueeze", ["numbers", "last"], ["column"]),
        _node("Mul", ["column", "click"], ["clicks"]),
        _node("Reshape", ["clicks", "flat"], ["output"]),
    ]
    constants = [_tensor("last", np.array([-1])), _tensor("click", click), _tensor("flat", np.array([1, 1, -1]))]
    inputs = [_value("input", _INT64, ("one", "signs")), _value("input_lengths", _INT64, ("one",))]
    inputs.append(_value("scales", _FLOAT, (3,)))
    if speakers > 1:
        inputs.append(_value("sid", _INT64, ("one",)))
    properties = {
        "model_type": "vits",
        "comment": "piper",
        "language": "English",
        "voice": "en-us",
        "has_espeak": 1,
        "n_speakers": speakers,
        "sample_rate": VOICE_RATE,
    }
    outputs = [_value("output", _FLOAT, ("one", "one", "samples"))]
    (folder / f"{name}.onnx").write_bytes(_model(nodes, constants, inputs, outputs, properties))
    return folder


def _write(folder: Path, file: str, network: bytes) -> Path:
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(network)
    _tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 16}), "utf-8")
    return folder


def _tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.post_processor = processors.TemplateProcessing(  # pyright: ignore[reportAttributeAccessIssue]
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(word, WORDS.index(word)) for word in ("[CLS]", "[SEP]")],
    )
    return tokenizer


# --- onnx.proto3 -----------------------------------------------------------------------------------------------------


def _model(
    nodes: Sequence[bytes],
    constants: Sequence[bytes],
    inputs: Sequence[bytes],
    outputs: Sequence[bytes],
    properties: Mapping[str, object] | None = None,
) -> bytes:
    graph = b"".join(
        [
            *(_field(1, node) for node in nodes),
            _field(2, b"tiny"),
            *(_field(5, tensor) for tensor in constants),
            *(_field(11, value) for value in inputs),
            *(_field(12, value) for value in outputs),
        ]
    )
    ir_version, opset = 8, 13
    metadata = [_field(1, key.encode()) + _field(2, str(text).encode()) for key, text in (properties or {}).items()]
    head = _number(1, ir_version) + _field(7, graph) + _field(8, _number(2, opset))
    return head + b"".join(_field(14, entry) for entry in metadata)


def _node(kind: str, inputs: Sequence[str], outputs: Sequence[str], **integers: int) -> bytes:
    return b"".join(
        [
            *(_field(1, name.encode()) for name in inputs),
            *(_field(2, name.encode()) for name in outputs),
            _field(4, kind.encode()),
            *(
                _field(5, _field(1, name.encode()) + _number(3, number) + _number(20, 2))
                for name, number in integers.items()
            ),
        ]
    )


def _tensor(name: str, values: NDArray[np.float32] | NDArray[np.int64]) -> bytes:
    kind = _FLOAT if values.dtype == np.float32 else _INT64
    sizes = b"".join(_number(1, size) for size in values.shape)
    return sizes + _number(2, kind) + _field(8, name.encode()) + _field(9, values.tobytes())


def _value(name: str, kind: int, shape: Sequence[int | str]) -> bytes:
    sizes = b"".join(
        _field(1, _field(2, size.encode()) if isinstance(size, str) else _number(1, size)) for size in shape
    )
    tensor = _number(1, kind) + _field(2, sizes)
    return _field(1, name.encode()) + _field(2, _field(1, tensor))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])
