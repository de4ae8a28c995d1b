"""The generated parts of docs/ are what the program says today, and the tree that a page draws is the one there is."""

from __future__ import annotations

import inspect
import pydoc
import re
from collections.abc import Callable
from typing import Any

import pytest

from rkllm_mcp.events import EVENT_TYPES
from scripts.reference import BLOCKS, parameters, regenerated
from tests.support.shared import REPOSITORY


@pytest.mark.parametrize(("page", "name", "make"), BLOCKS, ids=lambda value: value if isinstance(value, str) else "")
def test_the_generated_part_of_a_page_is_up_to_date(page: str, name: str, make: Callable[[], str]) -> None:
    written = (REPOSITORY / page).read_text(encoding="utf-8")
    assert regenerated(page, name, make) == written, f"{page} is out of date; 'scripts/fix' writes it again"


def test_the_tree_in_the_architecture_page_is_the_tree_of_the_repository() -> None:
    page = (REPOSITORY / "docs" / "development" / "architecture.md").read_text(encoding="utf-8")
    drawn = page.partition("## The tree\n")[2].partition("\n## ")[0]
    top = set(re.findall(r"^    ([a-z_]+)/", drawn, re.MULTILINE))
    assert {name for name in top if not (REPOSITORY / name).is_dir()} == set()
    package = drawn.partition("    rkllm_mcp/\n")[2]
    inside = {name for line in re.findall(r"^      ((?:[a-z_]+(?:/|\.py) ?)+)", package, re.MULTILINE)
              for name in line.split()}  # fmt: skip
    there = {
        f"{path.name}/" if path.is_dir() else path.name
        for path in (REPOSITORY / "rkllm_mcp").iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").is_file()) and not path.name.startswith("__")
    }
    assert inside == there


def test_every_kind_of_event_is_explained() -> None:
    cli = (REPOSITORY / "docs" / "cli.md").read_text(encoding="utf-8")
    assert [event.kind for event in EVENT_TYPES if f"\n| `{event.kind}` |" not in cli] == []


@pytest.mark.parametrize(
    ("route", "method"),
    [
        ("POST /v1/chat/completions", "openai.resources.chat.Completions.create"),
        ("POST /v1/completions", "openai.resources.Completions.create"),
        ("POST /v1/responses", "openai.resources.responses.Responses.create"),
        ("POST /v1/embeddings", "openai.resources.Embeddings.create"),
        ("POST /v1/messages", "anthropic.resources.Messages.create"),
        ("POST /v1/messages", "anthropic.resources.beta.Messages.create"),
        ("POST /v1/messages/count_tokens", "anthropic.resources.Messages.count_tokens"),
        ("POST /v1/messages/count_tokens", "anthropic.resources.beta.Messages.count_tokens"),
        ("POST /api/chat", "ollama.Client.chat"),
        ("POST /api/generate", "ollama.Client.generate"),
    ],
)
def test_the_table_of_parameters_has_every_parameter_of_the_vendors_client(route: str, method: str) -> None:
    call: Any = pydoc.locate(method)
    sent = set(inspect.signature(call).parameters) - {"self", "extra_headers", "extra_query", "extra_body", "timeout"}
    row = next(line for line in parameters().splitlines() if line.startswith(f"| `{route}` |"))
    assert sent <= set(re.findall(r"`(\w+)`", row))
