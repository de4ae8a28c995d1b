from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_mcp.surfaces.chat.files import named_files


@pytest.mark.parametrize(
    ("typed", "paths"),
    [
        ("a.jpg b.jpg", ["a.jpg", "b.jpg"]),
        ("my photo.jpg", ["my photo.jpg"]),
        (r"my\ photo.jpg a.jpg", ["my photo.jpg", "a.jpg"]),
        ("'my photo.jpg' b.jpg", ["my photo.jpg", "b.jpg"]),
        ("file:///tmp/my%20photo.jpg", ["/tmp/my photo.jpg"]),
        ("it's.jpg", ["it's.jpg"]),
        ("no such file.jpg", ["no such file.jpg"]),
        ("~/a.txt", ["~/a.txt"]),
    ],
)
def test_file_takes_the_paths_that_terminals_paste(
    typed: str, paths: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.jpg", "b.jpg", "my photo.jpg", "it's.jpg"):
        (tmp_path / name).touch()
    assert named_files(typed) == paths
