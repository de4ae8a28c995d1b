from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_mcp.config.sections import ModelSection
from rkllm_mcp.errors import ConfigError, ModelNotFoundError
from rkllm_mcp.models.cards import choose_model, list_models, load_model, model_directories


def make_model(
    folder: Path, name: str, card: str = "", *, weights: str | None = "weights", tokenizer: bool = True
) -> Path:
    place = folder / name
    place.mkdir(parents=True)
    (place / "model.toml").write_text(card)
    if weights is not None:
        (place / "model.rkllm").write_text(weights)
    if tokenizer:
        (place / "tokenizer.json").write_text("{}")
    return place


def test_the_first_directory_that_has_the_name_wins(tmp_path: Path) -> None:
    make_model(tmp_path / "a", "m", 'description = "first"\n')
    make_model(tmp_path / "b", "m", 'description = "second"\n')
    directories = [tmp_path / "none", tmp_path / "a", tmp_path / "b"]
    assert load_model("m", directories).card.description == "first"
    assert [model.card.description for model in list_models(directories)] == ["first"]


def test_a_path_is_a_folder_or_a_file(tmp_path: Path) -> None:
    place = make_model(tmp_path, "m", 'template = "qwen2.5"\n')
    (place / "other.rkllm").write_text("x")
    assert load_model(place).file == place / "model.rkllm"
    by_file = load_model(str(place / "other.rkllm"))
    assert (by_file.file, by_file.card.template) == (place / "other.rkllm", "qwen2.5")


def test_a_bare_file_is_described_by_its_name_and_first_line(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    for name, text, template, emulated in (
        ("Qwen3-1.7B_w8a8.rkllm", "weights", "qwen3", False),
        ("qwen2.5-1.5b.rkllm", "weights", "qwen2.5", False),
        ("script.rkllm", "RKLLM-EMULATOR 1\n", "chatml", True),
    ):
        (tmp_path / name).write_text(text)
        card = load_model(tmp_path / name).card
        assert (card.name, card.template, card.emulated) == (name.removesuffix(".rkllm"), template, emulated)


def test_a_missing_file_is_named_with_the_place_to_put_it(tmp_path: Path) -> None:
    place = make_model(tmp_path, "big", weights=None)
    make_model(tmp_path, "bare", tokenizer=False)
    (tmp_path / "empty").mkdir()
    cases = {
        "big": f"The model 'big' has no weights here. Fetch them with 'rkllm-mcp models pull big', or put its "
        f".rkllm file at {place}/model.rkllm.",
        "bare": "The model 'bare' has no tokenizer. Put the tokenizer.json of the original model at "
        f"{tmp_path}/bare/tokenizer.json.",
        "bigg": "There is no model 'bigg'. Did you mean 'big'? Known here: bare, big.",
        str(tmp_path / "empty"): f"The folder {tmp_path}/empty has neither a model.toml nor a .rkllm file. "
        "Name the .rkllm file itself.",
        str(tmp_path / "no.rkllm"): f"There is no {tmp_path}/no.rkllm. Name a model folder or a .rkllm file.",
    }
    for name, sentence in cases.items():
        with pytest.raises(ModelNotFoundError) as caught:
            load_model(name, [tmp_path])
        assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("card", "sentence"),
    [
        ('tmplate = "qwen3"', "tmplate: found an unknown key; known here are name, description, task, template,"),
        ('template = "qwen4"', "template: found 'qwen4'; allowed are chatml, deepseek-r1, gemma3, "),
        ('syntaxes = ["hermess"]', "syntaxes: found 'hermess'; allowed are "),
        ("context_tokens = -1", "context_tokens: found -1 (a number); a number above 0 is allowed"),
        ("[sampling]\ntopk = 1", "sampling.topk: found an unknown key; known here are temperature, top_k,"),
    ],
)
def test_a_card_that_cannot_be_used_names_its_key_and_line(tmp_path: Path, card: str, sentence: str) -> None:
    make_model(tmp_path, "m", f'name = "m"\n{card}\n')
    line = 1 + len(card.splitlines())
    with pytest.raises(ConfigError) as caught:
        load_model("m", [tmp_path])
    assert str(caught.value).startswith(f"{tmp_path}/m/model.toml:{line}: {sentence}")


def test_without_a_name_the_only_real_model_is_chosen(tmp_path: Path) -> None:
    make_model(tmp_path, "demo", "emulated = true\n")
    make_model(tmp_path, "absent", weights=None)
    with pytest.raises(ModelNotFoundError, match=r"^No model is configured: rkllm-mcp setup\."):
        choose_model(ModelSection(), [tmp_path])
    make_model(tmp_path, "real")
    assert choose_model(ModelSection(), [tmp_path]).name == "real"
    assert choose_model(ModelSection(), [tmp_path], emulated=True).name == "demo"
    make_model(tmp_path, "second")
    with pytest.raises(
        ModelNotFoundError, match=r"There are several models: real, second\. Choose one with --model NAME"
    ):
        choose_model(ModelSection(), [tmp_path])
    assert choose_model(ModelSection(name="second"), [tmp_path]).name == "second"


def test_models_are_looked_for_in_the_users_folders_first() -> None:
    env = {"HOME": "/home/u", "RKLLM_MCP_MODELS": "/a:/b", "XDG_DATA_HOME": "/data"}
    assert [str(place) for place in model_directories(env)[:3]] == ["/a", "/b", "/data/rkllm-mcp/models"]


def test_a_folder_that_is_named_like_a_model_is_pointed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_model(tmp_path, "parrot")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ModelNotFoundError, match=r"There is no model 'parrot'\. For the folder of that name write \./parrot"
    ):
        load_model("parrot", [tmp_path / "elsewhere"])
