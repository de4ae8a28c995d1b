from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rkllm_mcp.board.machine import Machine
from rkllm_mcp.errors import ModelDownloadError, ModelFileError, ModelNotFoundError, UsageError
from rkllm_mcp.models.cards import load_model
from rkllm_mcp.models.folder import ModelFolderStore
from rkllm_mcp.models.hub import Hub
from rkllm_mcp.models.install import ModelSources, Pull, pull
from tests.support.board_trees import LAPTOP, RK3588, plant
from tests.support.demo_model import DEMO_TOKENIZER, demo_vocabulary
from tests.support.fake_hub import COMMIT, FakeHub, running
from tests.support.pictures import emulated_encoder
from tests.support.rkllm_files import QWEN, container

END = demo_vocabulary().controls.get("<|im_end|>")
FACTS = {**QWEN, "tokenizer.ggml.eos_token_id": END}
WEIGHTS = container(FACTS, weights=bytes(range(256)) * 100)
TOKENIZER = DEMO_TOKENIZER.read_bytes()
CARD = """\
description = "Small and quick"
template = "qwen2.5"
context_tokens = 4096

[source]
repository = "them/Qwen2.5-1.5B-rkllm"
file = "Qwen2.5-1.5B-Instruct_W8A8_RK3588.rkllm"
tokenizer_repository = "original/Qwen2.5-1.5B-Instruct"

[published]
decode_tokens_per_second = 16.7
memory_mb = 1689
"""


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    from huggingface_hub.utils import close_session

    files = {
        "them/Qwen2.5-1.5B-rkllm": {"Qwen2.5-1.5B-Instruct_W8A8_RK3588.rkllm": WEIGHTS, "page.rkllm": b"<html>" * 900},
        "original/Qwen2.5-1.5B-Instruct": {"tokenizer.json": TOKENIZER},
        "other/Qwen3-9B-rkllm": {
            "Qwen3-9B-RK3576.rkllm": WEIGHTS,
            "Qwen2.5-9B.rkllm": WEIGHTS,
            "tokenizer.json": TOKENIZER,
        },
    }
    with running(FakeHub(files)) as hub:
        yield hub
    close_session()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def sources(fake: FakeHub, tmp_path: Path, said: list[str]) -> ModelSources:
    catalogue = tmp_path / "catalogue"
    for name, card in {"qwen2.5-1.5b": CARD, "qwen3-4b": 'template = "qwen3"\n', "demo": "emulated = true\n"}.items():
        (catalogue / name).mkdir(parents=True)
        (catalogue / name / "model.toml").write_text(card)
    user = tmp_path / "user"
    return ModelSources(
        ModelFolderStore(user, free_bytes=lambda _: 10**9),
        Hub(fake.url, tmp_path / "cache"),
        Machine(plant(tmp_path / "board", RK3588)),
        (user, catalogue),
        said.append,
    )


def quietly(name: str, done: int, total: int | None) -> None:
    del name, done, total


def test_a_model_of_the_catalogue_becomes_a_folder_of_the_users(sources: ModelSources, tmp_path: Path) -> None:
    seen: dict[str, tuple[int, int | None]] = {}
    folder = pull(sources, Pull("qwen2.5-1.5b"), lambda name, done, total: seen.update({name: (done, total)}))
    assert (folder.folder, folder.missing) == (tmp_path / "user" / "qwen2.5-1.5b", ())
    assert folder.file.name == "Qwen2.5-1.5B-Instruct_W8A8_RK3588.rkllm"
    assert (folder.file.read_bytes(), folder.tokenizer.read_bytes()) == (WEIGHTS, TOKENIZER)
    assert folder.card.source is not None
    assert folder.card.published is not None
    assert (folder.card.template, folder.card.source.revision, folder.card.published.memory_mb) == (
        "qwen2.5",
        COMMIT,
        1689,
    )
    assert seen["Qwen2.5-1.5B-Instruct_W8A8_RK3588.rkllm"] == (len(WEIGHTS), len(WEIGHTS))
    assert [path.name for path in (tmp_path / "user").iterdir()] == ["qwen2.5-1.5b"]
    assert load_model("qwen2.5-1.5b", sources.directories) == folder


