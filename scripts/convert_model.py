"""Convert an original model, a Hugging Face folder or a GGUF file, into a model folder for a Rockchip board.

    rkllm-mcp models convert ~/Qwen2.5-1.5B-Instruct --platform RK3588 --out models

Runs on a PC (x86-64, Linux) with Rockchip's rkllm-toolkit and rkllm-mcp installed. The folder holds the .rkllm file,
tokenizer.json, model.toml and first_tokens.json; copied to $XDG_DATA_HOME/rkllm-mcp/models on the board, it is found.

Source: SDK guide 1.3.0, sections 3.1 and 5 (data types, cores, contexts), Rockchip's own conversion examples (the
interface of ``rkllm.api``).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import platform as machine
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA_TYPES: Mapping[str, tuple[str, ...]] = {
    "RK3588": ("w8a8", "w8a8_g128", "w8a8_g256", "w8a8_g512"),
    "RK3576": ("w4a16", "w4a16_g32", "w4a16_g64", "w4a16_g128", "w8a8"),
    "RV1126B": ("w4a16", "w4a16_g32", "w4a16_g64", "w4a16_g128", "w8a8"),
    "RK3562": ("w8a8", "w4a16_g32", "w4a16_g64", "w4a16_g128", "w4a8_g32"),
}
"""The first one is what is taken where none is named."""
NPU_CORES: Mapping[str, int] = {"RK3588": 3, "RK3576": 2, "RV1126B": 1, "RK3562": 1}
MOST_CONTEXT_TOKENS = 16384
CONTEXT_STEP = 32
# Wheels of toolkit 1.3 are there for 3.9 to 3.12; rkllm-mcp begins at 3.10.
PYTHONS = ((3, 10), (3, 12))
WHEELS = (
    "rkllm-toolkit is not on PyPI: its wheels are in the repository github.com/airockchip/rknn-llm, folder "
    "rkllm-toolkit/packages (rkllm_toolkit-VERSION-cp{0}-cp{0}-linux_x86_64.whl for this Python); install one with pip"
)
FIRST_TOKENS = 8
EXIT_FAILED, EXIT_USAGE = 1, 2


class ConversionError(Exception):
    """What went wrong and what to do, in one sentence."""

    def __init__(self, message: str, code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Surroundings:
    """What a conversion needs of the machine it runs on."""

    system: str
    processor: str
    python: tuple[int, int]
    has_toolkit: bool

    def problem(self) -> str | None:
        """Why nothing can be converted here; None when it can."""
        if (self.system, self.processor) != ("Linux", "x86_64"):
            return f"rkllm-toolkit runs on Linux on x86-64, and this is {self.system} on {self.processor}; use a PC"
        (_, least), (_, most) = PYTHONS
        if not PYTHONS[0] <= self.python <= PYTHONS[1]:
            return (
                f"rkllm-toolkit needs Python 3.{least} to 3.{most}, and this is {self.python[0]}.{self.python[1]}; "
                f"make an environment of one of these"
            )
        if not self.has_toolkit:
            hint = "; for Python 3.12 set BUILD_CUDA_EXT=0 before" if self.python == PYTHONS[1] else ""
            return WHEELS.format("".join(map(str, self.python))) + hint
        return None


def surroundings() -> Surroundings:
    return Surroundings(
        machine.system(), machine.machine(), sys.version_info[:2], importlib.util.find_spec("rkllm") is not None
    )


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="rkllm-mcp models convert",
        description="Convert a Hugging Face folder or a GGUF file (q4_0, fp16) into a model folder.",
        epilog="Data types: " + "; ".join(f"{name}: {', '.join(types)}" for name, types in DATA_TYPES.items()),
    )
    parser.add_argument("model", type=Path, help="a Hugging Face folder, or a .gguf file")
    parser.add_argument("--out", type=Path, default=Path(), help="where the model folder goes (here)")
    parser.add_argument("--name", help="the model's name (the folder's, in lower case)")
    parser.add_argument("--platform", default="RK3588", type=str.upper, choices=list(DATA_TYPES))
    parser.add_argument("--data-type", type=str.lower, help="the platform's first one when not given")
    parser.add_argument("--cores", type=int, help="NPU cores (all of the platform's)")
    parser.add_argument("--max-context", type=int, default=4096, help="tokens, a multiple of 32 up to 16384 (4096)")
    parser.add_argument("--optimization", type=int, default=0, choices=(0, 1), help="1 favours accuracy over speed (0)")
    parser.add_argument("--algorithm", default="normal", choices=("normal", "grq"), help="grq: w4a16 only, on a GPU")
    parser.add_argument("--hybrid-rate", type=float, default=0.0, help="share of grouped layers, 0 to below 1 (0)")
    parser.add_argument("--calibration", type=Path, help="a JSON file of your own in place of our prompts")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json, where it is not in the folder")
    parser.add_argument("--template", help="how the model is spoken to, where its name does not tell")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--no-check", action="store_true", help="do not look at the first tokens")
    return parser.parse_args(arguments)


def settled(options: argparse.Namespace) -> argparse.Namespace:
    """The options with the platform's own values in the gaps.

    Raises:
        ConversionError: a value that the toolkit would refuse after minutes of work, or that makes no sense.
    """
    platform = options.platform
    options.data_type = options.data_type or DATA_TYPES[platform][0]
    options.cores = NPU_CORES[platform] if options.cores is None else options.cores
    wrong = {
        f"{platform} has no data type {options.data_type}; it has {', '.join(DATA_TYPES[platform])}": (
            options.data_type not in DATA_TYPES[platform]
        ),
        f"{platform} has {NPU_CORES[platform]} NPU cores; --cores is 1 to {NPU_CORES[platform]}": (
            not 1 <= options.cores <= NPU_CORES[platform]
        ),
        f"--max-context is a multiple of {CONTEXT_STEP} up to {MOST_CONTEXT_TOKENS}": (
            not 0 < options.max_context <= MOST_CONTEXT_TOKENS or options.max_context % CONTEXT_STEP != 0
        ),
        "--hybrid-rate is 0 or more and below 1": not 0 <= options.hybrid_rate < 1,
        "--algorithm grq is for w4a16 and its groups, with --device cuda": (
            options.algorithm == "grq" and (not options.data_type.startswith("w4a16") or options.device != "cuda")
        ),
        f"there is no {options.model}; name a Hugging Face folder or a .gguf file": not options.model.exists(),
        f"{options.model} has no config.json; name the folder of a Hugging Face model": (
            options.model.is_dir() and not (options.model / "config.json").is_file()
        ),
        f"{options.model} is no GGUF file; name a Hugging Face folder or a .gguf file": (
            options.model.is_file() and beginning(options.model) != b"GGUF"
        ),
    }
    problem = next((sentence for sentence, is_wrong in wrong.items() if is_wrong), None)
    if problem is not None:
        raise ConversionError(problem, EXIT_USAGE)
    options.name = options.name or name_of(options.model)
    return options


def beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)


def original_name(model: Path) -> str:
    """What the original model's folder or file is called."""
    return model.stem if model.is_file() else model.resolve().name


