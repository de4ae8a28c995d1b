"""Tab: commands, tools, servers, resources, prompts and their arguments, with a real server behind them."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from rkllm_mcp.app.root import open_app
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.messages import StoredTurn
from rkllm_mcp.records import StoredApproval, StoredConversation
from rkllm_mcp.surfaces.chat.completion import Completions
from rkllm_mcp.surfaces.chat.host import LocalHost
from tests.support.feature_demo import DESK, make_features

CASES: dict[str, tuple[str, str]] = {
    "/re": ("/re", "/retry /resources /resource /resume /rename /remember"),
    "/save fi": ("fi", ""),
    "": ("", ""),
    "tell ask_o": ("ask_o", "ask_owner"),
    "/disable to": ("to", "touch"),
    "/enable d": ("d", "desk"),
    "/resources ": ("", "desk"),
    "/resource desk:memo://m": ("desk:memo://m", "desk:memo://monday"),
    "read @de": ("@de", "@desk:"),
    "read @desk:memo://t": ("@desk:memo://t", "@desk:memo://tuesday"),
    "read @desk:memo://day/": ("@desk:memo://day/", "@desk:memo://day/2026-11-21 @desk:memo://day/2026-11-22"),
    "read @desk:memo://da": ("@desk:memo://da", "@desk:memo://day/"),
    "read @nobody:x": ("@nobody:x", ""),
    "/prompt co": ("co", "code_review"),
    "/prompt code_review ": ("", "language= style="),
    "/prompt code_review language=python s": ("s", "style="),
    "/prompt code_review language=p": ("language=p", "language=python language=pascal"),
    "/prompt nothing x": ("x", ""),
    "/approve f": ("f", "forget"),
    "/resume ab": ("ab", "abc"),
    "/set te": ("te", "temperature"),
    "/model de": ("de", "demo"),
    "/file pap": ("pap", "papers/"),
    "/file papers/": ("papers/", "papers/a.txt papers/日誌.md"),
    "/file papers/.": ("papers/.", "papers/.hidden"),
    "/file none/": ("none/", ""),
    "sum up @papers/日": ("@papers/日", "@papers/日誌.md"),
    'sum up @"papers/a': ('@"papers/a', "@papers/a.txt"),
    "/approve forget del": ("del", "delete_file"),
}


@pytest.mark.anyio
async def test_typed_words_become_existing_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demo = make_features(tmp_path, [DESK])
    for name, value in demo.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "papers").mkdir()
    for file in ("a.txt", "日誌.md", ".hidden"):
        (tmp_path / "papers" / file).touch()
    with anyio.fail_after(60):
        async with open_app(load_config(demo.config)) as app:
            await app.toolbox.wait_until_connected()
            app.store.grants.keep("notes", "delete_file", StoredApproval("always", ""))
            turns = (StoredTurn("user", "Why?"), StoredTurn("assistant", "So.", ending="answered"))
            for name in ("abc", "xyz"):
                await app.store.conversations.add("", StoredConversation(name, "Why?", 1.0, 2.0, turns))
            complete = Completions(LocalHost(app)).complete
            found = {text: await complete(text) for text in CASES}
            commands = await Completions(LocalHost(app), language="ja").complete("/st")
    assert {text: (word, [*names]) for text, (word, names) in found.items()} == {
        text: (word, names.split()) for text, (word, names) in CASES.items()
    }
    assert commands == ("/st", {"/stats": "この会話のトークン数と速さ"})
    assert found["/resume ab"][1] == {"abc": "Why?"}
    assert found["/prompt co"][1] == {"code_review": "Reviews code."}