def test_existing_files_are_not_fetched_again(sources: ModelSources, fake: FakeHub, said: list[str]) -> None:
    folder = pull(sources, Pull("qwen2.5-1.5b"), quietly)
    fake.requests.clear()
    assert pull(sources, Pull("qwen2.5-1.5b"), quietly) == folder
    assert (fake.requests, said) == ([], [f"qwen2.5-1.5b is here already: {folder.folder}"])


def test_a_folder_of_the_users_that_lacks_a_file_gets_it_and_keeps_its_card(
    sources: ModelSources, tmp_path: Path
) -> None:
    mine = tmp_path / "user" / "qwen2.5-1.5b"
    mine.mkdir(parents=True)
    (mine / "model.toml").write_text('description = "mine"\nfile = "w.rkllm"\n' + CARD.partition("\n")[2])
    folder = pull(sources, Pull("qwen2.5-1.5b"), quietly)
    assert (folder.card.description, folder.file, folder.missing) == ("mine", mine / "w.rkllm", ())


def test_a_folder_that_is_looked_at_first_is_left_to_its_owner(sources: ModelSources, tmp_path: Path) -> None:
    (tmp_path / "named" / "qwen2.5-1.5b").mkdir(parents=True)
    (tmp_path / "named" / "qwen2.5-1.5b" / "model.toml").write_text(CARD)
    named = replace(sources, directories=(tmp_path / "named", *sources.directories))
    with pytest.raises(UsageError, match=r"has precedence over .*; put the files there by hand"):
        pull(named, Pull("qwen2.5-1.5b"), quietly)


def test_the_context_is_never_longer_than_the_file_allows(sources: ModelSources, fake: FakeHub) -> None:
    files = fake.files["them/Qwen2.5-1.5B-rkllm"]
    files["Qwen2.5-1.5B-Instruct_W8A8_RK3588.rkllm"] = container(
        {**FACTS, "rkllm.max_context": 2048}, weights=bytes(1000)
    )
    assert pull(sources, Pull("qwen2.5-1.5b"), quietly).card.context_tokens == 2048


SEEING = CARD.replace("[source]", 'encoder = "vision.rknn"\n\n[source]')


@pytest.fixture
def seeing(sources: ModelSources, fake: FakeHub, tmp_path: Path) -> dict[str, bytes]:
    """The repository of a model that sees, with the encoders of two boards."""
    (tmp_path / "catalogue" / "qwen2.5-1.5b" / "model.toml").write_text(SEEING)
    files = fake.files["them/Qwen2.5-1.5B-rkllm"]
    encoder = emulated_encoder(tmp_path, lines="# " + "x" * 2000).read_bytes()
    files |= {"RK3588/qwen_vision_rk3588.rknn": encoder, "RK3576/qwen_vision_rk3576.rknn": b"RKNN" * 500}
    return files


def test_a_model_that_sees_comes_with_its_encoder(
    sources: ModelSources, seeing: dict[str, bytes], fake: FakeHub, tmp_path: Path
) -> None:
    seen: dict[str, tuple[int, int | None]] = {}
    folder = pull(sources, Pull("qwen2.5-1.5b"), lambda name, done, total: seen.update({name: (done, total)}))
    encoder = seeing["RK3588/qwen_vision_rk3588.rknn"]
    fetched = tmp_path / "user" / "qwen2.5-1.5b" / "vision.rknn"
    assert (folder.encoder, fetched.read_bytes()) == (fetched, encoder)
    assert seen["RK3588/qwen_vision_rk3588.rknn"] == (len(encoder), len(encoder))
    assert folder.card.source is not None
    assert folder.card.source.encoder_file == "RK3588/qwen_vision_rk3588.rknn"
    # Lost, it is fetched again.
    fetched.unlink()
    assert pull(sources, Pull("qwen2.5-1.5b"), quietly).encoder == fetched
    assert fetched.read_bytes() == encoder


