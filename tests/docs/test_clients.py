"""The examples of docs/clients.md, as they are printed, against a service at another address than the printed one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.clients import client
from tests.support.documents import blocks
from tests.support.served import Served, scripted_model, served

PRINTED = "http://127.0.0.1:8080"
EXAMPLES = [
    (language, words, text, where)
    for language, words, text, where in blocks("docs/clients.md")
    if language not in ("toml", "json", "python")
]
PATIENCE_S = 120


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("clients")
    # One token, so that it is in one piece of every stream.
    model = scripted_model(folder / "model", "rule\n  user Hello\n  say weather\n")
    with served(folder / "home", model) as it:
        yield it


@pytest.mark.parametrize(
    ("language", "words", "text"), [each[:3] for each in EXAMPLES], ids=[each[3] for each in EXAMPLES]
)
def test_an_example_is_answered(language: str, words: frozenset[str], text: str, service: Served) -> None:
    command: list[str | Path] = ["bash", "-euc"]
    if language == "py":
        command = [client("python") if ".litellm" in words else sys.executable, "-c"]
    assert PRINTED in text
    done = subprocess.run(
        [*command, text.replace(PRINTED, service.url)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        # LiteLLM would first ask the internet what models cost.
        env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "weather" in done.stdout


def test_every_kind_of_client_has_an_example() -> None:
    assert sorted((language, ".litellm" in words) for language, words, _, _ in EXAMPLES) == [
        ("bash", False),
        ("bash", False),
        ("py", False),
        ("py", False),
        ("py", False),
        ("py", True),
    ]
