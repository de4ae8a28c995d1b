"""A wish that this version cannot grant is said."""

from __future__ import annotations

from pathlib import Path

from rkllm_mcp.availability import ineffective
from rkllm_mcp.config import Config, load_config


def config_of(folder: Path, text: str) -> Config:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return load_config(path)


def test_other_wishes_are_named_and_have_no_effect(tmp_path: Path) -> None:
    config = config_of(tmp_path, '[[tenants]]\nname = "a"\napi_key = "k"\n')
    assert ineffective(config) == ["tenants is not available in this version and has no effect"]
    assert ineffective(config_of(tmp_path, "")) == []
