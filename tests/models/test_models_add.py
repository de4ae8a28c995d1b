from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rkllm_mcp.board.machine import Machine
from rkllm_mcp.errors import ModelFileError, UsageError
from rkllm_mcp.models.cards import list_models, load_model
from rkllm_mcp.models.folder import ModelFolderStore
from rkllm_mcp.models.hub import Hub
from rkllm_mcp.models.install import Addition, ModelSources, add
from rkllm_mcp.surfaces.chat.forms import TerminalApprover
from rkllm_mcp.surfaces.terminal import Terminal
from tests.support.board_trees import RK3588, plant
from tests.support.demo_model import DEMO_TOKENIZER, demo_vocabulary
from tests.support.fake_hub import FakeHub, running
from tests.support.pictures import emulated_encoder
from tests.support.rkllm_files import write_rkllm

END = demo_vocabulary().controls.get("<|im_end|>")
TOKENIZER = DEMO_TOKENIZER.read_bytes()
ENTRIES = {
    "qwen2.5-1.5b": (
        'description = "Small"\ntemplate = "qwen2.5"\n[sampling]\ntop_k = 20\n'
        '[source]\ntokenizer_repository = "original/Qwen2.5"\n[published]\nmemory_mb = 1689\n'
    ),
    "qwen3-4b": 'template = "qwen3"\nthinking = "auto"\n',
}

# pytest's standard input is no terminal.
NO_PERSON = TerminalApprover(Terminal())


