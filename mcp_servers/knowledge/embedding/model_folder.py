"""A folder with a text model in ONNX -> what is to be run, and how its texts are to be written.

    FOLDER/model.onnx, or onnx/model.onnx, or the one .onnx file that is there
    FOLDER/tokenizer.json
    FOLDER/tokenizer_config.json, sentence_bert_config.json        how many tokens it takes
    FOLDER/1_Pooling/config.json                                   how the vectors of tokens become one; else their mean
    FOLDER/config_sentence_transformers.json                       what is written before a question and a passage

Nothing is ever downloaded: what is in the folder is the model, so a board without a network has it as well.

Followed: the layout that Sentence Transformers and Optimum write and that models are published in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from mcp_servers.knowledge.problems import BadArgumentError

Pooling = Literal["mean", "first", "last"]

_POOLINGS: Mapping[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
}
# A chunk is hardly longer, and the time for a text grows faster than its length.
_MOST_TOKENS = 1024
# What BERT and its relatives take, where a folder does not say.
_USUAL_TOKENS = 512
# Enough of the weights to tell two trainings of one model apart, without reading half a gigabyte at every start.
_SAMPLE_BYTES = 1 << 20
_DIGITS = 8
# The E5 models are trained with these two and their folders do not say so.
_E5_PROMPTS = ("query: ", "passage: ")
_REMEDY = "Give cpu:FOLDER with tokenizer.json and one .onnx file in it, or name that file"


@dataclass(frozen=True)
class ModelFolder:
    """A model on disk.

    Args:
        name: the folder's, and a mark of what is in it: another model in the same place has another name.
        network: the ONNX file.
        tokenizer: ``tokenizer.json``.
        most_tokens: longer texts are cut.
        pooling: how a model's vectors of tokens become one.
        query_prompt: written before a question.
        document_prompt: written before a passage.
    """

    name: str
    network: Path
    tokenizer: Path
    most_tokens: int
    pooling: Pooling = "mean"
    query_prompt: str = ""
    document_prompt: str = ""


def read_model_folder(setting: str, given: str) -> ModelFolder:
    """The model of a folder, or of one ``.onnx`` file in it.

    Args:
        setting: what it was given for, for the sentence of an error.
        given: a path; ``~`` is the owner's home.

    Raises:
        BadArgumentError: there is no model that can be run.
    """
    try:
        path = Path(given).expanduser().absolute()
        network = _network(setting, path)
        folder = next((place for place in (network.parent, network.parent.parent) if _tokenizer(place).is_file()), None)
        if folder is None:
            raise BadArgumentError(setting, f"is a folder without tokenizer.json ({network.parent})", _REMEDY)
        query_prompt, document_prompt = _prompts(folder)
        found = ModelFolder(
            name=folder.name,
            network=network,
            tokenizer=_tokenizer(folder),
            most_tokens=_most_tokens(folder),
            pooling=_pooling(folder),
            query_prompt=query_prompt,
            document_prompt=document_prompt,
        )
        return replace(found, name=f"{folder.name}@{_mark(found)}")
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadArgumentError(setting, f"cannot be read ({given!r:.200}: {reason})", _REMEDY) from error


def _network(setting: str, path: Path) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise BadArgumentError(setting, f"is no folder ({path})", _REMEDY)
    for usual in (path / "model.onnx", path / "onnx" / "model.onnx"):
        if usual.is_file():
            return usual
    found = sorted([*path.glob("*.onnx"), *path.glob("onnx/*.onnx")])
    if not found:
        raise BadArgumentError(setting, f"is a folder without an .onnx file ({path})", _REMEDY)
    if len(found) > 1:
        names = ", ".join(str(each.relative_to(path)) for each in found)
        raise BadArgumentError(setting, f"is a folder with several models ({path}: {names})", "Name one of the files")
    return found[0]


def _tokenizer(folder: Path) -> Path:
    return folder / "tokenizer.json"


def _most_tokens(folder: Path) -> int:
    said = (
        _table(folder / "tokenizer_config.json").get("model_max_length"),
        _table(folder / "sentence_bert_config.json").get("max_seq_length"),
    )
    # A length that nobody knows is written as 10^30.
    limits = [limit for limit in said if isinstance(limit, int) and 0 < limit < 1 << 31]
    return min([*limits, _MOST_TOKENS]) if limits else _USUAL_TOKENS


def _pooling(folder: Path) -> Pooling:
    table = _table(folder / "1_Pooling" / "config.json")
    said: list[Pooling] = [pooling for key, pooling in _POOLINGS.items() if table.get(key) is True]
    return said[0] if said else "mean"


def _prompts(folder: Path) -> tuple[str, str]:
    """What is written before a question and before a passage."""
    prompts = _table(folder / "config_sentence_transformers.json").get("prompts")
    if isinstance(prompts, dict) and prompts:
        table = cast("dict[str, Any]", prompts)
        return str(table.get("query") or ""), str(table.get("document") or table.get("passage") or "")
    return _E5_PROMPTS if "e5" in folder.name.lower().replace("_", "-").split("-") else ("", "")


def _mark(model: ModelFolder) -> str:
    """What the model's vectors depend on, as a few digits."""
    digest = hashlib.sha256(f"{model.pooling}\0{model.document_prompt}\0{model.most_tokens}\0".encode())
    digest.update(model.tokenizer.read_bytes())
    # Large weights lie in a file of their own beside the network.
    for file in (model.network, *sorted(model.network.parent.glob(f"{model.network.name}_data*"))):
        with file.open("rb") as opened:
            size = file.stat().st_size
            digest.update(f"{size}\0".encode())
            digest.update(opened.read(_SAMPLE_BYTES))
            opened.seek(max(size - _SAMPLE_BYTES, 0))
            digest.update(opened.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:_DIGITS]


def _table(file: Path) -> dict[str, Any]:
    """A JSON object; an empty one where there is no such file."""
    if not file.is_file():
        return {}
    value: object = json.loads(file.read_text("utf-8"))
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