def name_of(model: Path) -> str:
    """A model's name, made of its folder's or file's."""
    return re.sub(r"[^a-z0-9.]+", "-", original_name(model).lower()).strip("-.") or "model"


def tokenizer_of(options: argparse.Namespace, target: Path) -> None:
    """Put the model's tokenizer.json at ``target``: it is there, or transformers can write it.

    Raises:
        ConversionError: there is none.
    """
    beside = options.model / "tokenizer.json" if options.model.is_dir() else options.model.parent / "tokenizer.json"
    source = options.tokenizer or beside
    if source.is_file():
        shutil.copyfile(source, target)
        return
    if options.model.is_dir() and options.tokenizer is None:
        try:
            transformers: Any = importlib.import_module("transformers")
            transformers.AutoTokenizer.from_pretrained(str(options.model)).backend_tokenizer.save(str(target))
        except Exception as error:  # noqa: BLE001  # whatever transformers raises, the remedy is the same
            raise ConversionError(
                f"{options.model} has no tokenizer.json, and transformers could not write one ({error}); "
                "name one with --tokenizer",
                EXIT_USAGE,
            ) from None
        return
    raise ConversionError(
        f"there is no {source}; name the original model's tokenizer.json with --tokenizer", EXIT_USAGE
    )


def card_of(options: argparse.Namespace, file_name: str) -> Any:
    """The card of the new folder: how the catalogue says that a model like that is spoken to.

    Raises:
        ConversionError: nobody knows.
    """
    from rkllm_mcp.models.cards import ModelCard, SourceCard, list_models
    from rkllm_mcp.models.compatibility import match_model
    from rkllm_mcp.prompt.families import TEMPLATES

    architecture = None
    if options.model.is_dir():
        architecture = json.loads((options.model / "config.json").read_text("utf-8")).get("model_type")
    like = match_model(
        [options.name, original_name(options.model)], architecture, [folder.card for folder in list_models()]
    )
    if options.template is not None and options.template not in TEMPLATES:
        raise ConversionError(f"there is no template {options.template}; there are {', '.join(TEMPLATES)}", EXIT_USAGE)
    if like is None and options.template is None:
        raise ConversionError(
            f"nobody knows how {options.name} is spoken to; say it with --template: {', '.join(TEMPLATES)}", EXIT_USAGE
        )
    if like is not None and options.template in {None, like.card.template}:
        card = like.card
    else:
        card = ModelCard(name=options.name, template=str(options.template))
    return card.model_copy(
        update={
            "name": options.name,
            "description": f"Converted from {original_name(options.model)}, {options.data_type}",
            "context_tokens": options.max_context,
            "file": file_name,
            "tokenizer": "tokenizer.json",
            "source": SourceCard(platform=options.platform),
            "published": None,
        }
    )


