"""The second session of a program that asks small questions between its sessions prefills its own words."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.served import Served, scripted_model, served

CHAT = "/v1/chat/completions"
RULES = "rule\nuser (.+)\nsay Heard: $1\n"
RULES_OF_A_PROGRAM = "You are the assistant of a program. Read a file before you change it, and say what you did. "
LONG = RULES_OF_A_PROGRAM * 120
TOOLS = [
    {"type": "function", "function": {"name": f"tool_{number}", "description": RULES_OF_A_PROGRAM * 4}}
    for number in range(12)
]
TITLE = [{"role": "system", "content": "You write a title of at most five words."}, {"role": "user", "content": "Hi"}]
TAGS = [{"role": "user", "content": "Write three tags for this chat:\n<chat>Hello</chat>"}]


@pytest.fixture
def service(tmp_path: Path) -> Generator[Served, None, None]:
    with served(tmp_path, scripted_model(tmp_path / "model", RULES, template="qwen3", context=16_384)) as it:
        yield it


def _share_prefilled(service: Served, body: dict[str, Any]) -> float:
    """Ask, and return the share of the prompt that was prefilled."""
    answer = httpx2.post(service.url + CHAT, json={"model": "parrot", **body}, timeout=120)
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    return 1 - usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"]


def _session(words: str, **changes: Any) -> dict[str, Any]:
    return {"messages": [{"role": "system", "content": LONG}, {"role": "user", "content": words}], **changes}


@pytest.mark.parametrize(
    ("before", "behind", "changes"),
    [
        ([TITLE], [], {"tools": TOOLS}),
        ([], [TITLE, TAGS, TAGS], {}),
        ([TITLE], [TAGS], {"tools": TOOLS}),
    ],
    ids=["a title before", "title and tags behind", "both"],
)
def test_small_questions_between_two_sessions_do_not_cost_the_long_prompt(
    service: Served, before: list[Any], behind: list[Any], changes: dict[str, Any]
) -> None:
    shares: list[float] = []
    for words in ("Read the first file.", "And now the second one."):
        for messages in before:
            _share_prefilled(service, {"messages": messages})
        shares.append(_share_prefilled(service, _session(words, **changes)))
        for messages in behind:
            _share_prefilled(service, {"messages": messages})
    assert shares[0] > 0.9
    assert shares[1] < 0.1