def test_a_wrong_encoder_is_refused_and_a_missing_one_leaves_a_model_for_text(
    sources: ModelSources, seeing: dict[str, bytes], said: list[str], tmp_path: Path
) -> None:
    weights = {**FACTS, "general.architecture": "qwen2", "qwen2.embedding_length": 2048}
    seeing["Qwen2.5-1.5B-Instruct_W8A8_RK3588.rkllm"] = container(weights, weights=bytes(1000))
    with pytest.raises(ModelFileError, match=r"vision\.rknn gives 16 numbers for a token, and .* takes 2048"):
        pull(sources, Pull("qwen2.5-1.5b"), quietly)
    assert not (tmp_path / "user" / "qwen2.5-1.5b").exists()
    del seeing["RK3588/qwen_vision_rk3588.rknn"]
    assert pull(sources, Pull("qwen2.5-1.5b"), quietly).encoder is None
    assert said[-1] == (
        "them/Qwen2.5-1.5B-rkllm has no vision encoder for the RK3588, so the model will not see (docs/pictures.md)"
    )


def broken_off(fake: FakeHub) -> None:
    fake.statuses = [None, 503]


def not_accepted(fake: FakeHub) -> None:
    fake.gated.add("original/Qwen2.5-1.5B-Instruct")


def replaced(fake: FakeHub) -> None:
    fake.announce["Qwen2.5-1.5B-Instruct_W8A8_RK3588.rkllm"] = hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize(
    ("trouble", "sentence"),
    [
        (broken_off, "answered 503 for tokenizer.json. Try again later; the download will resume."),
        (not_accepted, "original/Qwen2.5-1.5B-Instruct is gated. Accept its terms at "),
        (replaced, "has a wrong checksum."),
    ],
)
def test_a_failure_leaves_no_model(
    sources: ModelSources, fake: FakeHub, tmp_path: Path, trouble: Callable[[FakeHub], None], sentence: str
) -> None:
    trouble(fake)
    with pytest.raises(ModelDownloadError) as caught:
        pull(sources, Pull("qwen2.5-1.5b"), quietly)
    assert sentence in str(caught.value)
    assert [folder.name for folder in sources.models() if not folder.missing] == []
    assert not (tmp_path / "user" / "qwen2.5-1.5b").exists()


def test_without_room_nothing_is_fetched(sources: ModelSources, fake: FakeHub) -> None:
    small = replace(sources, folders=ModelFolderStore(sources.folders.root, free_bytes=lambda _: 64 * 2**20 + 1000))
    with pytest.raises(
        ModelFileError, match=r"Not enough disk space: 0 MB needed|Not enough disk space: 2\d* MB needed"
    ):
        pull(small, Pull("qwen2.5-1.5b"), quietly)
    assert {method for method, _, _ in fake.requests} == {"HEAD"}


def test_a_file_for_another_chip_is_refused_before_it_is_fetched(sources: ModelSources, fake: FakeHub) -> None:
    wish = Pull("mine", "other/Qwen3-9B-rkllm", "Qwen3-9B-RK3576.rkllm")
    with pytest.raises(ModelFileError) as caught:
        pull(sources, wish, quietly)
    assert str(caught.value) == (
        "The file is for the RK3576, and this board has an RK3588. "
        "Take one converted for the RK3588, or go on with --any-platform."
    )
    assert fake.requests == []
    assert pull(sources, replace(wish, any_platform=True), quietly).name == "mine"