def done(result: Any, doing: str) -> None:
    """Raise when the toolkit reports a failure; every call of it returns 0 or -1."""
    if result != 0:
        raise ConversionError(f"rkllm-toolkit failed at {doing} ({result}); its own messages above say why")


def build(llm: Any, options: argparse.Namespace, dataset: Path) -> None:
    """Load and quantise the model."""
    if options.model.is_dir():
        print(f"Loading {options.model}")
        loaded = llm.load_huggingface(
            model=str(options.model),
            model_lora=None,
            device=options.device,
            dtype=options.dtype,
            custom_config=None,
            load_weight=True,
        )
    else:
        print(f"Loading {options.model}; of GGUF, only q4_0 and fp16 can be loaded")
        loaded = llm.load_gguf(model=str(options.model))
    done(loaded, "loading the model")
    print(f"Building for {options.platform}: {options.data_type}, {options.cores} cores, {options.max_context} tokens")
    built = llm.build(
        do_quantization=True,
        optimization_level=options.optimization,
        quantized_dtype=options.data_type,
        quantized_algorithm=options.algorithm,
        target_platform=options.platform.lower(),
        num_npu_core=options.cores,
        extra_qparams=None,
        dataset=str(dataset),
        hybrid_rate=options.hybrid_rate,
        max_context=options.max_context,
    )
    done(built, "building the model")


@dataclass(frozen=True)
class FirstTokens:
    """What the quantised model, simulated on this PC, writes first: to be compared with the board's."""

    prompt: str
    ids: list[int]
    first_ids: list[int]
    first_text: str
    chat_text: str | None

    @property
    def agrees(self) -> bool:
        """Whether the toolkit's own chat begins as the logits say; true where it says nothing."""
        ours, theirs = self.first_text.strip(), (self.chat_text or self.first_text).strip()
        return theirs.startswith(ours) or ours.startswith(theirs)


