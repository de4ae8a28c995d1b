"""Facts of a .rknn file: two real ones that the toolkit made, every cut of one, and the emulated one."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from rkllm_mcp.errors import ModelFileError
from rkllm_mcp.models.rknn_header import RknnFile, read_rknn_file
from tests.support.pictures import emulated_encoder
from tests.support.shared import REPOSITORY

DATA = REPOSITORY / "tests" / "data" / "rknn"


def real(name: str) -> bytes:
    return lzma.decompress((DATA / f"{name}.rknn.xz").read_bytes())


ONE, TWO = real("one-output-rk3588"), real("two-outputs-rk3576")


def written(folder: Path, data: bytes) -> Path:
    path = folder / "vision.rknn"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(("data", "platform", "outputs"), [(ONE, "RK3588", 1), (TWO, "RK3576", 2)])
def test_a_file_of_the_toolkit_says_its_chip_its_picture_and_its_tokens(
    tmp_path: Path, data: bytes, platform: str, outputs: int
) -> None:
    path = written(tmp_path, data)
    assert read_rknn_file(path) == RknnFile(path, len(data), platform, "2.3.2", (28, 28), 4, 16, outputs)


def test_an_emulated_encoder_says_the_same(tmp_path: Path) -> None:
    path = emulated_encoder(tmp_path, width=24, lines="outputs 4\nplatform rk3576")
    size = path.stat().st_size
    assert read_rknn_file(path) == RknnFile(path, size, "RK3576", None, (64, 64), 16, 24, 4, emulated=True)


def test_a_file_that_is_cut_off_or_changed_is_refused_or_says_less_and_nothing_wrong(tmp_path: Path) -> None:
    whole = read_rknn_file(written(tmp_path, ONE))
    # The facts are at the end, so a cut takes all of them.
    for end in (0, 3, 4, 17, 63, 64, 71, 72, 1000, len(ONE) // 2, len(ONE) - 1100, len(ONE) - 900, len(ONE) - 1):
        path = written(tmp_path, ONE[:end])
        try:
            assert read_rknn_file(path) == RknnFile(path, end)
        except ModelFileError as error:
            assert "cut off" in error.message or "no .rknn file" in error.message
    start = ONE.rindex(b'{"connection"')
    for place in range(start - 8, len(ONE), 7):
        changed = read_rknn_file(written(tmp_path, ONE[:place] + b"\xff" + ONE[place + 1 :]))
        assert changed in (RknnFile(changed.path, len(ONE)), whole) or place > start, place


@pytest.mark.parametrize("data", [b"", b"RKNN", b"GGUF" + bytes(99), b"version https://git-lfs.github.com/spec/v1\n"])
def test_another_file_is_refused_in_a_sentence(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ModelFileError):
        read_rknn_file(written(tmp_path, data))
    with pytest.raises(ModelFileError, match="cannot be read"):
        read_rknn_file(tmp_path)
