from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rkllm_mcp.errors import RuntimeUnusableError
from rkllm_mcp.runtime.library import fingerprint
from rkllm_mcp.runtime.profile import (
    RuntimeProfile,
    find_profile,
    model_identity,
    profile_folder,
    profile_path,
    save_profile,
)

FACTS: dict[str, Any] = {"hidden_rows": "last", "reuses_prefix": True, "prefill_ms": [[100, 200.0], [1000, 4000.0]]}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "librkllmrt.so"
    path.write_bytes(b"a library")
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.rkllm"
    path.write_bytes(b"a model")
    return path


def profile_of(library: Path, model: Path, **changes: Any) -> RuntimeProfile:
    blob = fingerprint(library).git_blob
    made = RuntimeProfile(blob, model_identity(model), "1.2.3", "1.2.1", False, "2026-11-22T00:00:00+00:00", FACTS)
    return replace(made, **changes)


def test_a_profile_is_read_as_it_was_stored(tmp_path: Path, library: Path, model: Path) -> None:
    profile = profile_of(library, model, unsettled={"abort": "crashed: SIGSEGV"})
    path = save_profile(profile, tmp_path / "profiles")
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert find_profile(str(library), model, tmp_path / "profiles") == profile


def test_another_build_and_another_model_have_another_profile(tmp_path: Path, library: Path, model: Path) -> None:
    save_profile(profile_of(library, model), tmp_path / "profiles")
    library.write_bytes(b"another library")
    assert find_profile(str(library), model, tmp_path / "profiles") is None
    library.write_bytes(b"a library")
    model.write_bytes(b"another model")
    assert find_profile(str(library), model, tmp_path / "profiles") is None


def test_a_large_model_is_known_by_its_size_and_both_ends(tmp_path: Path) -> None:
    model = tmp_path / "large.rkllm"
    content = bytearray(3 << 20)
    identities: set[str] = set()
    for position, byte in ((0, 0), (10, 1), (len(content) - 1, 2)):
        content[position] = byte
        model.write_bytes(content)
        identities.add(model_identity(model))
    model.write_bytes(content + b"x")
    assert len({*identities, model_identity(model)}) == 4


@pytest.mark.parametrize("text", ["", "not JSON", "[]", "{}", "null"])
def test_a_file_without_a_profile_gives_none(tmp_path: Path, library: Path, model: Path, text: str) -> None:
    save_profile(profile_of(library, model), tmp_path / "profiles").write_text(text)
    assert find_profile(str(library), model, tmp_path / "profiles") is None


@pytest.mark.parametrize(
    "change",
    [
        {"format": 99},
        {"library": "0" * 40},
        {"further": 1},
        {"facts": []},
        {"unsettled": "nothing"},
        {"facts": {"reuses_prefix": "some"}},
        {"facts": {"reuses_prefix": [True]}},
        {"facts": {"prefill_ms": "fast"}},
        {"facts": {"prefill_ms": [[100, 5], [50, 7]]}},
        {"facts": {"reuses_prefix": "yes"}},
        {"facts": {"pause_left_by": "clear"}},
    ],
)
def test_a_profile_that_says_something_else_is_left_out(
    tmp_path: Path, library: Path, model: Path, change: dict[str, Any]
) -> None:
    path = save_profile(profile_of(library, model), tmp_path / "profiles")
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert find_profile(str(library), model, tmp_path / "profiles") is None


def test_without_a_profile_the_engine_has_none(tmp_path: Path, library: Path, model: Path) -> None:
    assert find_profile(str(library), model, tmp_path / "profiles") is None
    assert find_profile(str(tmp_path / "gone.so"), model, tmp_path / "profiles") is None
    assert find_profile(str(library), tmp_path / "gone.rkllm", tmp_path / "profiles") is None


def test_an_engine_gets_the_profile_of_its_library_and_model(tmp_path: Path, library: Path, model: Path) -> None:
    folder = tmp_path / "profiles"
    assert find_profile(str(library), model, folder) is None
    profile = profile_of(library, model)
    save_profile(profile, folder)
    assert find_profile(str(library), model, folder) == profile
    assert find_profile("emulator", model, folder) is None
    assert find_profile(str(tmp_path / "gone.so"), model, folder) is None


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path, library: Path, model: Path) -> None:
    (tmp_path / "profiles").write_text("a file")
    with pytest.raises(RuntimeUnusableError, match=r"cannot be written to .* set XDG_STATE_HOME"):
        save_profile(profile_of(library, model), tmp_path / "profiles")


def test_profiles_are_stored_with_the_state_of_the_user() -> None:
    folder = Path("/home/ada/.local/state/rkllm-mcp/profiles")
    assert profile_folder({"HOME": "/home/ada"}) == folder
    assert profile_folder({"HOME": "/home/ada", "XDG_STATE_HOME": "/var/state"}) == Path(
        "/var/state/rkllm-mcp/profiles"
    )
    assert profile_path("a" * 40, "b" * 64, folder) == folder / f"{'a' * 16}-{'b' * 16}.json"


@pytest.mark.parametrize(
    ("tokens", "seconds"),
    [
        (0, 0.0),
        (50, 0.1),  # between nothing and the first length
        (100, 0.2),
        (550, 2.1),  # halfway between two lengths
        (1000, 4.0),
        (2800, 22.4),  # 4 ms a token at 1000, and 2 ms a token more for each 900 tokens: 8 ms a token
    ],
)
def test_the_time_of_a_prefill_is_estimated_for_every_length(
    library: Path, model: Path, tokens: int, seconds: float
) -> None:
    assert profile_of(library, model).prefill_s(tokens) == pytest.approx(seconds)


def test_one_measured_length_is_taken_as_a_speed(library: Path, model: Path) -> None:
    profile = profile_of(library, model, facts={"prefill_ms": [[100, 200.0]]})
    assert (profile.prefill_s(50), profile.prefill_s(400)) == (0.1, 0.8)


def test_an_unsettled_question_has_no_answer(library: Path, model: Path) -> None:
    profile = profile_of(library, model, facts={})
    assert (profile.prefill_s(100), profile.reuses_prefix) == (None, None)
