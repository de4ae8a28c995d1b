"""A wish that this version cannot grant is said."""

from __future__ import annotations

from pathlib import Path

from rkllm_mcp.app.settings import unsupported_settings
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.sections import Config


def config_of(folder: Path, text: str) -> Config:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return load_config(path)


def test_other_wishes_are_named_and_have_no_effect(tmp_path: Path) -> None:
    config = config_of(
        tmp_path, '[provider.fallback]\nkind = "openai"\nmodel = "m"\nbase_url = "http://127.0.0.1:1"\nwhen = []\n'
    )
    assert list(unsupported_settings(config)) == [
        "provider.fallback has no effect while its 'when' is empty; list the occasions on which it takes over"
    ]
    assert list(unsupported_settings(config_of(tmp_path, ""))) == []
