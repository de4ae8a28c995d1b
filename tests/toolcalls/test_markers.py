"""What is inside a code fence or behind a backtick is quoted."""

from __future__ import annotations

import pytest

from rkllm_mcp.toolcalls.markers import CodeFenceState

CASES = {
    "": False,
    "text": False,
    "a `": True,
    "a `b`": True,
    "a `b` ": False,
    "```": True,
    "```python": True,
    "```python\ncode": True,
    "```python\ncode\n```\n": False,
    "```python\ncode\n``` ": False,
    "text ``` in a line": False,
    "   ```\n": True,
    "    ```\n": False,
    "````\n```\n": True,
    "````\n```\n````\n": False,
    "``\n": False,
    "```\n\n\n": True,
    "```" + "`" * 40 + "\ncode\n": True,
    "long " * 100 + "\n```\n": True,
}


@pytest.mark.parametrize(("text", "quoted"), CASES.items())
def test_a_position_is_quoted_the_same_with_any_chunks(text: str, quoted: bool) -> None:
    whole, single = CodeFenceState(), CodeFenceState()
    whole.feed(text)
    for character in text:
        single.feed(character)
    single.feed("")
    assert (whole.is_quoted, single.is_quoted) == (quoted, quoted)