def test_a_tokenizer_of_another_model_is_refused_or_doubted(
    sources: ModelSources, fake: FakeHub, said: list[str]
) -> None:
    files = fake.files["them/Qwen2.5-1.5B-rkllm"]
    (name,) = (name for name in files if name.endswith("RK3588.rkllm"))
    files[name] = container({**FACTS, "tokenizer.ggml.eos_token_id": 999_999}, weights=bytes(1000))
    pull(sources, Pull("qwen2.5-1.5b"), quietly)
    (sentence,) = said
    assert sentence == (
        "According to the file, token 999999 ends an answer, which this tokenizer does not have; "
        "if answers do not end, it is not the model's own tokenizer."
    )
    fake.files["original/Qwen2.5-1.5B-Instruct"]["tokenizer.json"] = b"<html>"
    sources.folders.remove("qwen2.5-1.5b")
    with pytest.raises(ModelFileError, match="The tokenizer cannot be read: not a tokenizer"):
        pull(sources, Pull("qwen2.5-1.5b"), quietly)
    assert not sources.folders.has("qwen2.5-1.5b")


def test_the_header_has_the_last_word_on_the_chip(sources: ModelSources, fake: FakeHub, tmp_path: Path) -> None:
    fake.files["them/Qwen2.5-1.5B-rkllm"]["Qwen2.5-1.5B-Instruct_W8A8_RK3588.rkllm"] = container(
        {**FACTS, "rkllm.platform": "RK3576"}, weights=bytes(1000)
    )
    with pytest.raises(ModelFileError, match="The file is for the RK3576"):
        pull(sources, Pull("qwen2.5-1.5b"), quietly)
    assert not (tmp_path / "user" / "qwen2.5-1.5b").exists()


def test_a_machine_without_an_npu_fetches_for_a_board(sources: ModelSources, tmp_path: Path) -> None:
    laptop = replace(sources, machine=Machine(plant(tmp_path / "laptop", LAPTOP)))
    assert pull(laptop, Pull("qwen2.5-1.5b"), quietly).missing == ()


def test_a_repository_of_ones_own_is_spoken_to_as_its_family(sources: ModelSources, said: list[str]) -> None:
    folder = pull(sources, Pull("mine", "other/Qwen3-9B-rkllm", "Qwen2.5-9B.rkllm"), quietly)
    assert folder.card.source is not None
    assert (folder.card.template, folder.card.published, folder.card.source.repository) == (
        "qwen2.5",
        None,
        "other/Qwen3-9B-rkllm",
    )
    assert said == ["mine uses the chat template of qwen2.5-1.5b"]


def test_another_file_of_the_catalogues_repository_is_checked_by_its_content(sources: ModelSources) -> None:
    with pytest.raises(ModelFileError, match="is a web page"):
        pull(sources, Pull("qwen2.5-1.5b", file="page.rkllm"), quietly)


def test_an_entry_without_a_source_says_where_to_look(sources: ModelSources) -> None:
    with pytest.raises(ModelDownloadError) as caught:
        pull(sources, Pull("qwen3-4b"), quietly)
    assert str(caught.value) == (
        "No published .rkllm file of 'qwen3-4b' is known. On a PC: 'hf download OWNER/NAME --local-dir qwen3-4b && "
        "rkllm-mcp models convert qwen3-4b'; or name another repository: 'rkllm-mcp models pull OWNER/NAME[:FILE]'."
    )


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("them/Qwen2.5-1.5B-rkllm:Qwen2.5-1.5B-Instruct_W8A8_RK3588.rkllm", "qwen2.5-1.5b"),
        ("other/Qwen3-9B-rkllm:Qwen2.5-9B.rkllm", "qwen3-9b"),
        ("other/Qwen3-9B-rkllm", "qwen3-9b"),
    ],
)
def test_a_repository_is_pulled_by_its_address(sources: ModelSources, words: str, name: str) -> None:
    folder = pull(sources, Pull(words), quietly)
    assert (folder.folder.name, folder.missing) == (name, ())
    assert folder.card.source is not None
    assert words.startswith(f"{folder.card.source.repository}")