def first_tokens(llm: Any, vocabulary: Any, template: Any) -> list[FirstTokens]:
    """Ask the quantised model for the first tokens of some answers, by our token ids and by our text.

    By our ids, one ``get_logits`` after the other, the likeliest token each; by our text, ``chat_model`` with top_k 1.
    That both begin alike says that the toolkit's tokenizer and ours mean the same. Where there are no logits
    (Rockchip's example expects None), there is nothing to compare.
    """
    from rkllm_mcp.models.calibration import questions
    from rkllm_mcp.prompt.conversation import ConversationPrompt, stop_ids

    torch: Any = importlib.import_module("torch")
    prompt, stops = ConversationPrompt(vocabulary, template), stop_ids(vocabulary, template)
    found: list[FirstTokens] = []
    for messages, tools in questions():
        parts = prompt.parts(messages, tools)
        ids = [token_id for part in parts for token_id in part.ids]
        text = "".join(part.text for part in parts)
        first: list[int] = []
        for _ in range(FIRST_TOKENS):
            logits = llm.get_logits({"input_ids": torch.tensor([ids + first])})
            if logits is None:
                return []
            first.append(int(logits[0][-1].argmax()))
            if first[-1] in stops:
                break
        chat = llm.chat_model(text, {"max_length": len(ids) + FIRST_TOKENS, "top_k": 1, "do_sample": False})
        written = vocabulary.decode([token_id for token_id in first if token_id not in stops])
        found.append(FirstTokens(text, ids, first, written, chat if isinstance(chat, str) else None))
    return found


def check(llm: Any, vocabulary: Any, template: Any, target: Path) -> None:
    """Write down the first tokens, and say where the toolkit and we disagree."""
    found = first_tokens(llm, vocabulary, template)
    if not found:
        print("The toolkit gives no logits for this model; the first tokens were not checked")
        return
    target.write_text(json.dumps([vars(entry) for entry in found], ensure_ascii=False, indent=2), "utf-8")
    for entry in found:
        print(f"  {'as in chat_model' if entry.agrees else 'NOT as in chat_model'}: {entry.first_text!r}")
    if not all(entry.agrees for entry in found):
        raise ConversionError(
            "the quantised model answers our token ids differently from the same text in the toolkit; the tokenizer is "
            "not the model's own, or the template is another one's; --no-check writes the folder all the same"
        )


def convert(options: argparse.Namespace) -> Path:
    """Do it all; the folder appears when everything in it is there."""
    from rkllm_mcp.errors import ModelFileError
    from rkllm_mcp.models.calibration import calibration
    from rkllm_mcp.models.cards import card_text
    from rkllm_mcp.models.compatibility import check_tokenizer
    from rkllm_mcp.prompt.families import TEMPLATES
    from rkllm_mcp.prompt.tokenizer import ModelTokenizer

    folder = options.out / options.name
    if folder.exists():
        raise ConversionError(f"{folder} exists; remove it, or choose another --name", EXIT_USAGE)
    draft = options.out / f".{options.name}.part"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        file_name = f"{original_name(options.model)}_{options.data_type.upper()}_{options.platform}.rkllm"
        card = card_of(options, file_name)
        tokenizer_of(options, draft / "tokenizer.json")
        try:
            check_tokenizer(draft / "tokenizer.json", card.template, None, print)
        except ModelFileError as error:
            raise ConversionError(str(error), EXIT_USAGE) from None
        vocabulary = ModelTokenizer((draft / "tokenizer.json").read_text("utf-8"))
        dataset = options.calibration or draft / "calibration.json"
        if options.calibration is None:
            samples = calibration(vocabulary, TEMPLATES[card.template])
            dataset.write_text(json.dumps(samples, ensure_ascii=False, indent=1), "utf-8")
            print(f"Calibrating on {len(samples)} samples of our own prompts")
        llm: Any = importlib.import_module("rkllm.api").RKLLM()
        build(llm, options, dataset)
        if not options.no_check:
            check(llm, vocabulary, TEMPLATES[card.template], draft / "first_tokens.json")
        done(llm.export_rkllm(str(draft / file_name)), "writing the .rkllm file")
        (draft / "model.toml").write_text(card_text(card), "utf-8")
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    if (problem := surroundings().problem()) is not None:
        print(f"Error: {problem}", file=sys.stderr)
        return EXIT_USAGE
    try:
        folder = convert(settled(options))
    except ConversionError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.code
    print(f"{folder}: copy it to ~/.local/share/rkllm-mcp/models on the board")
    return 0


if __name__ == "__main__":
    sys.exit(main())
