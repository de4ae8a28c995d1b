"""``rkllm.api`` as Rockchip documents it, without a model behind it.

It refuses what the guide forbids, writes every call as a line of JSON to $STANDIN_LOG, and its "model" is a text:
after any prompt the next token is the next one of that text, by the tokenizer.json of the folder that was loaded. The
exported file is one of our own making. $STANDIN_TROUBLE makes a call fail, or the two ways of asking disagree.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from torch import Logits

from tests.support.rkllm_files import QWEN, container

ANSWER = "It is sunny in Tokyo today."


class RKLLM:
    """The toolkit."""

    def __init__(self) -> None:
        self._tokenizer: Tokenizer | None = None
        self._is_built = False

    def load_huggingface(
        self,
        model: str,
        model_lora: str | None = None,
        device: str = "cpu",
        dtype: str = "float32",
        custom_config: str | None = None,
        load_weight: bool = True,
    ) -> int:
        arguments = {"model": model, "device": device, "dtype": dtype, "load_weight": load_weight}
        assert (model_lora, custom_config) == (None, None)
        self._tokenizer = Tokenizer.from_file(str(Path(model) / "tokenizer.json"))
        return self._result("load_huggingface", arguments, is_fine=Path(model, "config.json").is_file())

    def load_gguf(self, model: str) -> int:
        beside = Path(model).parent / "tokenizer.json"
        self._tokenizer = Tokenizer.from_file(str(beside)) if beside.is_file() else None
        return self._result("load_gguf", {"model": model}, is_fine=Path(model).is_file())

    def build(
        self,
        do_quantization: bool = True,
        optimization_level: int = 1,
        quantized_dtype: str = "w8a8",
        quantized_algorithm: str = "normal",
        target_platform: str = "rk3588",
        num_npu_core: int = 3,
        extra_qparams: str | None = None,
        dataset: str | None = None,
        hybrid_rate: float = 0,
        max_context: int = 4096,
    ) -> int:
        samples: list[dict[str, str]] = json.loads(Path(dataset or "").read_text("utf-8"))
        arguments = {
            "do_quantization": do_quantization,
            "optimization_level": optimization_level,
            "quantized_dtype": quantized_dtype,
            "quantized_algorithm": quantized_algorithm,
            "target_platform": target_platform,
            "num_npu_core": num_npu_core,
            "hybrid_rate": hybrid_rate,
            "max_context": max_context,
            "samples": len(samples),
        }
        assert extra_qparams is None
        self._is_built = all(set(sample) == {"input", "target"} for sample in samples)
        return self._result("build", arguments, is_fine=self._is_built and max_context % 32 == 0)

    def export_rkllm(self, path: str, export_tokenizer: bool = True, export_embedding: bool = True) -> int:
        Path(path).write_bytes(container({**QWEN, "rkllm.max_context": 4096}))
        return self._result("export_rkllm", {"path": path}, is_fine=self._is_built)

    def get_logits(self, inputs: dict[str, Any]) -> Logits | None:
        if os.environ.get("STANDIN_TROUBLE") == "no logits" or self._tokenizer is None:
            return None
        ((*ids,),) = inputs["input_ids"].tolist()
        answer: list[int] = self._tokenizer.encode(ANSWER, add_special_tokens=False).ids
        # How much of the answer the prompt ends with already.
        written = next(count for count in range(len(answer), -1, -1) if ids[len(ids) - count :] == answer[:count])
        return Logits(answer[written % len(answer)])

    def chat_model(self, messages: str, args: dict[str, Any]) -> str:
        self._result("chat_model", {"characters": len(messages), **args}, is_fine=True)
        return "Something else" if os.environ.get("STANDIN_TROUBLE") == "other answer" else ANSWER

    def _result(self, call: str, arguments: dict[str, Any], *, is_fine: bool) -> int:
        is_fine = is_fine and os.environ.get("STANDIN_TROUBLE") != call
        with Path(os.environ["STANDIN_LOG"]).open("a", encoding="utf-8") as log:
            log.write(json.dumps({"call": call, **arguments}) + "\n")
        return 0 if is_fine else -1