def test_an_address_is_written_once_and_whole(sources: ModelSources) -> None:
    with pytest.raises(UsageError, match=r"write either OWNER/NAME\[:FILE\], or a NAME with --repository"):
        pull(sources, Pull("them/x", repository="them/y"), quietly)
    with pytest.raises(UsageError, match=r"'a/b/c' is no repository; write OWNER/NAME\[:FILE\]"):
        pull(sources, Pull("a/b/c"), quietly)


def without_a_file(sources: ModelSources) -> None:
    card = sources.directories[1] / "qwen2.5-1.5b" / "model.toml"
    card.write_text("\n".join(line for line in CARD.splitlines() if not line.startswith("file = ")))


def test_the_only_file_that_can_be_meant_need_not_be_named(sources: ModelSources, fake: FakeHub) -> None:
    without_a_file(sources)
    files = fake.files["them/Qwen2.5-1.5B-rkllm"]
    del files["page.rkllm"]
    files |= {"README.md": b"", "x-rk3576-w4a16.rkllm": WEIGHTS, "x-rk3588-w8a8_g128.rkllm": WEIGHTS}
    folder = pull(sources, Pull("qwen2.5-1.5b"), quietly)
    assert folder.card.source is not None
    assert folder.file.name == folder.card.source.file == "Qwen2.5-1.5B-Instruct_W8A8_RK3588.rkllm"


def test_of_several_files_one_has_to_be_named(sources: ModelSources, fake: FakeHub) -> None:
    without_a_file(sources)
    fake.files["them/Qwen2.5-1.5B-rkllm"] = {"a-w8a8.rkllm": WEIGHTS, "b-w8a8.rkllm": WEIGHTS, "c.bin": b""}
    with pytest.raises(ModelDownloadError) as caught:
        pull(sources, Pull("qwen2.5-1.5b"), quietly)
    assert str(caught.value) == (
        "them/Qwen2.5-1.5B-rkllm has 2 .rkllm files: a-w8a8.rkllm, b-w8a8.rkllm. Name one with --file."
    )
    assert pull(sources, Pull("qwen2.5-1.5b", file="b-w8a8.rkllm"), quietly).file.name == "b-w8a8.rkllm"
    fake.files["them/Qwen2.5-1.5B-rkllm"] = {}
    sources.folders.remove("qwen2.5-1.5b")
    with pytest.raises(ModelDownloadError, match=r"has no \.rkllm file\. Name another with --repository\."):
        pull(sources, Pull("qwen2.5-1.5b"), quietly)


def test_a_gated_tokenizer_is_taken_from_the_repository_of_the_file(sources: ModelSources, fake: FakeHub) -> None:
    not_accepted(fake)
    fake.files["them/Qwen2.5-1.5B-rkllm"]["tokenizer.json"] = TOKENIZER
    assert pull(sources, Pull("qwen2.5-1.5b"), quietly).tokenizer.read_bytes() == TOKENIZER


@pytest.mark.parametrize(
    ("wish", "error", "sentence"),
    [
        (Pull("qwen2.5-1.b"), ModelNotFoundError, "Did you mean 'qwen2.5-1.5b'?"),
        (Pull("mine", "them/x", "x.rkllm"), UsageError, "the chat template of 'mine' is unknown"),
        (Pull("demo"), UsageError, "is a script for the emulated runtime"),
        (Pull("../x"), UsageError, "is not a valid model name"),
        (
            Pull("qwen3-4b", "no repository", "x.rkllm"),
            UsageError,
            "--repository is OWNER/NAME, and --file the path of a file in it",
        ),
        (Pull("qwen3-4b", "them/x", "../../etc/passwd"), UsageError, "--repository is OWNER/NAME"),
    ],
)
def test_a_wish_that_cannot_be_meant_says_so(
    sources: ModelSources, wish: Pull, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error) as caught:
        pull(sources, wish, quietly)
    assert sentence in str(caught.value)
