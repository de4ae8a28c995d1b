"""What doctor says of a vision encoder, its library and its chip, from the files alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_mcp.board.machine import Machine
from rkllm_mcp.diagnostics.checks import check_encoder
from rkllm_mcp.models.cards import ModelCard, ModelFolder
from rkllm_mcp.models.rkllm_header import RkllmFile
from tests.models.test_rknn_header import ONE, TWO
from tests.support.board_trees import RK3588, plant

OLD = b"librknnrt version: 2.2.0 (c195366594@2024-09-14T12:18:56)"
NEW = b"librknnrt version: 2.3.2 (429f97ae6b@2025-04-09T09:09:27)"
OTHER = "vision.rknn gives 16 numbers for a token, and model.rkllm takes 2048: it is the encoder of another model."
FACTS = "toolkit 2.3.2, 28 x 28 pixels, 4 tokens a picture"


@pytest.mark.parametrize(
    ("encoder", "library", "width", "expected"),
    [
        (ONE, NEW, 16, [("ok", f"vision.rknn, RK3588, {FACTS}"), ("ok", "HERE/librknnrt.so (2.3.2)")]),
        (
            ONE,
            OLD,
            None,
            [
                ("ok", f"vision.rknn, RK3588, {FACTS}"),
                ("warn", "HERE/librknnrt.so (2.2.0), older than the toolkit 2.3.2 of the encoder"),
            ],
        ),
        (
            TWO,
            NEW,
            None,
            [
                ("fail", f"vision.rknn, RK3576, {FACTS}; this board is an RK3588"),
                ("ok", "HERE/librknnrt.so (2.3.2)"),
            ],
        ),
        (
            ONE,
            NEW,
            2048,
            [
                (
                    "fail",
                    OTHER,
                )
            ],
        ),
        (b"RKNN", NEW, None, [("fail", "HERE/vision.rknn is cut off: it has 4 bytes.")]),
    ],
)
def test_an_encoder_is_held_against_board_library_and_model(
    tmp_path: Path, encoder: bytes, library: bytes, width: int | None, expected: list[tuple[str, str]]
) -> None:
    here = tmp_path / "model"
    here.mkdir()
    (here / "vision.rknn").write_bytes(encoder)
    (here / "librknnrt.so").write_bytes(b"\x7fELF\0" + library + b"\0")
    model = ModelFolder(here, ModelCard(name="eyes"), here / "model.rkllm", here / "tokenizer.json")
    machine = Machine(plant(tmp_path / "board", RK3588))
    results = check_encoder(machine, model, RkllmFile(model.file, 1, width=width))
    assert [(result.status, result.found.replace(str(here), "HERE")) for result in results] == expected


def test_a_model_without_an_encoder_has_none_to_check(tmp_path: Path) -> None:
    model = ModelFolder(tmp_path, ModelCard(name="blind"), tmp_path / "model.rkllm", tmp_path / "tokenizer.json")
    assert list(check_encoder(Machine(plant(tmp_path / "board", RK3588)), model, None)) == []
