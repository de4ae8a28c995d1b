"""Exports of other programs that are large or odd."""

from __future__ import annotations

from typing import Any

from rkllm_mcp.conversations.imports import foreign_conversations


def test_many_messages_of_one_speaker_are_one_turn_however_many_they_are() -> None:
    texts = [f"message {number} {'x' * 500}" for number in range(20_000)]
    mapping: dict[str, Any] = {
        str(number): {
            "parent": str(number - 1),
            "message": {
                "author": {"role": "user" if number < 19_999 else "assistant"},
                "content": {"content_type": "text", "parts": [text]},
                "create_time": 1000 + number,
            },
        }
        for number, text in enumerate(texts)
    }
    read = foreign_conversations({"title": "a", "mapping": mapping, "current_node": "19999"})
    assert read is not None
    assert [(turn.role, turn.text, turn.at) for turn in read[0].turns] == [
        ("user", "\n\n".join(texts[:-1]), 20_998.0),
        ("assistant", texts[-1], 20_999.0),
    ]