class Answers:
    """A person who has made up their mind."""

    def __init__(self, *answers: str | bool) -> None:
        self.left = list(answers)
        self.asked: list[str] = []

    def choose(self, question: str, option: str, choices: Sequence[str] = ()) -> str:
        self.asked.append(option)
        answer = str(self.left.pop(0))
        assert not choices or answer in choices
        return answer

    def confirm(self, question: str, option: str) -> bool:
        self.asked.append(option)
        return bool(self.left.pop(0))


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def sources(tmp_path: Path, said: list[str]) -> ModelSources:
    for name, card in ENTRIES.items():
        (tmp_path / "catalogue" / name).mkdir(parents=True)
        (tmp_path / "catalogue" / name / "model.toml").write_text(card)
    user = tmp_path / "user"
    return ModelSources(
        ModelFolderStore(user, free_bytes=lambda _: 10**9),
        Hub("http://127.0.0.1:9", tmp_path / "cache"),
        Machine(plant(tmp_path / "board", RK3588)),
        (user, tmp_path / "catalogue"),
        said.append,
    )


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A file as a person has it, with the tokenizer next to it."""
    path = write_rkllm(tmp_path / "mine" / "Qwen2.5-1.5B_W8A8_RK3588.rkllm", {"tokenizer.ggml.eos_token_id": END})
    (path.parent / "tokenizer.json").write_bytes(TOKENIZER)
    return path


def quietly(name: str, done: int, total: int | None) -> None:
    del name, done, total


def test_a_known_model_is_added_without_a_question(sources: ModelSources, mine: Path, said: list[str]) -> None:
    folder = add(sources, Addition(mine), NO_PERSON, quietly)
    assert (folder.folder.name, folder.missing) == ("qwen2.5-1.5b", ())
    assert folder.file.stat().st_ino == mine.stat().st_ino, "a link, not a copy"
    assert folder.card.published is not None
    assert (folder.card.template, folder.card.sampling.model_dump()["top_k"], folder.card.published.memory_mb) == (
        "qwen2.5",
        20,
        1689,
    )
    assert folder.card.source is not None
    assert folder.card.source.platform == "RK3588"
    (sentence,) = said
    assert sentence == (
        "Qwen2.5-1.5B-Instruct, for RK3588, w8a8, 3 NPU cores, toolkit 1.2.3, up to 4096 tokens, "
        "like qwen2.5-1.5b by its name"
    )
    assert load_model("qwen2.5-1.5b", sources.directories) == folder


def test_a_tokenizer_with_another_vocabulary_than_the_file_is_refused(sources: ModelSources, tmp_path: Path) -> None:
    own = [demo_vocabulary().piece(number) or "" for number in range(2000)]
    other = [*own[:2], *reversed(own[2:])]
    path = tmp_path / "mine" / "Qwen2.5-1.5B_W8A8_RK3588.rkllm"
    for tokens in (other, own):
        write_rkllm(path, {"tokenizer.ggml.eos_token_id": END, "tokenizer.ggml.tokens": tokens})
        (path.parent / "tokenizer.json").write_bytes(TOKENIZER)
        if tokens is own:
            assert add(sources, Addition(path), NO_PERSON, quietly).missing == ()
            continue
        with pytest.raises(ModelFileError) as refusal:
            add(sources, Addition(path), NO_PERSON, quietly)
        assert str(refusal.value) == (
            f"The tokenizer is another model's: token 20 is {other[20]!r} in {path.name} and {own[20]!r} in the "
            "tokenizer. Take the tokenizer.json of the original model, Qwen2.5-1.5B-Instruct."
        )


def test_a_copy_is_made_when_it_is_wanted(sources: ModelSources, mine: Path) -> None:
    folder = add(sources, Addition(mine, copy=True), NO_PERSON, quietly)
    assert folder.file.stat().st_ino != mine.stat().st_ino
    assert folder.file.read_bytes() == mine.read_bytes()
    full = replace(sources, folders=ModelFolderStore(sources.folders.root, free_bytes=lambda _: 64 * 2**20))
    with pytest.raises(ModelFileError, match="Not enough disk space"):
        add(full, Addition(mine, name="second", copy=True), NO_PERSON, quietly)
    add(full, Addition(mine, name="second"), NO_PERSON, quietly)


def test_a_second_file_of_the_same_model_gets_its_own_name(sources: ModelSources, mine: Path) -> None:
    add(sources, Addition(mine), NO_PERSON, quietly)
    assert add(sources, Addition(mine), NO_PERSON, quietly).folder.name == "qwen2.5-1.5b-2"
    with pytest.raises(UsageError) as caught:
        add(sources, Addition(mine, name="qwen2.5-1.5b"), NO_PERSON, quietly)
    assert str(caught.value) == ("the model 'qwen2.5-1.5b' exists already; choose another --name, or remove it first")


def test_a_relative_is_spoken_to_as_its_family_and_named_after_its_file(sources: ModelSources, tmp_path: Path) -> None:
    path = write_rkllm(tmp_path / "x" / "Qwen3-9B-Tuned-rk3588-w8a8_g128-16k-v1.2.3.rkllm", {"general.name": "tuned"})
    (path.parent / "tokenizer.json").write_bytes(TOKENIZER)
    folder = add(sources, Addition(path), NO_PERSON, quietly)
    assert (folder.name, folder.card.template, folder.card.thinking) == ("qwen3-9b-tuned", "qwen3", "auto")


def test_what_the_architecture_suggests_is_confirmed(sources: ModelSources, tmp_path: Path) -> None:
    path = write_rkllm(tmp_path / "x" / "best.rkllm", {"general.name": "best", "general.architecture": "qwen3"})
    (path.parent / "tokenizer.json").write_bytes(TOKENIZER)
    with pytest.raises(UsageError) as caught:
        add(sources, Addition(path), NO_PERSON, quietly)
    assert str(caught.value) == (
        "By its architecture, qwen3, the model uses the chat template qwen3. Correct? Say it with --template, or --yes"
    )
    person = Answers(False, "chatml")
    assert add(sources, Addition(path, name="a"), person, quietly).card.template == "chatml"
    assert person.asked == ["--template, or --yes", "--template"]
    assert add(sources, Addition(path, name="b"), Answers(True), quietly).card.template == "qwen3"
    assert add(sources, Addition(path, name="c", sure=True), NO_PERSON, quietly).card.template == "qwen3"


def test_an_unknown_model_needs_a_template(sources: ModelSources, tmp_path: Path) -> None:
    path = write_rkllm(tmp_path / "x" / "best.rkllm", {"general.name": "best", "general.architecture": "other"})
    (path.parent / "tokenizer.json").write_bytes(TOKENIZER)
    with pytest.raises(UsageError) as caught:
        add(sources, Addition(path), NO_PERSON, quietly)
    assert str(caught.value).startswith(
        "Which chat template does the model in best.rkllm (architecture other) use? Say it with --template: chatml, "
    )
    folder = add(sources, Addition(path, template="qwen2.5"), NO_PERSON, quietly)
    assert (folder.name, folder.card.template) == ("best", "qwen2.5")
    with pytest.raises(UsageError, match="unknown template 'qwen9'; the templates are "):
        add(sources, Addition(path, template="qwen9"), NO_PERSON, quietly)


def test_a_missing_tokenizer_is_requested(sources: ModelSources, mine: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "original"
    elsewhere.mkdir()
    (mine.parent / "tokenizer.json").rename(elsewhere / "tokenizer.json")
    with pytest.raises(UsageError) as caught:
        add(sources, Addition(mine), NO_PERSON, quietly)
    assert str(caught.value) == (
        "Where is the tokenizer (the original model's tokenizer.json, as a path or hf:OWNER/NAME, here "
        "hf:original/Qwen2.5)? Say it with --tokenizer"
    )
    assert add(sources, Addition(mine), Answers(str(elsewhere)), quietly).tokenizer.read_bytes() == TOKENIZER
    # The next file of the same model finds the tokenizer of the first.
    assert add(sources, Addition(mine, name="again"), NO_PERSON, quietly).missing == ()
    with pytest.raises(UsageError, match=r"/none/t\.json does not exist; --tokenizer names a tokenizer\.json, or hf:"):
        add(sources, Addition(mine, name="third", tokenizer="/none/t.json"), NO_PERSON, quietly)


def test_a_tokenizer_can_be_fetched(sources: ModelSources, mine: Path) -> None:
    (mine.parent / "tokenizer.json").unlink()
    from huggingface_hub.utils import close_session

    with running(FakeHub({"original/Qwen2.5": {"tokenizer.json": TOKENIZER}})) as fake:
        online = replace(sources, hub=Hub(fake.url, sources.hub.cache))
        folder = add(online, Addition(mine, tokenizer="hf:original/Qwen2.5"), NO_PERSON, quietly)
    close_session()
    assert folder.tokenizer.read_bytes() == TOKENIZER


def test_a_tokenizer_of_another_model_is_refused(sources: ModelSources, mine: Path) -> None:
    with pytest.raises(ModelFileError) as caught:
        add(sources, Addition(mine, template="gemma3"), NO_PERSON, quietly)
    assert str(caught.value) == (
        "The tokenizer has no token <end_of_turn>, which the template 'gemma3' needs. "
        "Take the model's own tokenizer, or another template."
    )
    assert list(sources.folders.root.iterdir()) == []
    (mine.parent / "tokenizer.json").write_text(json.dumps({"model": {}}))
    with pytest.raises(ModelFileError, match="The tokenizer cannot be read"):
        add(sources, Addition(mine), NO_PERSON, quietly)


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[Path]:
    yield write_rkllm(tmp_path / "x" / "Qwen2.5-1.5B.rkllm", {"rkllm.platform": "RK3576"})


def test_a_file_for_another_chip_is_refused_unless_it_is_meant(sources: ModelSources, foreign: Path) -> None:
    (foreign.parent / "tokenizer.json").write_bytes(TOKENIZER)
    with pytest.raises(ModelFileError, match="The file is for the RK3576, and this board has an RK3588"):
        add(sources, Addition(foreign), NO_PERSON, quietly)
    folder = add(sources, Addition(foreign, any_platform=True), NO_PERSON, quietly)
    assert sources.fitness_of(folder).reason == "for RK3576"


def test_files_that_are_not_models_are_distinguished(sources: ModelSources, tmp_path: Path) -> None:
    (tmp_path / "demo.rkllm").write_text("RKLLM-EMULATOR 1\n")
    with pytest.raises(ModelFileError, match="is a script for the emulated runtime"):
        add(sources, Addition(tmp_path / "demo.rkllm"), NO_PERSON, quietly)
    with pytest.raises(ModelFileError, match="No such file"):
        add(sources, Addition(tmp_path / "none.rkllm"), NO_PERSON, quietly)


@pytest.mark.parametrize(
    ("name", "entry", "by"),
    [
        ("Qwen2.5-3B-Instruct-rk3588-w8a8-opt-0-hybrid-ratio-0.5", "qwen2.5-3b", "model"),
        ("DeepSeek-R1-Distill-Qwen-1.5B_W8A8_RK3588", "deepseek-r1-distill-qwen-1.5b", "model"),
        ("gemma-3-1b-it_w8a8_rk3588", "gemma3-1b", "model"),
        ("gemma-4-E2B-it_w8a8_rk3588", "gemma4-e2b", "model"),
        ("Phi-3.5-mini-instruct_w8a8", "phi3.5-mini", "model"),
        ("Llama-3.2-1B-Instruct-rk3588", "llama3.2-1b", "model"),
        ("Hammer2.1-1.5b-rk3588", "hammer2.1-1.5b", "model"),
        ("rwkv7-g1-1.5b", "rwkv7-1.5b", "model"),
        ("xLAM-2-3b-fc-r", "xlam2-3b", "model"),
        ("MiniCPM4-0.5B", "minicpm4-0.5b", "model"),
    ],
)
def test_the_files_that_people_publish_are_found_in_the_catalogue(name: str, entry: str, by: str) -> None:
    from rkllm_mcp.models.compatibility import match_model

    found = match_model([name], None, [folder.card for folder in list_models()])
    assert found is not None
    assert (found.card.name, found.by) == (entry, by)


def test_a_vision_encoder_next_to_the_file_comes_along(sources: ModelSources, mine: Path, said: list[str]) -> None:
    write_rkllm(mine, {"tokenizer.ggml.eos_token_id": END, "qwen2.embedding_length": 16})
    encoder = emulated_encoder(mine.parent)
    folder = add(sources, Addition(mine), NO_PERSON, print)
    assert folder.encoder is not None
    assert folder.encoder.samefile(encoder)
    assert "encoder vision.rknn, for RK3588, 64 x 64 pixels, 16 tokens a picture" in said
    # With several, one is named.
    emulated_encoder(mine.parent).rename(mine.parent / "large.rknn")
    emulated_encoder(mine.parent)
    with pytest.raises(UsageError, match=r"several encoders are beside .*: large\.rknn, vision\.rknn; name one"):
        add(sources, Addition(mine, "second"), NO_PERSON, print)
    second = add(sources, Addition(mine, "second", encoder=str(mine.parent / "large.rknn")), NO_PERSON, print)
    assert second.card.encoder == "large.rknn"


@pytest.mark.parametrize(
    ("pairs", "lines", "problem"),
    [
        (
            {"qwen2.embedding_length": 2048},
            "",
            "vision.rknn gives 16 numbers for a token, and MINE takes 2048: it is the encoder of another model.",
        ),
        ({}, "platform rk3576", "The file is for the RK3576, and this board has an RK3588."),
    ],
)
def test_an_encoder_of_another_model_or_chip_is_refused(
    sources: ModelSources, mine: Path, pairs: dict[str, object], lines: str, problem: str
) -> None:
    write_rkllm(mine, {"tokenizer.ggml.eos_token_id": END, **pairs})
    emulated_encoder(mine.parent, lines=f"outputs 1\n{lines}")
    with pytest.raises(ModelFileError) as refused:
        add(sources, Addition(mine), NO_PERSON, print)
    assert refused.value.message == problem.replace("MINE", mine.name)
    assert not sources.folders.root.exists() or not any(sources.folders.root.iterdir())


def test_an_encoder_that_is_not_there_is_named(sources: ModelSources, mine: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.rknn does not exist; --encoder names a \.rknn file"):
        add(sources, Addition(mine, encoder=str(mine.parent / "none.rknn")), NO_PERSON, print)
